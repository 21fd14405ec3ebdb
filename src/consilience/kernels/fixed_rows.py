"""The commonest table shape, three children of which two keep the last attribute, with the length of a row known to the compiler.

Rows are short (the size of one attribute), so a loop whose length is only known at run time spends more on its ends than on
its cells: these are four times as fast. Tables follow each other in memory, but the machine's own prefetching stops at every
page, so what comes next is asked for on the way. One pair of loops per length in LENGTHS is compiled, once; other lengths take
the general loops of `tables.py`.
"""

# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit, uint64

from consilience.kernels.options import LOOP
from consilience.kernels.vectors import add_row, multiply_row, prefetch

LENGTHS = (2, 3, 4, 5, 8, 10)


def _sum_rows(length: int) -> Callable[..., None]:
    add = add_row(length)

    @njit(**LOOP)
    def sum_rows(
        x: Any, at: Any, rows: Any, msg: Any, to_o: Any, to_a: Any, to_b: Any, m_o: Any, m_a: Any, m_b: Any, maps: Any
    ) -> None:  # fmt: skip
        """msg_o += row sums, msg_a += rows, msg_b += rows, each where its map says. The next table is sent for meanwhile."""
        step, next_table = uint64(length), rows * uint64(length)
        for i in range(rows):
            src = at + i * step
            prefetch(x, src + next_table)
            prefetch(x, src + next_table + step)
            a, b = to_a + uint64(maps[m_a + i]) * step, to_b + uint64(maps[m_b + i]) * step
            msg[to_o + uint64(maps[m_o + i])] += add(x, src, msg, a, b)

    return sum_rows


def _multiply_rows(length: int) -> Callable[..., None]:
    multiply = multiply_row(length)

    @njit(**LOOP)
    def multiply_rows(
        x: Any, at: Any, rows: Any, msg: Any, to_o: Any, to_a: Any, to_b: Any, m_o: Any, m_a: Any, m_b: Any, maps: Any,
        needed: Any,
    ) -> None:  # fmt: skip
        """x *= msg_o msg_a msg_b, each spread as its map says. The same cells of `needed` are sent for meanwhile."""
        step = uint64(length)
        for i in range(rows):
            src = at + i * step
            prefetch(needed, src)
            prefetch(needed, src + step)
            a, b = to_a + uint64(maps[m_a + i]) * step, to_b + uint64(maps[m_b + i]) * step
            multiply(x, src, msg, a, b, msg[to_o + uint64(maps[m_o + i])])

    return multiply_rows


_SUM_2, _SUM_3, _SUM_4, _SUM_5, _SUM_8, _SUM_10 = map(_sum_rows, LENGTHS)
_MULTIPLY_2, _MULTIPLY_3, _MULTIPLY_4, _MULTIPLY_5, _MULTIPLY_8, _MULTIPLY_10 = map(
    _multiply_rows, LENGTHS
)


@njit(**LOOP)
def sum_three(
    x: Any, at: Any, rows: Any, inner: Any, msg: Any, to_o: Any, to_a: Any, to_b: Any, m_o: Any, m_a: Any, m_b: Any, maps: Any
) -> bool:  # fmt: skip
    """Sum rows of `inner` cells down three edges; False if no loop of that length is compiled."""
    if inner == 10:
        _SUM_10(x, at, rows, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps)
    elif inner == 2:
        _SUM_2(x, at, rows, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps)
    elif inner == 3:
        _SUM_3(x, at, rows, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps)
    elif inner == 4:
        _SUM_4(x, at, rows, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps)
    elif inner == 5:
        _SUM_5(x, at, rows, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps)
    elif inner == 8:
        _SUM_8(x, at, rows, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps)
    else:
        return False
    return True


@njit(**LOOP)
def multiply_three(
    x: Any, at: Any, rows: Any, inner: Any, msg: Any, to_o: Any, to_a: Any, to_b: Any, m_o: Any, m_a: Any, m_b: Any, maps: Any,
    needed: Any,
) -> bool:  # fmt: skip
    """Multiply rows of `inner` cells by three edges' messages; False if no loop of that length is compiled."""
    if inner == 10:
        _MULTIPLY_10(x, at, rows, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps, needed)
    elif inner == 2:
        _MULTIPLY_2(x, at, rows, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps, needed)
    elif inner == 3:
        _MULTIPLY_3(x, at, rows, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps, needed)
    elif inner == 4:
        _MULTIPLY_4(x, at, rows, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps, needed)
    elif inner == 5:
        _MULTIPLY_5(x, at, rows, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps, needed)
    elif inner == 8:
        _MULTIPLY_8(x, at, rows, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps, needed)
    else:
        return False
    return True
