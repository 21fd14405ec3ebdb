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

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from consilience.domain import Clique, Workload, closure
from consilience.domain.domain import whole_number
from consilience.errors import BudgetError, ConsilienceError
from consilience.fits import PossibleCells
from consilience.fits.possible_cells import AT_THE_END
from consilience.mechanisms.estimates import Room
from consilience.mechanisms.mechanism import (
    Mechanism,
    check_budget,
    check_workload,
)
from consilience.mechanisms.moments import mean_absolute
from consilience.mechanisms.rounds import (
    Ask,
    Asks,
    CalibratedAdaptive,
    Run,
)
from consilience.model import Fit
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
from consilience.solvers.planner import Plan

ROUNDS_PER_ATTRIBUTE = 16
SELECT_SHARE = Fraction(1, 10)
ANNEAL = 4
"""rho of a round after annealing: noise halves, the epsilon of choosing doubles."""


@dataclass(frozen=True, eq=False)
class AIM(Mechanism):
    """Noisy marginals chosen one after the other for a workload, then one model of them all.

    rounds_per_attribute: into how many rounds rho is divided to begin with. fit: the model of the end and, but for the usual one,
    of each round. `PossibleCells(steps=...)` is local least squares in rounds, with global information about unmeasured
    cliques, and at the end an exact model that is stopped before it follows the noise: biased, closer (decision 045).
    `LeastSquares()` is the first of these at the end as well, `LeastSquares(consistency="local")` answers from overlaps alone.
    """

    workload: Workload
    rounds_per_attribute: int = ROUNDS_PER_ATTRIBUTE
    fit: Fit = PossibleCells(steps=AT_THE_END)

    def __post_init__(self) -> None:
        check_workload(self.workload, self.fit)
        candidates = Workload(self.workload.domain, self.candidates)
        check_workload(candidates, self.fit)
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
        self.fit.check("gaussian")
        capacity = budget.capacity
        if not isinstance(capacity, Rho):
            raise BudgetError(
                f"AIM spends rho, which {budget!r} does not count; give the budget a delta (or rho), with "
                "zcdp accounting"
            )
        cost = Cost.adaptive(budget.neighbours, capacity)
        ones = [c for c in self.candidates if len(c) == 1]
        first = Fraction(1, self.rounds_per_attribute * len(ones)) * capacity.value
        sigma, _ = _split(budget.neighbours, first)
        checked_width(sigma)
        plan = self.fit.in_rounds().plan(self.workload.domain, ones)
        return CalibratedAIM(self, budget, first, sigma, cost, plan)


@dataclass(frozen=True, eq=False)
class CalibratedAIM(CalibratedAdaptive[AIM]):
    """`AIM` with the rho of a first round and its noise. `plan` is that of the one-way marginals it begins with."""

    mechanism: AIM
    budget: Budget
    first: Fraction
    sigma: Sigma
    cost: Cost
    plan: Plan

    @property
    def candidates(self) -> tuple[Clique, ...]:
        return self.mechanism.candidates

    @property
    def least_noise(self) -> float:
        return min(map(self.domain.size, self.candidates)) * mean_absolute(self.sigma)

    def asks(self, run: Run) -> Asks:
        weights, size = self.mechanism.weights, self.domain.size
        room = Room(self.domain, self.candidates, self.fit)
        ones = [c for c in self.candidates if len(c) == 1]
        for clique in ones[run.begun :]:
            yield Ask((clique,), self.sigma)
        while (left := self.cost.rho.value - run.spent.rho.value) >= self.first:
            share = run.share or self.first
            last = left < 2 * share
            sigma, select = _split(self.budget.neighbours, left if last else share)
            noise = mean_absolute(sigma)
            candidates = room.left(run.cliques, self.candidates)
            measured = yield Ask(
                candidates,
                sigma,
                selection_epsilon(select),
                [weights[c] for c in candidates],
                [noise * size(c) for c in candidates],
            )
            if last:
                return
            if measured is not None and run.moved(measured) <= noise * size(measured):
                run.share = ANNEAL * share

    def __str__(self) -> str:
        return (
            f"AIM: {len(self.mechanism.workload)} tables, {len(self.candidates)} candidates, "
            f"sigma {self.sigma.value:.6g} to begin with"
        )


def _split(neighbours: Neighbours, share: Fraction) -> tuple[Sigma, Rho]:
    """The noise that 9/10 of a round's rho pays for, and the tenth that pays for choosing."""
    sigma = gaussian_sigma(marginals(neighbours), Rho(share * (1 - SELECT_SHARE)))
    return sigma, Rho(share * SELECT_SHARE)
