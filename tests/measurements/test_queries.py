"""Queries against their dense matrices: products, adjoints, norms, the total, bad input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from consilience.errors import CapacityError, MeasurementError
from consilience.measurements import (
    Dense,
    Identity,
    Kronecker,
    Operator,
    Prefix,
    Query,
    Ranges,
    Sparse,
    as_query,
)
from consilience.measurements.structured import Permuted

RNG = np.random.default_rng(11)
WIDE = RNG.normal(size=(4, 6))
TALL = RNG.normal(size=(9, 6))
THIN = np.where(RNG.random((7, 6)) < 0.4, RNG.normal(size=(7, 6)), 0.0)
RANGES = [(0, 2), (2, 6), (1, 4), (0, 6), (0, 2), (5, 6)]


def prefix_matrix(n: int) -> np.ndarray:
    return np.tril(np.ones((n, n)))


def ranges_matrix(n: int, intervals: list[tuple[int, int]]) -> np.ndarray:
    return np.array([[float(lo <= i < hi) for i in range(n)] for lo, hi in intervals])


def permutation_matrix(table: tuple[int, ...], axes: tuple[int, ...]) -> np.ndarray:
    """Row k picks the cell that is k-th once the axes are in the order `axes`."""
    order = np.arange(np.prod(table)).reshape(table).transpose(axes).ravel()
    return np.eye(order.size)[order]


CASES: dict[str, tuple[Query, np.ndarray]] = {
    "identity": (Identity(6), np.eye(6)),
    "dense wide": (Dense(WIDE), WIDE),
    "dense tall": (Dense(TALL), TALL),
    "sparse": (Sparse(sparse.csr_array(THIN)), THIN),
    "sparse matrix class": (Sparse(sparse.coo_matrix(THIN)), THIN),
    "operator": (Operator(aslinearoperator(WIDE)), WIDE),
    "prefix": (Prefix(6), prefix_matrix(6)),
    "prefix of one": (Prefix(1), np.ones((1, 1))),
    "ranges": (Ranges(6, RANGES), ranges_matrix(6, RANGES)),
    "kronecker": (
        Kronecker([Prefix(3), WIDE, Identity(2)]),
        np.kron(np.kron(prefix_matrix(3), WIDE), np.eye(2)),
    ),
    "nested kronecker": (
        Kronecker([Kronecker([Prefix(2), Identity(3)]), np.ones((1, 2))]),
        np.kron(np.kron(prefix_matrix(2), np.eye(3)), np.ones((1, 2))),
    ),
    "permuted": (
        Permuted(Kronecker([Prefix(4), WIDE[:, :3]]), (3, 4), (1, 0)),
        np.kron(prefix_matrix(4), WIDE[:, :3]) @ permutation_matrix((3, 4), (1, 0)),
    ),
    "permuted three": (
        Permuted(Dense(RNG.normal(size=(5, 24))), (2, 3, 4), (2, 0, 1)),
        np.empty(0),
    ),
}
CASES["permuted three"] = (
    CASES["permuted three"][0],
    CASES["permuted three"][0].query.matrix  # type: ignore[attr-defined]
    @ permutation_matrix((2, 3, 4), (2, 0, 1)),
)
ALL = pytest.mark.parametrize("query, matrix", CASES.values(), ids=CASES.keys())


@ALL
def test_products_are_those_of_the_matrix(query: Query, matrix: np.ndarray) -> None:
    x, y = RNG.normal(size=query.cells), RNG.normal(size=query.rows)
    assert query.shape == matrix.shape
    np.testing.assert_allclose(query.apply(x), matrix @ x, atol=1e-12)
    np.testing.assert_allclose(query.adjoint(y), matrix.T @ y, atol=1e-12)
    assert query.apply(x) @ y == pytest.approx(x @ query.adjoint(y), rel=1e-12)


@ALL
def test_products_work_on_columns(query: Query, matrix: np.ndarray) -> None:
    x, y = RNG.normal(size=(query.cells, 3)), RNG.normal(size=(query.rows, 3))
    np.testing.assert_allclose(query.apply(x), matrix @ x, atol=1e-12)
    np.testing.assert_allclose(query.adjoint(y), matrix.T @ y, atol=1e-12)
    np.testing.assert_allclose(query.gram(), matrix.T @ matrix, atol=1e-11)


@ALL
def test_norms(query: Query, matrix: np.ndarray) -> None:
    spectral = np.linalg.svd(matrix, compute_uv=False)[0]
    assert query.column_norm == pytest.approx(np.linalg.norm(matrix, axis=0).max(), rel=1e-12)
    assert spectral <= query.norm <= 4 * spectral


@pytest.mark.parametrize(
    "query", [Identity(5), Dense(TALL), Prefix(7), Kronecker([Prefix(3), TALL])]
)
def test_these_norms_are_exact(query: Query) -> None:
    spectral = np.linalg.svd(query.apply(np.eye(query.cells)), compute_uv=False)[0]
    assert query.norm == pytest.approx(spectral, rel=1e-10)


@ALL
def test_total_coefficients_are_the_shortest_solution(query: Query, matrix: np.ndarray) -> None:
    ones = np.ones(query.cells)
    shortest = np.linalg.pinv(matrix.T) @ ones
    c = query.total_coefficients()
    if np.allclose(matrix.T @ shortest, ones, atol=1e-9):
        assert c is not None
        np.testing.assert_allclose(c, shortest, atol=1e-9)
    else:
        assert c is None


def test_both_answers_about_the_total_occur() -> None:
    """So that the test above cannot pass by saying the same of every case."""
    assert {q.total_coefficients() is None for q, _ in CASES.values()} == {True, False}


@given(
    st.integers(1, 9).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(
                st.tuples(st.integers(0, n - 1), st.integers(1, n)).filter(lambda r: r[0] < r[1]),
                min_size=1,
                max_size=12,
            ),
        )
    )
)
@settings(max_examples=150, deadline=None)
def test_ranges_are_an_electrical_network(case: tuple[int, list[tuple[int, int]]]) -> None:
    n, intervals = case
    query, matrix = Ranges(n, intervals), ranges_matrix(n, intervals)
    x, y = np.sin(np.arange(n)), np.cos(np.arange(len(intervals)))
    np.testing.assert_allclose(query.apply(x), matrix @ x, atol=1e-12)
    np.testing.assert_allclose(query.adjoint(y), matrix.T @ y, atol=1e-12)
    assert query.norm >= np.linalg.norm(matrix, 2) * (1 - 1e-12)
    shortest = np.linalg.pinv(matrix.T) @ np.ones(n)
    c = query.total_coefficients()
    assert (c is not None) == np.allclose(matrix.T @ shortest, 1.0, atol=1e-9)
    if c is not None:
        np.testing.assert_allclose(c, shortest, atol=1e-9)


def test_large_queries_take_the_iterative_road() -> None:
    """A partition of 1,500 cells into pairs, each sum twice: c is 1/2 for every row."""
    pairs = sparse.kron(sparse.eye_array(750), np.ones((1, 2)))
    query = Sparse(sparse.vstack([pairs, pairs]))
    c = query.total_coefficients()
    assert query.rows * query.cells > 1_000_000
    assert c is not None
    np.testing.assert_allclose(c, 0.5, atol=1e-9)
    half = Sparse(query.matrix[:749])
    assert Sparse(sparse.vstack([half.matrix, half.matrix])).total_coefficients() is None


def test_large_dense_norm_is_a_bound() -> None:
    """A matrix of ones has one singular value, sqrt(rows * cells)."""
    assert Dense(np.ones((2000, 501))).norm == pytest.approx(np.sqrt(2000 * 501))


def test_as_query_takes_each_kind() -> None:
    assert isinstance(as_query(None, 6), Identity)
    assert isinstance(as_query(WIDE, 6), Dense)
    assert isinstance(as_query(WIDE.tolist(), 6), Dense)
    assert isinstance(as_query(sparse.csc_array(THIN), 6), Sparse)
    assert isinstance(as_query(aslinearoperator(WIDE), 6), Operator)
    prefix = Prefix(6)
    assert as_query(prefix, 6) is prefix


def test_a_query_keeps_its_own_copy() -> None:
    matrix = WIDE.copy()
    query = Dense(matrix)
    matrix[:] = 0.0
    assert np.array_equal(query.matrix, WIDE)


def wrong_adjoint() -> LinearOperator:
    return LinearOperator((4, 6), matvec=lambda x: WIDE @ x, rmatvec=lambda y: 2 * WIDE.T @ y)


BAD = {
    "columns": (lambda: as_query(WIDE, 5), r"one column per cell.*\(5\), got 6 columns"),
    "columns of a query": (lambda: as_query(Prefix(4), 5), "got 4 columns"),
    "columns of sparse": (lambda: as_query(sparse.csr_array(THIN), 7), "got 6 columns"),
    "columns of an operator": (lambda: as_query(aslinearoperator(WIDE), 7), "got 6 columns"),
    "type": (lambda: as_query("sum", 5), "a query must be a Query.*got str"),
    "none without cells": (lambda: as_query(None), "a query must be a Query.*got NoneType"),
    "one axis": (lambda: Dense(np.ones(6)), r"two axes, rows x cells.*got shape \(6,\)"),
    "no rows": (lambda: Dense(np.ones((0, 6))), "neither empty"),
    "nan": (lambda: Dense([[1.0, np.nan]]), "entries must be finite, got NaN or infinity"),
    "sparse inf": (lambda: Sparse(sparse.csr_array([[1.0, np.inf]])), "entries must be finite"),
    "complex": (lambda: Dense([[1j, 0]]), "entries must be real numbers, got type complex128"),
    "not sparse": (lambda: Sparse(np.eye(2)), "a sparse query must be a SciPy matrix"),
    "complex operator": (lambda: Operator(aslinearoperator(WIDE * 1j)), "a query must be real"),
    "no rmatvec": (
        lambda: Operator(LinearOperator((4, 6), matvec=lambda x: WIDE @ x)),
        "must have matvec and rmatvec",
    ),
    "wrong rmatvec": (
        lambda: Operator(wrong_adjoint()),
        "rmatvec of a query must be the transpose",
    ),
    "size zero": (lambda: Prefix(0), "must be a positive integer, got 0"),
    "size a float": (lambda: Identity(2.0), "must be a positive integer, got 2.0"),  # type: ignore[arg-type]
    "empty ranges": (lambda: Ranges(4, []), "non-empty list of integer pairs"),
    "float ranges": (lambda: Ranges(4, [(0.0, 2.0)]), "integer pairs.*float64"),
    "reversed range": (lambda: Ranges(4, [(0, 2), (3, 3)]), r"0 <= lo < hi <= 4.*got \(3, 3\)"),
    "long range": (lambda: Ranges(4, [(0, 5)]), r"got \(0, 5\)"),
    "no factors": (lambda: Kronecker([]), "at least one factor, got none"),
}


@pytest.mark.parametrize("make, words", BAD.values(), ids=BAD.keys())
def test_bad_queries(make, words: str) -> None:
    with pytest.raises(MeasurementError, match=words):
        make()


def test_gram_refuses_before_it_allocates() -> None:
    with pytest.raises(
        CapacityError, match=r"Q\^T Q must fit in .* use apply and adjoint"
    ) as caught:
        Identity(10**6).gram()
    assert caught.value.needed_bytes == 8 * 10**12
