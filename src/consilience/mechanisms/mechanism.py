"""Mechanism, calibrated mechanism, result: the three types that every private release goes through.

    mechanism = Gaussian(workload)               frozen settings: no data, no budget
    calibrated = mechanism.calibrate(budget)     noise and cost are known; still no data
    result = calibrated(data, ledger=ledger)     the only step that spends

A call does, in this order: refuse whatever can be refused; ask the ledger whether the cost fits;
count; reserve the cost durably; draw noise; reconstruct. Nothing leaves before the reservation, and an
interruption after it leaves the spending on record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from consilience.domain import Domain
from consilience.errors import BudgetError, LedgerError, NoiseError
from consilience.inference import Diagnostics, Model
from consilience.measurements import Measurement
from consilience.mechanisms.source import Source
from consilience.privacy import Budget, Cost, Ledger, NoiseSource, SecureNoise
from consilience.progress import Progress
from consilience.progress import Step as Step
from consilience.solvers.planner import Plan

NOT_PRIVATE = "NOT PRIVATE: drawn with seeded noise, for experiments only"


StepCallback = Progress


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


class Calibrated(ABC):
    """A mechanism with its noise fixed. Everything but `measure` is known before data is touched."""

    budget: Budget
    """What it was calibrated to."""
    cost: Cost
    """What one call spends; `budget` admits it."""
    plan: Plan
    """How the measurements will be reconstructed."""

    @abstractmethod
    def measure(
        self,
        data: Source,
        *,
        noise: NoiseSource | None = None,
        ledger: Ledger | None = None,
        progress: StepCallback | None = None,
    ) -> Release:
        """The private half of a call: spends `cost`, and returns what may be published."""

    @abstractmethod
    def reconstruct(self, release: Release, *, progress: StepCallback | None = None) -> Result:
        """The free half of a call: never sees data, can be repeated."""

    def __call__(
        self,
        data: Source,
        *,
        noise: NoiseSource | None = None,
        ledger: Ledger | None = None,
        progress: StepCallback | None = None,
    ) -> Result:
        """Measure and reconstruct. `noise` is the operating system's unless one is named."""
        release = self.measure(data, noise=noise, ledger=ledger, progress=progress)
        return self.reconstruct(release, progress=progress)


class Mechanism(ABC):
    """Frozen settings of a private release."""

    @abstractmethod
    def calibrate(self, budget: Budget) -> Calibrated:
        """Fix the noise so that one call spends at most the budget."""


def check_budget(budget: Budget) -> None:
    if not isinstance(budget, Budget):
        raise BudgetError(
            "a mechanism is calibrated to a Budget, such as Budget(epsilon=1, delta=1e-6, "
            f"neighbours='replace-one'), got {budget!r}"
        )


def check_admitted(budget: Budget, cost: Cost) -> None:
    """The last word on a calibration: its price, in exact rationals, is within the budget."""
    if not budget.admits(cost):
        raise BudgetError(f"{budget!r} must admit the calibrated cost, it does not; report this")


def check_call(cost: Cost, noise: NoiseSource | None, ledger: Ledger | None) -> NoiseSource:
    """The source of noise to use, once it is clear that the ledger would take the cost."""
    chosen = SecureNoise() if noise is None else noise
    if not isinstance(chosen, NoiseSource):
        raise NoiseError(f"noise must be a NoiseSource, got {noise!r}; leave it out for a release")
    if ledger is None:
        return chosen
    if not isinstance(ledger, Ledger):
        raise LedgerError(f"ledger must be a Ledger, got {ledger!r}; open it with Ledger(path)")
    if not chosen.private:
        raise LedgerError(
            "a ledger records private releases, got seeded noise; leave out ledger= for an "
            "experiment, or noise= for a release; nothing was spent"
        )
    ledger.check(cost)
    return chosen
