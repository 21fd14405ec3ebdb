"""The commonest table shape, three children of which two keep the last attribute, with the length of a row known to the compiler.

Rows are short (the size of one attribute), so a loop whose length is only known at run time spends more on its ends than on
its cells: these are twice as fast. One pair of loops per length in LENGTHS is compiled, once; other lengths take the general
loops of `tables.py`.
"""

# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit, uint64

from consilience.kernels.options import LOOP

LENGTHS = (2, 3, 4, 5, 8, 10)


def _sum_rows(length: int) -> Callable[..., None]:
    @njit(**LOOP)
    def sum_rows(
        x: Any, at: Any, rows: Any, msg: Any, to_o: Any, to_a: Any, to_b: Any, m_o: Any, m_a: Any, m_b: Any, maps: Any
    ) -> None:  # fmt: skip
        """msg_o += row sums, msg_a += rows, msg_b += rows, each where its map says."""
        for i in range(rows):
            src = at + i * uint64(length)
            dst_a = to_a + uint64(maps[m_a + i]) * uint64(length)
            dst_b = to_b + uint64(maps[m_b + i]) * uint64(length)
            row = 0.0
            for j in range(length):
                v = x[src + uint64(j)]
                row += v
                msg[dst_a + uint64(j)] += v
                msg[dst_b + uint64(j)] += v
            msg[to_o + uint64(maps[m_o + i])] += row

    return sum_rows


def _multiply_rows(length: int) -> Callable[..., None]:
    @njit(**LOOP)
    def multiply_rows(
        x: Any, at: Any, rows: Any, msg: Any, to_o: Any, to_a: Any, to_b: Any, m_o: Any, m_a: Any, m_b: Any, maps: Any
    ) -> None:  # fmt: skip
        """x *= msg_o msg_a msg_b, each spread as its map says."""
        for i in range(rows):
            factor = msg[to_o + uint64(maps[m_o + i])]
            src = at + i * uint64(length)
            dst_a = to_a + uint64(maps[m_a + i]) * uint64(length)
            dst_b = to_b + uint64(maps[m_b + i]) * uint64(length)
            for j in range(length):
                x[src + uint64(j)] *= factor * msg[dst_a + uint64(j)] * msg[dst_b + uint64(j)]

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
    x: Any, at: Any, rows: Any, inner: Any, msg: Any, to_o: Any, to_a: Any, to_b: Any, m_o: Any, m_a: Any, m_b: Any, maps: Any
) -> bool:  # fmt: skip
    """Multiply rows of `inner` cells by three edges' messages; False if no loop of that length is compiled."""
    if inner == 10:
        _MULTIPLY_10(x, at, rows, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps)
    elif inner == 2:
        _MULTIPLY_2(x, at, rows, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps)
    elif inner == 3:
        _MULTIPLY_3(x, at, rows, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps)
    elif inner == 4:
        _MULTIPLY_4(x, at, rows, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps)
    elif inner == 5:
        _MULTIPLY_5(x, at, rows, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps)
    elif inner == 8:
        _MULTIPLY_8(x, at, rows, msg, to_o, to_a, to_b, m_o, m_a, m_b, maps)
    else:
        return False
    return True
