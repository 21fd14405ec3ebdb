"""Closure under intersection by counting, for hundreds of thousands of cliques, without a loop over pairs.

Cliques are rows of sorted attribute positions. A subset t of some clique is an intersection of cliques exactly when
no larger subset lies in as many cliques as t does: if every clique that holds t also holds an attribute a outside t,
then t + a is counted as often as t, and t is not their intersection. So counting subsets is enough.
Edges that the others imply are removed by `minimal_edges`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from consilience.domain.cliques import ENUMERATED_RANK, Family
from consilience.domain.rows import grouped, row_keys, rows_of, subsets_of

Rows = NDArray[np.int32]
Ids = NDArray[np.int64]

MaskedSet = int
"""A set of attribute positions as the bits of a Python integer."""


@dataclass(frozen=True)
class Lattice:
    """Regions as rows by rank, and every (subset, superset) pair among them.

    Region ids run through the ranks from the widest to the narrowest, in lexicographic order within a rank.
    """

    members: Family
    below: Ids
    """Region id of the smaller side of each strict containment."""
    above: Ids
    """Region id of the larger side of each strict containment."""
    direct: NDArray[np.bool_]
    """Whether no third region lies between (Hasse edge)."""


def intersection_closure(cliques: Iterable[tuple[int, ...]]) -> Family:
    """The smallest family that holds the cliques and every non-empty intersection of them, widest first."""
    given = Family.of(cliques)
    first = given.first_of_each()
    family = given.take(first[given.ranks[first] > 0])
    top = int(family.ranks.max(initial=0))
    if top > ENUMERATED_RANK:
        return ordered(Family.of(_closure_by_pairs(list(family))))
    by_rank = {rank: rows for rank, (_, rows) in family.by_rank.items()}
    parts: list[Family] = []
    wider: tuple[Rows, Ids] | None = None  # (rows, counts) of the next larger subset size
    for size in range(top, 0, -1):
        rows, counts = _subset_counts(by_rank, size)
        closed = counts >= 2
        if wider is not None and len(wider[0]):
            ids = rows_of(rows, subsets_of(wider[0], size))
            closed[ids[counts[ids] == np.repeat(wider[1], size + 1)]] = False
        if size in by_rank:
            closed[rows_of(rows, by_rank[size])] = True
        parts.append(Family.of_rows(rows[closed]))
        wider = (rows, counts)
    return Family.joined(parts)


def ordered(family: Family) -> Family:
    """The widest sets first, those of one size in ascending order."""
    parts = [
        where[np.argsort(row_keys(rows), kind="stable")] for where, rows in family.by_rank.values()
    ]
    return family.take(np.concatenate([np.zeros(0, np.int64), *parts]))


def containments(regions: Iterable[tuple[int, ...]]) -> Lattice:
    """Every strict containment among the regions, and which of them are direct."""
    members = ordered(Family.of(regions))
    if members.ranks.max(initial=0) > ENUMERATED_RANK:
        return Lattice(members, *_containments_by_index(list(members)))
    by_rank, start = {}, {}
    for rank, (where, rows) in members.by_rank.items():
        by_rank[rank], start[rank] = rows, int(where[0])
    below_parts, above_parts, direct_parts = [], [], []
    for rank, rows in by_rank.items():
        # covered[mask]: rows for which some region lies strictly between this local subset and the row itself.
        inside: dict[int, NDArray[np.bool_]] = {}
        masks = sorted(range(1, 2**rank - 1), key=lambda m: (-m.bit_count(), m))
        for mask in masks:
            size = mask.bit_count()
            if size not in by_rank:
                continue
            ids = rows_of(by_rank[size], rows[:, [i for i in range(rank) if mask >> i & 1]])
            present = ids >= 0
            if not present.any():
                continue
            hits = np.flatnonzero(present)
            covered = np.zeros(len(rows), bool)
            for other, there in inside.items():
                if other & mask == mask:
                    covered |= there
            inside[mask] = present
            below_parts.append(ids[hits] + start[size])
            above_parts.append(hits + start[rank])
            direct_parts.append(~covered[hits])
    if not below_parts:
        empty = np.zeros(0, np.int64)
        return Lattice(members, empty, empty, np.zeros(0, bool))
    below, above = np.concatenate(below_parts), np.concatenate(above_parts)
    direct = np.concatenate(direct_parts)
    order = np.argsort(below * len(members) + above)
    return Lattice(members, below[order], above[order], direct[order])


def minimal_edges(edges: NDArray[np.int64], below: Ids, above: Ids) -> NDArray[np.int64]:
    """Keep one parent of each region per group of parents that share an ancestor.

    If a lies above u and v, and u and v above r, then a ties u and v on r already: an edge from u to r makes the one
    from v redundant. `edges` rows are (parent, child) of the Hasse diagram; (below, above) all strict containments.
    """
    if not len(edges):
        return edges
    edges = edges[np.lexsort((edges[:, 0], edges[:, 1]))]
    parents, children = edges[:, 0], edges[:, 1]
    # For each edge u -> r, every ancestor a of u: rows (edge, (r, a)).
    order = np.argsort(below, kind="stable")
    below, above = below[order], above[order]
    first = np.searchsorted(below, parents, "left")
    count = np.searchsorted(below, parents, "right") - first
    edge_of_row = np.repeat(np.arange(len(edges)), count)
    start_of_row = np.cumsum(count) - count
    position = np.arange(count.sum()) - np.repeat(start_of_row, count) + np.repeat(first, count)
    ancestor = above[position]
    width = int(max(edges.max(), above.max() if len(above) else 0)) + 1
    _, meeting = np.unique(children[edge_of_row] * width + ancestor, return_inverse=True)
    nodes = len(edges) + (int(meeting.max()) + 1 if len(meeting) else 0)
    links = coo_matrix(
        (np.ones(len(edge_of_row), np.int8), (edge_of_row, len(edges) + meeting)),
        shape=(nodes, nodes),
    )
    _, label = connected_components(links, directed=False)
    _, kept = np.unique(label[: len(edges)], return_index=True)
    return edges[np.sort(kept)]


# -- edges, all alike at a time ------------------------------------------------------------------------


def kept_axes(
    parents: Family, children: Family, pairs: NDArray[np.int64]
) -> Iterator[tuple[Ids, NDArray[np.bool_]]]:
    """Edges grouped by the number of attributes at both ends: their numbers, and which of the parent's the child has."""
    if not len(pairs):
        return
    many, few = parents.ranks[pairs[:, 0]], children.ranks[pairs[:, 1]]
    for e in grouped(many * (int(few.max()) + 1) + few):
        above = parents.flat[parents.ptr[pairs[e, 0]][:, None] + np.arange(int(many[e[0]]))]
        below = children.flat[children.ptr[pairs[e, 1]][:, None] + np.arange(int(few[e[0]]))]
        found = np.zeros(above.shape, bool)
        for column in below.T:
            found |= above == column[:, None]
        yield e, found


def alike(
    parents: Family, children: Family, pairs: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Iterator[tuple[Ids, tuple[int, ...], tuple[bool, ...]]]:
    """Edges grouped by the shape of the parent's table and which of its axes the child keeps."""
    kinds = np.unique(sizes, return_inverse=True)[1].reshape(-1)
    for which, kept in kept_axes(parents, children, pairs):
        at = parents.ptr[pairs[which, 0]][:, None] + np.arange(kept.shape[1])
        shapes = parents.flat[at]
        for e in grouped(row_keys(np.concatenate([kinds[shapes], kept], axis=1))):
            yield which[e], tuple(sizes[shapes[e[0]]].tolist()), tuple(kept[e[0]].tolist())


# -- rows and keys -----------------------------------------------------------------------------------


def _subset_counts(by_rank: dict[int, Rows], size: int) -> tuple[Rows, Ids]:
    """Distinct subsets of one size and the number of cliques that hold each."""
    parts = [subsets_of(rows, size) for rank, rows in by_rank.items() if rank >= size]
    stacked = np.concatenate(parts) if parts else np.zeros((0, size), np.int32)
    _, first, counts = np.unique(row_keys(stacked), return_index=True, return_counts=True)
    return stacked[first], counts


# -- wide cliques ------------------------------------------------------------------------------------


def _mask(region: tuple[int, ...]) -> MaskedSet:
    return sum(1 << a for a in region)


def _unmask(mask: MaskedSet) -> tuple[int, ...]:
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def _closure_by_pairs(cliques: list[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """For cliques too wide to enumerate: intersect with those that share an attribute until nothing is new."""
    family = {_mask(c) for c in cliques}
    fresh = set(family)
    while fresh:
        made = {a & b for a in fresh for b in family if a & b} - family
        family |= made
        fresh = made
    return {_unmask(m) for m in family}


def _containments_by_index(
    regions: list[tuple[int, ...]],
) -> tuple[Ids, Ids, NDArray[np.bool_]]:
    holders: dict[int, set[int]] = {}
    for i, region in enumerate(regions):
        for a in region:
            holders.setdefault(a, set()).add(i)
    below, above, direct = [], [], []
    masks = [_mask(r) for r in regions]
    for i, region in enumerate(regions):
        supersets = sorted(set.intersection(*(holders[a] for a in region)) - {i})
        for j in supersets:
            between = any(masks[k] & masks[j] == masks[k] for k in supersets if k != j)
            below.append(i)
            above.append(j)
            direct.append(not between)
    return np.array(below, np.int64), np.array(above, np.int64), np.array(direct, bool)
