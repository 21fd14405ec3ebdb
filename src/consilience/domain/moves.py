"""Many small tables moved between flat buffers at once, their axes permuted where asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.cliques import Family
from consilience.domain.rows import Ints, grouped, row_keys, starts

AT_ONCE = 1 << 19
"""Cells that one step may copy beside the buffers."""
FEW_RUNS = 64


def cells_of(at: NDArray[Any], counts: NDArray[Any]) -> Ints:
    """The numbers at[i], at[i] + 1, ... of counts[i] cells each, one after the other."""
    ptr = starts(counts)
    return np.arange(ptr[-1]) + np.repeat(at - ptr[:-1], counts)


def span_of(at: NDArray[Any], cells: int) -> Any:
    """Where tables of `cells` cells each lie that begin at `at`: a slice where they are neighbours, else a row for each."""
    if (np.diff(at) == cells).all():
        return slice(int(at[0]), int(at[0]) + cells * len(at))
    return at[:, None] + np.arange(cells)


def move(
    source: NDArray[Any],
    source_at: NDArray[Any],
    target: NDArray[Any],
    target_at: NDArray[Any],
    shapes: Family,
    axes: Family | None = None,
) -> None:
    """Table i, of shape shapes[i] from source_at[i] on, is written from target_at[i] on, transposed by axes[i]."""
    cells = np.ones(len(shapes), np.int64)
    for where, rows in shapes.by_rank.values():
        cells[where] = rows.prod(axis=1, dtype=np.int64)
    if axes is None and _copied_in_runs(source, source_at, target, target_at, cells):
        return
    for which in grouped(cells) if axes is None else _alike(shapes, axes):
        shape = shapes[int(which[0])]
        order = range(len(shape)) if axes is None else axes[int(which[0])]
        turned = (0, *(a + 1 for a in order))
        many = int(cells[which[0]])
        step = max(1, AT_ONCE // many)
        for first in range(0, len(which), step):
            part = which[first : first + step]
            read, write = span_of(source_at[part], many), span_of(target_at[part], many)
            tables = source[read].reshape(len(part), *shape).transpose(turned)
            target[write] = tables.reshape(-1 if isinstance(write, slice) else (len(part), many))


def _copied_in_runs(
    source: NDArray[Any],
    source_at: NDArray[Any],
    target: NDArray[Any],
    target_at: NDArray[Any],
    cells: Ints,
) -> bool:
    """Copy tables that follow one another in both buffers as one, if that makes a few runs; whether it did."""
    if not len(cells):
        return True
    joined = (np.diff(source_at) == cells[:-1]) & (np.diff(target_at) == cells[:-1])
    first = np.concatenate([[0], np.flatnonzero(~joined) + 1])
    if len(first) > FEW_RUNS:
        return False
    for lo, hi in zip(first, [*first[1:], len(cells)], strict=True):
        long = int(cells[lo:hi].sum())
        a, b = int(source_at[lo]), int(target_at[lo])
        target[b : b + long] = source[a : a + long]
    return True


def _alike(shapes: Family, axes: Family) -> list[Ints]:
    """Tables grouped by shape and order of axes."""
    kinds = np.unique(shapes.flat, return_inverse=True)[1].reshape(-1).astype(np.int32)
    numbered = Family(kinds, shapes.ptr)
    found = []
    for rank, (where, rows) in numbered.by_rank.items():
        both = np.concatenate([rows, axes.by_rank[rank][1]], axis=1)
        found += [where[g] for g in grouped(row_keys(both))]
    return found
