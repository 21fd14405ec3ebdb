"""The loops of the splitting solver: sum down, agree on the nodes, spread up. Douglas-Rachford on one buffer.

The state is one buffer v per root table. z = prox(v) takes care of the cells (non-negative, or more), x is the closest
consistent point to 2z - v (and to the data), and v += relax * (x - z). What a graph looks like from here is in `regions.ties`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit, uint64

from consilience.kernels.cells import ABSOLUTE, ENTROPIC, MASKED, NONNEGATIVE
from consilience.kernels.elementary import log
from consilience.kernels.options import LOOP
from consilience.kernels.tables import Edges, Shapes, sum_down

STATS = 9
"""Numbers taken per root: sum (x-z)^2, sum (z'-z)^2, w/2 sum (x-y)^2, sum (x-y), sum (x-y)x, sum x^2, how much of the
uniform table makes x non-negative, its term of the lower bound, and sum z (or the value of the further term)."""


class Roots(NamedTuple):
    """The root tables' cells, all in one layout, and what each table is asked for.

    v is the state, z = prox(v) (read only where `mode` is not NONNEGATIVE, see kernels/cells.py), y the data, x scratch: the
    blend of data and state, then the consistent point. mix[r] = penalty / (data + penalty) of table r.
    """

    v: Any
    z: Any
    y: Any
    x: Any
    mode: Any
    mix: Any


class Terms(NamedTuple):
    """What the certificate needs besides: `extra` cell by cell (a mask, a prior, data, or z itself, as the table's mode asks);
    per table pull (weight of the further term over the penalty), data (weight of its data) and penalty (weight of the distance
    to 2z - v)."""

    extra: Any
    pull: Any
    data: Any
    penalty: Any


class Below(NamedTuple):
    """The nodes below each of some tables: edges ptr[i] to ptr[i + 1], those up to direct[i] directly below.

    A direct edge maps the table's rows; a deeper one maps the rows of the node that its `owner` edge leads to. Among the direct
    edges those of kind 0 come first. `coef` is m_r(s) / n_{owner\\s} for a deeper edge and 1 / n_{r\\s} for a direct one.
    `edge` is 0, 1, 2, ...: every edge, in order.
    """

    ptr: Any
    direct: Any
    edge: Any
    owner: Any
    coef: Any


class Means(NamedTuple):
    """What the nodes are to be: target = (base + sum over incoming edges of weight * message) * share.

    `base` and `target` have one entry per node cell, `weight` one per edge, `share` one per node; the edges into node s are
    incoming[ptr[s]:ptr[s + 1]].
    """

    target: Any
    base: Any
    weight: Any
    share: Any
    ptr: Any
    incoming: Any


@njit(**LOOP)
def sum_one(
    x: Any, at: Any, rows: Any, inner: Any, msg: Any, to: Any, width: Any, kind: Any, maps: Any, m: Any,
) -> None:  # fmt: skip
    """msg[to : to + width] = the table at x[at:] summed along one edge."""
    at, rows, inner, to, m = uint64(at), uint64(rows), uint64(inner), uint64(to), uint64(m)
    for c in range(uint64(width)):
        msg[to + c] = 0.0
    for i in range(rows):
        src = at + i * inner
        if kind == 1:
            dst = to + uint64(maps[m + i]) * inner
            for j in range(inner):
                msg[dst + j] += x[src + j]
        else:
            row = 0.0
            for j in range(inner):
                row += x[src + j]
            msg[to + uint64(maps[m + i])] += row


@njit(**LOOP)
def add_one(
    x: Any, at: Any, rows: Any, inner: Any, msg: Any, to: Any, kind: Any, maps: Any, m: Any, factor: Any,
) -> None:  # fmt: skip
    """x += factor * the message spread over the table at x[at:]."""
    at, rows, inner, to, m = uint64(at), uint64(rows), uint64(inner), uint64(to), uint64(m)
    for i in range(rows):
        src = at + i * inner
        if kind == 1:
            dst = to + uint64(maps[m + i]) * inner
            for j in range(inner):
                x[src + j] += factor * msg[dst + j]
        else:
            term = factor * msg[to + uint64(maps[m + i])]
            for j in range(inner):
                x[src + j] += term


@njit(**LOOP)
def add_up(x: Any, rows: Any, inner: Any, msg: Any, first: Any, last: Any, edges: Edges) -> None:
    """x += every direct message spread over the table; two kept edges and all row terms share one pass."""
    rows, inner = uint64(rows), uint64(inner)
    kind, map_at, msg_at, maps = edges.kind, edges.map_at, edges.msg_at, edges.maps
    middle = first
    for f in range(first, last):
        if kind[f] == 0:
            middle = f + 1
    f = middle
    if last - middle >= 2:
        to_a, to_b, m_a, m_b = (
            uint64(msg_at[f]),
            uint64(msg_at[f + 1]),
            uint64(map_at[f]),
            uint64(map_at[f + 1]),
        )
        for i in range(rows):
            term = 0.0
            for g in range(first, middle):
                term += msg[uint64(msg_at[g]) + uint64(maps[uint64(map_at[g]) + i])]
            src = i * inner
            dst_a = to_a + uint64(maps[m_a + i]) * inner
            dst_b = to_b + uint64(maps[m_b + i]) * inner
            for j in range(inner):
                x[src + j] += term + msg[dst_a + j] + msg[dst_b + j]
        f += 2
    elif middle > first:
        for i in range(rows):
            term = 0.0
            for g in range(first, middle):
                term += msg[uint64(msg_at[g]) + uint64(maps[uint64(map_at[g]) + i])]
            src = i * inner
            for j in range(inner):
                x[src + j] += term
    for g in range(f, last):
        add_one(x, 0, rows, inner, msg, msg_at[g], 1, maps, map_at[g], 1.0)


@njit(**LOOP)
def _sum_deeper(msg: Any, first: int, last: int, nodes: Shapes, below: Below, edges: Edges) -> None:
    """Messages of the deeper edges `first` to `last`, each summed from the message of its owner."""
    owner, child, kind, maps = below.owner, edges.child, edges.kind, edges.maps
    msg_at, map_at, width = edges.msg_at, edges.map_at, edges.width
    for e in range(first, last):
        o = owner[e]
        s = child[o]
        sum_one(
            msg, msg_at[o], nodes.rows[s], nodes.inner[s], msg, msg_at[e], width[e], kind[e], maps, map_at[e],
        )  # fmt: skip


@njit(**LOOP)
def gather(
    first: int, last: int, roots: Roots, msg: Any, chunk: Any, tables: Shapes, nodes: Shapes, below: Below, edges: Edges
) -> None:  # fmt: skip
    """For each root of the work items: x = mix (2 prox(v) - v) + (1 - mix) y, summed down to every node below it."""
    xs, vs, zs, ys, edge = roots.x, roots.v, roots.z, roots.y, below.edge
    for r in range(chunk[first], chunk[last]):
        lo, rows, inner = tables.at[r], tables.rows[r], tables.inner[r]
        hi = lo + rows * inner
        x = xs[lo:hi]
        _blend(roots.mode[r], vs[lo:hi], zs[lo:hi], ys[lo:hi], roots.mix[r], x)
        begin, direct, end = below.ptr[r], below.direct[r], below.ptr[r + 1]
        sum_down(x, 0, rows, inner, msg, begin, direct, edge, edges)
        if end > direct:
            _sum_deeper(msg, direct, end, nodes, below, edges)


@njit(**LOOP)
def _blend(mode: int, v: Any, z: Any, y: Any, mix: float, m: Any) -> None:
    """m = mix (2z - v) + (1 - mix) y. Clipping at zero makes 2z - v = |v|, so plain non-negativity stores no z."""
    if mode == NONNEGATIVE:
        for c in range(v.size):
            m[c] = mix * abs(v[c]) + (1.0 - mix) * y[c]
    else:
        for c in range(v.size):
            m[c] = mix * (2.0 * z[c] - v[c]) + (1.0 - mix) * y[c]


@njit(**LOOP)
def _average(s: int, msg: Any, means: Means, nodes: Shapes, msg_at: Any) -> None:
    """Node s: target = (base + sum over incoming edges of weight * message) * share."""
    incoming, weight = means.incoming, means.weight
    lo, n, share = nodes.at[s], nodes.rows[s] * nodes.inner[s], means.share[s]
    out, start = means.target[lo : lo + n], means.base[lo : lo + n]
    for c in range(n):
        out[c] = start[c]
    for f in range(means.ptr[s], means.ptr[s + 1]):
        e = incoming[f]
        cells = msg[msg_at[e] : msg_at[e] + n]
        w = weight[e]
        for c in range(n):
            out[c] += w * cells[c]
    for c in range(n):
        out[c] *= share


@njit(**LOOP)
def _corrections(
    target: Any, msg: Any, first: int, middle: int, last: int, nodes: Shapes, below: Below, edges: Edges
) -> None:  # fmt: skip
    """Turn messages (sums) into what the table must add along each direct edge to meet the targets."""
    owner, coef, child, kind, maps = below.owner, below.coef, edges.child, edges.kind, edges.maps
    msg_at, map_at, width, node_at = edges.msg_at, edges.map_at, edges.width, nodes.at
    for e in range(first, last):
        lo, n = node_at[child[e]], width[e]
        cells, wanted = msg[msg_at[e] : msg_at[e] + n], target[lo : lo + n]
        for c in range(cells.size):
            cells[c] = wanted[c] - cells[c]
    for e in range(middle, last):
        o = owner[e]
        s = child[o]
        if coef[e] != 0.0:
            add_one(
                msg, msg_at[o], nodes.rows[s], nodes.inner[s], msg, msg_at[e], kind[e], maps, map_at[e], coef[e],
            )  # fmt: skip
    for e in range(first, middle):
        cells, factor = msg[msg_at[e] : msg_at[e] + width[e]], coef[e]
        for c in range(cells.size):
            cells[c] *= factor


@njit(**LOOP)
def meet(
    first: int, last: int, msg: Any, means: Means, msg_at: Any, node_msg: Any, nodes: Shapes, below: Below, edges: Edges
) -> None:  # fmt: skip
    """Average at each node, and make it agree with the targets of the nodes below it, which are done already.

    `msg` and `msg_at` are the messages from the roots, `node_msg` and the rest those between nodes.
    """
    target, edge = means.target, below.edge
    for s in range(first, last):
        _average(s, msg, means, nodes, msg_at)
        rows, inner = nodes.rows[s], nodes.inner[s]
        table = target[nodes.at[s] : nodes.at[s] + rows * inner]
        begin, direct, end = below.ptr[s], below.direct[s], below.ptr[s + 1]
        sum_down(table, 0, rows, inner, node_msg, begin, direct, edge, edges)
        if end > direct:
            _sum_deeper(node_msg, direct, end, nodes, below, edges)
        _corrections(target, node_msg, begin, direct, end, nodes, below, edges)
        add_up(table, rows, inner, node_msg, begin, direct, edges)


@njit(**LOOP)
def scatter(
    first: int, last: int, relax: float, roots: Roots, target: Any, msg: Any, chunk: Any, tables: Shapes, nodes: Shapes,
    below: Below, edges: Edges,
) -> None:  # fmt: skip
    """For each root of the work items: x += corrections, then v += relax (x - z)."""
    xs, vs, zs = roots.x, roots.v, roots.z
    for r in range(chunk[first], chunk[last]):
        begin, direct = below.ptr[r], below.direct[r]
        _corrections(target, msg, begin, direct, below.ptr[r + 1], nodes, below, edges)
        lo, rows, inner = tables.at[r], tables.rows[r], tables.inner[r]
        hi = lo + rows * inner
        x = xs[lo:hi]
        add_up(x, rows, inner, msg, begin, direct, edges)
        if relax != 0.0:
            _move(roots.mode[r], x, vs[lo:hi], zs[lo:hi], relax)


@njit(**LOOP)
def _move(mode: int, x: Any, v: Any, z: Any, relax: float) -> None:
    """v += relax (x - z)."""
    if mode == NONNEGATIVE:
        for c in range(v.size):
            u = v[c]
            v[c] = u + relax * (x[c] - max(u, 0.0))
    else:
        for c in range(v.size):
            v[c] += relax * (x[c] - z[c])


# -- the certificate ------------------------------------------------------------------------------------


@njit(**LOOP)
def measure(
    first: int, last: int, relax: float, roots: Roots, terms: Terms, stats: Any, tables: Shapes
) -> None:
    """STATS of each table whose cells are asked for non-negativity alone, or with some of them impossible."""
    for r in range(first, last):
        lo, hi = tables.at[r], tables.at[r] + tables.rows[r] * tables.inner[r]
        mode, v, z = roots.mode[r], roots.v[lo:hi], roots.z[lo:hi]
        if mode == NONNEGATIVE:
            z = np.empty(hi - lo)
            for c in range(z.size):
                z[c] = max(v[c], 0.0)
        if mode <= MASKED:
            _measure(
                mode, roots.x[lo:hi], z, v, roots.y[lo:hi], terms.extra[lo:hi], terms.data[r], terms.penalty[r], relax,
                stats[r],
            )  # fmt: skip


@njit(**LOOP)
def measure_general(
    first: int, last: int, roots: Roots, terms: Terms, stats: Any, tables: Shapes
) -> None:
    """STATS of all other tables."""
    for r in range(first, last):
        lo, hi = tables.at[r], tables.at[r] + tables.rows[r] * tables.inner[r]
        mode = roots.mode[r]
        if mode > MASKED:
            _measure_general(
                mode, roots.x[lo:hi], roots.z[lo:hi], roots.v[lo:hi], roots.y[lo:hi], terms.extra[lo:hi], terms.data[r],
                terms.penalty[r], terms.pull[r], stats[r],
            )  # fmt: skip


@njit(**LOOP)
def _apart(x: Any, z: Any, y: Any) -> tuple[float, float, float, float, float, float]:
    """|x - z|^2; |f|^2, sum f and <f, x> of f = x - y; |x|^2; how far x must go towards uniform to be non-negative."""
    uniform = 1.0 / x.size
    gap, fit, off, cross, square, least = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for c in range(x.size):
        d = x[c] - z[c]
        gap += d * d
        f = x[c] - y[c]
        fit += f * f
        off += f
        cross += f * x[c]
        square += x[c] * x[c]
        least = max(least, -x[c] / (uniform - x[c])) if x[c] < 0.0 else least
    return gap, fit, off, cross, square, least


@njit(**LOOP)
def _measure(
    mode: int, x: Any, z: Any, v: Any, y: Any, extra: Any, w: float, rho: float, relax: float, out: Any,
) -> None:  # fmt: skip
    """The sums behind objective, residuals and certificate (see STATS), for non-negativity alone.

    On consistent points f >= f(x) + <h, x' - x> + w/2 |x' - x|^2 with h = rho (2z - v - x), because x minimises
    f + rho/2 |. - (2z - v)|^2 over them. The right side is bounded below over x' >= 0 cell by cell, or over distributions.
    """
    gap, fit, off, cross, square, least = _apart(x, z, y)
    move, mass, tangent, quadratic, lowest = 0.0, 0.0, 0.0, 0.0, 1e300
    for c in range(x.size):
        mass += z[c]
        h = rho * (2.0 * z[c] - v[c] - x[c])
        tangent += h * x[c]
        possible = mode == NONNEGATIVE or extra[c] > 0.0
        lowest = min(lowest, h) if possible else lowest
        e = max(v[c] + relax * (x[c] - z[c]), 0.0) - z[c] if possible else 0.0
        move += e * e
        inside = h <= w * x[c] and possible
        quadratic += h * h / (2.0 * max(w, 1e-300)) if inside else h * x[c] - 0.5 * w * x[c] * x[c]
    term = lowest - tangent
    if w > 0.0:
        term = max(term, -quadratic)
    out[0], out[1], out[2], out[3], out[4] = gap, move, 0.5 * w * fit, off, cross
    out[5], out[6], out[7], out[8] = square, least, term, mass


@njit(**LOOP)
def _measure_general(
    mode: int, x: Any, z: Any, v: Any, y: Any, extra: Any, w: float, rho: float, pull: float, out: Any,
) -> None:  # fmt: skip
    """The same where a further convex term g acts on z: g >= g(z) + rho <v - z, . - z> joins the bound. out[8] is g(z).

    For GIVEN tables g(z) is the caller's to add.
    """
    gap, fit, off, cross, square, least = _apart(x, z, y)
    extra_value, tangent, support, lowest, along, bend = 0.0, 0.0, 0.0, 1e300, 0.0, 0.0
    for c in range(x.size):
        h = rho * (z[c] - x[c])
        tangent += rho * (2.0 * z[c] - v[c] - x[c]) * x[c]
        support += rho * (v[c] - z[c]) * z[c]
        lowest = min(lowest, h)
        along += rho * (v[c] - z[c]) * (x[c] - z[c])
        bend += h * h
        if mode == ABSOLUTE:
            extra_value += rho * pull * abs(z[c] - extra[c])
        elif mode == ENTROPIC and extra[c] > 0.0:
            extra_value += (
                rho * pull * (z[c] * (log(max(z[c], 1e-300)) - log(extra[c]) - 1.0) + extra[c])
            )
    term = lowest - tangent - support
    if w > 0.0:
        # The linear parts add up to h = rho (z - x), small; the quadratic of f bounds it to second order.
        term = max(term, along - bend / (2.0 * w))
    out[0], out[1], out[2], out[3], out[4] = gap, gap, 0.5 * w * fit, off, cross
    out[5], out[6], out[7], out[8] = square, least, term + extra_value, extra_value
