"""DualQuery (Gaboardi et al. 2014): sampled queries on one side, one best record a round on the other.

    round k + 1, after k rounds with records x_1, ..., x_k: draw s queries, each a cell and a sign, P in proportion to
    exp(eta s (k count - N sum of its answers by x_1, ..., x_k)), then x_{k+1} satisfies as many of them as can be found.

A draw after k rounds is an exponential mechanism of epsilon 2 eta k; the first round's draws see no data. The likelihood of the
draws is that of FEM with beta = eta k N (`measurements.selections`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import sqrt

import numpy as np

from consilience.domain import Workload
from consilience.domain.domain import whole_number
from consilience.errors import ConsilienceError
from consilience.measurements.selections import Choice, Selections
from consilience.mechanisms.fem import reconstruct_game
from consilience.mechanisms.fem_game import (
    Game,
    Ints,
    SelectionRelease,
    check_game,
    chosen_cell,
    joined,
)
from consilience.mechanisms.fem_reconstruct import GameFit
from consilience.mechanisms.mechanism import (
    Calibrated,
    Mechanism,
    Release,
    Result,
    Step,
    StepCallback,
    check_admitted,
    check_budget,
    check_call,
)
from consilience.mechanisms.shares import check_workload
from consilience.mechanisms.source import Source, check_source, exact_counts
from consilience.privacy import Budget, Cost, Epsilon, Ledger, NoiseSource, Rho
from consilience.privacy.sensitivity import cell_score
from consilience.solvers.planner import Plan


@dataclass(frozen=True, eq=False)
class DualQuery(Mechanism):
    """rounds: one record each. samples: queries drawn per round. restarts: of the search for a record. seed: of that search.

    fit: how draws become a model.
    """

    workload: Workload
    rounds: int = 60
    samples: int = 10
    restarts: int = 10
    seed: int = 0
    fit: GameFit = field(default_factory=GameFit)

    def __post_init__(self) -> None:
        check_workload(self.workload, self.fit.memory)
        for name, value, least in (("rounds", self.rounds, 2), ("samples", self.samples, 1)):
            if (whole_number(value) or 0) < least:
                raise ConsilienceError(
                    f"{name} must be a whole number from {least} on, got {value!r}"
                )

    def calibrate(self, budget: Budget) -> CalibratedDualQuery:
        """The largest eta that the budget holds, and the cost of all draws."""
        check_budget(budget)
        eta = self._eta(check_game("DualQuery", budget))
        cost = Cost.sum(
            budget.neighbours,
            (
                Cost.selection(budget.neighbours, Epsilon(2 * eta * k)) * self.samples
                for k in range(1, self.rounds)
            ),
        )
        check_admitted(budget, cost)
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
class CalibratedDualQuery(Calibrated):
    """`DualQuery` with its eta, per count."""

    mechanism: DualQuery
    budget: Budget
    eta: Fraction
    cost: Cost
    plan: Plan

    def measure(
        self,
        data: Source,
        *,
        noise: NoiseSource | None = None,
        ledger: Ledger | None = None,
        progress: StepCallback | None = None,
    ) -> SelectionRelease:
        """All rounds, one after the other; the whole cost is reserved before the first."""
        asked = self.mechanism
        check_source(data, asked.workload.domain, self.budget.neighbours)
        source = check_call(self.cost, noise, ledger)
        counts = exact_counts(data, asked.workload.cliques)
        if ledger is not None:
            ledger.reserve(self.cost, str(self))
        game = Game(asked.workload)
        rng = np.random.default_rng(asked.seed)
        one = cell_score(self.budget.neighbours)
        choices: list[Choice] = []
        records = np.zeros((0, len(asked.workload.domain)), np.int64)
        for k in range(asked.rounds):
            if k == 0:
                drawn = rng.integers(0, 2 * game.layout.cells, asked.samples).tolist()
            else:
                cells, answers = game.cells(records)
                scores = game.scores(counts, k, cells, answers, data.records)
                epsilon = Epsilon(2 * self.eta * k)
                drawn = [source.select(scores, k * one, epsilon) for _ in range(asked.samples)]
                choices.append(
                    _choice(float(self.eta) * k * data.records, cells, answers / k, drawn, game)
                )
            records = joined([records, self._record(game, drawn, rng)], records.shape[1])
            if progress is not None:
                progress(Step("rounds", k + 1, asked.rounds))
        return SelectionRelease(
            asked.workload.domain,
            (),
            data.records,
            self.cost,
            source.private,
            Selections.of(asked.workload.domain, asked.workload.cliques, choices),
            records,
        )

    def reconstruct(self, release: Release, *, progress: StepCallback | None = None) -> Result:
        """The model of all draws (`GameFit`)."""
        return reconstruct_game(self.mechanism.fit, self.plan, release, progress)

    def _record(self, game: Game, drawn: Sequence[int], rng: np.random.Generator) -> Ints:
        """One record that satisfies many of the drawn queries; values that no query decides are drawn at random."""
        pairs = [chosen_cell(j, game.layout.cells) for j in drawn]
        wanted = game.conditions(
            np.array([c for c, _ in pairs], np.int64), np.array([s for _, s in pairs], np.int64)
        )
        costs = 1e-6 * rng.random((1, game.values))
        starts = np.full((1, self.mechanism.restarts), -1, np.int64)
        able = np.flatnonzero(wanted.weight > 0)
        if len(able):
            starts = rng.choice(able, starts.shape)
        return game.best(wanted, costs, starts)

    def __str__(self) -> str:
        return f"DualQuery: {self.mechanism.rounds} rounds of {self.mechanism.samples} draws, eta {float(self.eta):.6g}"


def _choice(
    beta: float, cells: Ints, shares: np.ndarray, drawn: Sequence[int], game: Game
) -> Choice:
    pairs = [chosen_cell(j, game.layout.cells) for j in drawn]
    return Choice(
        beta,
        cells,
        shares,
        np.array([c for c, _ in pairs], np.int64),
        np.array([s for _, s in pairs], np.int64),
    )
