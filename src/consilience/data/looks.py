"""Looks: one column of a table, what it is taken for in a draft, and what is said about it.

Only drafts look at values, and a draft is not private. A column is its different values and how often each occurs: usually far
fewer than rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from math import floor, log10
from typing import Any

import numpy as np

from consilience.data.binned import Dates, Numeric
from consilience.data.coding import day_of_text, number_of_text
from consilience.data.columns import RESERVED, Boolean, Categorical, Column
from consilience.data.duck import DuckDB, Sql, kind_of
from consilience.data.files import FAILURES, Connection, Opened, quoted, refusal, text_literal
from consilience.data.formats import date_format, number_format
from consilience.data.values import spells_number

FEW = 20
"""Different values up to which a column is labels, whatever they look like."""
SOME_LABELS = 60
MOST_LABELS = 1000
OFTEN = 4
"""A text column has at most SOME_LABELS labels, or MOST_LABELS of which each occurs so often on average."""
TWICE = 2
"""The same for codes that are numbers."""
EACH = 20
"""Whole numbers are taken one by one up to so many."""
BINS = 10
CROWDED = 0.6
"""Share of the rows in one bin of equal width from which bins of equal rows are drafted instead."""
READABLE = 0.95
"""Share of the values that must be numbers, or days, for a text column to be drafted as such."""

MARKS = ("na", "n/a", "#n/a", "nan", "null", "-", "--", "?", ".")
"""How tables mark that a value is not there, in small letters, in any column."""
WORDS = ("n", "none", "nil", "unknown", "missing")
"""The same where numbers in bins or days are expected; among labels these may be some."""
AMONG_NUMBERS = ("n",)
"""The same among labels that are all numbers."""

NUMBER_FORMATS = (
    "1,234.5", "1.234,5", "1 234,5", "1'234.5", "$1,234.5", "€1.234,5", "1.234,5 €", "£1,234.5", "1234%", "1234,5%", "hh:mm",
)  # fmt: skip
DATE_FORMATS = ("MM/DD/YYYY", "DD/MM/YYYY", "DD.MM.YYYY", "YYYY/MM/DD", "DD-MM-YYYY")

CODE_NAME = re.compile(
    r"zip|postal|postcode|fips|geoid|tract|puma|county|district|precinct|ward|area|station|(^|[^a-z])(code|cd)s?$"
    r"|^(occp?|indp?|socp?|naics|isco|icd[0-9]*)([^a-z]|$)",
    re.I,
)
"""Names of columns whose numbers are codes."""


@dataclass(frozen=True)
class Seen:
    """What a column is taken for, with what to say above it; `tokens` stand for missing values in it."""

    column: Column
    said: str
    tokens: tuple[str, ...] = ()


@dataclass(frozen=True)
class Look:
    """One column of the table. `given` are the tokens for missing values that somebody named."""

    connection: Connection
    opened: Opened
    name: str
    type_name: str
    given: tuple[str, ...] = ()

    def guess(self) -> Seen | str:
        """The column, or why it is left out."""
        self._do(
            f"CREATE OR REPLACE TEMP TABLE seen AS SELECT {quoted(self.name)} AS v, count(*) AS times "
            f"FROM {self.opened.relation} GROUP BY 1"
        )
        engine, kind = DuckDB(), kind_of(self.type_name)
        x = engine.column("v", kind, self.type_name)
        match kind:
            case "truth":
                return self._finish(Boolean(self.name), x)
            case "whole" | "number":
                x, tokens = self._without_numbers(engine.to_number(x))
                return self._of_numbers(x, Sql(f"CAST({x} AS VARCHAR)"), tokens=tokens)
            case "day":
                return self._days(x, None)
        return self._of_text(Sql(f"nullif({engine.trim(x)}, '')"))

    # -- text ----------------------------------------------------------------------------------------

    def _of_text(self, text: Sql) -> Seen | str:
        (present,) = self._row(_rows(text))
        if not present:
            return "which is empty"
        rest, tokens = self._without(text, (*MARKS, *WORDS))
        rest = self._kept("rest", rest)
        found = self._as_days(rest) or self._as_numbers(rest)
        distinct, filled = self._row(f"count(DISTINCT {rest}), {_rows(rest)}")
        if found is not None and found[2]:
            return self._days(self._kept("x", found[0]), found[1], rest, tokens)
        if found is not None and not (_few(distinct, filled) and found[1] is None):
            return self._of_numbers(self._kept("x", found[0]), rest, found[1], tokens)
        all_numbers = found is not None and self._row(_rows(found[0]) + f" = {_rows(rest)}")[0]
        return self._of_words(text, (*MARKS, *AMONG_NUMBERS) if all_numbers else MARKS)

    def _of_words(self, text: Sql, marks: Sequence[str]) -> Seen | str:
        rest, tokens = self._without(text, marks)
        words, distinct = self._row(
            f"count(DISTINCT lower({rest})) FILTER (WHERE lower({rest}) IN ('true', 'false', 'yes', 'no')), "
            f"count(DISTINCT lower({rest}))"
        )
        if not distinct:  # nothing but marks: they are the labels
            return self._labels(text, ())
        if distinct <= 2 and words == distinct:
            return self._finish(Boolean(self.name, tokens=tokens), rest)
        return self._labels(rest, tokens)

    def _kept(self, name: str, x: Sql) -> Sql:
        """The same as a column of what was seen: an expression that is asked several things is worked out once."""
        self._do(f"CREATE OR REPLACE TEMP TABLE seen AS SELECT *, {x} AS {name} FROM seen")
        return Sql(name)

    def _without(self, text: Sql, marks: Sequence[str]) -> tuple[Sql, tuple[str, ...]]:
        """The text without what stands for missing values, and what does."""
        listed = ", ".join(text_literal(v) for v in marks)
        given = ", ".join(map(text_literal, self.given)) or "NULL"
        absent = f"(lower({text}) IN ({listed}) OR coalesce({text} IN ({given}), false))"
        found = self._ask(f"DISTINCT {text}", f"{text} IS NOT NULL AND {absent}")
        return Sql(f"(CASE WHEN {absent} THEN NULL ELSE {text} END)"), tuple(
            sorted(r[0] for r in found)
        )

    def _without_numbers(self, x: Sql) -> tuple[Sql, tuple[str, ...]]:
        """Numbers without those that somebody named as standing for missing values, and the names that occur."""
        named = {t: float(t) for t in self.given if spells_number(t)}
        if not named:
            return x, ()
        found = {
            row[0] for row in self._ask(f"DISTINCT {x}", f"{x} IN ({_listed(named.values())})")
        }
        rest = Sql(f"(CASE WHEN {x} IN ({_listed(named.values())}) THEN NULL ELSE {x} END)")
        return rest, tuple(t for t, v in named.items() if v in found)

    def _as_days(self, rest: Sql) -> tuple[Sql, str | None, bool] | None:
        forms = [
            None,
            *DATE_FORMATS,
            *(["YYYYMMDD"] if re.search("dat|day", self.name, re.I) else []),
        ]
        days = [_day(rest, form) for form in forms]
        present, *read = self._row(", ".join(_rows(x) for x in (rest, *days)))
        best = max(range(len(forms)), key=lambda i: (read[i], -i))
        enough = present and read[best] >= READABLE * present
        return (days[best], forms[best], True) if enough else None

    def _as_numbers(self, rest: Sql) -> tuple[Sql, str | None, bool] | None:
        for forms in ((None,), NUMBER_FORMATS):
            numbers = [_number(rest, form) for form in forms]
            present, *read = self._row(", ".join(_rows(x) for x in (rest, *numbers)))
            for x, form, count in zip(numbers, forms, read, strict=True):
                if count and count >= READABLE * present:
                    return x, form, False
        return None

    def _labels(self, text: Sql, tokens: tuple[str, ...], often: int = OFTEN) -> Seen | str:
        present, distinct = self._row(f"{_rows(text)}, count(DISTINCT {text})")
        if distinct > SOME_LABELS and (distinct > MOST_LABELS or present < often * distinct):
            return f"which has {distinct:,} different values: an identifier, or text"
        found = [r[0] for r in self._ask(f"DISTINCT {text}", f"{text} IS NOT NULL")]
        labels = sorted((v for v in found if v not in RESERVED), key=_in_order)
        if len(labels) == 1 and present == self.total:
            return f"which is always {labels[0]!r}"
        return self._finish(Categorical(self.name, tuple(labels), tokens=tokens), text)

    # -- numbers and days --------------------------------------------------------------------------------

    def _of_numbers(
        self, x: Sql, text: Sql, form: str | None = None, tokens: tuple[str, ...] = ()
    ) -> Seen | str:
        """Numbers in bins; labels where they are few, or codes by their looks or their name."""
        present, low, high, whole, distinct, zeros, digits = self._row(
            f"{_rows(x)}, min({x}) FILTER (WHERE isfinite({x})), max({x}) FILTER (WHERE isfinite({x})), "
            f"bool_and({x} = floor({x})), count(DISTINCT {x}), bool_or(regexp_matches({text}, '^0[0-9]')), "
            f"bool_and(regexp_matches({text}, '^[0-9]+$'))"
        )
        if not present or low is None:
            return "which is empty"
        unread = self._row(_rows(text))[0] - present
        coded = digits and (zeros or (CODE_NAME.search(self.name) and distinct <= MOST_LABELS))
        few = form is None and _few(distinct, present) and not unread
        if coded or few:
            label = Sql(f"regexp_replace({text}, '^(-?[0-9]+)[.]0$', '\\1')") if not zeros else text
            return self._labels(label, tokens, TWICE)
        is_whole = bool(whole) and abs(low) < 2**53 and abs(high) < 2**53
        if distinct == present and is_whole and present > 100:
            return "which is different in every row: an identifier"
        note = f"the table goes from {low:g} to {high:g}"
        note += f"; {unread:,} values are no numbers and count as missing" if unread else ""
        note += f"; is {form} how its numbers are written?" if form else ""
        if is_whole and high - low < EACH:
            column = Numeric.each(self.name, int(low), int(high), None, "clip", tokens, form)
        elif low == high:
            return f"which is always {low:g}"
        else:
            edges = self._edges(x, present, low, high, is_whole)
            column = Numeric(self.name, edges, is_whole, tokens=tokens, format=form)
        return self._finish(column, x, note)

    def _edges(
        self, x: Sql, present: int, low: float, high: float, whole: bool
    ) -> tuple[float, ...]:
        steps = _nice_edges(low, high, BINS)
        inside = [s for s in steps if low < s < high]
        sums = ", ".join(_rows(x, f"{x} < {s!r}") for s in inside) or "0"
        below = np.diff([0, *self._row(sums), present])
        if below.max() > CROWDED * present:
            steps = self._crowded_edges(x, low, high, whole)
        return tuple(sorted({float(round(s)) for s in steps} if whole else set(steps)))

    def _crowded_edges(self, x: Sql, low: float, high: float, whole: bool) -> list[float]:
        """Bins of about equal rows; a value that most rows share gets a bin of its own, as far as whole numbers allow."""
        inner = [_digits(v) for v in self._quantiles(x, "true")]
        if len(set(inner)) < BINS // 2:
            most = f"{x} IS NOT NULL GROUP BY 1 ORDER BY sum(times) DESC, 1 LIMIT 1"
            mode = self._ask(f"{x}", most)[0][0]
            found = self._quantiles(x, f"{x} <> {float(mode)!r}")
            inner = [_digits(v) for v in found if v is not None]
            inner += [mode, mode + 1] if whole else [mode]
        ends = (_digits(low, floor, 1), _digits(high, lambda v: -floor(-v), 1))
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

    def _days(
        self, x: Sql, form: str | None, text: Sql | None = None, tokens: tuple[str, ...] = ()
    ) -> Seen | str:
        """Days in periods, from the first day of a year to the last day of one."""
        present, first, last = self._row(f"{_rows(x)}, min({x}), max({x})")
        if first is None:
            return "which is empty"
        first, last = date.fromisoformat(str(first)[:10]), date.fromisoformat(str(last)[:10])
        years = last.year - first.year + 1
        period = "month" if years <= 4 else "quarter" if years <= 10 else "year"
        unread = 0 if text is None else self._row(_rows(text))[0] - present
        note = f"the table goes from {first} to {last}"
        note += f"; {unread:,} values are no days and count as missing" if unread else ""
        note += f"; is {form} how its days are written?" if form else ""
        whole = (date(first.year, 1, 1), date(last.year, 12, 31))
        column = Dates(self.name, *whole, period, tokens=tokens, format=form)
        return self._finish(column, x, note)

    # -- what all have ---------------------------------------------------------------------------------

    def _finish(self, column: Any, read: Sql, note: str = "") -> Seen:
        """The column with a cell for missing values where some are missing, and without one where none is."""
        gone = self.total - self._row(_rows(read))[0]
        notes = [note] if note else []
        if gone:
            marks = f" ({', '.join(column.tokens)})" if column.tokens else ""
            notes.append(
                f"{gone:,} of {self.total:,} rows have no value here{marks}: missing values get a cell of their own"
            )
        else:
            column = without_missing(column)
            shown = column.labels[0]
            notes.append(
                "nothing is missing here, so there is no cell for it; a value that is, or is not declared, would count as "
                f"{shown}"
            )
        return Seen(column, "; ".join(notes), column.tokens)

    @cached_property
    def total(self) -> int:
        return int(self._row("coalesce(sum(times), 0)")[0])

    def _row(self, what: str) -> tuple[Any, ...]:
        return self._ask(what)[0]

    def _ask(self, what: str, where: str = "true") -> list[tuple[Any, ...]]:
        return self._do(f"SELECT {what} FROM seen WHERE {where}")

    def _do(self, query: str) -> list[tuple[Any, ...]]:
        try:
            return self.connection.execute(query).fetchall()
        except FAILURES as error:
            raise refusal(self.opened.shown, error) from error


def without_missing(column: Column) -> Any:
    """The column without a cell for missing values: should one be missing after all, it counts as the first label, bin or day."""
    match column:
        case Categorical():
            return replace(column, missing=column.values[0])
        case Boolean():
            return replace(column, missing=False)
        case Numeric():
            return replace(
                column, missing=int(column.edges[0]) if column.whole else column.edges[0]
            )
        case Dates():
            return replace(column, missing=column.first)
    return column


def _few(distinct: int, rows: int) -> bool:
    """Few different values, each more than once on average."""
    return distinct <= FEW and rows >= TWICE * distinct


def _rows(x: Sql, where: str = "true") -> str:
    """SQL: how many rows have a value (and meet a condition)."""
    return f"coalesce(CAST(sum(times) FILTER (WHERE {x} IS NOT NULL AND {where}) AS BIGINT), 0)"


def _number(text: Sql, form: str | None) -> Sql:
    """The number that a text spells in a format, else NULL."""
    engine = DuckDB()
    readable, x = number_of_text(text, None if form is None else number_format("", form), engine)
    return engine.case([(readable, x)], Sql("NULL"))


def _day(text: Sql, form: str | None) -> Sql:
    """The day that a text spells in a format, else NULL."""
    engine = DuckDB()
    parts = day_of_text(text, None if form is None else date_format("", form), engine)
    digits = [
        f"lpad(CAST({p} AS VARCHAR), {n}, '0')" for p, n in zip(parts, (4, 2, 2), strict=False)
    ]
    return Sql(
        f"(CASE WHEN {parts[3]} THEN TRY_CAST({' || chr(45) || '.join(digits)} AS DATE) END)"
    )


def _listed(numbers: Iterable[float]) -> str:
    return ", ".join(str(DuckDB().literal(v)) for v in numbers)


def _in_order(label: str) -> tuple[bool, float, str]:
    number = spells_number(label)
    return not number, float(label) if number else 0.0, label


NATURAL = (0.0, 1.0, 10.0, 100.0, 1000.0)
"""Bounds that many a scale has by itself."""


def _nice_edges(low: float, high: float, bins: int) -> list[float]:
    """About so many steps of 1, 2 or 5 times a power of ten that hold low and high, neither of them at an end by chance."""
    raw = (high - low) / bins
    power = 10.0 ** floor(log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999999)
    first, last = floor(low / step), -floor(-high / step)
    first -= first * step == low and low not in NATURAL
    last += last * step == high and high not in NATURAL
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def _digits(value: float, rounding: Any = round, digits: int = 2) -> float:
    """A number of so many digits near this one."""
    if value == 0:
        return 0.0
    power = 10.0 ** (floor(log10(abs(value))) + 1 - digits)
    return float(f"{rounding(value / power) * power:.12g}")
