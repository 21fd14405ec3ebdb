"""What a release will be good for, before it is bought: total variation after reconstruction, as a range over tables like those
we know.

    x_c = n_c E|z| / (2 N)     total variation of the noise in table c, were all tables measured once and alike

n_c is the number of its cells, z the noise of a cell, N the number of rows. How close a design (a mechanism with its fit) came
at such noise on tables that we know is in `experience.py`, as quantiles over tables. What is said is that
range, never one number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, Workload
from consilience.errors import ConsilienceError
from consilience.mechanisms.experience import CURVES, GRID, TOLD
from consilience.mechanisms.moments import mean_absolute
from consilience.privacy import (
    Budget,
    Epsilon,
    Rho,
    gaussian_sigma,
    laplace_scale,
    marginals,
)

HOPELESS, DROWNED = 0.4, 3.0
"""A table is hopeless where, in the middle case, so large a share of the rows would stand in wrong cells, or where the noise
in it has so large a total variation: then what comes out is what the fit makes of other tables."""
TARGET = 0.05
"""Mean total variation that `needed` looks for unless told otherwise."""
STRONGEST, WEAKEST = 1e3, 1e-4
"""Epsilons that `needed` looks between."""
MOST_DROPPED = 1 / 3
"""Of the columns: who would have to drop more asks for another budget."""

DESIGNS = {
    ("Pilot", "LatentClasses"): "pilot",
    ("Gaussian", "LatentClasses"): "gaussian-latent",
    ("Gaussian", "Shrunk"): "gaussian-shrunk",
    ("Gaussian", "LeastSquares"): "gaussian",
    ("ResidualPlanner", "Shrunk"): "residual-planner-shrunk",
    ("ResidualPlanner", "LeastSquares"): "residual-planner",
    ("Laplace", "LeastSquares"): "laplace",
    ("HDMM", "LeastSquares"): "hdmm-laplace",
    ("AIM", "PossibleCells"): "aim",
    ("MWEM", "PossibleCells"): "mwem",
}
"""Mechanisms and fits that there is experience with."""
CHOOSING = ("aim", "mwem")
"""Those that choose what they measure: there is experience with their own settings alone, under rho or (epsilon, delta)."""
PURE = ("laplace", "hdmm-laplace")
"""Those that keep a pure epsilon; the others need a delta or rho."""


@dataclass(frozen=True)
class Range:
    """Where eight of ten known cases lay, and their middle."""

    low: float
    middle: float
    high: float

    def __str__(self) -> str:
        return f"{self.middle:.2g} ({self.low:.2g} to {self.high:.2g})"


@dataclass(frozen=True, eq=False, repr=False)
class Expectation:
    """How close the tables of a workload will be to the truth, were they released by a design; known without data.

    noise: total variation of the noise in each table, measured once and alike.
    """

    design: str
    workload: Workload
    rows: float
    noise: Buffer

    @property
    def mean(self) -> Range:
        """Mean total variation over all tables."""
        return self._mean(self._orders > 0)

    def order(self, order: int) -> Range:
        """Mean total variation over the tables of so many attributes."""
        return self._mean(self._orders == order)

    @property
    def orders(self) -> tuple[int, ...]:
        return tuple(np.unique(self._orders).tolist())

    def table(self, attributes: str | Iterable[str]) -> Range:
        """Total variation of one table."""
        at = self.workload.cliques.index(self.workload.domain.clique(attributes))
        low, high = self._curve(3)[at], self._curve(4)[at]
        return Range(float(low), float(np.clip(self._curve(1)[at], low, high)), float(high))

    @cached_property
    def told(self) -> Range:
        """The share of all cells that will be told from zero: whose count is above twice the noise's standard deviation."""
        cells = np.array([self.workload.domain.size(c) for c in self.workload], float)
        parts = [_read(TOLD, self._orders, self.noise, i) @ cells / cells.sum() for i in range(3)]
        return Range(*(float(p) for p in parts))

    @cached_property
    def hopeless(self) -> tuple[Clique, ...]:
        """Tables that would be mostly noise at this budget."""
        far = (self._curve(1) >= HOPELESS) | (self.noise >= DROWNED)
        return tuple(c for c, lost in zip(self.workload, far.tolist(), strict=True) if lost)

    @property
    def warning(self) -> str | None:
        """In words, where most of what was bought would be noise."""
        share = len(self.hopeless) / len(self.workload)
        if share <= 0.5:
            return None
        return (
            f"{len(self.hopeless):,} of {len(self.workload):,} tables would be mostly noise at this budget: measured once, "
            f"a table has noise of total variation {np.median(self.noise):.2g}; about {self.mean.middle:.0%} of the rows would "
            "stand in wrong cells"
        )

    @cached_property
    def _orders(self) -> NDArray[np.int64]:
        return np.array([len(c) for c in self.workload])

    def _curve(self, which: int) -> Buffer:
        return _read(CURVES[self.design], self._orders, self.noise, which)

    def _mean(self, some: NDArray[np.bool_]) -> Range:
        return Range(*(float(self._curve(i)[some].mean()) for i in range(3)))

    def __str__(self) -> str:
        lines = [
            f"{_named(k)}: mean total variation {self.order(k)}, {int((self._orders == k).sum()):,} tables"
            for k in self.orders
        ]
        lines.append(
            f"cells told from zero: {self.told.middle:.0%} ({self.told.low:.0%} to {self.told.high:.0%})"
        )
        if self.hopeless:
            lines.append(f"mostly noise: {_listed([' x '.join(c) for c in self.hopeless])}")
        return "\n".join(lines)

    __repr__ = __str__


def _named(order: int) -> str:
    return {1: "single columns", 2: "pairs", 3: "triples"}.get(order, f"{order} columns together")


def _listed(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more tables"


def _read(
    curves: Mapping[int, Any], orders: NDArray[np.int64], noise: Buffer, which: int
) -> Buffer:
    """A curve at each table's noise; below what is known it falls in proportion to the noise."""
    out = np.empty(len(noise))
    for order in np.unique(orders).tolist():
        here = orders == order
        curve = np.array(curves[min(order, max(curves))][which])
        log = np.log10(np.maximum(noise[here], 1e-12))
        if curves is TOLD:
            out[here] = np.interp(log, GRID, curve)
            continue
        found = np.interp(log, GRID, np.log10(curve)) + np.minimum(log - GRID[0], 0.0)
        out[here] = np.minimum(10**found, 1.0)
    return out


def design_of(mechanism: object, fit: object, budget: Budget) -> str | None:
    """The name under which there is experience with a mechanism and its fit, None where there is none."""
    found = DESIGNS.get((type(mechanism).__name__, type(fit).__name__))
    workload = getattr(mechanism, "workload", None)
    if workload is not None and workload.at_levels:
        return None
    if found == "hdmm-laplace" and getattr(mechanism, "queries", None):
        return None
    if found in CHOOSING and (isinstance(budget.capacity, Epsilon) or not _is_usual(mechanism)):
        return None
    if found == "hdmm-laplace" and not isinstance(budget.capacity, Epsilon):
        return "residual-planner"
    return found


def _is_usual(mechanism: Any) -> bool:
    """Whether a mechanism's settings, but for its workload, are what it has unless told otherwise."""
    return all(
        getattr(mechanism, f.name) == f.default for f in fields(mechanism) if f.name != "workload"
    )


def even_noise(workload: Workload, budget: Budget, rows: float) -> Buffer:
    """x_c of each table of a workload, in its order."""
    sizes = np.array([workload.domain.size(c) for c in workload], float)
    return sizes * _per_cell(len(workload), budget, checked_rows(rows))


def _per_cell(tables: int, budget: Budget, rows: float) -> float:
    share = budget.capacity * Fraction(1, tables)
    one = marginals(budget.neighbours)
    width = laplace_scale(one, share) if isinstance(share, Epsilon) else gaussian_sigma(one, share)
    return mean_absolute(width) / (2 * rows)


def checked_rows(rows: float) -> float:
    if not 0 < rows < float("inf"):
        raise ConsilienceError(f"rows must be positive and finite, got {rows!r}")
    return float(rows)


def expected(
    design: str, workload: Workload, budget: Budget, rows: float, noise: Buffer | None = None
) -> Expectation:
    """What a design will make of a workload under a budget."""
    if noise is None:
        noise = even_noise(workload, budget, rows)
    return Expectation(design, workload, rows, noise)


def beside(workload: Workload, budget: Budget, rows: float) -> list[Expectation]:
    """Every design that the budget can pay for, the closest first."""
    pure = isinstance(budget.capacity, Epsilon)
    noise = even_noise(workload, budget, rows)
    some = [d for d in CURVES if (d in PURE) == pure]
    if not isinstance(
        budget.capacity, Rho | Epsilon
    ):  # Gaussian accounting adds up fixed widths only
        some = [d for d in some if d.startswith(("gaussian", "residual-planner"))]
    found = [Expectation(d, workload, rows, noise) for d in some]
    return sorted(found, key=lambda e: e.mean.middle)


# -- what it would take --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Needed:
    """What brings the mean total variation below `target`: so much epsilon (or rho) in the middle case, and to be nearly sure; or
    these columns less, in the middle case. None where nothing within reach does.
    """

    target: float
    unit: str
    middle: float | None
    sure: float | None
    columns: tuple[str, ...] | None

    def __str__(self) -> str:
        head = f"for mean total variation below {self.target:.0%}"
        if self.middle is None:
            return f"{head} no {self.unit} up to {STRONGEST:g} is enough; ask for fewer or smaller tables"
        sure = "" if self.sure is None else f" ({self.sure:.2g} to be nearly sure)"
        drop = "" if self.columns is None else f", or drop {', '.join(self.columns)}"
        return f"{head} you need {self.unit} {self.middle:.2g}{sure}{drop}"


def needed(expectation: Expectation, budget: Budget, target: float = TARGET) -> Needed | None:
    """What it would take to be closer than `target`; None where that is expected already."""
    if expectation.mean.middle <= target:
        return None
    unit = "epsilon" if budget.epsilon is not None else "rho"

    def mean(which: str) -> Callable[[float], float]:
        def at(amount: float) -> float:
            record = budget.to_record() | {unit: str(Fraction(amount).limit_denominator(10**9))}
            other = Budget.from_record(record)
            again = expected(expectation.design, expectation.workload, other, expectation.rows)
            return getattr(again.mean, which)

        return at

    return Needed(
        target, unit, _least(mean("middle"), target), _least(mean("high"), target), _dropped(expectation, budget, target)
    )  # fmt: skip


def _least(value: Callable[[float], float], target: float) -> float | None:
    """The least amount at which a falling value is below the target, to a hundredth of it."""
    low, high = np.log(WEAKEST), np.log(STRONGEST)
    if value(float(np.exp(high))) > target:
        return None
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (low, middle) if value(float(np.exp(middle))) <= target else (middle, high)
    return float(np.exp(high))


def _dropped(expectation: Expectation, budget: Budget, target: float) -> tuple[str, ...] | None:
    """The columns with the most cells, as few as bring the mean below the target; the tables with them are not asked for."""
    workload, used = expectation.workload, {a for c in expectation.workload for a in c}
    cells = dict.fromkeys(used, 0.0)
    for clique in workload:
        for a in clique:
            cells[a] += workload.domain.size(clique)
    heaviest = sorted(used, key=lambda a: (-cells[a], a))
    for count in range(1, int(len(used) * MOST_DROPPED) + 1):
        gone = set(heaviest[:count])
        kept = {c: workload[c] for c in workload if not gone & set(c)}
        if not kept:
            return None
        part = Workload(workload.domain, kept)
        if expected(expectation.design, part, budget, expectation.rows).mean.middle <= target:
            return tuple(heaviest[:count])
    return None
