"""Problem 4 for many tables at once: from a start q, the table of least violation of given marginals that is closest to q in KL.

Where the marginals can be met, iterative proportional fitting projects q onto the tables that meet them. Where they cannot,
entropic mirror descent on the squared violation does the same for its minimisers: both only ever multiply q by functions of
the marginals, and that is what makes the limit the closest one. A uniform q gives maximum entropy.
"""

from __future__ import annotations

from math import log
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from consilience.kernels.elementary import exp
from consilience.kernels.options import LOOP

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


class Problem(NamedTuple):
    """Many tables and the marginals to give them.

    Table q has cells at[q] to at[q + 1]; its targets are number ptr[q] to ptr[q + 1]. Target e wants the table at
    target[target_at[e]:target_at[e + 1]]; maps[map_at[e]:] says which of its cells each cell of the table belongs to.
    """

    at: Any
    ptr: Any
    map_at: Any
    maps: Any
    target_at: Any
    target: Any


@njit(**LOOP)
def _room(problem: Problem, q: int) -> Any:
    """Scratch for the sums of the widest target of table q."""
    widest = 0
    for e in range(problem.ptr[q], problem.ptr[q + 1]):
        widest = max(widest, problem.target_at[e + 1] - problem.target_at[e])
    return np.empty(widest)


@njit(**LOOP)
def _sum(x: Any, to: Any, out: Any) -> None:
    out[:] = 0.0
    for j in range(x.size):
        out[to[j]] += x[j]


@njit(**LOOP)
def _fit(problem: Problem, q: int, x: Any, tolerance: float, cycles: int) -> float:
    """Fit the targets in turn; the largest L1 distance that the last cycle found."""
    first, last, maps, target = problem.ptr[q], problem.ptr[q + 1], problem.maps, problem.target
    n, least = x.size, LEAST / x.size
    worst, before = np.inf, np.inf
    sums = _room(problem, q)
    for cycle in range(min(cycles, max(20, int(FIT_CELLS / n)))):
        worst = 0.0
        for e in range(first, last):
            to = maps[problem.map_at[e] : problem.map_at[e] + n]
            want = target[problem.target_at[e] : problem.target_at[e + 1]]
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
def _violation(problem: Problem, q: int, x: Any, gradient: Any, sums: Any) -> tuple[float, float]:
    """Sum of squared distances to the targets and its gradient; the largest L1 distance as well."""
    n, maps, target = x.size, problem.maps, problem.target
    value, worst = 0.0, 0.0
    gradient[:] = 0.0
    for e in range(problem.ptr[q], problem.ptr[q + 1]):
        to = maps[problem.map_at[e] : problem.map_at[e] + n]
        want = target[problem.target_at[e] : problem.target_at[e + 1]]
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
def _descend(problem: Problem, q: int, x: Any) -> float:
    """Entropic mirror descent in place; steps grow while KL(after || before) bounds the curvature, else they are undone."""
    n = x.size
    sums = _room(problem, q)
    g, y, h = np.empty(n), np.empty(n), np.empty(n)
    f, worst = _violation(problem, q, x, g, sums)
    rate = 1.0 / (2.0 * (problem.ptr[q + 1] - problem.ptr[q]))
    for _ in range(min(STEPS, max(200, int(STEP_CELLS / n)))):
        low, mean = np.inf, 0.0
        for j in range(n):
            low = min(low, g[j])
            mean += g[j] * x[j]
        if mean - low <= GAP * f + 1e-15:
            break
        mass, divergence = 0.0, 0.0
        for j in range(n):
            v = x[j] * exp(-rate * (g[j] - low))
            y[j] = v
            mass += v
        linear = 0.0
        for j in range(n):
            y[j] /= mass
            linear += g[j] * (y[j] - x[j])
            divergence += y[j] * (-rate * (g[j] - low))
        divergence -= log(mass)  # KL(y || x)
        after, worst_after = _violation(problem, q, y, h, sums)
        if after <= f + linear + divergence / rate + 1e-16 * f:
            for j in range(n):
                x[j] = max(y[j], 1e-300)
                g[j] = h[j]
            f, worst = after, worst_after
            rate *= 1.5
        else:
            rate *= 0.5
    return worst


@njit(**LOOP)
def _positive(table: Any) -> None:
    for j in range(table.size):
        table[j] = max(table[j], LEAST / table.size)


@njit(**LOOP)
def _normalised(table: Any) -> None:
    mass = 0.0
    for j in range(table.size):
        mass += table[j]
    for j in range(table.size):
        table[j] /= mass


@njit(**LOOP)
def fit(
    first: int, last: int, problem: Problem, x: Any, violation: Any, tolerance: float, cycles: int
) -> None:
    """Fit tables `first` to `last` of x, distributions laid out by problem.at, in place; violation[q] is the largest L1 distance
    left.
    """
    at, ptr = problem.at, problem.ptr
    for q in range(first, last):
        violation[q] = 0.0
        if ptr[q + 1] == ptr[q]:
            continue
        table = x[at[q] : at[q + 1]]
        _positive(table)
        found = _fit(problem, q, table, tolerance, cycles)
        if ptr[q + 1] - ptr[q] > 1:
            violation[q] = found
        _normalised(table)


@njit(**LOOP)
def descend(
    first: int, last: int, problem: Problem, x: Any, start: Any, violation: Any, tolerance: float
) -> None:
    """Where fitting ended above the tolerance, the targets cannot all be met: descend from `start`, and keep what is nearer.

    Apart from `fit`, because tables of a consistent model never come here, and need not wait until this is compiled.
    """
    at = problem.at
    for q in range(first, last):
        if violation[q] > tolerance:
            table, other = x[at[q] : at[q + 1]], start[at[q] : at[q + 1]]
            _positive(other)
            left = _descend(problem, q, other)
            if left < violation[q]:
                for j in range(table.size):
                    table[j] = other[j]
                violation[q] = left
                _normalised(table)
