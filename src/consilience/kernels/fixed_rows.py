"""The commonest table shape, three children of which two keep the last attribute, with the length of a row known to the compiler.

Rows are short (the size of one attribute), so a loop whose length is only known at run time spends more on its ends than on
its cells: these are four times as fast. Tables follow each other in memory, but the machine's own prefetching stops at every
page, so what comes next is asked for on the way. One pair of loops per length in LENGTHS is compiled, once; other lengths take
the general loops of `tables.py`.

A row is added to two messages, or multiplied by them. Both messages lie in one buffer, so the compiler has to assume that
writing one changes the other and keeps such loops scalar. The rows of two edges never overlap, which only we know: so the
vectors are spelt out, in pieces of four, two and one cells.
"""

# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types, uint64
from numba.extending import intrinsic

from consilience.kernels.options import LOOP

LENGTHS = (2, 3, 4, 5, 8, 10)
_DOUBLE = ir.DoubleType()
_INT = ir.IntType(32)
_BYTES = ir.IntType(8).as_pointer()


@intrinsic
def prefetch(typingctx: Any, array: Any, index: Any) -> Any:
    """Ask for array[index] to be in the cache soon. An index beyond the end is harmless."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        where = builder.bitcast(_at(context, builder, signature.args[0], args[0], args[1]), _BYTES)
        kind = ir.FunctionType(ir.VoidType(), [_BYTES, _INT, _INT, _INT])
        hint = builder.module.declare_intrinsic("llvm.prefetch", (_BYTES,), kind)
        builder.call(hint, [where, _INT(0), _INT(3), _INT(1)])  # to read, keep in every level, data
        return context.get_dummy_value()

    return types.void(array, types.uint64), codegen


def add_row(length: int) -> Any:
    """f(x, src, msg, a, b): msg[a:] += row and msg[b:] += row, where row = x[src : src + length]; returns the row's sum."""

    @intrinsic
    def add(typingctx: Any, x: Any, src: Any, msg: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            row = _at(context, builder, signature.args[0], args[0], args[1])
            targets = [_at(context, builder, signature.args[2], args[2], args[k]) for k in (3, 4)]
            sums: dict[int, Any] = {}
            for start, width in _pieces(length):
                cells = builder.load(_piece(builder, row, start, width), align=8)
                for target in targets:
                    where = _piece(builder, target, start, width)
                    builder.store(builder.fadd(builder.load(where, align=8), cells), where, align=8)
                sums[width] = builder.fadd(sums[width], cells) if width in sums else cells
            return _total(builder, sums)

        return types.float64(x, types.uint64, msg, types.uint64, types.uint64), codegen

    return add


def multiply_row(length: int) -> Any:
    """f(x, src, msg, a, b, factor): x[src : src + length] *= factor msg[a:] msg[b:]."""

    @intrinsic
    def multiply(typingctx: Any, x: Any, src: Any, msg: Any, a: Any, b: Any, factor: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            row = _at(context, builder, signature.args[0], args[0], args[1])
            first, second = (
                _at(context, builder, signature.args[2], args[2], args[k]) for k in (3, 4)
            )
            for start, width in _pieces(length):
                where = _piece(builder, row, start, width)
                both = builder.fmul(
                    builder.load(_piece(builder, first, start, width), align=8),
                    builder.load(_piece(builder, second, start, width), align=8),
                )
                scale = builder.fmul(_spread(builder, args[5], width), both)
                builder.store(builder.fmul(builder.load(where, align=8), scale), where, align=8)
            return context.get_dummy_value()

        signature = (x, types.uint64, msg, types.uint64, types.uint64, types.float64)
        return types.void(*signature), codegen

    return multiply


# -- parts of vectors -----------------------------------------------------------------------------------------


def _pieces(length: int) -> list[tuple[int, int]]:
    """Start and width of vectors of four, two and one cells that cover a row."""
    found, at = [], 0
    for width in (4, 2, 1):
        while length - at >= width:
            found.append((at, width))
            at += width
    return found


def _at(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


def _piece(builder: Any, row: Any, start: int, width: int) -> Any:
    cells = builder.gep(row, [ir.IntType(64)(start)])
    return (
        cells if width == 1 else builder.bitcast(cells, ir.VectorType(_DOUBLE, width).as_pointer())
    )


def _lanes(builder: Any, vector: Any, lanes: list[int]) -> Any:
    chosen = ir.Constant(ir.VectorType(_INT, len(lanes)), lanes)
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), chosen)


def _spread(builder: Any, value: Any, width: int) -> Any:
    if width == 1:
        return value
    empty = ir.Constant(ir.VectorType(_DOUBLE, width), ir.Undefined)
    return _lanes(builder, builder.insert_element(empty, value, _INT(0)), [0] * width)


def _total(builder: Any, sums: dict[int, Any]) -> Any:
    """The sum of all lanes, halved step by step so that widths meet."""
    if 4 in sums:
        half = builder.fadd(_lanes(builder, sums[4], [0, 1]), _lanes(builder, sums[4], [2, 3]))
        sums[2] = builder.fadd(sums[2], half) if 2 in sums else half
    if 2 in sums:
        low, high = (builder.extract_element(sums[2], _INT(k)) for k in (0, 1))
        one = builder.fadd(low, high)
        sums[1] = builder.fadd(sums[1], one) if 1 in sums else one
    return sums[1]


# -- rows of one length -----------------------------------------------------------------------------


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
