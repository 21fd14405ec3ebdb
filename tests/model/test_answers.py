"""Answers in and out of the model: any attributes in any order, many at once, with conditions by name, and what they rest on."""

from __future__ import annotations

from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claims.judges import marginal
from consilience.domain import Domain
from consilience.errors import CapacityError, ConsilienceError, DomainError
from consilience.fits import LeastSquares, load, reconstruct
from consilience.measurements import Measurement
from consilience.model import Model
from consilience.model.filters import selection
from consilience.model.out_of_model import METHODS
from consilience.progress import Step
from consilience.regions import RegionGraph
from model.cases import maximum_entropy
from solvers.problems import RECORDS, D, marginal_of, noisy, true_counts

MODELS = ("local", "global", "factor")


WITHOUT_CLASSES = [m for m in METHODS if m != "mixture"]
"""Methods for models without latent classes."""


@pytest.fixture(scope="session")
def local() -> Model:
    return reconstruct(
        D, noisy(D, "ab bc cd ac", 1), total=RECORDS, fit=LeastSquares(consistency="local")
    )


@pytest.fixture(scope="session")
def exact() -> Model:
    return reconstruct(
        D, noisy(D, "ab bc cd ad", 2), total=RECORDS, fit=LeastSquares(consistency="global")
    )


@pytest.fixture(scope="session")
def factor() -> Model:
    return reconstruct(D, noisy(D, "abc bcd de", 3), fit=LeastSquares(consistency="factor"))


@pytest.fixture(scope="session")
def models(local: Model, exact: Model, factor: Model) -> dict[str, Model]:
    return {"local": local, "global": exact, "factor": factor}


CALLS = [s for k in range(5) for s in combinations(D.attributes, k)]


@pytest.mark.parametrize("name", MODELS)
def test_in_model_answers_are_the_stored_tables_in_any_order(
    name: str, models: dict[str, Model]
) -> None:
    model = models[name]
    for region, table in model.tau.items():
        if not model.in_model(region):
            continue
        for order in permutations(region):
            expected = model.total * table.transpose([region.index(a) for a in order])
            for method in WITHOUT_CLASSES:
                found = model.marginal(order, method)
                np.testing.assert_allclose(found, expected, atol=1e-9 * model.total)


@pytest.mark.parametrize("method", WITHOUT_CLASSES)
@pytest.mark.parametrize("name", MODELS)
def test_every_method_gives_distributions_that_agree_with_the_model(
    name: str, method: str, models: dict[str, Model]
) -> None:
    model = models[name]
    for asked in [c for c in CALLS if not model.in_model(c)][:: 1 if method != "expanded" else 7]:
        table = model.marginal(asked, method)
        assert table.shape == D.shape_of(asked)
        assert table.min() >= 0
        assert table.sum() == pytest.approx(model.total, rel=1e-9)
        turned = model.marginal(asked[::-1], method)
        np.testing.assert_array_equal(turned, table.transpose())
        if method in ("auto", "backbone", "local") and name != "factor":
            for part in model.known.overlaps(asked):
                axes = tuple(i for i, a in enumerate(asked) if a not in part)
                np.testing.assert_allclose(
                    table.sum(axis=axes), model.marginal(part), atol=1e-6 * model.total
                )


def test_a_global_model_answers_by_its_own_distribution(exact: Model) -> None:
    """Private-PGM: the maximum-entropy joint with the fitted tables; attributes that nothing mentions are uniform."""
    judge = maximum_entropy(D, exact.known)
    for asked in CALLS:
        expected = exact.total * marginal(D, judge, asked)
        np.testing.assert_allclose(exact.marginal(asked), expected, atol=1e-3 * exact.total)


def test_many_are_each_alone_and_progress_is_told(local: Model) -> None:
    seen: list[Step] = []
    asked = [("a", "b"), ("d", "a"), "e", ("e", "b", "d"), ("d", "a")]
    found = local.marginals(asked, progress=seen.append)
    for order, table in zip(asked, found, strict=True):
        np.testing.assert_array_equal(table, local.marginal(order))
    assert seen[-1].done == seen[-1].total > 0
    assert local.marginals([]) == []
    found[0][...] = -1.0
    assert local.marginal(("a", "b")).min() >= 0


def test_saved_models_answer_alike(tmp_path: Path, local: Model) -> None:
    local.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    for asked in (("a", "d"), ("b", "d", "e")):
        np.testing.assert_array_equal(again.marginal(asked), local.marginal(asked))


def test_what_can_not_be_asked(local: Model) -> None:
    with pytest.raises(
        ConsilienceError, match=r"method must be one of auto, mixture, backbone, local, .*'x'"
    ):
        local.marginal(("a", "d"), "x")
    with pytest.raises(ConsilienceError, match="method must be one of"):
        local.trust(("a", "d"), "x")
    wide = Domain({f"x{i}": 20 for i in range(12)})
    made = [Measurement((f"x{i}", f"x{i + 1}"), np.ones((20, 20)), stddev=1.0) for i in range(11)]
    model = reconstruct(wide, made, total=400.0)
    for call in (model.marginal, model.trust):
        with pytest.raises(CapacityError, match="a table over 12 attributes needs"):
            call(wide.attributes)
    np.testing.assert_allclose(model.marginal(("x0", "x11")), 1.0, atol=1e-6)


# -- conditions ------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(D.attributes), st.sets(st.integers(0, 1), min_size=1), max_size=4
    )
)
def test_counts_are_sums_of_cells(local: Model, where: dict[str, set[int]]) -> None:
    clique = D.clique(where)
    table = local.marginal(clique)
    mask = np.ones(table.shape, bool)
    for i, a in enumerate(clique):
        keep = np.isin(np.arange(D[a]), sorted(where[a]))
        mask &= keep.reshape([-1 if j == i else 1 for j in range(len(clique))])
    assert local.count(where) == pytest.approx(float(table[mask].sum()))


def test_conditions_of_every_kind(local: Model) -> None:
    table = local.marginal(("b", "c"))
    assert local.count({}) == pytest.approx(RECORDS)
    assert local.count({"c": range(1, 3), "b": 2}) == pytest.approx(table[2, 1:3].sum())
    assert local.count({"c": slice(2), "b": [0, 2, 0]}) == pytest.approx(table[[0, 2], :2].sum())
    assert local.count({"b": np.int64(1)}) == pytest.approx(table[1].sum())
    assert local.count({"b": []}) == 0.0
    many = local.counts([{"a": 0, "d": 1}, {"a": 1}])
    assert many == [local.count({"a": 0, "d": 1}), local.count({"a": 1})]


@pytest.mark.parametrize(
    "where, words",
    [
        ({"b": 3}, "a condition on 'b' must name codes 0 to 2, got 3"),
        ({"b": [0, -1]}, "must name codes 0 to 2, got -1"),
        ({"b": "yes"}, "must be given in codes 0 to 2, got the text 'yes'"),
        ({"b": 1.5}, "must be a code, a range, a slice or a list of codes, got 1.5"),
        ({"b": True}, "must be a code, a range, a slice or a list of codes, got True"),
        ({"z": 1}, "must be in the domain, got 'z'"),
    ],
)
def test_conditions_that_are_wrong_are_named(where, words: str) -> None:
    with pytest.raises(DomainError, match=words):
        selection(D, where)


# -- trust -----------------------------------------------------------------------------------------------


def chain_model() -> Model:
    domain = Domain({"a": 2, "b": 2, "c": 2, "d": 3})
    tied = np.array([[450.0, 50.0], [50.0, 450.0]])
    made = [Measurement(("a", "b"), tied, stddev=5.0), Measurement(("b", "c"), tied, stddev=5.0)]
    return reconstruct(domain, made, total=1000.0, fit=LeastSquares(consistency="local"))


def test_trust_says_what_an_answer_rests_on() -> None:
    model = chain_model()
    inside = model.trust(("b", "a"))
    assert (inside.verdict, inside.in_model, inside.links) == ("measured", True, (("a", "b"),))
    assert str(inside) == "b x a: measured together"
    across = model.trust(("a", "c"))
    assert (across.verdict, across.linked) == ("inferred", True)
    assert across.links == (("a", "b"), ("b", "c"))
    table = model.marginal(("a", "c")) / model.total
    local = model.marginal(("a", "c"), "local") / model.total
    np.testing.assert_allclose(local, 0.25, atol=1e-6)
    gap = np.log(4) + float((table * np.log(table)).sum())
    assert across.entropy_gap == pytest.approx(gap, abs=1e-6)
    assert across.entropy_gap > 0.1
    pair = model.marginal(("a", "b")) / model.total
    assert across.weakest == pytest.approx(float((pair * np.log(4 * pair)).sum()), rel=1e-3)
    assert across.violation <= 1e-9
    assert str(across) == "a x c: inferred from a-b and b-c"
    apart = model.trust(("a", "d"))
    assert (apart.verdict, apart.linked, apart.links) == ("assumed", False, ())
    assert str(apart) == "a x d: assumed independent: a, d"
    assert str(model.basis(("a", "c", "d"))) == "assumed independent: a-c, d"
    assert str(model.basis("d")) == "assumed uniform: nothing about d was measured"
    assert apart.entropy_gap == pytest.approx(0.0, abs=1e-9)
    assert apart.stderr is None


def test_trust_of_the_local_method() -> None:
    local = chain_model().trust(("a", "c"), "local")
    assert local.method == "local"
    assert local.entropy_gap > 0.1


def test_standard_errors_on_request_are_those_of_refits() -> None:
    """The spread of the inferred table over fresh noise, simulated here with draws of our own."""
    model = chain_model()
    seen: list[Step] = []
    found = model.trust(("a", "c"), replicates=40, progress=seen.append)
    assert seen[-1] == Step("refits", 40, 40)
    assert found.replicates == 40
    assert "standard error up to" in str(found)
    rng = np.random.default_rng(5)
    tied = np.array([[450.0, 50.0], [50.0, 450.0]])
    draws = []
    for _ in range(40):
        made = [
            Measurement(c, tied + rng.normal(scale=5.0, size=(2, 2)), stddev=5.0)
            for c in (("a", "b"), ("b", "c"))
        ]
        fit = reconstruct(model.domain, made, total=1000.0, fit=LeastSquares(consistency="local"))
        draws.append(fit.marginal(("a", "c")))
    spread = np.std(draws, axis=0)
    assert found.stderr is not None
    assert 0.6 < float(found.stderr.mean() / spread.mean()) < 1.6


def test_over_saturated_estimation_is_in_the_model() -> None:
    """The paper's other road: a region that nothing measures joins the graph, and its table is then stored."""
    table = true_counts(D, 5)
    made = [Measurement(tuple(c), marginal_of(D, table, c), stddev=1.0) for c in ("ab", "bc")]
    graph = RegionGraph.saturated(D, [("a", "b"), ("b", "c")], extra=[("a", "b", "c")])
    model = reconstruct(D, made, fit=LeastSquares(consistency=graph))
    assert model.in_model(("a", "c"))
    assert model.trust(("a", "c")).links == ()
    with pytest.raises(
        ConsilienceError, match=r"need every part of .* measured, some of it is not"
    ):
        model.stderr(("a", "c"), method="closed-form")
