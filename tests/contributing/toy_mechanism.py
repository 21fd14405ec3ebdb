"""A toy mechanism, written by CONTRIBUTING.md alone: only the largest tables of a workload, each with the same noise."""

from __future__ import annotations

from dataclasses import dataclass

import consilience as cs
from consilience.fits import Fit, LeastSquares
from consilience.mechanisms import Calibrated, Mechanism, Release
from consilience.mechanisms.mechanism import check_budget, check_call, check_source, exact_counts
from consilience.privacy import Budget, Cost, Neighbours, Sigma, gaussian_sigma, marginals
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

    def measure(self, data, *, noise=None, ledger=None, progress=None) -> Release:
        domain, whom = self.mechanism.workload.domain, self.budget.neighbours
        check_source(data, domain, whom)
        source = check_call(self.cost, noise, ledger)
        counts = exact_counts(data, self.cliques)
        if ledger is not None:
            ledger.reserve(self.cost, str(self))
        stddev = float(self.sigma.value)
        found = tuple(
            cs.Measurement(
                clique,
                source.discrete_gaussian(counts[clique].astype(int), self.sigma).values,
                stddev=stddev,
            )
            for clique in self.cliques
        )
        total = data.records if whom is Neighbours.REPLACE_ONE else None
        return Release(domain, found, total, self.cost, source.private)

    def __str__(self) -> str:
        return f"Largest: {len(self.cliques)} tables, sigma {float(self.sigma.value):.6g}"
