"""HDMM: measure not the workload but the queries from which it can be answered best, then reconstruct.

The high-dimensional matrix mechanism chooses a strategy before it sees data: which marginals (or, for ordered attributes, which
weighted sums) to measure, and how precisely. The expected error of every answer is then known, and data are needed only to
measure.
# Paper: HDMM answers by least squares. Here: by `reconstruct`, so that answers are consistent and not negative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, cast

import numpy as np
from scipy import sparse

from consilience.domain import Clique, Workload
from consilience.errors import BudgetError, ConsilienceError, DomainError
from consilience.fits import LeastSquares
from consilience.measurements import Identity, Query, Sparse, as_query
from consilience.measurements.structured import level_sums
from consilience.mechanisms.fixed import CalibratedParts, Part, check_parts_fit
from consilience.mechanisms.hdmm_strategy import (
    Law,
    Strategy,
    make_strategy,
    squared_errors,
    workload_query,
)
from consilience.mechanisms.mechanism import Mechanism, check_budget, check_workload
from consilience.model import Fit
from consilience.privacy import (
    Budget,
    Cost,
    Epsilon,
    MuSquared,
    Rho,
    gaussian_sigma,
    laplace_scale,
)
from consilience.privacy.noise import checked_width
from consilience.solvers.planner import Plan

LONGEST = 2048
"""Values of an ordered attribute: its strategy takes n^3 / 16 operations per step of the descent."""


@dataclass(frozen=True, eq=False)
class HDMM(Mechanism):
    """The queries that answer `workload` best, noisy, then one consistent model of them.

    queries: for ordered attributes, what is asked along them, such as {"age": Prefix(100)} or Ranges; a clique is then asked
    the product of its attributes' queries. Tables at levels of an attribute are asked for as sums along it. noise: "laplace",
    "gaussian", or "auto" for what the budget allows and errs least. The weight of a clique in the workload multiplies its
    answers, so squared errors count by its square. slack: the share of the expected RMSE that is given up for noise of more
    equal width, which reconstruction rewards (docs/hdmm.md). restarts and seed are the optimiser's. fit: how what was measured
    is reconstructed.
    """

    workload: Workload
    queries: Mapping[str, Any] = field(default_factory=dict)
    noise: str = "auto"
    slack: float = 0.004
    restarts: int = 3
    seed: int = 0
    fit: Fit = LeastSquares()

    levels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_workload(self.workload, self.fit, levels=True)
        if self.workload.at_levels:
            workload, sums = _with_sums(self.workload)
            object.__setattr__(self, "workload", workload)
            own = {a: _stacked(sums.get(a), q) for a, q in self.queries.items()}
            object.__setattr__(self, "queries", {**sums, **own})
        if self.noise not in ("auto", "laplace", "gaussian"):
            raise ConsilienceError(
                f"noise must be 'auto', 'laplace' or 'gaussian', got {self.noise!r}"
            )
        if not 0 <= self.slack <= 1:
            raise ConsilienceError(
                f"slack must be from 0 to 1, a share of the expected RMSE, got {self.slack!r}"
            )
        if self.restarts < 1:
            raise ConsilienceError(f"restarts must be at least 1, got {self.restarts}")
        object.__setattr__(self, "queries", _checked_queries(self.workload, self.queries))
        if self.queries and (not self.fit.queries or len(self.fit.noises) == 1):
            raise ConsilienceError(
                f"{type(self.fit).__name__} needs plain tables, got queries for {', '.join(map(repr, self.queries))}, which "
                "HDMM answers by other queries; leave out fit= or queries="
            )

    def query(self, attributes: Any) -> Query:
        """What is asked of a clique of the workload, for `model.answer`; columns in domain order."""
        clique = self.workload.domain.clique(attributes)
        return workload_query(self.workload, self.queries, clique)

    def calibrate(self, budget: Budget) -> CalibratedHDMM:
        """Choose the strategy, then the least noise that the budget allows."""
        check_budget(budget)
        domain = self.workload.domain
        if budget.neighbours.total_public and all(domain.size(c) == 1 for c in self.workload):
            raise DomainError(
                "HDMM must have something to measure: every table of the workload has one cell, which holds the public number of "
                "rows"
            )
        ready = [self._calibrate(budget, law) for law in self._laws(budget)]
        return min(ready, key=lambda c: c.expected_overall_rmse)

    def _laws(self, budget: Budget) -> list[Law]:
        """The laws that the budget can pay for, of those that were asked for."""
        laws: list[Law] = []
        if budget.epsilon is not None and budget.accounting != "gaussian":
            laws.append("laplace")
        if not isinstance(budget.capacity, Epsilon):
            laws.append("gaussian")
        asked: list[Law] = [law for law in laws if self.noise in ("auto", law)]
        taken: list[Law] = [law for law in asked if law in self.fit.noises]
        if not asked:
            raise BudgetError(
                f"Laplace noise spends a pure epsilon, Gaussian noise spends a delta or rho, got {self.noise} noise with "
                f"{budget!r}; change noise= or the budget"
            )
        if not taken:
            self.fit.check(asked[0])
        return taken

    def _calibrate(self, budget: Budget, law: Law) -> CalibratedHDMM:
        strategy = make_strategy(
            self.workload,
            self.queries,
            law,
            budget.neighbours,
            restarts=self.restarts,
            seed=self.seed,
            slack=self.slack,
        )
        cliques = [item.clique for item in strategy.items]
        check_parts_fit(
            self.workload.domain, cliques, self.fit.memory, "the tables of the strategy"
        )
        plan = self.fit.plan(self.workload.domain, cliques)
        parts = _with_noise(strategy, budget)
        cost = Cost.sum(budget.neighbours, (part.cost(budget.neighbours) for part in parts))
        return CalibratedHDMM(self, budget, strategy, parts, cost, plan)


@dataclass(frozen=True, eq=False)
class CalibratedHDMM(CalibratedParts[HDMM]):
    """`HDMM` with its strategy and noise."""

    mechanism: HDMM
    budget: Budget
    strategy: Strategy
    parts: Sequence[Part]
    cost: Cost
    plan: Plan

    @property
    def expected_rmse(self) -> dict[Clique, float]:
        """Per clique of the workload, root mean squared error of its answers by least squares, before reconstruction."""
        return {c: math.sqrt(e / self._rows[c]) for c, e in self._errors.items()}

    @property
    def expected_overall_rmse(self) -> float:
        """The same over all answers of the workload together."""
        return math.sqrt(sum(self._errors.values()) / sum(self._rows.values()))

    @cached_property
    def _errors(self) -> dict[Clique, float]:
        stddevs = {part.clique: part.stddev for part in self.parts}
        known = self.budget.neighbours.total_public
        errors = squared_errors(self.strategy, stddevs, known)
        return {c: errors[c] for c in self.workload}

    @cached_property
    def _rows(self) -> dict[Clique, int]:
        return {c: self.mechanism.query(c).rows for c in self.workload}

    def __str__(self) -> str:
        count = len(self.parts)
        return (
            f"HDMM: {len(self.workload)} cliques by {count} noisy quer{'y' if count == 1 else 'ies'}, "
            f"{self.strategy.law} noise, expected RMSE {self.expected_overall_rmse:.6g}"
        )


def _with_noise(strategy: Strategy, budget: Budget) -> list[Part]:
    """The least noise for each item's share of the budget."""
    shares = [item.share for item in strategy.items]
    amounts = (budget.epsilon if strategy.law == "laplace" else budget.capacity).split(shares)  # pyright: ignore[reportOptionalMemberAccess]
    parts: list[Part] = []
    for item, amount in zip(strategy.items, amounts, strict=True):
        change = item.query.sensitivity(budget.neighbours)
        if isinstance(amount, Epsilon):
            width = laplace_scale(change, amount)
        else:
            assert isinstance(amount, Rho | MuSquared)
            width = gaussian_sigma(change, amount)
        checked_width(width)
        parts.append(Part(item.clique, width, item.query))
    return parts


def _stacked(sums: Query | None, given: Any) -> Any:
    """What a level asks along an attribute, and what is asked along it besides."""
    if sums is None:
        return given
    rows = sparse.csr_array(as_query(given, sums.cells).apply(np.eye(sums.cells)))
    return Sparse(sparse.vstack([cast(Sparse, sums).matrix, rows]))


def _with_sums(workload: Workload) -> tuple[Workload, dict[str, Query]]:
    """A workload at levels as one of attributes, and along each of them the sums that its levels are."""
    domain = workload.domain
    asked: dict[str, dict[str, None]] = {}
    weights: dict[Clique, float] = {}
    for named, weight in workload.items():
        clique = domain.clique(named)
        weights[clique] = max(weight, weights.get(clique, 0.0))
        for attribute, name in zip(clique, named, strict=True):
            asked.setdefault(attribute, {})[name] = None
    sums: dict[str, Query] = {
        a: Sparse(sparse.vstack([level_sums(domain[a], domain.levels.get(n)) for n in names]))
        for a, names in asked.items()
        if any(n in domain.levels for n in names)
    }
    return Workload(domain, weights), sums


def _checked_queries(workload: Workload, queries: Mapping[str, Any]) -> Mapping[str, Query]:
    """One query per named attribute, of its size; a plain one is as good as none."""
    if not isinstance(queries, Mapping):
        raise DomainError(
            f"queries must be a mapping of attribute to query, such as {{'age': Prefix(100)}}, got {queries!r}"
        )
    checked: dict[str, Query] = {}
    for name, given in queries.items():
        if not any(name in clique for clique in workload):
            raise DomainError(
                f"queries must name attributes of the workload's cliques, got {name!r}; leave it out"
            )
        size = workload.domain[name]
        query = as_query(given, size)
        if size > LONGEST:
            raise DomainError(
                f"an attribute with a query must have at most {LONGEST} values, got {size} for {name!r}; merge values"
            )
        if not isinstance(query, Identity):
            checked[name] = query
    return MappingProxyType(checked)
