"""Model: marginals in any order, agreeing with each other, summing to the total; queries; what is in the model; words."""

from itertools import combinations, permutations

import numpy as np
import pytest

from consilience.domain import Domain
from consilience.errors import ConsilienceError, DomainError, MeasurementError
from consilience.fits import LeastSquares, Shrunk, reconstruct
from consilience.measurements import Measurement, Prefix
from consilience.model import Model
from solvers.problems import RECORDS, D, marginal_of, noisy, true_counts

MODELS = ("local", "global", "factor")


@pytest.fixture(scope="session")
def local() -> Model:
    return reconstruct(
        D, noisy(D, "abc bcd de", 1), total=RECORDS, fit=LeastSquares(consistency="local")
    )


@pytest.fixture(scope="session")
def exact() -> Model:
    return reconstruct(
        D, noisy(D, "ab bc cd ad", 2), total=RECORDS, fit=LeastSquares(consistency="global")
    )


@pytest.fixture(scope="session")
def factor() -> Model:
    return reconstruct(
        D,
        noisy(D, "abc bcd de", 3),
        fit=LeastSquares(consistency="factor", solver="prox", iterations=30),
    )


@pytest.fixture(scope="session")
def models(local: Model, exact: Model, factor: Model) -> dict[str, Model]:
    return {"local": local, "global": exact, "factor": factor}


def inside(model: Model) -> list[tuple[str, ...]]:
    """Every attribute set that some region contains."""
    return sorted(
        {s for r in model.graph.regions for k in range(len(r) + 1) for s in combinations(r, k)}
    )


@pytest.mark.parametrize("name", MODELS)
def test_marginals_are_non_negative_and_sum_to_the_total(
    name: str, models: dict[str, Model]
) -> None:
    model = models[name]
    for attributes in inside(model):
        table = model.marginal(attributes)
        assert table.shape == D.shape_of(attributes)
        assert table.min() >= 0
        assert table.sum() == pytest.approx(model.total, rel=1e-9)
        assert model.in_model(attributes) == any(
            set(attributes).issubset(c)
            for c in (model.cliques if name == "global" else model.graph.regions)
        )


@pytest.mark.parametrize("name", ["local", "global"])
def test_sub_marginals_agree_whichever_table_they_come_from(
    name: str, models: dict[str, Model]
) -> None:
    model = models[name]
    for region in model.graph.regions:
        table = model.marginal(region)
        for k in range(1, len(region)):
            for kept in combinations(region, k):
                axes = tuple(i for i, a in enumerate(region) if a not in kept)
                np.testing.assert_allclose(
                    table.sum(axis=axes), model.marginal(kept), atol=1e-8 * model.total
                )


def test_axes_follow_the_order_asked_for(local: Model) -> None:
    table = local.marginal(("a", "b", "c"))
    for order in permutations("abc"):
        expected = table.transpose(["abc".index(a) for a in order])
        np.testing.assert_array_equal(local.marginal(order), expected)
    np.testing.assert_array_equal(local.marginal("b"), local.marginal(["b"]))
    assert local.marginal(()) == pytest.approx(RECORDS)


def test_a_marginal_is_the_callers_to_change(local: Model) -> None:
    before = local.tau.values.copy()
    for attributes in (("a", "b", "c"), ("b",), ("d", "e")):
        local.marginal(attributes)[...] = -1.0
    np.testing.assert_array_equal(local.tau.values, before)


def test_answers_follow_the_order_asked_for(local: Model) -> None:
    table = local.marginal(("c", "b"))
    rows = np.arange(24.0).reshape(2, 12)
    np.testing.assert_allclose(local.answer(("c", "b"), rows), rows @ table.reshape(-1))
    np.testing.assert_allclose(local.answer("c", Prefix(4)), np.cumsum(local.marginal("c")))
    turned = local.marginal(("b", "c")).reshape(-1)
    np.testing.assert_allclose(local.answer(("b", "c"), rows), rows @ turned)
    assert not np.allclose(rows @ turned, rows @ table.reshape(-1))
    with pytest.raises(MeasurementError, match=r"one column per cell .*\(12\), got 5"):
        local.answer(("c", "b"), np.ones((1, 5)))


def test_in_model(local: Model) -> None:
    assert local.in_model(("c", "a"))
    assert local.in_model("e")
    assert not local.in_model(("a", "e"))
    assert local.region_of(("c", "d")) == ("b", "c", "d")
    assert local.region_of("d") == ("d",)
    with pytest.raises(
        DomainError, match=r"some measured region must contain \('a', 'e'\), none does"
    ):
        local.region_of(("a", "e"))


def test_attributes_that_are_wrong_are_named(local: Model) -> None:
    with pytest.raises(DomainError, match=r"must be distinct, got \('a', 'a'\)"):
        local.marginal(("a", "a"))
    with pytest.raises(DomainError, match="must be in the domain, got 'z'"):
        local.marginal(("a", "z"))


def test_without_noise_the_truth_comes_back() -> None:
    table = true_counts(D, 5)
    made = [
        Measurement(tuple(c), marginal_of(D, table, c), stddev=1.0) for c in ("abc", "bcd", "de")
    ]
    for consistency in ("local", "global", "factor"):
        model = reconstruct(D, made, fit=LeastSquares(consistency=consistency))
        assert model.total == pytest.approx(RECORDS)
        for m in made:
            np.testing.assert_allclose(model.marginal(m.attributes), m.values, atol=1e-2)


def test_measurements_in_any_axis_order_are_the_same_model(local: Model) -> None:
    made = noisy(D, "abc bcd de", 1)
    turned = [Measurement(m.attributes[::-1], m.values.transpose(), stddev=m.stddev) for m in made]
    other = reconstruct(D, turned, total=RECORDS, fit=LeastSquares(consistency="local"))
    np.testing.assert_array_equal(other.tau.values, local.tau.values)


def test_attributes_of_size_one_and_a_single_table() -> None:
    domain = Domain({"a": 1, "b": 3})
    made = [Measurement(("a", "b"), [[1.0, 2.0, -1.0]], stddev=1.0)]
    model = reconstruct(domain, made, total=2.0)
    np.testing.assert_allclose(model.marginal("b"), [0.5, 1.5, 0.0], atol=1e-6)
    np.testing.assert_allclose(model.marginal("a"), [2.0])


def test_words(local: Model, factor: Model) -> None:
    assert repr(local) == (
        "Model(5 attributes, total 1,000, 3 measured cliques, saturated consistency, "
        f"{local.tau.values.nbytes} B; converged, relative gap {local.diagnostics.gap:.1g})"
    )
    shown = str(local.diagnostics)
    assert shown.startswith("splitting: converged\nobjective ")
    assert "(relative) above the optimum" in shown
    assert "iterations done" in str(factor.diagnostics)
    assert "prior" not in shown
    assert local.cliques == (("a", "b", "c"), ("b", "c", "d"), ("d", "e"))


def test_a_prior_is_said_to_be_one() -> None:
    made = noisy(D, "ab bc cd ac", 6, (60.0,))
    model = reconstruct(D, made, total=RECORDS, fit=Shrunk())
    assert model.diagnostics.prior == "independence"
    assert "biased" in str(model.diagnostics)
    table = model.marginal(("a", "b"))
    assert table.min() >= 0
    assert table.sum() == pytest.approx(RECORDS)
    with pytest.raises(ConsilienceError, match="needs every region without parents measured"):
        reconstruct(D, made, total=RECORDS, fit=Shrunk(consistency="global"))
