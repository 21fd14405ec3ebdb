"""Coding in an engine: a declared column as an expression that gives the same code as `Column.encode`.

The rules of `values.py`, said in the few operations that every SQL engine has. An engine's expressions are an abstract
type here; `duck.py` writes them as DuckDB's SQL and `engines.py` as Ibis expressions. Expressions must overload
== < > + - * and & |.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from consilience.data.binned import Dates, Numeric
from consilience.data.columns import CLIP, Boolean, Categorical, Column
from consilience.data.formats import DateFormat, NumberFormat
from consilience.data.values import DAY, LONGEST_NUMBER, NO, NUMBER, YES, token_numbers
from consilience.errors import DataError

Kind = Literal["text", "truth", "whole", "number", "day"]
"""What an engine's type is to us; every other type is read as text."""

Expression = Any
BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Engine(Protocol):
    """The operations that coding is made of. Where an argument is NULL, so is the result."""

    def literal(self, value: int | float | str | bool) -> Expression: ...
    def null(self) -> Expression:
        """NULL of integer type."""
        ...

    def is_null(self, x: Expression) -> Expression: ...
    def is_nan(self, x: Expression) -> Expression: ...
    def negate(self, condition: Expression) -> Expression: ...
    def trim(self, x: Expression) -> Expression:
        """Text without `values.BLANKS` at both ends."""
        ...

    def lower(self, x: Expression) -> Expression: ...
    def matches(self, x: Expression, pattern: str) -> Expression: ...
    def part(self, x: Expression, start: int, length: int) -> Expression:
        """Characters of a text, counted from 1; fewer where it ends."""
        ...

    def extract(self, x: Expression, pattern: str, group: int) -> Expression:
        """What a group of the pattern matched in a text that matches; NULL or anything for other text."""
        ...

    def replace(self, x: Expression, old: str, new: str) -> Expression: ...
    def to_number(self, x: Expression) -> Expression:
        """A number, or text that matches `values.NUMBER`, as float64; NULL or anything for other text, never an error."""
        ...

    def to_whole(self, x: Expression) -> Expression:
        """Text of digits as an integer; NULL or anything for other text, never an error."""
        ...

    def to_text(self, x: Expression) -> Expression: ...
    def year_month_day(self, x: Expression) -> tuple[Expression, Expression, Expression]: ...
    def to_day(self, x: Expression) -> Expression | None:
        """Text YYYY-MM-DD as a day, NULL if the calendar has none; None if the engine cannot tell without an error."""
        ...

    def divide(self, x: Expression, by: int) -> Expression:
        """Whole part of the quotient of whole numbers that are not negative."""
        ...

    def case(
        self, branches: Sequence[tuple[Expression, Expression]], otherwise: Expression
    ) -> Expression:
        """The value of the first branch whose condition is true."""
        ...

    def lookup(self, x: Expression, codes: Mapping[str, int]) -> Expression:
        """The code of a text, NULL for one that is not listed."""
        ...


@dataclass(frozen=True)
class Coded:
    """One column in an engine: its code, and whether a value was there but could not be read, was out of bounds, was missing."""

    code: Expression
    unread: Expression
    outside: Expression
    missing: Expression


def coded(column: Column, x: Expression, kind: Kind, engine: Engine) -> Coded:
    """The coding of a declared column whose values in the engine are `x`, of a kind."""
    if kind == "text":
        x = engine.trim(x)
        missing = engine.is_null(x) | (x == engine.literal(""))
    elif kind == "number":
        x = engine.to_number(x)
        missing = engine.is_null(x) | engine.is_nan(x)
    else:
        missing = engine.is_null(x)
    missing = missing | _is_token(column, x, kind, engine)
    match column:
        case Categorical():
            return _categorical(column, x, kind, missing, engine)
        case Boolean():
            return _boolean(column, x, kind, missing, engine)
        case Numeric():
            return _numeric(column, x, kind, missing, engine)
        case Dates():
            return _dates(column, x, kind, missing, engine)
    raise DataError(f"column {column.name!r} is of a kind that engines cannot code")


def _is_token(column: Column, x: Any, kind: Kind, e: Engine) -> Any:
    """Whether a value stands for a missing one, as `values.cells` has it; never NULL."""
    tokens = column.absent if isinstance(column, Categorical) else column.tokens
    match kind:
        case "text":
            same = [x == e.literal(t) for t in tokens]
        case "whole" | "number":
            same = [e.to_number(x) == e.literal(v) for v in token_numbers(tokens)]
        case "day":
            same = [e.to_text(x) == e.literal(t) for t in tokens]
        case _:
            same = []
    return e.case([(_any(same), e.literal(True))], e.literal(False)) if same else e.literal(False)


def _categorical(c: Categorical, x: Any, kind: Kind, missing: Any, e: Engine) -> Coded:
    match kind:
        case "text":
            found = e.lookup(x, c.by_text)
        case "truth":
            found = _search([(x == e.literal(v), i) for v, i in c.by_truth.items()], e)
        case "number":
            found = _search([(x == e.literal(v), i) for v, i in c.by_number.items()], e)
        case _:
            found = e.lookup(e.to_text(x), c.by_text)
    code = e.case(
        [(missing, e.literal(c.missing_code)), (e.is_null(found), e.literal(c.other_code))], found
    )
    return Coded(code, _and_not(missing, e.is_null(found), e), e.literal(False), missing)


def _boolean(c: Boolean, x: Any, kind: Kind, missing: Any, e: Engine) -> Coded:
    match kind:
        case "text":
            word = e.lower(x)
            yes, no = (_any([word == e.literal(w) for w in words]) for words in (YES, NO))
        case "truth":
            yes, no = x == e.literal(True), x == e.literal(False)
        case "whole" | "number":
            yes, no = x == e.literal(1), x == e.literal(0)
        case _:
            yes = no = e.literal(False)
    code = e.case(
        [(missing, e.literal(c.missing_code)), (yes, e.literal(1)), (no, e.literal(0))],
        e.literal(c.missing_code),
    )
    unread = _and_not(missing | yes | no, e.literal(True), e)
    return Coded(code, unread, e.literal(False), missing)


def _numeric(c: Numeric, x: Any, kind: Kind, missing: Any, e: Engine) -> Coded:
    ends = c.ends
    gone = e.literal(ends.missing_code)
    match kind:
        case "text":
            readable, number = number_of_text(x, c.form, e)
        case "truth":
            readable, number = e.literal(True), e.case([(x, e.literal(1.0))], e.literal(0.0))
        case "day":
            return Coded(gone, _and_not(missing, e.literal(True), e), e.literal(False), missing)
        case _:
            readable, number = e.literal(True), e.to_number(x)
    low, high = e.literal(float(c.edges[0])), e.literal(float(c.edges[-1]))
    branches = [(missing, gone), (e.negate(readable), gone)]
    if c.outside != CLIP:
        branches += [(number < low, e.literal(ends.below_code))]
        branches += [(number > high, e.literal(ends.above_code))]
    code = e.case(branches, _bin(number, c.edges, 0, c.bins, e))
    beyond = (number < low) | (number > high)
    never = e.literal(False)
    outside = e.case([(missing, never), (e.negate(readable), never)], beyond)
    return Coded(code, _and_not(missing, e.negate(readable), e), outside, missing)


def number_of_text(x: Any, form: NumberFormat | None, e: Engine) -> tuple[Any, Any]:
    """Whether a text is a number, and which."""
    if form is None:
        return spells_number(x, e), e.to_number(x)
    shaped = e.matches(x, form.pattern)
    if form.clock:
        hour, minute = (e.to_number(e.extract(x, form.pattern, g)) for g in (1, 2))
        return shaped, e.case([(shaped, hour + minute * e.literal(1 / 60))], e.literal(0.0))
    for old, new in form.swaps:
        x = e.replace(x, old, new)
    return shaped & spells_number(x, e), e.to_number(x)


def spells_number(x: Any, e: Engine) -> Any:
    """Whether a text is a number."""
    return e.matches(x, NUMBER) & (e.part(x, LONGEST_NUMBER + 1, 1) == e.literal(""))


def _bin(x: Any, edges: Sequence[float], first: int, last: int, e: Engine) -> Any:
    """Bisection: the bin in first..last - 1 that holds x, what is outside in the nearest one."""
    if last - first == 1:
        return e.literal(first)
    middle = (first + last) // 2
    upper = _bin(x, edges, middle, last, e)
    return e.case([(x < e.literal(float(edges[middle])), _bin(x, edges, first, middle, e))], upper)


def _dates(c: Dates, x: Any, kind: Kind, missing: Any, e: Engine) -> Coded:
    ends, gone = c.ends, e.literal(c.ends.missing_code)
    if kind == "text":
        year, month, day, valid = day_of_text(x, c.form, e)
        readable = e.case([(missing, e.literal(False))], valid)
    elif kind == "day":
        readable = e.literal(True)
        year, month, day = e.year_month_day(x)
    else:
        return Coded(gone, _and_not(missing, e.literal(True), e), e.literal(False), missing)
    index = _period(c.period, year, month, day, e) - e.literal(c.index(c.first))
    below, above = index < e.literal(0), index > e.literal(c.bins - 1)
    code = e.case(
        [
            (missing, gone),
            (e.negate(readable), gone),
            (below, e.literal(ends.below_code)),
            (above, e.literal(ends.above_code)),
        ],
        index,
    )
    never = e.literal(False)
    outside = e.case([(missing, never), (e.negate(readable), never)], below | above)
    return Coded(code, _and_not(missing, e.negate(readable), e), outside, missing)


def day_of_text(x: Any, form: DateFormat | None, e: Engine) -> tuple[Any, Any, Any, Any]:
    """Year, month and day of a text, and whether it is a day at all: by the declared format, else by the ISO form."""
    usual = _parts_of_iso(x, e)
    if form is None:
        return usual
    shaped = _any([e.matches(x, p) for p in form.patterns])
    year, month, day = (
        e.to_whole(e.extract(x, form.start, group)) if group else e.literal(1)
        for group in (form.year, form.month, form.day)
    )
    own = (year, month, day, _in_calendar(year, month, day, e))
    joined = [e.case([(shaped, mine)], iso) for mine, iso in zip(own, usual, strict=True)]
    return joined[0], joined[1], joined[2], joined[3]


def _parts_of_iso(x: Any, e: Engine) -> tuple[Any, Any, Any, Any]:
    after = e.part(x, 11, 1)
    shaped = e.matches(x, DAY) & _any([after == e.literal(v) for v in ("", "T", " ")])
    parsed = e.to_day(e.part(x, 1, 10))
    if parsed is not None:
        year, month, day = e.year_month_day(parsed)
        valid = e.negate(e.is_null(parsed) | (year < e.literal(1)))
    else:
        year, month, day = (e.to_whole(e.part(x, *p)) for p in ((1, 4), (6, 2), (9, 2)))
        valid = _in_calendar(year, month, day, e)
    return year, month, day, e.case([(e.negate(shaped), e.literal(False))], valid)


def _in_calendar(year: Any, month: Any, day: Any, e: Engine) -> Any:
    one = e.literal(1)
    longer = e.case([((month == e.literal(2)) & _leap(year, e), one)], e.literal(0))
    days = _by_month(month, MONTH_DAYS, e) + longer
    valid = e.negate((year < one) | (month < one) | (month > e.literal(12)))
    return valid & e.negate((day < one) | (day > days))


def _period(period: str, year: Any, month: Any, day: Any, e: Engine) -> Any:
    """`Dates.index` of a day given by its parts."""
    match period:
        case "year":
            return year
        case "quarter":
            return year * e.literal(4) + e.divide(month - e.literal(1), 3)
        case "month":
            return year * e.literal(12) + month - e.literal(1)
    before = year - e.literal(1)
    ordinal = before * e.literal(365) + e.divide(before, 4) - e.divide(before, 100)
    ordinal = ordinal + e.divide(before, 400) + _by_month(month, BEFORE_MONTH, e) + day
    late = (month > e.literal(2)) & _leap(year, e)
    ordinal = ordinal + e.case([(late, e.literal(1))], e.literal(0))
    return e.divide(ordinal - e.literal(1), 7) if period == "week" else ordinal


def _leap(year: Any, e: Engine) -> Any:
    def multiple(of: int) -> Any:
        return e.divide(year, of) * e.literal(of) == year

    return multiple(400) | (multiple(4) & e.negate(multiple(100)))


def _by_month(month: Any, values: Sequence[int], e: Engine) -> Any:
    branches = [(month == e.literal(m), e.literal(v)) for m, v in enumerate(values, 1)]
    return e.case(branches, e.literal(0))


def _search(branches: list[tuple[Any, int]], e: Engine) -> Any:
    return e.case([(c, e.literal(i)) for c, i in branches], e.null()) if branches else e.null()


def _and_not(unless: Any, condition: Any, e: Engine) -> Any:
    """`condition`, but false where `unless` holds; never NULL."""
    return e.case([(unless, e.literal(False)), (condition, e.literal(True))], e.literal(False))


def _any(conditions: Sequence[Any]) -> Any:
    result = conditions[0]
    for condition in conditions[1:]:
        result = result | condition
    return result
