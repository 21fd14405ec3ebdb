"""Values: what one cell of a table holds, in the few kinds that every engine agrees on.

A cell is missing, text without blanks around it, yes or no, a whole number, a number, or a day. The rules are stated here
once, as patterns and functions of single cells; `coding.py` says the same in the language of an engine, and the tests
compare the two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.data.formats import DateFormat, NumberFormat

Cell = None | str | bool | int | float | date
Values = NDArray[Any]

BLANKS = " \t\n\r\f\v"
"""What is taken off both ends of a text; a text of blanks alone is a missing value."""

NUMBER = r"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]{1,2})?$"
"""Text that is a number, if it is no longer than `LONGEST_NUMBER`."""
LONGEST_NUMBER = 100
"""Characters. Bounded, as exponents are, so that every such text is a finite number in every engine."""

DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
"""The start of a text that is a day, alone or followed by T or a space and a time."""

YES = ("true", "yes", "1", "1.0")
NO = ("false", "no", "0", "0.0")

_number = re.compile(NUMBER)
_day = re.compile(DAY)


def cell(value: object) -> Cell:
    """Whatever Python, NumPy, pandas or polars holds, as one of the kinds above."""
    match value:
        case None:
            return None
        case str():
            return value.strip(BLANKS) or None
        case bool() | np.bool_():
            return bool(value)
        case Integral():
            return int(value)
        case float() | np.floating():
            return None if value != value else float(value)
        case Decimal() | Fraction() | Real():
            return _real(value)
        case datetime():  # before date, of which it is a kind; a moment with a zone is read in UTC
            if value != value:  # pandas' NaT
                return None
            return (value if value.tzinfo is None else value.astimezone(UTC)).date()
        case date():
            return value
        case np.datetime64():
            return _from_datetime64(value)
    same = value == value  # pandas' NA answers NA, arrays answer arrays
    if np.ndim(value) == 0 and not (isinstance(same, bool | np.bool_) and same):  # pyright: ignore
        return None
    return str(value).strip(BLANKS) or None


def cells(values: Values, tokens: Sequence[str] = ()) -> list[Cell]:
    """Every value as a cell; a token for missing values is None."""
    found = [cell(v) for v in (values if values.dtype.kind == "M" else values.tolist())]
    if not tokens:
        return found
    texts, spelled = set(tokens), set(token_numbers(tokens))
    return [None if _is_token(v, texts, spelled) else v for v in found]


def token_numbers(tokens: Sequence[str]) -> tuple[float, ...]:
    """The numbers that some of the tokens spell."""
    return tuple(float(t) for t in tokens if spells_number(t))


def _is_token(value: Cell, texts: set[str], spelled: set[float]) -> bool:
    """Text that equals a token, a number that one spells, a day in its ISO form."""
    match value:
        case None | bool():
            return False
        case str():
            return value in texts
        case date():
            return value.isoformat() in texts
    return number(value) in spelled


def spells_number(text: str) -> bool:
    return len(text) <= LONGEST_NUMBER and _number.match(text) is not None


def number(value: Cell, form: NumberFormat | None = None) -> float:
    """The number in a cell; NaN where there is none. form: how text spells numbers, where it is not the usual way."""
    match value:
        case None | date():
            return float("nan")
        case str():
            if form is not None:
                if not form.fits(value):
                    return float("nan")
                if form.clock:
                    return form.hours(value)
                value = form.plain(value)
            return float(value) if spells_number(value) else float("nan")
        case _:
            try:
                return float(value)
            except OverflowError:  # a whole number past every float
                return float("inf") if value > 0 else float("-inf")


def numbers(
    values: Values, tokens: Sequence[str] = (), form: NumberFormat | None = None
) -> NDArray[np.float64]:
    if values.dtype.kind in "biuf":
        found = values.astype(np.float64)
        if values.dtype.kind != "b":
            found[np.isin(found, token_numbers(tokens))] = np.nan
        return found
    listed = (number(v, form) for v in cells(values, tokens))
    return np.fromiter(listed, np.float64, count=len(values))


def day(value: Cell, form: DateFormat | None = None) -> date | None:
    """The day in a cell, or None. form: how text spells days besides the ISO form, which is read where it does not apply."""
    if isinstance(value, str):
        if form is not None and (parts := form.parts(value)) is not None:
            try:
                return date(*parts)
            except ValueError:
                return None
        if not _day.match(value) or value[10:11] not in ("", "T", " "):
            return None
        try:
            return date(int(value[:4]), int(value[5:7]), int(value[8:10]))
        except ValueError:
            return None
    return value if isinstance(value, date) else None


def yes_or_no(value: Cell) -> bool | None:
    match value:
        case bool() | None:
            return value
        case str():
            word = value.lower()
            return True if word in YES else False if word in NO else None
        case date():
            return None
    return True if value == 1 else False if value == 0 else None


def _real(value: Decimal | Fraction | Real) -> float | None:
    try:
        converted = float(value)
    except OverflowError:
        converted = float("inf") if value > 0 else float("-inf")  # pyright: ignore
    except ValueError:  # a signalling NaN
        return None
    return None if converted != converted else converted


def _from_datetime64(value: np.datetime64) -> date | None:
    if np.isnat(value):
        return None
    found = value.astype("datetime64[D]").item()
    return found if isinstance(found, date) else None  # out of the years 1 to 9999
