"""Sums over the possible cells of a clique, kept apart by what its neighbours in the tree and a question need to know.

A cell of a clique belongs to one cell of each separator around it, and to one column: what is asked about the clique itself.
Cells that agree on the separator and the column are one pair; questions go over pairs, of which there are few, not over cells.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from consilience.kernels.options import LOOP


@njit(**LOOP)
def add_up(to: Any, values: Any, width: int) -> Any:
    """Entry k is the sum of the values that belong to k."""
    found = np.zeros(width)
    for j in range(values.size):
        found[to[j]] += values[j]
    return found


@njit(**LOOP)
def locate(codes: Any, kept: Any, strides: Any) -> Any:
    """Where each cell (a column of codes) lies in the table of the kept attributes."""
    found = np.zeros(codes.shape[1], np.int64)
    for k in range(kept.size):
        own, stride = codes[kept[k]], strides[k]
        for j in range(found.size):
            found[j] += np.int64(own[j]) * stride
    return found


@njit(**LOOP)
def numbered(keys: Any) -> tuple[Any, int]:
    """Distinct keys numbered as they first appear: the number of each key, and how many there are."""
    size = 2
    while size < 2 * keys.size:
        size *= 2
    first = np.full(size, -1, np.int32)  # a hash table of places in `keys`
    found = np.empty(keys.size, np.int32)
    count = 0
    for j in range(keys.size):
        h = ((keys[j] * 0x9E3779B97F4A7C1) >> 20) & (size - 1)
        while first[h] >= 0 and keys[first[h]] != keys[j]:
            h = (h + 1) & (size - 1)
        if first[h] < 0:
            first[h] = j
            found[j] = count
            count += 1
        else:
            found[j] = found[first[h]]
    return found, count


@njit(**LOOP)
def sorted_by(at: Any, groups: int) -> tuple[Any, Any]:
    """The cells group by group, in order within a group: those of group g are order[ptr[g]:ptr[g + 1]]."""
    ptr = np.zeros(groups + 1, np.int64)
    for j in range(at.size):
        ptr[at[j] + 1] += 1
    for g in range(groups):
        ptr[g + 1] += ptr[g]
    free, order = ptr[:-1].copy(), np.empty(at.size, np.int32)
    for j in range(at.size):
        order[free[at[j]]] = j
        free[at[j]] += 1
    return ptr, order


@njit(**LOOP)
def pairs(ptr: Any, order: Any, column: Any, width: int) -> tuple[Any, Any, Any]:
    """The pairs (group, column) that have cells: which pair each cell belongs to, and each pair's group and column."""
    seen = np.full(width, -1, np.int64)
    place = np.empty(order.size, np.int64)
    group, own = np.empty(order.size, np.int64), np.empty(order.size, np.int64)
    count = 0
    for g in range(ptr.size - 1):
        first = count
        for k in range(ptr[g], ptr[g + 1]):
            c = column[order[k]]
            if seen[c] < first:
                seen[c] = count
                group[count], own[count] = g, c
                count += 1
            place[order[k]] = seen[c]
    return place, group[:count].copy(), own[:count].copy()


@njit(**LOOP)
def meet(made: Any, group: Any, own: Any, message: Any, width: int) -> Any:
    """Multiply a message (a row per group) into what was made of the pairs so far (a row per pair), and sum by column.

    A row of the result has an entry for each entry of a row of `made` and of a row of the message, the latter's fastest.
    """
    before, rows = made.shape[1], message.shape[1]
    found = np.zeros((width, before * rows))
    for e in range(group.size):
        s, c = group[e], own[e]
        for b in range(before):
            v = made[e, b]
            for r in range(rows):
                found[c, b * rows + r] += v * message[s, r]
    return found
