"""Rows of cells as vectors: a row is added to one or two messages, or multiplied by them, or they are added to it.

Rows are short (the size of one attribute) and both messages lie in one buffer, so the compiler has to assume that writing one
changes the other and keeps such loops scalar. The rows of two edges never overlap, which only we know: so the vectors are
spelt out, in pieces of four, then two and one cells. Tables follow each other in memory, but the machine's own prefetching stops
at every page, so what comes next is asked for on the way.
"""

# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_DOUBLE = ir.DoubleType()
_INT, _LONG = ir.IntType(32), ir.IntType(64)
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


@intrinsic
def add_row_to_two(typingctx: Any, x: Any, src: Any, n: Any, msg: Any, a: Any, b: Any) -> Any:
    """msg[a:] += row and msg[b:] += row, where row = x[src : src + n]; returns the row's sum."""
    return types.float64(x, *_U, msg, *_U), _add_row(2)


@intrinsic
def add_row_to_one(typingctx: Any, x: Any, src: Any, n: Any, msg: Any, a: Any) -> Any:
    """msg[a:] += row, where row = x[src : src + n]; returns the row's sum."""
    return types.float64(x, *_U, msg, types.uint64), _add_row(1)


@intrinsic
def multiply_row_by_two(
    typingctx: Any, x: Any, src: Any, n: Any, msg: Any, a: Any, b: Any, factor: Any
) -> Any:
    """x[src : src + n] *= factor msg[a:] msg[b:]."""
    return types.void(x, *_U, msg, *_U, types.float64), _change_row(2, ir.IRBuilder.fmul)


@intrinsic
def multiply_row_by_one(
    typingctx: Any, x: Any, src: Any, n: Any, msg: Any, a: Any, factor: Any
) -> Any:
    """x[src : src + n] *= factor msg[a:]."""
    return types.void(x, *_U, msg, types.uint64, types.float64), _change_row(1, ir.IRBuilder.fmul)


@intrinsic
def add_two_to_row(
    typingctx: Any, x: Any, src: Any, n: Any, msg: Any, a: Any, b: Any, term: Any
) -> Any:
    """x[src : src + n] += term + msg[a:] + msg[b:]."""
    return types.void(x, *_U, msg, *_U, types.float64), _change_row(2, ir.IRBuilder.fadd)


@intrinsic
def add_one_to_row(typingctx: Any, x: Any, src: Any, n: Any, msg: Any, a: Any, term: Any) -> Any:
    """x[src : src + n] += term + msg[a:]."""
    return types.void(x, *_U, msg, types.uint64, types.float64), _change_row(1, ir.IRBuilder.fadd)


_U = (types.uint64, types.uint64)


def _add_row(targets: int) -> Callable[..., Any]:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = _at(context, builder, signature.args[0], args[0], args[1])
        into = [
            _at(context, builder, signature.args[3], args[3], args[4 + k]) for k in range(targets)
        ]
        sums = {
            w: cgutils.alloca_once_value(builder, ir.Constant(_vector(w), None)) for w in (4, 1)
        }

        def piece(width: int, start: Any) -> None:
            cells = builder.load(_piece(builder, row, start, width), align=8)
            for target in into:
                where = _piece(builder, target, start, width)
                builder.store(builder.fadd(builder.load(where, align=8), cells), where, align=8)
            if width == 2:
                low, high = (builder.extract_element(cells, _INT(k)) for k in (0, 1))
                cells, width = builder.fadd(low, high), 1
            builder.store(builder.fadd(builder.load(sums[width]), cells), sums[width])

        _pieces(builder, args[2], piece)
        whole = builder.load(sums[4])
        pair = builder.fadd(_lanes(builder, whole, [0, 1]), _lanes(builder, whole, [2, 3]))
        low, high = (builder.extract_element(pair, _INT(k)) for k in (0, 1))
        return builder.fadd(builder.fadd(low, high), builder.load(sums[1]))

    return codegen


def _change_row(sources: int, operation: Callable[..., Any]) -> Callable[..., Any]:
    """Every cell of the row becomes (number, source and source) and itself, where `and` is the operation."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        row = _at(context, builder, signature.args[0], args[0], args[1])
        given = [
            _at(context, builder, signature.args[3], args[3], args[4 + k]) for k in range(sources)
        ]
        number = args[4 + sources]

        def piece(width: int, start: Any) -> None:
            where = _piece(builder, row, start, width)
            parts = [builder.load(_piece(builder, g, start, width), align=8) for g in given]
            change = parts[0] if sources == 1 else operation(builder, *parts)
            change = operation(builder, _spread(builder, number, width), change)
            builder.store(operation(builder, builder.load(where, align=8), change), where, align=8)

        _pieces(builder, args[2], piece)
        return context.get_dummy_value()

    return codegen


# -- parts of vectors -----------------------------------------------------------------------------------------


def _pieces(builder: Any, length: Any, piece: Callable[[int, Any], None]) -> None:
    """piece(width, start) for vectors of four, then two and one cells, that cover a row."""
    with cgutils.for_range(builder, builder.lshr(length, _LONG(2)), intp=_LONG) as loop:
        piece(4, builder.shl(loop.index, _LONG(2)))
    for width in (2, 1):
        with builder.if_then(cgutils.is_not_null(builder, builder.and_(length, _LONG(width)))):
            piece(width, builder.and_(length, _LONG(-2 * width)))


def _at(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


def _vector(width: int) -> Any:
    return _DOUBLE if width == 1 else ir.VectorType(_DOUBLE, width)


def _piece(builder: Any, row: Any, start: Any, width: int) -> Any:
    return builder.bitcast(builder.gep(row, [start]), _vector(width).as_pointer())


def _lanes(builder: Any, vector: Any, lanes: list[int]) -> Any:
    chosen = ir.Constant(ir.VectorType(_INT, len(lanes)), lanes)
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), chosen)


def _spread(builder: Any, value: Any, width: int) -> Any:
    if width == 1:
        return value
    empty = ir.Constant(_vector(width), ir.Undefined)
    return _lanes(builder, builder.insert_element(empty, value, _INT(0)), [0] * width)
