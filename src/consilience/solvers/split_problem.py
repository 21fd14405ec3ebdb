"""SplitProblem: a squared loss over L(G) compiled for splitting.

    minimise  f(x) = sum_r w_r/2 ||x_r - y_r||^2 + sum_a w_a/2 ||P x - y_a||^2 + sum_r g_r(x_r)   over L(G)

x lives on the regions without parents, the *roots*. Consistency and the quadratic are handled together in closed form
(`projection.py`), non-negativity and any further separable term g_r cell by cell (`split_iteration.py`). A
clique measured through queries gets a second copy of its table that carries them (`query_copy.py`); so do controls, but for
exact tables of attributes, which consistency itself meets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, Cliques, CliqueVector, Family, Layout, dot
from consilience.domain.moves import cells_of, move
from consilience.domain.rows import starts
from consilience.errors import LossError, RegionGraphError
from consilience.kernels import cells as kernels
from consilience.measurements import BoundControl, SquaredLoss
from consilience.measurements.evidence import Evidence
from consilience.regions.lattice import alike
from consilience.regions.region_graph import RegionGraph
from consilience.regions.ties import Ties
from consilience.regions.wiring import engine_order, engine_ranks
from consilience.solvers.controls import controlled, with_masks
from consilience.solvers.feasible import masks_of
from consilience.solvers.query_copy import QueryCopy, RangeCopy, make_copies

MEASURED, UNMEASURED = 0.12, 0.03
"""Penalty of a table over the weight of its data, per root of its cells (at least one where it is measured): the more cells,
the more of them are kept at zero. Three times as much or as little costs at most twice the iterations and changes nothing."""
PINNED = 1e9
"""Weight of an exact table in the means of consistent points, over the largest of the others: what is left of it is mended at
the end, and every bound holds whatever is left."""
TABLES = 1 << 15
"""Tables that a step over whole buffers makes copies of at a time."""


@dataclass(frozen=True, eq=False)
class Structure:
    """What of a problem does not depend on the values measured: kept, so that a refit to other draws does not compile again."""

    graph: RegionGraph
    below: Cliques
    copied: tuple[Clique, ...]
    ties: Ties

    def serves(self, graph: RegionGraph, below: Cliques, copied: tuple[Clique, ...]) -> bool:
        return self.graph is graph and (self.below, self.copied) == (below, copied)

    @property
    def root_cliques(self) -> Cliques:
        return self.graph.root_cliques

    def by_clique(self, values: Buffer) -> Iterator[tuple[Clique, Buffer]]:
        """Each root clique's part of a buffer, a view in the engine's order of cells."""
        for i, clique in enumerate(self.root_cliques):
            yield clique, values[self.ties.roots.span(i)]

    def shared_with(self, other: Structure) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Cells of our buffers and of another's that belong to the same cells of the same root cliques."""
        found = other.root_cliques.find(self.root_cliques)
        mine = np.flatnonzero(found >= 0)
        ours, theirs = self.ties.roots, other.ties.roots
        counts = ours.cells[mine]
        return cells_of(ours.at[mine], counts), cells_of(theirs.at[found[mine]], counts)


@dataclass(frozen=True, eq=False)
class Below:
    """Tables measured below the roots: nodes[i] with weights[i], its values from at[i] to at[i + 1] in engine order."""

    nodes: NDArray[np.int64]
    weights: Buffer
    values: Buffer
    at: NDArray[np.int64]
    cells: NDArray[np.int64]
    """Where the values belong in a buffer over the nodes."""

    def __len__(self) -> int:
        return len(self.nodes)

    def sums(self, terms: Buffer) -> Buffer:
        """The sum of one term per value, table by table."""
        return np.add.reduceat(terms, self.at[:-1]) if len(self.nodes) else np.zeros(0)


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
        loss: SquaredLoss | Evidence,
        possible: Mapping[Clique, Buffer] | None = None,
        absolute: bool = False,
        structure: Structure | None = None,
        controls: Sequence[BoundControl] = (),
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
        self.root_cliques = graph.root_cliques
        self.count = len(self.root_cliques)
        places = self.root_cliques.find(part.targets.cliques)
        self.controls = tuple(controls)
        pinned = [c for c in controls if c.exact and not self._coarse(c)]
        below = part.targets.cliques.take(np.flatnonzero(places < 0))
        below = Cliques.of(self.domain, [*below, *(c.named for c in pinned)]).distinct(empty=False)
        self.copies: tuple[QueryCopy | RangeCopy, ...] = (
            *make_copies(part.rest, loss.total),
            *(RangeCopy(self.domain, c, loss.total) for c in controls if c not in pinned),
        )
        needed = (graph, below, tuple(c.clique for c in self.copies))
        if structure is None or not structure.serves(*needed):
            structure = Structure(*needed, Ties.of(*needed))
        self.structure = structure
        self.ties = structure.ties
        self.cells = self.ties.roots.length
        self.mode = np.full(len(self.ties.roots.at), kernels.NONNEGATIVE, np.int64)
        self._take_data(part.weights, part.targets, places)
        self._take_zeros(with_masks(self.domain, possible or {}, controls))
        self.own = np.where(self.data > 0, self.data, self._typical())
        root = np.sqrt(self.ties.roots.cells)
        stiff = np.where(self.data > 0, np.maximum(MEASURED * root, 1.0), UNMEASURED * root)
        self.stiffness = stiff * self.own
        self._pin(pinned)
        self.slope = np.zeros(len(self.data))
        if absolute:
            self._take_absolute(bool(possible))

    @property
    def layout(self) -> Layout:
        """Of the roots."""
        return Layout(self.domain, self.root_cliques)

    @property
    def plain(self) -> bool:
        """Whether the roots' tables must be non-negative, and nothing more is asked of their cells."""
        own = self.mode[: self.count]
        return self.allowed is None and bool(np.all(own == kernels.NONNEGATIVE))

    # -- building --------------------------------------------------------------------------------

    def _take_data(self, weights: Buffer, targets: CliqueVector, places: NDArray[np.int64]) -> None:
        """Targets and weights of the roots, and those of the nodes below them."""
        queries = [c for c in self.copies if isinstance(c, QueryCopy)]
        self.scale = float(weights.max()) if len(weights) else max(c.weight for c in queries)
        weights = weights / self.scale
        self.data = np.zeros(len(self.ties.roots.at))
        mine, lower = np.flatnonzero(places >= 0), np.flatnonzero(places < 0)
        self.data[places[mine]] = weights[mine]
        self.y = self._entered(targets, mine, self.ties.roots.at[places[mine]], self.cells)
        names = Cliques(self.domain, self._unranked(self.ties.nodes.members))
        nodes = names.find(targets.cliques.take(lower))
        counts = self.ties.nodes.cells[nodes]
        at = starts(counts)
        values = self._entered(targets, lower, at[:-1], int(at[-1]))
        self.below = Below(
            nodes, weights[lower], values, at, cells_of(self.ties.nodes.at[nodes], counts)
        )
        for copy in queries:
            copy.weight /= self.scale
        self.constant /= self.scale

    def _entered(
        self, vector: CliqueVector, which: NDArray[np.int64], at: NDArray[np.int64], cells: int
    ) -> Buffer:
        """Some tables of a vector in engine order, written from `at` on into a buffer of so many cells."""
        layout = vector.layout
        whole = len(which) == len(layout.cliques) and cells == layout.cells
        if self._ascending and whole and np.array_equal(at, layout.offsets[:-1]):
            return vector.values
        out, shapes = np.zeros(cells), layout.shapes.take(which)
        axes = None if self._ascending else self._axes(layout.cliques.take(which))
        move(vector.values, layout.offsets[:-1][which], out, at, shapes, axes)
        return out

    def entered(self, vector: CliqueVector, which: NDArray[np.int64]) -> Buffer:
        """Tables `which` of a vector, the roots' in their order, as a buffer of root cells."""
        return self._entered(vector, which, self.ties.roots.at[: self.count], self.cells)

    def _pin(self, exact: list[BoundControl]) -> None:
        """`pinned`: nodes whose tables are public, as if measured with next to no noise."""
        targets = (
            CliqueVector.from_tables(self.domain, {c.named: c.low / self.loss.total for c in exact})
            if exact
            else CliqueVector(Layout(self.domain, Cliques.of(self.domain, [])))
        )
        every = np.arange(len(exact))
        names = Cliques(self.domain, self._unranked(self.ties.nodes.members))
        nodes = names.find(targets.cliques)
        counts = self.ties.nodes.cells[nodes]
        at = starts(counts)
        values = self._entered(targets, every, at[:-1], int(at[-1]))
        heavy = PINNED * float(max(self.stiffness.max(), self.data.max(), 1.0))
        self.pinned = Below(
            nodes,
            np.full(len(exact), heavy),
            values,
            at,
            cells_of(self.ties.nodes.at[nodes], counts),
        )
        for copy in self.copies:
            if isinstance(copy, RangeCopy):
                copy.weight = MEASURED * self._typical() * float(np.sqrt(copy.cells))

    def node_means(self) -> tuple[Buffer, Buffer]:
        """(base, base_share) of a `Projection`: what is known below the roots says about the nodes' means."""
        nodes = self.ties.nodes
        base, share = np.zeros(nodes.length), np.zeros(len(nodes.at))
        for known in (self.below, self.pinned):
            if len(known):
                self._add_means(known, base, share)
        return base, share

    def _add_means(self, below: Below, base: Buffer, share: Buffer) -> None:
        nodes, inner = self.ties.nodes, self.ties.inner
        weight = np.repeat(below.weights, np.diff(below.at))
        base[below.cells] += weight * below.values
        share[below.nodes] += below.weights
        which = np.zeros(len(nodes.at), np.int64)
        which[below.nodes] = np.arange(len(below))
        measured = np.zeros(len(nodes.at), bool)
        measured[below.nodes] = True
        edge = np.flatnonzero(measured[inner.edges.parent])
        pairs = np.stack([inner.edges.parent[edge], inner.edges.child[edge]], axis=1)
        weight = below.weights[which[pairs[:, 0]]] / inner.summed[edge]
        for e, shape, kept in alike(nodes.members, nodes.members, pairs, nodes.sizes):
            axes = tuple(i + 1 for i, there in enumerate(kept) if not there)
            many = np.prod(shape, dtype=np.int64)
            rows = below.values[below.at[which[pairs[e, 0]]][:, None] + np.arange(many)]
            summed = rows.reshape(-1, *shape).sum(axis=axes).reshape(len(e), -1)
            cells = nodes.at[pairs[e, 1]][:, None] + np.arange(summed.shape[1])
            np.add.at(base, cells, weight[e][:, None] * summed)
        np.add.at(share, pairs[:, 1], weight)

    def _coarse(self, control: BoundControl) -> bool:
        return any(a in self.domain.levels for a in control.named)

    def _take_zeros(self, possible: Mapping[Clique, Buffer]) -> None:
        """`allowed` says which cells of the regions may hold mass, None for all; `extra` the same for the roots."""
        self.extra = self.y
        self.allowed: CliqueVector | None = None
        if not possible and not self.controls:
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
        if self.copies or self.controls or len(self.below) or zeros or self.constant != 0.0:
            raise LossError(
                "the absolute likelihood takes each region without parents measured plainly and once, and nothing else; "
                "use prox_pgm with an AbsoluteLoss"
            )
        self.slope = np.sqrt(2.0 * self.data / self.scale)
        self.extra = self.y.copy()
        self.mode[self.data > 0] = kernels.ABSOLUTE
        self.data = np.zeros_like(self.data)

    def keep_controls(self, tau: CliqueVector) -> tuple[CliqueVector, float]:
        """Consistent tables next to tau that meet the controls, and the violation left."""
        assert self.allowed is not None
        return controlled(self.graph, tau, self.allowed, self.controls, self.loss.total)

    def first(self) -> Buffer:
        """Start from the data where there are some, else from the uniform table; either is brought to mass one."""
        t = self.ties.roots
        measured = (self.data > 0) | (self.slope > 0)
        v = np.maximum(self.y, 0.0)
        if not measured.all():
            np.copyto(v, np.repeat(1.0 / t.cells, t.cells), where=np.repeat(~measured, t.cells))
        mass = np.maximum(np.add.reduceat(v, t.at), 1e-12)
        for part, ends in self._portions():
            v[ends] /= np.repeat(mass[part], t.cells[part])
        return v

    def _typical(self) -> float:
        known = np.concatenate([self.data[self.data > 0], self.below.weights])
        return float(np.median(known)) if len(known) else 1.0

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
        self.write(x, out, np.arange(self.count))
        return out

    def write(self, x: Buffer, out: CliqueVector, regions: NDArray[np.int64]) -> None:
        """Write the root tables as those tables of a vector."""
        ranked = self.ties.roots.members.take(np.arange(self.count))
        axes = None if self._ascending else self._axes(self.root_cliques).argsort()
        at = self.ties.roots.at[: self.count]
        shapes = ranked.renamed(self.ties.roots.sizes)
        move(x, at, out.values, out.layout.offsets[:-1][regions], shapes, axes)

    def mixed(self, x: Buffer, share: float) -> Buffer:
        """x with that share of the uniform table mixed into every table."""
        t = self.ties.roots
        out = (1.0 - share) * x
        for part, ends in self._portions():
            out[ends] += np.repeat(share * (1.0 / t.cells[part]), t.cells[part])
        return out

    def value(self, x: Buffer, nodes: Buffer) -> float:
        """The objective of consistent tables, in units of `scale`; `nodes` are the nodes' tables."""
        t, below = self.ties.roots, self.below
        value = self.constant
        for part, ends in self._portions():
            off = np.square(x[ends] - self.y[ends])
            value += 0.5 * dot(self.data[part], np.add.reduceat(off, t.at[part] - ends.start))
        off = np.square(nodes[below.cells] - below.values)
        value += 0.5 * dot(below.weights, below.sums(off))
        for i, copy in enumerate(self.copies, self.count):
            value += copy.value(self.leave(x[self.span(i)], copy.clique).reshape(-1))
        return value

    def _portions(self) -> Iterator[tuple[slice, slice]]:
        """Some tables at a time, and their cells."""
        t = self.ties.roots
        for lo in range(0, len(t.at), TABLES):
            part = slice(lo, lo + TABLES)
            yield part, slice(int(t.at[lo]), int(t.at[lo] + t.cells[part].sum()))

    def _order(self, clique: Clique) -> list[int]:
        if self._ascending:
            return list(range(len(clique)))
        return sorted(range(len(clique)), key=lambda i: (self.domain[clique[i]], i))

    def _axes(self, cliques: Cliques) -> Family:
        """For each clique the axes that bring its table from domain order to engine order."""
        return cliques.sets.renamed(engine_ranks(engine_order(self.domain))).argsort()

    def _unranked(self, members: Family) -> Family:
        """Members of nodes are ranks in engine order; here as positions in the domain, ascending."""
        return members.renamed(np.array(engine_order(self.domain))).sorted()

    @cached_property
    def _ascending(self) -> bool:
        return engine_order(self.domain) == tuple(range(len(self.domain)))
