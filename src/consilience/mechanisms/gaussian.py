"""Gaussian: every table of a workload, counted once, with discrete Gaussian noise.

One person changes c cells of each table by one: c = 1 (add-remove) or c = 2 (replace-one). With shares
w_i of the budget, sigma_i^2 = c sum(w) / (2 rho w_i), so that the costs c / (2 sigma_i^2) add up to rho.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from consilience.domain import Clique, Workload
from consilience.errors import BudgetError
from consilience.inference.impossible import Masks
from consilience.mechanisms.mechanism import check_admitted, check_budget
from consilience.mechanisms.settings import Reconstructing
from consilience.mechanisms.shares import Weights, check_workload, checked_shares, shares
from consilience.mechanisms.tables import CalibratedTables, Tables
from consilience.privacy import (
    Budget,
    Cost,
    Epsilon,
    Sigma,
    marginals,
    weighted_gaussian_sigmas,
)
from consilience.privacy.noise import checked_width
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.planner import TIME_LIMIT, Plan


@dataclass(frozen=True, eq=False)
class Gaussian(Reconstructing, Tables):
    """Noisy marginals of `workload`, then one consistent model of them.

    weights: shares of rho per clique; None for equal noise in every table, "optimal" for the least expected L1
    distance. The other arguments are those of `reconstruct`.
    """

    workload: Workload
    weights: Weights = None
    consistency: str | RegionGraph = "auto"
    solver: str = "auto"
    prior: str | None = None
    memory: str | int | float = "2 GB"
    tolerance: float = 1e-6
    possible: Masks = field(default_factory=dict)
    time_limit: float = TIME_LIMIT

    def __post_init__(self) -> None:
        check_workload(self.workload, self.memory)
        object.__setattr__(self, "weights", checked_shares(self.workload, self.weights))

    def calibrate(self, budget: Budget) -> CalibratedGaussian:
        """Least noise that an (epsilon, delta) or rho budget allows."""
        check_budget(budget)
        capacity = budget.capacity
        if isinstance(capacity, Epsilon):
            raise BudgetError(
                f"Gaussian noise can not keep a pure epsilon, got {budget!r}; give the budget a "
                "delta (or rho), or use the Laplace mechanism"
            )
        plan = self.settings.plan(self.workload.domain, self.workload.cliques)
        roots = [math.sqrt(w) for w in shares(self.workload, self.weights, power=0.5)]
        sigmas = weighted_gaussian_sigmas(budget.neighbours, roots, capacity)
        for sigma in sigmas:
            checked_width(sigma)
        one = marginals(budget.neighbours)
        cost = Cost.sum(budget.neighbours, (Cost.gaussian(one, sigma) for sigma in sigmas))
        check_admitted(budget, cost)
        by_clique = dict(zip(self.workload, sigmas, strict=True))
        return CalibratedGaussian(self, budget, by_clique, cost, plan)


@dataclass(frozen=True, eq=False)
class CalibratedGaussian(CalibratedTables):
    """`Gaussian` with one sigma per clique."""

    mechanism: Tables
    budget: Budget
    sigmas: Mapping[Clique, Sigma]
    cost: Cost
    plan: Plan

    @property
    def widths(self) -> Mapping[Clique, Sigma]:
        return self.sigmas
