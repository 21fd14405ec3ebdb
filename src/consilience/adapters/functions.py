"""Queries of other tools, which are code, as the simplest query of ours: the table, some of its cells, cells with weights."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from consilience.measurements.queries import LINEAR, Query, Sparse, of_function

Buffer = NDArray[np.float64]


def simplest(
    function: Callable[[Buffer], Any], shape: tuple[int, ...], rows: int
) -> tuple[Query | None, float]:
    """(query, weight) of a linear function of a table: weight times the query, None for the table itself.

    Two tables tell whether answers are cells in order, from the first on or up to the last, each times a number of its own;
    what is more than that is asked for every cell.
    """
    cells = prod(shape)
    if rows <= cells:
        first, second = _trials(cells)
        told = [
            np.asarray(function(t.reshape(shape)), np.float64).reshape(-1) for t in (first, second)
        ]
        for start in dict.fromkeys((0, cells - rows)):
            part = slice(start, start + rows)
            if any(len(y) != rows for y in told):
                break
            weights = told[0] / first[part]
            if np.allclose(weights * second[part], told[1], rtol=LINEAR, atol=LINEAR):
                return _selected(weights, start, cells)
    return of_function(function, shape), 1.0


def _trials(cells: int) -> tuple[Buffer, Buffer]:
    at = np.arange(cells)
    return 2.0 + np.cos(at), 3.0 + np.sin(1.0 + 2.0 * at)


def _selected(weights: Buffer, start: int, cells: int) -> tuple[Query | None, float]:
    weights = np.where(np.abs(weights) <= LINEAR * np.abs(weights).max(), 0.0, weights)
    close = float(np.median(weights))
    even = close > 0 and np.allclose(weights, close, rtol=LINEAR, atol=0.0)
    if even and abs(close - 1.0) <= LINEAR:
        close = 1.0
    if even and len(weights) == cells:
        return None, close
    matrix = sparse.csr_array(
        (weights, (np.arange(len(weights)), start + np.arange(len(weights)))), (len(weights), cells)
    )
    matrix.eliminate_zeros()
    return Sparse(matrix), 1.0
