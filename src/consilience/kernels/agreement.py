"""Agreeing on a child region: the weighted geometric mean of what it and its parents believe about it.

Everything is relative to the child's belief b: with S_p the table of parent p summed to the child and u_p = log(S_p / b), the
mean is b exp(sum_p share_p u_p), and parent p must scale by exp(weight (mean - u_p)). Where a sweep changes little, as nearly
always, all u_p are small and short series do; the general road takes logarithms of both sides and knows impossible cells.
"""

from __future__ import annotations

from math import log as scalar_log
from typing import Any

import numpy as np
from numba import njit, prange

from consilience.kernels.elementary import NEAR, exp, log, short_exp, short_log1p
from consilience.kernels.options import LOOP, PARALLEL
from consilience.kernels.tables import normalise

IMPOSSIBLE = -1e12
NEVER = -1e6
"""Logarithm given to a structural zero, and the value below which a mean holds one."""
MOST = 60.0
"""Largest logarithm of a factor: seven of them can not take a living cell to zero or infinity."""


@njit(**LOOP)
def _compare(cells: Any, belief: Any, inverse: Any, unit: float) -> tuple[float, float]:
    """cells *= unit; their L1 distance to the belief, and how many are not NEAR it; where all are, no exponent passes SHORT.

    Counting instead of taking a maximum keeps the loop vectorised.
    """
    l1, far = 0.0, 0.0
    for c in range(cells.size):
        v = cells[c] * unit
        cells[c] = v
        l1 += abs(v - belief[c])
        far += 0.0 if abs(v * inverse[c] - 1.0) <= NEAR else 1.0
    return l1, far


# -- the short road ------------------------------------------------------------------------------


@njit(**LOOP)
def _short_ratios(cells: Any, inverse: Any, mean: Any, share: float) -> None:
    """cells become u = log(cells / b), and mean += share u."""
    for c in range(cells.size):
        u = short_log1p(cells[c] * inverse[c] - 1.0)
        cells[c] = u
        mean[c] += share * u


@njit(**LOOP)
def _short_factors(cells: Any, mean: Any, weight: float) -> None:
    for c in range(cells.size):
        cells[c] = short_exp(weight * (mean[c] - cells[c]))


@njit(**LOOP)
def _short_mass(belief: Any, mean: Any) -> float:
    whole = 0.0
    for c in range(belief.size):
        whole += belief[c] * short_exp(mean[c])
    return whole


@njit(**LOOP)
def _short_move(belief: Any, mean: Any, weight: float) -> None:
    for c in range(belief.size):
        belief[c] *= short_exp(weight * mean[c])


# -- the general road ----------------------------------------------------------------------------


@njit(**LOOP)
def _logarithms(cells: Any) -> float:
    """cells become their logarithm; how many are deep comes back."""
    deep = 0.0
    for c in range(cells.size):
        v = cells[c]
        v = log(v) if v > 0.0 else IMPOSSIBLE
        cells[c] = v
        deep += 1.0 if v < -0.5 * MOST else 0.0
    return deep


@njit(**LOOP)
def _mix(cells: Any, mean: Any, share: float) -> None:
    for c in range(cells.size):
        mean[c] += share * cells[c]


@njit(**LOOP)
def _far(mean: Any) -> float:
    """How many |mean| pass half of MOST."""
    count = 0.0
    for c in range(mean.size):
        count += 1.0 if abs(mean[c]) > 0.5 * MOST else 0.0
    return count


@njit(**LOOP)
def _reach(cells: Any, mean: Any) -> float:
    """The largest |log(mean / sum)| over possible cells; cells hold logarithms."""
    most = 0.0
    for c in range(cells.size):
        v = abs(mean[c] - cells[c])
        most = max(most, v if mean[c] > NEVER and cells[c] > NEVER else 0.0)
    return most


@njit(**LOOP)
def _note(cells: Any, drift: Any, mean: Any, weight: float) -> None:
    """Add the logarithms of the factors to the drift."""
    for c in range(cells.size):
        drift[c] += min(max(weight * (mean[c] - cells[c]), -MOST), MOST)


@njit(**LOOP)
def _factors(cells: Any, mean: Any, weight: float) -> None:
    """cells, holding logarithms, become the factors (mean / sum)^weight; 0 for a new zero, 1 for an old one."""
    for c in range(cells.size):
        v = exp(weight * (mean[c] - cells[c])) if mean[c] > NEVER else 0.0
        cells[c] = v if cells[c] > NEVER else 1.0


@njit(**LOOP)
def _exponentials(out: Any, mean: Any) -> float:
    """out = e^mean, exactly zero where impossible; their sum comes back."""
    whole = 0.0
    for c in range(mean.size):
        v = exp(mean[c]) if mean[c] > NEVER else 0.0
        out[c] = v
        whole += v
    return whole


@njit(**PARALLEL)
def combine(
    track: bool, tau: Any, shift: Any, mass: Any, msg: Any, drift: Any, gap: Any, lift: Any, weight: Any, kappa: Any,
    children: Any, ptr: Any, edge_of: Any, parent_of: Any, at: Any, rows: Any, inner: Any, msg_at: Any,
) -> None:  # fmt: skip
    """Agree on each listed child.

    Messages come in as the parents' tables summed to the child, still to be divided by their mass, and go out as the
    factors (mean / sum)^weight by which the parents must scale. gap[i] is the largest L1 distance between a parent's sum
    and the child's belief before; lift[e] is the change of the parent's shift that belongs to edge e. With `track` the
    drift is kept.
    """
    for i in prange(children.size):
        t = children[i]
        lo = at[t]
        n = rows[t] * inner[t]
        first, last = ptr[i], ptr[i + 1]
        w = weight[i]
        share = kappa[t]
        offset = kappa[t] * shift[t]
        for f in range(first, last):
            p = parent_of[edge_of[f]]
            share += kappa[p]
            offset += kappa[p] * shift[p]
        offset /= share
        belief = tau[lo : lo + n]
        inverse = 1.0 / belief
        worst, far = 0.0, 0.0
        for f in range(first, last):
            e = edge_of[f]
            l1, more = _compare(
                msg[msg_at[e] : msg_at[e] + n], belief, inverse, 1.0 / mass[parent_of[e]]
            )
            worst = max(worst, l1)
            far += more
        gap[i] = worst
        mean = np.zeros(n)
        if far == 0.0:
            for f in range(first, last):
                e = edge_of[f]
                _short_ratios(
                    msg[msg_at[e] : msg_at[e] + n], inverse, mean, kappa[parent_of[e]] / share
                )
            log_mass = scalar_log(_short_mass(belief, mean))
            mean -= log_mass
            for f in range(first, last):
                e = edge_of[f]
                cells = msg[msg_at[e] : msg_at[e] + n]
                if track:
                    _note(cells, drift[msg_at[e] : msg_at[e] + n], mean, w)
                _short_factors(cells, mean, w)
            _short_move(belief, mean, w)
        else:
            old = belief.copy()
            _logarithms(old)
            _mix(old, mean, kappa[t] / share)
            deepest = 0.0
            for f in range(first, last):
                e = edge_of[f]
                cells = msg[msg_at[e] : msg_at[e] + n]
                deepest += _logarithms(cells)
                _mix(cells, mean, kappa[parent_of[e]] / share)
            log_mass = scalar_log(_exponentials(belief, mean))
            mean -= log_mass
            # Factors beyond MOST are not cut off, which would change theta: the whole update of this child is damped instead.
            reach = 0.0
            if deepest + _far(mean) > 0.0:  # else no factor can pass MOST: the usual case
                for f in range(first, last):
                    e = edge_of[f]
                    reach = max(reach, _reach(msg[msg_at[e] : msg_at[e] + n], mean))
            w = min(w, min(MOST, 7.0 * MOST * w) / max(reach, 1.0))
            for f in range(first, last):
                e = edge_of[f]
                cells = msg[msg_at[e] : msg_at[e] + n]
                if track:
                    _note(cells, drift[msg_at[e] : msg_at[e] + n], mean, w)
                _factors(cells, mean, w)
            if w < 1.0:
                mean *= w
                _mix(old, mean, 1.0 - w)
            _exponentials(belief, mean)
        for f in range(first, last):
            e = edge_of[f]
            lift[e] = w * (offset + log_mass - shift[parent_of[e]])
        shift[t] += w * (offset + log_mass - shift[t])
        if w < 1.0:
            normalise(tau, shift, t, lo, lo + n)
