"""Columns whose values come in order: numbers in bins, and days in periods."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from consilience.data.columns import CLIP, OUTSIDE, CodeArray, Ends, check_outside, checked_tokens
from consilience.data.formats import DateFormat, NumberFormat, date_format, number_format
from consilience.data.values import Values, cells, day, numbers
from consilience.errors import DataError

MOST_BINS = 10_000


@dataclass(frozen=True)
class Numeric:
    """Bins [e_0, e_1), [e_1, e_2), ..., [e_{k-1}, e_k]; what lies outside takes the nearest bin.

    whole: values are whole numbers, so bins are named and decoded as such; the last bin may be one number, e_{k-1} = e_k.
    missing: the number that missing values take; None gives them a code of their own.
    outside: "clip" for the nearest bin, OUTSIDE for a code of its own, MISSING for that of missing values.
    tokens: what else stands for a missing value, such as NA. format: how text spells 1234.5, such as "1.234,5" (`formats.py`).
    """

    name: str
    edges: tuple[float, ...]
    whole: bool = False
    missing: float | None = None
    outside: str = CLIP
    tokens: tuple[str, ...] = ()
    format: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", checked_tokens(self.name, self.tokens))
        _ = self.form
        object.__setattr__(self, "edges", _checked_edges(self.name, self.edges))
        last = len(self.edges) - 2
        for i, (low, high) in enumerate(pairwise(self.edges)):
            if not (low < high or (self.whole and i == last and low == high)):
                raise DataError(
                    f"edges of column {self.name!r} must increase, got {low:g} before {high:g}"
                )
        if self.whole and any(e != int(e) for e in self.edges):
            raise DataError(
                f"edges of whole-number column {self.name!r} must be whole, got {self.edges}"
            )
        if self.missing is not None and not (
            isinstance(self.missing, Real)
            and not isinstance(self.missing, bool)
            and np.isfinite(float(self.missing))
        ):
            raise DataError(
                f"what missing values of column {self.name!r} become must be a finite number, "
                f"got {self.missing}"
            )
        check_outside(self.name, self.outside)

    @classmethod
    def uniform(
        cls,
        name: str,
        low: float,
        high: float,
        bins: int,
        whole: bool = False,
        missing: float | None = None,
        outside: str = CLIP,
        tokens: tuple[str, ...] = (),
        format: str | None = None,
    ) -> Numeric:
        """Bins of equal width (to the nearest whole number if the values are whole)."""
        if not isinstance(bins, int) or isinstance(bins, bool) or not 1 <= bins <= MOST_BINS:
            raise DataError(
                f"column {name!r} must have at least one bin and at most {MOST_BINS:,}, got {bins}"
            )
        _checked_edges(name, (low, high))
        if not low < high:
            raise DataError(
                f"edges of column {name!r} must increase, got {low:g} before {high:g}; "
                "are the bounds reversed?"
            )
        edges = np.linspace(low, high, bins + 1)
        return cls(
            name,
            tuple((np.round(edges) if whole else edges).tolist()),
            whole,
            missing,
            outside,
            tokens,
            format,
        )

    @classmethod
    def each(
        cls,
        name: str,
        low: int,
        high: int,
        missing: float | None = None,
        outside: str = CLIP,
        tokens: tuple[str, ...] = (),
        format: str | None = None,
    ) -> Numeric:
        """One bin for every whole number from low to high."""
        _checked_edges(name, (low, high))
        if low != int(low) or high != int(high) or not low <= high:
            raise DataError(
                f"bounds of column {name!r} must be whole numbers in order, got {low:g} and {high:g}"
            )
        if high - low >= MOST_BINS:
            raise DataError(
                f"column {name!r} must have at most {MOST_BINS:,} bins, got {high - low + 1:,.0f}; "
                "declare bins or edges"
            )
        edges = (*range(int(low), int(high) + 1), int(high))
        return cls(name, edges, True, missing, outside, tokens, format)

    @property
    def form(self) -> NumberFormat | None:
        return None if self.format is None else number_format(self.name, self.format)

    @property
    def bins(self) -> int:
        return len(self.edges) - 1

    @property
    def ends(self) -> Ends:
        into = None if self.missing is None else int(self._bin(np.array([self.missing]))[0])
        return Ends(self.bins, self.outside, into)

    @property
    def missing_code(self) -> int:
        return self.ends.missing_code

    @property
    def labels(self) -> tuple[str, ...]:
        return (*(self._bin_name(i) for i in range(self.bins)), *self.ends.labels)

    def _bin_name(self, i: int) -> str:
        low, high, last = self.edges[i], self.edges[i + 1], i == self.bins - 1
        if not self.whole:
            return f"[{_short(low)}, {_short(high)}{']' if last else ')'}"
        top = int(high) if last else int(high) - 1
        return f"{int(low)}" if top == low else f"{int(low)}-{top}"

    def _bin(self, values: NDArray[np.float64]) -> CodeArray:
        return np.searchsorted(np.array(self.edges[1:-1]), values, side="right").astype(np.int64)

    def encode(self, values: Values) -> CodeArray:
        x, ends = numbers(values, self.tokens, self.form), self.ends
        codes = self._bin(x)
        if self.outside != CLIP:
            codes[(x < self.edges[0]) | (x > self.edges[-1])] = ends.below_code
        codes[np.isnan(x)] = ends.missing_code
        return codes

    def texts(self, values: Values) -> Values:
        """Decoded values as the declared format spells them, None for missing ones; as they are where none is declared."""
        form = self.form
        if form is None:
            return values
        listed = values.tolist()
        return np.array([None if v != v else form.text(v) for v in listed], dtype=object)

    def decode(self, codes: NDArray[np.integer]) -> Values:
        """The middle of each bin, rounded down if whole; NaN for the own code of missing values.

        What is outside in a code of its own is decoded as a number one bin past the last edge.
        """
        edges = np.array(self.edges, dtype=np.float64)
        values = edges[:-1] / 2 + edges[1:] / 2
        if self.whole:
            values = np.floor(values)
        if self.outside == OUTSIDE:
            beyond = edges[-1] + max(1.0, edges[-1] - edges[-2])
            values = np.append(values, beyond if beyond > edges[-1] else np.inf)
        if self.missing is not None:
            return (values.astype(np.int64) if self.whole else values)[codes]
        return np.append(values, np.nan)[codes]


def _checked_edges(name: str, edges: Iterable[float]) -> tuple[float, ...]:
    kept = tuple(edges)
    if any(isinstance(e, bool) or not isinstance(e, Real) for e in kept):
        raise DataError(f"edges of column {name!r} must be numbers, got {kept}")
    if len(kept) < 2:
        raise DataError(f"column {name!r} must have at least two edges, got {len(kept)}")
    if not np.isfinite(np.array(kept, dtype=np.float64)).all():
        raise DataError(f"edges of column {name!r} must be finite, got {kept}")
    return kept


def _short(edge: float) -> str:
    """As few digits as tell the number, so that labels of different bins differ."""
    return f"{edge:g}" if float(f"{edge:g}") == edge else repr(float(edge))


# -- days --------------------------------------------------------------------------------------------

PERIODS = ("year", "quarter", "month", "week", "day")
MOST_PERIODS = 10_000


@dataclass(frozen=True)
class Dates:
    """One code for each period from the one that holds `first` to the one that holds `last`. Weeks begin on Monday.

    A moment counts as its day (in UTC where it has a zone). missing: the day that missing values take; None gives them a code
    of their own. outside: "clip" for the nearest period, OUTSIDE for a code of its own, MISSING for that of missing values.
    tokens: what else stands for a missing value, such as NA. format: how text spells days besides the ISO form, such as
    "MM/DD/YYYY" (`formats.py`).
    """

    name: str
    first: date
    last: date
    period: str = "month"
    missing: date | None = None
    outside: str = CLIP
    tokens: tuple[str, ...] = ()
    format: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", checked_tokens(self.name, self.tokens))
        _ = self.form
        for role, value in (("first", self.first), ("last", self.last), ("missing", self.missing)):
            if not (type(value) is date or (role == "missing" and value is None)):
                raise DataError(
                    f"{role} of column {self.name!r} must be a day such as 2021-07-31, got {value!r}"
                )
        if self.period not in PERIODS:
            raise DataError(
                f"the period of column {self.name!r} must be one of {', '.join(PERIODS)}, "
                f"got {self.period!r}"
            )
        if self.first > self.last:
            raise DataError(
                f"first must not be after last in column {self.name!r}, got {self.first} and "
                f"{self.last}; are the bounds reversed?"
            )
        if self.bins > MOST_PERIODS:
            raise DataError(
                f"column {self.name!r} must have at most {MOST_PERIODS:,} periods, got {self.bins:,}; "
                "take longer ones"
            )
        check_outside(self.name, self.outside)

    @property
    def form(self) -> DateFormat | None:
        return None if self.format is None else date_format(self.name, self.format)

    def index(self, when: date) -> int:
        """The number of the period of a day, counted from year 0."""
        match self.period:
            case "year":
                return when.year
            case "quarter":
                return when.year * 4 + (when.month - 1) // 3
            case "month":
                return when.year * 12 + when.month - 1
            case "week":
                return (when.toordinal() - 1) // 7
        return when.toordinal()

    def start(self, index: int) -> date:
        """The first day of a period."""
        match self.period:
            case "year":
                return date(index, 1, 1)
            case "quarter":
                return date(index // 4, index % 4 * 3 + 1, 1)
            case "month":
                return date(index // 12, index % 12 + 1, 1)
            case "week":
                return date.fromordinal(index * 7 + 1)
        return date.fromordinal(index)

    @property
    def bins(self) -> int:
        return self.index(self.last) - self.index(self.first) + 1

    @property
    def ends(self) -> Ends:
        into = None
        if self.missing is not None:
            into = min(max(self.index(self.missing) - self.index(self.first), 0), self.bins - 1)
        return Ends(self.bins, self.outside, into)

    @property
    def missing_code(self) -> int:
        return self.ends.missing_code

    @property
    def labels(self) -> tuple[str, ...]:
        first = self.index(self.first)
        return (*(self._label(first + i) for i in range(self.bins)), *self.ends.labels)

    def _label(self, index: int) -> str:
        begin = self.start(index)
        match self.period:
            case "year":
                return f"{begin.year:04d}"
            case "quarter":
                return f"{begin.year:04d}-Q{index % 4 + 1}"
            case "month":
                return f"{begin.year:04d}-{begin.month:02d}"
        return begin.isoformat()

    def encode(self, values: Values) -> CodeArray:
        first, ends, form = self.index(self.first), self.ends, self.form

        def code_of(when: date | None) -> int:
            if when is None:
                return ends.missing_code
            i = self.index(when) - first
            return i if 0 <= i < self.bins else ends.below_code if i < 0 else ends.above_code

        found = (code_of(day(v, form)) for v in cells(values, self.tokens))
        return np.fromiter(found, np.int64, count=len(values))

    def texts(self, values: Values) -> Values:
        """Decoded days as the declared format spells them, None for missing ones; as they are where none is declared."""
        if self.format is None:
            return values
        pattern = re.split("[T ](?=[hH])", self.format)[0]
        for token, code in (("YYYY", "%Y"), ("MM", "%m"), ("DD", "%d"), ("M", "%m"), ("D", "%d")):
            pattern = re.sub(rf"(?<!%){token}", code, pattern)
        return np.array([v and v.strftime(pattern) for v in values.tolist()], dtype=object)

    def decode(self, codes: NDArray[np.integer]) -> Values:
        """The first day of each period; NaT for the own code of missing values.

        What is outside in a code of its own is decoded as the first day after the last period (or the last before the first).
        """
        first = self.index(self.first)
        days = [self.start(first + i) for i in range(self.bins)]
        if self.outside == OUTSIDE:
            try:
                days.append(self.start(first + self.bins))
            except (ValueError, OverflowError):  # the calendar ends with the year 9999
                days.append(days[0] - timedelta(days=1))
        listed = np.array([*days, *([None] if self.missing is None else [])], dtype="datetime64[D]")
        return listed[codes]
