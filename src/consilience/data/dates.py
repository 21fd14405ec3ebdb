"""Days in periods: years, quarters, months, weeks or single days."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
from numpy.typing import NDArray

from consilience.data.columns import CLIP, OUTSIDE, CodeArray, Ends, check_outside
from consilience.data.values import Values, cells, day
from consilience.errors import DataError

PERIODS = ("year", "quarter", "month", "week", "day")
MOST_PERIODS = 10_000


@dataclass(frozen=True)
class Dates:
    """One code for each period from the one that holds `first` to the one that holds `last`. Weeks begin on Monday.

    A moment counts as its day (in UTC where it has a zone). missing: the day that missing values take; None gives them a code
    of their own. outside: "clip" for the nearest period, OUTSIDE for a code of its own, MISSING for that of missing values.
    """

    name: str
    first: date
    last: date
    period: str = "month"
    missing: date | None = None
    outside: str = CLIP

    def __post_init__(self) -> None:
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
        first, ends = self.index(self.first), self.ends

        def code_of(when: date | None) -> int:
            if when is None:
                return ends.missing_code
            i = self.index(when) - first
            return i if 0 <= i < self.bins else ends.below_code if i < 0 else ends.above_code

        found = (code_of(day(v)) for v in cells(values))
        return np.fromiter(found, np.int64, count=len(values))

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
