"""Laplace: every table of a workload, counted once, with discrete Laplace noise.

One person changes c cells of each table by one: c = 1 (add-remove) or c = 2 (replace-one). With shares
w_i of the budget, b_i = c sum(w) / (epsilon w_i), so that the costs c / b_i add up to epsilon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from consilience.domain import Clique, Workload
from consilience.errors import BudgetError, ConsilienceError
from consilience.inference.impossible import Masks
from consilience.mechanisms.mechanism import check_admitted, check_budget
from consilience.mechanisms.settings import Reconstructing
from consilience.mechanisms.shares import Weights, check_workload, checked_shares, shares
from consilience.mechanisms.tables import CalibratedTables, Tables
from consilience.privacy import Budget, Cost, Scale, laplace_scale, marginals
from consilience.privacy.noise import checked_width
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.planner import TIME_LIMIT, Plan


@dataclass(frozen=True, eq=False)
class Laplace(Reconstructing, Tables):
    """Noisy marginals of `workload` under pure epsilon, then one consistent model of them.

    weights: shares of epsilon per clique; None for equal noise in every table, "optimal" for the least expected L1
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
        if self.prior == "independence":
            raise ConsilienceError(
                f"the Laplace mechanism takes prior=None, got {self.prior!r}: a prior's strength is chosen by splitting "
                "Gaussian noise; use the Gaussian mechanism"
            )
        object.__setattr__(self, "weights", checked_shares(self.workload, self.weights))

    def calibrate(self, budget: Budget) -> CalibratedLaplace:
        """Least noise that the budget's epsilon allows; a delta is not used."""
        check_budget(budget)
        if budget.epsilon is None or budget.accounting == "gaussian":
            raise BudgetError(
                "Laplace noise spends a pure epsilon, which a budget with rho or Gaussian accounting "
                f"does not count, got {budget!r}; give epsilon, or use the Gaussian mechanism"
            )
        plan = self.settings.plan(self.workload.domain, self.workload.cliques)
        one = marginals(budget.neighbours)
        parts = budget.epsilon.split(shares(self.workload, self.weights, power=1.0))
        scales = [laplace_scale(one, part) for part in parts]
        for scale in scales:
            checked_width(scale)
        cost = Cost.sum(budget.neighbours, (Cost.laplace(one, scale) for scale in scales))
        check_admitted(budget, cost)
        by_clique = dict(zip(self.workload, scales, strict=True))
        return CalibratedLaplace(self, budget, by_clique, cost, plan)


@dataclass(frozen=True, eq=False)
class CalibratedLaplace(CalibratedTables):
    """`Laplace` with one scale per clique."""

    mechanism: Tables
    budget: Budget
    scales: Mapping[Clique, Scale]
    cost: Cost
    plan: Plan

    @property
    def widths(self) -> Mapping[Clique, Scale]:
        return self.scales
