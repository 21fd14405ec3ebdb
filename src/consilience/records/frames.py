"""Tables as columns: one way to read an integer array, a mapping, or a pandas or polars frame.

Neither pandas nor polars is imported: a frame is anything with `columns` whose items turn into
NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DataError

Column = NDArray[Any]


class Series(Protocol):
    """One column of a frame."""

    def to_numpy(self) -> NDArray[Any]: ...


@runtime_checkable
class Frame(Protocol):
    """What pandas and polars frames have in common."""

    @property
    def columns(self) -> Iterable[str]: ...

    def __getitem__(self, name: str, /) -> Series: ...


Table = Mapping[str, Any] | Frame
"""Named columns: a mapping of names to sequences, or a pandas or polars frame."""


def named_columns(table: Table, names: Sequence[str]) -> list[Column]:
    """The columns of these names, in this order, all of one length; others are left alone."""
    found = list(table) if isinstance(table, Mapping) else list(table.columns)
    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(
            f"the table must have a column {missing[0]!r}, got columns {_shown(found)}; "
            "rename a column, or leave the attribute out of the domain"
        )
    columns = [_column(table, name) for name in names]
    for name, column in zip(names, columns, strict=True):
        if column.ndim != 1:
            raise DataError(
                f"column {name!r} must be one column of values, got shape {column.shape}; "
                "is the name used twice?"
            )
        if column.size != columns[0].size:
            raise DataError(
                f"all columns must have the same length, got {columns[0].size} values "
                f"in {names[0]!r} and {column.size} in {name!r}"
            )
    return columns


def _column(table: Table, name: str) -> Column:
    return np.asarray(table[name] if isinstance(table, Mapping) else table[name].to_numpy())


def _shown(names: Sequence[object]) -> str:
    return (
        ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "") if names else "none"
    )
