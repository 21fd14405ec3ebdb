"""Tables of places that are not negative made to add up: shared out from a place to its children, and scaled into ranges."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from consilience.kernels.options import LOOP

MOST_RAKES, LAST_RAKES = 40, 30_000
"""Rounds in which tables are scaled to their sums and to their ranges: at a check, and at the end."""
CLOSE = 1e-13
"""A range that is left by less, relative to its ends, holds."""
PATIENCE, LIFT = 100, 1e-6
"""Rounds after which cells are lifted to this part of the mean: scaling alone cannot fill those that are zero."""


class Ranges(NamedTuple):
    """Marginals of a level's tables that must lie in ranges: number k maps cell c to cell maps[k, c] of sizes[k], and its
    ends for place p are low[p, at[k]:] and high[p, at[k]:]."""

    maps: Any
    sizes: Any
    at: Any
    low: Any
    high: Any


@njit(**LOOP)
def share_down(
    begin: int,
    end: int,
    first: Any,
    target: Any,
    tables: Any,
    weight: Any,
    ranges: Ranges,
    rakes: int,
    worst: Any,
) -> None:
    """Make the children's tables of each place add up to target[place] and lie in their ranges; worst[p]: by how much not."""
    n = target.shape[1]
    sums, held = np.empty(n), np.empty(n)
    for p in range(begin, end):
        worst[p] = share_out(
            tables, weight, first[p], first[p + 1], target[p], ranges, rakes, sums, held
        )


@njit(**LOOP)
def rake_rows(
    begin: int, end: int, tables: Any, weight: Any, ranges: Ranges, rakes: int, worst: Any
) -> None:
    """Scale each table alone into its ranges."""
    held = np.empty(tables.shape[1])
    for p in range(begin, end):
        for _ in range(rakes):
            bad = _rake(tables[p], weight[min(p, weight.shape[0] - 1)], p, ranges, held)
            if bad <= CLOSE:
                break
        worst[p] = _distance(tables[p], p, ranges, held)


@njit(**LOOP)
def share_out(
    tables: Any,
    weight: Any,
    lo: int,
    hi: int,
    target: Any,
    ranges: Ranges,
    rakes: int,
    sums: Any,
    held: Any,
) -> float:
    """Scale rows lo to hi of the tables, cell by cell, so that they add up to the target; with ranges, in turns with those.

    A cell that no row holds is divided in proportion to the weights. The first turn, and one after a lift, scale rows that may
    not add up: only later ones tell whether both hold.
    """
    worst = 0.0
    for turn in range(rakes if ranges.sizes.size > 0 else 1):
        if turn == PATIENCE:
            _lift(tables, weight, lo, hi, LIFT * target.sum() / ((hi - lo) * target.size))
        worst = 0.0
        if ranges.sizes.size > 0:
            for i in range(lo, hi):
                bad = _rake(tables[i], weight[min(i, weight.shape[0] - 1)], i, ranges, held)
                worst = max(worst, bad)
        _scale(tables, weight, lo, hi, target, sums, held)
        if worst <= CLOSE and turn != 0 and turn != PATIENCE:
            break
    if ranges.sizes.size == 1 and worst > CLOSE:
        for g in range(ranges.sizes[0]):
            _exchange(tables, weight, lo, hi, ranges, g, sums)
    worst = 0.0
    if ranges.sizes.size > 0:
        for i in range(lo, hi):
            worst = max(worst, _distance(tables[i], i, ranges, held))
    return worst


@njit(**LOOP)
def _exchange(tables: Any, weight: Any, lo: int, hi: int, ranges: Ranges, g: int, pool: Any) -> None:  # fmt: skip
    """Rows above their range of group g give what is too much, rows below get what they lack, rows inside make up for the rest.

    A giver gives of its cells in proportion, a taker takes of what was given in each cell: sums over rows stay. This ends what
    scaling only approaches, where some range has no room left.
    """
    cells, at, top = ranges.maps[0], ranges.at[0] + g, weight.shape[0] - 1
    n = hi - lo
    held, give, take, slack, room = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    for i in range(n):
        for c in range(cells.size):
            held[i] += tables[lo + i, c] if cells[c] == g else 0.0
        low, high = ranges.low[lo + i, at], ranges.high[lo + i, at]
        give[i], take[i] = max(held[i] - high, 0.0), max(low - held[i], 0.0)
        slack[i] = max(min(held[i], high) - low, 0.0)
        room[i] = min(max(high - max(held[i], low), 0.0), 1e18)
    more = take.sum() - give.sum()
    if more > 0.0 and slack.sum() > 0.0:
        give += slack * min(more / slack.sum(), 1.0)
    if more < 0.0 and room.sum() > 0.0:
        take += room * min(-more / room.sum(), 1.0)
    pool[:] = 0.0
    for i in range(n):
        part = min(give[i] / held[i], 1.0) if held[i] > 0.0 else 0.0
        for c in range(cells.size):
            if cells[c] == g:
                pool[c] += part * tables[lo + i, c]
                tables[lo + i, c] -= part * tables[lo + i, c]
    for c in range(cells.size):
        able, given = 0.0, 0.0
        for i in range(n):
            able += take[i] if weight[min(lo + i, top), c] > 0 else 0.0
            given += give[i] if weight[min(lo + i, top), c] > 0 else 0.0
        for i in range(n):
            if pool[c] > 0.0 and weight[min(lo + i, top), c] > 0:
                # Where no taker may hold the cell it goes back.
                tables[lo + i, c] += pool[c] * (take[i] / able if able > 0.0 else give[i] / given)


@njit(**LOOP)
def _lift(tables: Any, weight: Any, lo: int, hi: int, least: float) -> None:
    """No cell that may hold something of rows lo to hi holds less than this."""
    for i in range(lo, hi):
        row, room = tables[i], weight[min(i, weight.shape[0] - 1)]
        for c in range(row.size):
            if room[c] > 0:
                row[c] = max(row[c], least)


@njit(**LOOP)
def _scale(tables: Any, weight: Any, lo: int, hi: int, target: Any, sums: Any, held: Any) -> None:
    """Rows lo to hi scaled cell by cell to add up to the target."""
    n = target.size
    sums[:] = 0.0
    for i in range(lo, hi):
        row = tables[i]
        for c in range(n):
            sums[c] += row[c]
    empty = 0
    for c in range(n):
        if sums[c] > 0.0:
            held[c] = target[c] / sums[c]
        else:
            held[c] = 0.0
            empty += 1 if target[c] > 0.0 else 0
    for i in range(lo, hi):
        row = tables[i]
        for c in range(n):
            row[c] *= held[c]
    if empty == 0:
        return
    top = weight.shape[0] - 1
    for c in range(n):
        if sums[c] <= 0.0 and target[c] > 0.0:
            whole = 0.0
            for i in range(lo, hi):
                whole += weight[min(i, top), c]
            for i in range(lo, hi):
                tables[i, c] = target[c] * weight[min(i, top), c] / whole if whole > 0.0 else 0.0


@njit(**LOOP)
def _rake(table: Any, weight: Any, p: int, ranges: Ranges, held: Any) -> float:
    """Scale a table into each of its ranges in turn; the largest relative distance that one of them was left by."""
    worst = 0.0
    for k in range(ranges.sizes.size):
        size, at = ranges.sizes[k], ranges.at[k]
        map_k, low, high = ranges.maps[k], ranges.low[p], ranges.high[p]
        held[:size] = 0.0
        for c in range(table.size):
            held[map_k[c]] += table[c]
        lacking = False
        for g in range(size):
            wanted = min(max(held[g], low[at + g]), high[at + g])
            worst = max(worst, abs(wanted - held[g]) / (1.0 + wanted))
            if held[g] > 0.0:
                held[g] = wanted / held[g]
            else:
                lacking = lacking or wanted > 0.0
                held[g] = -wanted
        if lacking:
            _fill(table, weight, map_k, size, held)
        for c in range(table.size):
            factor = held[map_k[c]]
            table[c] *= factor if factor >= 0.0 else 1.0
    return worst


@njit(**LOOP)
def _fill(table: Any, weight: Any, cells: Any, size: int, held: Any) -> None:
    """Groups that hold nothing and lack -held[g] get it, in proportion to the weights."""
    whole = np.zeros(size)
    for c in range(table.size):
        whole[cells[c]] += weight[c]
    for c in range(table.size):
        g = cells[c]
        if held[g] < 0.0 and whole[g] > 0.0:
            table[c] = -held[g] * weight[c] / whole[g]


@njit(**LOOP)
def _distance(table: Any, p: int, ranges: Ranges, held: Any) -> float:
    """The largest distance by which a marginal leaves its range."""
    worst = 0.0
    for k in range(ranges.sizes.size):
        size, at = ranges.sizes[k], ranges.at[k]
        held[:size] = 0.0
        for c in range(table.size):
            held[ranges.maps[k, c]] += table[c]
        for g in range(size):
            worst = max(worst, ranges.low[p, at + g] - held[g], held[g] - ranges.high[p, at + g])
    return worst
