"""The loops of Convex-GBP on beliefs alone: sum down, combine, scale up; and the mirror step of Prox-PGM.

tau holds every region's belief as a distribution; `shift` holds the logarithm of what normalising took away, so that
kappa_r (log tau_r + shift_r) is the region's reparametrised potential B_r, exactly. The index arrays are described in
`tables.py`.
"""

from __future__ import annotations

from math import log as scalar_log
from typing import Any

import numpy as np
from numba import njit, prange

from consilience.kernels.elementary import exp, log
from consilience.kernels.options import LOOP, PARALLEL
from consilience.kernels.tables import CEILING, FLOOR, multiply_up, rescale, sum_down, total

PLAIN, GRADIENT, SQUARED = 0, 1, 2
"""What happens to a region's belief before it is summed down."""

IMPOSSIBLE = -1e12
NEVER = -1e6
"""Logarithm given to a structural zero, and the value below which a mean holds one."""
MOST = 60.0
"""Largest logarithm of a factor: seven of them can not take a living cell to zero or infinity."""


@njit(**LOOP)
def _alive(u: float, v: float) -> float:
    """v, where u was the value before. Zero stays zero (an impossible cell); anything else stays where it can come back from."""
    return min(max(v, FLOOR), CEILING) if u > 0.0 else 0.0


@njit(**LOOP)
def _step_plain(cells: Any) -> float:
    mass = 0.0
    for c in range(cells.size):
        v = _alive(cells[c], cells[c])
        cells[c] = v
        mass += v
    return mass


@njit(**LOOP)
def _step_gradient(cells: Any, slope: Any, rate: float) -> float:
    """cells *= exp(-rate slope); the new mass comes back."""
    mass = 0.0
    for c in range(cells.size):
        u = cells[c]
        v = _alive(u, u * exp(-rate * slope[c]))
        cells[c] = v
        mass += v
    return mass


@njit(**LOOP)
def _step_squared(cells: Any, wanted: Any, rate: float) -> tuple[float, float, float]:
    """cells *= exp(-rate (cells - wanted)); new mass, and the sums of (cells - wanted)^2 and (cells - wanted) cells before."""
    mass, square, cross = 0.0, 0.0, 0.0
    for c in range(cells.size):
        u = cells[c]
        gap = u - wanted[c]
        square += gap * gap
        cross += gap * u
        v = _alive(u, u * exp(-rate * gap))
        cells[c] = v
        mass += v
    return mass, square, cross


@njit(**LOOP)
def normalise(tau: Any, shift: Any, r: int, lo: int, hi: int) -> None:
    """Bring a region's belief back to mass one, remembering the factor."""
    mass = total(tau, lo, hi)
    if abs(mass - 1.0) > 1e-14:
        rescale(tau, lo, hi, 1.0 / mass)
        shift[r] += scalar_log(mass)


@njit(**LOOP)
def _spread(
    msg: Any, first: int, last: int, edge_of: Any, msg_at: Any, width: Any, factor: float
) -> None:
    """Multiply the messages of a region's edges by a factor."""
    for f in range(first, last):
        e = edge_of[f]
        cells = msg[msg_at[e] : msg_at[e] + width[e]]
        for c in range(cells.size):
            cells[c] *= factor


@njit(**PARALLEL)
def step(
    mode: int, tau: Any, shift: Any, mass: Any, other: Any, rate: Any, square: Any, cross: Any, msg: Any, chunk: Any,
    regions: Any, ptr: Any, edge_of: Any, at: Any, rows: Any, inner: Any, kind: Any, map_at: Any, msg_at: Any,
    width: Any, maps: Any,
) -> None:  # fmt: skip
    """One mirror step tau_r *= exp(-rate_r * gradient), then sum down the listed edges.

    mode GRADIENT: the gradient is `other`. mode SQUARED: it is tau - other, and square[r], cross[r] receive the two
    sums that value and linearisation need. mode PLAIN: no step. Where edges
    are listed, the division by mass[r] is left to `combine` and `scale`, which saves a pass over the cells.
    """
    for k in prange(chunk.size - 1):
        for i in range(chunk[k], chunk[k + 1]):
            r = regions[i]
            lo = at[r]
            hi = lo + rows[r] * inner[r]
            if mode == SQUARED and rate[r] != 0.0:
                mass[r], square[r], cross[r] = _step_squared(tau[lo:hi], other[lo:hi], rate[r])
            elif mode == GRADIENT and rate[r] != 0.0:
                mass[r] = _step_gradient(tau[lo:hi], other[lo:hi], rate[r])
            else:
                mass[r] = _step_plain(tau[lo:hi])
            shift[r] += scalar_log(mass[r])
            if ptr[i] == ptr[i + 1]:
                rescale(tau, lo, hi, 1.0 / mass[r])
                mass[r] = 1.0
            else:
                sum_down(
                    tau, lo, rows[r], inner[r], msg, ptr[i], ptr[i + 1], edge_of, kind, map_at, msg_at, width, maps,
                )  # fmt: skip


@njit(**PARALLEL)
def settle(tau: Any, shift: Any, mass: Any, at: Any, rows: Any, inner: Any) -> None:
    """Divide every region by the mass left over, and bring it to mass one."""
    for r in prange(at.size):
        lo, hi = at[r], at[r] + rows[r] * inner[r]
        if mass[r] != 1.0:
            rescale(tau, lo, hi, 1.0 / mass[r])
            mass[r] = 1.0
        normalise(tau, shift, r, lo, hi)


@njit(**LOOP)
def _gather(cells: Any, belief: Any, mean: Any, share: float, unit: float) -> tuple[float, float]:
    """mean += share * log(cells), cells become their logarithm; the L1 distance to the belief and how many are deep come back.

    Counting instead of taking a maximum keeps the loop vectorised.
    """
    l1, deep = 0.0, 0.0
    for c in range(cells.size):
        v = cells[c] * unit
        l1 += abs(v - belief[c])
        v = log(v) if v > 0.0 else IMPOSSIBLE
        cells[c] = v
        deep += 1.0 if v < -0.5 * MOST else 0.0
        mean[c] += share * v
    return l1, deep


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


@njit(**PARALLEL)
def combine(
    track: bool, tau: Any, shift: Any, mass: Any, msg: Any, drift: Any, gap: Any, lift: Any, weight: Any, kappa: Any,
    children: Any, ptr: Any, edge_of: Any, parent_of: Any, at: Any, rows: Any, inner: Any, msg_at: Any,
) -> None:  # fmt: skip
    """Agree on each listed child: the weighted geometric mean of what it and its parents believe about it.

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
        for f in range(first, last):
            share += kappa[parent_of[edge_of[f]]]
        mean = np.empty(n)
        belief = tau[lo : lo + n]
        mine = kappa[t] / share
        offset = mine * shift[t]
        for c in range(n):
            v = belief[c]
            mean[c] = mine * (log(v) if v > 0.0 else IMPOSSIBLE)
        worst, deepest = 0.0, 0.0
        for f in range(first, last):
            e = edge_of[f]
            p = parent_of[e]
            offset += kappa[p] / share * shift[p]
            l1, deep = _gather(
                msg[msg_at[e] : msg_at[e] + n], belief, mean, kappa[p] / share, 1.0 / mass[p]
            )
            worst = max(worst, l1)
            deepest += deep
        gap[i] = worst
        whole = 0.0
        for c in range(n):
            whole += exp(mean[c])
        log_mass = scalar_log(whole)
        for c in range(n):
            mean[c] -= log_mass
        # Factors beyond MOST are not cut off, which would change theta: the whole update of this child is damped instead.
        reach = 0.0
        if deepest + _far(mean) > 0.0:  # else no factor can pass MOST: the usual case
            for f in range(first, last):
                e = edge_of[f]
                reach = max(reach, _reach(msg[msg_at[e] : msg_at[e] + n], mean))
        w = min(w, min(MOST, 7.0 * MOST * w) / max(reach, 1.0))
        for f in range(first, last):
            e = edge_of[f]
            lift[e] = w * (offset + log_mass - shift[parent_of[e]])
            if track:
                _note(msg[msg_at[e] : msg_at[e] + n], drift[msg_at[e] : msg_at[e] + n], mean, w)
            _factors(msg[msg_at[e] : msg_at[e] + n], mean, w)
        if w < 1.0:
            for c in range(n):
                v = belief[c]
                mean[c] = w * mean[c] + (1.0 - w) * (log(v) if v > 0.0 else IMPOSSIBLE)
        for c in range(n):
            v = mean[c]
            belief[c] = exp(v) if v > NEVER else 0.0
        if w < 1.0:
            shift[t] += w * (offset + log_mass - shift[t])
            normalise(tau, shift, t, lo, lo + n)
        else:
            shift[t] = offset + log_mass


@njit(**PARALLEL)
def scale(
    tau: Any, shift: Any, mass: Any, msg: Any, lift: Any, chunk: Any, parents: Any, ptr: Any, edge_of: Any, at: Any,
    rows: Any, inner: Any, kind: Any, map_at: Any, msg_at: Any, width: Any, maps: Any,
) -> None:  # fmt: skip
    """Scale every listed parent by the factors on its listed edges and by what its mass asks for."""
    for k in prange(chunk.size - 1):
        for i in range(chunk[k], chunk[k + 1]):
            p = parents[i]
            for f in range(ptr[i], ptr[i + 1]):
                shift[p] += lift[edge_of[f]]
            _spread(msg, ptr[i], ptr[i] + 1, edge_of, msg_at, width, 1.0 / mass[p])
            mass[p] = 1.0
            multiply_up(
                tau, at[p], rows[p], inner[p], msg, ptr[i], ptr[i + 1], edge_of, kind, map_at, msg_at, maps,
            )  # fmt: skip
            if ptr[i + 1] - ptr[i] > 7:
                _step_plain(tau[at[p] : at[p] + rows[p] * inner[p]])


@njit(**PARALLEL)
def peak(tau: Any, out: Any, at: Any, rows: Any, inner: Any) -> None:
    """out[r] = the largest cell of region r."""
    for r in prange(at.size):
        best = 0.0
        for c in range(at[r], at[r] + rows[r] * inner[r]):
            best = max(best, tau[c])
        out[r] = best


@njit(**PARALLEL)
def rise(before: Any, after: Any, out: Any, at: Any, rows: Any, inner: Any) -> None:
    """out[r] = the largest log(after / before) of region r over its possible cells."""
    for r in prange(at.size):
        best = 0.0
        lo = at[r]
        old, new = before[lo : lo + rows[r] * inner[r]], after[lo : lo + rows[r] * inner[r]]
        for c in range(old.size):
            ratio = new[c] / old[c] if old[c] > 0.0 else 0.0
            best = max(best, ratio)
        out[r] = scalar_log(best)


@njit(**PARALLEL)
def foresee(
    tau: Any, msg: Any, drift: Any, kappa: Any, children: Any, ptr: Any, edge_of: Any, parent_of: Any, at: Any,
    rows: Any, inner: Any, msg_at: Any,
) -> None:  # fmt: skip
    """Messages for `scale` that repeat the drift on the parents, while each child moves against it to keep theta.

    A child with counting number zero can take nothing: there the drift's weighted mean over the parents is left out instead.
    """
    for i in prange(children.size):
        t = children[i]
        n = rows[t] * inner[t]
        back = np.zeros(n)
        whole = kappa[t]
        if whole == 0.0:
            for f in range(ptr[i], ptr[i + 1]):
                whole += kappa[parent_of[edge_of[f]]]
        for f in range(ptr[i], ptr[i + 1]):
            e = edge_of[f]
            cells, logs = msg[msg_at[e] : msg_at[e] + n], drift[msg_at[e] : msg_at[e] + n]
            share = kappa[parent_of[e]] / whole
            for c in range(n):
                v = min(max(logs[c], -MOST), MOST)
                logs[c] = v
                cells[c] = exp(v)
                back[c] += share * v
        if kappa[t] == 0.0:
            for f in range(ptr[i], ptr[i + 1]):
                e = edge_of[f]
                cells, logs = msg[msg_at[e] : msg_at[e] + n], drift[msg_at[e] : msg_at[e] + n]
                for c in range(n):
                    logs[c] -= back[c]
                    cells[c] = exp(logs[c])
        else:
            belief = tau[at[t] : at[t] + n]
            for c in range(n):
                belief[c] *= exp(-min(max(back[c], -MOST), MOST))
