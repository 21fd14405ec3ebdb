"""The loops of the splitting solver: sum down, agree on the nodes, spread up. Douglas-Rachford on one buffer.

The state is one buffer v per root table. z = prox(v) takes care of the cells (non-negative, or more), x is the closest
consistent point to 2z - v (and to the data), and v += relax * (x - z). Index arrays are those of `regions.ties.Fan`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange, uint64

from consilience.kernels.elementary import log
from consilience.kernels.options import LOOP, PARALLEL
from consilience.kernels.prox_cells import (
    ABSOLUTE,
    ENTROPIC,
    GIVEN,
    MASKED,
    NONNEGATIVE,
    prox_all,
    prox_cells,
)
from consilience.kernels.tables import sum_down

__all__ = [
    "ABSOLUTE",
    "ENTROPIC",
    "GIVEN",
    "MASKED",
    "NONNEGATIVE",
    "STATS",
    "adjust_nodes",
    "average",
    "gather",
    "prox_all",
    "scatter",
]

STATS = 9
"""Numbers taken per root: sum (x-z)^2, sum (z'-z)^2, w/2 sum (x-y)^2, sum (x-y), sum (x-y)x, sum x^2, how much of the
uniform table makes x non-negative, its term of the lower bound, and sum z (or the value of the further term)."""


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
def add_up(
    x: Any, rows: Any, inner: Any, msg: Any, first: Any, last: Any, kind: Any, map_at: Any, msg_at: Any, maps: Any,
) -> None:  # fmt: skip
    """x += every direct message spread over the table; two kept edges and all row terms share one pass."""
    rows, inner = uint64(rows), uint64(inner)
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


@njit(**PARALLEL)
def gather(
    v: Any, z: Any, y: Any, extra: Any, mode: Any, pull: Any, mix: Any, work: Any, msg: Any, chunk: Any, at: Any,
    rows: Any, inner: Any, ptr: Any, direct: Any, edge: Any, node: Any, owner: Any, kind: Any, map_at: Any,
    msg_at: Any, width: Any, maps: Any, node_rows: Any, node_inner: Any,
) -> None:  # fmt: skip
    """For each root: m = mix (2 prox(v) - v) + (1 - mix) y, summed down to every node below it."""
    for k in prange(chunk.size - 1):
        for r in range(chunk[k], chunk[k + 1]):
            lo, n = at[r], rows[r] * inner[r]
            m = work[lo : lo + n]
            if mode[r] > NONNEGATIVE:
                prox_cells(mode[r], v[lo : lo + n], extra[lo : lo + n], pull[r], z[lo : lo + n])
            _blend(mode[r], v[lo : lo + n], z[lo : lo + n], y[lo : lo + n], mix[r], m)
            sum_down(
                m, 0, rows[r], inner[r], msg, ptr[r], direct[r], edge, kind, map_at, msg_at, width, maps,
            )  # fmt: skip
            for e in range(direct[r], ptr[r + 1]):
                o = owner[e]
                s = node[o]
                sum_one(
                    msg, msg_at[o], node_rows[s], node_inner[s], msg, msg_at[e], width[e], kind[e], maps, map_at[e],
                )  # fmt: skip


@njit(**LOOP)
def _blend(mode: int, v: Any, z: Any, y: Any, mix: float, m: Any) -> None:
    """m = mix (2z - v) + (1 - mix) y. Clipping at zero makes 2z - v = |v|, so plain non-negativity stores no z."""
    if mode == NONNEGATIVE:
        for c in range(v.size):
            m[c] = mix * abs(v[c]) + (1.0 - mix) * y[c]
    else:
        for c in range(v.size):
            m[c] = mix * (2.0 * z[c] - v[c]) + (1.0 - mix) * y[c]


@njit(**PARALLEL)
def average(
    msg: Any, target: Any, base: Any, weight: Any, share: Any, nodes: Any, at: Any, rows: Any, inner: Any, ptr: Any,
    items: Any, msg_at: Any,
) -> None:  # fmt: skip
    """For each listed node: target = (base + sum over incoming edges of weight * message) * share."""
    for i in prange(nodes.size):
        s = nodes[i]
        lo, n = at[s], rows[s] * inner[s]
        out = target[lo : lo + n]
        start = base[lo : lo + n]
        for c in range(n):
            out[c] = start[c]
        for f in range(ptr[s], ptr[s + 1]):
            e = items[f]
            cells = msg[msg_at[e] : msg_at[e] + n]
            w = weight[e]
            for c in range(n):
                out[c] += w * cells[c]
        for c in range(n):
            out[c] *= share[s]


@njit(**LOOP)
def _corrections(
    target: Any, node_at: Any, node_rows: Any, node_inner: Any, msg: Any, first: Any, middle: Any, last: Any,
    node: Any, owner: Any, coef: Any, kind: Any, map_at: Any, msg_at: Any, width: Any, maps: Any,
) -> None:  # fmt: skip
    """Turn messages (sums) into what the table must add along each direct edge to meet the targets."""
    for e in range(first, last):
        lo = node_at[node[e]]
        cells, wanted = msg[msg_at[e] : msg_at[e] + width[e]], target[lo : lo + width[e]]
        for c in range(cells.size):
            cells[c] = wanted[c] - cells[c]
    for e in range(middle, last):
        o = owner[e]
        s = node[o]
        if coef[e] != 0.0:
            add_one(
                msg, msg_at[o], node_rows[s], node_inner[s], msg, msg_at[e], kind[e], maps, map_at[e], coef[e],
            )  # fmt: skip
    for e in range(first, middle):
        cells = msg[msg_at[e] : msg_at[e] + width[e]]
        for c in range(cells.size):
            cells[c] *= coef[e]


@njit(**PARALLEL)
def adjust_nodes(
    target: Any, msg: Any, nodes: Any, at: Any, rows: Any, inner: Any, ptr: Any, direct: Any, edge: Any, node: Any,
    owner: Any, coef: Any, kind: Any, map_at: Any, msg_at: Any, width: Any, maps: Any,
) -> None:  # fmt: skip
    """Make each listed node's target agree with the targets of the nodes below it."""
    for i in prange(nodes.size):
        s = nodes[i]
        lo, n = at[s], rows[s] * inner[s]
        table = target[lo : lo + n]
        sum_down(
            table, 0, rows[s], inner[s], msg, ptr[s], direct[s], edge, kind, map_at, msg_at, width, maps,
        )  # fmt: skip
        for e in range(direct[s], ptr[s + 1]):
            o = owner[e]
            t = node[o]
            sum_one(
                msg, msg_at[o], rows[t], inner[t], msg, msg_at[e], width[e], kind[e], maps, map_at[e],
            )  # fmt: skip
        _corrections(
            target, at, rows, inner, msg, ptr[s], direct[s], ptr[s + 1], node, owner, coef, kind, map_at, msg_at,
            width, maps,
        )  # fmt: skip
        add_up(table, rows[s], inner[s], msg, ptr[s], direct[s], kind, map_at, msg_at, maps)


@njit(**PARALLEL)
def scatter(
    update: bool, v: Any, z: Any, y: Any, extra: Any, mode: Any, pull: Any, data: Any, penalty: Any, relax: float,
    stats: Any, work: Any, target: Any, msg: Any, chunk: Any, at: Any, rows: Any, inner: Any, ptr: Any, direct: Any,
    node: Any, owner: Any, coef: Any, kind: Any, map_at: Any, msg_at: Any, width: Any, maps: Any, node_at: Any,
    node_rows: Any, node_inner: Any,
) -> None:  # fmt: skip
    """For each root: x = m + corrections, then v += relax (x - z). With update False, stats are taken and x stays in work."""
    for k in prange(chunk.size - 1):
        for r in range(chunk[k], chunk[k + 1]):
            lo, n = at[r], rows[r] * inner[r]
            _corrections(
                target, node_at, node_rows, node_inner, msg, ptr[r], direct[r], ptr[r + 1], node, owner, coef, kind,
                map_at, msg_at, width, maps,
            )  # fmt: skip
            x = work[lo : lo + n]  # holds the blend that `gather` left
            old, want, more, kept = (
                v[lo : lo + n],
                y[lo : lo + n],
                extra[lo : lo + n],
                z[lo : lo + n],
            )
            add_up(x, rows[r], inner[r], msg, ptr[r], direct[r], kind, map_at, msg_at, maps)
            if update and mode[r] == NONNEGATIVE:
                for c in range(n):
                    u = old[c]
                    old[c] = u + relax * (x[c] - max(u, 0.0))
            elif update:
                for c in range(n):
                    old[c] += relax * (x[c] - kept[c])
            else:
                if mode[r] == NONNEGATIVE:
                    kept = np.maximum(old, 0.0)
                if mode[r] <= MASKED:
                    _measure(
                        mode[r], x, kept, old, want, more, data[r], penalty[r], relax, stats[r]
                    )
                else:
                    _measure_general(
                        mode[r], x, kept, old, want, more, data[r], penalty[r], pull[r], stats[r]
                    )


@njit(**LOOP)
def _measure(
    mode: int, x: Any, z: Any, v: Any, y: Any, extra: Any, w: float, rho: float, relax: float, out: Any,
) -> None:  # fmt: skip
    """The sums behind objective, residuals and certificate (see STATS), for non-negativity alone.

    On consistent points f >= f(x) + <h, x' - x> + w/2 |x' - x|^2 with h = rho (2z - v - x), because x minimises
    f + rho/2 |. - (2z - v)|^2 over them. The right side is bounded below over x' >= 0 cell by cell, or over distributions.
    """
    uniform = 1.0 / x.size
    gap, move, fit, off, cross, square, least, mass = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    tangent, quadratic, lowest = 0.0, 0.0, 1e300
    for c in range(x.size):
        d = x[c] - z[c]
        gap += d * d
        f = x[c] - y[c]
        fit += f * f
        off += f
        cross += f * x[c]
        square += x[c] * x[c]
        least = max(least, -x[c] / (uniform - x[c])) if x[c] < 0.0 else least
        mass += z[c]
        h = rho * (2.0 * z[c] - v[c] - x[c])
        tangent += h * x[c]
        possible = mode == NONNEGATIVE or extra[c] > 0.0
        lowest = min(lowest, h) if possible else lowest
        e = max(v[c] + relax * d, 0.0) - z[c] if possible else 0.0
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
    uniform = 1.0 / x.size
    gap, fit, off, cross, square, least, extra_value = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    tangent, support, lowest, along, bend = 0.0, 0.0, 1e300, 0.0, 0.0
    for c in range(x.size):
        d = x[c] - z[c]
        gap += d * d
        f = x[c] - y[c]
        fit += f * f
        off += f
        cross += f * x[c]
        square += x[c] * x[c]
        least = max(least, -x[c] / (uniform - x[c])) if x[c] < 0.0 else least
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
