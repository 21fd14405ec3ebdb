"""Exact counts of many marginals in one pass over the records.

A record x falls in cell sum_j x_{a_j} * stride_j of clique (a_1, ..., a_k), tables in C order. The
cell numbers of a block of records are computed by Horner's rule in a vectorised loop, into a buffer
that stays in the first-level cache; then the cells are incremented. Four cliques are incremented
side by side, because neighbouring records often fall in the same cell and each increment of a cell
must wait for the one before it.

Records are visited in chunks that fit the last-level cache, all cliques per chunk, so the table is
read from memory once. A clique is always counted by one thread in the order of the records: there
are no atomic operations, and the result does not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from consilience.kernels.options import LOOP
from consilience.kernels.threads import spread

LANES = 4  # cliques counted side by side by one thread
BLOCK = 1024  # records whose cell numbers are held at once: LANES * BLOCK * 4 bytes = 16 KB
CHUNK = 1 << 18  # records visited by all cliques before the next ones are read


def count_marginals(
    codes: tuple[NDArray[np.uint8], NDArray[np.uint16], NDArray[np.uint32]],
    columns: NDArray[np.int64],
    sizes: NDArray[np.int64],
    members: NDArray[np.int64],
    first: NDArray[np.int64],
    offsets: NDArray[np.int64],
    weights: NDArray[np.float64] | None,
    counts: NDArray[np.float64],
) -> None:
    """counts[offsets[c] + cell of clique c] += weight, for every record and every clique.

    codes: three arrays (columns x records) of one, two and four bytes per code; every code is below
    its size. columns[a] is (which of the three arrays, row in it) of attribute a, and sizes[a] its
    number of values. members[first[c]:first[c + 1]] are the attributes of clique c; its table
    starts at counts[offsets[c]]. weights: one per record, or None for one each. Counts are exact
    below 2^53.
    """
    tables = np.diff(offsets)
    wide = tables.size > 0 and int(tables.max()) > 1 << 32
    cell_type = np.empty(0, dtype=np.uint64 if wide else np.uint32)
    per_record = np.empty(0) if weights is None else weights
    fixed = (*map(_read_only, (*codes, columns, sizes, members, first, offsets, per_record)),)
    rows, tasks = codes[0].shape[1], -(-tables.size // LANES)
    for begin in range(0, rows, CHUNK):
        end = min(begin + CHUNK, rows)
        spread(_count, tasks, tables.size * (end - begin), begin, end, *fixed, counts, cell_type)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Kernels are compiled once, for arrays that nobody writes to."""
    view = array.view()
    view.setflags(write=False)
    return view


@njit(**LOOP)
def _horner(cells, column, size):
    """cells = cells * size + column. A function of its own, because only so it is vectorised."""
    for r in range(column.size):
        cells[r] = cells[r] * size + column[r]


@njit(**LOOP)
def _count(
    first_task, last_task, begin, end, codes8, codes16, codes32, columns, sizes, members, first, offsets, weights, counts,
    cell_type,
):  # fmt: skip
    """Count the records from `begin` to `end`; a task is LANES cliques."""
    cells = np.empty((LANES, BLOCK), cell_type.dtype)
    for task in range(first_task, last_task):
        low = task * LANES
        lanes = min(LANES, first.size - 1 - low)
        for start in range(begin, end, BLOCK):
            stop = min(start + BLOCK, end)
            for k in range(lanes):
                cells[k, :] = 0
                for m in range(first[low + k], first[low + k + 1]):
                    width, row = columns[members[m], 0], columns[members[m], 1]
                    size = cell_type.dtype.type(sizes[members[m]])
                    if width == 0:
                        _horner(cells[k], codes8[row, start:stop], size)
                    elif width == 1:
                        _horner(cells[k], codes16[row, start:stop], size)
                    else:
                        _horner(cells[k], codes32[row, start:stop], size)
            if weights.size == 0 and lanes == LANES:
                table0, table1 = counts[offsets[low] :], counts[offsets[low + 1] :]
                table2, table3 = counts[offsets[low + 2] :], counts[offsets[low + 3] :]
                for r in range(stop - start):
                    table0[cells[0, r]] += 1.0
                    table1[cells[1, r]] += 1.0
                    table2[cells[2, r]] += 1.0
                    table3[cells[3, r]] += 1.0
            else:
                for k in range(lanes):
                    table = counts[offsets[low + k] :]
                    for r in range(stop - start):
                        table[cells[k, r]] += weights[start + r] if weights.size else 1.0
