"""Rows drawn from tables by systematic sampling: counts are unbiased and each is within one of its expectation.

Cells are laid end to end on a line, each as long as its expected count, and one point falls in every unit of the line, all at
the same offset. A uniform offset hits a cell of length l on average l times, and never less than floor(l) or more than ceil(l)
times; the same holds for every run of neighbouring cells.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from consilience.kernels.options import LOOP, PARALLEL

CHUNK = 64
"""Occupied groups that one work item fills."""


def draw_cells(mass: NDArray[np.float64], offset: float, drawn: NDArray[np.int64]) -> None:
    """drawn = cells in ascending order, cell i about len(drawn) * mass[i] / sum(mass) times; never a cell of no mass."""
    _draw(mass, float(mass.sum()), offset, drawn)


class Groups(NamedTuple):
    """Rows sorted by group: group g is rows[start[g]:start[g + 1]]."""

    start: Any
    rows: Any


@njit(**LOOP)
def group_rows(keys: Any, order: Any, count: int) -> Groups:
    """Rows by their key, of which there are `count`; within a group in the order in which `order` names them."""
    start = np.zeros(count + 1, np.int64)
    for i in range(keys.size):
        start[keys[i] + 1] += 1
    for g in range(1, start.size):
        start[g] += start[g - 1]
    rows = np.empty(order.size, np.int64)
    place = start[:-1].copy()
    for i in range(order.size):
        row = order[i]
        g = keys[row]
        rows[place[g]] = row
        place[g] += 1
    return Groups(start, rows)


@njit(**PARALLEL)
def fill_groups(table: Any, groups: Groups, occupied: Any, offsets: Any, values: Any) -> None:
    """values[row] = a column of the row's group, drawn from table[group]; group occupied[i] takes offset offsets[i].

    Every occupied group has mass. Groups do not share rows, so the number of threads changes nothing.
    """
    for item in prange((occupied.size + CHUNK - 1) // CHUNK):
        for i in range(item * CHUNK, min((item + 1) * CHUNK, occupied.size)):
            g = occupied[i]
            members = groups.rows[groups.start[g] : groups.start[g + 1]]
            drawn = np.empty(members.size, np.int64)
            _draw(table[g], table[g].sum(), offsets[i], drawn)
            for k in range(members.size):
                values[members[k]] = drawn[k]


@njit(**LOOP)
def _draw(mass: Any, total: float, offset: float, drawn: Any) -> None:
    count = drawn.size
    scale = count / total
    reached = 0.0
    k = 0
    last = 0
    for cell in range(mass.size):
        if mass[cell] <= 0.0:
            continue
        last = cell
        reached += mass[cell] * scale
        while k < count and k + offset < reached:
            drawn[k] = cell
            k += 1
        if k == count:
            return
    # Rounding left the end of the line a little short of the last point.
    while k < count:
        drawn[k] = last
        k += 1
