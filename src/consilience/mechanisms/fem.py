"""FEM: follow the perturbed leader with the exponential mechanism (Vietri et al. 2020), and a reconstruction after it.

    round t: s records, each argmax_x (sum of past chosen queries at x) - <perturbation, one-hot x>, perturbations exponential
             a_t = their answers; choose a cell and a sign, P in proportion to exp(e0 s (count - N a_t) / 2)

Under replace-one a count moves by at most one and N is public: a round is one exponential mechanism of epsilon e0, rho e0^2 / 8.
The authors answer queries from all records together; here the choices are observations of the data too, and their exact
likelihood (`measurements.selections`) is fitted from where the records stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from consilience.domain import Workload
from consilience.domain.domain import whole_number
from consilience.errors import BudgetError, ConsilienceError
from consilience.measurements.selections import Choice
from consilience.mechanisms.game import (
    CalibratedGame,
    Chooser,
    Game,
    GameMechanism,
    Ints,
    check_positive,
)
from consilience.privacy import Budget, Cost, Epsilon, Rho, selection_epsilon
from consilience.privacy.accounting import standard_zcdp_rho
from consilience.solvers.planner import Plan

PRESETS = {
    "adult, 3-way": (0.008, 0.16),
    "adult, 5-way": (0.010, 0.16),
    "loans, 3-way": (0.006, 0.10),
    "loans, 5-way": (0.007, 0.14),
}
"""The authors' tuned (split, perturbation) for 64 random marginals; samples = 50 in all."""


@dataclass(frozen=True, eq=False)
class FEM(GameMechanism):
    """Choices of badly answered cells, records that answer them, and a model fitted to both.

    rounds: None for the authors' rule, as many as fit rounds of epsilon split * sqrt(epsilon) by their accounting.
    published: each round spends just that epsilon, as the authors' do (theirs make one round more than their budget holds); the
    exact price, an eighth of its square, leaves budget over. Otherwise rounds share the whole budget.
    samples: records per round. perturbation: scale of the exponential noise on records, times sqrt(rounds); no matter of privacy.
    restarts: of the search for each record. seed: of the perturbations, which are public. fit: how choices become a model.
    """

    rounds: int | None = None
    samples: int = 50
    split: float = 0.008
    perturbation: float = 0.16
    published: bool = False
    restarts: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(samples=self.samples, split=self.split, perturbation=self.perturbation)
        if self.rounds is not None and ((whole_number(self.rounds) or 0) < 1 or self.published):
            raise ConsilienceError(
                f"rounds must be a whole number from 1 on, and follow from split where published, got {self.rounds!r}"
            )

    @classmethod
    def as_published(cls, workload: Workload, preset: str = "adult, 3-way", seed: int = 0) -> FEM:
        """The authors' settings for one of `PRESETS`, one round less than theirs: within the budget."""
        if preset not in PRESETS:
            raise ConsilienceError(f"preset must be one of {', '.join(PRESETS)}, got {preset!r}")
        split, perturbation = PRESETS[preset]
        return cls(workload, split=split, perturbation=perturbation, published=True, seed=seed)

    def calibrate(self, budget: Budget) -> CalibratedFEM:
        """Fix the rounds, what each spends, and the cost of them all."""
        capacity = self.capacity(budget)
        rounds, each = self._rounds(budget, capacity)
        cost = Cost.selection(budget.neighbours, each) * rounds
        plan = self.fit.plan(self.workload.domain, self.workload.cliques)
        return CalibratedFEM(self, budget, rounds, each, cost, plan)

    def _rounds(self, budget: Budget, capacity: Epsilon | Rho) -> tuple[int, Epsilon]:
        rounds = self.rounds
        nominal = None
        if rounds is None:
            if budget.epsilon is None or not budget.delta:
                raise BudgetError(
                    f"the authors' rule for rounds needs epsilon and delta, got {budget!r}; give rounds="
                )
            nominal = self.split * sqrt(float(budget.epsilon.value))
            allowed = float(standard_zcdp_rho(budget.epsilon, budget.delta).value)
            rounds = int(allowed / (nominal**2 / 2))
            if rounds < 1:
                raise BudgetError(
                    f"the budget must hold at least one round of epsilon {nominal:.6g}, {budget!r} does not; lower split="
                )
        if self.published and nominal is not None:
            return rounds, Epsilon(nominal)
        return rounds, selection_epsilon(capacity.split([1] * rounds)[0])


@dataclass(frozen=True, eq=False)
class CalibratedFEM(CalibratedGame[FEM]):
    """`FEM` with its rounds and the epsilon of each choice."""

    mechanism: FEM
    budget: Budget
    rounds: int
    selection: Epsilon
    cost: Cost
    plan: Plan

    @property
    def length(self) -> int:
        return self.rounds

    def play(self, chooser: Chooser) -> Iterator[tuple[Choice, Ints]]:
        """Records against all that was chosen before, then the cell that they answer worst."""
        rng = np.random.default_rng(self.mechanism.seed)
        choices: list[Choice] = []
        for number in range(self.rounds):
            records = self._records(chooser.game, choices, rng)
            choices.append(chooser.choose(number, records, self.selection))
            yield choices[-1], records

    def _records(self, game: Game, choices: Sequence[Choice], rng: np.random.Generator) -> Ints:
        fem = self.mechanism
        scale = fem.perturbation * sqrt(self.rounds)
        costs = rng.exponential(scale, (fem.samples, game.values))
        past = game.conditions(
            np.array([c.chosen[0] for c in choices], np.int64),
            np.array([c.signs[0] for c in choices], np.int64),
        )
        return game.searched(past, costs, fem.restarts, rng)

    def __str__(self) -> str:
        return f"FEM: {self.rounds} rounds, selection epsilon {float(self.selection.value):.6g}"
