"""Rows: drawn from tables by systematic sampling, and moved code by code until their own tables are near given ones.

Drawing: cells are laid end to end on a line, each as long as its expected count, and one point falls in every unit of the line,
all at the same offset. A uniform offset hits a cell of length l on average l times, and never less than floor(l) or more than
ceil(l) times; the same holds for every run of neighbouring cells. So counts are unbiased and within one of their expectation.

Moving: a cell whose count is a rounding of its target, up or down, costs nothing; beyond that each record costs one:
phi(d) = max(|d| - 1, 0) with d = count - target. So rows are never pulled from a rare cell to a common one just because zero is
the nearest integer. phi is the end of a family phi_h whose derivative reaches one only h records further out; wide ones move
the rows where most is missing first. `slope` is 1 / h.

One attribute moves at a time. Its tables are laid with that attribute last, so that what every value of it would cost is
the sum of a few contiguous stretches. A block of rows is looked at in parallel, against tables that stand still; then
the moves that were found are tried one after the other in row order, and made if they still help. The number of threads
changes nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from consilience.kernels.options import LOOP


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


@njit(**LOOP)
def fill_groups(
    low: int, high: int, table: Any, groups: Groups, occupied: Any, offsets: Any, values: Any
) -> None:
    """values[row] = a column of the row's group, drawn from table[group]; group occupied[i] takes offset offsets[i].

    Every occupied group has mass. Groups do not share rows, so the number of threads changes nothing.
    """
    for i in range(low, high):
        g = occupied[i]
        members = groups.rows[groups.start[g] : groups.start[g + 1]]
        drawn = np.empty(members.size, np.int64)
        mass = 0.0
        for c in range(table.shape[1]):
            mass += table[g, c]
        _draw(table[g], mass, offsets[i], drawn)
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


IMPOSSIBLE = np.float32(1e30)
"""Stands for the deviation of a cell that no row may fall in."""
PROHIBITIVE = np.float32(1e6)
LEAST_GAIN = np.float32(1e-3)
"""A move must win more than this; less is rounding."""


@njit(inline="always", **LOOP)
def _enter(d, slope):
    """What one more record in a cell costs: phi_h(d + 1) - phi_h(d)."""
    if d >= IMPOSSIBLE:
        return PROHIBITIVE
    up = min(max(d * slope, np.float32(0.0)), np.float32(1.0))
    down = min(max((d + np.float32(1.0)) * slope, np.float32(-1.0)), np.float32(0.0))
    return up + down


@njit(inline="always", **LOOP)
def _leave(d, slope):
    """What one record less in a cell costs: phi_h(d - 1) - phi_h(d)."""
    if d >= IMPOSSIBLE:
        return -PROHIBITIVE
    return _enter(-d, slope)


@njit(**LOOP)
def lay_out(low, high, deviation, at, left, right, size, slope, to, laid, cost, least_at, least):
    """Copy tables so that the moving attribute is last, with the cost of entering each cell and the least of each stretch.

    Table c is deviation[at[c]:] seen as (left[c], size, right[c]); it becomes laid[to[c]:] as (left[c] * right[c], size), and
    least[least_at[c] + stretch] is the smallest cost in a stretch.
    """
    for c in range(low, high):
        for x in range(left[c]):
            for y in range(right[c]):
                stretch = x * right[c] + y
                smallest = PROHIBITIVE
                for v in range(size):
                    d = deviation[at[c] + (x * size + v) * right[c] + y]
                    k = to[c] + stretch * size + v
                    laid[k] = d
                    cost[k] = _enter(d, slope)
                    smallest = min(smallest, cost[k])
                least[least_at[c] + stretch] = smallest


@njit(**LOOP)
def lay_back(low, high, deviation, at, left, right, size, to, laid):
    """Undo `lay_out`."""
    for c in range(low, high):
        for x in range(left[c]):
            for y in range(right[c]):
                for v in range(size):
                    source = to[c] + (x * right[c] + y) * size + v
                    deviation[at[c] + (x * size + v) * right[c] + y] = laid[source]


@njit(**LOOP)
def propose(
    low, high, start, codes, attribute, size, slope, ptr, other, stride, to, laid, cost, least_at, least, found
):  # fmt: skip
    """found[r - start] = the best value to move row r to, or -1 where no value helps; rows `low` to `high`.

    Row r lies in stretch sum_k codes[r, other[k]] * stride[k], k from ptr[c] to ptr[c + 1], of table c.
    """
    tables = ptr.size - 1
    score = np.empty(size, np.float32)
    stretch = np.empty(tables, np.int64)
    for r in range(low, high):
        current = codes[r, attribute]
        leave = np.float32(0.0)
        hope = np.float32(0.0)
        for c in range(tables):
            s = 0
            for k in range(ptr[c], ptr[c + 1]):
                s += codes[r, other[k]] * stride[k]
            leave += _leave(laid[to[c] + s * size + current], slope)
            hope += least[least_at[c] + s]
            stretch[c] = s
        found[r - start] = -1
        if leave + hope >= -LEAST_GAIN:
            continue
        score[:] = leave
        for c in range(tables):
            begin = to[c] + stretch[c] * size
            for v in range(size):
                score[v] += cost[begin + v]
        best = -1
        gain = -LEAST_GAIN
        for v in range(size):
            if score[v] < gain and v != current:
                gain = score[v]
                best = v
        found[r - start] = best


@njit(**LOOP)
def accept(
    low, high, start, codes, attribute, size, slope, ptr, other, stride, to, laid, cost, least_at, least, found
):  # fmt: skip
    """Make the moves that still help, in row order; how many were made."""
    tables = ptr.size - 1
    begin = np.empty(tables, np.int64)
    stretch = np.empty(tables, np.int64)
    made = 0
    for r in range(low, high):
        v = found[r - start]
        if v < 0:
            continue
        current = codes[r, attribute]
        change = np.float32(0.0)
        for c in range(tables):
            s = 0
            for k in range(ptr[c], ptr[c + 1]):
                s += codes[r, other[k]] * stride[k]
            stretch[c] = s
            begin[c] = to[c] + s * size
            change += _leave(laid[begin[c] + current], slope) + cost[begin[c] + v]
        if change >= -LEAST_GAIN:
            continue
        for c in range(tables):
            for cell, by in ((begin[c] + current, -1.0), (begin[c] + v, 1.0)):
                if laid[cell] < IMPOSSIBLE:
                    laid[cell] += np.float32(by)
                    cost[cell] = _enter(laid[cell], slope)
                    place = least_at[c] + stretch[c]
                    least[place] = min(least[place], cost[cell])
        codes[r, attribute] = v
        made += 1
    return made
