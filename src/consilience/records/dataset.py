"""Dataset: the records of a table as small integers, column by column, and the exact counts of its marginals.

Records come from an integer array, a mapping, or a pandas or polars frame. Neither pandas nor polars is imported: a frame is
anything with `columns` whose items turn into NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from numbers import Integral
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.domain import CliqueVector, Domain, Layout
from consilience.domain.domain import name_of, names_of
from consilience.errors import DataError, DomainError
from consilience.kernels.counting import count_marginals
from consilience.markup import html_table

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
    there = list(table) if isinstance(table, Mapping) else list(table.columns)
    found = {name_of(key): key for key in there}
    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(
            f"the table must have a column {missing[0]!r}, got columns {_shown(there)}; "
            "rename a column, or leave the attribute out of the domain"
        )
    columns = [_column(table, found[name]) for name in names]
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


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Records over a domain, as codes from 0 to size - 1, with an optional weight each.

    `codes` is an integer array (records x attributes, in the order of the domain), or named
    columns: a pandas or polars frame or a mapping. Named columns are matched by name in any order,
    and columns that the domain does not know are ignored. The codes are checked first and copied,
    so a dataset does not change when its source does.

    `unit_rows`: whose rows these are and how many each has at most, as (name, rows); None where every row stands for itself.
    `few_of_each_unit` makes it so.
    """

    domain: Domain
    codes: Codes
    weights: NDArray[np.float64] | None
    unit_rows: tuple[str, int] | None

    def __init__(
        self,
        codes: ArrayLike | Table | Codes,
        domain: Domain,
        weights: ArrayLike | None = None,
        *,
        unit_rows: tuple[str, int] | None = None,
    ) -> None:
        packed = codes if isinstance(codes, Codes) else pack(domain, _columns(codes, domain))
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "codes", packed)
        object.__setattr__(self, "weights", _checked_weights(weights, packed.records))
        object.__setattr__(self, "unit_rows", unit_rows)

    # -- reading ---------------------------------------------------------------------------------

    @property
    def records(self) -> int:
        """Number of rows, whatever their weights."""
        return self.codes.records

    @property
    def total(self) -> float:
        """What every marginal sums to: the number of records, or the sum of their weights."""
        return float(self.records if self.weights is None else self.weights.sum())

    def __len__(self) -> int:
        return self.records

    def column(self, attribute: str) -> NDArray[np.unsignedinteger]:
        """The codes of one attribute, a read-only view."""
        return self.codes.column(self.domain.position(attribute))

    def to_array(self) -> NDArray[np.unsignedinteger]:
        """All codes, records x attributes, in the narrowest type that holds every column."""
        return np.stack([self.column(a) for a in self.domain], axis=1)

    def __repr__(self) -> str:
        names = list(self.domain)
        shown = ", ".join(names if len(names) <= 8 else [*names[:6], "...", names[-1]])
        weighted = "" if self.weights is None else f", weights summing to {self.total:,.6g}"
        return f"Dataset({self.records:,} records{weighted}; {len(names)} attributes: {shown})"

    def _repr_html_(self) -> str:
        """What was declared and how many rows there are. No row and no count of any is shown: notebooks are passed around."""
        rows = [(a, f"{n:,} codes") for a, n in self.domain.sizes.items()]
        weighted = "" if self.weights is None else ", weighted"
        note = "Rows are not shown."
        return html_table(f"Dataset: {self.records:,} records{weighted}", rows, note=note)

    # -- other datasets --------------------------------------------------------------------------

    def project(self, attributes: str | Iterable[str]) -> Dataset:
        """The same records with some of the attributes, in domain order; no codes are copied."""
        clique = self.domain.clique(attributes)
        columns = self.codes.select(self.domain.axes(clique))
        return Dataset(columns, self.domain.project(clique), self.weights, unit_rows=self.unit_rows)

    def few_of_each_unit(self, units: ArrayLike, rows: int, name: str = "unit") -> Dataset:
        """At most so many rows of each unit, its first ones; `units` says whose each row is.

        Which rows of a unit are kept depends on that unit alone, so adding or removing a unit moves nobody else's rows.
        """
        ids = np.asarray(units)
        if ids.shape != (self.records,):
            raise DataError(
                f"units must be one per record, shape ({self.records},), got shape {ids.shape}"
            )
        if not isinstance(rows, Integral) or isinstance(rows, bool) or rows < 1:
            raise DataError(f"rows of a unit must be a whole number from 1 on, got {rows!r}")
        _, whose = np.unique(ids, return_inverse=True)
        order = np.argsort(whose, kind="stable")
        first = np.flatnonzero(np.diff(whose[order], prepend=-1))
        place = np.arange(self.records) - np.repeat(first, np.diff(first, append=self.records))
        kept = np.sort(order[place < rows])
        weights = None if self.weights is None else self.weights[kept]
        columns = [self.column(a)[kept] for a in self.domain]
        return Dataset(
            pack(self.domain, columns), self.domain, weights, unit_rows=(name, int(rows))
        )

    # -- counting --------------------------------------------------------------------------------

    def marginal(self, attributes: str | Iterable[str]) -> NDArray[Any]:
        """Exact counts of one marginal: one axis per attribute, in the order asked for.

        int64, or float64 sums of weights. `data.marginal(())` is the total.
        """
        order = names_of(attributes)
        named = self.domain.named(order)
        if len(named) != len(order):
            raise DomainError(
                f"the attributes of a marginal must be distinct, got {order}; ask for each once"
            )
        clique = self.domain.clique(named)
        counts = self.domain.coarsened(self.marginals([clique])[clique], named)
        table = counts.transpose([named.index(a) for a in order])
        return table.astype(np.int64 if self.weights is None else np.float64, order="C")

    def marginals(self, cliques: Iterable[Iterable[str]]) -> CliqueVector:
        """Exact counts of many marginals in one pass over the records; axes in domain order.

        Memory beyond the result is a few hundred kilobytes per thread, whatever the number of
        records.
        """
        layout = Layout(self.domain, cliques)
        counts = np.zeros(layout.cells)
        members = [self.domain.axes(c) for c in layout.cliques]
        count_marginals(
            self.codes.arrays,
            self.codes.columns,
            np.array(self.domain.shape, dtype=np.int64),
            np.array([a for clique in members for a in clique], dtype=np.int64),
            np.array([0, *accumulate(map(len, members))], dtype=np.int64),
            layout.offsets,
            self.weights,
            counts,
        )
        return CliqueVector(layout, counts)


def _columns(codes: ArrayLike | Table, domain: Domain) -> list[NDArray[Any]]:
    """One array per attribute, in the order of the domain."""
    if isinstance(codes, Mapping | Frame):
        return named_columns(codes, domain.attributes)
    try:
        array = np.asarray(codes)
    except ValueError:
        raise DataError("codes must be a table, got rows of different lengths") from None
    if array.ndim != 2 or array.shape[1] != len(domain):
        raise DataError(
            f"codes must have shape (records, {len(domain)}), one column per attribute, "
            f"got {array.shape}; give rows of codes in the order of the domain"
        )
    return list(array.T)


def _checked_weights(weights: ArrayLike | None, records: int) -> NDArray[np.float64] | None:
    if weights is None:
        return None
    try:
        checked = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("weights must be numbers, one per record, got something else") from None
    if checked.shape != (records,):
        raise DataError(
            f"weights must be one number per record, shape ({records},), got shape {checked.shape}"
        )
    bad = ~(np.isfinite(checked) & (checked >= 0))
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"weights must be finite and not negative, got {checked[row]} at row {row}; "
            "correct or drop the record"
        )
    checked.setflags(write=False)
    return checked
