"""Query: the linear map y = Q x from a table to answers, and the queries without structure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, cast

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, lsmr

from consilience.domain import Buffer
from consilience.errors import CapacityError, MeasurementError

GRAM_BYTES = 2**30
MOST_ASKED = 20_000
"""Cells of a table that a query may be a function of."""
LINEAR = 1e-5
"""How far, in parts, a function's answers may be from linear: other tools reckon with seven digits."""
DENSE_ENTRIES = 1_000_000  # up to here a dense decomposition is used, beyond it an iterative one


class Query(ABC):
    """A linear map Q from the cells of a clique's table to answers.

    `apply` and `adjoint` take one vector, or a matrix whose columns are vectors.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(rows, cells)."""

    @property
    def rows(self) -> int:
        return self.shape[0]

    @property
    def cells(self) -> int:
        return self.shape[1]

    @abstractmethod
    def apply(self, x: Buffer) -> Buffer:
        """Q x."""

    @abstractmethod
    def adjoint(self, y: Buffer) -> Buffer:
        """Q^T y."""

    @property
    @abstractmethod
    def column_norm(self) -> float:
        """||Q||_{1->2}, the largest 2-norm of a column: how far one record can move the answers."""

    @property
    @abstractmethod
    def norm(self) -> float:
        """An upper bound on the spectral norm ||Q||_2."""

    def total_coefficients(self) -> Buffer | None:
        """The shortest c with Q^T c = 1, None if there is none.

        Then c^T y estimates the total without bias, and with noise of equal variance sigma^2 its
        variance sigma^2 ||c||^2 is the least possible.
        """
        return shortest_total(self)

    def gram(self) -> Buffer:
        """Q^T Q as a dense matrix; refused when it would pass 1 GiB."""
        needed = 8 * self.cells * self.cells
        if needed > GRAM_BYTES:
            raise CapacityError(
                f"Q^T Q must fit in {GRAM_BYTES:,} bytes, got {self.cells:,} cells that need "
                f"{needed:,}; use apply and adjoint instead",
                needed,
                GRAM_BYTES,
            )
        return self.adjoint(self.apply(np.eye(self.cells)))


class LinearMap(LinearOperator):
    """A SciPy LinearOperator from two functions that take a vector or a matrix of columns."""

    def __init__(
        self,
        shape: tuple[int, int],
        apply: Callable[[Buffer], Buffer],
        adjoint: Callable[[Buffer], Buffer],
    ) -> None:
        super().__init__(np.dtype(np.float64), shape)
        self._apply = apply
        self._back = adjoint

    def _matvec(self, x: Buffer) -> Buffer:
        return self._apply(x)

    def _matmat(self, X: Buffer) -> Buffer:
        return self._apply(X)

    def _rmatvec(self, x: Buffer) -> Buffer:
        return self._back(x)

    def _rmatmat(self, X: Buffer) -> Buffer:
        return self._back(X)


def shortest_total(query: Query) -> Buffer | None:
    """The shortest c with Q^T c = 1, for a query without structure; None if there is none."""
    ones = np.ones(query.cells)
    if query.rows * query.cells <= DENSE_ENTRIES:
        c: Any = np.linalg.lstsq(query.apply(np.eye(query.cells)).T, ones, rcond=None)[0]
    else:
        transposed = LinearMap((query.cells, query.rows), query.adjoint, query.apply)
        # From zero, LSMR stays in the range of Q and so ends at the shortest solution.
        c = lsmr(transposed, ones, atol=1e-14, btol=1e-14, conlim=0, maxiter=2_000)[0]
    return c if np.abs(query.adjoint(c) - ones).max() <= 1e-8 else None


def check_size(size: object) -> None:
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise MeasurementError(
            f"the number of cells of a query must be a positive integer, got {size!r}"
        )


@dataclass(frozen=True)
class Square(Query):
    """A query with as many answers as there are cells."""

    size: int

    def __post_init__(self) -> None:
        check_size(self.size)

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size


@dataclass(frozen=True)
class Identity(Square):
    """Q = I: every cell of the table."""

    def apply(self, x: Buffer) -> Buffer:
        return x

    def adjoint(self, y: Buffer) -> Buffer:
        return y

    @property
    def column_norm(self) -> float:
        return 1.0

    @property
    def norm(self) -> float:
        return 1.0

    def total_coefficients(self) -> Buffer:
        return np.ones(self.size)


class Matrix(Query):
    """A query that is stored as a matrix of some kind, rows x cells."""

    matrix: Any

    def apply(self, x: Buffer) -> Buffer:
        return self.matrix @ x

    def adjoint(self, y: Buffer) -> Buffer:
        return self.matrix.T @ y


@dataclass(frozen=True, eq=False, repr=False)
class Dense(Matrix):
    """Q given as a dense matrix, rows x cells."""

    matrix: Buffer

    def __init__(self, matrix: Any) -> None:
        given = np.asarray(matrix)
        if given.ndim != 2 or given.size == 0:
            raise MeasurementError(
                "a query matrix must have two axes, rows x cells, neither empty, got shape "
                f"{given.shape}"
            )
        _check_entries(given)
        kept = np.array(given, dtype=np.float64, order="C")
        kept.flags.writeable = False
        object.__setattr__(self, "matrix", kept)

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    @property
    def column_norm(self) -> float:
        return float(np.sqrt(np.square(self.matrix).sum(axis=0).max()))

    @property
    def norm(self) -> float:
        if self.matrix.size <= DENSE_ENTRIES:
            return float(np.linalg.norm(self.matrix, 2)) * (1 + 1e-12)
        return _riesz(np.abs(self.matrix))

    def __repr__(self) -> str:
        return f"Dense({self.rows} x {self.cells})"


@dataclass(frozen=True, eq=False, repr=False)
class Sparse(Matrix):
    """Q given as a SciPy sparse matrix or array, rows x cells."""

    matrix: sparse.csr_array

    def __init__(self, matrix: Any) -> None:
        if not sparse.issparse(matrix) or matrix.ndim != 2 or 0 in matrix.shape:
            raise MeasurementError(
                f"a sparse query must be a SciPy matrix rows x cells, neither empty, got {matrix!r}"
            )
        given = sparse.csr_array(matrix)
        _check_entries(given.data)
        object.__setattr__(self, "matrix", given.astype(np.float64))

    @property
    def shape(self) -> tuple[int, int]:
        rows, cells = cast(tuple[int, int], self.matrix.shape)
        return rows, cells

    @property
    def column_norm(self) -> float:
        return float(np.sqrt(self.matrix.power(2).sum(axis=0).max()))

    @property
    def norm(self) -> float:
        return _riesz(abs(self.matrix))

    def __repr__(self) -> str:
        return f"Sparse({self.rows} x {self.cells}, {self.matrix.nnz} entries)"


@dataclass(frozen=True, eq=False, repr=False)
class Operator(Query):
    """Q given as a SciPy LinearOperator; its norms cost one product per cell, once."""

    operator: LinearOperator

    def __post_init__(self) -> None:
        if np.dtype(self.operator.dtype or float).kind == "c":
            raise MeasurementError("a query must be real, got a complex LinearOperator")
        _check_adjoint(self)

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.operator.shape[0]), int(self.operator.shape[1])

    def apply(self, x: Buffer) -> Buffer:
        return np.asarray(self.operator @ x, dtype=np.float64)

    def adjoint(self, y: Buffer) -> Buffer:
        transposed = self.operator.rmatvec if y.ndim == 1 else self.operator.rmatmat
        return np.asarray(transposed(y), dtype=np.float64)

    @cached_property
    def _column_norms(self) -> Buffer:
        return np.concatenate([np.sqrt(np.square(b).sum(axis=0)) for b in _column_blocks(self)])

    @property
    def column_norm(self) -> float:
        return float(self._column_norms.max())

    @property
    def norm(self) -> float:
        """The Frobenius norm."""
        return float(np.linalg.norm(self._column_norms))

    def __repr__(self) -> str:
        return f"Operator({self.rows} x {self.cells})"


def of_function(function: Callable[[Buffer], Any], shape: tuple[int, ...]) -> Sparse:
    """The matrix of a linear function of a table of this shape, by asking it for every cell; refuses one that is not linear."""
    cells = prod(shape)
    if cells > MOST_ASKED:
        raise MeasurementError(
            f"a query that is a function is asked for every cell, of at most {MOST_ASKED:,}, got {cells:,}; give a matrix or a "
            "LinearOperator"
        )

    def ask(table: Buffer) -> Buffer:
        return np.asarray(function(table.reshape(shape)), np.float64).reshape(-1)

    at, unit = np.arange(float(cells)), np.zeros(cells)
    columns = []
    for cell in range(cells):
        unit[cell] = 1.0
        columns.append(sparse.csc_array(ask(unit.copy())[:, None]))
        unit[cell] = 0.0
    found = Sparse(sparse.hstack(columns))
    for trial in (unit, np.asarray(1.0 + at % 3, np.float64), 50.0 * (1.0 + np.cos(at))):
        away = np.abs(ask(trial) - found.apply(trial))
        if not np.all(away <= LINEAR * (abs(found.matrix) @ trial + 1.0)):
            raise MeasurementError(
                "a query must be linear, got a function whose answer to a table is not the sum of its answers to the cells"
            )
    return found


def weighted(query: Query, weights: Buffer) -> Query:
    """The query with each of its answers multiplied by a number."""
    if isinstance(query, Identity):
        return Sparse(sparse.diags_array(weights))
    if isinstance(query, Sparse):
        return Sparse(sparse.diags_array(weights) @ query.matrix)
    if query.rows * query.cells <= DENSE_ENTRIES:
        return Sparse(sparse.csr_array(weights[:, None] * query.apply(np.eye(query.cells))))

    def apply(x: Buffer) -> Buffer:
        return (query.apply(x).T * weights).T

    def adjoint(y: Buffer) -> Buffer:
        return query.adjoint((y.T * weights).T)

    return Operator(LinearMap(query.shape, apply, adjoint))


def as_query(given: Any, cells: int | None = None) -> Query:
    """A Query from None (the table), an array, a sparse matrix, a LinearOperator or a Query."""
    query = _converted(given, cells)
    if cells is not None and query.cells != cells:
        raise MeasurementError(
            f"a query must have one column per cell of its clique's table ({cells}), got "
            f"{query.cells} columns"
        )
    return query


def _converted(given: Any, cells: int | None) -> Query:
    match given:
        case None if cells is not None:
            return Identity(cells)
        case Query():
            return given
        case LinearOperator():
            return Operator(given)
        case np.ndarray() | list() | tuple():
            return Dense(given)
        case _ if sparse.issparse(given):
            return Sparse(given)
    raise MeasurementError(
        "a query must be a Query, a matrix, a SciPy sparse matrix or a LinearOperator, got "
        f"{type(given).__name__}"
    )


def _check_entries(entries: np.ndarray) -> None:
    if entries.dtype.kind not in "biuf":
        raise MeasurementError(f"a query's entries must be real numbers, got type {entries.dtype}")
    if not np.isfinite(entries).all():
        raise MeasurementError("a query's entries must be finite, got NaN or infinity")


def _check_adjoint(query: Query) -> None:
    """<Q x, y> = <x, Q^T y> on one fixed pair; a wrong adjoint gives wrong gradients silently."""
    x = np.cos(np.arange(query.cells))
    y = np.sin(1.0 + np.arange(query.rows))
    try:
        qx, qty = query.apply(x), query.adjoint(y)
    except NotImplementedError as error:
        raise MeasurementError(
            "a LinearOperator used as a query must have matvec and rmatvec, one is missing; give "
            "both"
        ) from error
    slack = 1e-8 * (np.abs(qx) @ np.abs(y) + np.abs(x) @ np.abs(qty)) + 1e-12
    if not abs(qx @ y - x @ qty) <= slack:
        raise MeasurementError(
            "rmatvec of a query must be the transpose of its matvec, "
            f"got <Qx, y> = {qx @ y:.6g} and <x, Q^T y> = {x @ qty:.6g} on a trial pair"
        )


def _column_blocks(query: Query, width: int = 256) -> Iterator[Buffer]:
    for start in range(0, query.cells, width):
        count = min(width, query.cells - start)
        block = np.zeros((query.cells, count))
        block[start + np.arange(count), np.arange(count)] = 1.0
        yield query.apply(block)


def _riesz(absolute: Any) -> float:
    """||Q||_2 <= sqrt(||Q||_1 ||Q||_inf)."""
    return float(np.sqrt(absolute.sum(axis=0).max() * absolute.sum(axis=1).max()))
