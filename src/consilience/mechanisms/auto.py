"""Auto: the mechanism that is expected to be closest, chosen from what is public: the budget, the tables asked for, their sizes.

The data is never looked at for it. docs/latent-classes.md has the figures that the choice rests on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from consilience.domain import Workload
from consilience.fits import LatentClasses, LeastSquares, Shrunk
from consilience.fits.least_squares import CLEAR
from consilience.mechanisms.fixed import Gaussian, Laplace
from consilience.mechanisms.hdmm import HDMM
from consilience.mechanisms.level_shares import LevelDesign
from consilience.mechanisms.mechanism import Calibrated, Mechanism, check_budget, check_workload
from consilience.mechanisms.pilot import Pilot
from consilience.mechanisms.residual_planner import ResidualPlanner
from consilience.model import Fit
from consilience.privacy import Budget, Epsilon, Rho

LONGEST = 12_000
"""Sum of sizes beyond which latent classes take minutes: tables are then pulled towards independence instead."""


@dataclass(frozen=True, eq=False)
class Auto(Mechanism):
    """What measures a workload best under a budget; `choose` says what that is, and why.

    fit: how it is reconstructed; the default gives way to another where noise or size ask for it.
    """

    workload: Workload
    fit: Fit = LatentClasses()

    levels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_workload(self.workload, self.fit, levels=True)

    def choose(self, budget: Budget) -> tuple[Mechanism, str]:
        """The mechanism for a budget, and the reason in a line."""
        check_budget(budget)
        workload, fit = self.workload, self.fit
        usual = isinstance(fit, LatentClasses)
        if isinstance(budget.capacity, Epsilon):
            plain = _plain(fit) if usual else fit
            if len(workload) == 1:
                return Laplace(workload, fit=plain), "one table under a pure epsilon"
            why = "a pure epsilon is kept by Laplace noise; a delta of 1e-6 would allow much less noise"
            return HDMM(workload, fit=plain), why
        if workload.at_levels:
            plain = replace(_plain(fit), clear=CLEAR) if usual else fit
            if LevelDesign.of(workload) is None:
                return Gaussian(workload, fit=plain), "tables at levels of several kinds"
            why = "tables at levels that add up, by residuals of every place"
            if usual and not fit.possible and _one_holds_all(workload):
                pulled = Shrunk(memory=fit.memory, controls=fit.controls)
                return ResidualPlanner(workload, fit=pulled), f"{why}, the smallest pulled"
            return ResidualPlanner(workload, fit=plain), why
        length = sum(workload.domain.shape)
        if usual and length > LONGEST:
            fit = _plain(fit) if fit.possible else Shrunk(memory=fit.memory, controls=fit.controls)
            why = f"{length:,} values of all columns together are too many for latent classes"
            return ResidualPlanner(workload, fit=fit), why
        if not usual:
            return Gaussian(workload, fit=fit), "every table once, for the fit that was asked for"
        if not isinstance(budget.capacity, Rho):
            why = "Gaussian accounting adds up widths that are fixed beforehand"
            return Gaussian(workload, fit=fit), why
        used = {a for clique in workload for a in clique}
        if max(len(c) for c in workload) <= 2 and len(workload) <= len(used):
            return Gaussian(workload, fit=fit), "few tables, which need no pilot"
        return Pilot(workload, fit=fit), "tables of several columns, which share strength"

    def calibrate(self, budget: Budget) -> Calibrated[Any]:
        """The chosen mechanism, calibrated."""
        return self.choose(budget)[0].calibrate(budget)


def _one_holds_all(workload: Workload) -> bool:
    """Whether a table at the finest level has every attribute that others have: what is fitted is then that table's places."""
    cliques = [set(workload.domain.clique(c)) for c in workload]
    return set().union(*cliques) in cliques


def _plain(fit: Fit) -> LeastSquares:
    """Least squares that keeps what a fit was told to keep."""
    return LeastSquares(memory=fit.memory, possible=fit.possible, controls=fit.controls)
