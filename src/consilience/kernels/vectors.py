"""Rows of a known length as vector instructions, and a hint to the cache.

A row is added to two messages, or multiplied by them. Both messages lie in one buffer, so the compiler has to assume that
writing one changes the other and keeps such loops scalar. The rows of two edges never overlap, which only we know: here the
vectors are spelt out, in pieces of four, two and one cells.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

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


# -- parts -----------------------------------------------------------------------------------------


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
