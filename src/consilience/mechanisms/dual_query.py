"""DualQuery (Gaboardi et al. 2014): sampled queries on one side, one best record a round on the other.

    round k + 1, after k rounds with records x_1, ..., x_k: draw s queries, each a cell and a sign, P in proportion to
    exp(eta s (k count - N sum of its answers by x_1, ..., x_k)), then x_{k+1} satisfies as many of them as can be found.

A draw after k rounds is an exponential mechanism of epsilon 2 eta k; the first round's draws see no data. The likelihood of the
draws is that of FEM with beta = eta k N (`measurements.selections`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

import numpy as np

from consilience.domain.domain import whole_number
from consilience.errors import ConsilienceError
from consilience.measurements.selections import Choice
from consilience.mechanisms.game import (
    CalibratedGame,
    Chooser,
    Game,
    GameMechanism,
    Ints,
    chosen_cell,
)
from consilience.privacy import Budget, Cost, Epsilon, Rho
from consilience.solvers.planner import Plan


@dataclass(frozen=True, eq=False)
class DualQuery(GameMechanism):
    """rounds: one record each. samples: queries drawn per round. restarts: of the search for a record. seed: of that search.

    fit: how draws become a model.
    """

    rounds: int = 60
    samples: int = 10
    restarts: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value, least in (("rounds", self.rounds, 2), ("samples", self.samples, 1)):
            if (whole_number(value) or 0) < least:
                raise ConsilienceError(
                    f"{name} must be a whole number from {least} on, got {value!r}"
                )

    def calibrate(self, budget: Budget) -> CalibratedDualQuery:
        """The largest eta that the budget holds, and the cost of all draws."""
        eta = self._eta(self.capacity(budget))
        cost = Cost.sum(
            budget.neighbours,
            (
                Cost.selection(budget.neighbours, Epsilon(2 * eta * k)) * self.samples
                for k in range(1, self.rounds)
            ),
        )
        plan = self.fit.plan(self.workload.domain, self.workload.cliques)
        return CalibratedDualQuery(self, budget, eta, cost, plan)

    def _eta(self, capacity: Epsilon | Rho) -> Fraction:
        """rho = s sum_k (2 eta k)^2 / 8, or epsilon = s sum_k 2 eta k; rounded down so that rounding up costs fits."""
        most = self.rounds - 1
        keep = 1 - Fraction(1, 2**30)
        if isinstance(capacity, Epsilon):
            return capacity.value * keep / (self.samples * most * (most + 1))
        squares = Fraction(most * (most + 1) * (2 * most + 1), 6)
        root = sqrt(2 * capacity.value / (self.samples * squares))
        return Fraction(root) * keep


@dataclass(frozen=True, eq=False)
class CalibratedDualQuery(CalibratedGame[DualQuery]):
    """`DualQuery` with its eta, per count."""

    mechanism: DualQuery
    budget: Budget
    eta: Fraction
    cost: Cost
    plan: Plan

    @property
    def length(self) -> int:
        return self.mechanism.rounds

    def play(self, chooser: Chooser) -> Iterator[tuple[Choice | None, Ints]]:
        """Queries that all records so far answer badly, drawn; then one record for them. The first draws see no data."""
        asked, game = self.mechanism, chooser.game
        rng = np.random.default_rng(asked.seed)
        drawn = rng.integers(0, 2 * game.layout.cells, asked.samples).tolist()
        cells, signs = np.array([chosen_cell(j, game.layout.cells) for j in drawn]).T
        records = self._record(game, cells, signs, rng)
        yield None, records
        for k in range(1, asked.rounds):
            choice = chooser.choose(k - 1, records, Epsilon(2 * self.eta * k), asked.samples)
            latest = self._record(game, choice.chosen, choice.signs, rng)
            records = np.concatenate([records, latest])
            yield choice, latest

    def _record(self, game: Game, cells: Ints, signs: Ints, rng: np.random.Generator) -> Ints:
        """One record that satisfies many of the drawn queries; values that no query decides are drawn at random."""
        costs = 1e-6 * rng.random((1, game.values))
        return game.searched(game.conditions(cells, signs), costs, self.mechanism.restarts, rng)

    def __str__(self) -> str:
        return f"DualQuery: {self.mechanism.rounds} rounds of {self.mechanism.samples} draws, eta {float(self.eta):.6g}"
