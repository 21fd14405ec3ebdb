"""Query: the linear map y = Q x from a table to answers, and what it tells of the total."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, lsmr

from consilience.domain import Buffer
from consilience.errors import CapacityError, MeasurementError

GRAM_BYTES = 2**30
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

    @abstractmethod
    def total_coefficients(self) -> Buffer | None:
        """The shortest c with Q^T c = 1, None if there is none.

        Then c^T y estimates the total without bias, and with noise of equal variance sigma^2 its
        variance sigma^2 ||c||^2 is the least possible.
        """

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
