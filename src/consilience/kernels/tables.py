"""Passing between a region's table and its children's tables: sum down, spread up.

A region's table is `rows` rows of `inner` consecutive cells, `inner` being the size of its last attribute. A child either
keeps that attribute (kind 1: row i of the region meets row map[i] of the child) or sums it out (kind 0: row i meets the
single cell map[i]). That covers any rank and any sizes with unit-stride inner loops and one small map per pair of shapes.

Index arrays, as everywhere in this package: `parents[chunk[k]:chunk[k + 1]]` are the regions of work item k;
`edge_of[ptr[i]:ptr[i + 1]]` are the edges of the i-th listed region; edge e has `kind[e]`, its map at
`maps[map_at[e]:]`, and its child-shaped message at `msg[msg_at[e]:]`, `width[e]` cells long.

Offsets are unsigned inside the loops, and whole tables are sliced first: an index that might be negative would make
the compiler add a wrap-around to every access and keep the loop scalar.
"""

from __future__ import annotations

from math import log as scalar_log
from typing import Any

from numba import njit, prange, uint64

from consilience.kernels.fixed_rows import multiply_three, sum_three
from consilience.kernels.options import LOOP, PARALLEL

FLOOR = 1e-100
"""Smallest value that a cell that is not a structural zero can take, so that it can come back."""
CEILING = 1e200


@njit(**LOOP)
def sum_down(
    x: Any,
    at: Any,
    rows: Any,
    inner: Any,
    msg: Any,
    first: Any,
    last: Any,
    edge_of: Any,
    kind: Any,
    map_at: Any,
    msg_at: Any,
    width: Any,
    maps: Any,
) -> None:
    """Sum the region's table at x[at:] down each of its edges `edge_of[first:last]`, those of kind 0 listed first.

    Two kept edges share one pass over the rows, and the row sums of the kind 0 edges come out of the first pass.
    """
    at, rows, inner = uint64(at), uint64(rows), uint64(inner)
    middle = first
    for f in range(first, last):
        e = edge_of[f]
        to = uint64(msg_at[e])
        for c in range(uint64(width[e])):
            msg[to + c] = 0.0
        if kind[e] == 0:
            middle = f + 1
    f = middle
    if last - middle == 2 and middle - first == 1:
        # A table with all children but one attribute each: the shape of most work, so its three edges are unrolled.
        o, a, b = edge_of[first], edge_of[f], edge_of[f + 1]
        to_o, to_a, to_b = uint64(msg_at[o]), uint64(msg_at[a]), uint64(msg_at[b])
        m_o, m_a, m_b = uint64(map_at[o]), uint64(map_at[a]), uint64(map_at[b])
        fixed = sum_three(x, at, rows, inner, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps)
        for i in range(uint64(0) if fixed else rows):
            src = at + i * inner
            dst_a = to_a + uint64(maps[m_a + i]) * inner
            dst_b = to_b + uint64(maps[m_b + i]) * inner
            row = 0.0
            for j in range(inner):
                v = x[src + j]
                row += v
                msg[dst_a + j] += v
                msg[dst_b + j] += v
            msg[to_o + uint64(maps[m_o + i])] += row
        f += 2
    elif last - middle >= 2:
        a, b = edge_of[f], edge_of[f + 1]
        to_a, to_b, m_a, m_b = (
            uint64(msg_at[a]),
            uint64(msg_at[b]),
            uint64(map_at[a]),
            uint64(map_at[b]),
        )
        for i in range(rows):
            src = at + i * inner
            dst_a = to_a + uint64(maps[m_a + i]) * inner
            dst_b = to_b + uint64(maps[m_b + i]) * inner
            row = 0.0
            for j in range(inner):
                v = x[src + j]
                row += v
                msg[dst_a + j] += v
                msg[dst_b + j] += v
            for g in range(first, middle):
                e = edge_of[g]
                msg[uint64(msg_at[e]) + uint64(maps[uint64(map_at[e]) + i])] += row
        f += 2
    elif last - middle == 1:
        a = edge_of[f]
        to_a, m_a = uint64(msg_at[a]), uint64(map_at[a])
        for i in range(rows):
            src = at + i * inner
            dst_a = to_a + uint64(maps[m_a + i]) * inner
            row = 0.0
            for j in range(inner):
                v = x[src + j]
                row += v
                msg[dst_a + j] += v
            for g in range(first, middle):
                e = edge_of[g]
                msg[uint64(msg_at[e]) + uint64(maps[uint64(map_at[e]) + i])] += row
        f += 1
    elif middle > first:
        for i in range(rows):
            src = at + i * inner
            row = 0.0
            for j in range(inner):
                row += x[src + j]
            for g in range(first, middle):
                e = edge_of[g]
                msg[uint64(msg_at[e]) + uint64(maps[uint64(map_at[e]) + i])] += row
    for g in range(f, last):
        a = edge_of[g]
        to_a, m_a = uint64(msg_at[a]), uint64(map_at[a])
        for i in range(rows):
            src = at + i * inner
            dst_a = to_a + uint64(maps[m_a + i]) * inner
            for j in range(inner):
                msg[dst_a + j] += x[src + j]


@njit(**LOOP)
def multiply_up(
    x: Any,
    at: Any,
    rows: Any,
    inner: Any,
    msg: Any,
    first: Any,
    last: Any,
    edge_of: Any,
    kind: Any,
    map_at: Any,
    msg_at: Any,
    maps: Any,
    needed: Any,
) -> None:
    """x *= every edge's message spread over the region's table at x[at:]; edges of kind 0 are listed first.

    The same cells of `needed` will be read next.
    """
    at, rows, inner = uint64(at), uint64(rows), uint64(inner)
    middle = first
    for f in range(first, last):
        if kind[edge_of[f]] == 0:
            middle = f + 1
    f = middle
    if last - middle == 2 and middle - first == 1:
        o, a, b = edge_of[first], edge_of[f], edge_of[f + 1]
        to_o, to_a, to_b = uint64(msg_at[o]), uint64(msg_at[a]), uint64(msg_at[b])
        m_o, m_a, m_b = uint64(map_at[o]), uint64(map_at[a]), uint64(map_at[b])
        fixed = multiply_three(
            x, at, rows, inner, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps, needed
        )
        for i in range(uint64(0) if fixed else rows):
            factor = msg[to_o + uint64(maps[m_o + i])]
            src = at + i * inner
            dst_a = to_a + uint64(maps[m_a + i]) * inner
            dst_b = to_b + uint64(maps[m_b + i]) * inner
            for j in range(inner):
                x[src + j] *= factor * msg[dst_a + j] * msg[dst_b + j]
        f += 2
    elif last - middle >= 2:
        a, b = edge_of[f], edge_of[f + 1]
        to_a, to_b, m_a, m_b = (
            uint64(msg_at[a]),
            uint64(msg_at[b]),
            uint64(map_at[a]),
            uint64(map_at[b]),
        )
        for i in range(rows):
            factor = 1.0
            for g in range(first, middle):
                e = edge_of[g]
                factor *= msg[uint64(msg_at[e]) + uint64(maps[uint64(map_at[e]) + i])]
            src = at + i * inner
            dst_a = to_a + uint64(maps[m_a + i]) * inner
            dst_b = to_b + uint64(maps[m_b + i]) * inner
            for j in range(inner):
                x[src + j] *= factor * msg[dst_a + j] * msg[dst_b + j]
        f += 2
    elif last - middle == 1:
        a = edge_of[f]
        to_a, m_a = uint64(msg_at[a]), uint64(map_at[a])
        for i in range(rows):
            factor = 1.0
            for g in range(first, middle):
                e = edge_of[g]
                factor *= msg[uint64(msg_at[e]) + uint64(maps[uint64(map_at[e]) + i])]
            src = at + i * inner
            dst_a = to_a + uint64(maps[m_a + i]) * inner
            for j in range(inner):
                x[src + j] *= factor * msg[dst_a + j]
        f += 1
    elif middle > first:
        for i in range(rows):
            factor = 1.0
            for g in range(first, middle):
                e = edge_of[g]
                factor *= msg[uint64(msg_at[e]) + uint64(maps[uint64(map_at[e]) + i])]
            src = at + i * inner
            for j in range(inner):
                x[src + j] *= factor
    for g in range(f, last):
        a = edge_of[g]
        to_a, m_a = uint64(msg_at[a]), uint64(map_at[a])
        for i in range(rows):
            src = at + i * inner
            dst_a = to_a + uint64(maps[m_a + i]) * inner
            for j in range(inner):
                x[src + j] *= msg[dst_a + j]


@njit(**LOOP)
def total(x: Any, lo: int, hi: int) -> float:
    cells = x[lo:hi]
    s = 0.0
    for c in range(cells.size):
        s += cells[c]
    return s


@njit(**LOOP)
def rescale(x: Any, lo: int, hi: int, factor: float) -> None:
    cells = x[lo:hi]
    for c in range(cells.size):
        cells[c] *= factor


@njit(**LOOP)
def normalise(tau: Any, shift: Any, r: int, lo: int, hi: int) -> None:
    """Bring a region's belief back to mass one, remembering the factor."""
    mass = total(tau, lo, hi)
    if abs(mass - 1.0) > 1e-14:
        rescale(tau, lo, hi, 1.0 / mass)
        shift[r] += scalar_log(mass)


@njit(**PARALLEL)
def project(
    x: Any,
    msg: Any,
    chunk: Any,
    parents: Any,
    ptr: Any,
    edge_of: Any,
    at: Any,
    rows: Any,
    inner: Any,
    kind: Any,
    map_at: Any,
    msg_at: Any,
    width: Any,
    maps: Any,
) -> None:
    """Sum every listed region's table down each of its listed edges."""
    for k in prange(chunk.size - 1):
        for i in range(chunk[k], chunk[k + 1]):
            p = parents[i]
            sum_down(
                x,
                at[p],
                rows[p],
                inner[p],
                msg,
                ptr[i],
                ptr[i + 1],
                edge_of,
                kind,
                map_at,
                msg_at,
                width,
                maps,
            )
