"""Measurements through a query that is not the identity: a second copy of the clique's table that carries the query."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import LinearOperator, cg

from consilience.domain import Buffer, Clique
from consilience.measurements import BoundMeasurement, Query

DENSE_CELLS = 3000
"""Up to this many cells the normal matrix is factorised; above, conjugate gradients on the query."""


class QueryCopy:
    """w/2 ||Q z - y||^2 in probability scale, and its prox argmin_z w/2 ||Q z - y||^2 + penalty/2 ||z - v||^2."""

    def __init__(self, clique: Clique, query: Query, values: Buffer, weight: float) -> None:
        self.clique = clique
        self.query = query
        self.values = values
        self.weight = weight
        self._pull = query.adjoint(values)
        self._gram = query.gram() if query.cells <= DENSE_CELLS else None
        self._factor: tuple[float, tuple[Buffer, bool]] | None = None
        self._last: Buffer | None = None

    @property
    def stiffness(self) -> float:
        """A typical squared singular value, the scale for the penalty."""
        if self._gram is not None:
            return float(np.trace(self._gram)) / self.query.cells
        return self.query.column_norm**2

    def prox(self, v: Buffer, penalty: float) -> Buffer:
        ratio = penalty / self.weight
        right = self._pull + ratio * v
        if self._gram is not None:
            if self._factor is None or self._factor[0] != ratio:
                self._factor = (ratio, cho_factor(self._gram + ratio * np.eye(len(v))))
            return cho_solve(self._factor[1], right)
        normal = cast(Any, LinearOperator)(  # its stub knows the subclass form only
            (len(v), len(v)),
            matvec=lambda z: self.query.adjoint(self.query.apply(z)) + ratio * z,
            dtype=np.float64,
        )
        start = v if self._last is None else self._last
        z, _ = cg(normal, right, x0=start, rtol=1e-11, maxiter=200)
        self._last = z
        return z

    def value(self, z: Buffer) -> float:
        return 0.5 * self.weight * float(np.square(self.query.apply(z) - self.values).sum())

    def line(self, x: Buffer, d: Buffer) -> tuple[float, float, float]:
        """Value at x, slope and curvature along d."""
        residual, along = self.query.apply(x) - self.values, self.query.apply(d)
        return (
            0.5 * self.weight * float(residual @ residual),
            self.weight * float(residual @ along),
            self.weight * float(along @ along),
        )


def make_copies(rest: Iterable[BoundMeasurement], total: float) -> tuple[QueryCopy, ...]:
    return tuple(
        QueryCopy(m.clique, m.query, m.values / total, (total / m.stddev) ** 2) for m in rest
    )
