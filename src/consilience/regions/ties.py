"""Ties: on which attribute sets the tables of a region graph must agree, compiled for the closed-form projection.

A table splits into orthogonal components, one per attribute subset (ANOVA). Local consistency says: all tables that the
graph ties together on t have the same component t. Subsets that the same tables share can be treated together, so it is
enough to look at the *nodes*: the regions that have parents, the cliques measured below a region, all their
intersections, and the empty set (the total). For a table X on r and consistent targets T on the nodes below r,

    adjust(X) = X + sum_s m_r(s) (T_s - X summed to s) / n_{r\\s},    m_r(s) = 1 - sum of m_r over nodes of r above s,

is the closest table whose marginals on the nodes are T: the numbers m_r count every component exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, Cliques, Family, Holders
from consilience.domain.moves import cells_of
from consilience.domain.rows import grouped, row_keys, rows_of, starts
from consilience.errors import RegionGraphError
from consilience.kernels import splitting as kernels
from consilience.kernels.cells import MASKED
from consilience.kernels.splitting import Below, Means, Roots, Terms
from consilience.kernels.tables import Edges
from consilience.kernels.threads import small, spread
from consilience.regions.lattice import intersection_closure
from consilience.regions.region_graph import Kind, RegionGraph
from consilience.regions.wiring import (
    EngineTables,
    Ints,
    chunks,
    engine_order,
    engine_ranks,
    group,
    row_map,
)

WIDEST = 16
"""Tables of more attributes than this have too many subsets for the closed form; Prox-PGM has no such limit."""


@dataclass(frozen=True)
class NodeEdges:
    """For each of some tables its edges to the nodes below it."""

    below: Below
    edges: Edges
    summed: NDArray[np.float64]
    """n_{r\\s}: cells of the table per cell of the node, for every edge."""

    @property
    def length(self) -> int:
        """Cells of all messages."""
        return self.edges.length

    def take(self, which: Ints) -> NodeEdges:
        """The same for some of the tables."""
        below, edges = self.below, self.edges
        counts = np.diff(below.ptr)[which]
        ptr = starts(counts)
        e = cells_of(below.ptr[which], counts)
        owner, shift = below.owner[e], np.repeat(ptr[:-1] - below.ptr[which], counts)
        owner = np.where(owner >= 0, owner + shift, -1)
        direct = ptr[:-1] + (below.direct - below.ptr[:-1])[which]
        table, width = np.repeat(np.arange(len(which)), counts), edges.width[e]
        return NodeEdges(
            Below(ptr, direct, np.arange(len(e)), owner, below.coef[e]),
            Edges(
                table, edges.child[e], edges.kind[e], edges.map_at[e], starts(width)[:-1], width, edges.maps
            ),
            self.summed[e],
        )  # fmt: skip


@dataclass(frozen=True)
class Ties:
    """Roots (tables with cells of their own) and nodes (what they must agree on), in engine order. Node 0 is the empty set."""

    roots: EngineTables
    nodes: EngineTables
    down: NodeEdges
    """From each root to the nodes below it."""
    inner: NodeEdges
    """From each node to the nodes below it."""
    levels: tuple[Ints, ...]
    """Nodes by number of attributes, the empty set left out: each level only needs the ones before."""

    def of_roots(self, which: Ints) -> Ties:
        """Some of the roots under nodes that are given: a projection finds no means."""
        return Ties(self.roots.take(which), self.nodes, self.down.take(which), self.inner, ())

    @classmethod
    def of(
        cls,
        graph: RegionGraph,
        measured: Iterable[Clique] = (),
        copies: Iterable[Clique] = (),
    ) -> Ties:
        """Ties of a graph's regions without parents; `measured` cliques become nodes, `copies` further tables tied in full."""
        domain = graph.domain
        order = engine_order(domain)
        rank = engine_ranks(order)
        sizes = np.array(domain.shape, np.int64)[list(order)]

        def ranked(cliques: Iterable[Clique]) -> Family:
            return Cliques.of(domain, cliques).sets.renamed(rank).sorted()

        extra = ranked(copies)
        tables = Family.joined([ranked(graph.root_cliques), extra])
        widest = int(tables.ranks.max(initial=0))
        if widest > WIDEST:
            raise RegionGraphError(
                f"the splitting solver takes regions of at most {WIDEST} attributes, got one of {widest}; use solver='prox'"
            )
        below = ranked(graph.regions.take(np.unique(graph.edge_array[:, 1])))
        closed = intersection_closure(Family.joined([below, ranked(measured), extra]))
        nodes = _narrowest_first(closed)
        _check_one_component(graph, rank, nodes)
        down = _node_edges(tables, nodes, sizes, strict=False)
        inner = _node_edges(nodes, nodes, sizes, strict=True)
        levels = tuple(
            where for k, (where, _) in sorted(nodes.by_rank.items(), key=lambda i: i[0]) if k
        )
        return cls(
            EngineTables.of(tables, sizes), EngineTables.of(nodes, sizes), down, inner, levels
        )


def _narrowest_first(closed: Family) -> Family:
    """The empty set, then the sets of a closure by their number of members."""
    parts = [closed.take(where) for where, _ in closed.by_rank.values()]
    return Family.joined([Family.of([()]), *reversed(parts)])


def _check_one_component(graph: RegionGraph, rank: Ints, closed: Family) -> None:
    """A graph may hold regions that share a node's attributes without being tied on it: a user-made one, and a factor graph
    whose cliques overlap in what is measured below them or through a query."""
    if graph.kind not in (Kind.CUSTOM, Kind.FACTOR_GRAPH):
        return
    single = 1 if graph.kind is Kind.FACTOR_GRAPH else 0  # single attributes are tied always
    nodes = closed.take(np.flatnonzero(closed.ranks > single))
    if not len(nodes):
        return
    regions = graph.regions.sets.renamed(rank)
    sets, holders = [frozenset(r) for r in regions], Holders(regions)
    for node in nodes:
        inside = frozenset(node)
        above = holders.of(node)
        if len(above) == 1:
            continue
        label = {i: i for i in above}

        def find(i: int, label: dict[int, int] = label) -> int:
            while label[i] != i:
                i = label[i]
            return i

        for p, c in graph.edge_array.tolist():
            if inside <= sets[c]:
                label[find(p)] = find(c)
        if len({find(i) for i in above}) > 1:
            names = [graph.domain.attributes[k] for k, v in enumerate(rank.tolist()) if v in inside]
            raise RegionGraphError(
                f"the splitting solver needs all regions that contain {tuple(names)} tied on it, this graph leaves some apart; "
                "use solver='prox', or RegionGraph.saturated"
            )


def _node_edges(tables: Family, nodes: Family, sizes: Ints, *, strict: bool) -> NodeEdges:
    """Find the nodes below every table, tables of one shape and one pattern of nodes at a time."""
    kinds = np.unique(sizes, return_inverse=True)[1].reshape(-1)
    builder = _EdgeBuilder(len(tables))
    for rank, (members, rows) in tables.by_rank.items():
        top = (1 << rank) - (1 if strict else 0)
        found = np.full((len(rows), max(top, 1)), -1, np.int32)
        if not (strict and rank == 0):
            found[:, 0] = 0
        for mask in range(1, top):
            k = mask.bit_count()
            if k in nodes.by_rank:
                ids, ascending = nodes.by_rank[k]
                place = rows_of(ascending, rows[:, [i for i in range(rank) if mask >> i & 1]])
                found[:, mask] = np.where(place >= 0, ids[place], -1)
        for where in grouped(row_keys(np.concatenate([kinds[rows], found >= 0], axis=1))):
            lead = where[0]
            shape = tuple(sizes[rows[lead]].tolist())
            masks = np.flatnonzero(found[lead] >= 0).tolist()
            builder.add(members[where], found[where], shape, masks)
    return builder.build()


class _EdgeBuilder:
    """Collects edges group by group and lays them out table by table."""

    def __init__(self, count: int) -> None:
        self.per_table = np.zeros(count, np.int64)
        self.per_table_direct = np.zeros(count, np.int64)
        self.parts: list[tuple[Ints, list[_Template], NDArray[np.int32]]] = []
        self.pool: list[NDArray[np.int32]] = []
        self.used = 0
        self.known: dict[tuple[tuple[int, ...], tuple[bool, ...]], int] = {}

    def add(
        self, tables: Ints, found: NDArray[np.int32], shape: tuple[int, ...], masks: list[int]
    ) -> None:
        template = self._template(shape, masks)
        self.per_table[tables] = len(template)
        self.per_table_direct[tables] = sum(e.owner < 0 for e in template)
        nodes = found[:, [e.mask for e in template]] if template else found[:, :0]
        self.parts.append((tables, template, nodes))

    def build(self) -> NodeEdges:
        ptr = np.concatenate([[0], np.cumsum(self.per_table)]).astype(np.int64)
        total = int(ptr[-1])
        node, owner, kind, map_at, width = (np.zeros(total, np.int64) for _ in range(5))
        coef, summed = np.zeros(total), np.zeros(total)
        for tables, template, nodes in self.parts:
            if not template:
                continue
            start = ptr[tables][:, None]
            at = start + np.arange(len(template))
            node[at] = nodes
            owners = np.array([e.owner for e in template])
            owner[at] = np.where(owners >= 0, start + owners, -1)
            for name, array in (
                ("coef", coef),
                ("kind", kind),
                ("map_at", map_at),
                ("width", width),
                ("summed", summed),
            ):
                array[at] = np.array([getattr(e, name) for e in template])
        msg_at = np.concatenate([[0], np.cumsum(width)[:-1]]).astype(np.int64) if total else width
        maps = np.concatenate(self.pool) if self.pool else np.zeros(0, np.int32)
        table = np.repeat(np.arange(len(self.per_table)), self.per_table).astype(np.int64)
        direct, every = ptr[:-1] + self.per_table_direct, np.arange(total, dtype=np.int64)
        return NodeEdges(
            Below(ptr, direct, every, owner, coef),
            Edges(table, node, kind, map_at, msg_at, width, maps),
            summed,
        )

    def _template(self, shape: tuple[int, ...], masks: list[int]) -> list[_Template]:
        rank = len(shape)
        weight = mobius(masks)
        direct = [m for m in masks if not any(m != o and m & o == m for o in masks)]
        last = 1 << (rank - 1) if rank else 0
        direct.sort(key=lambda m: (bool(m & last), m))
        deeper = sorted(set(masks) - set(direct), reverse=True)
        out: list[_Template] = []
        cells = _cells(shape, (1 << rank) - 1)
        for m in direct:
            n = _cells(shape, m)
            out.append(
                _Template(m, -1, n / cells, *self._map(shape, (1 << rank) - 1, m), n, cells / n)
            )
        for m in deeper:
            place = next(i for i, o in enumerate(direct) if m & o == m)
            n, above = _cells(shape, m), _cells(shape, direct[place])
            out.append(
                _Template(
                    m,
                    place,
                    weight[m] * n / above,
                    *self._map(shape, direct[place], m),
                    n,
                    cells / n,
                )
            )
        return out

    def _map(self, shape: tuple[int, ...], source: int, target: int) -> tuple[int, int]:
        axes = [i for i in range(len(shape)) if source >> i & 1]
        sub = tuple(shape[i] for i in axes)
        kept = tuple(bool(target >> i & 1) for i in axes)
        key = (sub, kept)
        if key not in self.known:
            made = row_map(sub, kept) if sub else np.zeros(1, np.int32)
            self.known[key] = self.used
            self.pool.append(made)
            self.used += len(made)
        return (int(kept[-1]) if kept else 1), self.known[key]


@dataclass(frozen=True)
class _Template:
    """One edge as it looks for every table of a group."""

    mask: int
    owner: int
    coef: float
    kind: int
    map_at: int
    width: int
    summed: float


def mobius(masks: list[int]) -> dict[int, int]:
    """m(s) = 1 - sum of m over the members strictly above s, for an intersection-closed family of bit sets."""
    weight: dict[int, int] = {}
    for m in sorted(masks, key=lambda m: -m.bit_count()):
        weight[m] = 1 - sum(w for o, w in weight.items() if o != m and o & m == m)
    return weight


def _cells(shape: tuple[int, ...], mask: int) -> int:
    n = 1
    for i, size in enumerate(shape):
        if mask >> i & 1:
            n *= size
    return n


class Projection:
    """Sums every table down to the nodes below it, averages there, and spreads what is missing back up.

    `target` holds the nodes' tables after `project`; its first cell is the total that all tables must have. `base` and
    `base_share` are what is known about the nodes apart from the tables: sums of weight * value and of weights.
    """

    def __init__(self, ties: Ties) -> None:
        self.ties = ties
        self.target = np.zeros(ties.nodes.length)
        self.target[0] = 1.0
        self.base = np.zeros(ties.nodes.length)
        self.base_share = np.zeros(len(ties.nodes.at))
        self.stats = np.zeros((len(ties.roots.at), kernels.STATS))
        self._msg = np.empty(ties.down.length)
        self._node_msg = np.empty(ties.inner.length)
        self._chunk = chunks(ties.roots.cells)
        self._incoming = group(ties.down.edges.child, len(ties.nodes.at))
        self._visited = ties.down.length + ties.inner.length
        # Nodes are numbered level by level; where one thread does all of them, their order is enough.
        levels = [(int(level[0]), int(level[-1]) + 1) for level in ties.levels]
        self._levels = [(1, len(ties.nodes.at))] if small(self._visited) and levels else levels

    def weigh(self, weights: Buffer) -> None:
        """Give every table a weight: its sum down to a node s then counts as weight / n_{r\\s}."""
        down = self.ties.down
        weight = weights[down.edges.parent] / down.summed
        sums = np.bincount(down.edges.child, weight, minlength=len(self.base_share))
        share = 1.0 / np.maximum(sums + self.base_share, 1e-300)
        self._means = Means(self.target, self.base, weight, share, *self._incoming)

    def project(self, roots: Roots, relax: float = 0.0) -> None:
        """Blend data and state (`kernels.gather`) and make roots.x the projection of that; then v += relax (x - z)."""
        t, msg, cells = self.ties, self._msg, self.ties.roots.length
        tables, nodes, down, items = t.roots.shapes, t.nodes.shapes, t.down, len(self._chunk) - 1
        spread(
            kernels.gather,
            items,
            cells,
            roots,
            msg,
            self._chunk,
            tables,
            nodes,
            down.below,
            down.edges,
        )
        met = (
            msg,
            self._means,
            down.edges.msg_at,
            self._node_msg,
            nodes,
            t.inner.below,
            t.inner.edges,
        )
        for first, last in self._levels:
            spread(kernels.meet, last - first, self._visited, *met, start=first)
        spread(
            kernels.scatter,
            items,
            cells,
            relax,
            roots,
            self.target,
            msg,
            self._chunk,
            tables,
            nodes,
            down.below,
            down.edges,
        )

    def measure(self, roots: Roots, terms: Terms, relax: float) -> Buffer:
        """The statistics of the certificate (`kernels.STATS`), a row per table, once roots.x is the projection."""
        tables, count, cells = (
            self.ties.roots.shapes,
            len(self.ties.roots.at),
            self.ties.roots.length,
        )
        spread(kernels.measure, count, cells, relax, roots, terms, self.stats, tables)
        if np.any(roots.mode > MASKED):
            spread(kernels.measure_general, count, cells, roots, terms, self.stats, tables)
        return self.stats
