"""Adaptive mechanisms: the cost of the whole run is fixed beforehand, what it measures is not.

A call counts every candidate once, reserves the cost of the whole run, and only then draws; `start` gives the run
itself, to watch round by round, or to stop and keep what it has.
"""

from __future__ import annotations

from abc import abstractmethod

from consilience.domain import Clique, Domain
from consilience.errors import BudgetError, MeasurementError
from consilience.mechanisms.adaptive_fit import Refit
from consilience.mechanisms.mechanism import (
    Calibrated,
    Release,
    Result,
    Step,
    StepCallback,
    check_call,
)
from consilience.mechanisms.rounds import Policy, Run
from consilience.mechanisms.settings import Settings
from consilience.mechanisms.source import Source, check_source, exact_counts
from consilience.privacy import Ledger, Neighbours, NoiseSource

MOST_PEOPLE = 10**10
"""No table has more rows than there are people: noise beyond that drowns whatever is measured."""


class CalibratedAdaptive(Calibrated):
    """An adaptive mechanism whose cost, candidates and noise are known."""

    @property
    @abstractmethod
    def domain(self) -> Domain: ...

    @property
    @abstractmethod
    def settings(self) -> Settings:
        """How measurements are reconstructed, during the rounds and after them."""

    @property
    @abstractmethod
    def policy(self) -> Policy:
        """What the rounds ask for."""

    @property
    @abstractmethod
    def candidates(self) -> tuple[Clique, ...]:
        """Every clique that may be measured."""

    @property
    def exact(self) -> bool:
        """Whether measurements are fitted by one distribution over the whole domain, as far as that can be kept."""
        return False

    @property
    @abstractmethod
    def least_noise(self) -> float:
        """Expected L1, in counts, of the noise in the table that gets least of it in the first round."""

    def start(
        self,
        data: Source,
        *,
        noise: NoiseSource | None = None,
        ledger: Ledger | None = None,
        progress: StepCallback | None = None,
    ) -> Run:
        """Count every candidate and reserve the whole cost; the run that comes back has drawn nothing yet."""
        neighbours = self.budget.neighbours
        check_source(data, self.domain, neighbours)
        total = data.records if neighbours is Neighbours.REPLACE_ONE else None
        check_useful(self.least_noise, total)
        source = check_call(self.cost, noise, ledger)
        counts = exact_counts(data, self.candidates)
        if ledger is not None:
            ledger.reserve(self.cost, str(self))
        refit = Refit(
            self.domain, None if total is None else float(total), self.settings, self.exact
        )
        return Run(self.policy, self.cost, counts, total, source, refit, progress)

    def measure(
        self,
        data: Source,
        *,
        noise: NoiseSource | None = None,
        ledger: Ledger | None = None,
        progress: StepCallback | None = None,
    ) -> Release:
        """All rounds, one after the other."""
        run = self.start(data, noise=noise, ledger=ledger, progress=progress)
        for _ in run:
            pass
        return run.release

    def reconstruct(self, release: Release, *, progress: StepCallback | None = None) -> Result:
        """The model of all that was measured, to the tolerance of the settings."""
        if not release.measurements:
            raise MeasurementError(
                "a release must hold at least one measurement, got none; let its run make a round"
            )
        report = progress or (lambda step: None)
        report(Step("reconstructing", 0, 1))
        total = None if release.total is None else float(release.total)
        fit = Refit(
            release.domain,
            total,
            self.settings,
            self.exact,
            lambda done, of: report(Step("reconstructing", done, of)),
        )
        model = fit(release.measurements, self.settings.tolerance)
        report(Step("reconstructing", 1, 1))
        return Result(model, release)


def check_useful(least_noise: float, records: int | None = None) -> None:
    """Refuse a budget under which even the smallest table drowns: nothing that it measures could be told from noise.

    `records` is given only where it is public; otherwise only what holds for every table of people is used.
    """
    limit = MOST_PEOPLE if records is None else records
    if least_noise > limit:
        rows = "any table of people" if records is None else f"{records:,} rows"
        raise BudgetError(
            f"the noise of a round must leave something to see, its expected L1 is {least_noise:,.6g} counts in the "
            f"smallest table, too much for {rows}; give more budget, fewer rounds or coarser attributes; "
            "nothing was spent"
        )
