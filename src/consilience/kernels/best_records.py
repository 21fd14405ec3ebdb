"""The record that satisfies most weighted conjunctions, less a perturbation: local search, a record per perturbation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from consilience.kernels.options import LOOP


@njit(**LOOP)
def _worth(x: Any, attribute: Any, value: Any, weight: Any, cost: Any, first: Any) -> float:
    """sum of the weights of the conjunctions that x satisfies, minus what its values cost."""
    total = 0.0
    for i in range(x.size):
        total -= cost[first[i] + x[i]]
    for q in range(weight.size):
        meets = True
        for k in range(attribute.shape[1]):
            a = attribute[q, k]
            if a >= 0 and x[a] != value[q, k]:
                meets = False
                break
        if meets:
            total += weight[q]
    return total


@njit(**LOOP)
def _coordinates(
    x: Any, attribute: Any, value: Any, weight: Any, cost: Any, first: Any, size: Any, ptr: Any, items: Any, gain: Any,
) -> bool:  # fmt: skip
    """Set each attribute in turn to its best value given the others; whether any changed."""
    changed = False
    for i in range(x.size):
        for v in range(size[i]):
            gain[v] = -cost[first[i] + v]
        for f in range(ptr[i], ptr[i + 1]):
            q = items[f]
            own, meets = -1, True
            for k in range(attribute.shape[1]):
                a = attribute[q, k]
                if a == i:
                    own = value[q, k]
                elif a >= 0 and x[a] != value[q, k]:
                    meets = False
                    break
            if meets:
                gain[own] += weight[q]
        best = x[i]
        for v in range(size[i]):
            if gain[v] > gain[best]:
                best = v
        if best != x[i]:
            x[i] = best
            changed = True
    return changed


@njit(**LOOP)
def _climb(
    x: Any, attribute: Any, value: Any, weight: Any, cost: Any, first: Any, size: Any, ptr: Any, items: Any, gain: Any,
    trial: Any, passes: int,
) -> float:  # fmt: skip
    """Coordinate moves until none helps, then jumps to the cell of a conjunction, and again until no jump helps."""
    worth = 0.0
    for _ in range(passes):
        for _ in range(passes):
            if not _coordinates(x, attribute, value, weight, cost, first, size, ptr, items, gain):
                break
        worth = _worth(x, attribute, value, weight, cost, first)
        improved = False
        for q in range(weight.size):
            if weight[q] <= 0.0:
                continue
            trial[:] = x
            moved = False
            for k in range(attribute.shape[1]):
                a = attribute[q, k]
                if a >= 0 and trial[a] != value[q, k]:
                    trial[a] = value[q, k]
                    moved = True
            if not moved:
                continue
            there = _worth(trial, attribute, value, weight, cost, first)
            if there > worth + 1e-12:
                x[:] = trial
                worth = there
                improved = True
        if not improved:
            break
    return worth


@njit(**LOOP)
def best_records(
    low: int, high: int, records: Any, attribute: Any, value: Any, weight: Any, costs: Any, starts: Any, first: Any, size: Any,
    ptr: Any, items: Any, passes: int,
) -> None:  # fmt: skip
    """records[j] = a good maximiser of sum_q weight_q [x meets q] - sum_i costs[j, first_i + x_i].

    Row q of `attribute` and `value` is a conjunction (attribute -1: no condition); items[ptr[i] : ptr[i + 1]] are those on
    attribute i. The climb starts at the cheapest values, and again with the conjunction starts[j, s] put in (-1: no such start).
    """
    for j in range(low, high):
        d = first.size
        cheapest, x, trial = np.empty(d, np.int64), np.empty(d, np.int64), np.empty(d, np.int64)
        gain = np.empty(size.max())
        cost = costs[j]
        for i in range(d):
            best = 0
            for v in range(1, size[i]):
                if cost[first[i] + v] < cost[first[i] + best]:
                    best = v
            cheapest[i] = best
        x[:] = cheapest
        most = _climb(
            x, attribute, value, weight, cost, first, size, ptr, items, gain, trial, passes
        )
        records[j] = x
        for s in range(starts.shape[1]):
            q = starts[j, s]
            if q < 0:
                continue
            x[:] = cheapest
            for k in range(attribute.shape[1]):
                if attribute[q, k] >= 0:
                    x[attribute[q, k]] = value[q, k]
            worth = _climb(
                x, attribute, value, weight, cost, first, size, ptr, items, gain, trial, passes
            )
            if worth > most:
                most = worth
                records[j] = x
