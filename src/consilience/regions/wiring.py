"""Wiring: a region graph compiled once into index arrays. Names, tuples and dicts stop here.

Inside the engine attributes are ordered by size, the largest last, so that the innermost loops are as long as they can be;
`Wiring.enter` and `Wiring.leave` translate. Where all sizes are equal, or already ascending, the orders coincide.

Schedules say in which order, and how strongly, the regions are brought to agreement. A stage updates some child regions at
once. Updating child t touches t and its parents. Where the updates of a stage touch a region m times in all, weighting each by
1/m keeps the dual of Problem 3 from rising: the dual is a sum of one convex term per region, so the averaged update is at most
the average of the full ones (Jensen).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Cliques, CliqueVector, Domain, Family, Layout
from consilience.domain.moves import move
from consilience.domain.rows import starts
from consilience.errors import RegionGraphError
from consilience.kernels.agreement import Children, Order
from consilience.kernels.tables import Edges, Shapes, Work
from consilience.regions.lattice import alike
from consilience.regions.region_graph import RegionGraph

Ints = NDArray[np.int64]
CHUNK_CELLS = 1 << 14
"""Cells per work item: small enough to balance threads, large enough to hide the cost of handing one out."""


@dataclass(frozen=True)
class EngineTables:
    """The tables of a family of cliques in engine order: where each lies and how it splits into rows."""

    members: Family
    """Attribute positions of each clique, in engine order."""
    sizes: Ints
    """Size of each attribute, by position."""
    shapes: Shapes

    @classmethod
    def of(cls, members: Iterable[tuple[int, ...]], sizes: Ints) -> EngineTables:
        sets = Family.of(members)
        inner, filled = np.ones(len(sets), np.int64), sets.ranks > 0
        inner[filled] = sizes[sets.flat[sets.ptr[1:][filled] - 1]]
        cells = sets.products(sizes)
        return cls(sets, sizes, Shapes(starts(cells)[:-1], cells // np.maximum(inner, 1), inner))

    def take(self, which: Ints) -> EngineTables:
        """Some of the tables, one after the other in a buffer of their own."""
        rows, inner = self.shapes.rows[which], self.shapes.inner[which]
        shapes = Shapes(starts(rows * inner)[:-1], rows, inner)
        return EngineTables(self.members.take(which), self.sizes, shapes)

    @property
    def at(self) -> Ints:
        return self.shapes.at

    def span(self, i: int) -> slice:
        """Where table i lies in a buffer."""
        lo = int(self.at[i])
        return slice(lo, lo + int(self.shapes.rows[i] * self.shapes.inner[i]))

    @cached_property
    def cells(self) -> Ints:
        return self.shapes.rows * self.shapes.inner

    @property
    def length(self) -> int:
        return int(self.cells.sum())


def edges_between(parents: EngineTables, children: EngineTables, pairs: NDArray[np.int64]) -> Edges:
    """Edge i joins parents' table pairs[i, 0] to children's table pairs[i, 1]; messages to one child follow one another."""
    parent, child = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)
    kind = np.zeros(len(pairs), np.int64)
    map_at = np.zeros(len(pairs), np.int64)
    pool: list[NDArray[np.int32]] = []
    used = 0
    for e, shape, kept in alike(parents.members, children.members, pairs, parents.sizes):
        pool.append(row_map(shape, kept))
        kind[e], map_at[e] = (int(kept[-1]) if kept else 1), used
        used += len(pool[-1])
    width = children.cells[child] if len(child) else np.zeros(0, np.int64)
    msg_at = np.zeros(len(pairs), np.int64)
    by_child = np.argsort(child, kind="stable")
    msg_at[by_child] = np.cumsum(width[by_child]) - width[by_child]
    maps = np.concatenate(pool) if pool else np.zeros(0, np.int32)
    return Edges(parent, child, kind, map_at, msg_at, width.astype(np.int64), maps)


def row_map(shape: tuple[int, ...], kept: tuple[bool, ...]) -> NDArray[np.int32]:
    """Entry i is where row i of a table of this shape lands in the child that keeps the marked axes.

    A row is an index over all axes but the last. The entry counts rows of the child if it keeps the last axis, else cells.
    """
    outer, flags = shape[:-1], kept[:-1]
    target = np.zeros(outer, np.int64)
    stride = 1
    for axis in reversed(range(len(outer))):
        if flags[axis]:
            view = [1] * len(outer)
            view[axis] = outer[axis]
            target = target + (np.arange(outer[axis]) * stride).reshape(view)
            stride *= outer[axis]
    return np.ascontiguousarray(target, np.int32).reshape(-1)


def group(keys: Ints, count: int) -> tuple[Ints, Ints]:
    """(ptr, items): items[ptr[k]:ptr[k + 1]] are the positions with key k, in order."""
    items = np.argsort(keys, kind="stable").astype(np.int64)
    ptr = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=count))]).astype(np.int64)
    return ptr, items


def chunks(cells: Ints) -> Ints:
    """Boundaries of work items of about CHUNK_CELLS cells each."""
    if not len(cells):
        return np.zeros(1, np.int64)
    ends = np.cumsum(cells)
    label = (ends - cells) // CHUNK_CELLS
    starts = np.flatnonzero(np.diff(label, prepend=-1))
    return np.concatenate([starts, [len(cells)]]).astype(np.int64)


@dataclass(frozen=True)
class Wiring:
    """A region graph as arrays: its tables, its edges and its counting numbers."""

    graph: RegionGraph
    order: tuple[int, ...]
    """Engine order: domain positions, the smallest attribute first."""
    tables: EngineTables
    edges: Edges

    @classmethod
    def of(cls, graph: RegionGraph) -> Wiring:
        domain = graph.domain
        order = engine_order(domain)
        tables = EngineTables.of(
            engine_members(domain, order, graph.regions), np.array(domain.shape, np.int64)
        )
        return cls(graph, order, tables, edges_between(tables, tables, graph.edge_array))

    @property
    def layout(self) -> Layout:
        return self.graph.layout

    @property
    def kappa(self) -> Buffer:
        return self.graph.counting_numbers

    @cached_property
    def same_order(self) -> bool:
        """Whether engine order and domain order agree on every region."""
        return self.tables.members.sorted() is self.tables.members

    def enter(self, vector: CliqueVector) -> Buffer:
        """A vector over the regions as a new engine buffer."""
        return enter(vector, self.tables, self.same_order)

    def leave(self, values: Buffer) -> CliqueVector:
        """An engine buffer as a vector over the regions."""
        return leave(values, self.layout, self.tables, self.same_order)


def engine_order(domain: Domain) -> tuple[int, ...]:
    return tuple(np.argsort(domain.shape, kind="stable").tolist())


def engine_members(
    domain: Domain, order: tuple[int, ...], cliques: Iterable[tuple[str, ...]]
) -> Family:
    """Positions of the attributes of each clique, in engine order."""
    sets = Cliques.of(domain, cliques).sets
    if order == tuple(range(len(domain))):
        return sets
    return sets.renamed(engine_ranks(order)).sorted().renamed(np.array(order))


def engine_ranks(order: tuple[int, ...]) -> Ints:
    """The place of each attribute in engine order."""
    return np.argsort(np.array(order))


def enter(vector: CliqueVector, tables: EngineTables, same_order: bool) -> Buffer:
    if same_order:
        return vector.values.copy()
    out = np.empty(tables.length)
    axes = tables.members.argsort().argsort()
    move(vector.values, vector.layout.offsets[:-1], out, tables.at, vector.layout.shapes, axes)
    return out


def leave(values: Buffer, layout: Layout, tables: EngineTables, same_order: bool) -> CliqueVector:
    if same_order:
        return CliqueVector(layout, values.copy())
    out = CliqueVector(layout)
    shapes = tables.members.renamed(tables.sizes)
    move(values, tables.at, out.values, layout.offsets[:-1], shapes, tables.members.argsort())
    return out


@dataclass(frozen=True)
class Stage:
    """Children that are updated at once, and their parents with the edges between them."""

    children: Children
    parents: Work


def joined(stages: tuple[Stage, ...]) -> tuple[Order, Children, Work]:
    """All stages in one set of arrays, so that a whole sweep is one call of a kernel."""
    children, parents = [s.children for s in stages], [s.parents for s in stages]
    weight = np.concatenate([np.zeros(0), *(c.weight for c in children)])
    order = Order(_starts([c.region for c in children]), _starts([p.chunk[1:] for p in parents]))
    first = _starts([p.region for p in parents])
    chunk = _flat([p.chunk[:-1] + at for p, at in zip(parents, first, strict=False)], first[-1:])
    return (
        order,
        Children(_flat([c.region for c in children]), *_lists(children), weight),
        Work(chunk, _flat([p.region for p in parents]), *_lists(parents)),
    )


def _lists(parts: Sequence[Children] | Sequence[Work]) -> tuple[Ints, Ints]:
    """(ptr, edge) of lists that follow one another."""
    edges = [p.edge for p in parts]
    ptr = [p.ptr[:-1] + at for p, at in zip(parts, _starts(edges), strict=False)]
    return _flat(ptr, _starts(edges)[-1:]), _flat(edges)


def _starts(parts: Sequence[Ints]) -> Ints:
    """Where each of some arrays begins when they follow one another, and where the last one ends."""
    return np.cumsum([0, *(len(p) for p in parts)]).astype(np.int64)


def _flat(parts: Sequence[Ints], end: Ints | None = None) -> Ints:
    last = [] if end is None else [end]
    return np.concatenate([np.zeros(0, np.int64), *parts, *last]).astype(np.int64)


def parallel_schedule(wiring: Wiring) -> tuple[Stage, ...]:
    """One stage per level of the graph, damped so that the dual cannot rise."""
    depth = _depths(wiring)
    child = wiring.edges.child
    return tuple(
        _stage(wiring, np.flatnonzero(depth == d), damped=True)
        for d in range(1, int(depth.max(initial=0)) + 1)
        if len(child)
    )


def sequential_schedule(wiring: Wiring) -> tuple[Stage, ...]:
    """Stages of children that share no parent (greedy colouring level by level), each updated in full."""
    depth = _depths(wiring)
    stages = []
    for d in range(1, int(depth.max(initial=0)) + 1):
        members = np.flatnonzero(depth == d)
        colour = _colour(wiring, members)
        stages += [
            _stage(wiring, members[colour == k], damped=False) for k in range(int(colour.max()) + 1)
        ]
    return tuple(stages)


SCHEDULES = {"parallel": parallel_schedule, "sequential": sequential_schedule}


def schedule(wiring: Wiring, name: str) -> tuple[Stage, ...]:
    if name not in SCHEDULES:
        raise RegionGraphError(f"schedule must be one of {', '.join(SCHEDULES)}, got {name!r}")
    return SCHEDULES[name](wiring)


def _depths(wiring: Wiring) -> Ints:
    """Longest way down from a region without parents."""
    parent, child = wiring.edges.parent, wiring.edges.child
    depth = np.zeros(len(wiring.tables.members), np.int64)
    if not len(child):
        return depth
    for _ in range(len(depth)):
        deeper = depth.copy()
        np.maximum.at(deeper, child, depth[parent] + 1)
        if np.array_equal(deeper, depth):
            break
        depth = deeper
    return depth


def _stage(wiring: Wiring, children: Ints, *, damped: bool) -> Stage:
    edges = wiring.edges
    wanted = np.zeros(len(wiring.tables.members), bool)
    wanted[children] = True
    chosen = np.flatnonzero(wanted[edges.child])
    local = np.full(len(wanted), -1, np.int64)
    local[children] = np.arange(len(children))
    child_ptr, order = group(local[edges.child[chosen]], len(children))
    child_edge = chosen[order]
    parents = np.unique(edges.parent[chosen])
    slot = np.full(len(wanted), -1, np.int64)
    slot[parents] = np.arange(len(parents))
    by_kind = chosen[np.argsort(edges.kind[chosen], kind="stable")]  # the kernels want kind 0 first
    parent_ptr, order = group(slot[edges.parent[by_kind]], len(parents))
    parent_edge = by_kind[order]
    weight = np.ones(len(children))
    if damped and len(chosen):
        # Children of a stage are never parents in it (they lie at one depth), so a parent is touched once per edge.
        touched = np.diff(parent_ptr)[slot[edges.parent[chosen]]]
        crowd = np.ones(len(children), np.int64)
        np.maximum.at(crowd, local[edges.child[chosen]], touched)
        weight = 1.0 / crowd
    return Stage(
        Children(children.astype(np.int64), child_ptr, child_edge, weight),
        Work(
            chunks(wiring.tables.cells[parents]), parents.astype(np.int64), parent_ptr, parent_edge
        ),
    )


def _colour(wiring: Wiring, members: Ints) -> Ints:
    """Greedy colours such that two members with a common parent differ."""
    edges = wiring.edges
    by_child, child_items = group(edges.child, len(wiring.tables.members))
    taken: dict[int, set[int]] = {}
    colour = np.zeros(len(members), np.int64)
    for i, t in enumerate(members.tolist()):
        parents = edges.parent[child_items[by_child[t] : by_child[t + 1]]].tolist()
        used = set().union(*(taken.get(p, set()) for p in parents))
        k = 0
        while k in used:
            k += 1
        colour[i] = k
        for p in parents:
            taken.setdefault(p, set()).add(k)
    return colour
