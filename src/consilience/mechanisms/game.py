"""The game behind FEM and DualQuery: one player picks cells that the answers miss, the other records that satisfy many of them.

Queries are the cells of a workload's tables and their negations. What is private happens in `Game.scores` alone; records are
made from queries that are public already, so how well they are optimised is no matter of privacy.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, CliqueVector, Domain, Layout, Workload
from consilience.errors import BudgetError, ConsilienceError
from consilience.fits import SelectionLikelihood
from consilience.kernels.best_records import best_records
from consilience.kernels.threads import spread
from consilience.measurements.selections import Choice, Selections
from consilience.mechanisms.mechanism import (
    Calibrated,
    Call,
    M,
    Mechanism,
    Piece,
    Release,
    Result,
    check_budget,
    check_workload,
)
from consilience.model import Fit
from consilience.privacy import Budget, Epsilon, Neighbours, Rho
from consilience.privacy.sensitivity import cell_score
from consilience.progress import Progress, Step
from consilience.records import Dataset

Ints = NDArray[np.int64]
PASSES = 20
"""Rounds of local search at most; it ends long before."""


@dataclass(frozen=True, eq=False, repr=False)
class SelectionRelease(Release):
    """What a game made public: its choices, and the records that answered them. `measurements` is empty."""

    selections: Selections
    codes: Ints
    """One row per record, one column per attribute."""

    @property
    def rows(self) -> Dataset:
        """The records, all rounds together: the mechanism's own synthetic data."""
        return Dataset(self.codes, self.domain)

    def __repr__(self) -> str:
        return f"SelectionRelease({self.selections!r}, {len(self.codes):,} records; {self.mark})"


@dataclass(frozen=True, eq=False)
class Conjunctions:
    """Queries as conditions: query q says attribute[q, k] = value[q, k] for all k (attribute -1: no condition)."""

    attribute: Ints
    value: Ints
    weight: Buffer

    def __len__(self) -> int:
        return len(self.weight)


class Game:
    """A workload as index arrays: from records to cells, from cells to conditions."""

    def __init__(self, workload: Workload) -> None:
        self.domain: Domain = workload.domain
        self.layout = Layout(workload.domain, workload.cliques)
        self.size = np.array(self.domain.shape, np.int64)
        self.first = np.concatenate([[0], np.cumsum(self.size)[:-1]]).astype(np.int64)
        width = max(len(c) for c in self.layout.cliques)
        self.members = np.full((len(self.layout.cliques), width), -1, np.int64)
        self.strides = np.zeros((len(self.size), len(self.layout.cliques)), np.int64)
        for i, clique in enumerate(self.layout.cliques):
            step = 1
            for k in reversed(range(len(clique))):
                a = self.domain.position(clique[k])
                self.members[i, k] = a
                self.strides[a, i] = step
                step *= int(self.size[a])

    @property
    def values(self) -> int:
        """Sizes of all attributes together."""
        return int(self.size.sum())

    def cells(self, records: Ints) -> tuple[Ints, Ints]:
        """(cells, how often) that the records fall into, over all tables."""
        places = records @ self.strides + self.layout.offsets[:-1]
        found, counts = np.unique(places, return_counts=True)
        return found.astype(np.int64), counts.astype(np.int64)

    def conditions(self, cells: Ints, signs: Ints) -> Conjunctions:
        """Chosen cells as conjunctions, one each, however often and with whichever signs it was chosen."""
        distinct, label = np.unique(cells, return_inverse=True)
        weight = np.bincount(label, signs, minlength=len(distinct)).astype(np.float64)
        table = np.searchsorted(self.layout.offsets, distinct, side="right") - 1
        attribute = self.members[table]
        stride = np.where(attribute >= 0, self.strides[attribute, table[:, None]], 1)
        size = np.where(attribute >= 0, self.size[attribute], 1)
        inside = (distinct - self.layout.offsets[table])[:, None]
        return Conjunctions(attribute, inside // stride % size, weight)

    def best(self, wanted: Conjunctions, costs: Buffer, starts: Ints) -> Ints:
        """For each row of costs a record of high weight less cost."""
        query, place = np.nonzero(wanted.attribute >= 0)
        own = wanted.attribute[query, place]
        order = np.argsort(own, kind="stable")
        counts = np.bincount(own, minlength=len(self.size))
        ptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        records = np.empty((len(costs), len(self.size)), np.int64)
        spread(
            best_records, len(records), costs.size * (1 + len(wanted)), records, wanted.attribute, wanted.value,
            wanted.weight, costs, starts, self.first, self.size, ptr, query[order].astype(np.int64), PASSES,
        )  # fmt: skip
        return records

    def searched(
        self, wanted: Conjunctions, costs: Buffer, restarts: int, rng: np.random.Generator
    ) -> Ints:
        """`best`, each record's search started at as many of the wanted queries."""
        starts = np.full((len(costs), restarts), -1, np.int64)
        able = np.flatnonzero(wanted.weight > 0)
        if len(able):
            starts = rng.choice(able, starts.shape)
        return self.best(wanted, costs, starts)

    def scores(
        self, counts: CliqueVector, times: int, cells: Ints, answers: Ints, total: int
    ) -> Ints:
        """times (count_j - total a_j) and its negative, a = answers / times: whole numbers, so that selection is exact."""
        away = times * counts.values.astype(np.int64)
        away[cells] -= total * answers
        return np.concatenate([away, -away])


def chosen_cell(index: int, cells: int) -> tuple[int, int]:
    """(cell, sign) of an index into `Game.scores`."""
    return index % cells, 1 if index < cells else -1


@dataclass(frozen=True, eq=False)
class Chooser:
    """The player that has seen the table: what it chooses is all that leaves it."""

    game: Game
    counts: CliqueVector
    total: int
    call: Call
    neighbours: Neighbours

    def choose(self, number: int, records: Ints, epsilon: Epsilon, draws: int = 1) -> Choice:
        """Cells and signs s, P in proportion to exp(epsilon s (count - N a) / 2), a the answers of the records.

        Counts times the number of records are whole numbers, and so is all that is compared. What was chosen before is not
        chosen again: the records are public, so they are made anew and found to be the same.
        """
        times = len(records)
        cells, answers = self.game.cells(records)

        def draw() -> Piece:
            scores = self.game.scores(self.counts, times, cells, answers, self.total)
            change = times * cell_score(self.neighbours)
            drawn = [self.call.noise.select(scores, change, epsilon) for _ in range(draws)]
            return {"cells": cells, "answers": answers, "chosen": np.array(drawn, np.int64)}

        piece = self.call.piece(number, draw)
        if not (
            np.array_equal(piece["cells"], cells) and np.array_equal(piece["answers"], answers)
        ):
            raise ConsilienceError(
                "what was chosen must belong to these records, it belongs to others: go on with the version of Consilience and "
                "the kind of machine that began"
            )
        drawn = piece["chosen"].tolist()
        chosen, signs = np.array([chosen_cell(j, self.game.layout.cells) for j in drawn]).T
        beta = float(epsilon.value) * self.total / 2
        return Choice(beta, cells, answers / times, chosen, signs)


@dataclass(frozen=True, eq=False)
class GameMechanism(Mechanism):
    """A game over a workload. fit: how its choices become a model."""

    workload: Workload
    fit: Fit = field(default=SelectionLikelihood(), kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.fit, SelectionLikelihood):
            raise ConsilienceError(
                f"a game publishes choices, which SelectionLikelihood fits, got {self.fit!r}; leave out fit="
            )
        check_workload(self.workload, self.fit)

    def capacity(self, budget: Budget) -> Epsilon | Rho:
        """The unit that selections spend; refuses budgets under which the number of rows is not public."""
        check_budget(budget)
        name = type(self).__name__
        if not budget.neighbours.total_public:
            raise BudgetError(
                f"{name} compares counts with shares of a public number of rows: the budget must be for replace-one "
                f"neighbours, got {budget.neighbours.value}"
            )
        if isinstance(budget.capacity, Epsilon | Rho):
            return budget.capacity
        raise BudgetError(
            f"{name} spends rho or a pure epsilon, which {budget!r} does not count; leave accounting out"
        )


class CalibratedGame(Calibrated[M]):
    """A game whose rounds and their cost are known."""

    @property
    def workload(self) -> Workload:
        return self.mechanism.workload

    @property
    @abstractmethod
    def length(self) -> int:
        """Number of rounds."""

    @abstractmethod
    def play(self, chooser: Chooser) -> Iterator[tuple[Choice | None, Ints]]:
        """Each round's choice, if it looked at the table, and the records it made."""

    def draw(self, call: Call) -> SelectionRelease:
        """All rounds, one after the other."""
        domain, cliques = self.workload.domain, self.workload.cliques
        counts = call.counts(cliques)
        neighbours = self.budget.neighbours
        chooser = Chooser(Game(self.workload), counts, call.records, call, neighbours)
        choices: list[Choice] = []
        made: list[Ints] = []
        for number, (choice, records) in enumerate(self.play(chooser), 1):
            choices += [] if choice is None else [choice]
            made.append(records)
            call.progress(Step("rounds", number, self.length))
        return SelectionRelease(
            domain,
            (),
            call.records,
            self.cost,
            call.noise.private,
            Selections.of(domain, cliques, choices),
            joined(made, len(domain)),
        )

    def reconstruct(self, release: Release, *, progress: Progress | None = None) -> Result:
        """The model of all choices, started from the records that answered them."""
        if not isinstance(release, SelectionRelease):
            raise ConsilienceError(f"a game is reconstructed from its own release, got {release!r}")
        return super().reconstruct(release, progress=progress)

    def evidence(self, release: Release) -> Selections:  # pyright: ignore[reportIncompatibleMethodOverride]
        assert isinstance(release, SelectionRelease)
        return replace(release.selections, records=release.codes)


def check_positive(**given: Any) -> None:
    for name, value in given.items():
        if isinstance(value, bool) or not np.isfinite(value) or value <= 0:
            raise ConsilienceError(f"{name} must be positive and finite, got {value!r}")


def joined(parts: Sequence[Ints], columns: int) -> Ints:
    return np.concatenate(parts) if parts else np.zeros((0, columns), np.int64)
