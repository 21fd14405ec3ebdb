"""Mechanism, calibrated mechanism, result: the three types that every private release goes through.

    mechanism = Gaussian(workload)               frozen settings: no data, no budget
    calibrated = mechanism.calibrate(budget)     noise and cost are known; still no data
    result = calibrated(data, ledger=ledger)     the only step that spends

A call does, in this order: refuse whatever can be refused; ask the ledger whether the cost fits;
count; reserve the cost durably; draw noise; reconstruct. Nothing leaves before the reservation, and an
interruption after it leaves the spending on record, and what was drawn on its tape.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from consilience.domain import CliqueVector, Domain, Workload
from consilience.errors import (
    BudgetError,
    CapacityError,
    ConsilienceError,
    DomainError,
    LedgerError,
    NoiseError,
    UncountedWarning,
)
from consilience.fits import LeastSquares
from consilience.fits.reconstruct import checked_fit
from consilience.markup import html_table
from consilience.measurements import Measurement
from consilience.mechanisms.foresight import Expectation, design_of, expected
from consilience.mechanisms.simulation import RUNS, simulated
from consilience.mechanisms.source import Source, check_source, exact_counts
from consilience.memory import parse_bytes, show_bytes
from consilience.model import Diagnostics, Fit, Model
from consilience.privacy import Budget, Cost, Ledger, NoiseSource, SecureNoise
from consilience.progress import Progress, quiet
from consilience.solvers.planner import Plan

NOT_PRIVATE = "NOT PRIVATE: drawn with seeded noise, for experiments only"


BYTES_PER_CELL = 40
"""Counts as floats and as integers, a chunk being drawn, noisy counts as integers and as floats."""


MOST_SHOWN = 20
"""Measurements that a notebook lists."""


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """Noisy measurements and what they cost. All that is done with them later is free.

    `total` is the number of rows where that is public (replace-one), else None.
    """

    domain: Domain
    measurements: tuple[Measurement, ...]
    total: int | None
    cost: Cost
    private: bool

    @property
    def mark(self) -> str:
        return "private" if self.private else NOT_PRIVATE

    def __repr__(self) -> str:
        cells = sum(m.values.size for m in self.measurements)
        return f"Release({len(self.measurements)} tables, {cells:,} cells; {self.mark})"

    def _repr_html_(self) -> str:
        rows = [
            (" x ".join(m.attributes) or "total", f"{m.values.size:,}", f"{m.stddev:,.4g}", m.noise)
            for m in self.measurements[:MOST_SHOWN]
        ]
        left = len(self.measurements) - len(rows)
        note = f"{self.cost}; {self.mark}" + (f"; {left:,} more tables" if left else "")
        head = ("measured", "numbers", "standard deviation of the noise", "noise")
        return html_table("Release", rows, head, note=note)


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A model of the table, the measurements that it was made from, and what they cost."""

    model: Model
    release: Release

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        return self.release.measurements

    @property
    def cost(self) -> Cost:
        return self.release.cost

    @property
    def diagnostics(self) -> Diagnostics:
        return self.model.diagnostics

    @property
    def private(self) -> bool:
        return self.release.private

    @property
    def mark(self) -> str:
        return self.release.mark

    def __repr__(self) -> str:
        return f"Result({self.mark}; {self.model!r})"


Piece = dict[str, NDArray[Any]]
"""Arrays by name: as much as a mechanism draws at once."""


class Tape:
    """What one payment has drawn so far, piece by piece; in memory here, on disk in a release (`release.drawn`)."""

    paid = False
    """Whether the cost was reserved before: then it is neither asked for nor charged again."""

    def __init__(self, pieces: Iterable[Piece] = ()) -> None:
        self.pieces = list(pieces)

    def pay(self, ledger: Ledger | None, cost: Cost, description: str) -> None:
        """Reserve the cost, durably, before the first piece is drawn."""
        if ledger is not None:
            ledger.reserve(cost, description)

    def keep(self, piece: Piece) -> None:
        """Called with a piece before it is used for anything, and before the next is drawn."""
        self.pieces.append(piece)


class Mechanism(ABC):
    """Frozen settings of a private release."""

    workload: Workload
    """The tables that are wanted."""
    fit: Fit = LeastSquares()
    """The estimator that turns measurements into a model."""
    levels: ClassVar[bool] = False
    """Whether tables may be read at levels of attributes."""

    @abstractmethod
    def calibrate(self, budget: Budget) -> Calibrated[Any]:
        """Fix the noise so that one call spends at most the budget."""


M = TypeVar("M", bound=Mechanism)
"""The mechanism that a calibrated one was made from."""


class Calibrated(ABC, Generic[M]):
    """A mechanism with its noise fixed. Everything but `measure` is known before data is touched."""

    mechanism: M
    budget: Budget
    """What it was calibrated to."""
    cost: Cost
    """What one call spends; `budget` admits it."""
    plan: Plan
    """How the measurements will be reconstructed."""

    def __post_init__(self) -> None:
        """The last word on a calibration: its price, in exact rationals, is within the budget."""
        if not self.budget.admits(self.cost):
            raise BudgetError(
                f"{self.budget!r} must admit the calibrated cost, it does not; report this"
            )

    @property
    def fit(self) -> Fit:
        """The estimator that turns measurements into a model."""
        return self.mechanism.fit

    @property
    def domain(self) -> Domain:
        return self.mechanism.workload.domain

    @abstractmethod
    def draw(self, call: Call) -> Release:
        """Count through the call, which reserves the cost, then draw: what comes back may be published."""

    def measure(
        self,
        data: Source,
        *,
        noise: NoiseSource | None = None,
        ledger: Ledger | None = None,
        progress: Progress | None = None,
        tape: Tape | None = None,
    ) -> Release:
        """The private half of a call: spends `cost`, and returns what may be published.

        tape: takes what is drawn, piece by piece; pieces that are on it were drawn before and are not drawn again.
        """
        return self.draw(Call(self, data, noise, ledger, progress or quiet, tape))

    def reconstruct(self, release: Release, *, progress: Progress | None = None) -> Result:
        """The free half of a call: never sees data, can be repeated."""
        total = None if release.total is None else float(release.total)
        evidence = self.evidence(release)
        return Result(
            self.fit(release.domain, evidence, total, progress=_staged(progress)), release
        )

    def expect(self, rows: float) -> Expectation:
        """How close its tables will be, as ranges over tables like those we know; `rows`: about how many there are."""
        design = design_of(self.mechanism, self.fit, self.budget)
        if design is None:
            raise ConsilienceError(
                f"there must be experience with the design, got {type(self.mechanism).__name__} with "
                f"{type(self.fit).__name__}; compare with another, such as Auto"
            )
        return expected(design, self.mechanism.workload, self.budget, rows)

    def simulated(
        self,
        result: Result,
        replicates: int = RUNS,
        rng: np.random.Generator | int = 0,
        *,
        progress: Progress | None = None,
    ) -> Model:
        """The result's model, whose errors are those of this whole mechanism run again on rows drawn from it.

        What it chose by noisy values, how its fit thins and what that is biased by are then in them (docs/uncertainty.md). It is
        given what was released and nothing else, so it costs no privacy; it takes as many runs as there are replicates.
        """
        return simulated(self, result, replicates, rng, progress or quiet)

    def evidence(self, release: Release) -> Iterable[Measurement]:
        """The measurements as the reconstruction takes them."""
        return release.measurements

    def __call__(
        self,
        data: Source,
        *,
        noise: NoiseSource | None = None,
        ledger: Ledger | None = None,
        progress: Progress | None = None,
    ) -> Result:
        """Measure and reconstruct. `noise` is the operating system's unless one is named."""
        release = self.measure(data, noise=noise, ledger=ledger, progress=progress)
        return self.reconstruct(release, progress=progress)


class Call:
    """One call of a calibrated mechanism on a table. Once it is made, all that can be refused without counting was refused.

    `counts` is the only way to the table, and pays before it returns: nothing can be drawn that is not on record. `piece` is what
    is drawn then.
    """

    def __init__(
        self,
        ready: Calibrated[Any],
        data: Source,
        noise: NoiseSource | None,
        ledger: Ledger | None,
        progress: Progress,
        tape: Tape | None = None,
    ) -> None:
        check_source(data, ready.domain, ready.budget.neighbours)
        tape = tape or Tape()
        self.noise = check_call(ready.cost, noise, ledger, paid=tape.paid)
        self.progress = progress
        self.records = data.records
        """Number of rows, for what is drawn; `total` may be published."""
        self.total = data.records if ready.budget.neighbours.total_public else None
        self._ready, self._data, self._ledger, self._tape = ready, data, ledger, tape

    def __reduce_ex__(self, protocol: object) -> Any:
        """Neither copied nor pickled: a copy would draw again for one payment, and a file would hold exact counts."""
        raise ConsilienceError(
            "a call of a mechanism is made once, it cannot be copied or written to a file; call the calibrated mechanism again"
        )

    def counts(self, cliques: Iterable[Iterable[str]]) -> CliqueVector:
        """Exact counts of these marginals, once the cost of the call is reserved."""
        counted = exact_counts(self._data, cliques)
        self._tape.pay(self._ledger, self._ready.cost, str(self._ready))
        return counted

    @property
    def drawn(self) -> tuple[Piece, ...]:
        """Pieces that are on the tape."""
        return tuple(self._tape.pieces)

    def piece(self, number: int, draw: Callable[[], Piece]) -> Piece:
        """The piece of this number: from the tape if it was drawn before, else drawn now and kept before it is used."""
        if number == len(self._tape.pieces):
            self._tape.keep(draw())
        return self._tape.pieces[number]

    def release(self, measurements: Iterable[Measurement]) -> Release:
        """What was measured, with what it cost."""
        ready, private = self._ready, self.noise.private
        return Release(ready.domain, tuple(measurements), self.total, ready.cost, private)


def _staged(progress: Progress | None) -> Progress | None:
    """A fit's steps under the name that those who watch a mechanism wait for."""
    if progress is None:
        return None
    return lambda step: progress(replace(step, stage="reconstructing"))


def check_budget(budget: Budget) -> None:
    if not isinstance(budget, Budget):
        raise BudgetError(
            "a mechanism is calibrated to a Budget, such as Budget(epsilon=1, delta=1e-6, "
            f"neighbours='replace-one'), got {budget!r}"
        )


def check_call(
    cost: Cost, noise: NoiseSource | None, ledger: Ledger | None, *, paid: bool = False
) -> NoiseSource:
    """The source of noise to use, once it is clear that the ledger would take the cost."""
    chosen = SecureNoise() if noise is None else noise
    if not isinstance(chosen, NoiseSource):
        raise NoiseError(f"noise must be a NoiseSource, got {noise!r}; leave it out for a release")
    if ledger is None:
        if chosen.private and not paid:
            _warn_uncounted()
        return chosen
    if not isinstance(ledger, Ledger):
        raise LedgerError(f"ledger must be a Ledger, got {ledger!r}; open it with Ledger(path)")
    if not chosen.private:
        raise LedgerError(
            "a ledger records private releases, got seeded noise; leave out ledger= for an "
            "experiment, or noise= for a release; nothing was spent"
        )
    if not paid:
        ledger.check(cost)
    return chosen


@cache
def _warn_uncounted() -> None:
    """Once in a process."""
    text = "no ledger: nothing keeps count of what is spent on this table; give ledger=Ledger(path)"
    warnings.warn(text, UncountedWarning, stacklevel=5)


def check_workload(workload: Workload, fit: Fit, *, levels: bool = False) -> None:
    """Tables that can be counted in the memory of the estimator, each of at least one attribute; at levels where allowed."""
    if not isinstance(workload, Workload):
        raise DomainError(
            "the workload of a mechanism must be a Workload, such as all_marginals(domain, 2), "
            f"got {type(workload).__name__}"
        )
    if () in workload:
        raise DomainError(
            "every clique of a mechanism's workload must have an attribute, got the empty one; "
            "the total is public (replace-one) or estimated from the tables (add-remove)"
        )
    if workload.at_levels and not levels:
        level = next(a for c in workload for a in c if a in workload.domain.levels)
        raise DomainError(
            f"tables at levels of an attribute are measured by Gaussian, Laplace, HDMM and ResidualPlanner, got {level!r}; use "
            f"one of those, or ask for tables of {workload.domain.levels[level].attribute!r} itself"
        )
    need, budget = BYTES_PER_CELL * workload.cells, parse_bytes(checked_fit(fit).memory)
    if need > budget:
        raise CapacityError(
            f"the tables of the workload must fit the memory budget of {show_bytes(budget)}, "
            f"{workload.cells:,} cells need about {show_bytes(need)}; "
            "choose smaller cliques or raise memory=",
            need,
            budget,
        )
