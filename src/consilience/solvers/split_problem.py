"""SplitProblem: a squared loss over L(G) compiled for splitting.

    minimise  f(x) = sum_r w_r/2 ||x_r - y_r||^2 + sum_a w_a/2 ||P x - y_a||^2 + sum_r g_r(x_r)   over L(G)

x lives on the regions without parents, the *roots*. Consistency and the quadratic are handled together in closed form
(`projection.py`), non-negativity and any further separable term g_r cell by cell (`split_iteration.py`). A
clique measured through queries gets a second copy of its table that carries them (`query_copy.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector, Layout
from consilience.errors import LossError, RegionGraphError
from consilience.kernels import cells as kernels
from consilience.measurements import SquaredLoss
from consilience.regions.region_graph import RegionGraph
from consilience.regions.ties import Ties
from consilience.regions.wiring import engine_order
from consilience.solvers.feasible import masks_of
from consilience.solvers.query_copy import QueryCopy, make_copies

MEASURED, UNMEASURED = 0.12, 0.03
"""Penalty of a table over the weight of its data, per root of its cells (at least one where it is measured): the more cells,
the more of them are kept at zero. Three times as much or as little costs at most twice the iterations and changes nothing."""


@dataclass(frozen=True, eq=False)
class Structure:
    """What of a problem does not depend on the values measured: kept, so that a refit to other draws does not compile again."""

    graph: RegionGraph
    below: tuple[Clique, ...]
    copied: tuple[Clique, ...]
    ties: Ties

    def serves(
        self, graph: RegionGraph, below: tuple[Clique, ...], copied: tuple[Clique, ...]
    ) -> bool:
        return self.graph is graph and (self.below, self.copied) == (below, copied)

    @property
    def root_cliques(self) -> tuple[Clique, ...]:
        return tuple(self.graph.regions[i] for i in self.graph.roots)

    def by_clique(self, values: Buffer) -> Iterator[tuple[Clique, Buffer]]:
        """Each root clique's part of a buffer, a view in the engine's order of cells."""
        for i, clique in enumerate(self.root_cliques):
            yield clique, values[self.ties.roots.span(i)]


class SplitProblem:
    """A squared loss over L(G), compiled. Tables 0 to `count` are the roots', those after them the copies that carry queries.

    Per table: `data` is the weight of its data (0 where there are none), `own` the same with a typical weight where there are
    none, `stiffness` its penalty before the common factor rho, `mode` what its cells are asked for (kernels/cells.py) and `slope`
    the weight of |x - y| where that replaces the square. Per cell: `y` are the data, `extra` what the mode needs. All weights
    are in units of `scale`.
    """

    def __init__(
        self,
        graph: RegionGraph,
        loss: SquaredLoss,
        possible: Mapping[Clique, Buffer] | None = None,
        absolute: bool = False,
        structure: Structure | None = None,
    ) -> None:
        missing = graph.first_unsupported(loss.cliques)
        if missing is not None:
            raise RegionGraphError(
                f"the graph must support every clique of the loss, got {missing}; add it to the graph's cliques"
            )
        self.graph = graph
        self.loss = loss
        self.domain = graph.domain
        part = loss.separable()
        self.constant = part.constant
        self.root_cliques = tuple(graph.regions[i] for i in graph.roots)
        self.count = len(self.root_cliques)
        roots = {c: i for i, c in enumerate(self.root_cliques)}
        below = [c for c in part.targets.cliques if c not in roots]
        self.copies: tuple[QueryCopy, ...] = make_copies(part.rest, loss.total)
        needed = (graph, tuple(below), tuple(c.clique for c in self.copies))
        if structure is None or not structure.serves(*needed):
            structure = Structure(*needed, Ties.of(*needed))
        self.structure = structure
        self.ties = structure.ties
        self.layout = Layout(self.domain, self.root_cliques)
        self.cells = self.ties.roots.length
        self.mode = np.full(len(self.ties.roots.at), kernels.NONNEGATIVE, np.int64)
        self._take_data(part.weights, part.targets, roots)
        self._take_zeros(possible or {})
        self.own = np.where(self.data > 0, self.data, self._typical())
        root = np.sqrt(self.ties.roots.cells)
        stiff = np.where(self.data > 0, np.maximum(MEASURED * root, 1.0), UNMEASURED * root)
        self.stiffness = stiff * self.own
        self.slope = np.zeros(len(self.data))
        self.first = self._first()
        if absolute:
            self._take_absolute(bool(possible))

    @property
    def plain(self) -> bool:
        """Whether the roots' tables must be non-negative, and nothing more is asked of their cells."""
        own = self.mode[: self.count]
        return self.allowed is None and bool(np.all(own == kernels.NONNEGATIVE))

    # -- building --------------------------------------------------------------------------------

    def _take_data(self, weights: Buffer, targets: CliqueVector, roots: dict[Clique, int]) -> None:
        """Targets and weights of the roots; measurements of nodes below them are kept as (node, weight, values)."""
        self.scale = float(weights.max()) if len(weights) else max(c.weight for c in self.copies)
        self.data = np.zeros(len(self.ties.roots.at))
        self.y = np.zeros(self.cells)
        self.below: list[tuple[int, float, Buffer]] = []
        nodes = {self._names(m): i for i, m in enumerate(self.ties.nodes.members)}
        for (clique, table), weight in zip(targets.items(), weights, strict=True):
            w = float(weight) / self.scale
            flat = self.enter(table, clique)
            if clique in roots:
                i = roots[clique]
                self.data[i] = w
                self.y[self.span(i)] = flat
            else:
                self.below.append((nodes[clique], w, flat))
        for copy in self.copies:
            copy.weight /= self.scale
        self.constant /= self.scale

    def node_means(self) -> tuple[Buffer, Buffer]:
        """(base, base_share) of a `Projection`: what measurements below the roots say about the nodes' means."""
        nodes, inner = self.ties.nodes, self.ties.inner
        base, share = np.zeros(nodes.length), np.zeros(len(nodes.at))
        for s, w, flat in self.below:
            base[nodes.span(s)] += w * flat
            share[s] += w
            table = flat.reshape([int(nodes.sizes[a]) for a in nodes.members[s]])
            for e in range(inner.below.ptr[s], inner.below.ptr[s + 1]):
                t = int(inner.edges.child[e])
                kept = set(nodes.members[t])
                axes = tuple(i for i, a in enumerate(nodes.members[s]) if a not in kept)
                ratio = float(inner.summed[e])
                base[nodes.span(t)] += w / ratio * table.sum(axis=axes).reshape(-1)
                share[t] += w / ratio
        return base, share

    def _take_zeros(self, possible: Mapping[Clique, Buffer]) -> None:
        """`allowed` says which cells of the regions may hold mass, None for all; `extra` the same for the roots."""
        self.extra = self.y
        self.allowed: CliqueVector | None = None
        if not possible:
            if self.copies:
                self.extra = np.zeros(self.cells)
                self.mode[self.count :] = kernels.GIVEN
            return
        self.allowed = masks_of(self.graph, possible)
        self.extra = np.ones(self.cells)
        for i, root in enumerate(self.root_cliques):
            if not self.allowed[root].all():
                self.mode[i] = kernels.MASKED
                self.extra[self.span(i)] = self.enter(self.allowed[root], root)
        self.mode[self.count :] = kernels.GIVEN

    def _take_absolute(self, zeros: bool) -> None:
        """sqrt(2) N / stddev |x - y| instead of N^2 / (2 stddev^2) (x - y)^2."""
        if self.copies or self.below or zeros or self.constant != 0.0:
            raise LossError(
                "the absolute likelihood takes each region without parents measured plainly and once, and nothing else; "
                "use prox_pgm with an AbsoluteLoss"
            )
        self.slope = np.sqrt(2.0 * self.data / self.scale)
        self.extra = self.y.copy()
        self.mode[self.data > 0] = kernels.ABSOLUTE
        self.data = np.zeros_like(self.data)

    def _first(self) -> Buffer:
        """Start from the data where there are some, else from the uniform table; either is brought to mass one."""
        t = self.ties.roots
        cells = t.cells
        v = np.repeat(1.0 / cells, cells)
        measured = np.repeat(self.data > 0, cells)
        np.maximum(self.y, 0.0, out=v, where=measured)
        mass = np.maximum(np.add.reduceat(v, t.at), 1e-12)
        v /= np.repeat(mass, cells)
        return v

    def _typical(self) -> float:
        known = [*self.data[self.data > 0], *(w for _, w, _ in self.below)]
        return float(np.median(known)) if known else 1.0

    # -- tables in and out -----------------------------------------------------------------------

    def span(self, i: int) -> slice:
        """Where table i lies in a buffer of root cells."""
        return self.ties.roots.span(i)

    def enter(self, table: Buffer, clique: Clique) -> Buffer:
        """A table in domain order as cells in engine order (by size, then by place in the domain)."""
        return np.ascontiguousarray(table.transpose(self._order(clique))).reshape(-1)

    def leave(self, flat: Buffer, clique: Clique) -> Buffer:
        """Cells in engine order as a table in domain order."""
        order = self._order(clique)
        shape = [self.domain[clique[i]] for i in order]
        return flat.reshape(shape).transpose(np.argsort(order))

    def vector(self, x: Buffer) -> CliqueVector:
        """Root tables as a vector in domain order."""
        out = CliqueVector(self.layout)
        for i, clique in enumerate(self.root_cliques):
            out[clique][...] = self.leave(x[self.span(i)], clique)
        return out

    def mixed(self, x: Buffer, share: float) -> Buffer:
        """x with that share of the uniform table mixed into every table."""
        cells = self.ties.roots.cells
        return (1.0 - share) * x + share * np.repeat(1.0 / cells, cells)

    def _order(self, clique: Clique) -> list[int]:
        if self._ascending:
            return list(range(len(clique)))
        return sorted(range(len(clique)), key=lambda i: (self.domain[clique[i]], i))

    def _names(self, members: tuple[int, ...]) -> Clique:
        """A node's members are ranks in engine order."""
        return self.domain.clique(self._by_rank[r] for r in members)

    @cached_property
    def _ascending(self) -> bool:
        return engine_order(self.domain) == tuple(range(len(self.domain)))

    @cached_property
    def _by_rank(self) -> list[str]:
        return [self.domain.attributes[i] for i in engine_order(self.domain)]
