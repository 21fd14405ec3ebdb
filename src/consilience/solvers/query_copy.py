"""QueryCopy: all that is measured of one clique through queries, carried by a table of its own in splitting. RangeCopy: the same
for sums of cells that are known to lie in ranges.

    w/2 sum_j share_j ||Q_j z - y_j||^2 in probability scale, and its prox: that plus penalty/2 ||z - v||^2, minimised over z

One linear system per prox: dense and factorised where the table is small, sparse and factorised where every query is, conjugate
gradients for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import LinearOperator, cg, splu

from consilience.domain import Buffer, Clique, Domain
from consilience.measurements import BoundControl, BoundMeasurement, Coarsened, Query
from consilience.measurements.queries import Identity, Sparse

DENSE_CELLS = 3000
"""Up to this many cells the normal matrix is factorised; above, conjugate gradients on the queries."""
MOST_PRODUCTS = 200
"""With the queries in one prox by conjugate gradients."""
SPARSE, DENSE, ITERATIVE = 10.0, 0.5, 50.0
"""Visits of cells that a system costs by each entry, each pair of cells, each answer and cell."""

Solve = Callable[[Buffer], Buffer]


def way_of(queries: Sequence[Query]) -> tuple[str, float]:
    """How the system of some queries on one table is solved, and what one solve costs in visits of cells."""
    cells = queries[0].cells
    entries = [_entries(q) for q in queries if _is_sparse(q)]
    if len(entries) == len(queries) and 20 * sum(entries) < cells**2:
        return "sparse", SPARSE * (sum(entries) + cells)
    if cells <= DENSE_CELLS:
        return "dense", DENSE * cells**2
    return "iterative", ITERATIVE * sum(q.rows + q.cells for q in queries)


def _is_sparse(query: Query) -> bool:
    plain = isinstance(query, Coarsened) and isinstance(query.of, Identity)
    return plain or isinstance(query, Sparse)


def _entries(query: Query) -> int:
    """Of its matrix; levels put every cell in one unit."""
    return query.matrix.nnz if isinstance(query, Sparse) else query.cells


class QueryCopy:
    """The measurements of one clique through queries; `weight` is that of the most precise, `share` the others' in it."""

    def __init__(self, measured: Sequence[BoundMeasurement], total: float) -> None:
        self.clique: Clique = measured[0].clique
        self.queries = tuple(m.query for m in measured)
        self.values = tuple(m.values / total for m in measured)
        weights = [(total / m.stddev) ** 2 for m in measured]
        self.weight = max(weights)
        self.shares = tuple(w / self.weight for w in weights)
        self.cells = self.queries[0].cells
        self._pull = self._adjoint(self.values)
        self._make_solve = self._choose()
        self._solve: tuple[float, Solve] | None = None
        self._last: Buffer | None = None

    def _adjoint(self, answers: Iterable[Buffer]) -> Buffer:
        parts = zip(self.queries, self.shares, answers, strict=True)
        return cast(Buffer, sum(share * query.adjoint(y) for query, share, y in parts))

    def _normal(self, z: Buffer) -> Buffer:
        return self._adjoint(query.apply(z) for query in self.queries)

    def _choose(self) -> Callable[[float], Solve]:
        """How the prox is solved, decided once by sizes."""
        way, self.work = way_of(self.queries)
        if way == "sparse":
            rows = [
                np.sqrt(s) * cast(Sparse | Coarsened, q).matrix
                for q, s in zip(self.queries, self.shares, strict=True)
            ]
            self._stacked = sparse.csr_array(sparse.vstack(rows))
            self.stiffness = float(self._stacked.power(2).sum()) / self.cells
            return self._sparse
        if way == "dense":
            self._gram = self._normal(np.eye(self.cells))
            self.stiffness = float(np.trace(self._gram)) / self.cells
            return self._dense
        norms = zip(self.queries, self.shares, strict=True)
        self.stiffness = sum(s * q.column_norm**2 for q, s in norms)
        return self._iterative

    def _dense(self, ratio: float) -> Solve:
        factor = cho_factor(self._gram + ratio * np.eye(self.cells))
        return lambda right: cho_solve(factor, right)

    def _sparse(self, ratio: float) -> Solve:
        """Of the system with the answers as unknowns beside the cells: sparse even where some query sums all cells."""
        rows = sum(q.rows for q in self.queries)
        whole = sparse.block_array(
            [
                [ratio * sparse.eye_array(self.cells), self._stacked.T],
                [self._stacked, -sparse.eye_array(rows)],
            ],
            format="csc",
        )
        factor = splu(whole, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})
        nothing = np.zeros(rows)
        return lambda right: factor.solve(np.concatenate([right, nothing]))[: self.cells]

    def _iterative(self, ratio: float) -> Solve:
        normal = cast(Any, LinearOperator)(  # its stub knows the subclass form only
            (self.cells, self.cells),
            matvec=lambda z: self._normal(z) + ratio * z,
            dtype=np.float64,
        )
        return lambda right: cg(normal, right, x0=self._last, rtol=1e-11, maxiter=MOST_PRODUCTS)[0]

    def prox(self, v: Buffer, penalty: float) -> Buffer:
        ratio = penalty / self.weight
        if self._solve is None or self._solve[0] != ratio:
            self._solve = ratio, self._make_solve(ratio)
        self._last = v if self._last is None else self._last
        self._last = self._solve[1](self._pull + ratio * v)
        return self._last

    def value(self, z: Buffer) -> float:
        return self.line(z, np.zeros_like(z))[0]

    def line(self, x: Buffer, d: Buffer) -> tuple[float, float, float]:
        """Value at x, slope and curvature along d."""
        value = slope = curve = 0.0
        for query, share, y in zip(self.queries, self.shares, self.values, strict=True):
            residual, along = query.apply(x) - y, query.apply(d)
            value += 0.5 * share * float(residual @ residual)
            slope += share * float(residual @ along)
            curve += share * float(along @ along)
        return self.weight * value, self.weight * slope, self.weight * curve


def make_copies(rest: Iterable[BoundMeasurement], total: float) -> tuple[QueryCopy, ...]:
    """One copy for each clique that is measured through queries."""
    grouped: dict[Clique, list[BoundMeasurement]] = {}
    for m in rest:
        grouped.setdefault(m.clique, []).append(m)
    return tuple(QueryCopy(group, total) for group in grouped.values())


class RangeCopy:
    """A control on the cells of one clique, or on their sums by levels: the closest table whose sums lie between its ends."""

    stiffness, work = 1.0, 0.0

    def __init__(self, domain: Domain, control: BoundControl, total: float) -> None:
        self.clique: Clique = domain.clique(control.named)
        self.cells = domain.size(self.clique)
        self.weight = 1.0
        levels = tuple(domain.levels.get(a) for a in control.named)
        shape = domain.shape_of(self.clique)
        self._sums = Coarsened(shape, levels, Identity(control.low.size))
        self._share = 1.0 / self._sums.apply(np.ones(self.cells))
        self.low, self.high = control.low.reshape(-1) / total, control.high.reshape(-1) / total

    def prox(self, v: Buffer, penalty: float) -> Buffer:
        sums = self._sums.apply(v)
        return v + self._sums.adjoint((np.clip(sums, self.low, self.high) - sums) * self._share)

    def value(self, z: Buffer) -> float:
        return 0.0

    def line(self, x: Buffer, d: Buffer) -> tuple[float, float, float]:
        return 0.0, 0.0, 0.0
