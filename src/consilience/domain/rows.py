"""Rows of small integers: a key for each, equal keys together, where a row is, its subsets."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Rows = NDArray[np.int32]
ROOM = 2**62
"""Keys are below this."""


def row_keys(rows: NDArray[Any], base: int | None = None) -> Ints:
    """One integer per row, equal where the rows are and ordered as they are. Entries are not negative.

    With a `base` above all entries, keys of different arrays may be compared wherever base ** columns is below ROOM.
    """
    keys, span = np.zeros(len(rows), np.int64), 1
    for column in rows.T:
        width = base or (int(column.max()) + 1 if len(column) else 1)
        if span * width >= ROOM:
            keys = np.unique(keys, return_inverse=True)[1].reshape(-1)
            span = int(keys.max()) + 1
        keys = keys * width + column
        span *= width
    return keys


def grouped(keys: NDArray[Any]) -> list[Ints]:
    """The positions of each distinct key, in order; the keys ascending."""
    if not len(keys):
        return []
    if (keys == keys[0]).all():
        return [np.arange(len(keys))]
    order = np.argsort(keys, kind="stable")
    cuts = np.flatnonzero(np.diff(keys[order])) + 1
    return np.split(order, cuts)


def rows_of(sorted_rows: Rows, wanted: Rows) -> Ints:
    """Where each wanted row is among rows that are distinct and ascend; -1 where it is not."""
    if not len(sorted_rows) or not len(wanted):
        return np.full(len(wanted), -1, np.int64)
    base = int(max(sorted_rows.max(initial=0), wanted.max(initial=0))) + 1
    if base ** sorted_rows.shape[1] < ROOM:
        keys, targets = row_keys(sorted_rows, base), row_keys(wanted, base)
    else:
        both = row_keys(np.concatenate([sorted_rows, wanted]))
        keys, targets = both[: len(sorted_rows)], both[len(sorted_rows) :]
    place = np.minimum(np.searchsorted(keys, targets), len(keys) - 1)
    return np.where(keys[place] == targets, place, -1)


def subsets_of(rows: NDArray[Any], size: int) -> NDArray[Any]:
    """All subsets of the given size of every row, row by row."""
    chosen = list(combinations(range(rows.shape[1]), size))
    columns = np.array(chosen, np.intp).reshape(len(chosen), size)
    return rows[:, columns].reshape(len(rows) * len(chosen), size)


def starts(counts: Iterable[int] | NDArray[Any]) -> Ints:
    """Where each of some parts begins when they follow one another, and where the last one ends."""
    counts = np.asarray(counts, np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
