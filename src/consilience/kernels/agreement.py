"""Agreeing on a child region: the weighted geometric mean of what it and its parents believe about it.

Everything is relative to the child's belief b: with S_p the table of parent p summed to the child and u_p = log(S_p / b), the
mean is b exp(sum_p share_p u_p), and parent p must scale by exp(weight (mean - u_p)). Where a sweep changes little, as nearly
always, all u_p are small and short series do; the general road takes logarithms of both sides and knows impossible cells.
"""

from __future__ import annotations

from math import log as scalar_log
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from consilience.kernels.elementary import NEAR, exp, log, short_exp, short_log1p
from consilience.kernels.options import LOOP
from consilience.kernels.tables import Edges, Shapes, normalise

IMPOSSIBLE = -1e12
NEVER = -1e6
"""Logarithm given to a structural zero, and the value below which a mean holds one."""
MOST = 60.0
"""Largest logarithm of a factor: seven of them cannot take a living cell to zero or infinity."""


class Belief(NamedTuple):
    """Beliefs of all regions: cells tau, and per region the logarithm `shift` of what normalising took away, and the mass that
    tau is still to be divided by."""

    tau: Any
    shift: Any
    mass: Any


class Messages(NamedTuple):
    """Messages along the edges: their cells; per edge the change `lift` of the parent's shift that comes with it; and cell by
    cell the `drift`, the logarithms of the factors that were applied since the last mirror step."""

    cells: Any
    lift: Any
    drift: Any


class Order(NamedTuple):
    """Stages one after another: stage k updates children child[k] to child[k + 1], whose parents are work items item[k] to
    item[k + 1]."""

    child: Any
    item: Any


class Children(NamedTuple):
    """Child regions to agree on: the i-th has the edges edge[ptr[i]:ptr[i + 1]] to its parents and is damped by weight[i]."""

    region: Any
    ptr: Any
    edge: Any
    weight: Any


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


@njit(**LOOP)
def _agree_nearby(
    belief: Any, inverse: Any, mean: Any, i: int, w: float, share: float, track: bool, messages: Messages, kappa: Any,
    children: Children, edges: Edges,
) -> float:  # fmt: skip
    """The short road for the i-th child; the logarithm of the mean's mass comes back."""
    n, first, last = belief.size, children.ptr[i], children.ptr[i + 1]
    msg, edge, msg_at = messages.cells, children.edge, edges.msg_at
    for f in range(first, last):
        e, lo = edge[f], msg_at[edge[f]]
        _short_ratios(msg[lo : lo + n], inverse, mean, kappa[edges.parent[e]] / share)
    log_mass = scalar_log(_short_mass(belief, mean))
    mean -= log_mass
    for f in range(first, last):
        lo = msg_at[edge[f]]
        cells = msg[lo : lo + n]
        if track:
            _note(cells, messages.drift[lo : lo + n], mean, w)
        _short_factors(cells, mean, w)
    _short_move(belief, mean, w)
    return log_mass


@njit(**LOOP)
def _agree(
    belief: Any, mean: Any, i: int, w: float, own: float, share: float, track: bool, messages: Messages, kappa: Any,
    children: Children, edges: Edges,
) -> tuple[float, float]:  # fmt: skip
    """The general road for the i-th child; the logarithm of the mean's mass and the damping that was used come back."""
    n, first, last = belief.size, children.ptr[i], children.ptr[i + 1]
    msg, edge, msg_at = messages.cells, children.edge, edges.msg_at
    old = belief.copy()
    _logarithms(old)
    _mix(old, mean, own / share)
    deepest = 0.0
    for f in range(first, last):
        e = edge[f]
        cells = msg[msg_at[e] : msg_at[e] + n]
        deepest += _logarithms(cells)
        _mix(cells, mean, kappa[edges.parent[e]] / share)
    log_mass = scalar_log(_exponentials(belief, mean))
    mean -= log_mass
    # Factors beyond MOST are not cut off, which would change theta: the whole update of this child is damped instead.
    reach = 0.0
    if deepest + _far(mean) > 0.0:  # else no factor can pass MOST: the usual case
        for f in range(first, last):
            lo = msg_at[edge[f]]
            reach = max(reach, _reach(msg[lo : lo + n], mean))
    w = min(w, min(MOST, 7.0 * MOST * w) / max(reach, 1.0))
    for f in range(first, last):
        lo = msg_at[edge[f]]
        cells = msg[lo : lo + n]
        if track:
            _note(cells, messages.drift[lo : lo + n], mean, w)
        _factors(cells, mean, w)
    if w < 1.0:
        mean *= w
        _mix(old, mean, 1.0 - w)
    _exponentials(belief, mean)
    return log_mass, w


@njit(**LOOP)
def _combine_one(
    i: int, track: bool, belief: Belief, messages: Messages, gap: Any, kappa: Any, children: Children, tables: Shapes,
    edges: Edges,
) -> None:  # fmt: skip
    """Agree on the i-th listed child."""
    tau, shift, edge, parent, msg_at = (
        belief.tau,
        belief.shift,
        children.edge,
        edges.parent,
        edges.msg_at,
    )
    t = children.region[i]
    lo = tables.at[t]
    n = tables.rows[t] * tables.inner[t]
    first, last = children.ptr[i], children.ptr[i + 1]
    w = children.weight[i]
    share = kappa[t]
    offset = kappa[t] * shift[t]
    for f in range(first, last):
        p = parent[edge[f]]
        share += kappa[p]
        offset += kappa[p] * shift[p]
    offset /= share
    cells = tau[lo : lo + n]
    inverse = 1.0 / cells
    worst, far = 0.0, 0.0
    for f in range(first, last):
        e = edge[f]
        summed = messages.cells[msg_at[e] : msg_at[e] + n]
        l1, more = _compare(summed, cells, inverse, 1.0 / belief.mass[parent[e]])
        worst = max(worst, l1)
        far += more
    gap[i] = worst
    mean = np.zeros(n)
    if far == 0.0:
        log_mass = _agree_nearby(
            cells, inverse, mean, i, w, share, track, messages, kappa, children, edges,
        )  # fmt: skip
    else:
        log_mass, w = _agree(
            cells, mean, i, w, kappa[t], share, track, messages, kappa, children, edges,
        )  # fmt: skip
    for f in range(first, last):
        e = edge[f]
        messages.lift[e] = w * (offset + log_mass - shift[parent[e]])
    shift[t] += w * (offset + log_mass - shift[t])
    if w < 1.0:
        normalise(tau, shift, t, lo, lo + n)


@njit(**LOOP)
def combine(
    low: int, high: int, track: bool, belief: Belief, messages: Messages, gap: Any, kappa: Any, children: Children,
    tables: Shapes, edges: Edges,
) -> None:  # fmt: skip
    """Agree on the listed children `low` to `high`.

    Messages come in as the parents' tables summed to the child, still to be divided by their mass, and go out as the
    factors (mean / sum)^weight by which the parents must scale. gap[i] is the largest L1 distance between a parent's sum
    and the child's belief before; lift[e] is the change of the parent's shift that belongs to edge e. With `track` the
    drift is kept.
    """
    for i in range(low, high):
        _combine_one(i, track, belief, messages, gap, kappa, children, tables, edges)
