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

from consilience.domain import Buffer, Clique
from consilience.errors import RegionGraphError
from consilience.kernels import splitting as kernels
from consilience.kernels.cells import MASKED
from consilience.kernels.splitting import Below, Means, Roots, Terms
from consilience.kernels.tables import Edges
from consilience.kernels.threads import small, spread
from consilience.regions.lattice import intersection_closure, match_rows
from consilience.regions.region_graph import Kind, RegionGraph
from consilience.regions.wiring import (
    EngineTables,
    Ints,
    chunks,
    engine_members,
    engine_order,
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
        sizes = np.array(domain.shape, np.int64)
        rank = {p: k for k, p in enumerate(order)}
        roots = engine_members(domain, order, [graph.regions[i] for i in graph.roots])
        extra = engine_members(domain, order, copies)
        below = engine_members(
            domain, order, [graph.regions[i] for i in np.unique(graph.edge_array[:, 1])]
        )
        wanted = [*below, *engine_members(domain, order, measured), *extra]
        tables = [*roots, *extra]
        widest = max((len(t) for t in tables), default=0)
        if widest > WIDEST:
            raise RegionGraphError(
                f"the splitting solver takes regions of at most {WIDEST} attributes, got one of {widest}; use solver='prox'"
            )
        # Closure wants sorted tuples: translate positions to engine ranks and back.
        ranked = [tuple(sorted(rank[a] for a in t)) for t in wanted if t]
        closed = intersection_closure(ranked) if ranked else []
        node_ranks = [(), *sorted(closed, key=lambda s: (len(s), s))]
        _check_one_component(graph, rank, node_ranks)
        by_rank_size = sizes[list(order)]
        root_ranks = [tuple(sorted(rank[a] for a in t)) for t in tables]
        nodes = EngineTables.of(node_ranks, by_rank_size)
        root_tables = EngineTables.of(root_ranks, by_rank_size)
        down = _node_edges(root_ranks, node_ranks, by_rank_size, strict=False)
        inner = _node_edges(node_ranks, node_ranks, by_rank_size, strict=True)
        length = np.array([len(s) for s in node_ranks])
        levels = tuple(
            np.flatnonzero(length == k).astype(np.int64)
            for k in range(1, int(length.max()) + 1)
            if (length == k).any()
        )
        return cls(root_tables, nodes, down, inner, levels)


def _check_one_component(
    graph: RegionGraph, rank: dict[int, int], nodes: list[tuple[int, ...]]
) -> None:
    """A graph may hold regions that share a node's attributes without being tied on it: a user-made one, and a factor graph
    whose cliques overlap in what is measured below them or through a query."""
    if graph.kind not in (Kind.CUSTOM, Kind.FACTOR_GRAPH):
        return
    if graph.kind is Kind.FACTOR_GRAPH:
        nodes = [(), *(n for n in nodes if len(n) > 1)]  # single attributes are tied always
    place = graph.domain.position
    sets = [frozenset(rank[place(a)] for a in r) for r in graph.regions]
    holders: dict[int, set[int]] = {}
    for i, members in enumerate(sets):
        for a in members:
            holders.setdefault(a, set()).add(i)
    for node in nodes[1:]:
        inside = frozenset(node)
        above = set.intersection(*(holders[a] for a in node))
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
            names = [graph.domain.attributes[k] for k, v in rank.items() if v in inside]
            raise RegionGraphError(
                f"the splitting solver needs all regions that contain {tuple(names)} tied on it, this graph leaves some apart; "
                "use solver='prox', or RegionGraph.saturated"
            )


def _node_edges(
    tables: list[tuple[int, ...]], nodes: list[tuple[int, ...]], sizes: Ints, *, strict: bool
) -> NodeEdges:
    """Find the nodes below every table, tables of one shape and one pattern of nodes at a time."""
    by_rank: dict[int, list[int]] = {}
    for i, node in enumerate(nodes):
        by_rank.setdefault(len(node), []).append(i)
    node_rows = {
        k: np.array([nodes[i] for i in ids], np.int32).reshape(-1, k)
        for k, ids in by_rank.items()
        if k
    }
    node_ids = {k: np.array(ids, np.int64) for k, ids in by_rank.items()}
    groups: dict[int, list[int]] = {}
    for i, table in enumerate(tables):
        groups.setdefault(len(table), []).append(i)
    builder = _EdgeBuilder(len(tables), sizes)
    for rank, members in groups.items():
        rows = np.array([tables[i] for i in members], np.int32).reshape(len(members), rank)
        top = (1 << rank) - (1 if strict else 0)
        found = np.full((len(rows), max(top, 1)), -1, np.int64)
        if not (strict and rank == 0):
            found[:, 0] = 0
        for mask in range(1, top):
            k = mask.bit_count()
            if k in node_rows:
                ids, hits = match_rows(
                    node_rows[k], rows[:, [i for i in range(rank) if mask >> i & 1]]
                )
                found[hits, mask] = node_ids[k][ids]
        shapes = sizes[rows] if rank else np.zeros((len(rows), 0), np.int64)
        keys = np.concatenate([shapes, found >= 0], axis=1)
        _, first, label = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        label = label.reshape(-1)
        for g, lead in enumerate(first):
            where = np.flatnonzero(label == g)
            masks = np.flatnonzero(found[lead] >= 0).tolist()
            builder.add(
                np.array(members, np.int64)[where],
                found[where],
                tuple(shapes[lead].tolist()),
                masks,
            )
    return builder.build()


class _EdgeBuilder:
    """Collects edges group by group and lays them out table by table."""

    def __init__(self, count: int, sizes: Ints) -> None:
        self.per_table = np.zeros(count, np.int64)
        self.per_table_direct = np.zeros(count, np.int64)
        self.parts: list[tuple[Ints, list[_Template], NDArray[np.int64]]] = []
        self.pool: list[NDArray[np.int32]] = []
        self.used = 0
        self.known: dict[tuple[tuple[int, ...], tuple[bool, ...]], int] = {}

    def add(
        self, tables: Ints, found: NDArray[np.int64], shape: tuple[int, ...], masks: list[int]
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
