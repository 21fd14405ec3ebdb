"""Drafting: a first schema for a table, read off the table and therefore not private.

Labels, bounds and bins that come from the records tell about the records. A draft says so in its first lines, and is to
be edited until everything in it is public knowledge or a choice made without the data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from math import floor, log10
from pathlib import Path
from typing import Any

import numpy as np

from consilience.data.binned import Dates, Numeric
from consilience.data.coding import spells_number
from consilience.data.columns import OTHER, RESERVED, Boolean, Categorical, Column
from consilience.data.duck import DuckDB, Sql, kind_of, opened_table
from consilience.data.files import FAILURES, Connection, Opened, quoted, refusal, text_literal
from consilience.data.schema import Schema
from consilience.data.schema_file import format_schema
from consilience.data.values import DAY
from consilience.errors import DataError
from consilience.progress import Progress, Step

MOST_LABELS = 60
"""Of a text column; one with more is left out of a draft."""
EACH = 20
"""Whole numbers are taken one by one up to so many."""
BINS = 10
CROWDED = 0.6
"""Share of the rows in one bin of equal width from which bins of equal rows are drafted instead."""
READABLE = 0.95
"""Share of the values that must be numbers, or days, for a text column to be drafted as such."""

NO_VALUE = ("na", "n/a", "nan", "null", "none", "nil", "-", "--", "?", ".", "unknown", "missing")
"""How tables spell that a value is not there, in small letters; numbers and days may have such in between."""

WARNING = """DRAFT, read off the table: NOT private as it is, and a release refuses it.
Labels, bounds and bins below were taken from the records, and publishing them tells about the records.
Before a private release, go through every column: keep what is public knowledge or would be chosen
without seeing the data, add labels that could occur, round the bounds. Then delete the line draft = [...],
which lists what to check."""
ID_NAME = re.compile(r"(^|[^a-z])(id|ids|uuid|guid|ssn|key)$|(ID|Id|Key)$|^(id|ID|Id)([^a-z]|$)")
"""Names that look like those of identifiers."""


@dataclass(frozen=True)
class Draft:
    """A drafted schema, with what to say above each column."""

    schema: Schema
    comments: Mapping[str, str]
    left_out: Mapping[str, str]

    def to_toml(self) -> str:
        head = WARNING
        for name, why in self.left_out.items():
            head += f"\nLeft out: {name!r}, {why}."
        return format_schema(self.schema, self.comments, head + "\n")


def draft_schema(
    table: Any,
    *,
    delimiter: str | None = None,
    name: str | None = None,
    progress: Progress | None = None,
) -> Draft:
    """Look at every column of a table and guess what it is. progress sees each column."""
    connection, opened, types = opened_table(table, delimiter, name)
    try:  # read once: every column takes several questions
        connection.execute(f"CREATE TEMP TABLE drafted AS SELECT * FROM {opened.relation}")
    except FAILURES as error:
        raise refusal(opened.shown, error) from error
    opened = Opened("drafted", opened.shown)
    columns: list[Column] = []
    comments: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for done, (column, type_name) in enumerate(types.items()):
        if progress is not None:
            progress(Step("looking at every column", done, len(types)))
        found = _Look(connection, opened, column, type_name).guess()
        if isinstance(found, str):
            left_out[column] = found
        else:
            columns.append(found[0])
            comments[column] = found[1]
    if not columns:
        raise DataError(
            f"the table {opened.shown!r} must have a column that can be counted, it has none: "
            + "; ".join(f"{n!r} {why}" for n, why in list(left_out.items())[:3])
        )
    return Draft(
        Schema(columns, left_out, name=_called(table), draft=_to_check(columns, left_out)),
        comments,
        left_out,
    )


def _called(table: Any) -> str | None:
    """The name of a file, without its endings, as the name of the table."""
    if not isinstance(table, str | Path):
        return None
    stem = Path(table).name.partition(".")[0].strip()
    return stem if stem.isprintable() and stem else None


def _to_check(columns: Sequence[Column], left_out: Mapping[str, str]) -> list[str]:
    """What of a draft tells about the records, kind by kind."""
    kinds = {
        "labels of": Categorical,
        "bounds and bins of": Numeric,
        "first and last day of": Dates,
    }
    said = [
        f"{what} {', '.join(names)}"
        for what, kind in kinds.items()
        if (names := [c.name for c in columns if isinstance(c, kind)])
    ]
    seen = [*(c.name for c in columns), *left_out]
    ids = [n for n in seen if ID_NAME.search(n) or "identifier" in left_out.get(n, "")]
    if ids:
        said.append(
            f"whether {' or '.join(ids)} says whose a row is: if somebody may have several rows, declare unit and rows_per_unit"
        )
    return said


@dataclass(frozen=True)
class _Look:
    """One column of the table, as its different values and how often each occurs: usually far fewer than rows."""

    connection: Connection
    opened: Opened
    name: str
    type_name: str

    def guess(self) -> tuple[Column, str] | str:
        """The column and a comment, or why it is left out."""
        engine = DuckDB()
        kind = kind_of(self.type_name)
        self._do(
            f"CREATE OR REPLACE TEMP TABLE seen AS SELECT {quoted(self.name)} AS v, count(*) AS times "
            f"FROM {self.opened.relation} GROUP BY 1"
        )
        x = engine.column("v", kind, self.type_name)
        if kind == "truth":
            return Boolean(self.name), ""
        if kind in ("whole", "number"):
            return self._numeric(engine.to_number(x))
        if kind == "day":
            return self._days(x)
        text = Sql(f"nullif({engine.trim(x)}, '')")
        numbers = engine.case([(spells_number(text, engine), engine.to_number(text))], Sql("NULL"))
        days = engine.case([(engine.matches(text, DAY), self._day(text))], Sql("NULL"))
        absent = f"lower({text}) IN ({', '.join(text_literal(v) for v in NO_VALUE)})"
        present, marked, as_number, as_day, distinct, words = self._row(
            f"{_rows(text)}, {_rows(text, absent)}, {_rows(numbers)}, {_rows(days)}, count(DISTINCT {text}), "
            f"count(DISTINCT lower({text})) FILTER (WHERE lower({text}) IN ('true', 'false', 'yes', 'no'))"
        )
        if not present:
            return "which is empty"
        if distinct <= 2 and words == distinct:
            return Boolean(self.name), ""
        if as_day and as_day >= READABLE * (present - marked):
            return self._days(days)
        if as_number and as_number >= READABLE * (present - marked) and distinct > 2:
            return self._numeric(numbers, present - as_number)
        if distinct > MOST_LABELS:
            return f"which has {distinct:,} different values: an identifier, or text"
        labels = sorted(row[0] for row in self._ask(f"DISTINCT {text}", f"{text} IS NOT NULL"))
        labels = [v for v in labels if v not in RESERVED]
        note = (
            f"any other label counts as missing; other = {OTHER!r} would give it a code of its own"
        )
        if labels and present == self._row("sum(times)")[0]:
            note += f"; nothing is missing here: missing = {labels[0]!r} would do without that code"
        return Categorical(self.name, tuple(labels)), note

    def _numeric(self, x: Sql, unread: int = 0) -> tuple[Column, str] | str:
        present, low, high, whole, distinct = self._row(
            f"{_rows(x)}, min({x}) FILTER (WHERE isfinite({x})), max({x}) FILTER (WHERE isfinite({x})), "
            f"bool_and({x} = floor({x})), count(DISTINCT {x})"
        )
        if not present or low is None:
            return "which is empty"
        is_whole = bool(whole) and abs(low) < 2**53 and abs(high) < 2**53
        note = f"the table goes from {low:g} to {high:g}"
        note += f"; {unread:,} values are no numbers and count as missing" if unread else ""
        if is_whole and high - low < EACH:
            return Numeric.each(self.name, int(low), int(high)), note
        if low == high:
            return f"which is always {low:g}"
        if distinct == present and is_whole and present > 100:
            return "which is different in every row: an identifier"
        steps = _nice_edges(low, high, BINS)
        inside = [s for s in steps if low < s < high]
        sums = ", ".join(_rows(x, f"{x} < {s!r}") for s in inside) or "0"
        below = np.diff([0, *self._row(sums), present])
        if below.max() > CROWDED * present:
            steps = self._crowded_edges(x, low, high, is_whole)
        edges = [float(round(s)) for s in steps] if is_whole else steps
        return Numeric(self.name, tuple(sorted(set(edges))), is_whole), note

    def _crowded_edges(self, x: Sql, low: float, high: float, whole: bool) -> list[float]:
        """Bins of about equal rows; a value that most rows share gets a bin of its own, as far as whole numbers allow."""
        inner = [_two_digits(v) for v in self._quantiles(x, "true")]
        if len(set(inner)) < BINS // 2:
            most = f"{x} IS NOT NULL GROUP BY 1 ORDER BY sum(times) DESC, 1 LIMIT 1"
            mode = self._ask(f"{x}", most)[0][0]
            found = self._quantiles(x, f"{x} <> {float(mode)!r}")
            inner = [_two_digits(v) for v in found if v is not None]
            inner += [mode, mode + 1] if whole else [mode]
        ends = (_two_digits(low, floor), _two_digits(high, lambda v: -floor(-v)))
        return sorted({ends[0], *(float(v) for v in inner if ends[0] < v < ends[1]), ends[1]})

    def _quantiles(self, x: Sql, where: str) -> tuple[Any, ...]:
        """For each of BINS - 1 shares of the rows, the first value that so many do not exceed."""
        whole = f"(SELECT {_rows(x, where)} FROM seen)"
        each = f"SELECT {x} AS q, sum(times) AS n FROM seen WHERE {x} IS NOT NULL AND {where} GROUP BY 1"
        ordered = f"SELECT q, sum(n) OVER (ORDER BY q) AS upto FROM ({each})"
        shares = ", ".join(
            f"min(q) FILTER (WHERE upto >= {i / BINS!r} * {whole})" for i in range(1, BINS)
        )
        return self._do(f"SELECT {shares} FROM ({ordered})")[0]

    def _days(self, x: Sql) -> tuple[Column, str] | str:
        first, last = self._row(f"min({x}), max({x})")
        if first is None:
            return "which is empty"
        first, last = date.fromisoformat(str(first)[:10]), date.fromisoformat(str(last)[:10])
        span = (last - first).days
        period = "day" if span < 32 else "month" if span < 1500 else "year"
        start, end = first.replace(day=1), last
        return Dates(self.name, start, end, period), f"the table goes from {first} to {last}"

    @staticmethod
    def _day(text: Sql) -> Sql:
        return Sql(f"TRY_CAST(substring({text}, 1, 10) AS DATE)")

    def _row(self, what: str) -> tuple[Any, ...]:
        return self._ask(what)[0]

    def _ask(self, what: str, where: str = "true") -> list[tuple[Any, ...]]:
        return self._do(f"SELECT {what} FROM seen WHERE {where}")

    def _do(self, query: str) -> list[tuple[Any, ...]]:
        try:
            return self.connection.execute(query).fetchall()
        except FAILURES as error:
            raise refusal(self.opened.shown, error) from error


def _rows(x: Sql, where: str = "true") -> str:
    """SQL: how many rows have a value (and meet a condition)."""
    return f"coalesce(CAST(sum(times) FILTER (WHERE {x} IS NOT NULL AND {where}) AS BIGINT), 0)"


def _nice_edges(low: float, high: float, bins: int) -> list[float]:
    """About so many steps of 1, 2 or 5 times a power of ten that hold low and high."""
    raw = (high - low) / bins
    power = 10.0 ** floor(log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999999)
    first, last = floor(low / step), -floor(-high / step)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def _two_digits(value: float, rounding: Any = round) -> float:
    if value == 0:
        return 0.0
    power = 10.0 ** (floor(log10(abs(value))) - 1)
    return float(f"{rounding(value / power) * power:.12g}")
