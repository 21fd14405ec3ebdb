"""What other tools hand over: nothing measured, functions for queries, a width for each cell, numbers for names, potentials."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import consilience as cs
from consilience.errors import ConsilienceError, DomainError, MeasurementError
from consilience.regions.junction_tree import JunctionTree
from consilience.tree.oracle import ExactOracle

D = cs.Domain([("a", 3), ("b", 2), ("c", 4), ("d", 2)])
PAIRS = list(combinations("abcd", 2))


def noisy(cliques, seed=0, stddev=8.0):
    rng = np.random.default_rng(seed)
    joint = 500 * rng.dirichlet(np.full(D.size(), 0.3)).reshape(D.shape)
    out = []
    for c in cliques:
        table = joint.sum(axis=tuple(i for i, a in enumerate(D) if a not in c))
        out.append(
            cs.Measurement(tuple(c), table + rng.normal(0, stddev, table.shape), stddev=stddev)
        )
    return out


# -- nothing measured ------------------------------------------------------------------------------

FITS = [
    cs.LeastSquares(),
    cs.LeastSquares("local"),
    cs.Shrunk(),
    cs.LatentClasses(),
    cs.LaplaceLikelihood(),
    cs.NormCut(),
    cs.PossibleCells(),
]


@pytest.mark.parametrize("fit", FITS, ids=lambda f: type(f).__name__)
def test_nothing_measured_is_the_uniform_model(fit) -> None:
    for measured, total in (([], 96.0), ([cs.Measurement((), [96.0], stddev=2.0)], None)):
        model = cs.reconstruct(D, measured, total, fit=fit)
        for k in range(1, 5):
            for c in combinations("abcd", k):
                np.testing.assert_allclose(model.marginal(c), 96.0 / D.size(c))
        assert model.sample(50, rng=1).records == 50
        assert model.diagnostics.converged


def test_nothing_measured_and_combinations_that_cannot_occur() -> None:
    """Judged by counting the records that are possible."""
    ab = np.array([[True, False], [True, True], [False, True]])
    ca = np.ones((4, 3), bool)
    ca[2, 1:] = False
    joint = np.ones(D.shape) * ab[:, :, None, None] * ca.T[:, None, :, None]
    fit = cs.LeastSquares(possible={("a", "b"): ab, ("c", "a"): ca})
    model = cs.reconstruct(D, [], 10.0, fit=fit)
    for c in [("a",), ("b", "c"), ("c", "d"), ("a", "b", "c")]:
        judge = joint.sum(axis=tuple(i for i, a in enumerate(D) if a not in c))
        np.testing.assert_allclose(model.marginal(c), 10 * judge / joint.sum(), atol=1e-9)


def test_a_total_must_come_from_somewhere() -> None:
    with pytest.raises(MeasurementError, match="at least one measurement must be given"):
        cs.reconstruct(D, [])


# -- potentials ------------------------------------------------------------------------------------


def exact_tables(theta: cs.CliqueVector, cliques):
    """An independent judge: the joint table, cell by cell."""
    logs = np.zeros(theta.domain.shape)
    for clique, table in theta.items():
        logs = logs + table.reshape([theta.domain[a] if a in clique else 1 for a in theta.domain])
    joint = np.exp(logs)
    assert joint.sum() == pytest.approx(1.0, abs=1e-10)
    return {
        c: joint.sum(axis=tuple(i for i, a in enumerate(theta.domain) if a not in c))
        for c in cliques
    }


@pytest.mark.parametrize(
    "cliques",
    ["ab", "ab bc", "ab bc ac", "ab bc cd ad", "abc d"],
    ids=lambda c: c.replace(" ", "-"),
)
def test_exact_inference_on_potentials_gives_the_models_own_tables(cliques: str) -> None:
    sets = [tuple(c) for c in cliques.split()]
    model = cs.reconstruct(D, noisy(sets), 500.0, fit=cs.LeastSquares("global"))
    for clique, table in exact_tables(model.potentials, sets).items():
        np.testing.assert_allclose(500 * table, model.marginal(clique), atol=1e-8)
    tree = JunctionTree.of(D, model.potentials.cliques)
    oracle = ExactOracle(tree, sets)
    found = oracle.marginals(oracle.of_potentials(model.potentials))
    ours = np.concatenate([model.marginal(c).reshape(-1) / 500 for c in oracle.layout.cliques])
    np.testing.assert_allclose(found, ours, atol=1e-10)


@pytest.mark.parametrize("fit", [cs.LeastSquares("local"), cs.PossibleCells(), cs.LatentClasses()])
def test_potentials_of_other_models_are_their_backbones(fit) -> None:
    model = cs.reconstruct(D, noisy(PAIRS), 500.0, fit=fit)
    for clique, table in exact_tables(model.potentials, PAIRS).items():
        np.testing.assert_allclose(table, model.backbone.marginal(clique), atol=1e-10)


def test_potentials_of_impossible_cells() -> None:
    mask = np.array([[True, False], [True, True], [True, True]])
    fit = cs.LeastSquares("global", possible={("a", "b"): mask})
    model = cs.reconstruct(D, noisy(["ab", "bc"]), 500.0, fit=fit)
    assert exact_tables(model.potentials, [("a", "b")])["a", "b"][0, 1] == 0.0


# -- functions for queries -------------------------------------------------------------------------

WEIGHTS = np.array([[1.0, 0.0], [2.0, 1.0], [0.5, 3.0]])
FUNCTIONS = {
    "the table": (lambda t: t, np.eye(6)),
    "weights": (lambda t: t * WEIGHTS, np.diag(WEIGHTS.reshape(-1))),
    "sums": (lambda t: t.sum(axis=0), np.kron(np.ones((1, 3)), np.eye(2))),
    "first cells": (lambda t: t.reshape(-1)[:2], np.eye(6)[:2]),
    "one number": (lambda t: t[1].sum() - t[0, 0], [[-1.0, 0, 1, 1, 0, 0]]),
}


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_linear_function_is_the_matrix_that_it_is(name: str, order) -> None:
    function, matrix = FUNCTIONS[name]
    if order == ("b", "a"):
        direct, function = function, (lambda t: direct(t.T))
        swap = np.arange(6).reshape(3, 2).T.reshape(-1)
        matrix = np.asarray(matrix)[:, swap]
    values = np.asarray(matrix) @ np.arange(10.0, 70.0, 10.0) + 1.0
    one, other = (
        cs.reconstruct(D, [cs.Measurement(order, values, stddev=2.0, query=q)], 100.0)
        for q in (function, matrix)
    )
    np.testing.assert_allclose(one.marginal(order), other.marginal(order), atol=1e-4)


NOT_LINEAR = {
    "normalised": lambda t: t / max(t.sum(), 1e-9),
    "squared": lambda t: t**2,
    "shifted": lambda t: t + 1.0,
    "larger": lambda t: np.maximum(t, 2.0),
    "product": lambda t: t[0] * t[1],
}


@pytest.mark.parametrize("name", NOT_LINEAR)
def test_a_function_that_is_not_linear_is_refused(name: str) -> None:
    function = NOT_LINEAR[name]
    size = np.asarray(function(np.ones((3, 2)))).size
    m = cs.Measurement(("a", "b"), np.ones(size), stddev=1.0, query=function)
    with pytest.raises(MeasurementError, match="a query must be linear"):
        cs.reconstruct(D, [m], 100.0)


def test_what_a_function_is_refused_for() -> None:
    m = cs.Measurement(("a", "b"), np.ones(4), stddev=1.0, query=lambda t: t.sum(axis=0))
    with pytest.raises(MeasurementError, match=r"must have shape \(2,\), one per row, got \(4,\)"):
        cs.reconstruct(D, [m], 100.0)
    wide = cs.Domain({"x": 30_000})
    m = cs.Measurement("x", np.ones(30_000), stddev=1.0, query=lambda t: t)
    with pytest.raises(MeasurementError, match="asked for every cell, of at most 20,000"):
        cs.reconstruct(wide, [m], 100.0)


# -- a width for each cell -------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([("a",), ("a", "c"), ("c", "a")]), st.booleans())
def test_a_width_for_each_cell_is_one_measurement_for_each_cell(seed, order, flat) -> None:
    rng = np.random.default_rng(seed)
    shape = D.shape_of(order)
    values, widths = rng.uniform(0, 60, shape), rng.uniform(1, 30, shape)
    if flat:
        values, widths = values.reshape(-1), widths.reshape(-1)
    together = cs.Measurement(order, values, stddev=widths)
    apart = [
        cs.Measurement(order, [v], stddev=s, query=np.eye(values.size)[[i]])
        for i, (v, s) in enumerate(zip(values.reshape(-1), widths.reshape(-1), strict=True))
    ]
    others = noisy(["ab", "bc"], seed=1)
    fit = cs.LeastSquares("local", tolerance=1e-10)
    one, other = (cs.reconstruct(D, [*others, *m], 500.0, fit=fit) for m in ([together], apart))
    assert one.diagnostics.objective == pytest.approx(other.diagnostics.objective, rel=1e-6)
    np.testing.assert_allclose(one.marginal(order), other.marginal(order), atol=1e-2)


def test_widths_through_queries_at_levels_and_in_totals() -> None:
    rng = np.random.default_rng(0)
    leveled = cs.Domain({"p": 4, "x": 2}, levels={"q": ("p", [0, 0, 1, 1])})
    widths = np.array([[1.0, 5.0], [2.0, 9.0]])
    values = np.array([[30.0, 20.0], [10.0, 40.0]])
    made = [cs.Measurement(("q", "x"), values, stddev=widths)]
    model = cs.reconstruct(leveled, made)
    assert model.total == pytest.approx(cs.estimate_total(leveled, made).value)
    np.testing.assert_allclose(model.marginal(("q", "x")), values, atol=1e-2)
    query = rng.normal(size=(3, 6))
    told = cs.Measurement(("a", "b"), [1.0, 2.0, 3.0], stddev=[1.0, 2.0, 3.0], query=query)
    bound = told.bind(D)
    x = rng.normal(size=6)
    np.testing.assert_allclose(
        (bound.query.apply(x) - bound.values) / bound.stddev, (query @ x - [1, 2, 3]) / [1, 2, 3]
    )
    assert cs.Measurement("a", [1.0, 2.0, 3.0], stddev=[4.0, 4.0, 4.0]).stddev == 4.0
    assert "stddev=1 to 3" in repr(told)


@pytest.mark.parametrize(
    "stddev, words",
    [
        ([1.0, 2.0], r"one for each value in the same shape \(3,\)"),
        ([1.0, 0.0, 2.0], "every stddev must be positive and finite, got 0.0"),
        ([1.0, float("nan"), 2.0], "every stddev must be positive and finite, got nan"),
        (["a", "b", "c"], "must be a positive number, or one for each"),
    ],
)
def test_widths_that_are_refused(stddev, words: str) -> None:
    with pytest.raises(MeasurementError, match=words):
        cs.Measurement("a", [1.0, 2.0, 3.0], stddev=stddev)


# -- numbers for names, labels ---------------------------------------------------------------------


def test_numbers_for_names(tmp_path) -> None:
    domain = cs.Domain({0: 3, 1: 2, np.int64(7): 4})
    assert domain.attributes == ("0", "1", "7")
    assert 7 in domain
    assert 2 not in domain
    assert domain[7] == 4
    assert domain.clique((7, 0)) == ("0", "7")
    rows = cs.Dataset({0: [0, 1, 2], 1: [0, 1, 1], 7: [3, 3, 0]}, domain)
    assert rows.marginal((7, 1)).shape == (4, 2)
    made = [
        cs.Measurement((7, 0), np.arange(12.0), stddev=1.0),
        cs.Measurement(1, [30.0, 36.0], stddev=1.0),
    ]
    columns = cs.Measurements(domain, [(7, 0), 1], [*np.arange(12.0), 30.0, 36.0], stddev=1.0)
    mask = {(0, 1): np.array([[True, False], [True, True], [True, True]])}
    one, other = (
        cs.reconstruct(domain, m, fit=cs.LeastSquares(possible=mask)) for m in (made, columns)
    )
    np.testing.assert_allclose(one.marginal((7, 0)), other.marginal(("7", "0")))
    assert one.count({0: 0, 1: 1}) == 0.0
    one.save(tmp_path / "m.npz")
    np.testing.assert_array_equal(cs.load(tmp_path / "m.npz").marginal(7), one.marginal(7))
    with pytest.raises(DomainError, match="distinct"):
        cs.Domain([(0, 2), ("0", 3)])
    with pytest.raises(DomainError, match="got '5'; the domain has"):
        domain.clique(5)


def test_labels(tmp_path) -> None:
    domain = cs.Domain({"sex": 2, "age": 3}, labels={"sex": ("f", "m")})
    assert domain == cs.Domain({"sex": 2, "age": 3})
    assert domain.project("sex").labels == {"sex": ("f", "m")}
    assert not domain.project("age").labels
    model = cs.reconstruct(domain, [cs.Measurement("sex", [4.0, 6.0], stddev=0.1)])
    assert list(model.table("sex")["sex"]) == ["f", "m"]
    model.save(tmp_path / "m.npz")
    assert cs.load(tmp_path / "m.npz").domain.labels == domain.labels
    for wrong in (("f",), ("f", "f")):
        with pytest.raises(DomainError, match="the labels of 'sex' must be 2 different words"):
            cs.Domain({"sex": 2}, labels={"sex": wrong})
    with pytest.raises(DomainError, match="got 'who'"):
        cs.Domain({"sex": 2}, labels={"who": ("a", "b")})


# -- warm start ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fit", [cs.LeastSquares("global"), cs.LeastSquares("local"), cs.Shrunk()])
def test_a_warm_start_ends_where_a_cold_one_does(fit) -> None:
    first = cs.reconstruct(D, noisy(["ab", "bc", "cd"]), 500.0, fit=fit)
    again = noisy(["ab", "bc", "cd"], seed=3)
    more = noisy(["ab", "bc", "cd", "ad"])
    for measured in (again, more):
        warm = cs.reconstruct(D, measured, 500.0, fit=fit, warm=first)
        cold = cs.reconstruct(D, measured, 500.0, fit=fit)
        assert warm.diagnostics.objective == pytest.approx(cold.diagnostics.objective, rel=1e-4)
    same = cs.reconstruct(D, noisy(["ab", "bc", "cd"]), 500.0, fit=fit, warm=first)
    assert same.diagnostics.iterations <= first.diagnostics.iterations


def test_what_a_warm_start_must_be() -> None:
    other = cs.Domain({"x": 2})
    model = cs.reconstruct(other, [cs.Measurement("x", [1.0, 2.0], stddev=1.0)])
    with pytest.raises(ConsilienceError, match="warm must be a model of the same domain"):
        cs.reconstruct(D, noisy(["ab"]), warm=model)
    with pytest.raises(ConsilienceError, match="got dict"):
        cs.reconstruct(D, noisy(["ab"]), warm={})
