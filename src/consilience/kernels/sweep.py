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
from numba import njit, uint64

from consilience.kernels.agreement import MOST, Belief, Children, Messages, Order, combine
from consilience.kernels.elementary import SHORT, TINY, exp, short_exp, tiny_exp
from consilience.kernels.fixed_rows import prefetch
from consilience.kernels.options import LOOP
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
def _scale_one(
    p: int, first: int, last: int, belief: Belief, messages: Messages, edge: Any, tables: Shapes, edges: Edges, needed: Any
) -> None:  # fmt: skip
    """Scale region p by the factors on its edges `edge[first:last]` and by what its mass asks for."""
    tau, shift, mass, msg, lift = (
        belief.tau,
        belief.shift,
        belief.mass,
        messages.cells,
        messages.lift,
    )
    for f in range(first, last):
        shift[p] += lift[edge[f]]
    lo, n = edges.msg_at[edge[first]], edges.width[edge[first]]
    rescale(msg, lo, lo + n, 1.0 / mass[p])
    mass[p] = 1.0
    at, rows, inner = tables.at[p], tables.rows[p], tables.inner[p]
    multiply_up(tau, at, rows, inner, msg, first, last, edge, edges, needed)
    if last - first > 7:
        _step_plain(tau[at : at + rows * inner])


@njit(**LOOP)
def step(
    low: int, high: int, mode: int, belief: Belief, slope: Slope, waiting: Any, messages: Messages, work: Work,
    tables: Shapes, edges: Edges,
) -> None:  # fmt: skip
    """One mirror step tau_r *= exp(-rate_r * gradient) of work items `low` to `high`, then sum down the listed edges.

    A region marked in `waiting` takes the factors of the sweep before first, while its table is in the cache: a pass over
    memory less. mode PLAIN: no step. Where edges are listed, the division by mass[r] is left to `combine`, which saves a pass
    over the cells.
    """
    tau, shift, mass, other = belief.tau, belief.shift, belief.mass, slope.other
    region, ptr, edge, msg, msg_at, width = (
        work.region,
        work.ptr,
        work.edge,
        messages.cells,
        edges.msg_at,
        edges.width,
    )
    for i in range(work.chunk[low], work.chunk[high]):
        r, first, last = region[i], ptr[i], ptr[i + 1]
        lo, rows, inner = tables.at[r], tables.rows[r], tables.inner[r]
        hi = lo + rows * inner
        if (
            i + 2 < ptr.size
        ):  # ask for the next region's messages, which lie scattered, to be in the cache by then
            for f in range(last, ptr[i + 2]):
                for c in range(0, width[edge[f]], LINE):
                    prefetch(msg, uint64(msg_at[edge[f]] + c))
        if waiting[r]:
            _scale_one(r, first, last, belief, messages, edge, tables, edges, other)
        rate = slope.rate[r]
        if mode == SQUARED and rate != 0.0:
            whole, square, cross = _step_squared(tau[lo:hi], other[lo:hi], rate)
            slope.square[r], slope.cross[r] = square, cross
        elif mode == GRADIENT and rate != 0.0:
            whole = _step_gradient(tau[lo:hi], other[lo:hi], rate)
        else:
            whole = _step_plain(tau[lo:hi])
        mass[r] = whole
        shift[r] += scalar_log(whole)
        if first == last:
            rescale(tau, lo, hi, 1.0 / whole)
            mass[r] = 1.0
        else:
            sum_down(tau, lo, rows, inner, msg, first, last, edge, edges)


@njit(**LOOP)
def settle(low: int, high: int, belief: Belief, tables: Shapes) -> None:
    """Divide every region by the mass left over, and bring it to mass one."""
    for r in range(low, high):
        lo, hi = tables.at[r], tables.at[r] + tables.rows[r] * tables.inner[r]
        if belief.mass[r] != 1.0:
            rescale(belief.tau, lo, hi, 1.0 / belief.mass[r])
            belief.mass[r] = 1.0
        normalise(belief.tau, belief.shift, r, lo, hi)


@njit(**LOOP)
def scale(
    low: int, high: int, belief: Belief, waiting: Any, mark: int, messages: Messages, work: Work, tables: Shapes, edges: Edges
) -> None:  # fmt: skip
    """Scale the regions of work items `low` to `high` by the factors on their listed edges: those whose entry in `waiting` is
    `mark`, or all of them if that is negative."""
    region, ptr, edge, tau = work.region, work.ptr, work.edge, belief.tau
    for i in range(work.chunk[low], work.chunk[high]):
        if mark < 0 or waiting[region[i]] == mark:
            _scale_one(region[i], ptr[i], ptr[i + 1], belief, messages, edge, tables, edges, tau)


@njit(**LOOP)
def sum_parents(
    low: int, high: int, tau: Any, msg: Any, work: Work, tables: Shapes, edges: Edges
) -> None:
    """Sum the regions of work items `low` to `high` down their listed edges."""
    region, ptr, edge = work.region, work.ptr, work.edge
    for i in range(work.chunk[low], work.chunk[high]):
        p = region[i]
        at, rows, inner = tables.at[p], tables.rows[p], tables.inner[p]
        sum_down(tau, at, rows, inner, msg, ptr[i], ptr[i + 1], edge, edges)


@njit(**LOOP)
def rise(low: int, high: int, before: Any, after: Any, out: Any, tables: Shapes) -> None:
    """out[r] = the largest log(after / before) of region r over its possible cells."""
    for r in range(low, high):
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


@njit(**LOOP)
def foresee(
    low: int, high: int, tau: Any, messages: Messages, kappa: Any, children: Children, tables: Shapes, edges: Edges
) -> None:  # fmt: skip
    """Messages for `scale` that repeat the drift on the parents, while each child moves against it to keep theta.

    A child with counting number zero can take nothing: there the drift's weighted mean over the parents is left out instead.
    """
    for i in range(low, high):
        _foresee_one(i, tau, messages, kappa, children, tables, edges)


# -- small graphs: whole iterations in one call -------------------------------------------------------


class Round(NamedTuple):
    """What a sweep goes along: every region once (`every`, with the edges of the first stage; `bare`, with none), then stage by
    stage the `children` and their `parents`. Regions marked in `deferred` leave their factors to the next pass; `nobody` marks
    none. gap[i] is what the i-th child disagreed by."""

    every: Work
    bare: Work
    order: Order
    children: Children
    parents: Work
    deferred: Any
    nobody: Any
    gap: Any


@njit(**LOOP)
def _sweep(
    mode: int, ahead: bool, pending: bool, track: bool, belief: Belief, slope: Slope, messages: Messages, round: Round,
    kappa: Any, tables: Shapes, edges: Edges,
) -> float:  # fmt: skip
    """A mirror step and a sweep; the largest gap that the sweep met comes back."""
    order, every, children, parents = round.order, round.every, round.children, round.parents
    deferred, nobody, gap = round.deferred, round.nobody, round.gap
    item, child, stages = order.item, order.child, order.child.size - 1
    if ahead:
        if pending:
            scale(0, item[1], belief, deferred, 1, messages, parents, tables, edges)
        bare = round.bare
        step(0, bare.chunk.size - 1, mode, belief, slope, nobody, messages, bare, tables, edges)
        messages.lift[:] = 0.0
        for k in range(stages):
            foresee(child[k], child[k + 1], belief.tau, messages, kappa, children, tables, edges)
            scale(item[k], item[k + 1], belief, nobody, -1, messages, parents, tables, edges)
        mode, pending = PLAIN, False
    elif mode != PLAIN and track:
        messages.drift[:] = 0.0
    waiting = deferred if pending else nobody
    step(0, every.chunk.size - 1, mode, belief, slope, waiting, messages, every, tables, edges)
    for k in range(stages):
        if k > 0:
            sum_parents(item[k], item[k + 1], belief.tau, messages.cells, parents, tables, edges)
        combine(
            child[k], child[k + 1], track, belief, messages, gap, kappa, children, tables, edges
        )
        scale(
            item[k], item[k + 1], belief, deferred, 0 if k == 0 else -1, messages, parents, tables, edges,
        )  # fmt: skip
    worst = 0.0
    for i in range(gap.size):
        worst = max(worst, gap[i])
    return worst


@njit(**LOOP)
def run(
    steps: int, most: int, allowed: float, mode: int, ahead: bool, pending: bool, track: bool, belief: Belief, slope: Slope,
    messages: Messages, round: Round, kappa: Any, tables: Shapes, edges: Edges, weights: Any, sums: Any,
) -> tuple[int, int, float]:  # fmt: skip
    """Mirror steps, each with sweeps until the gap is at most `allowed`, or `most` of them. In mode SQUARED sums[i] are the sums
    of slope.square and of slope.cross at step i, weighted table by table.

    It ends early after a step that took more than two sweeps, if not `ahead`: foreseeing the drift may help from there on.
    Steps done, sweeps of the last one and its gap come back.
    """
    done, sweeps, worst = 0, 0, 0.0
    for i in range(steps):
        worst = _sweep(
            mode, ahead, pending, track, belief, slope, messages, round, kappa, tables, edges,
        )  # fmt: skip
        done, sweeps, pending = i + 1, 1, round.gap.size > 0
        if mode == SQUARED:
            square, cross = 0.0, 0.0
            for r in range(weights.size):
                square += weights[r] * slope.square[r]
                cross += weights[r] * slope.cross[r]
            sums[i, 0], sums[i, 1] = square, cross
        while worst > allowed and sweeps < most:
            worst = _sweep(
                PLAIN, False, pending, track, belief, slope, messages, round, kappa, tables, edges,
            )  # fmt: skip
            sweeps += 1
        if sweeps > 2 and not ahead:
            break
    return done, sweeps, worst
