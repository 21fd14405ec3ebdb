"""The loops of Convex-GBP on beliefs alone over whole tables: the mirror step of Prox-PGM, sum down, scale up.

tau holds every region's belief as a distribution; `shift` holds the logarithm of what normalising took away, so that
kappa_r (log tau_r + shift_r) is the region's reparametrised potential B_r, exactly. `Shapes`, `Edges` and `Work` are
described in `tables.py`.
"""

# pyright: reportCallIssue=false
# An intrinsic is called without the typing context that its definition takes.

from __future__ import annotations

from math import log as scalar_log
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange, uint64

from consilience.kernels.agreement import MOST, Belief, Children, Messages
from consilience.kernels.elementary import SHORT, TINY, exp, short_exp, tiny_exp
from consilience.kernels.fixed_rows import prefetch
from consilience.kernels.options import LOOP, PARALLEL
from consilience.kernels.tables import (
    CEILING,
    FLOOR,
    Edges,
    Shapes,
    Work,
    multiply_up,
    normalise,
    rescale,
    sum_down,
)

PLAIN, GRADIENT, SQUARED = 0, 1, 2
"""What happens to a region's belief before it is summed down."""
LINE = 8
"""Cells in a line of the cache."""


class Slope(NamedTuple):
    """What a mirror step goes along: tau_r *= exp(-rate[r] * gradient_r), then the sums that it leaves behind.

    `other` is the gradient itself (mode GRADIENT) or the target of which it is the distance, tau - other (mode SQUARED), cell by
    cell. In mode SQUARED square[r] receives sum (tau - other)^2 and cross[r] sum (tau - other) tau, both before the step.
    """

    other: Any
    rate: Any
    square: Any
    cross: Any


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
def _damp(msg: Any, e: int, edges: Edges, factor: float) -> None:
    """Multiply the message of one edge by a factor."""
    cells = msg[edges.msg_at[e] : edges.msg_at[e] + edges.width[e]]
    for c in range(cells.size):
        cells[c] *= factor


@njit(**LOOP)
def _prefetch_messages(msg: Any, i: int, work: Work, edges: Edges) -> None:
    """Ask for the messages of a region's edges, which lie scattered, to be in the cache by the time it comes up."""
    for f in range(work.ptr[i], work.ptr[i + 1]):
        e = work.edge[f]
        for c in range(0, edges.width[e], LINE):
            prefetch(msg, uint64(edges.msg_at[e] + c))


@njit(**LOOP)
def _scale_one(
    i: int,
    belief: Belief,
    messages: Messages,
    work: Work,
    tables: Shapes,
    edges: Edges,
    needed: Any,
) -> None:
    """Scale the i-th listed region by the factors on its edges and by what its mass asks for."""
    p, first, last = work.region[i], work.ptr[i], work.ptr[i + 1]
    for f in range(first, last):
        belief.shift[p] += messages.lift[work.edge[f]]
    if last > first:
        _damp(messages.cells, work.edge[first], edges, 1.0 / belief.mass[p])
    belief.mass[p] = 1.0
    multiply_up(
        belief.tau, tables.at[p], tables.rows[p], tables.inner[p], messages.cells, first, last, work.edge, edges, needed,
    )  # fmt: skip
    if last - first > 7:
        lo = tables.at[p]
        _step_plain(belief.tau[lo : lo + tables.rows[p] * tables.inner[p]])


@njit(**LOOP)
def _step_one(
    i: int, mode: int, belief: Belief, slope: Slope, waiting: Any, messages: Messages, work: Work, tables: Shapes, edges: Edges
) -> None:  # fmt: skip
    """The mirror step of the i-th listed region."""
    r = work.region[i]
    lo = tables.at[r]
    hi = lo + tables.rows[r] * tables.inner[r]
    if i + 2 < work.ptr.size:
        _prefetch_messages(messages.cells, i + 1, work, edges)
    if waiting[r]:
        _scale_one(i, belief, messages, work, tables, edges, slope.other)
    cells, rate = belief.tau[lo:hi], slope.rate[r]
    if mode == SQUARED and rate != 0.0:
        mass, square, cross = _step_squared(cells, slope.other[lo:hi], rate)
        slope.square[r], slope.cross[r] = square, cross
    elif mode == GRADIENT and rate != 0.0:
        mass = _step_gradient(cells, slope.other[lo:hi], rate)
    else:
        mass = _step_plain(cells)
    belief.mass[r] = mass
    belief.shift[r] += scalar_log(mass)
    if work.ptr[i] == work.ptr[i + 1]:
        rescale(belief.tau, lo, hi, 1.0 / mass)
        belief.mass[r] = 1.0
    else:
        sum_down(
            belief.tau, lo, tables.rows[r], tables.inner[r], messages.cells, work.ptr[i], work.ptr[i + 1],
            work.edge, edges,
        )  # fmt: skip


@njit(**PARALLEL)
def step(
    mode: int, belief: Belief, slope: Slope, waiting: Any, messages: Messages, work: Work, tables: Shapes, edges: Edges
) -> None:  # fmt: skip
    """One mirror step tau_r *= exp(-rate_r * gradient), then sum down the listed edges.

    A region marked in `waiting` takes the factors of the sweep before first, while its table is in the cache: a pass over
    memory less. mode PLAIN: no step. Where edges are listed, the division by mass[r] is left to `combine` and `scale`, which
    saves a pass over the cells.
    """
    for k in prange(work.chunk.size - 1):
        for i in range(work.chunk[k], work.chunk[k + 1]):
            _step_one(i, mode, belief, slope, waiting, messages, work, tables, edges)


@njit(**LOOP)
def _settle_one(r: int, belief: Belief, tables: Shapes) -> None:
    lo, hi = tables.at[r], tables.at[r] + tables.rows[r] * tables.inner[r]
    if belief.mass[r] != 1.0:
        rescale(belief.tau, lo, hi, 1.0 / belief.mass[r])
        belief.mass[r] = 1.0
    normalise(belief.tau, belief.shift, r, lo, hi)


@njit(**PARALLEL)
def settle(belief: Belief, tables: Shapes) -> None:
    """Divide every region by the mass left over, and bring it to mass one."""
    for r in prange(tables.at.size):
        _settle_one(r, belief, tables)


@njit(**PARALLEL)
def scale(
    belief: Belief, waiting: Any, mark: int, messages: Messages, work: Work, tables: Shapes, edges: Edges
) -> None:  # fmt: skip
    """Scale every listed region whose entry in `waiting` is `mark` by the factors on its listed edges."""
    for k in prange(work.chunk.size - 1):
        for i in range(work.chunk[k], work.chunk[k + 1]):
            if waiting[work.region[i]] == mark:
                _scale_one(i, belief, messages, work, tables, edges, belief.tau)


@njit(**PARALLEL)
def rise(before: Any, after: Any, out: Any, tables: Shapes) -> None:
    """out[r] = the largest log(after / before) of region r over its possible cells."""
    for r in prange(tables.at.size):
        best = 0.0
        lo, hi = tables.at[r], tables.at[r] + tables.rows[r] * tables.inner[r]
        old, new = before[lo:hi], after[lo:hi]
        for c in range(old.size):
            ratio = new[c] / old[c] if old[c] > 0.0 else 0.0
            best = max(best, ratio)
        out[r] = scalar_log(best)


@njit(**LOOP)
def _parents_share(i: int, kappa: Any, children: Children, edges: Edges) -> float:
    """What the drift of the i-th child's parents is weighed by: its own counting number, or theirs where it has none."""
    whole = kappa[children.region[i]]
    if whole == 0.0:
        for f in range(children.ptr[i], children.ptr[i + 1]):
            whole += kappa[edges.parent[children.edge[f]]]
    return whole


@njit(**LOOP)
def _foresee_one(
    i: int,
    tau: Any,
    messages: Messages,
    kappa: Any,
    children: Children,
    tables: Shapes,
    edges: Edges,
) -> None:
    """The messages to the i-th listed child, and the child's own move."""
    t = children.region[i]
    n = tables.rows[t] * tables.inner[t]
    back = np.zeros(n)
    whole = _parents_share(i, kappa, children, edges)
    for f in range(children.ptr[i], children.ptr[i + 1]):
        e = children.edge[f]
        lo = edges.msg_at[e]
        cells, logs = messages.cells[lo : lo + n], messages.drift[lo : lo + n]
        share = kappa[edges.parent[e]] / whole
        for c in range(n):
            v = min(max(logs[c], -MOST), MOST)
            logs[c] = v
            cells[c] = exp(v)
            back[c] += share * v
    if kappa[t] == 0.0:
        for f in range(children.ptr[i], children.ptr[i + 1]):
            lo = edges.msg_at[children.edge[f]]
            cells, logs = messages.cells[lo : lo + n], messages.drift[lo : lo + n]
            for c in range(n):
                logs[c] -= back[c]
                cells[c] = exp(logs[c])
    else:
        belief = tau[tables.at[t] : tables.at[t] + n]
        for c in range(n):
            belief[c] *= exp(-min(max(back[c], -MOST), MOST))


@njit(**PARALLEL)
def foresee(
    tau: Any, messages: Messages, kappa: Any, children: Children, tables: Shapes, edges: Edges
) -> None:
    """Messages for `scale` that repeat the drift on the parents, while each child moves against it to keep theta.

    A child with counting number zero can take nothing: there the drift's weighted mean over the parents is left out instead.
    """
    for i in prange(children.region.size):
        _foresee_one(i, tau, messages, kappa, children, tables, edges)
