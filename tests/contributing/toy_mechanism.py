"""A toy mechanism, written by CONTRIBUTING.md alone: only the largest tables of a workload, each with the same noise."""

from __future__ import annotations

from dataclasses import dataclass

import consilience as cs
from consilience.fits import Fit, LeastSquares
from consilience.mechanisms import Calibrated, Call, Mechanism, Release
from consilience.mechanisms.mechanism import check_budget
from consilience.privacy import Budget, Cost, Sigma, gaussian_sigma, marginals
from consilience.solvers.planner import Plan


@dataclass(frozen=True, eq=False)
class Largest(Mechanism):
    """The `most` tables of the workload with the most cells, Gaussian noise; the others are inferred from them."""

    workload: cs.Workload
    most: int = 2
    fit: Fit = LeastSquares()

    def calibrate(self, budget: Budget) -> CalibratedLargest:
        check_budget(budget)
        if budget.delta is None and budget.rho is None:
            raise cs.ConsilienceError(f"Largest needs a delta or rho, got {budget!r}")
        domain = self.workload.domain
        cliques = tuple(sorted(self.workload, key=domain.size, reverse=True)[: self.most])
        change = marginals(budget.neighbours, len(cliques))
        sigma = gaussian_sigma(change, budget.capacity)
        plan = self.fit.plan(domain, cliques)
        return CalibratedLargest(self, budget, Cost.gaussian(change, sigma), plan, cliques, sigma)


@dataclass(frozen=True, eq=False)
class CalibratedLargest(Calibrated[Largest]):
    mechanism: Largest
    budget: Budget
    cost: Cost
    plan: Plan
    cliques: tuple[tuple[str, ...], ...]
    sigma: Sigma

    def draw(self, call: Call) -> Release:
        counts = call.counts(self.cliques)
        return call.release(
            cs.Measurement(
                clique,
                call.noise.discrete_gaussian(counts[clique].astype(int), self.sigma).values,
                stddev=float(self.sigma.value),
            )
            for clique in self.cliques
        )

    def __str__(self) -> str:
        return f"Largest: {len(self.cliques)} tables, sigma {float(self.sigma.value):.6g}"
