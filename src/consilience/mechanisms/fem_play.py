"""Playing a game: count once, reserve the whole cost, then round by round choices of cells and records that answer them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from consilience.domain import CliqueVector, Workload
from consilience.errors import ConsilienceError
from consilience.measurements.selections import Choice, Selections
from consilience.mechanisms.fem_game import Game, Ints, SelectionRelease, chosen_cell, joined
from consilience.mechanisms.fem_reconstruct import GameFit
from consilience.mechanisms.mechanism import (
    Calibrated,
    Release,
    Result,
    Step,
    StepCallback,
    check_call,
)
from consilience.mechanisms.source import Source, check_source, exact_counts
from consilience.privacy import Epsilon, Ledger, Neighbours, NoiseSource
from consilience.privacy.sensitivity import cell_score


@dataclass(frozen=True, eq=False)
class Chooser:
    """The player that has seen the table: what it chooses is all that leaves it."""

    game: Game
    counts: CliqueVector
    total: int
    source: NoiseSource
    neighbours: Neighbours

    def choose(self, records: Ints, epsilon: Epsilon, draws: int = 1) -> Choice:
        """Cells and signs s, P in proportion to exp(epsilon s (count - N a) / 2), a the answers of the records.

        Counts times the number of records are whole numbers, and so is all that is compared.
        """
        times = len(records)
        cells, answers = self.game.cells(records)
        scores = self.game.scores(self.counts, times, cells, answers, self.total)
        sensitivity = times * cell_score(self.neighbours)
        drawn = [self.source.select(scores, sensitivity, epsilon) for _ in range(draws)]
        chosen, signs = np.array([chosen_cell(j, self.game.layout.cells) for j in drawn]).T
        beta = float(epsilon.value) * self.total / 2
        return Choice(beta, cells, answers / times, chosen, signs)


class CalibratedGame(Calibrated):
    """A game whose rounds and their cost are known."""

    @property
    @abstractmethod
    def workload(self) -> Workload: ...

    @property
    @abstractmethod
    def fit(self) -> GameFit:
        """How choices become a model."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Number of rounds."""

    @abstractmethod
    def play(self, chooser: Chooser) -> Iterator[tuple[Choice | None, Ints]]:
        """Each round's choice, if it looked at the table, and the records it made."""

    def measure(
        self,
        data: Source,
        *,
        noise: NoiseSource | None = None,
        ledger: Ledger | None = None,
        progress: StepCallback | None = None,
    ) -> SelectionRelease:
        """All rounds, one after the other; the whole cost is reserved before the first."""
        domain, cliques = self.workload.domain, self.workload.cliques
        check_source(data, domain, self.budget.neighbours)
        source = check_call(self.cost, noise, ledger)
        counts = exact_counts(data, cliques)
        if ledger is not None:
            ledger.reserve(self.cost, str(self))
        chooser = Chooser(Game(self.workload), counts, data.records, source, self.budget.neighbours)
        choices: list[Choice] = []
        made: list[Ints] = []
        for number, (choice, records) in enumerate(self.play(chooser), 1):
            choices += [] if choice is None else [choice]
            made.append(records)
            if progress is not None:
                progress(Step("rounds", number, self.length))
        return SelectionRelease(
            domain,
            (),
            data.records,
            self.cost,
            source.private,
            Selections.of(domain, cliques, choices),
            joined(made, len(domain)),
        )

    def reconstruct(self, release: Release, *, progress: StepCallback | None = None) -> Result:
        """The model of all choices (`GameFit`)."""
        if not isinstance(release, SelectionRelease):
            raise ConsilienceError(f"a game is reconstructed from its own release, got {release!r}")
        fit = self.fit
        if progress is None:
            return Result(fit(release, self.plan), release)
        progress(Step("reconstructing", 0, fit.iterations))
        model = fit(
            release, self.plan, lambda i: progress(Step("reconstructing", i.done, fit.iterations))
        )
        return Result(model, release)
