"""Closure under intersection by counting, for hundreds of thousands of cliques, without a loop over pairs.

Cliques are rows of sorted attribute positions. A subset t of some clique is an intersection of cliques exactly when
no larger subset lies in as many cliques as t does: if every clique that holds t also holds an attribute a outside t,
then t + a is counted as often as t, and t is not their intersection. So counting subsets is enough.
Edges that the others imply are removed by `minimal_edges`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

Rows = NDArray[np.int32]
Ids = NDArray[np.int64]

ENUMERATED_RANK = 12
"""Cliques up to this many attributes are closed by enumerating subsets (2^rank each), wider ones pair by pair."""

MaskedSet = int
"""A set of attribute positions as the bits of a Python integer."""


@dataclass(frozen=True)
class Lattice:
    """Regions as rows by rank, and every (subset, superset) pair among them.

    Region ids run through the ranks from the widest to the narrowest, in lexicographic order within a rank.
    """

    members: tuple[tuple[int, ...], ...]
    below: Ids
    """Region id of the smaller side of each strict containment."""
    above: Ids
    """Region id of the larger side of each strict containment."""
    direct: NDArray[np.bool_]
    """Whether no third region lies between (Hasse edge)."""


def intersection_closure(cliques: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The smallest family that holds the cliques and every non-empty intersection of them, widest first."""
    distinct = sorted(set(cliques) - {()})
    if max((len(c) for c in distinct), default=0) > ENUMERATED_RANK:
        return _ordered(_closure_by_pairs(distinct))
    by_rank = _by_rank(distinct)
    top = max(by_rank, default=0)
    found: set[tuple[int, ...]] = set(distinct)
    wider: tuple[NDArray, NDArray] | None = None  # (rows, counts) of the next larger subset size
    for size in range(top, 0, -1):
        rows, counts = _subset_counts(by_rank, size)
        closed = counts >= 2
        if wider is not None and len(wider[0]):
            ids, wide_ids = match_rows(rows, _subsets(wider[0], size))
            tied = counts[ids] == np.repeat(wider[1], size + 1)[wide_ids]
            closed[ids[tied]] = False
        found.update(map(tuple, rows[closed].tolist()))
        wider = (rows, counts)
    return _ordered(found)


def containments(regions: list[tuple[int, ...]]) -> Lattice:
    """Every strict containment among the regions, and which of them are direct."""
    regions = _ordered(regions)
    if max((len(r) for r in regions), default=0) > ENUMERATED_RANK:
        below, above, direct = _containments_by_index(regions)
        return Lattice(tuple(regions), below, above, direct)
    by_rank = _by_rank(regions)
    start = _first_ids(regions)
    below_parts, above_parts, direct_parts = [], [], []
    for rank, rows in by_rank.items():
        # covered[mask]: rows for which some region lies strictly between this local subset and the row itself.
        inside: dict[int, NDArray[np.bool_]] = {}
        owners = np.arange(len(rows), dtype=np.int64) + start[rank]
        masks = sorted(range(1, 2**rank - 1), key=lambda m: (-m.bit_count(), m))
        for mask in masks:
            size = mask.bit_count()
            if size not in by_rank:
                continue
            local = rows[:, [i for i in range(rank) if mask >> i & 1]]
            ids, hits = match_rows(by_rank[size], local)
            if not len(hits):
                continue
            present = np.zeros(len(rows), bool)
            present[hits] = True
            covered = np.zeros(len(rows), bool)
            for other, there in inside.items():
                if other & mask == mask:
                    covered |= there
            inside[mask] = present
            below_parts.append(ids + start[size])
            above_parts.append(owners[hits])
            direct_parts.append(~covered[hits])
    if not below_parts:
        empty = np.zeros(0, np.int64)
        return Lattice(tuple(regions), empty, empty, np.zeros(0, bool))
    below, above = np.concatenate(below_parts), np.concatenate(above_parts)
    direct = np.concatenate(direct_parts)
    order = np.lexsort((above, below))
    return Lattice(tuple(regions), below[order], above[order], direct[order])


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


# -- rows and keys -----------------------------------------------------------------------------------


def _ordered(regions: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    return sorted(regions, key=lambda r: (-len(r), r))


def _by_rank(regions: Iterable[tuple[int, ...]]) -> dict[int, Rows]:
    groups: dict[int, list[tuple[int, ...]]] = {}
    for region in regions:
        groups.setdefault(len(region), []).append(region)
    return {
        rank: np.array(sorted(rows), dtype=np.int32).reshape(-1, rank)
        for rank, rows in sorted(groups.items(), reverse=True)
    }


def _first_ids(regions: list[tuple[int, ...]]) -> dict[int, int]:
    first: dict[int, int] = {}
    for i, region in enumerate(regions):
        first.setdefault(len(region), i)
    return first


def _subsets(rows: Rows, size: int) -> Rows:
    """All subsets of the given size of every row, row by row."""
    columns = list(combinations(range(rows.shape[1]), size))
    return rows[:, columns].reshape(-1, size)


def _subset_counts(by_rank: dict[int, Rows], size: int) -> tuple[Rows, Ids]:
    """Distinct subsets of one size and the number of cliques that hold each."""
    parts = [_subsets(rows, size) for rank, rows in by_rank.items() if rank >= size]
    stacked = np.concatenate(parts) if parts else np.zeros((0, size), np.int32)
    if not len(stacked):
        return stacked, np.zeros(0, np.int64)
    keys = _keys(stacked)
    if keys is None:
        rows, counts = np.unique(stacked, axis=0, return_counts=True)
        return rows, counts
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    return stacked[first], counts


def _keys(rows: Rows, base: int | None = None) -> Ids | None:
    """One integer per row, ordered as the rows are; None where it would not fit in 63 bits."""
    if base is None:
        base = int(rows.max()) + 1 if rows.size else 1
    if base ** rows.shape[1] >= 2**62:
        return None
    keys = np.zeros(len(rows), np.int64)
    for column in rows.T:
        keys = keys * base + column
    return keys


def match_rows(table: Rows, wanted: Rows) -> tuple[Ids, Ids]:
    """(i, j) such that wanted[j] == table[i]; table rows are distinct and sorted."""
    if not len(table) or not len(wanted):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    base = int(max(table.max(), wanted.max())) + 1
    keys, targets = _keys(table, base), _keys(wanted, base)
    if keys is None or targets is None:
        _, inverse = np.unique(np.concatenate([table, wanted]), axis=0, return_inverse=True)
        inverse = inverse.reshape(-1)
        keys, targets = inverse[: len(table)], inverse[len(table) :]
    place = np.minimum(np.searchsorted(keys, targets), len(keys) - 1)
    hits = np.flatnonzero(keys[place] == targets)
    return place[hits].astype(np.int64), hits.astype(np.int64)


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
