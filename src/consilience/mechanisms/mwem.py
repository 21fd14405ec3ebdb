"""MWEM: measure, round by round, the marginal of a workload that the model answers worst.

A round has a share of the budget, half of it for choosing and half for measuring unless told otherwise:

    score_r = w_r (||M_r x - estimate_r||_1 - a_r)      a_r: expected L1 of the noise that measuring r would add
    choose r among those not yet measured, P(r) in proportion to exp(e score_r / (2 D)), D the scores' sensitivity
    y = M_r x + noise; fit the model to all y so far

A score moves by at most w_r under add-remove and 2 w_r under replace-one. All rounds together are the cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from consilience.domain import Clique, Workload
from consilience.domain.domain import whole_number
from consilience.errors import BudgetError, ConsilienceError, DomainError
from consilience.fits import PossibleCells
from consilience.mechanisms.estimates import Room
from consilience.mechanisms.mechanism import (
    Mechanism,
    check_budget,
    check_workload,
)
from consilience.mechanisms.moments import Width, mean_absolute
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
    Epsilon,
    Neighbours,
    Rho,
    gaussian_sigma,
    laplace_scale,
    marginals,
    selection_epsilon,
)
from consilience.privacy.noise import checked_width
from consilience.privacy.units import Real, exact, positive
from consilience.solvers.planner import Plan

LAWS = ("auto", "laplace", "gaussian")
ALLOWANCES = ("noise", "cells")
MORE_BY_RHO, MORE_BY_EPSILON = 30.0, 0.1
"""Further rounds per attribute, by the root of rho and by a pure epsilon. On all pairs of titanic, adult and fire, of d, 2 d or
3 d, 4 d and all rounds, 4 d or more were closest at epsilon 1 (delta 1e-9), on titanic at 10 all. Laplace noise grows with the
rounds, not with their root: there d to 2 d were closest up to epsilon 10, but for fire at 1 (3 d)."""


@dataclass(frozen=True, eq=False)
class MWEM(Mechanism):
    """The multiplicative-weights exponential mechanism with this library's reconstruction in place of multiplicative weights.

    rounds: at most one per clique; None for one per attribute, more where the budget is large (`usual_rounds`), or for as many
    as `per_round` leaves room for.
    per_round: what a round spends, Epsilon(...) for Laplace noise, Rho(...) for Gaussian; None divides the budget evenly.
    noise: "laplace" (pure epsilon), "gaussian" (rho, or epsilon and delta); "auto" goes by the budget.
    select_share: part of a round spent on choosing. allowance: what scores are lowered by, the expected L1 of the "noise",
    or the number of "cells" as in the authors' code.
    fit: the model of each round and of the end. `PossibleCells()` is the exact model on the cells that can occur;
    `LeastSquares()` fits local tables and asks a backbone about the rest, `LeastSquares(consistency="local")` answers from
    overlaps alone, as in the paper.
    """

    workload: Workload
    rounds: int | None = None
    per_round: Epsilon | Rho | None = None
    noise: str = "auto"
    select_share: Real = Fraction(1, 2)
    allowance: str = "noise"
    fit: Fit = PossibleCells()

    def __post_init__(self) -> None:
        check_workload(self.workload, self.fit)
        if self.rounds is not None:
            _check_rounds(self.rounds, len(self.workload))
        if self.per_round is not None and not isinstance(self.per_round, Epsilon | Rho):
            raise BudgetError(
                f"per_round must be Epsilon(...) or Rho(...), got {self.per_round!r}; say which it is"
            )
        if self.noise not in LAWS or self.allowance not in ALLOWANCES:
            raise ConsilienceError(
                "noise must be 'auto', 'laplace' or 'gaussian' and allowance 'noise' or 'cells', "
                f"got {self.noise!r} and {self.allowance!r}"
            )
        if not 0 < exact(self.select_share, "select_share") < 1:
            raise ConsilienceError(
                f"select_share must be between 0 and 1, got {self.select_share!r}"
            )

    @classmethod
    def as_published(
        cls,
        workload: Workload,
        epsilon: Real = 0.1,
        rounds: int | None = None,
        fit: Fit | None = None,
    ) -> MWEM:
        """The noise of the paper's experiments at their nominal epsilon per round, charged as what it is.

        Their code chooses by exp(e score / 2) and adds Laplace noise of scale 2 / e, e = epsilon / 2, and takes the number
        of rows as known. Under replace-one, where that is public, a score moves by 2, so choosing spends 2 e and measuring
        e: a round costs 3 / 2 epsilon. Calibrate it to a replace-one budget.
        """
        nominal = positive(epsilon, "epsilon")
        return cls(
            workload,
            len(workload) if rounds is None else rounds,
            Epsilon(nominal * Fraction(3, 2)),
            "laplace",
            Fraction(2, 3),
            "cells",
            PossibleCells() if fit is None else fit,
        )

    def calibrate(self, budget: Budget) -> CalibratedMWEM:
        """Fix the rounds, the noise and the cost of them all."""
        check_budget(budget)
        capacity = self._capacity(budget)
        rounds, share = self._rounds_and_share(capacity)
        chosen = exact(self.select_share, "select_share")
        parts = share.split([chosen, 1 - chosen])
        selection, width = selection_epsilon(parts[0]), _width(budget.neighbours, parts[1])
        cost = Ask((), width, selection).cost(budget.neighbours) * rounds
        return CalibratedMWEM(self, budget, rounds, selection, width, cost, self._plan(rounds))

    def _capacity(self, budget: Budget) -> Epsilon | Rho:
        """The budget in the unit that the noise spends."""
        pure = self.noise == "laplace" or (self.noise == "auto" and budget.accounting == "pure")
        self.fit.check("laplace" if pure else "gaussian")
        if pure and budget.epsilon is not None and budget.accounting != "gaussian":
            return budget.epsilon
        if not pure and isinstance(budget.capacity, Rho):
            return budget.capacity
        raise BudgetError(
            f"MWEM with {'Laplace' if pure else 'Gaussian'} noise spends "
            f"{'a pure epsilon' if pure else 'rho'}, which {budget!r} does not count; give "
            f"{'epsilon' if pure else 'epsilon and delta, or rho, with zcdp accounting'}, or another noise"
        )

    def _rounds_and_share(self, capacity: Epsilon | Rho) -> tuple[int, Epsilon | Rho]:
        share = self.per_round
        if share is None:
            rounds = self.rounds or usual_rounds(self.workload, capacity)
            return rounds, capacity * Fraction(1, rounds)
        if type(share) is not type(capacity):
            raise BudgetError(
                f"per_round must be in the unit that this budget and noise spend, {capacity.symbol}, got {share!r}"
            )
        affordable = int(capacity.value // share.value) if share.value > 0 else 0
        rounds = self.rounds or min(len(self.workload), affordable)
        if not 1 <= rounds <= affordable:
            raise BudgetError(
                f"the budget must hold {max(1, rounds)} rounds of {share!r}, got {capacity!r}, "
                f"enough for {affordable}; lower rounds= or per_round=, or raise the budget"
            )
        return rounds, share

    def _plan(self, rounds: int) -> Plan:
        """The plan of the largest tables that so many rounds can choose; of the smallest where only that is sure to fit."""
        fit = self.fit.in_rounds()
        by_size = sorted(self.workload, key=self.workload.domain.size)
        most = by_size[-rounds:] if fit.additive else by_size[:1]
        return fit.plan(self.workload.domain, most)


@dataclass(frozen=True, eq=False)
class CalibratedMWEM(CalibratedAdaptive[MWEM]):
    """`MWEM` with its rounds, the epsilon of each choice and the noise of each table."""

    mechanism: MWEM
    budget: Budget
    rounds: int
    selection: Epsilon
    width: Width
    cost: Cost
    plan: Plan

    @property
    def candidates(self) -> tuple[Clique, ...]:
        return self.mechanism.workload.cliques

    @property
    def least_noise(self) -> float:
        return min(map(self.domain.size, self.candidates)) * mean_absolute(self.width)

    @property
    def number_of_rounds(self) -> int:
        return self.rounds

    def asks(self, run: Run) -> Asks:
        workload, size = self.mechanism.workload, self.domain.size
        per_cell = mean_absolute(self.width) if self.mechanism.allowance == "noise" else 1.0
        room = self._room()
        while run.begun < self.rounds:
            done = run.cliques
            left = room.left(done, [c for c in workload if c not in done])
            if not left:
                return
            weights = [workload[c] for c in left]
            allowance = [per_cell * size(c) for c in left]
            yield Ask(left, self.width, self.selection, weights, allowance)

    def _room(self) -> Room:
        """Only a junction tree can run out of it: that the largest local tables fit was seen to at calibration."""
        among = self.candidates
        if self.fit.additive:
            among = sorted(among, key=self.domain.size)[-self.rounds :]
        return Room(self.domain, tuple(among), self.fit)

    def __str__(self) -> str:
        return (
            f"MWEM: {self.rounds} rounds over {len(self.candidates)} tables, selection epsilon "
            f"{float(self.selection.value):.6g}, {self.width.symbol} {self.width.value:.6g}"
        )


def usual_rounds(workload: Workload, capacity: Epsilon | Rho) -> int:
    """One round per attribute while noise is large; the more, up to every table, the less of it there is."""
    value = float(capacity.value)
    more = MORE_BY_RHO * value**0.5 if isinstance(capacity, Rho) else MORE_BY_EPSILON * value
    return min(len(workload), round(len(workload.domain) * (1 + more)))


def _width(neighbours: Neighbours, share: Epsilon | Rho) -> Width:
    one = marginals(neighbours)
    width = gaussian_sigma(one, share) if isinstance(share, Rho) else laplace_scale(one, share)
    checked_width(width)
    return width


def _check_rounds(rounds: int, available: int) -> None:
    number = whole_number(rounds)
    if number is None or not 1 <= number <= available:
        raise DomainError(
            f"rounds must be a whole number from 1 to the {available} marginals of the workload, each measured at most "
            f"once, got {rounds!r}"
        )
