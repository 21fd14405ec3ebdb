"""Numbers inside bins: which values a code stands for, and how they are spread there.

A release knows how many people are in a bin and not where in it they are. What is certain is the bin's first and last value.
In between the density is taken to be log-linear, with the slope of the densities of the bins beside it, so that a bin on a
falling slope has more people near its lower end than the middle says. The last bin gets its slope from the one before, which is
what makes the mean of a wide top bin sensible; that values above were clipped into it is said with the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.data.binned import Numeric
from consilience.data.columns import CLIP, RESERVED, Categorical, Column
from consilience.data.values import spells_number
from consilience.errors import DataError

Numbers = NDArray[np.float64]
ROUNDS = 6
"""Of slopes and the densities in the middle of bins that follow from them."""
STEEPEST = 30.0
"""Times e that the density may change inside a bin: beyond it all of a bin is at one end."""
LEAST = 0.5
"""Counts that an empty bin is taken to hold where only a slope is wanted."""


@dataclass(frozen=True)
class Values:
    """What the codes of a column stand for: their first and last value, and where a continuous law lies around them.

    codes: which codes are numbers, in order; missing and outside values are none.
    """

    name: str
    codes: tuple[int, ...]
    first: Numbers
    last: Numbers
    whole: bool
    open_above: bool
    open_below: bool

    @classmethod
    def of(cls, column: Column) -> Values:
        if isinstance(column, Numeric):
            edges = np.array(column.edges, np.float64)
            last = edges[1:].copy()
            if column.whole:
                last[:-1] -= 1
            clipped = column.outside == CLIP
            codes = tuple(range(column.bins))
            return cls(column.name, codes, edges[:-1], last, column.whole, clipped, clipped)
        labels = column.labels if isinstance(column, Categorical) else ()
        spelled = [i for i, v in enumerate(labels) if v not in RESERVED]
        if not spelled or not all(spells_number(labels[i]) for i in spelled):
            raise DataError(
                f"column {column.name!r} must hold numbers for this question, its labels are "
                f"{', '.join(map(repr, column.labels[:6]))}; ask for counts or shares of it"
            )
        exact = np.array([float(labels[i]) for i in spelled])
        order = np.argsort(exact)
        codes = tuple(spelled[i] for i in order)
        return cls(column.name, codes, exact[order], exact[order], False, False, False)

    @property
    def widths(self) -> Numbers:
        """Of the law: a whole number has a unit of room unless it is alone in its bin."""
        wide = self.last - self.first
        return np.where(wide > 0, wide + self.whole, 0.0)

    @property
    def starts(self) -> Numbers:
        return self.first - np.where(self.widths > 0, 0.5 * self.whole, 0.0)

    # -- the law -------------------------------------------------------------------------------------

    def slopes(self, counts: Numbers) -> Numbers:
        """Change of the log density across each bin; counts along the last axis."""
        widths = self.widths
        if len(widths) < 2 or not widths.any():
            return np.zeros_like(counts)
        room = np.where(widths > 0, widths, 1.0)
        middle = self.starts + widths / 2
        density = np.log(np.maximum(counts, LEAST) / room)
        found = np.zeros_like(density)
        for _ in range(ROUNDS):
            # The mean density of a bin over that in its middle is sinh(s / 2) / (s / 2).
            level = density - _log_sinhc(found / 2)
            slope = np.gradient(level, middle, axis=-1)
            found = np.where(widths > 0, np.clip(slope * widths, -STEEPEST, STEEPEST), 0.0)
        return found

    def means(self, counts: Numbers) -> Numbers:
        """The mean of the values in each bin."""
        return self.starts + self.widths * _mean(self.slopes(counts))

    def at(self, slopes: Numbers, bins: NDArray[np.integer], share: Numbers) -> Numbers:
        """The value below which this share of a bin lies; slopes of these bins."""
        s = np.where(np.abs(slopes) < 1e-6, 1e-6, slopes)
        part = np.log1p(share * np.expm1(s)) / s
        return self.starts[bins] + self.widths[bins] * np.clip(part, 0.0, 1.0)

    def drawn(
        self, counts: Numbers, bins: NDArray[np.integer], rng: np.random.Generator
    ) -> Numbers:
        """A value in each of these bins, which code back to them."""
        values = self.at(self.slopes(counts)[bins], bins, rng.random(len(bins)))
        if self.whole:
            values = np.rint(values)
        top = self.last if self.whole else np.nextafter(self.last, -np.inf)
        top = np.where(self.widths > 0, top, self.last)
        return np.clip(values, self.first[bins], top[bins])


def _log_sinhc(x: Numbers) -> Numbers:
    """log(sinh(x) / x), also near zero and far out."""
    size = np.maximum(np.abs(x), 1e-4)
    return size + np.log1p(-np.exp(-2 * size)) - np.log(2 * size)


def _mean(slope: Numbers) -> Numbers:
    """The mean of a density proportional to exp(slope u) on [0, 1]."""
    s = np.where(np.abs(slope) < 1e-3, 1e-3, slope)
    return np.where(np.abs(slope) < 1e-3, 0.5 + slope / 12, 1 / -np.expm1(-s) - 1 / s)
