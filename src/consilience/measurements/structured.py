"""Queries with structure: prefix sums, ranges, Kronecker products, a change of axis order, levels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import pi, prod, sin
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import spsolve

from consilience.domain import Buffer
from consilience.domain.levels import Level
from consilience.errors import MeasurementError
from consilience.measurements.queries import Identity, Query, Square, as_query, check_size


@dataclass(frozen=True)
class Prefix(Square):
    """Row i is the sum of cells 0 to i, along one ordered attribute."""

    def apply(self, x: Buffer) -> Buffer:
        return np.cumsum(x, axis=0)

    def adjoint(self, y: Buffer) -> Buffer:
        return np.cumsum(y[::-1], axis=0)[::-1]

    @property
    def column_norm(self) -> float:
        return self.size**0.5

    @property
    def norm(self) -> float:
        """Exact: the singular values of Q^-1 (differences) are 2 sin((2k - 1) pi / (4n + 2))."""
        return (1 + 1e-12) / (2 * sin(pi / (4 * self.size + 2)))

    def total_coefficients(self) -> Buffer:
        """Q is invertible and its last row is the total."""
        c = np.zeros(self.size)
        c[-1] = 1.0
        return c


@dataclass(frozen=True, eq=False, repr=False)
class Ranges(Query):
    """Row i is the sum of cells lo_i to hi_i - 1, along one ordered attribute."""

    size: int
    intervals: NDArray[np.int64]

    def __init__(self, size: int, intervals: Any) -> None:
        check_size(size)
        given = np.asarray(intervals)
        if (
            given.ndim != 2
            or given.shape[1] != 2
            or len(given) == 0
            or given.dtype.kind not in "iu"
        ):
            raise MeasurementError(
                "ranges must be a non-empty list of integer pairs (lo, hi), "
                f"got shape {given.shape} of {given.dtype}"
            )
        lo, hi = given.T
        bad = np.flatnonzero((lo < 0) | (lo >= hi) | (hi > size))
        if bad.size:
            raise MeasurementError(
                f"a range must have 0 <= lo < hi <= {size} (hi is excluded), got "
                f"{tuple(given[bad[0]].tolist())}"
            )
        object.__setattr__(self, "size", int(size))
        object.__setattr__(self, "intervals", given.astype(np.int64))

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.intervals), self.size

    @cached_property
    def _ends(self) -> sparse.csr_array:
        """B in Q = B S: each row is the prefix sum at hi minus the one at lo, of n + 1."""
        count = len(self.intervals)
        entries = np.tile([-1.0, 1.0], count)
        starts = np.arange(0, 2 * count + 1, 2)
        return sparse.csr_array((entries, self.intervals.ravel(), starts), (count, self.size + 1))

    def apply(self, x: Buffer) -> Buffer:
        sums = np.zeros((self.size + 1, *x.shape[1:]))
        np.cumsum(x, axis=0, out=sums[1:])
        return self._ends @ sums

    def adjoint(self, y: Buffer) -> Buffer:
        ends = self._ends.T @ y
        return np.cumsum(ends[:0:-1], axis=0)[::-1]

    @cached_property
    def _cover(self) -> Buffer:
        """How many ranges hold each cell."""
        return self.adjoint(np.ones(self.rows))

    @property
    def column_norm(self) -> float:
        return float(np.sqrt(self._cover.max()))

    @property
    def norm(self) -> float:
        """sqrt(||Q||_1 ||Q||_inf)."""
        lengths = self.intervals[:, 1] - self.intervals[:, 0]
        return float(np.sqrt(self._cover.max() * lengths.max()))

    def total_coefficients(self) -> Buffer | None:
        """The electrical flow from 0 to n in the graph with cuts as nodes and ranges as edges.

        Q^T c = 1 says that c is a unit flow from cut 0 to cut n; the shortest one is the flow of
        least energy, c = B phi with L phi = e_n - e_0 for the graph's Laplacian L = B^T B.
        """
        laplacian = sparse.csr_array(self._ends.T @ self._ends)
        component = connected_components(laplacian, directed=False)[1]
        if component[0] != component[-1]:
            return None
        live = np.flatnonzero(component == component[0])[1:]  # cut 0 is grounded
        phi = np.zeros(self.size + 1)
        unit = np.zeros(live.size)
        unit[-1] = 1.0
        phi[live] = np.asarray(spsolve(sparse.csc_array(laplacian[live][:, live]), unit))
        return self._ends @ phi

    def __repr__(self) -> str:
        return f"Ranges({self.rows} ranges over {self.size} cells)"


@dataclass(frozen=True, eq=False)
class Kronecker(Query):
    """Q = Q_1 x ... x Q_k, factor i acting on the i-th attribute (or group of attributes)."""

    factors: tuple[Query, ...]

    def __init__(self, factors: Iterable[Any]) -> None:
        flat: list[Query] = []
        for factor in map(as_query, factors):
            flat.extend(factor.factors if isinstance(factor, Kronecker) else (factor,))
        if not flat:
            raise MeasurementError("a Kronecker product must have at least one factor, got none")
        object.__setattr__(self, "factors", tuple(flat))

    @property
    def shape(self) -> tuple[int, int]:
        return prod(f.rows for f in self.factors), prod(f.cells for f in self.factors)

    def apply(self, x: Buffer) -> Buffer:
        return self._along(x, [(f.apply, f.cells) for f in self.factors], self.rows)

    def adjoint(self, y: Buffer) -> Buffer:
        return self._along(y, [(f.adjoint, f.rows) for f in self.factors], self.cells)

    @staticmethod
    def _along(x: Buffer, steps: list[tuple[Any, int]], out: int) -> Buffer:
        """Each factor acts on the leading axis, which then moves to the end; batch axis last."""
        z = x
        for act, size in steps:
            z = act(z.reshape(size, -1)).T
        return z.reshape(-1, out).T.reshape(out, *x.shape[1:])

    @property
    def column_norm(self) -> float:
        return prod(f.column_norm for f in self.factors)

    @property
    def norm(self) -> float:
        return prod(f.norm for f in self.factors)

    def total_coefficients(self) -> Buffer | None:
        """The pseudo-inverse of a product is the product of the pseudo-inverses."""
        c = np.ones(1)
        for factor in self.factors:
            part = factor.total_coefficients()
            if part is None:
                return None
            c = np.multiply.outer(c, part).reshape(-1)
        return c

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether each factor covers whole attributes of a table of this shape."""
        return set(accumulate((f.cells for f in self.factors), mul)) <= {1, *accumulate(shape, mul)}


@dataclass(frozen=True, eq=False)
class Permuted(Query):
    """Q for a table with its axes in another order: the query's axis i is axis `axes[i]` here."""

    query: Query
    table: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return self.query.shape

    def apply(self, x: Buffer) -> Buffer:
        batch = x.shape[1:]
        moved = x.reshape(*self.table, -1).transpose(*self.axes, len(self.axes))
        return self.query.apply(moved.reshape(self.cells, *batch))

    def adjoint(self, y: Buffer) -> Buffer:
        x = self.query.adjoint(y)
        inner = [self.table[a] for a in self.axes]
        back = np.argsort(self.axes).tolist()
        return x.reshape(*inner, -1).transpose(*back, len(back)).reshape(x.shape)

    @property
    def column_norm(self) -> float:
        return self.query.column_norm

    @property
    def norm(self) -> float:
        return self.query.norm

    def total_coefficients(self) -> Buffer | None:
        return self.query.total_coefficients()


@dataclass(frozen=True, eq=False, repr=False)
class Coarsened(Query):
    """A query on a table that is read at levels: first the values of each unit are summed, then `of` is asked.

    table: sizes of the attributes. levels: for each attribute the level that it is read at, None for its own values.
    """

    table: tuple[int, ...]
    levels: tuple[Level | None, ...]
    of: Query

    @property
    def shape(self) -> tuple[int, int]:
        return self.of.rows, prod(self.table)

    @property
    def coarse(self) -> tuple[int, ...]:
        """The shape of the table at its levels."""
        return tuple(
            n if v is None else v.size for n, v in zip(self.table, self.levels, strict=True)
        )

    def apply(self, x: Buffer) -> Buffer:
        z = x.reshape(*self.table, -1)
        for axis, level in enumerate(self.levels):
            z = z if level is None else level.summed(z, axis)
        return self.of.apply(z.reshape(self.of.cells, *x.shape[1:]))

    def adjoint(self, y: Buffer) -> Buffer:
        z = self.of.adjoint(y).reshape(*self.coarse, -1)
        for axis, level in enumerate(self.levels):
            z = z if level is None else level.spread(z, axis)
        return z.reshape(self.cells, *y.shape[1:])

    @property
    def column_norm(self) -> float:
        """That of `of`: every cell lies in one cell of the coarse table."""
        return self.of.column_norm

    @property
    def norm(self) -> float:
        """The sums have orthogonal rows, the longest of which has as many ones as the largest unit has values."""
        widest = prod(int(np.bincount(v.units).max()) for v in self.levels if v is not None)
        return self.of.norm * widest**0.5

    def total_coefficients(self) -> Buffer | None:
        """As c^T Q = 1 exactly where c^T of = 1."""
        return self.of.total_coefficients()

    @cached_property
    def matrix(self) -> sparse.csr_array | None:
        """The same as a sparse matrix; None where `of` is more than the table."""
        if not isinstance(self.of, Identity):
            return None
        found = sparse.csr_array(np.ones((1, 1)))
        for size, level in zip(self.table, self.levels, strict=True):
            found = sparse.kron(found, level_sums(size, level), format="csr")
        return sparse.csr_array(found)

    def __repr__(self) -> str:
        names = ", ".join(v.name for v in self.levels if v is not None)
        return f"Coarsened({self.rows} x {self.cells}, {names})"


def level_sums(size: int, level: Level | None) -> sparse.csr_array:
    """The values of each unit summed, as a matrix; the values themselves without a level."""
    if level is None:
        return sparse.csr_array(sparse.eye_array(size))
    ones, values = np.ones(size), np.arange(size)
    return sparse.csr_array(sparse.coo_array((ones, (level.units, values)), (level.size, size)))


@dataclass(frozen=True)
class Centring(Query):
    """C: subtract the mean along every axis of a table. An orthogonal projection."""

    sizes: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return prod(self.sizes), prod(self.sizes)

    def apply(self, x: Buffer) -> Buffer:
        return centred(x.reshape(*self.sizes, -1), len(self.sizes)).reshape(x.shape)

    def adjoint(self, y: Buffer) -> Buffer:
        return self.apply(y)

    @property
    def column_norm(self) -> float:
        return prod((n - 1) / n for n in self.sizes) ** 0.5

    @property
    def norm(self) -> float:
        return 1.0

    def total_coefficients(self) -> Buffer | None:
        return None if self.sizes else np.ones(1)


def centred(table: Buffer, axes: int) -> Buffer:
    """The table with its mean along each of the first `axes` axes subtracted."""
    for axis in range(axes):
        table = table - table.mean(axis=axis, keepdims=True)
    return table
