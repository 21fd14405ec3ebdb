"""Iterative proportional fitting on a junction tree of supports: a walk around the tree that meets every target on its way.

The walk enters a clique, multiplies in what it was told, meets the clique's targets one after another, then visits the cliques
below and hears them. Wherever the walk is, the table there is the exact marginal of the current distribution, so
every step is a true projection. A clique's table lists only the cells that can occur; a map says which cell of a separator
or target each of them belongs to. Targets of finite stiffness are approached instead of met: noisy tables.
"""

from __future__ import annotations

from math import exp, log
from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange

from consilience.kernels.options import LOOP, PARALLEL

FLOOR = 1e-100
LEAST_SUM = 1e-90
"""What a cell and a sum of cells are kept above, so that they can come back."""
WIDEST = 25.0
"""Potentials are kept within plus and minus this: targets that contradict each other would drive them on until they overflow."""
BLOCK_CELLS = 1 << 16
MOST_BLOCKS = 8
NEWTON = 30
"""Large cliques are cut into blocks with sums of their own, added in order: bits do not depend on the number of threads."""


class Walk(NamedTuple):
    """Step i is at clique[i], cells at[c] to at[c + 1]. It hears child heard[i] through the map at maps[heard_map[i]:]
    and is summed to child told[i] through the map at maps[told_map[i]:]; -1 for none. fits[i]: what is summed to is a target.

    Child k has cells below[k] to below[k + 1]; those from `measured` on are the targets.
    """

    at: Any
    below: Any
    measured: Any
    maps: Any
    clique: Any
    heard: Any
    heard_map: Any
    told: Any
    told_map: Any
    fits: Any


@njit(**LOOP)
def _pass_over(
    x: Any, factor: Any, heard: Any, out: Any, told: Any, hears: bool, tells: bool
) -> None:
    """x *= factor along one map, then out += x along another, in one pass."""
    if hears and tells:
        for j in range(x.size):
            v = max(x[j] * factor[heard[j]], FLOOR)
            x[j] = v
            out[told[j]] += v
    elif hears:
        for j in range(x.size):
            x[j] = max(x[j] * factor[heard[j]], FLOOR)
    elif tells:
        for j in range(x.size):
            out[told[j]] += x[j]


@njit(**LOOP)
def _meet(have: Any, want: Any, theta: Any, factor: Any, pace: float) -> float:
    """The factor that moves a table to its target, to the power `pace`; its L1 distance before comes back."""
    distance = 0.0
    for j in range(have.size):
        distance += abs(have[j] - want[j])
        if have[j] <= 0.0 or want[j] <= 0.0:  # no cell to carry it, or nothing to carry
            factor[j] = 1.0
            continue
        # Potentials that have met the limit stay there, so that theta and the tables tell the same story.
        change = log(max(want[j], LEAST_SUM) / max(have[j], LEAST_SUM))
        new = min(max(theta[j] + pace * change, -WIDEST), WIDEST)
        factor[j] = exp(new - theta[j])
        theta[j] = new
    return distance


@njit(**LOOP)
def _approach(
    have: Any, want: Any, theta: Any, factor: Any, stiffness: float, a: Any, f: Any, d: Any
) -> float:
    """One block of the dual of: minimise KL + stiffness / 2 ||q - want||^2. Its L1 move comes back.

    The optimum has theta = stiffness (want - q) and q = have exp(theta - old theta - zeta), so that log q + stiffness q =
    log have - old theta + stiffness want - zeta; zeta makes q sum to one. Newton on log q (kept in `factor`) and zeta together.
    """
    for j in range(have.size):
        if have[j] <= LEAST_SUM:
            continue
        a[j] = log(have[j]) - theta[j] + stiffness * want[j]
        z = a[j] + log(
            stiffness
        )  # stiffness q is Wright's omega of z: a start that Newton can not overshoot from
        factor[j] = log(z - log(z)) if z > 1.0 else z - log(1.0 + exp(z))
        factor[j] -= log(stiffness)
    zeta = 0.0
    for _ in range(NEWTON):
        total, pull, slope = 0.0, 0.0, 0.0
        for j in range(have.size):
            if have[j] <= LEAST_SUM:
                continue
            q = exp(factor[j])
            d[j] = 1.0 / (1.0 + stiffness * q)
            f[j] = factor[j] + stiffness * q - a[j] + zeta
            total += q
            pull += q * f[j] * d[j]
            slope += q * d[j]
        if slope <= 0.0:
            break
        change = min(max((total - 1.0 - pull) / slope, -1.0), 1.0)
        zeta += change
        for j in range(have.size):
            if have[j] > LEAST_SUM:
                factor[j] -= (f[j] + change) * d[j]
        if abs(total - 1.0) < 1e-10 and abs(change) < 1e-10:
            break
    distance = 0.0
    for j in range(have.size):
        if have[j] <= LEAST_SUM:
            factor[j] = 1.0
            continue
        q = exp(factor[j])
        distance += abs(q - have[j])
        factor[j] = q / have[j]
        theta[j] = stiffness * (want[j] - q)
    return distance


@njit(**LOOP)
def _pass_on(have: Any, before: Any, factor: Any) -> None:
    """A separator takes its new sums; what its other side is to be multiplied by is new over old."""
    for j in range(have.size):
        # Never below what the floored cells beneath it add up to, or they would shout back next time.
        v = max(have[j], LEAST_SUM)
        factor[j] = v / max(before[j], LEAST_SUM)
        before[j] = v


@njit(**PARALLEL)
def walk(
    steps: Walk,
    x: Any,
    below: Any,
    target: Any,
    theta: Any,
    factor: Any,
    sums: Any,
    distance: Any,
    pace: float,
    stiffness: Any,
) -> None:
    """Once around the tree. `distance[i]` is how far, in L1, step i found its target (0 where it had none).

    `below` holds the separators' sums, then the targets'; `factor` is as long; `sums` has MOST_BLOCKS rows. `stiffness` has
    an entry per target, infinite for those to be met; `pace` is for these.
    """
    start = steps.below[steps.measured]
    for i in range(steps.clique.size):
        c = steps.clique[i]
        lo, n = steps.at[c], steps.at[c + 1] - steps.at[c]
        h, t = steps.heard[i], steps.told[i]
        f_lo = steps.below[max(h, 0)]
        t_lo = steps.below[max(t, 0)]
        width = steps.below[t + 1] - t_lo if t >= 0 else 0
        heard = (
            steps.maps[steps.heard_map[i] : steps.heard_map[i] + n] if h >= 0 else steps.maps[:0]
        )
        told = steps.maps[steps.told_map[i] : steps.told_map[i] + n] if t >= 0 else steps.maps[:0]
        blocks = min(max(n // BLOCK_CELLS, 1), MOST_BLOCKS)
        sums[:blocks, :width] = 0.0
        if blocks == 1:
            _pass_over(x[lo : lo + n], factor[f_lo:], heard, sums[0], told, h >= 0, t >= 0)
        else:
            for b in prange(blocks):
                p, q = n * b // blocks, n * (b + 1) // blocks
                _pass_over(
                    x[lo + p : lo + q], factor[f_lo:], heard[p:q] if h >= 0 else heard, sums[b],
                    told[p:q] if t >= 0 else told, h >= 0, t >= 0,
                )  # fmt: skip
            for b in range(1, blocks):
                for j in range(width):
                    sums[0, j] += sums[b, j]
        distance[i] = 0.0
        if t < 0:
            continue
        have, after = sums[0, :width], factor[t_lo : t_lo + width]
        if steps.fits[i]:
            a = t_lo - start
            want, potential = target[a : a + width], theta[a : a + width]
            stiff = stiffness[t - steps.measured]
            if stiff == np.inf:
                distance[i] = _meet(have, want, potential, after, pace)
            else:
                distance[i] = _approach(
                    have, want, potential, after, stiff, sums[1], sums[2], sums[3]
                )
        else:
            _pass_on(have, below[t_lo : t_lo + width], after)


@njit(**LOOP)
def add_up(to: Any, values: Any, width: int) -> Any:
    """Entry k is the sum of the values that belong to k."""
    found = np.zeros(width)
    for j in range(values.size):
        found[to[j]] += values[j]
    return found


@njit(**LOOP)
def locate(cells: Any, kept: Any, strides: Any) -> Any:
    """Where each cell (a row of codes) lies in the table of the kept attributes."""
    found = np.zeros(len(cells), np.int64)
    for k in range(kept.size):
        a, s = kept[k], strides[k]
        for j in range(len(cells)):
            found[j] += np.int64(cells[j, a]) * s
    return found
