"""The loops of the exponential mechanism's likelihood: log sum_j 2 cosh(beta (mu_j - a_j)) for many sparse a, and its gradient.

A cell is *high* where beta mu exceeds a bound: it is summed round by round. All others are summed once, as if a were zero, and
each round corrects the few cells where its a is not; without high cells among them nothing cancels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from consilience.kernels.elementary import exp
from consilience.kernels.options import LOOP


@njit(**LOOP)
def low_sum(first: int, last: int, mu: Any, beta: float, slot: Any, parts: Any) -> None:
    """parts[c] = sum over the low cells of chunk c of 2 cosh(beta mu)."""
    for c in range(first, last):
        lo, hi = c * mu.size // parts.size, (c + 1) * mu.size // parts.size
        total = 0.0
        for j in range(lo, hi):
            e = exp(min(beta * mu[j], 60.0))
            total += e + 1.0 / e if slot[j] < 0 else 0.0
        parts[c] = total


@njit(**LOOP)
def _fill_high(
    cell: Any, share: Any, lo: int, hi: int, slot: Any, mu: Any, high: Any, out: Any
) -> None:
    """out = mu - a on the high cells."""
    for h in range(high.size):
        out[h] = mu[high[h]]
    for f in range(lo, hi):
        h = slot[cell[f]]
        if h >= 0:
            out[h] -= share[f]


@njit(**LOOP)
def log_partition(
    first: int, last: int, mu: Any, beta: float, rounds: Any, ptr: Any, cell: Any, share: Any, slot: Any, high: Any,
    base: float, top: Any, mass: Any,
) -> None:  # fmt: skip
    """For each listed round: sum_j 2 cosh(beta (mu_j - a_j)) = mass * exp(top)."""
    for i in range(first, last):
        t = rounds[i]
        away = np.empty(high.size)
        _fill_high(cell, share, ptr[t], ptr[t + 1], slot, mu, high, away)
        largest = 0.0
        for h in range(high.size):
            largest = max(largest, abs(beta * away[h]))
        for f in range(ptr[t], ptr[t + 1]):
            if slot[cell[f]] < 0:
                largest = max(largest, abs(beta * (mu[cell[f]] - share[f])))
        shrink = np.exp(-largest)
        total = base * shrink
        for h in range(high.size):
            x = beta * away[h]
            total += np.exp(x - largest) + np.exp(-x - largest)
        for f in range(ptr[t], ptr[t + 1]):
            j = cell[f]
            if slot[j] < 0:
                x, y = beta * (mu[j] - share[f]), beta * mu[j]
                total += np.exp(x - largest) + np.exp(-x - largest)
                total -= (np.exp(y) + np.exp(-y)) * shrink
        top[t], mass[t] = largest, total


@njit(**LOOP)
def add_gradient(
    mu: Any, beta: float, rounds: Any, times: Any, ptr: Any, cell: Any, share: Any, slot: Any, high: Any, top: Any,
    mass: Any, grad: Any,
) -> None:  # fmt: skip
    """grad_j += sum over rounds of times * beta * 2 sinh(beta (mu_j - a_j)) / partition."""
    away = np.empty(high.size)
    common = 0.0
    for i in range(rounds.size):
        t = rounds[i]
        factor = times[t] * beta / mass[t]
        shrink = np.exp(-top[t])
        common += factor * shrink
        _fill_high(cell, share, ptr[t], ptr[t + 1], slot, mu, high, away)
        for h in range(high.size):
            x = beta * away[h]
            grad[high[h]] += factor * (np.exp(x - top[t]) - np.exp(-x - top[t]))
        for f in range(ptr[t], ptr[t + 1]):
            j = cell[f]
            if slot[j] < 0:
                x, y = beta * (mu[j] - share[f]), beta * mu[j]
                grad[j] += factor * (np.exp(x - top[t]) - np.exp(-x - top[t]))
                grad[j] -= factor * shrink * (np.exp(y) - np.exp(-y))
    for j in range(mu.size):
        if slot[j] < 0:
            e = exp(min(beta * mu[j], 60.0))
            grad[j] += common * (e - 1.0 / e)
