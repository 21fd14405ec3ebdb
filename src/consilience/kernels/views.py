"""Loops of the baselines on whole tables: the two ways to remove negative cells without changing a table's sum."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

from consilience.kernels.options import LOOP, PARALLEL


@njit(**LOOP)
def norm_cut_one(x: Any) -> None:
    """Negative cells become 0, and so do the smallest positive ones until as much mass is gone; the last only in part."""
    owed, positive = 0.0, 0
    for c in range(x.size):
        if x[c] < 0.0:
            owed -= x[c]
            x[c] = 0.0
        elif x[c] > 0.0:
            positive += 1
    if owed == 0.0:
        return
    place = np.empty(positive, np.int64)
    kept = np.empty(positive)
    i = 0
    for c in range(x.size):
        if x[c] > 0.0:
            place[i] = c
            kept[i] = x[c]
            i += 1
    order = np.argsort(kept, kind="mergesort")  # stable: equal cells go in table order
    for i in range(positive):
        taken = min(owed, kept[order[i]])
        x[place[order[i]]] = kept[order[i]] - taken
        owed -= taken
        if owed <= 0.0:
            return


@njit(**LOOP)
def norm_sub_one(x: Any) -> None:
    """The closest table (Euclidean) without negative cells and with the same sum: max(x - s, 0) for one number s."""
    total, lowest = 0.0, 0.0
    for c in range(x.size):
        total += x[c]
        lowest = min(lowest, x[c])
    if lowest >= 0.0:
        return
    if total <= 0.0:
        x[:] = 0.0
        return
    ordered = np.sort(x)
    above, shift = 0.0, 0.0
    for i in range(x.size):
        largest = ordered[x.size - 1 - i]
        above += largest
        s = (above - total) / (i + 1)
        if largest <= s:
            break
        shift = s
    for c in range(x.size):
        x[c] = max(x[c] - shift, 0.0)


@njit(**PARALLEL)
def norm_cut_all(x: Any, at: Any, cells: Any) -> None:
    """`norm_cut_one` of each table."""
    for r in prange(at.size):
        norm_cut_one(x[at[r] : at[r] + cells[r]])


@njit(**PARALLEL)
def norm_sub_all(x: Any, at: Any, cells: Any) -> None:
    """`norm_sub_one` of each table."""
    for r in prange(at.size):
        norm_sub_one(x[at[r] : at[r] + cells[r]])
