"""Strategies against dense linear algebra: lattice, OPT_M, p-Identity, integer queries and their sensitivities."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import check_grad

from consilience.domain import Domain, Workload, all_marginals, closure
from consilience.domain.subsets import Subsets
from consilience.errors import BudgetError, CapacityError
from consilience.measurements import Centring, Prefix, Ranges
from consilience.mechanisms.hdmm_strategy import (
    error_and_slope,
    on_grid,
    optimal_marginals,
    p_identity,
    squared_error,
)
from consilience.mechanisms.integer_queries import Cells, Product, Residual
from consilience.privacy import Neighbours, products, residuals

DOMAIN = Domain({"a": 2, "b": 3, "c": 4, "d": 2})
WORKLOADS = {
    "chain": Workload(DOMAIN, [("a", "b"), ("b", "c"), ("c", "d")]),
    "nested": Workload(DOMAIN, [("a", "b", "c"), ("b", "c"), ("d",)]),
    "weights": Workload(DOMAIN, {("a", "b"): 3.0, ("b", "c", "d"): 0.5, ("c",): 1.0}),
    "all pairs": all_marginals(DOMAIN, 2),
}


def matrix(clique) -> np.ndarray:
    """The marginal on a clique as a matrix on the whole domain."""
    out = np.ones((1, 1))
    for name, n in DOMAIN.sizes.items():
        out = np.kron(out, np.eye(n) if name in clique else np.ones((1, n)))
    return out


def dense_errors(precision: dict, cliques) -> list[float]:
    """Squared error of each whole table by least squares from independent noisy marginals."""
    normal = sum(u * matrix(c).T @ matrix(c) for c, u in precision.items())
    inverse = np.linalg.pinv(normal)
    return [float(np.trace(matrix(c) @ inverse @ matrix(c).T)) for c in cliques]


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_lattice_is_the_closure_with_all_its_pairs(name):
    workload = WORKLOADS[name]
    lattice = Subsets.of(DOMAIN, workload)
    assert lattice.subsets == closure(DOMAIN, workload)
    found = {
        (lattice.subsets[t], lattice.subsets[a])
        for t, a in zip(lattice.below, lattice.above, strict=True)
    }
    wanted = {(t, a) for t, a in product(lattice.subsets, repeat=2) if set(t) <= set(a)}
    assert found == wanted
    assert len(lattice.below) == len(wanted)
    for i, t in enumerate(lattice.subsets):
        assert lattice.cells[i] == DOMAIN.size(t)
        assert lattice.dims[i] == np.prod([DOMAIN[a] - 1 for a in t])


@pytest.mark.parametrize("name", WORKLOADS)
def test_expected_errors_are_those_of_dense_least_squares(name):
    workload = WORKLOADS[name]
    lattice = Subsets.of(DOMAIN, workload)
    rng = np.random.default_rng(3)
    precision = rng.random(len(lattice.subsets)) * (rng.random(len(lattice.subsets)) < 0.7)
    precision[lattice.places(workload)] += 0.1
    ours = lattice.squared_errors(lattice.spread @ precision, list(workload), total_known=False)
    judge = dense_errors(dict(zip(lattice.subsets, precision, strict=True)), workload)
    np.testing.assert_allclose(ours, judge, rtol=1e-9)
    exact = dict(zip(lattice.subsets, precision, strict=True)) | {(): 1e9}
    known = lattice.squared_errors(lattice.spread @ precision, list(workload), total_known=True)
    np.testing.assert_allclose(known, dense_errors(exact, workload), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("law, power", [("laplace", 1), ("gaussian", 2)])
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_marginal_strategy_is_priced_right_and_not_beaten(name, law, power):
    """Its error is the dense one, and no random change of the weights is better."""
    workload = WORKLOADS[name]
    found = optimal_marginals(workload, law)

    def error(weights: dict) -> float:
        each = dense_errors({c: w * w for c, w in weights.items()}, workload)
        total = sum(workload[c] ** 2 * e for c, e in zip(workload, each, strict=True))
        return sum(w**power for w in weights.values()) ** (2 / power) * total

    assert found.error == pytest.approx(error(found.weights), rel=1e-9)
    rng = np.random.default_rng(0)
    for spread in (0.01, 0.1, 1.0):
        for _ in range(20):
            other = {c: w * np.exp(spread * rng.normal()) for c, w in found.weights.items()}
            assert error(other) >= found.error * (1 - 1e-9)
    for extra in closure(DOMAIN, workload)[1:]:
        grown = found.weights | {extra: found.weights.get(extra, 0.0) + 0.02}
        assert error(grown) >= found.error * (1 - 2e-6)
    assert found.error <= error(dict.fromkeys(workload, 1.0)) * (1 + 1e-9)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_gaussian_strategy_has_a_certificate(name):
    found = optimal_marginals(WORKLOADS[name], "gaussian")
    assert found.gap is not None
    assert -1e-12 <= found.gap < 2e-3


def test_slack_makes_weights_more_equal_and_costs_what_it_says():
    workload = WORKLOADS["weights"]
    optimum = optimal_marginals(workload, "laplace")
    given_up = optimal_marginals(workload, "laplace", slack=0.01)
    assert given_up.error == pytest.approx(optimum.error * 1.01**2, rel=1e-6)

    def ratio(s):
        return max(s.weights.values()) / min(s.weights.values())

    assert ratio(given_up) < ratio(optimum)
    level = optimal_marginals(workload, "laplace", slack=1.0)
    assert ratio(level) == pytest.approx(1)


def test_too_many_subsets_are_refused():
    wide = Domain({f"x{i}": 2 for i in range(20)})
    with pytest.raises(CapacityError, match="choose cliques of fewer attributes, or use Gaussian"):
        Subsets.of(wide, [wide.attributes])


# -- p-Identity ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_slope_of_p_identity_by_finite_differences(law):
    gram, rng = Prefix(6).gram(), np.random.default_rng(1)

    def value(x):
        return error_and_slope(x.reshape(2, 6), gram, law)[0]

    def slope(x):
        return error_and_slope(x.reshape(2, 6), gram, law)[1].ravel()

    x = rng.random(12)
    assert check_grad(value, slope, x) < 1e-5 * np.linalg.norm(slope(x))


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("kind", ["prefix", "ranges"])
def test_p_identity_beats_cells_and_not_the_singular_value_bound(law, kind):
    n = 64
    every = [(i, j + 1) for i in range(n) for j in range(i, n)]
    gram = Prefix(n).gram() if kind == "prefix" else Ranges(n, every).gram()
    factor = on_grid(p_identity(gram, law, rows=4 if law == "laplace" else 16, restarts=2), law)
    columns = np.abs(factor.matrix / factor.grid)
    change = (
        columns.sum(axis=0).max() if law == "laplace" else np.sqrt((columns**2).sum(axis=0).max())
    )
    error = change**2 * squared_error(factor, gram)
    assert error < 0.75 * np.trace(gram)
    if law == "gaussian":  # the bound is for L2 columns; near it, and never below
        bound = np.sqrt(np.linalg.eigvalsh(gram).clip(0)).sum() ** 2 / n
        assert bound < error < 1.12 * bound
    a = factor.matrix / factor.grid
    dense = np.trace(gram @ np.linalg.inv(a.T @ a))
    assert squared_error(factor, gram) == pytest.approx(dense)


def test_where_cells_are_best_there_are_no_sums():
    factor = on_grid(p_identity(np.eye(8), "laplace"), "laplace")
    np.testing.assert_array_equal(factor.matrix, np.eye(8))
    assert factor.grid == 1


# -- integer queries -----------------------------------------------------------------------------------


SHAPE = (2, 3, 4)
F = np.array([[3, 0, 1], [0, 2, 5]])
QUERIES = {
    "cells": Cells(),
    "product": Product(SHAPE, (None, F, None), (1, 4, 1)),
    "signed": Product(SHAPE, (np.array([[1, -2]]), F, None), (1, 4, 1)),
    "two": Product(SHAPE, (np.array([[1, 2], [2, 0]]), F, None), (2, 4, 1)),
    "residual": Residual(SHAPE),
    "pair": Residual((2, 12)),
}


def dense(query) -> np.ndarray:
    return np.stack(
        [query.exact(row.reshape(SHAPE)).ravel() for row in np.eye(24, dtype=int)], axis=1
    )


@pytest.mark.parametrize("name", QUERIES)
def test_integer_queries_are_their_unit_times_what_is_meant(name):
    query = QUERIES[name]
    a = dense(query)
    assert a.dtype == np.int64
    assert query.peak == np.abs(a).max()
    meant = query.query
    if meant is not None:
        np.testing.assert_allclose(meant.apply(np.eye(24)), a / query.unit, atol=1e-14)
        np.testing.assert_allclose(meant.adjoint(np.eye(len(a))), a.T / query.unit, atol=1e-14)


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("neighbours", [Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE])
def test_sensitivities_cover_every_pair_of_neighbours(name, neighbours):
    """By brute force over columns; exact where it is said to be."""
    query = QUERIES[name]
    a = dense(query)
    replaced = [a[:, i] - a[:, j] for i, j in combinations(range(24), 2)]
    changes = list(a.T) if neighbours == Neighbours.ADD_REMOVE else replaced
    stated = query.sensitivity(neighbours)
    l1, l2 = max(np.abs(c).sum() for c in changes), max((c * c).sum() for c in changes)
    assert stated.l1 >= l1
    assert stated.l2_squared >= l2
    assert stated.cells >= max((c != 0).sum() for c in changes)
    if neighbours == Neighbours.ADD_REMOVE or "Residual" in type(query).__name__:
        assert stated.l2_squared == l2
    if neighbours == Neighbours.ADD_REMOVE:
        assert stated.l1 == l1


@given(
    st.lists(st.integers(2, 5), min_size=1, max_size=3),
    st.sampled_from([Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE]),
)
def test_the_price_of_a_residual_is_exact(sizes, neighbours):
    c = np.ones((1, 1))
    for n in sizes:
        c = np.kron(c, n * np.eye(n) - 1)
    gram = c.T @ c
    if neighbours == Neighbours.ADD_REMOVE:
        judge = gram.diagonal().max()
    else:
        judge = (gram.diagonal()[:, None] + gram.diagonal() - 2 * gram).max()
    assert float(residuals(neighbours, sizes).l2_squared) == pytest.approx(judge)


def test_centring_is_a_projection_that_knows_no_total():
    query = Centring((3, 4))
    x = np.random.default_rng(0).random(12)
    once = query.apply(x)
    np.testing.assert_allclose(query.apply(once), once, atol=1e-15)
    np.testing.assert_allclose(once.reshape(3, 4).sum(axis=0), 0, atol=1e-14)
    assert query.total_coefficients() is None
    assert query.norm == pytest.approx(np.linalg.norm(query.apply(np.eye(12)), 2))
    assert query.column_norm == pytest.approx(np.linalg.norm(query.apply(np.eye(12)), axis=0).max())


def test_sensitivities_of_fractions_are_refused():
    with pytest.raises(BudgetError, match="noise protects integer queries"):
        products(Neighbours.ADD_REMOVE, [np.eye(2) / 2])
    with pytest.raises(BudgetError, match="at least two values"):
        residuals(Neighbours.ADD_REMOVE, [3, 1])
