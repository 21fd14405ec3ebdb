"""Passing between a region's table and its children's tables: sum down, spread up.

A region's table is `rows` rows of `inner` consecutive cells, `inner` being the size of its last attribute. A child either
keeps that attribute (kind 1: row i of the region meets row map[i] of the child) or sums it out (kind 0: row i meets the
single cell map[i]). That covers any rank and any sizes with unit-stride inner loops and one small map per pair of shapes.

`Shapes`, `Edges` and `Work` are what every kernel here is told about a graph. All their arrays are int64 and contiguous (`maps`
is int32), whatever the graph, so nothing is compiled twice.

Offsets are unsigned inside the loops, and whole tables are sliced first: an index that might be negative would make
the compiler add a wrap-around to every access and keep the loop scalar.
"""

# pyright: reportCallIssue=false
# An intrinsic is called without the typing context that its definition takes.

from __future__ import annotations

from math import log as scalar_log
from typing import Any, NamedTuple

from numba import njit, uint64

from consilience.kernels.options import LOOP
from consilience.kernels.vectors import (
    add_row_to_one,
    add_row_to_two,
    multiply_row_by_one,
    multiply_row_by_two,
    prefetch,
)

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


# The loops below take the arrays of `Edges` one by one: read out of a tuple once per row they would cost more than the row.


@njit(**LOOP)
def sum_down(
    x: Any, at: int, rows: int, inner: int, msg: Any, first: int, last: int, edge: Any, edges: Edges
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
    start, count, n = uint64(at), uint64(rows), uint64(inner)
    middle = first
    for f in range(first, last):
        e = edge[f]
        middle += 1 - kind[e]
        to = uint64(msg_at[e])
        for c in range(uint64(width[e])):
            msg[to + c] = 0.0
    f = middle
    while f < last or (f == middle and middle > first):
        kept = min(last - f, 2)
        a = b = o = edge[first]
        if kept > 0:
            a = edge[f]
        if kept == 2:
            b = edge[f + 1]
        to_a, to_b, to_o = uint64(msg_at[a]), uint64(msg_at[b]), uint64(msg_at[o])
        m_a, m_b, m_o = uint64(map_at[a]), uint64(map_at[b]), uint64(map_at[o])
        summed = middle - first if f == middle else 0
        if kept == 2 and summed == 1:  # a triple and its pairs: most of the work
            for i in range(count):
                src = start + i * n
                prefetch(x, src + count * n)
                prefetch(x, src + count * n + n)
                dst_a, dst_b = to_a + uint64(maps[m_a + i]) * n, to_b + uint64(maps[m_b + i]) * n
                row = add_row_to_two(x, src, n, msg, dst_a, dst_b)
                msg[to_o + uint64(maps[m_o + i])] += row
            f += 2
            continue
        for i in range(count):
            src = start + i * n
            row = 0.0
            if kept == 2:
                dst_a, dst_b = to_a + uint64(maps[m_a + i]) * n, to_b + uint64(maps[m_b + i]) * n
                row = add_row_to_two(x, src, n, msg, dst_a, dst_b)
            elif kept == 1:
                row = add_row_to_one(x, src, n, msg, to_a + uint64(maps[m_a + i]) * n)
            else:
                for j in range(n):
                    row += x[src + j]
            if summed > 0:
                msg[to_o + uint64(maps[m_o + i])] += row
            for g in range(first + 1, first + summed):
                e = edge[g]
                msg[uint64(msg_at[e]) + uint64(maps[uint64(map_at[e]) + i])] += row
        f += max(kept, 1)


@njit(**LOOP)
def multiply_up(
    x: Any, at: int, rows: int, inner: int, msg: Any, first: int, last: int, edge: Any, edges: Edges, needed: Any
) -> None:  # fmt: skip
    """x *= every edge's message spread over the region's table at x[at:]; edges of kind 0 are listed first.

    The same cells of `needed` will be read next.
    """
    kind, map_at, msg_at, maps = edges.kind, edges.map_at, edges.msg_at, edges.maps
    start, count, n = uint64(at), uint64(rows), uint64(inner)
    middle = first
    for f in range(first, last):
        middle += 1 - kind[edge[f]]
    f = middle
    while f < last or (f == middle and middle > first):
        kept = min(last - f, 2)
        a = b = o = edge[first]
        if kept > 0:
            a = edge[f]
        if kept == 2:
            b = edge[f + 1]
        to_a, to_b, to_o = uint64(msg_at[a]), uint64(msg_at[b]), uint64(msg_at[o])
        m_a, m_b, m_o = uint64(map_at[a]), uint64(map_at[b]), uint64(map_at[o])
        summed = middle - first if f == middle else 0
        if kept == 2 and summed == 1:
            for i in range(count):
                src = start + i * n
                prefetch(needed, src)
                prefetch(needed, src + n)
                dst_a, dst_b = to_a + uint64(maps[m_a + i]) * n, to_b + uint64(maps[m_b + i]) * n
                multiply_row_by_two(x, src, n, msg, dst_a, dst_b, msg[to_o + uint64(maps[m_o + i])])
            f += 2
            continue
        for i in range(count):
            src = start + i * n
            factor = 1.0
            if summed > 0:
                factor = msg[to_o + uint64(maps[m_o + i])]
            for g in range(first + 1, first + summed):
                e = edge[g]
                factor *= msg[uint64(msg_at[e]) + uint64(maps[uint64(map_at[e]) + i])]
            if kept == 2:
                dst_a, dst_b = to_a + uint64(maps[m_a + i]) * n, to_b + uint64(maps[m_b + i]) * n
                multiply_row_by_two(x, src, n, msg, dst_a, dst_b, factor)
            elif kept == 1:
                multiply_row_by_one(x, src, n, msg, to_a + uint64(maps[m_a + i]) * n, factor)
            else:
                for j in range(n):
                    x[src + j] *= factor
        f += max(kept, 1)


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
