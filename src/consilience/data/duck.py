"""DuckDBTable: a table in a file or a frame, coded by DuckDB and counted by our kernel as its codes stream by.

Memory does not grow with the number of rows: DuckDB reads and codes, in its own memory limit, and hands over batches of codes
of one to four bytes. Many marginals are counted in one scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from weakref import finalize

import duckdb
import numpy as np
from numpy.typing import NDArray

from consilience.data.coding import Coded, Kind, coded
from consilience.data.files import (
    FAILURES,
    Connection,
    Opened,
    open_table,
    quoted,
    refusal,
    text_literal,
)
from consilience.data.schema import Schema
from consilience.data.survey import CodedTable, Survey, check_columns
from consilience.data.values import BLANKS
from consilience.domain import CliqueVector, Layout
from consilience.kernels.counting import count_marginals
from consilience.progress import Progress, Step
from consilience.records.dataset import Codes, Dataset, pack

_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_KINDS: dict[str, Kind] = {
    "BOOLEAN": "truth",
    "FLOAT": "number",
    "DOUBLE": "number",
    "DATE": "day",
    **dict.fromkeys(_WHOLE, "whole"),
    **dict.fromkeys((f"U{w}" for w in _WHOLE), "whole"),
}


# -- the operations of `coding.Engine` as SQL ----------------------------------------------------------


def kind_of(type_name: str) -> Kind:
    name = type_name.upper()
    if name.startswith("DECIMAL"):
        return "number"
    return "day" if name.startswith("TIMESTAMP") else _KINDS.get(name, "text")


def _between(operator: str) -> Callable[[Sql, Sql], Sql]:
    """A method that writes this operator between two expressions."""
    return lambda left, right: Sql(f"({left} {operator} {right})")


@dataclass(frozen=True, eq=False)
class Sql:
    """A piece of SQL. Operators put it together; == is SQL's."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> Sql:  # type: ignore[override]
        return Sql(f"({self} = {other})")

    __lt__ = _between("<")
    __gt__ = _between(">")
    __add__ = _between("+")
    __sub__ = _between("-")
    __mul__ = _between("*")
    __and__ = _between("AND")
    __or__ = _between("OR")


def _of(form: str):
    """A method that writes its argument into this form."""

    def written(self: DuckDB, x: Sql) -> Sql:
        return Sql(form.format(x))

    return written


class DuckDB:
    """The operations of `coding.Engine`."""

    def literal(self, value: int | float | str | bool) -> Sql:
        match value:
            case bool():
                return Sql("true" if value else "false")
            case int():
                return Sql(str(value))
            case float():
                return Sql(f"CAST('{value!r}' AS DOUBLE)")  # a bare 1.5 would be a decimal
        return Sql(text_literal(value))

    def null(self) -> Sql:
        return Sql("CAST(NULL AS INTEGER)")

    is_null = _of("({} IS NULL)")

    is_nan = _of("isnan({})")

    def negate(self, condition: Sql) -> Sql:
        return Sql(f"(NOT {condition})")

    def trim(self, x: Sql) -> Sql:
        return Sql(f"trim({x}, {text_literal(BLANKS)})")

    lower = _of("lower({})")

    def matches(self, x: Sql, pattern: str) -> Sql:
        return Sql(f"regexp_matches({x}, {text_literal(pattern)})")

    def part(self, x: Sql, start: int, length: int) -> Sql:
        return Sql(f"substring({x}, {start}, {length})")

    def extract(self, x: Sql, pattern: str, group: int) -> Sql:
        return Sql(f"regexp_extract({x}, {text_literal(pattern)}, {group})")

    def replace(self, x: Sql, old: str, new: str) -> Sql:
        return Sql(f"replace({x}, {text_literal(old)}, {text_literal(new)})")

    to_number = _of("TRY_CAST({} AS DOUBLE)")

    to_whole = _of("TRY_CAST({} AS INTEGER)")

    to_text = _of("CAST({} AS VARCHAR)")

    def year_month_day(self, x: Sql) -> tuple[Sql, Sql, Sql]:
        year, month, day = (Sql(f"extract('{p}' FROM {x})") for p in ("year", "month", "day"))
        return year, month, day

    to_day = _of("TRY_CAST({} AS DATE)")

    def divide(self, x: Sql, by: int) -> Sql:
        return Sql(f"({x} // {by})")

    def case(self, branches: Sequence[tuple[Sql, Sql]], otherwise: Sql) -> Sql:
        if not branches:
            return otherwise
        whens = " ".join(f"WHEN {c} THEN {v}" for c, v in branches)
        return Sql(f"(CASE {whens} ELSE {otherwise} END)")

    def lookup(self, x: Sql, codes: Mapping[str, int]) -> Sql:
        # An enumeration is a hash table; its codes are the positions of its labels.
        assert list(codes.values()) == list(range(len(codes)))
        labels = ", ".join(text_literal(label) for label in codes)
        return Sql(f"CAST(enum_code(TRY_CAST({x} AS ENUM({labels}))) AS INTEGER)")

    def column(self, name: str, kind: Kind, type_name: str) -> Sql:
        """A column in the type that its kind is handled in."""
        x = Sql(quoted(name))
        if kind == "text" and type_name.upper() != "VARCHAR":
            return self.to_text(x)
        if kind == "day" and type_name.upper() != "DATE":
            utc = "WITH TIME ZONE" in type_name.upper()
            x = Sql(f"CAST({x}{' AT TIME ZONE ' + text_literal('UTC') if utc else ''} AS DATE)")
        if (
            kind == "day"
        ):  # DuckDB has days before and after all others, which have no year: missing
            return Sql(f"(CASE WHEN isfinite({x}) THEN {x} END)")
        return x


# -- the table ---------------------------------------------------------------------------------------

ROWS_AT_ONCE = 1 << 19
MEMORY_LIMIT = "1GB"
"""DuckDB's own; our batches and counts come on top."""


@dataclass(frozen=True, eq=False, repr=False)
class DuckDBTable(CodedTable):
    """Rows that DuckDB can scan, coded by a schema; a `Source`."""

    schema: Schema
    connection: Connection
    opened: Opened
    types: dict[str, str]
    progress: Progress | None = None
    dropped: int = 0
    """Rows that are not counted, because their unit has enough others."""
    _columns: list[Coded] = field(init=False)

    def __post_init__(self) -> None:
        check_columns(self.schema, list(self.types), self.opened.shown)
        engine, parts = DuckDB(), []
        for column in self.schema:
            type_name = self.types[column.name]
            kind: Kind = kind_of(type_name)
            x = engine.column(column.name, kind, type_name)
            parts.append(coded(column, x, kind, engine))
        object.__setattr__(self, "_columns", parts)

    def __repr__(self) -> str:
        return f"DuckDBTable({self.opened.shown!r}, {len(self.schema)} columns)"

    def _look(self) -> Survey:
        """In one scan."""
        sums = ["count(*)"]
        for part in self._columns:
            sums += [f"count(*) FILTER (WHERE {part.unread})"]
            sums += [f"count(*) FILTER (WHERE {part.outside})"]
            sums += [f"count(*) FILTER (WHERE {part.missing})"]
        try:
            (row,) = self._ask(f"SELECT {', '.join(sums)} FROM {self.opened.relation}").fetchall()
        except FAILURES as error:
            raise refusal(self.opened.shown, error) from error
        return Survey.of(self.schema, row, self.dropped)

    def undeclared(self, name: str, most: int) -> list[tuple[str, int]]:
        part = self._columns[self.domain.position(name)]
        found = self._ask(
            f"SELECT CAST({quoted(name)} AS VARCHAR), count(*) FROM {self.opened.relation} "
            f"WHERE {part.unread} OR {part.outside} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {most}"
        )
        return found.fetchall()

    def share_done(self) -> float | None:
        """How much of the query that runs now is done, from 0 to 1; None where DuckDB does not know."""
        percent = self.connection.query_progress()
        return percent / 100 if 0 <= percent <= 100 else None

    def marginals(self, cliques: Iterable[Iterable[str]]) -> CliqueVector:
        """Exact counts of many marginals in one scan; axes in domain order."""
        layout = Layout(self.domain, cliques)
        counts = np.zeros(layout.cells)
        members = [self.domain.axes(c) for c in layout.cliques]
        flat = np.array([a for clique in members for a in clique], dtype=np.int64)
        first = np.array([0, *accumulate(map(len, members))], dtype=np.int64)
        sizes = np.array(self.domain.shape, dtype=np.int64)
        for codes in self._batches():
            count_marginals(
                codes.arrays, codes.columns, sizes, flat, first, layout.offsets, None, counts
            )
        return CliqueVector(layout, counts)

    def dataset(self) -> Dataset:
        """All rows as codes in memory, in the order of the table."""
        parts = list(self._batches())
        if not parts:
            return self._dataset(np.empty((0, len(self.domain)), np.int64))
        arrays = tuple(
            np.concatenate([p.arrays[w] for p in parts], axis=1)
            for w in range(len(parts[0].arrays))
        )
        for array in arrays:
            array.setflags(write=False)
        return self._dataset(Codes(arrays, parts[0].columns))  # pyright: ignore[reportArgumentType]

    def _dataset(self, codes: NDArray[np.int64] | Codes) -> Dataset:
        return Dataset(codes, self.domain, unit_rows=self.unit_rows)

    def _batches(self) -> Iterator[Codes]:
        """The codes, some hundred thousand rows at a time."""
        selected = []
        for column, part in zip(self.schema, self._columns, strict=True):
            size = len(column.labels)
            width = "UTINYINT" if size <= 1 << 8 else "USMALLINT" if size <= 1 << 16 else "UINTEGER"
            selected.append(f"CAST({part.code} AS {width})")
        done = 0
        total = self.survey.records if self.progress is not None else None
        named = ", ".join(f"{s} AS c{i}" for i, s in enumerate(selected))
        found = self._ask(f"SELECT {named} FROM {self.opened.relation}")
        try:
            for batch in found.to_arrow_reader(ROWS_AT_ONCE):
                arrays: Sequence[NDArray[Any]] = [c.to_numpy() for c in batch.columns]
                yield pack(self.domain, arrays)
                done += batch.num_rows
                if self.progress is not None:
                    self.progress(Step("counting", done, total))
        except FAILURES as error:
            raise refusal(self.opened.shown, error) from error

    def _ask(self, query: str) -> Any:
        try:
            return self.connection.sql(query)
        except FAILURES as error:
            raise refusal(self.opened.shown, error) from error


def duckdb_table(
    table: Any,
    schema: Schema,
    *,
    delimiter: str | None = None,
    name: str | None = None,
    progress: Progress | None = None,
    memory_limit: str = MEMORY_LIMIT,
    lenient: bool = False,
    encoding: str | None = None,
) -> DuckDBTable:
    """A path (CSV, Parquet, Arrow, DuckDB) or a frame (pandas, polars, Arrow) as a table that can be counted."""
    connection, opened, types = opened_table(
        table, delimiter, name, memory_limit, lenient, encoding
    )
    if schema.unit is None:
        return DuckDBTable(schema, connection, opened, types, progress)
    check_columns(schema, list(types), opened.shown)
    kept, dropped = _few_of_each_unit(connection, opened, schema)
    return DuckDBTable(schema, connection, kept, types, progress, dropped)


def _few_of_each_unit(connection: Connection, opened: Opened, schema: Schema) -> tuple[Opened, int]:
    """At most so many rows of each unit, and how many are left out; rows of no unit are left out.

    Which are kept is decided by a hash of the row, so by that unit's own rows alone: nobody's rows depend on another's.
    """
    assert schema.unit is not None
    unit, columns = quoted(schema.unit), ", ".join(quoted(c.name) for c in schema)
    named = f"nullif(trim(CAST({unit} AS VARCHAR), {text_literal(BLANKS)}), '')"
    first = f"row_number() OVER (PARTITION BY {named} ORDER BY hash({columns}), {columns})"
    try:
        connection.execute(
            f"CREATE TEMP TABLE kept AS SELECT {columns} FROM {opened.relation} WHERE {named} IS NOT NULL "
            f"QUALIFY {first} <= {schema.rows_per_unit}"
        )
        (rows,) = connection.execute(f"SELECT count(*) FROM {opened.relation}").fetchall()
        (kept,) = connection.execute("SELECT count(*) FROM kept").fetchall()
    except FAILURES as error:
        raise refusal(opened.shown, error) from error
    return Opened("kept", opened.shown), rows[0] - kept[0]


def opened_table(
    table: Any,
    delimiter: str | None,
    name: str | None,
    memory_limit: str = MEMORY_LIMIT,
    lenient: bool = False,
    encoding: str | None = None,
) -> tuple[Connection, Opened, dict[str, str]]:
    """A table in a DuckDB of our own, and {column: DuckDB's name of its type}; no rows are read."""
    connection = _connect(memory_limit)
    opened = open_table(
        connection, table, delimiter=delimiter, name=name, lenient=lenient, encoding=encoding
    )
    try:
        rows = connection.execute(f"DESCRIBE SELECT * FROM {opened.relation}").fetchall()
    except FAILURES as error:
        raise refusal(opened.shown, error) from error
    return connection, opened, {row[0]: row[1] for row in rows}


def _connect(memory_limit: str) -> Connection:
    """Nothing is downloaded, and no settings of the user change what we count.

    What does not fit the memory goes to a folder of its own, which is removed with the connection.
    """
    connection = duckdb.connect(":memory:")
    spill = mkdtemp(prefix="consilience-")
    finalize(connection, rmtree, spill, ignore_errors=True)
    connection.execute(f"SET temp_directory = {text_literal(spill)}")
    connection.execute(f"SET memory_limit = '{memory_limit}'")
    connection.execute("SET autoinstall_known_extensions = false")
    connection.execute("SET enable_progress_bar = true")  # counted, for who asks, and not shown
    connection.execute("SET enable_progress_bar_print = false")
    return connection
