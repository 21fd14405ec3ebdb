"""Codes: the records as small integers, column by column, checked when they are built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Domain
from consilience.errors import DataError

WIDTHS = (np.uint8, np.uint16, np.uint32)
CHECKED_AT_ONCE = (
    1 << 16
)  # records; a chunk of a row-major array is then read from memory once, not once per column


@dataclass(frozen=True, eq=False)
class Codes:
    """Every column in one, two or four bytes per code, whichever is enough for its size.

    `arrays[w]` holds the columns of width w (columns x records, read-only); column a of the domain
    is row `columns[a, 1]` of array `columns[a, 0]`.
    """

    arrays: tuple[NDArray[np.uint8], NDArray[np.uint16], NDArray[np.uint32]]
    columns: NDArray[np.int64]

    @property
    def records(self) -> int:
        return self.arrays[0].shape[1]

    def column(self, position: int) -> NDArray[np.unsignedinteger]:
        """The codes of one column, a read-only view."""
        width, row = self.columns[position]
        return self.arrays[width][row]

    def select(self, positions: Sequence[int]) -> Codes:
        """Some of the columns; nothing is copied."""
        return Codes(self.arrays, self.columns[list(positions)])


def pack(domain: Domain, given: Sequence[NDArray[Any]]) -> Codes:
    """Check one array of codes per attribute and copy them into the narrowest integers."""
    # Missing codes first, over all columns: they are why the others of an array became floats.
    for check in (_check_present, _check_type):
        for name, column in zip(domain, given, strict=True):
            check(domain, name, column)
    records = given[0].size
    width = np.array([_width(name, domain[name]) for name in domain], dtype=np.int64)
    # Row of each column within its width: how many columns of that width come before it.
    row = np.array([np.count_nonzero(width[:a] == width[a]) for a in range(len(width))])
    arrays = (
        np.empty((np.count_nonzero(width == 0), records), np.uint8),
        np.empty((np.count_nonzero(width == 1), records), np.uint16),
        np.empty((np.count_nonzero(width == 2), records), np.uint32),
    )
    for start in range(0, records, CHECKED_AT_ONCE):
        for a, name in enumerate(domain):
            part = given[a][start : start + CHECKED_AT_ONCE]
            _check_range(domain, name, part, start)
            arrays[width[a]][row[a], start : start + part.size] = part
    for array in arrays:
        array.setflags(write=False)
    return Codes(arrays, np.stack([width, row], axis=1))


def _width(name: str, size: int) -> int:
    for w, dtype in enumerate(WIDTHS):
        if size <= int(np.iinfo(dtype).max) + 1:
            return w
    raise DataError(
        f"an attribute of a dataset must have at most 2^32 values, got {size} for {name!r}"
    )


def _check_present(domain: Domain, name: str, column: NDArray[Any]) -> None:
    if column.dtype.kind == "f" and np.isnan(column).any():
        raise DataError(_not_a_code(domain, name, "NaN", int(np.isnan(column).argmax())))


def _check_type(domain: Domain, name: str, column: NDArray[Any]) -> None:
    if column.dtype.kind in "biu":
        return
    if column.dtype.kind == "O":
        bad = next((i for i, v in enumerate(column) if not isinstance(v, Integral)), None)
        if bad is None:
            return
        raise DataError(_not_a_code(domain, name, column[bad], bad))
    raise DataError(
        f"codes must be integers, got {column.dtype} in column {name!r}; "
        "cast whole numbers with astype(int), or encode labels and numbers with a Schema"
    )


def _not_a_code(domain: Domain, name: str, value: object, row: int) -> str:
    return (
        f"codes must be integers, column {name!r} holds {value} at row {row}; "
        f"use 0 to {domain[name] - 1}, with a code of its own for missing values, "
        "or encode the table with a Schema"
    )


def _check_range(domain: Domain, name: str, part: NDArray[Any], start: int) -> None:
    size = domain[name]
    if part.min() >= 0 and part.max() < size:
        return
    bad = int(np.argmax((part < 0) | (part >= size)))
    raise DataError(
        f"codes of column {name!r} must be from 0 to {size - 1}, "
        f"got {part[bad]} at row {start + bad}; "
        "correct the code, or declare a larger size in the domain"
    )
