"""The loops of Convex-GBP on beliefs alone over whole tables: the mirror step of Prox-PGM, sum down, scale up.

tau holds every region's belief as a distribution; `shift` holds the logarithm of what normalising took away, so that
kappa_r (log tau_r + shift_r) is the region's reparametrised potential B_r, exactly. `Shapes`, `Edges` and `Work` are
described in `tables.py`.
"""

# pyright: reportCallIssue=false
# An intrinsic is called without the typing context that its definition takes.

from __future__ import annotations

from math import inf, sqrt
from math import log as scalar_log
from typing import Any, NamedTuple

import numpy as np
from numba import int64, njit, uint64

from consilience.kernels.agreement import MOST, Belief, Children, Messages, Order, combine
from consilience.kernels.elementary import SHORT, TINY, exp, short_exp, tiny_exp
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
from consilience.kernels.vectors import prefetch

GRADIENT, SQUARED = 0, 1
"""What a mirror step is told: the gradient, or the target of which it is the distance."""
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
def _ask_for(i: int, work: Work, msg: Any, edges: Edges) -> None:
    """Ask for the messages of the i-th listed region, which lie scattered, to be in the cache soon."""
    ptr, edge, msg_at, width = work.ptr, work.edge, edges.msg_at, edges.width
    if i + 1 < ptr.size:
        for f in range(ptr[i], ptr[i + 1]):
            for c in range(0, width[edge[f]], LINE):
                prefetch(msg, uint64(msg_at[edge[f]] + c))


@njit(**LOOP)
def _pass_on(
    i: int, whole: float, belief: Belief, msg: Any, work: Work, tables: Shapes, edges: Edges
) -> None:
    """Sum the i-th listed region, of that mass, down its edges; where it has none, bring it to mass one."""
    r, first, last = work.region[i], work.ptr[i], work.ptr[i + 1]
    lo, rows, inner = tables.at[r], tables.rows[r], tables.inner[r]
    belief.shift[r] += scalar_log(whole)
    if first == last:
        rescale(belief.tau, lo, lo + rows * inner, 1.0 / whole)
        belief.mass[r] = 1.0
    else:
        belief.mass[r] = whole
        sum_down(belief.tau, lo, rows, inner, msg, first, last, work.edge, edges)


@njit(**LOOP)
def start(
    low: int, high: int, belief: Belief, waiting: Any, messages: Messages, work: Work, tables: Shapes, edges: Edges
) -> None:  # fmt: skip
    """Sum the regions of work items `low` to `high` down their listed edges, before a sweep.

    A region marked in `waiting` takes the factors of the sweep before first, while its table is in the cache: a pass over
    memory less. Where edges are listed, the division by mass[r] is left to `combine`, which saves a pass over the cells.
    """
    tau = belief.tau
    for i in range(work.chunk[low], work.chunk[high]):
        r = work.region[i]
        lo, hi = tables.at[r], tables.at[r] + tables.rows[r] * tables.inner[r]
        _ask_for(i + 1, work, messages.cells, edges)
        if waiting[r]:
            _scale_one(
                r, work.ptr[i], work.ptr[i + 1], belief, messages, work.edge, tables, edges, tau
            )
        whole = _step_plain(tau[lo:hi])
        _pass_on(i, whole, belief, messages.cells, work, tables, edges)


@njit(**LOOP)
def step(
    low: int, high: int, mode: int, belief: Belief, slope: Slope, waiting: Any, messages: Messages, work: Work,
    tables: Shapes, edges: Edges,
) -> None:  # fmt: skip
    """The same after a mirror step tau_r *= exp(-rate_r * gradient)."""
    tau, other = belief.tau, slope.other
    for i in range(work.chunk[low], work.chunk[high]):
        r = work.region[i]
        lo, hi = tables.at[r], tables.at[r] + tables.rows[r] * tables.inner[r]
        _ask_for(i + 1, work, messages.cells, edges)
        if waiting[r]:
            _scale_one(
                r, work.ptr[i], work.ptr[i + 1], belief, messages, work.edge, tables, edges, other
            )
        rate = slope.rate[r]
        if rate == 0.0:
            whole = _step_plain(tau[lo:hi])
        elif mode == SQUARED:
            whole, square, cross = _step_squared(tau[lo:hi], other[lo:hi], rate)
            slope.square[r], slope.cross[r] = square, cross
        else:
            whole = _step_gradient(tau[lo:hi], other[lo:hi], rate)
        _pass_on(i, whole, belief, messages.cells, work, tables, edges)


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
def _agree(
    track: bool, belief: Belief, messages: Messages, round: Round, kappa: Any, tables: Shapes, edges: Edges
) -> float:  # fmt: skip
    """One sweep once the first stage's parents are summed down; the largest gap that it met comes back."""
    order, children, parents, deferred, gap = (
        round.order,
        round.children,
        round.parents,
        round.deferred,
        round.gap,
    )
    item, child = order.item, order.child
    for k in range(child.size - 1):
        if k > 0:
            sum_parents(item[k], item[k + 1], belief.tau, messages.cells, parents, tables, edges)
        combine(
            child[k], child[k + 1], track, belief, messages, gap, kappa, children, tables, edges
        )
        mark = 0 if k == 0 else -1
        scale(item[k], item[k + 1], belief, deferred, mark, messages, parents, tables, edges)
    worst = 0.0
    for i in range(gap.size):
        worst = max(worst, gap[i])
    return worst


@njit(**LOOP)
def sweeps(
    most: int, allowed: float, pending: bool, track: bool, belief: Belief, messages: Messages, round: Round, kappa: Any,
    tables: Shapes, edges: Edges,
) -> tuple[int, float]:  # fmt: skip
    """Sweeps until the gap is at most `allowed`, at most `most` of them; how many were done and the last gap.

    `pending`: whether a sweep before left factors to the regions in `round.deferred`.
    """
    every, zero = round.every, int64(0)
    done, worst = 0, inf
    while done < most and worst > allowed:
        waiting = round.deferred if pending else round.nobody
        start(zero, every.chunk.size - 1, belief, waiting, messages, every, tables, edges)
        worst = _agree(track, belief, messages, round, kappa, tables, edges)
        pending = round.gap.size > 0
        done += 1
    return done, worst


@njit(**LOOP)
def _step_ahead(
    mode: int, pending: bool, belief: Belief, slope: Slope, messages: Messages, round: Round, kappa: Any, tables: Shapes,
    edges: Edges,
) -> None:  # fmt: skip
    """A mirror step followed by what the sweeps after the last one did."""
    item, child, parents, bare = round.order.item, round.order.child, round.parents, round.bare
    zero, mark, all_of_them = int64(0), int64(1), int64(-1)
    if pending:
        scale(zero, item[1], belief, round.deferred, mark, messages, parents, tables, edges)
    step(
        zero, bare.chunk.size - 1, mode, belief, slope, round.nobody, messages, bare, tables, edges
    )
    messages.lift[:] = 0.0
    for k in range(child.size - 1):
        foresee(child[k], child[k + 1], belief.tau, messages, kappa, round.children, tables, edges)
        scale(
            item[k], item[k + 1], belief, round.nobody, all_of_them, messages, parents, tables, edges,
        )  # fmt: skip


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
    done, needed, worst, zero, every = 0, 0, inf, int64(0), round.every
    for i in range(steps):
        if ahead:
            _step_ahead(mode, pending, belief, slope, messages, round, kappa, tables, edges)
            start(zero, every.chunk.size - 1, belief, round.nobody, messages, every, tables, edges)
        else:
            if track:
                messages.drift[:] = 0.0
            waiting = round.deferred if pending else round.nobody
            step(
                zero,
                every.chunk.size - 1,
                mode,
                belief,
                slope,
                waiting,
                messages,
                every,
                tables,
                edges,
            )
        worst = _agree(track, belief, messages, round, kappa, tables, edges)
        done, needed, pending = i + 1, 1, round.gap.size > 0
        if mode == SQUARED:
            square, cross = 0.0, 0.0
            for r in range(weights.size):
                square += weights[r] * slope.square[r]
                cross += weights[r] * slope.cross[r]
            sums[i, 0], sums[i, 1] = square, cross
        if worst > allowed and most > 1:
            more, worst = sweeps(
                most - 1, allowed, pending, track, belief, messages, round, kappa, tables, edges,
            )  # fmt: skip
            needed += more
        if needed > 2 and not ahead:
            break
    return done, needed, worst
