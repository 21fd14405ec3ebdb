"""The loops of exact inference: one mirror step on a calibrated junction tree, collected to the root and distributed back.

Tables are probabilities. Below the tree's cliques lie their separators and the measured cliques, all in one child layout;
`Plan` says where everything is. A clique's table is worked on in blocks of cells that stay in cache: all its factors are
multiplied in and all its sums taken while a block is there. Large cliques are cut into a fixed number of work items
with sums of their own, added in a fixed order, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf
from math import log as scalar_log
from typing import Any, NamedTuple

from numba import njit, uint64

from consilience.kernels.elementary import exp
from consilience.kernels.options import LOOP
from consilience.kernels.tables import FLOOR, total
from consilience.kernels.threads import spread

BLOCK_CELLS = 2048
"""Cells that are worked on at a time: half of a usual first-level cache, the rest is for what they meet."""
TINY = 1e-280
"""Lower limit while factors are still being multiplied in; FLOOR holds again once a clique is calibrated."""
WIDEST = 400.0
"""Factors whose logarithms span more than this in one clique might lose cells between FLOOR and TINY; then a step stops."""
FORK_CELLS = 1 << 18
"""A tree whose levels all have fewer cells than this is worked on by one thread: waking a second one costs more."""
NOT_FINITE = -1


class Plan(NamedTuple):
    """A rooted junction tree as index arrays. Children are the separators (in clique order), then the measured cliques.

    Clique c has cells at[c] to at[c + 1]. Child k has cells below[k] to below[k + 1]; each gathers share[k] cells of the
    clique beneath it (0 for a measured clique, children number `measured` and on). Edge e leads to child[e]: run i, of
    run[e] consecutive cells of the clique, meets run to = maps[map_at[e] + i] of the child if kind[e] is 1, and its one
    cell `to` if kind[e] is 0. own[c] is the edge to the separator above c; down_edge[down_ptr[c]:down_ptr[c + 1]] are the
    edges to the separators beneath it and to the clique's measured cliques. Work item i is cells first[i] to last[i] of
    clique of[i]; its sums go to the child layout if spill[i] < 0, else one after another from spill[i] on. Cliques are
    numbered by level from the root: level l is cliques level[l] to level[l + 1]; clique c has items item[c] to item[c + 1].
    """

    at: Any
    below: Any
    share: Any
    measured: Any
    child: Any
    kind: Any
    run: Any
    map_at: Any
    maps: Any
    own: Any
    down_ptr: Any
    down_edge: Any
    of: Any
    first: Any
    last: Any
    spill: Any
    item: Any
    level: Any


class Calibrated(NamedTuple):
    """Tables that agree: those of the cliques in `x` (laid out by Plan.at), of separators and measured cliques in `below`."""

    x: Any
    below: Any


class Scratch(NamedTuple):
    """What a step writes on its way. `factor` has a message per child (laid out by Plan.below), `sums` what a clique was summed
    to, in the child layout and after it the sums of later work items. Per child, lift[k] is the logarithm of what its factor
    was divided by on the way to the root, span[k] the distance between the factor's largest and smallest logarithm.
    """

    factor: Any
    sums: Any
    lift: Any
    span: Any


class Edges(NamedTuple):
    """A stretch of a list of edges: ids[lo:hi]."""

    ids: Any
    lo: int
    hi: int


# -- one block of cells -------------------------------------------------------------------------------


@njit(**LOOP)
def _multiply(plan: Plan, e: int, x: Any, at: Any, lo: Any, hi: Any, f: Any, least: float) -> None:
    """Cells lo to hi of the table at x[at:] times the factor f of edge e's child.

    Zero stays zero (an impossible cell), the rest stays at least `least`.
    """
    kind, maps = plan.kind[e], plan.maps
    at, lo, hi, run = uint64(at), uint64(lo), uint64(hi), uint64(plan.run[e])
    map_at, f_at = uint64(plan.map_at[e]), uint64(plan.below[plan.child[e]])
    i = lo // run
    while lo < hi:
        n = min(hi, (i + uint64(1)) * run) - lo
        src, dst = at + lo, f_at + uint64(maps[map_at + i])
        if kind == 1:
            dst = f_at + uint64(maps[map_at + i]) * run + (lo - i * run)
            for j in range(n):
                v = x[src + j]
                w = max(v * f[dst + j], least)
                x[src + j] = w if v > 0.0 else 0.0
        else:
            factor = f[dst]
            for j in range(n):
                v = x[src + j]
                w = max(v * factor, least)
                x[src + j] = w if v > 0.0 else 0.0
        lo += n
        i += uint64(1)


@njit(**LOOP)
def _add(plan: Plan, e: int, x: Any, at: Any, lo: Any, hi: Any, out: Any, out_at: Any) -> None:
    """Sum cells lo to hi of the table at x[at:] down edge e, to the table at out[out_at:]."""
    kind, maps = plan.kind[e], plan.maps
    at, lo, hi, run = uint64(at), uint64(lo), uint64(hi), uint64(plan.run[e])
    map_at, out_at = uint64(plan.map_at[e]), uint64(out_at)
    i = lo // run
    while lo < hi:
        n = min(hi, (i + uint64(1)) * run) - lo
        src, dst = at + lo, out_at + uint64(maps[map_at + i])
        if kind == 1:
            dst = out_at + uint64(maps[map_at + i]) * run + (lo - i * run)
            for j in range(n):
                out[dst + j] += x[src + j]
        else:
            s = 0.0
            for j in range(n):
                s += x[src + j]
            out[dst] += s
        lo += n
        i += uint64(1)


@njit(**LOOP)
def _rescale(x: Any, lo: Any, hi: Any, factor: float, least: float) -> None:
    for j in range(uint64(lo), uint64(hi)):
        v = x[j]
        w = max(v * factor, least)
        x[j] = w if v > 0.0 else 0.0


# -- one clique ---------------------------------------------------------------------------------------


@njit(**LOOP)
def _work(
    plan: Plan,
    i: int,
    x: Any,
    scratch: Scratch,
    into: Edges,
    out: Edges,
    scale: float,
    least: float,
) -> None:
    """Item i: multiply the factors of the edges `into` in, sum down the edges `out`, block by block."""
    factor, sums = scratch.factor, scratch.sums
    at = plan.at[plan.of[i]]
    spill = plan.spill[i]
    for f in range(out.lo, out.hi):
        k = plan.child[out.ids[f]]
        width = plan.below[k + 1] - plan.below[k]
        start = plan.below[k] if spill < 0 else spill
        spill += width if spill >= 0 else 0
        for j in range(uint64(start), uint64(start + width)):
            sums[j] = 0.0
    for lo in range(plan.first[i], plan.last[i], BLOCK_CELLS):
        hi = min(lo + BLOCK_CELLS, plan.last[i])
        if scale != 1.0:
            _rescale(x, at + lo, at + hi, scale, FLOOR)
        for f in range(into.lo, into.hi):
            _multiply(plan, into.ids[f], x, at, lo, hi, factor, least)
        spill = plan.spill[i]
        for f in range(out.lo, out.hi):
            k = plan.child[out.ids[f]]
            start = plan.below[k] if spill < 0 else spill
            spill += plan.below[k + 1] - plan.below[k] if spill >= 0 else 0
            _add(plan, out.ids[f], x, at, lo, hi, sums, start)


@njit(**LOOP)
def _down(plan: Plan, c: int) -> Edges:
    """The edges from clique c to the separators beneath it and to its measured cliques."""
    return Edges(plan.down_edge, plan.down_ptr[c], plan.down_ptr[c + 1])


@njit(**LOOP)
def _gather(plan: Plan, c: int, sums: Any, edges: Edges) -> None:
    """Add the sums of a clique's later work items to those of its first one, in order."""
    for i in range(plan.item[c] + 1, plan.item[c + 1]):
        spill = plan.spill[i]
        for f in range(edges.lo, edges.hi):
            k = plan.child[edges.ids[f]]
            total = sums[plan.below[k] : plan.below[k + 1]]
            part = sums[spill : spill + total.size]
            for j in range(total.size):
                total[j] += part[j]
            spill += total.size


@njit(**LOOP)
def _message_up(plan: Plan, c: int, below: Any, scratch: Scratch) -> None:
    """The separator above c takes the sums that c collected; its factor is new over old, divided by the largest."""
    factor, sums = scratch.factor, scratch.sums
    _gather(plan, c, sums, Edges(plan.own, c, c + 1))
    k = plan.child[plan.own[c]]
    top, bottom = 0.0, inf
    for j in range(plan.below[k], plan.below[k + 1]):
        v = sums[j] / below[j] if below[j] > 0.0 else 0.0
        below[j] = sums[j]
        factor[j] = v
        top = max(top, v)
        bottom = min(bottom, v if v > 0.0 else inf)
    for j in range(plan.below[k], plan.below[k + 1]):
        factor[j] /= top
    scratch.span[k] = scalar_log(top) - scalar_log(bottom)
    scratch.lift[k] = scalar_log(top)


@njit(**LOOP)
def _messages_down(plan: Plan, c: int, below: Any, scratch: Scratch, mass: float) -> None:
    """Separators and measured cliques beneath c take its sums over `mass`; separators get the factor final / collected."""
    factor, sums = scratch.factor, scratch.sums
    for f in range(plan.down_ptr[c], plan.down_ptr[c + 1]):
        k = plan.child[plan.down_edge[f]]
        if k >= plan.measured:
            for j in range(plan.below[k], plan.below[k + 1]):
                below[j] = sums[j] / mass
            continue
        # A separator never falls below the sum of the floored cells beneath it, or the next message up would be huge.
        least = FLOOR * plan.share[k]
        for j in range(plan.below[k], plan.below[k + 1]):
            v = max(sums[j] / mass, least) if sums[j] > 0.0 else 0.0
            factor[j] = v / below[j] if v > 0.0 else 0.0
            below[j] = v


@njit(**LOOP)
def _collect(first: int, last: int, plan: Plan, x: Any, scratch: Scratch, scale: float) -> None:
    """Work items `first` to `last` on the way to the root."""
    for i in range(first, last):
        c = plan.of[i]
        down = _down(plan, c)
        if c == 0:
            _work(plan, i, x, scratch, down, down, scale, TINY)
        else:
            _work(plan, i, x, scratch, down, Edges(plan.own, c, c + 1), 1.0, TINY)


@njit(**LOOP)
def _distribute(first: int, last: int, plan: Plan, x: Any, scratch: Scratch) -> None:
    """Work items `first` to `last` on the way back."""
    for i in range(first, last):
        c = plan.of[i]
        _work(plan, i, x, scratch, Edges(plan.own, c, c + 1), _down(plan, c), 1.0, FLOOR)


@njit(**LOOP)
def _turn(plan: Plan, below: Any, scratch: Scratch) -> float:
    """At the root: its mass, read off the first child that it is summed to, and its messages to those below."""
    if plan.down_ptr[1] == 0:
        return 1.0
    sums = scratch.sums
    _gather(plan, 0, sums, _down(plan, 0))
    k = plan.child[plan.down_edge[0]]
    mass = 0.0
    for j in range(plan.below[k], plan.below[k + 1]):
        mass += sums[j]
    _messages_down(plan, 0, below, scratch, mass)
    return mass


@njit(**LOOP)
def _factor(plan: Plan, k: int, gradient: Any, rate: float, scratch: Scratch) -> None:
    """Child k's factor is exp(-rate * gradient) over its largest entry, whose logarithm is its lift."""
    start = plan.below[plan.measured]
    g = gradient[plan.below[k] - start : plan.below[k + 1] - start]
    f = scratch.factor[plan.below[k] : plan.below[k + 1]]
    most, least, wrong = -rate * g[0], -rate * g[0], 0.0
    for j in range(g.size):
        v = -rate * g[j]
        wrong += 0.0 if abs(v) <= 1e300 else 1.0  # NaN is not
        most = max(most, v)
        least = min(least, v)
    for j in range(g.size):
        f[j] = exp(-rate * g[j] - most)
    scratch.span[k] = most - least if wrong == 0.0 else inf
    scratch.lift[k] = most


@njit(**LOOP)
def _factors(
    first: int, last: int, plan: Plan, gradient: Any, rate: float, scratch: Scratch
) -> None:
    """The factors of children `first` to `last`."""
    for k in range(first, last):
        _factor(plan, k, gradient, rate, scratch)


@njit(**LOOP)
def _finite(plan: Plan, span: Any) -> bool:
    most = 0.0
    for k in range(plan.measured, plan.below.size - 1):
        most = max(most, span[k])
    return most < inf


@njit(**LOOP)
def _any_wide(plan: Plan, lo: int, hi: int, span: Any) -> bool:
    """Whether the factors that some clique from lo to hi is about to receive might take a living cell below TINY."""
    for c in range(lo, hi):
        s = 0.0
        for f in range(plan.down_ptr[c], plan.down_ptr[c + 1]):
            s += span[plan.child[plan.down_edge[f]]]
        if s > WIDEST:
            return True
    return False


# -- one level, cliques lo to hi ----------------------------------------------------------------------


@njit(**LOOP)
def _messages_to_parents(plan: Plan, lo: int, hi: int, below: Any, scratch: Scratch) -> None:
    for c in range(max(lo, 1), hi):
        _message_up(plan, c, below, scratch)


@njit(**LOOP)
def _messages_to_children(plan: Plan, lo: int, hi: int, below: Any, scratch: Scratch) -> None:
    for c in range(lo, hi):
        _gather(plan, c, scratch.sums, _down(plan, c))
        _messages_down(plan, c, below, scratch, 1.0)


# -- one step -----------------------------------------------------------------------------------------


def step(
    plan: Plan, gradient: Any, rate: float, tables: Calibrated, scale: float, scratch: Scratch
) -> tuple[int, float, float]:
    """Multiply exp(-rate * gradient) into the measured cliques, collect to the root, distribute back.

    Three numbers come back. Zero, the mass that the root is left with (to be divided out by `scale` next time) and the sum of
    `scratch.lift`, if all went well. A clique c > 0 if the factors for clique c - 1 were too wide: cliques from c on have
    collected, the others are untouched and nothing has been distributed. NOT_FINITE if the gradient is not; nothing has been
    done.
    """
    cells = plan.at[plan.level[1:]] - plan.at[plan.level[:-1]]
    road = _step_on_one if int(cells.max()) < FORK_CELLS else _step_by_level
    return road(plan, gradient, rate, tables, scale, scratch)


@njit(**LOOP)
def _step_on_one(
    plan: Plan, gradient: Any, rate: float, tables: Calibrated, scale: float, scratch: Scratch
) -> tuple[int, float, float]:
    """A step in one call."""
    x, below, item = tables.x, tables.below, plan.item
    _factors(plan.measured, plan.below.size - 1, plan, gradient, rate, scratch)
    if not _finite(plan, scratch.span):
        return NOT_FINITE, 1.0, 0.0
    levels = plan.level.size - 1
    for back in range(levels):
        lo, hi = plan.level[levels - 1 - back], plan.level[levels - back]
        if _any_wide(plan, lo, hi, scratch.span):
            return hi, 1.0, 0.0
        _collect(item[lo], item[hi], plan, x, scratch, scale)
        _messages_to_parents(plan, lo, hi, below, scratch)
    mass = _turn(plan, below, scratch)
    for l in range(1, levels):
        lo, hi = plan.level[l], plan.level[l + 1]
        _distribute(item[lo], item[hi], plan, x, scratch)
        _messages_to_children(plan, lo, hi, below, scratch)
    return 0, mass, total(scratch.lift, 0, scratch.lift.size)


def _step_by_level(
    plan: Plan, gradient: Any, rate: float, tables: Calibrated, scale: float, scratch: Scratch
) -> tuple[int, float, float]:
    """The same with the items of a level shared out to threads."""
    x, below, item = tables.x, tables.below, plan.item.tolist()
    level, at = plan.level.tolist(), plan.at.tolist()
    count, first = len(plan.below) - 1 - plan.measured, plan.measured
    spread(_factors, count, len(gradient), plan, gradient, rate, scratch, start=first)
    if not _finite(plan, scratch.span):
        return NOT_FINITE, 1.0, 0.0
    for lo, hi in reversed(list(pairwise(level))):
        if _any_wide(plan, lo, hi, scratch.span):
            return hi, 1.0, 0.0
        items, cells = item[hi] - item[lo], at[hi] - at[lo]
        spread(_collect, items, cells, plan, x, scratch, scale, start=item[lo])
        _messages_to_parents(plan, lo, hi, below, scratch)
    mass = _turn(plan, below, scratch)
    for lo, hi in list(pairwise(level))[1:]:
        items, cells = item[hi] - item[lo], at[hi] - at[lo]
        spread(_distribute, items, cells, plan, x, scratch, start=item[lo])
        _messages_to_children(plan, lo, hi, below, scratch)
    return 0, mass, float(scratch.lift.sum())
