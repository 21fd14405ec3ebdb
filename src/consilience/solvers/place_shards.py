"""A tree of places cut into shards: which places each holds, and what is asked of it and of the top.

The cut is a level. Its places and all above are the top; the subtrees below them, some together, are shards. Where to cut depends
on the tree alone, so that the same sums are made in the same order whoever makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.solvers.places import Asked, PlaceQuery, PlaceRange, Places, Pull

SHARD = 1 << 22
"""Cells of the leaves of a shard, if the tree allows: 32 MB for each of its buffers."""

Rows = slice | NDArray[np.int64]


class Cut:
    """The plan: the level of the cut, and for each level below the rows of every shard, in the order of the tree."""

    def __init__(self, asked: Asked, most: int = SHARD) -> None:
        self.asked, places = asked, asked.places
        self.level, sizes = _cut_level(places, most // max(1, asked.components.cells))
        rank = np.arange(places.roots)
        for l in range(self.level):
            above = rank[places.parents[l]]
            rank = np.empty(len(above), np.int64)
            rank[np.argsort(above, kind="stable")] = np.arange(len(above))
        order = np.argsort(rank)
        self.bounds = _packed(sizes[order], most // max(1, asked.components.cells))
        """Shard s holds the cut's places bounds[s] to bounds[s + 1], in the order of the tree."""
        self.order: list[NDArray[np.int64] | None] = [None if _ascending(rank) else order]
        self.starts = [self.bounds]
        for parents in places.parents[self.level :]:
            rank = rank[parents]
            order = None if _ascending(rank) else np.argsort(rank, kind="stable")
            self.order.append(order)
            self.starts.append(np.searchsorted(rank if order is None else rank[order], self.bounds))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def rows(self, shard: int, level: int) -> Rows:
        """The places of a level, from the cut's on, that a shard holds."""
        at = level - self.level
        here = slice(int(self.starts[at][shard]), int(self.starts[at][shard + 1]))
        order = self.order[at]
        return here if order is None else order[here]

    def roots(self, shard: int) -> slice:
        return slice(int(self.bounds[shard]), int(self.bounds[shard + 1]))

    def shard(self, shard: int) -> Asked:
        """What is asked below the cut of this shard's places; the cut is level 0."""
        asked, c = self.asked, self.level
        rows = [self.rows(shard, l) for l in range(c, asked.places.last + 1)]
        parents = []
        for l, (above, own) in enumerate(pairwise(rows), c):
            of = asked.places.parents[l][own]
            if isinstance(above, slice):
                parents.append(of - above.start)
            else:
                order = np.argsort(above)
                parents.append(order[np.searchsorted(above[order], of)])
        mine = range(c + 1, asked.places.last + 1)
        possible = asked.possible
        return replace(
            asked,
            places=Places(_length(rows[0]), parents),
            queries=tuple(_part(q, rows[q.level - c], c) for q in asked.queries if q.level in mine),
            grouped=tuple(_part(q, rows[q.level - c], c) for q in asked.grouped if q.level in mine),
            controls=tuple(_part(k, rows[k.level - c], c) for k in asked.controls if k.level in mine),
            possible=possible if len(possible) == 1 else possible[rows[-1]],
            pull=None if asked.pull is None else Pull(*(x[rows[-1]] for x in asked.pull)),
        )  # fmt: skip

    def top(self) -> Asked:
        """What is asked at the cut and above; a leaf below each place of the cut stands for the shard's."""
        asked, c = self.asked, self.level
        places = Places(asked.places.roots, asked.places.parents[:c]).deeper()
        return replace(
            asked,
            places=places,
            queries=tuple(q for q in asked.queries if q.level <= c),
            grouped=tuple(q for q in asked.grouped if q.level <= c),
            controls=tuple(k for k in asked.controls if k.level <= c),
            possible=np.ones((1, asked.components.cells), bool),
            pull=None,
            deeper=False,
        )

    def original(self, shard: int, level: int, place: int) -> int:
        """The place that a shard calls so, as the whole tree counts."""
        rows = self.rows(shard, level)
        return place + rows.start if isinstance(rows, slice) else int(rows[place])


def _cut_level(places: Places, most: int) -> tuple[int, NDArray[np.int64]]:
    """The first level all of whose places have at most so many leaves below them, or the last above the leaves; their leaves."""
    found = [np.ones(places.leaves, np.int64)]
    for l in range(places.last - 1, -1, -1):
        found.insert(0, np.bincount(places.parents[l], found[0], places.count(l)).astype(np.int64))
    if places.leaves <= most:
        return 0, found[0]
    level = next((l for l in range(places.last) if found[l].max() <= most), places.last - 1)
    return level, found[level]


def _packed(sizes: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Neighbours together while they have at most so many leaves."""
    bounds, held = [0], 0
    for i, size in enumerate(sizes.tolist()):
        if i and held + size > most:
            bounds.append(i)
            held = 0
        held += size
    return np.array([*bounds, len(sizes)], np.int64)


def _ascending(rank: NDArray[np.int64]) -> bool:
    return bool((rank[1:] >= rank[:-1]).all())


def _length(rows: Rows) -> int:
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def _part(given: Any, rows: Rows, cut: int) -> Any:
    if isinstance(given, PlaceQuery):
        return replace(given, level=given.level - cut, values=given.values[rows], stddev=given.stddev[rows])  # fmt: skip
    assert isinstance(given, PlaceRange)
    low = given.low[rows]
    high = low if given.low is given.high else given.high[rows]
    return replace(given, level=given.level - cut, low=low, high=high)


def joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Rows of all shards, one after the other."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
