"""Whole numbers: a flow whose every arc becomes an integer next to it, and rows moved until controls hold.

Rounding a flow: arcs carry a fraction between zero and one, and what enters a node leaves it, up to whole numbers. Arcs join a
forest one by one. An arc that closes a cycle has the cycle pushed round, in the direction that costs less, until one of its arcs
is whole; that one leaves. A forest of fractions cannot balance at its leaves, so in the end no fraction is left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from consilience.kernels.options import LOOP

WHOLE = 1e-11
"""A fraction nearer than this to a whole number is one."""


@njit(**LOOP)
def round_flow(tail: Any, head: Any, share: Any, slope: Any, nodes: int) -> None:
    """share (in place) = 0 or 1 for each arc from tail to head; slope: what one more on the arc costs."""
    up = np.full(nodes, -1, np.int64)  # the node above in the forest, and the arc to it
    via = np.full(nodes, -1, np.int64)
    seen = np.full(nodes, -1, np.int64)
    for e in range(tail.size):
        if share[e] <= WHOLE or share[e] >= 1.0 - WHOLE:
            share[e] = np.rint(share[e])
            continue
        u, w = tail[e], head[e]
        top = _meeting(u, w, e, up, seen)
        if top >= 0:
            _push(e, u, w, top, up, via, tail, share, slope)
        if share[e] > 0.0 and share[e] < 1.0:
            _link(e, u, w, up, via)
    for e in range(tail.size):
        share[e] = np.rint(share[e])


@njit(inline="always", **LOOP)
def _meeting(u, w, e, up, seen):
    """The first node on both ways to the root, -1 where there is none."""
    a, b = u, w
    one, other = 2 * e, 2 * e + 1
    while a >= 0 or b >= 0:
        if a >= 0:
            if seen[a] == other:
                return a
            seen[a] = one
            a = up[a]
        if b >= 0:
            if seen[b] == one:
                return b
            seen[b] = other
            b = up[b]
    return -1


@njit(inline="always", **LOOP)
def _push(e, u, w, top, up, via, tail, share, slope):
    """Round the cycle of arc e: along it from u to w, and back through the forest."""
    more, less, cost = 1.0 - share[e], share[e], slope[e]
    for side in range(2):
        v = w if side == 0 else u
        while v != top:
            k = via[v]
            # From w the way goes up, towards u it comes down: an arc that leaves v is followed on the first only.
            along = (tail[k] == v) == (side == 0)
            more = min(more, 1.0 - share[k] if along else share[k])
            less = min(less, share[k] if along else 1.0 - share[k])
            cost += slope[k] if along else -slope[k]
            v = up[v]
    by = more if cost <= 0.0 else -less
    share[e] = _settled(share[e] + by)
    for side in range(2):
        v = w if side == 0 else u
        while v != top:
            k = via[v]
            along = (tail[k] == v) == (side == 0)
            share[k] = _settled(share[k] + (by if along else -by))
            above = up[v]
            if share[k] == 0.0 or share[k] == 1.0:
                up[v] = -1
                via[v] = -1
            v = above


@njit(inline="always", **LOOP)
def _settled(x):
    if x <= WHOLE:
        return 0.0
    return 1.0 if x >= 1.0 - WHOLE else x


@njit(inline="always", **LOOP)
def _link(e, u, w, up, via):
    """Hang the tree whose root is nearer below the other end of the arc."""
    a, b = u, w
    while up[a] >= 0 and up[b] >= 0:
        a, b = up[a], up[b]
    v, above = (u, w) if up[a] < 0 else (w, u)
    k = e
    while v >= 0:
        following, arc = up[v], via[v]
        up[v], via[v] = above, k
        above, k, v = v, arc, following


PROHIBITIVE = 1e6
"""What a record in an impossible cell costs; such cells have an infinite deviation."""
LOOKED_AT = 64
"""Rows that are tried for a slot before the best of them is taken."""


@njit(**LOOP)
def fill_slots(
    slots: Any, wanted: Any, moving: Any, start: Any, rows: Any, cell: Any, excess: Any, codes: Any,
    ptr: Any, other: Any, stride: Any, place: Any, at: Any, deviation: Any,
) -> int:  # fmt: skip
    """Move a row into each slot, the one whose move harms the tables least; how many slots were left.

    Slot i takes a row of group slots[i], rows[start[g]:start[g + 1]], and gives it codes wanted[i] in the attributes `moving`. A
    row may go if its cell has an excess. Table c holds attributes other[k] with stride[k], k from ptr[c] to ptr[c + 1], and
    begins at deviation[at[c]]; place[k] is the attribute's position in `moving`, -1 where it does not move.
    """
    left = 0
    tables = ptr.size - 1
    for i in range(slots.size):
        g = slots[i]
        best, least, tried = -1, PROHIBITIVE / 2, 0
        for j in range(start[g], start[g + 1]):
            r = rows[j]
            if cell[r] < 0 or excess[cell[r]] <= 0:
                continue
            tried += 1
            change = 0.0
            for c in range(tables):
                old, new = at[c], at[c]
                for k in range(ptr[c], ptr[c + 1]):
                    own = codes[r, other[k]]
                    old += own * stride[k]
                    new += (own if place[k] < 0 else wanted[i, place[k]]) * stride[k]
                if old == new:
                    continue
                if not np.isfinite(deviation[new]):
                    change += PROHIBITIVE
                    continue
                change += abs(deviation[new] + 1.0) - abs(deviation[new])
                if np.isfinite(deviation[old]):
                    change += abs(deviation[old] - 1.0) - abs(deviation[old])
            if change < least:
                best, least = r, change
            if tried >= LOOKED_AT and best >= 0:
                break
        if best < 0:
            left += 1
            continue
        for c in range(tables):
            old, new = at[c], at[c]
            for k in range(ptr[c], ptr[c + 1]):
                own = codes[best, other[k]]
                old += own * stride[k]
                new += (own if place[k] < 0 else wanted[i, place[k]]) * stride[k]
            deviation[old] -= 1.0
            deviation[new] += 1.0
        for m in range(moving.size):
            codes[best, moving[m]] = wanted[i, m]
        excess[cell[best]] -= 1
        cell[best] = -1
    return left
