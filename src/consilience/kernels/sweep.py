"""The loops of Convex-GBP on beliefs alone over whole tables: the mirror step of Prox-PGM, sum down, scale up.

tau holds every region's belief as a distribution; `shift` holds the logarithm of what normalising took away, so that
kappa_r (log tau_r + shift_r) is the region's reparametrised potential B_r, exactly. The index arrays are described in
`tables.py`.
"""

# pyright: reportCallIssue=false
# An intrinsic is called without the typing context that its definition takes.

from __future__ import annotations

from math import log as scalar_log
from math import sqrt
from typing import Any

import numpy as np
from numba import njit, prange, uint64

from consilience.kernels.agreement import MOST
from consilience.kernels.elementary import SHORT, TINY, exp, short_exp, tiny_exp
from consilience.kernels.options import LOOP, PARALLEL
from consilience.kernels.tables import CEILING, FLOOR, multiply_up, normalise, rescale, sum_down
from consilience.kernels.vectors import prefetch

PLAIN, GRADIENT, SQUARED = 0, 1, 2
"""What happens to a region's belief before it is summed down."""
LINE = 8
"""Cells in a line of the cache."""


@njit(**LOOP)
def _alive(u: float, v: float) -> float:
    """v, where u was the value before. Zero stays zero (an impossible cell); anything else stays where it can come back from."""
    return min(max(v, FLOOR), CEILING) if u > 0.0 else 0.0


@njit(**LOOP)
def _kept(u: float, v: float) -> float:
    """The same where v is at most a little larger than u: a floor of min(u, FLOOR), for two instructions."""
    least = u if u < FLOOR else FLOOR
    return v if v > least else least


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
    """cells *= exp(-rate (cells - wanted)); new mass, and the sums of (cells - wanted)^2 and (cells - wanted) cells before.

    A first pass brings the cells into the cache; its sum of fourth powers bounds how far any cell moves (a maximum would not
    vectorise), nearly always so little that a shorter series of exp is exact.
    """
    mass, square, fourth, cross = 0.0, 0.0, 0.0, 0.0
    for c in range(cells.size):
        u = cells[c]
        gap = u - wanted[c]
        squared = gap * gap
        square += squared
        fourth += squared * squared
        cross += gap * u
    far = rate * sqrt(sqrt(fourth))
    if far <= TINY:
        for c in range(cells.size):
            u = cells[c]
            v = _kept(u, u * tiny_exp(-rate * (u - wanted[c])))
            cells[c] = v
            mass += v
    elif far <= SHORT:
        for c in range(cells.size):
            u = cells[c]
            v = _kept(u, u * short_exp(-rate * (u - wanted[c])))
            cells[c] = v
            mass += v
    else:
        for c in range(cells.size):
            u = cells[c]
            v = _alive(u, u * exp(-rate * (u - wanted[c])))
            cells[c] = v
            mass += v
    return mass, square, cross


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


@njit(**LOOP)
def _send_for(msg: Any, first: int, last: int, edge_of: Any, msg_at: Any, width: Any) -> None:
    """Ask for the messages of a region's edges, which lie scattered, to be in the cache by the time it comes up."""
    for f in range(first, last):
        e = edge_of[f]
        for c in range(0, width[e], LINE):
            prefetch(msg, uint64(msg_at[e] + c))


@njit(**LOOP)
def _pay(
    p: int, tau: Any, shift: Any, mass: Any, msg: Any, lift: Any, first: int, last: int, edge_of: Any, at: Any,
    rows: Any, inner: Any, kind: Any, map_at: Any, msg_at: Any, width: Any, maps: Any, needed: Any,
) -> None:  # fmt: skip
    """Scale region p by the factors on its edges and by what its mass asks for."""
    for f in range(first, last):
        shift[p] += lift[edge_of[f]]
    _spread(msg, first, first + 1, edge_of, msg_at, width, 1.0 / mass[p])
    mass[p] = 1.0
    multiply_up(
        tau, at[p], rows[p], inner[p], msg, first, last, edge_of, kind, map_at, msg_at, maps, needed,
    )  # fmt: skip
    if last - first > 7:
        _step_plain(tau[at[p] : at[p] + rows[p] * inner[p]])


@njit(**PARALLEL)
def step(
    mode: int, tau: Any, shift: Any, mass: Any, other: Any, rate: Any, square: Any, cross: Any, owes: Any, lift: Any,
    msg: Any, chunk: Any, regions: Any, ptr: Any, edge_of: Any, at: Any, rows: Any, inner: Any, kind: Any, map_at: Any,
    msg_at: Any, width: Any, maps: Any,
) -> None:  # fmt: skip
    """One mirror step tau_r *= exp(-rate_r * gradient), then sum down the listed edges.

    A region that owes the factors of the sweep before pays first, while its table is in the cache: a pass over memory less.

    mode GRADIENT: the gradient is `other`. mode SQUARED: it is tau - other, and square[r], cross[r] receive the two
    sums that value and linearisation need. mode PLAIN: no step. Where edges
    are listed, the division by mass[r] is left to `combine` and `scale`, which saves a pass over the cells.
    """
    for k in prange(chunk.size - 1):
        for i in range(chunk[k], chunk[k + 1]):
            r = regions[i]
            lo = at[r]
            hi = lo + rows[r] * inner[r]
            if i + 2 < ptr.size:
                _send_for(msg, ptr[i + 1], ptr[i + 2], edge_of, msg_at, width)
            if owes[r]:
                _pay(
                    r, tau, shift, mass, msg, lift, ptr[i], ptr[i + 1], edge_of, at, rows, inner, kind, map_at, msg_at,
                    width, maps, other,
                )  # fmt: skip
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


@njit(**PARALLEL)
def scale(
    tau: Any, shift: Any, mass: Any, owes: Any, owing: int, msg: Any, lift: Any, chunk: Any, parents: Any, ptr: Any,
    edge_of: Any, at: Any, rows: Any, inner: Any, kind: Any, map_at: Any, msg_at: Any, width: Any, maps: Any,
) -> None:  # fmt: skip
    """Scale every listed parent whose mark in `owes` is `owing` by the factors on its listed edges."""
    for k in prange(chunk.size - 1):
        for i in range(chunk[k], chunk[k + 1]):
            if owes[parents[i]] == owing:
                _pay(
                    parents[i], tau, shift, mass, msg, lift, ptr[i], ptr[i + 1], edge_of, at, rows, inner, kind, map_at,
                    msg_at, width, maps, tau,
                )  # fmt: skip


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
