"""Norm-cut: least squares and cutting in turns, judged by what it must equal and by sparse tables."""

import numpy as np
import pytest

import consilience as cs
from consilience.baselines import norm_cut
from consilience.errors import ConsilienceError
from consilience.measurements import Prefix

D = cs.Domain({"a": 4, "b": 5, "c": 6})
PAIRS = [("a", "b"), ("b", "c"), ("a", "c")]


def measured(table: np.ndarray, cliques: list, stddev: float, seed: int) -> list[cs.Measurement]:
    rng = np.random.default_rng(seed)
    out = []
    for c in cliques:
        axes = tuple(i for i, a in enumerate(D.attributes) if a not in c)
        truth = table.sum(axis=axes)
        out.append(
            cs.Measurement(c, truth + stddev * rng.standard_normal(truth.shape), stddev=stddev)
        )
    return out


LOCAL = cs.LeastSquares(consistency="local")


def test_one_table_is_cut_as_the_baseline_cuts_it() -> None:
    values = np.random.default_rng(0).normal(3.0, 6.0, (4, 5))
    values += (200.0 - values.sum()) / values.size
    given = [cs.Measurement(("a", "b"), values, stddev=6.0)]
    model = cs.reconstruct(D, given, 200.0, cs.NormCut())
    np.testing.assert_allclose(model.marginal(("a", "b")), norm_cut(values), atol=1e-7)


def test_without_negative_cells_it_is_the_least_squares_fit() -> None:
    given = measured(np.full(D.shape, 100.0), PAIRS, 5.0, 1)
    optimal, cut = (cs.reconstruct(D, given, 12_000.0, fit) for fit in (LOCAL, cs.NormCut()))
    for pair in PAIRS:
        np.testing.assert_allclose(cut.marginal(pair), optimal.marginal(pair), atol=1e-2)
    assert cut.diagnostics.iterations == 1


@pytest.mark.parametrize("seed", range(4))
def test_sparse_tables_agree_are_not_negative_and_are_closer(seed: int) -> None:
    domain = cs.Domain(dict.fromkeys("abcd", 8))
    cliques = [("a", "b", "c"), ("b", "c", "d"), ("a", "c", "d")]
    rng = np.random.default_rng(seed)
    joint = np.zeros(domain.shape)
    for place in rng.integers(
        0, 8, (25, 4)
    ):  # 25 kinds of record, the rest of 4,096 cells is empty
        joint[tuple(place)] += rng.integers(200, 2_000)
    truth = {
        c: joint.sum(axis=tuple(i for i, a in enumerate("abcd") if a not in c)) for c in cliques
    }
    given = [
        cs.Measurement(c, t + 60.0 * rng.standard_normal(t.shape), stddev=60.0)
        for c, t in truth.items()
    ]
    distance = {}
    for how, fit in {"optimal": LOCAL, "norm-cut": cs.NormCut()}.items():
        model = cs.reconstruct(domain, given, joint.sum(), fit)
        assert model.diagnostics.violation < 1e-9
        assert all(model.marginal(c).min() >= 0 for c in cliques)
        distance[how] = sum(np.abs(model.marginal(c) - truth[c]).sum() for c in cliques)
    assert distance["norm-cut"] < 0.95 * distance["optimal"]


def test_its_status_claims_no_optimum() -> None:
    model = cs.reconstruct(D, measured(np.ones(D.shape), PAIRS, 2.0, 2), fit=cs.NormCut())
    assert model.diagnostics.method == "norm-cut"
    assert "minimises no loss" in model.diagnostics.advice


def test_a_query_is_refused_even_inside_a_measured_table() -> None:
    """It was not: every table came out as NaN, under a status that claimed success."""
    running = cs.Measurement("c", np.arange(6.0), stddev=1.0, query=Prefix(6))
    with pytest.raises(
        ConsilienceError,
        match="NormCut takes measurements of whole tables, got one through a query",
    ):
        cs.reconstruct(D, [*measured(np.ones(D.shape), PAIRS, 1.0, 3), running], fit=cs.NormCut())


def test_the_old_option_is_named() -> None:
    with pytest.raises(
        ConsilienceError, match=r"no nonnegativity= any more: write fit=cs.NormCut\(\)"
    ):
        cs.reconstruct(D, measured(np.ones(D.shape), PAIRS, 1.0, 3), nonnegativity="norm-cut")


def test_an_unmeasured_root_is_said() -> None:
    with pytest.raises(
        ConsilienceError, match="NormCut needs every region without parents measured"
    ):
        cs.reconstruct(
            D,
            measured(np.ones(D.shape), PAIRS, 1.0, 3),
            fit=cs.NormCut(consistency="global"),
        )
