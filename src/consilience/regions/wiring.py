"""Wiring: a region graph compiled once into index arrays. Names, tuples and dicts stop here.

Inside the engine attributes are ordered by size, the largest last, so that the innermost loops are as long as they can be;
`Wiring.enter` and `Wiring.leave` translate. Where all sizes are equal, or already ascending, the orders coincide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, CliqueVector, Domain, Layout
from consilience.kernels.tables import Edges, Shapes
from consilience.regions.region_graph import RegionGraph

Ints = NDArray[np.int64]
CHUNK_CELLS = 1 << 14
"""Cells per work item: small enough to balance threads, large enough to hide the cost of handing one out."""


@dataclass(frozen=True)
class Tables:
    """The tables of a family of cliques in engine order: where each lies and how it splits into rows."""

    members: tuple[tuple[int, ...], ...]
    """Attribute positions of each clique, in engine order."""
    sizes: Ints
    """Size of each attribute, by position."""
    shapes: Shapes

    @classmethod
    def of(cls, members: Iterable[tuple[int, ...]], sizes: Ints) -> Tables:
        listed = tuple(members)
        inner = np.array([sizes[m[-1]] if m else 1 for m in listed], np.int64)
        by_size = sizes.tolist()
        cells = np.array([_product(by_size, m) for m in listed], np.int64)
        at = np.concatenate([[0], np.cumsum(cells)[:-1]]).astype(np.int64) if listed else cells
        return cls(listed, sizes, Shapes(at, cells // np.maximum(inner, 1), inner))

    @property
    def at(self) -> Ints:
        return self.shapes.at

    @property
    def rows(self) -> Ints:
        return self.shapes.rows

    @property
    def inner(self) -> Ints:
        return self.shapes.inner

    def span(self, i: int) -> slice:
        """Where table i lies in a buffer."""
        lo = int(self.at[i])
        return slice(lo, lo + int(self.rows[i] * self.inner[i]))

    @property
    def cells(self) -> Ints:
        return self.rows * self.inner

    @property
    def length(self) -> int:
        return int(self.cells.sum())


def edges_between(parents: Tables, children: Tables, pairs: NDArray[np.int64]) -> Edges:
    """Edge i joins parents' table pairs[i, 0] to children's table pairs[i, 1]; messages to one child follow one another."""
    parent, child = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)
    kind = np.zeros(len(pairs), np.int64)
    map_at = np.zeros(len(pairs), np.int64)
    pool: list[NDArray[np.int32]] = []
    used = 0
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, int]] = {}
    sizes = parents.sizes.tolist()
    for e, (p, c) in enumerate(zip(parent.tolist(), child.tolist(), strict=True)):
        above, below = parents.members[p], children.members[c]
        shape = tuple([sizes[a] for a in above])
        kept = set(below)
        key = (shape, tuple([a in kept for a in above]))
        found = known.get(key)
        if found is None:
            made = row_map(shape, key[1])
            found = known[key] = (int(key[1][-1]) if key[1] else 1, used)
            pool.append(made)
            used += len(made)
        kind[e], map_at[e] = found
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
    tables: Tables
    edges: Edges

    @classmethod
    def of(cls, graph: RegionGraph) -> Wiring:
        domain = graph.domain
        order = engine_order(domain)
        tables = Tables.of(
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
        return all(tuple(sorted(m)) == m for m in self.tables.members)

    def enter(self, vector: CliqueVector) -> Buffer:
        """A vector over the regions as a new engine buffer."""
        return enter(vector, self.tables, self.same_order)

    def leave(self, values: Buffer) -> CliqueVector:
        """An engine buffer as a vector over the regions."""
        return leave(values, self.layout, self.tables, self.same_order)


def engine_order(domain: Domain) -> tuple[int, ...]:
    return tuple(sorted(range(len(domain)), key=lambda i: (domain.shape[i], i)))


def engine_members(
    domain: Domain, order: tuple[int, ...], cliques: Iterable[tuple[str, ...]]
) -> list[tuple[int, ...]]:
    rank = {position: k for k, position in enumerate(order)}
    place = {name: i for i, name in enumerate(domain.attributes)}
    if order == tuple(range(len(domain))):
        return [tuple([place[a] for a in c]) for c in cliques]
    return [tuple(sorted([place[a] for a in c], key=rank.__getitem__)) for c in cliques]


def enter(vector: CliqueVector, tables: Tables, same_order: bool) -> Buffer:
    if same_order:
        return vector.values.copy()
    out = np.empty(tables.length)
    ends = tables.at + tables.cells
    for i, (clique, members) in enumerate(zip(vector.cliques, tables.members, strict=True)):
        source = sorted(members)
        table = vector[clique].transpose([source.index(a) for a in members])
        out[tables.at[i] : ends[i]] = table.reshape(-1)
    return out


def leave(values: Buffer, layout: Layout, tables: Tables, same_order: bool) -> CliqueVector:
    if same_order:
        return CliqueVector(layout, values.copy())
    out = CliqueVector(layout)
    ends = tables.at + tables.cells
    for i, (clique, members) in enumerate(zip(layout.cliques, tables.members, strict=True)):
        shape = [int(tables.sizes[a]) for a in members]
        table = values[tables.at[i] : ends[i]].reshape(shape)
        out[clique][...] = table.transpose([members.index(a) for a in sorted(members)])
    return out


def _product(sizes: list[int], members: tuple[int, ...]) -> int:
    n = 1
    for a in members:
        n *= sizes[a]
    return n
