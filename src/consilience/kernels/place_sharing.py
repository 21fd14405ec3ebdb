"""Tables of places that are not negative made to add up: shared out from a place to its children, and scaled into ranges."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from consilience.kernels.options import LOOP

MOST_RAKES = 300
"""Rounds in which tables are scaled to their sums and to their ranges."""
CLOSE = 1e-13
"""A range that is left by less, relative to its ends, holds."""


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
    worst: Any,
) -> None:
    """Make the children's tables of each place add up to target[place] and lie in their ranges; worst[p]: by how much not."""
    n = target.shape[1]
    sums, held = np.empty(n), np.empty(n)
    for p in range(begin, end):
        worst[p] = share_out(tables, weight, first[p], first[p + 1], target[p], ranges, sums, held)


@njit(**LOOP)
def rake_rows(begin: int, end: int, tables: Any, weight: Any, ranges: Ranges, worst: Any) -> None:
    """Scale each table alone into its ranges."""
    held = np.empty(tables.shape[1])
    for p in range(begin, end):
        for _ in range(MOST_RAKES):
            bad = _rake(tables[p], weight[min(p, weight.shape[0] - 1)], p, ranges, held)
            if bad <= CLOSE:
                break
        worst[p] = _distance(tables[p], p, ranges, held)


@njit(**LOOP)
def share_out(
    tables: Any, weight: Any, lo: int, hi: int, target: Any, ranges: Ranges, sums: Any, held: Any
) -> float:
    """Scale rows lo to hi of the tables, cell by cell, so that they add up to the target; with ranges, in turns with those.

    A cell that no row holds is divided in proportion to the weights.
    """
    worst = 0.0
    for _ in range(MOST_RAKES):
        worst = 0.0
        if ranges.sizes.size > 0:
            for i in range(lo, hi):
                bad = _rake(tables[i], weight[min(i, weight.shape[0] - 1)], i, ranges, held)
                worst = max(worst, bad)
        _scale(tables, weight, lo, hi, target, sums, held)
        if worst <= CLOSE:
            break
    worst = 0.0
    if ranges.sizes.size > 0:
        for i in range(lo, hi):
            worst = max(worst, _distance(tables[i], i, ranges, held))
    return worst


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
