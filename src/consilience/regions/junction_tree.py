"""JunctionTree: a tree of cliques in which local consistency is global consistency. Its size is known before it is built."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import numpy as np

from consilience.domain import Clique, Cliques, Domain, Holders
from consilience.errors import RegionGraphError

MIN_FILL_ATTRIBUTES = 150
"""Above this many attributes only the cheaper of the two elimination rules is tried."""


@dataclass(frozen=True)
class Rooting:
    """A junction tree seen from its root: all that is passed along the tree, and in which order, follows from this.

    `order` lists the cliques breadth first, the root first. `up[c]` is the parent of clique c (-1 for the root), `separator[c]`
    what the two share, `children[c]` the cliques beneath c. The cliques at depth l are order[level[l]:level[l + 1]].
    """

    order: tuple[int, ...]
    up: tuple[int, ...]
    separator: tuple[Clique, ...]
    children: tuple[tuple[int, ...], ...]
    level: tuple[int, ...]

    @property
    def root(self) -> int:
        return self.order[0]

    @property
    def below(self) -> tuple[int, ...]:
        """Every clique but the root, each after its parent: one for every separator."""
        return self.order[1:]

    @property
    def neighbours(self) -> list[tuple[int, ...]]:
        """The cliques next to each clique, its parent first."""
        pairs = zip(self.up, self.children, strict=True)
        return [children if p < 0 else (p, *children) for p, children in pairs]


@dataclass(frozen=True)
class JunctionTree:
    """Maximal cliques of a triangulated graph, joined by edges (i, j) whose separator is cliques[i] and cliques[j] meet.

    Attributes that no clique mentions are cliques of their own, so that the tree covers the domain. Edges with an empty
    separator join what is independent.
    """

    domain: Domain
    cliques: tuple[Clique, ...]
    edges: tuple[tuple[int, int], ...]
    separators: tuple[Clique, ...]

    @classmethod
    def of(cls, domain: Domain, cliques: Iterable[Iterable[str]]) -> JunctionTree:
        """Triangulate by greedy elimination: the smaller of minimum fill and minimum table."""
        joined = _neighbours(Cliques.of(domain, cliques))
        found = min(
            (_eliminate(domain, list(joined), rule) for rule in _rules(domain)),
            key=lambda bags: (_cells(domain, bags), len(bags)),
        )
        bags = _maximal(found)
        edges = _spanning_tree(domain, bags)
        names = domain.attributes
        separators = tuple(_names(names, bags[i] & bags[j]) for i, j in edges)
        return cls(domain, tuple(_names(names, b) for b in bags), tuple(edges), separators)

    @property
    def cells(self) -> int:
        """Number of cells of all clique tables, a Python integer of any length."""
        return sum(self.domain.size(c) for c in self.cliques)

    @property
    def largest(self) -> Clique:
        """The clique with the largest table, the first of equals."""
        return max(self.cliques, key=self.domain.size)

    def home(self, clique: Clique) -> int:
        """The number of the smallest clique of the tree that holds a given one, the first of equals."""
        found = self._holders.smallest(clique, self._sizes)
        if found is None:
            raise RegionGraphError(
                f"every clique must lie inside a clique of the junction tree, got {clique}; "
                "build the tree from these cliques (JunctionTree.of)"
            )
        return found

    @cached_property
    def rooted(self) -> Rooting:
        """The tree rooted at its largest clique, whose table is then passed over once where the others are twice."""
        return self.rooted_at(self.cliques.index(self.largest))

    def rooted_at(self, root: int) -> Rooting:
        """The same from another clique, where it matters which one: a pass downwards leaves the root's table as it is."""
        near: list[list[int]] = [[] for _ in self.cliques]
        for i, j in self.edges:
            near[i].append(j)
            near[j].append(i)
        order = [root]
        up, depth = [-1] * len(near), [0] * len(near)
        for c in order:
            for d in near[c]:
                if d != up[c]:
                    up[d], depth[d] = c, depth[c] + 1
                    order.append(d)
        deep = [depth[c] for c in order]
        shared: dict[tuple[int, int], Clique] = {}
        for (i, j), separator in zip(self.edges, self.separators, strict=True):
            shared[i, j] = shared[j, i] = separator
        return Rooting(
            tuple(order),
            tuple(up),
            tuple(shared.get((c, p), ()) for c, p in enumerate(up)),
            tuple(tuple(d for d in near[c] if d != up[c]) for c in range(len(near))),
            (*(l for l, d in enumerate(deep) if l == 0 or d > deep[l - 1]), len(deep)),
        )

    @cached_property
    def _holders(self) -> Holders:
        return Holders(self.cliques)

    @cached_property
    def _sizes(self) -> list[int]:
        return [self.domain.size(c) for c in self.cliques]

    def __repr__(self) -> str:
        return f"JunctionTree({len(self.cliques)} cliques, {self.cells:,} cells, largest {self.largest})"


def _neighbours(cliques: Cliques) -> list[int]:
    """For each attribute those that share a clique with it, as the bits of an integer."""
    met = np.zeros((len(cliques.domain),) * 2, bool)
    for _, rows in cliques.sets.by_rank.values():
        for i, j in permutations(range(rows.shape[1]), 2):
            met[rows[:, i], rows[:, j]] = True
    packed = np.packbits(met, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


def _bits(mask: int) -> list[int]:
    return [i for i, bit in enumerate(bin(mask)[:1:-1]) if bit == "1"]


def _names(names: Clique, mask: int) -> Clique:
    return tuple(names[i] for i in _bits(mask))


def _rules(domain: Domain) -> tuple[str, ...]:
    return ("table", "fill") if len(domain) <= MIN_FILL_ATTRIBUTES else ("table",)


def _cells(domain: Domain, bags: list[int]) -> int:
    return sum(_product(domain.shape, bag) for bag in bags)


def _eliminate(domain: Domain, neighbours: list[int], rule: str) -> list[int]:
    """Bags of a greedy elimination order; ties go to the smaller table, then to domain order. `neighbours` is used up."""
    shape = domain.shape
    left = (1 << len(domain)) - 1
    table = [shape[i] * _product(shape, neighbours[i]) for i in range(len(domain))]
    bags: list[int] = []

    def price(i: int) -> tuple[int, int, int]:
        if rule == "table":
            return (table[i], 0, i)
        around = neighbours[i]
        fill = sum((around & ~neighbours[j] & ~(1 << j)).bit_count() for j in _bits(around)) // 2
        return (fill, table[i], i)

    cost = {i: price(i) for i in range(len(domain))}
    while left:
        i = min(cost, key=cost.__getitem__)
        around = neighbours[i]
        bags.append(around | (1 << i))
        left &= ~(1 << i)
        if around == left:  # all that is left is one clique, inside this bag
            break
        del cost[i]
        touched = around
        for j in _bits(around):
            added = around & ~neighbours[j] & ~(1 << j)
            table[j] = table[j] // shape[i] * _product(shape, added)
            neighbours[j] = (neighbours[j] | added) & ~(1 << i)
            if rule == "fill":
                touched |= neighbours[j]
        for j in _bits(touched & left):
            cost[j] = price(j)
    return bags


def _product(shape: tuple[int, ...], mask: int) -> int:
    n = 1
    for i in _bits(mask):
        n *= shape[i]
    return n


def _maximal(bags: list[int]) -> list[int]:
    kept: list[int] = []
    for bag in sorted(set(bags), key=lambda b: (-b.bit_count(), b)):
        if not any(bag & other == bag for other in kept):
            kept.append(bag)
    return sorted(kept, key=_bits)


def _spanning_tree(domain: Domain, bags: list[int]) -> list[tuple[int, int]]:
    """Maximum-weight spanning tree by separator width (Prim), which has the running-intersection property."""
    if len(bags) <= 1:
        return []
    best = {i: ((bags[0] & bags[i]).bit_count(), 0) for i in range(1, len(bags))}
    edges = []
    while best:
        i = max(best, key=lambda k: (best[k][0], -k))
        _, j = best.pop(i)
        edges.append((j, i))
        for k in best:
            width = (bags[i] & bags[k]).bit_count()
            if width > best[k][0]:
                best[k] = (width, i)
    return edges
