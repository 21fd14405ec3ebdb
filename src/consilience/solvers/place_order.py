"""The order in which a tree of places is worked through: children behind each other, leaves with the same noise too."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer
from consilience.solvers.places import Places


class Order:
    """The places in the order of the tree: children of a place lie together, and leaves of one kind among them."""

    def __init__(self, places: Places, kinds: NDArray[np.int64]) -> None:
        self.places = places
        self.last = places.last
        self.of: list[NDArray[np.int64]] = [np.arange(places.roots)]
        """For each level the places in order."""
        self.parent: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        self.first: list[NDArray[np.int64]] = []
        rank = np.arange(places.roots)
        for level in range(1, self.last + 1):
            above = rank[places.parents[level - 1]]
            last = (kinds,) if level == self.last else ()
            order = np.lexsort((*last, above))
            rank = np.empty(len(order), np.int64)
            rank[order] = np.arange(len(order))
            self.of.append(order)
            self.parent.append(above[order])
            self.first.append(np.searchsorted(above[order], np.arange(places.count(level - 1) + 1)))
        self.straight = [bool((o == np.arange(len(o))).all()) for o in self.of]
        self.kind = kinds[self.of[-1]]
        change = np.flatnonzero((np.diff(self.kind) != 0) | (np.diff(self.parent[-1]) != 0)) + 1
        self.begin = np.concatenate([[0], change, [len(self.kind)]]).astype(np.int64)
        """Where each run of leaves begins: same parent, same kind."""
        self.run_kind = self.kind[self.begin[:-1]]
        self.run_parent = self.parent[-1][self.begin[:-1]]
        self.runs = np.searchsorted(self.run_parent, np.arange(places.count(self.last - 1) + 1))

    def take(self, rows: NDArray[Any], level: int) -> NDArray[Any]:
        """Rows by place as rows in the order of the tree."""
        return rows if self.straight[level] else rows[self.of[level]]

    def back(self, rows: Buffer, level: int) -> Buffer:
        if self.straight[level]:
            return rows
        out = np.empty_like(rows)
        out[self.of[level]] = rows
        return out
