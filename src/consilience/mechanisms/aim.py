"""AIM: an adaptive and iterative mechanism for marginals (McKenna, Mullins, Sheldon, Miklau 2022), under zCDP.

    T = 16 d rounds' worth of rho, d attributes; a round spends 9/10 of its share on measuring, 1/10 on choosing
    first: every one-way marginal of the workload, at the noise of a round
    then:  score_r = w_r (||M_r x - estimate_r||_1 - E||noise||_1) over all subsets r of the workload's cliques,
           w_r = sum over workload cliques s of c_s |r and s in common|
    anneal: where the new table moved the model by no more than its noise would, four times the rho per round
           (half the noise, twice the epsilon of choosing)
    last:  when less than two rounds are left, all of it goes into one

# Paper: candidates whose junction tree passes a cap on its size (80 MB times the share of rho spent) are left out.
# Here: the price is that of local consistency, which grows with the tables themselves, so that nothing useful is capped.
# A candidate whose noise would pass any error a table of so many rows can have is not looked at; its score is that bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from consilience.domain import Clique, Domain, Workload, closure
from consilience.domain.domain import whole_number
from consilience.errors import BudgetError, ConsilienceError
from consilience.inference.impossible import Masks
from consilience.mechanisms.adaptive import CalibratedAdaptive, check_useful
from consilience.mechanisms.adaptive_fit import local_where_auto
from consilience.mechanisms.adaptive_room import Room
from consilience.mechanisms.laws import mean_absolute
from consilience.mechanisms.mechanism import Mechanism, check_admitted, check_budget
from consilience.mechanisms.rounds import Ask, Policy
from consilience.mechanisms.settings import Reconstructing, Settings
from consilience.mechanisms.shares import check_workload
from consilience.privacy import (
    Budget,
    Cost,
    Neighbours,
    Rho,
    Sigma,
    gaussian_sigma,
    marginals,
    selection_epsilon,
)
from consilience.privacy.noise import checked_width
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.planner import TIME_LIMIT, Plan

ROUNDS_PER_ATTRIBUTE = 16
SELECT_SHARE = Fraction(1, 10)
ANNEAL = 4
"""rho of a round after annealing: noise halves, the epsilon of choosing doubles."""


@dataclass(frozen=True, eq=False)
class AIM(Reconstructing, Mechanism):
    """Noisy marginals chosen one after the other for a workload, then one model of them all.

    rounds_per_attribute: into how many rounds rho is divided to begin with. consistency: "auto" answers unmeasured cliques
    with global information, as far as memory allows; "local" from overlaps alone. The others are those of `reconstruct`.
    """

    workload: Workload
    rounds_per_attribute: int = ROUNDS_PER_ATTRIBUTE
    consistency: str | RegionGraph = "auto"
    solver: str = "auto"
    prior: str | None = None
    memory: str | int | float = "2 GB"
    tolerance: float = 1e-6
    possible: Masks = field(default_factory=dict)
    time_limit: float = TIME_LIMIT

    def __post_init__(self) -> None:
        check_workload(self.workload, self.memory)
        check_workload(Workload(self.workload.domain, self.candidates), self.memory)
        number = whole_number(self.rounds_per_attribute)
        if number is None or number < 2:
            raise ConsilienceError(
                "rounds_per_attribute must be a whole number of at least 2, one for each attribute alone and one to "
                f"choose, got {self.rounds_per_attribute!r}"
            )

    @cached_property
    def candidates(self) -> tuple[Clique, ...]:
        """Every subset of a workload clique but the empty one, smaller ones first."""
        return tuple(c for c in closure(self.workload.domain, self.workload) if c)

    @cached_property
    def weights(self) -> dict[Clique, float]:
        """w_r = sum over workload cliques s of c_s |r and s in common|: each attribute brings its cliques' weights."""
        share = dict.fromkeys(self.workload.domain, 0.0)
        for clique, weight in self.workload.items():
            for attribute in clique:
                share[attribute] += weight
        return {r: sum(share[a] for a in r) for r in self.candidates}

    def calibrate(self, budget: Budget) -> CalibratedAIM:
        """Fix the noise of the first rounds and the rho of the whole run."""
        check_budget(budget)
        capacity = budget.capacity
        if not isinstance(capacity, Rho):
            raise BudgetError(
                f"AIM spends rho, which {budget!r} does not count; give the budget a delta (or rho), with "
                "zcdp accounting"
            )
        cost = Cost.adaptive(budget.neighbours, capacity)
        check_admitted(budget, cost)
        ones = [c for c in self.candidates if len(c) == 1]
        first = Fraction(1, self.rounds_per_attribute * len(ones)) * capacity.value
        sigma, _ = _split(budget.neighbours, first)
        checked_width(sigma)
        size = self.workload.domain.size
        check_useful(min(map(size, ones)) * mean_absolute(sigma))
        plan = local_where_auto(self.settings).plan(self.workload.domain, ones)
        return CalibratedAIM(self, budget, first, sigma, cost, plan)


@dataclass(frozen=True, eq=False)
class CalibratedAIM(CalibratedAdaptive):
    """`AIM` with the rho of a first round and its noise. `plan` is that of the one-way marginals it begins with."""

    mechanism: AIM
    budget: Budget
    first: Fraction
    sigma: Sigma
    cost: Cost
    plan: Plan

    @property
    def domain(self) -> Domain:
        return self.mechanism.workload.domain

    @property
    def settings(self) -> Settings:
        return self.mechanism.settings

    @property
    def candidates(self) -> tuple[Clique, ...]:
        return self.mechanism.candidates

    @property
    def least_noise(self) -> float:
        return min(map(self.domain.size, self.candidates)) * mean_absolute(self.sigma)

    @property
    def policy(self) -> Annealed:
        return Annealed(self)

    def __str__(self) -> str:
        return (
            f"AIM: {len(self.mechanism.workload)} tables, {len(self.candidates)} candidates, "
            f"sigma {self.sigma.value:.6g} to begin with"
        )


@dataclass(frozen=True)
class Stage:
    """rho left, rho of a round, whether this was the last, and how many one-way marginals were begun."""

    left: Fraction
    share: Fraction
    opened: int = 0
    over: bool = False


@dataclass(frozen=True, eq=False)
class Annealed(Policy[Stage]):
    """AIM's rounds: first the attributes alone, then the worst candidate, with more rho when little is learnt."""

    ready: CalibratedAIM

    @property
    def rounds(self) -> None:
        return None

    @property
    def backbone(self) -> bool:
        return self.ready.settings.consistency == "auto"

    def start(self) -> Stage:
        capacity = self.ready.cost.rho.value
        return Stage(capacity, self.ready.first)

    def ask(self, stage: Stage, measured: Sequence[Clique]) -> Ask | None:
        if stage.over:
            return None
        if stage.opened < len(self._ones):
            return Ask((self._ones[stage.opened],), self.ready.sigma)
        sigma, select = _split(self.ready.budget.neighbours, self._spending(stage))
        open_ones = self._room.left(measured, self.ready.candidates)
        weights, size = self.ready.mechanism.weights, self.ready.domain.size
        per_cell = mean_absolute(sigma)
        return Ask(
            open_ones,
            sigma,
            selection_epsilon(select),
            [weights[c] for c in open_ones],
            [per_cell * size(c) for c in open_ones],
        )

    def charged(self, stage: Stage, cost: Cost) -> Stage:
        left = stage.left - cost.rho.value
        if stage.opened < len(self._ones):
            return replace(stage, left=left, opened=stage.opened + 1)
        last = self._spending(stage) == stage.left
        return replace(stage, left=left, over=last)

    def fitted(self, stage: Stage, ask: Ask, clique: Clique, moved: Callable[[], float]) -> Stage:
        if ask.selection is None or stage.over:
            return stage
        noise = mean_absolute(ask.width) * self.ready.domain.size(clique)
        return replace(stage, share=ANNEAL * stage.share) if moved() <= noise else stage

    def _spending(self, stage: Stage) -> Fraction:
        """All that is left, where that is less than two rounds."""
        return stage.left if stage.left < 2 * stage.share else stage.share

    @cached_property
    def _ones(self) -> tuple[Clique, ...]:
        return tuple(c for c in self.ready.candidates if len(c) == 1)

    @cached_property
    def _room(self) -> Room:
        settings = local_where_auto(self.ready.settings)
        return Room(self.ready.domain, self.ready.candidates, settings)


def _split(neighbours: Neighbours, share: Fraction) -> tuple[Sigma, Rho]:
    """The noise that 9/10 of a round's rho pays for, and the tenth that pays for choosing."""
    sigma = gaussian_sigma(marginals(neighbours), Rho(share * (1 - SELECT_SHARE)))
    return sigma, Rho(share * SELECT_SHARE)
