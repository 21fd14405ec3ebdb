"""Problem 4 for many tables at once: from a start q, the table of least violation of given marginals that is closest to q in KL.

Where the marginals can be met, iterative proportional fitting meets them and moves q no further than it must. Where they can
not, entropic mirror descent on the squared violation does the same for its minimiser: both only ever multiply q by
functions of the marginals, and that is what makes the limit the closest one. A uniform q gives maximum entropy.
"""

from __future__ import annotations

from math import log
from typing import Any

import numpy as np
from numba import njit, prange

from consilience.kernels.elementary import exp
from consilience.kernels.options import LOOP, PARALLEL

LEAST = 1e-30
"""Share of a uniform table that every cell keeps, so that it can come back."""
CYCLES = 2000
FIT_CELLS = 3e7
LOOK = 25
SLOW = 0.995
"""Fitting gives up when LOOK cycles did not bring the violation to SLOW of what it was (or CYCLES are done,
or FIT_CELLS passed over for each target)."""
STEPS = 20_000
STEP_CELLS = 1e8
GAP = 1e-6
"""Descent ends when the squared violation is within this (relative) of its minimum, certified by the Frank-Wolfe gap; or
after STEPS steps, or STEP_CELLS cells passed over."""


@njit(**LOOP)
def _sum(x: Any, to: Any, out: Any) -> None:
    out[:] = 0.0
    for j in range(x.size):
        out[to[j]] += x[j]


@njit(**LOOP)
def _fit(
    x: Any,
    first: int,
    last: int,
    map_at: Any,
    maps: Any,
    target_at: Any,
    target: Any,
    tolerance: float,
    cycles: int,
) -> float:
    """Meet the targets in turn; the largest L1 distance that the last cycle found."""
    n, least = x.size, LEAST / x.size
    worst, before = np.inf, np.inf
    widest = 0
    for e in range(first, last):
        widest = max(widest, target_at[e + 1] - target_at[e])
    sums = np.empty(widest)
    for cycle in range(min(cycles, max(20, int(FIT_CELLS / n)))):
        worst = 0.0
        for e in range(first, last):
            to = maps[map_at[e] : map_at[e] + n]
            want = target[target_at[e] : target_at[e + 1]]
            have = sums[: want.size]
            _sum(x, to, have)
            distance = 0.0
            for j in range(want.size):
                distance += abs(want[j] - have[j])
                have[j] = want[j] / have[j]
            worst = max(worst, distance)
            for j in range(n):
                x[j] = max(x[j] * have[to[j]], least)
        if worst <= tolerance or last - first == 1:
            break
        if cycle % LOOK == LOOK - 1:
            if worst > SLOW * before:
                break
            before = worst
    return worst


@njit(**LOOP)
def _violation(
    x: Any,
    first: int,
    last: int,
    map_at: Any,
    maps: Any,
    target_at: Any,
    target: Any,
    gradient: Any,
    sums: Any,
) -> tuple[float, float]:
    """Sum of squared distances to the targets and its gradient; the largest L1 distance as well."""
    n = x.size
    value, worst = 0.0, 0.0
    gradient[:] = 0.0
    for e in range(first, last):
        to = maps[map_at[e] : map_at[e] + n]
        want = target[target_at[e] : target_at[e + 1]]
        have = sums[: want.size]
        _sum(x, to, have)
        distance = 0.0
        for j in range(want.size):
            have[j] -= want[j]
            value += have[j] * have[j]
            distance += abs(have[j])
        worst = max(worst, distance)
        for j in range(n):
            gradient[j] += 2.0 * have[to[j]]
    return value, worst


@njit(**LOOP)
def _descend(
    x: Any, first: int, last: int, map_at: Any, maps: Any, target_at: Any, target: Any
) -> float:
    """Entropic mirror descent in place; steps grow while the divergence moved pays for the curvature, else they are undone."""
    n = x.size
    widest = 0
    for e in range(first, last):
        widest = max(widest, target_at[e + 1] - target_at[e])
    sums = np.empty(widest)
    g, y, h = np.empty(n), np.empty(n), np.empty(n)
    f, worst = _violation(x, first, last, map_at, maps, target_at, target, g, sums)
    rate = 1.0 / (2.0 * (last - first))
    for _ in range(min(STEPS, max(200, int(STEP_CELLS / n)))):
        low, mean = np.inf, 0.0
        for j in range(n):
            low = min(low, g[j])
            mean += g[j] * x[j]
        if mean - low <= GAP * f + 1e-15:
            break
        mass, moved = 0.0, 0.0
        for j in range(n):
            v = x[j] * exp(-rate * (g[j] - low))
            y[j] = v
            mass += v
        linear = 0.0
        for j in range(n):
            y[j] /= mass
            linear += g[j] * (y[j] - x[j])
            moved += y[j] * (-rate * (g[j] - low))
        moved -= log(mass)  # KL(y || x)
        after, gone = _violation(y, first, last, map_at, maps, target_at, target, h, sums)
        if after <= f + linear + moved / rate + 1e-16 * f:
            for j in range(n):
                x[j] = max(y[j], 1e-300)
                g[j] = h[j]
            f, worst = after, gone
            rate *= 1.5
        else:
            rate *= 0.5
    return worst


@njit(**PARALLEL)
def mend(
    at: Any,
    ptr: Any,
    map_at: Any,
    maps: Any,
    target_at: Any,
    target: Any,
    x: Any,
    violation: Any,
    tolerance: float,
    cycles: int,
) -> None:
    """Table q is x[at[q]:at[q + 1]], a distribution; its targets are edges ptr[q] to ptr[q + 1], and violation[q] the largest
    L1 distance that is left to one. Edge e maps cells by maps[map_at[e]:] and wants target[target_at[e]:target_at[e + 1]].
    With fewer than CYCLES cycles the targets are only met roughly, and no descent follows.
    """
    for q in prange(at.size - 1):
        table = x[at[q] : at[q + 1]]
        if ptr[q + 1] == ptr[q]:
            violation[q] = 0.0
            continue
        for j in range(table.size):
            table[j] = max(table[j], LEAST / table.size)
        start = table.copy()
        found = _fit(table, ptr[q], ptr[q + 1], map_at, maps, target_at, target, tolerance, cycles)
        violation[q] = 0.0 if ptr[q + 1] - ptr[q] == 1 else found
        if violation[q] > tolerance and cycles >= CYCLES:
            left = _descend(start, ptr[q], ptr[q + 1], map_at, maps, target_at, target)
            if left < violation[q]:
                table[:] = start
                violation[q] = left
        mass = 0.0
        for j in range(table.size):
            mass += table[j]
        for j in range(table.size):
            table[j] /= mass
