"""Small graphs: whole sweeps of Convex-GBP and whole blocks of Prox-PGM iterations in one call, on one thread.

Large ones go pass by pass (`solvers/sweeper.py`). A literal number would be a type of its own, and what it is passed to would be
compiled once more: hence `int64(0)`.
"""

# pyright: reportArgumentType=false
# Numbers of 64 bits are what the kernels take for `int`.

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from numba import int64, njit

from consilience.kernels.agreement import Belief, Children, Messages, Order, combine
from consilience.kernels.options import LOOP
from consilience.kernels.sweep import SQUARED, Slope, foresee, scale, start, step, sum_parents
from consilience.kernels.tables import Edges, Shapes, Work


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
