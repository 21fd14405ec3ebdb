"""Passing between a region's table and its children's tables: sum down, spread up.

A region's table is `rows` rows of `inner` consecutive cells, `inner` being the size of its last attribute. A child either
keeps that attribute (kind 1: row i of the region meets row map[i] of the child) or sums it out (kind 0: row i meets the
single cell map[i]). That covers any rank and any sizes with unit-stride inner loops and one small map per pair of shapes.

`Shapes`, `Edges` and `Work` are what every kernel here is told about a graph. All their arrays are int64 and contiguous (`maps`
is int32), whatever the graph, so nothing is compiled twice.

Offsets are unsigned inside the loops, and whole tables are sliced first: an index that might be negative would make
the compiler add a wrap-around to every access and keep the loop scalar.
"""

from __future__ import annotations

from math import log as scalar_log
from typing import Any, NamedTuple

from numba import njit, uint64

from consilience.kernels.fixed_rows import multiply_three, sum_three
from consilience.kernels.options import LOOP

FLOOR = 1e-100
"""Smallest value that a cell that is not a structural zero can take, so that it can come back."""
CEILING = 1e200


class Shapes(NamedTuple):
    """Where tables lie in one buffer: table r has rows[r] rows of inner[r] cells, the first of them at at[r]."""

    at: Any
    rows: Any
    inner: Any


class Edges(NamedTuple):
    """Edges from tables to smaller tables. Edge e leads from parent[e] to child[e].

    kind[e] is 1 if the child keeps the parent's last attribute, else 0; row i of the parent meets row (kind 1) or cell (kind 0)
    maps[map_at[e] + i] of the child. Its message, which has the child's shape, is width[e] cells from msg_at[e] on.
    """

    parent: Any
    child: Any
    kind: Any
    map_at: Any
    msg_at: Any
    width: Any
    maps: Any

    @property
    def length(self) -> int:
        """Cells of all messages."""
        return int(self.width.sum())


class Work(NamedTuple):
    """Regions to visit, cut into items for threads, and the edges to use at each, those of kind 0 first.

    Item k is the regions region[chunk[k]] to region[chunk[k + 1] - 1]; the i-th region's edges are edge[ptr[i]:ptr[i + 1]].
    """

    chunk: Any
    region: Any
    ptr: Any
    edge: Any


@njit(**LOOP)
def _first_kept(first: int, last: int, edge: Any, kind: Any) -> int:
    """The position after the last edge of kind 0 among edge[first:last]."""
    middle = first
    for f in range(first, last):
        if kind[edge[f]] == 0:
            middle = f + 1
    return middle


# -- sum down -------------------------------------------------------------------------------------------
# The loops below take the arrays of `Edges` one by one: read out of a tuple once per row they would cost more than the row.


@njit(**LOOP)
def sum_down(
    x: Any, at: Any, rows: Any, inner: Any, msg: Any, first: Any, last: Any, edge: Any, edges: Edges
) -> None:
    """Sum the region's table at x[at:] down each of its edges `edge[first:last]`, those of kind 0 listed first.

    Two kept edges share one pass over the rows, and the row sums of the kind 0 edges come out of the first pass.
    """
    kind, map_at, msg_at, width, maps = (
        edges.kind,
        edges.map_at,
        edges.msg_at,
        edges.width,
        edges.maps,
    )
    at, rows, inner = uint64(at), uint64(rows), uint64(inner)
    for f in range(first, last):
        to = uint64(msg_at[edge[f]])
        for c in range(uint64(width[edge[f]])):
            msg[to + c] = 0.0
    f = _first_kept(first, last, edge, kind)
    if last - f == 2 and f - first == 1:
        _sum_three(x, at, rows, inner, msg, first, edge, map_at, msg_at, maps)
        f += 2
    elif last - f >= 2:
        _sum_two(x, at, rows, inner, msg, first, f, edge, map_at, msg_at, maps)
        f += 2
    elif last - f == 1:
        _sum_one(x, at, rows, inner, msg, first, f, edge, map_at, msg_at, maps)
        f += 1
    elif f > first:
        _sum_rows(x, at, rows, inner, msg, first, f, edge, map_at, msg_at, maps)
    for g in range(f, last):
        _sum_one(x, at, rows, inner, msg, g, g, edge, map_at, msg_at, maps)


@njit(**LOOP)
def _sum_three(
    x: Any, at: Any, rows: Any, inner: Any, msg: Any, first: Any, edge: Any, map_at: Any, msg_at: Any, maps: Any
) -> None:  # fmt: skip
    """A table with all children but one attribute each: the shape of most work, so its three edges are unrolled."""
    o, a, b = edge[first], edge[first + 1], edge[first + 2]
    to_o, to_a, to_b = uint64(msg_at[o]), uint64(msg_at[a]), uint64(msg_at[b])
    m_o, m_a, m_b = uint64(map_at[o]), uint64(map_at[a]), uint64(map_at[b])
    if sum_three(x, at, rows, inner, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps):
        return
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
        msg[to_o + uint64(maps[m_o + i])] += row


@njit(**LOOP)
def _sum_two(
    x: Any, at: Any, rows: Any, inner: Any, msg: Any, first: Any, middle: Any, edge: Any, map_at: Any, msg_at: Any, maps: Any
) -> None:  # fmt: skip
    """Two kept edges, and the row sums of the edges of kind 0 before them."""
    a, b = edge[middle], edge[middle + 1]
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
            e = edge[g]
            msg[uint64(msg_at[e]) + uint64(maps[uint64(map_at[e]) + i])] += row


@njit(**LOOP)
def _sum_one(
    x: Any, at: Any, rows: Any, inner: Any, msg: Any, first: Any, middle: Any, edge: Any, map_at: Any, msg_at: Any, maps: Any
) -> None:  # fmt: skip
    """One kept edge, and the row sums of the edges of kind 0 before it."""
    a = edge[middle]
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
            e = edge[g]
            msg[uint64(msg_at[e]) + uint64(maps[uint64(map_at[e]) + i])] += row


@njit(**LOOP)
def _sum_rows(
    x: Any, at: Any, rows: Any, inner: Any, msg: Any, first: Any, middle: Any, edge: Any, map_at: Any, msg_at: Any, maps: Any
) -> None:  # fmt: skip
    """The row sums of edges of kind 0 alone."""
    for i in range(rows):
        src = at + i * inner
        row = 0.0
        for j in range(inner):
            row += x[src + j]
        for g in range(first, middle):
            e = edge[g]
            msg[uint64(msg_at[e]) + uint64(maps[uint64(map_at[e]) + i])] += row


# -- multiply up ----------------------------------------------------------------------------------------


@njit(**LOOP)
def multiply_up(
    x: Any, at: Any, rows: Any, inner: Any, msg: Any, first: Any, last: Any, edge: Any, edges: Edges, needed: Any
) -> None:  # fmt: skip
    """x *= every edge's message spread over the region's table at x[at:]; edges of kind 0 are listed first.

    The same cells of `needed` will be read next.
    """
    kind, map_at, msg_at, maps = edges.kind, edges.map_at, edges.msg_at, edges.maps
    at, rows, inner = uint64(at), uint64(rows), uint64(inner)
    f = _first_kept(first, last, edge, kind)
    if last - f == 2 and f - first == 1:
        _multiply_three(x, at, rows, inner, msg, first, edge, map_at, msg_at, maps, needed)
        f += 2
    elif last - f >= 2:
        _multiply_two(x, at, rows, inner, msg, first, f, edge, map_at, msg_at, maps)
        f += 2
    elif last - f == 1:
        _multiply_one(x, at, rows, inner, msg, first, f, edge, map_at, msg_at, maps)
        f += 1
    elif f > first:
        _multiply_rows(x, at, rows, inner, msg, first, f, edge, map_at, msg_at, maps)
    for g in range(f, last):
        _multiply_one(x, at, rows, inner, msg, g, g, edge, map_at, msg_at, maps)


@njit(**LOOP)
def _multiply_three(
    x: Any, at: Any, rows: Any, inner: Any, msg: Any, first: Any, edge: Any, map_at: Any, msg_at: Any, maps: Any, needed: Any
) -> None:  # fmt: skip
    """The unrolled case of `_sum_three`."""
    o, a, b = edge[first], edge[first + 1], edge[first + 2]
    to_o, to_a, to_b = uint64(msg_at[o]), uint64(msg_at[a]), uint64(msg_at[b])
    m_o, m_a, m_b = uint64(map_at[o]), uint64(map_at[a]), uint64(map_at[b])
    if multiply_three(x, at, rows, inner, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps, needed):
        return
    for i in range(rows):
        factor = msg[to_o + uint64(maps[m_o + i])]
        src = at + i * inner
        dst_a = to_a + uint64(maps[m_a + i]) * inner
        dst_b = to_b + uint64(maps[m_b + i]) * inner
        for j in range(inner):
            x[src + j] *= factor * msg[dst_a + j] * msg[dst_b + j]


@njit(**LOOP)
def _multiply_two(
    x: Any, at: Any, rows: Any, inner: Any, msg: Any, first: Any, middle: Any, edge: Any, map_at: Any, msg_at: Any, maps: Any
) -> None:  # fmt: skip
    """Two kept edges, and the edges of kind 0 before them."""
    a, b = edge[middle], edge[middle + 1]
    to_a, to_b, m_a, m_b = (
        uint64(msg_at[a]),
        uint64(msg_at[b]),
        uint64(map_at[a]),
        uint64(map_at[b]),
    )
    for i in range(rows):
        factor = 1.0
        for g in range(first, middle):
            e = edge[g]
            factor *= msg[uint64(msg_at[e]) + uint64(maps[uint64(map_at[e]) + i])]
        src = at + i * inner
        dst_a = to_a + uint64(maps[m_a + i]) * inner
        dst_b = to_b + uint64(maps[m_b + i]) * inner
        for j in range(inner):
            x[src + j] *= factor * msg[dst_a + j] * msg[dst_b + j]


@njit(**LOOP)
def _multiply_one(
    x: Any, at: Any, rows: Any, inner: Any, msg: Any, first: Any, middle: Any, edge: Any, map_at: Any, msg_at: Any, maps: Any
) -> None:  # fmt: skip
    """One kept edge, and the edges of kind 0 before it."""
    a = edge[middle]
    to_a, m_a = uint64(msg_at[a]), uint64(map_at[a])
    for i in range(rows):
        factor = 1.0
        for g in range(first, middle):
            e = edge[g]
            factor *= msg[uint64(msg_at[e]) + uint64(maps[uint64(map_at[e]) + i])]
        src = at + i * inner
        dst_a = to_a + uint64(maps[m_a + i]) * inner
        for j in range(inner):
            x[src + j] *= factor * msg[dst_a + j]


@njit(**LOOP)
def _multiply_rows(
    x: Any, at: Any, rows: Any, inner: Any, msg: Any, first: Any, middle: Any, edge: Any, map_at: Any, msg_at: Any, maps: Any
) -> None:  # fmt: skip
    """Edges of kind 0 alone."""
    for i in range(rows):
        factor = 1.0
        for g in range(first, middle):
            e = edge[g]
            factor *= msg[uint64(msg_at[e]) + uint64(maps[uint64(map_at[e]) + i])]
        src = at + i * inner
        for j in range(inner):
            x[src + j] *= factor


# -- whole tables ---------------------------------------------------------------------------------------


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
