"""One call compares all reconstructions: its numbers against sums made here, refusals as rows, the thinned validation."""

from __future__ import annotations

import numpy as np
import pytest

import consilience as cs
from consilience.baselines import Answers, Tables
from consilience.comparison import METHODS
from consilience.errors import ConsilienceError, DomainError
from consilience.progress import Step

DOMAIN = cs.Domain({"a": 3, "b": 4, "c": 5, "d": 2})
CLIQUES = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]
TOTAL = 2000


def problem(seed=0, stddev=20.0):
    rng = np.random.default_rng(seed)
    codes = np.column_stack(
        [rng.integers(0, n, TOTAL) // (1 + rng.integers(0, 2)) for n in DOMAIN.shape]
    )
    truth = cs.Dataset(codes, DOMAIN).marginals(CLIQUES)
    given = [
        cs.Measurement(c, truth[c] + stddev * rng.standard_normal(truth[c].shape), stddev=stddev)
        for c in CLIQUES
    ]
    return truth, given


@pytest.fixture(scope="module")
def compared():
    truth, given = problem()
    return truth, given, cs.compare(DOMAIN, given, total=TOTAL, truth=truth)


def test_every_method_has_a_row_and_answers(compared) -> None:
    _, _, found = compared
    assert tuple(r.method for r in found.rows) == METHODS
    assert set(found.answers) == set(METHODS)
    assert all(isinstance(a, Answers) for a in found.answers.values())
    assert isinstance(found.answers["local"], cs.Model)


def test_the_numbers_are_those_of_the_answers(compared) -> None:
    truth, given, found = compared
    for r in found.rows:
        tables = {c: found.answers[r.method].marginal(c) for c in CLIQUES}
        apart = np.mean([np.abs(tables[c] - truth[c]).sum() for c in CLIQUES]) / 2 / TOTAL
        assert r.total_variation == pytest.approx(apart)
        misfit = (
            sum(np.square(tables[m.attributes] - m.values).sum() / m.stddev**2 for m in given) / 2
        )
        assert r.objective == pytest.approx(misfit)
        on_b = np.abs(tables["a", "b"].sum(axis=0) - tables["b", "c"].sum(axis=1)).sum() / TOTAL
        assert r.violation >= on_b - 1e-12
        below = np.mean([-np.minimum(t, 0).sum() for t in tables.values()]) / TOTAL
        assert r.negative == pytest.approx(below)
        assert r.seconds > 0


def test_what_must_hold_between_the_methods(compared) -> None:
    _, _, found = compared
    assert found["noisy"].objective == pytest.approx(0, abs=1e-9)
    assert found["noisy"].violation > 1e-3
    for name in ("global", "local", "factor", "prior", "norm-cut"):
        assert found[name].violation < 1e-6
        assert found[name].negative == 0
        assert found[name].total_variation < found["noisy"].total_variation
    assert found["local"].objective <= found["global"].objective * (1 + 1e-4)
    assert found["priview"].objective >= found["local"].objective * (1 - 1e-4)
    assert found["relaxed_projection"].violation < 1e-9


def test_it_reads_as_a_table(compared) -> None:
    _, _, found = compared
    lines = repr(found).splitlines()
    assert lines[0] == "Comparison on 4 measured cliques, 48 cells, total 2,000"
    assert "total variation" in lines[1]
    assert "validated" not in lines[1]
    assert [line.split()[0] for line in lines[2:]] == list(METHODS)
    assert "relaxed_projection" in repr(found)


def test_a_refusal_is_a_row_with_its_reason() -> None:
    big = cs.Domain({f"x{i}": 12 for i in range(14)})
    names = big.attributes
    cliques = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    given = [cs.Measurement(c, np.full((12, 12), 1.0), stddev=1) for c in cliques]
    seen: list[Step] = []
    found = cs.compare(big, given, total=144, methods=("global", "noisy"), progress=seen.append)
    assert seen == [Step("global", 0, 2), Step("noisy", 1, 2)]
    assert not found["global"].done
    assert "memory" in found["global"].refused
    assert found["global"].refused in repr(found)
    assert "global" not in found.answers
    assert found["noisy"].done


@pytest.mark.slow
def test_thinning_ranks_methods_as_the_truth_does_and_estimates_their_distance() -> None:
    """Over many draws the validated mean square is that of a fit to the wider noise, measured against the truth."""
    squares, judged = [], []
    for seed in range(60):
        truth, given = problem(seed)
        found = cs.compare(DOMAIN, given, total=TOTAL, methods=("noisy", "local"), seed=seed)
        assert np.isnan(found["local"].total_variation)
        judged.append((found["noisy"].validation ** 2, found["local"].validation ** 2))
        wide = [
            cs.Measurement(
                m.attributes,
                m.values + 20 * np.random.default_rng(1000 + seed).standard_normal(m.values.shape),
                stddev=20 * 2**0.5,
            )
            for m in given
        ]
        fit = cs.reconstruct(DOMAIN, wide, total=TOTAL, fit=cs.LeastSquares(consistency="local"))
        apart = [np.square(fit.marginal(c) - truth[c]).sum() for c in CLIQUES]
        squares.append(sum(apart) / 48)
    noisy, local = np.mean(judged, axis=0)
    assert noisy == pytest.approx(2 * 20**2, rel=0.25)
    assert local < noisy
    assert local == pytest.approx(np.mean(squares), rel=0.35)


def test_no_validation_for_laplace_noise() -> None:
    given = [cs.Measurement("a", [5.0, 6.0, 7.0], stddev=1, noise="laplace")]
    assert np.isnan(cs.compare(DOMAIN, given, methods=["local"])["local"].validation)


def test_methods_of_ones_own() -> None:
    truth, given = problem()

    def constant(domain, measurements, total):
        uniform = cs.CliqueVector.uniform(domain, CLIQUES) * total
        return Tables(uniform, total, "uniform", 0, 0.0)

    found = cs.compare(DOMAIN, given, total=TOTAL, truth=truth, methods={"uniform": constant})
    expected = (
        np.mean([np.abs(truth[c] - TOTAL / truth[c].size).sum() for c in CLIQUES]) / 2 / TOTAL
    )
    assert found["uniform"].total_variation == pytest.approx(expected)


def test_what_must_be_given() -> None:
    truth, given = problem()
    with pytest.raises(
        ConsilienceError, match=r"methods must be among noisy, global, .* got 'magic'"
    ):
        cs.compare(DOMAIN, given, methods=["magic"])
    with pytest.raises(ConsilienceError, match="at least one method"):
        cs.compare(DOMAIN, given, methods=[])
    short = cs.CliqueVector.from_tables(DOMAIN, {("a", "b"): truth["a", "b"]})
    with pytest.raises(DomainError, match="the truth must hold every measured clique"):
        cs.compare(DOMAIN, given, truth=short)
    found = cs.compare(DOMAIN, given, methods=["noisy"])
    with pytest.raises(ConsilienceError, match="the method must be one of noisy, got 'local'"):
        found["local"]
