"""Rounds: choose the clique that the model answers worst, measure it, fit again.

What a round asks for is the mechanism's own (a `Policy`); that a run never draws more than was reserved for it is
seen to here, by a meter that charges every round before it draws. A round that is interrupted after its charge is
lost: it is never drawn again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Generic, TypeVar

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector
from consilience.errors import BudgetError
from consilience.inference import Model
from consilience.measurements import Measurement
from consilience.mechanisms.adaptive_fit import ROUND_TOLERANCE, Answers, Refit
from consilience.mechanisms.laws import stddev
from consilience.mechanisms.mechanism import Release, Step, StepCallback
from consilience.privacy import (
    Cost,
    Epsilon,
    Neighbours,
    NoiseSource,
    Scale,
    Sigma,
    marginals,
    weighted_l1_score,
)

Width = Sigma | Scale
Stage = TypeVar("Stage")


@dataclass(frozen=True, eq=False)
class Ask:
    """One round: choose r by w_r (||M_r x - estimate_r||_1 - allowance_r), then measure M_r x with noise of this width.

    Without a selection the first candidate is measured, unseen.
    """

    candidates: tuple[Clique, ...]
    width: Width
    selection: Epsilon | None = None
    weights: Sequence[float] = ()
    allowance: Sequence[float] = ()

    def cost(self, neighbours: Neighbours) -> Cost:
        measured = _noise_cost(neighbours, self.width)
        if self.selection is None:
            return measured
        return Cost.selection(neighbours, self.selection) + measured


def _noise_cost(neighbours: Neighbours, width: Width) -> Cost:
    one = marginals(neighbours)
    if isinstance(width, Sigma):
        return Cost.gaussian(one, width)
    return Cost.laplace(one, width)


@dataclass(frozen=True, eq=False)
class Round:
    """What one round measured, and the model after it: all of it public. `of` is None where the number is not known."""

    number: int
    of: int | None
    measurement: Measurement
    model: Model


class Policy(ABC, Generic[Stage]):
    """What a mechanism asks for, knowing no more of the data than what was released. A stage is what it remembers."""

    @abstractmethod
    def start(self) -> Stage: ...

    @abstractmethod
    def ask(self, stage: Stage, measured: Sequence[Clique]) -> Ask | None:
        """What the next round does, or None at the end."""

    @abstractmethod
    def charged(self, stage: Stage, cost: Cost) -> Stage:
        """The stage once a round's cost is spent, whatever comes of it."""

    @abstractmethod
    def fitted(self, stage: Stage, ask: Ask, clique: Clique, moved: Callable[[], float]) -> Stage:
        """The stage after a round; `moved()` is how far it moved the model's answer on its clique (L1, counts)."""

    @property
    @abstractmethod
    def rounds(self) -> int | None:
        """Number of rounds, where it is known beforehand."""

    @property
    @abstractmethod
    def backbone(self) -> bool:
        """Whether cliques outside the model are answered with global information."""


class Meter:
    """Counts what is drawn against what was reserved."""

    def __init__(self, reserved: Cost) -> None:
        self.reserved = reserved
        self.spent = Cost(reserved.neighbours)

    def charge(self, cost: Cost) -> None:
        """Before a draw: refuse it if it passes the reservation."""
        spent, limit = self.spent + cost, self.reserved
        pure = limit.epsilon
        beyond = pure is not None and (spent.epsilon is None or spent.epsilon > pure)
        if beyond or spent.rho > limit.rho:
            raise BudgetError(
                f"a run must stay within the rho of {float(limit.rho.value):.6g} that it reserved; the next "
                "round would pass it and was not drawn; report this"
            )
        self.spent = spent


class Run(Iterator[Round]):
    """The rounds of one paid-for run. Mutable: iterate over it, stop when you like, go on later.

    `release` is what was measured so far. The reservation stands for the whole run, however early it stops.
    """

    def __init__(
        self,
        policy: Policy,
        reserved: Cost,
        counts: CliqueVector,
        total: int | None,
        source: NoiseSource,
        refit: Refit,
        progress: StepCallback | None,
    ) -> None:
        self._policy, self._counts, self._total, self._source = policy, counts, total, source
        self._refit, self._progress = refit, progress
        self._answers = Answers(counts.domain, refit.total, policy.backbone, refit.backbone_of)
        self._stage = policy.start()
        self._meter = Meter(reserved)
        self._measurements: list[Measurement] = []
        self._model: Model | None = None
        self._fitted = 0
        self._began = perf_counter()

    @property
    def release(self) -> Release:
        return Release(
            self._counts.domain,
            tuple(self._measurements),
            self._total,
            self._meter.reserved,
            self._source.private,
        )

    @property
    def spent(self) -> Cost:
        """What was drawn so far: a part of what was reserved."""
        return self._meter.spent

    @property
    def model(self) -> Model | None:
        """The model of all measurements so far; None before the first."""
        if self._fitted < len(self._measurements):
            tolerance = max(self._refit.settings.tolerance, ROUND_TOLERANCE)
            self._model = self._refit(tuple(self._measurements), tolerance)
            self._fitted = len(self._measurements)
        return self._model

    def answers(self, cliques: Sequence[Clique]) -> Iterator[Buffer]:
        """Expected counts of any cliques by the model so far, as the next round would see them."""
        return self._answers(self.model, cliques)

    def __next__(self) -> Round:
        before = self.model  # fitted here if an interruption came between measuring and fitting
        ask = self._policy.ask(self._stage, [tuple(m.attributes) for m in self._measurements])
        if ask is None:
            raise StopIteration
        scores = self._scores(before, ask)
        cost = ask.cost(self._meter.reserved.neighbours)
        self._meter.charge(cost)
        self._stage = self._policy.charged(self._stage, cost)
        clique = ask.candidates[self._choose(ask, scores)]
        self._measurements.append(self._measure(clique, ask.width))
        model = self.model
        assert model is not None
        self._stage = self._policy.fitted(
            self._stage, ask, clique, lambda: self._moved(before, model, clique)
        )
        number = len(self._measurements)
        self._report(number)
        return Round(number, self._policy.rounds, self._measurements[-1], model)

    # -- parts of a round ------------------------------------------------------------------------

    def _scores(self, model: Model | None, ask: Ask) -> Buffer:
        """w_r (||M_r x - estimate_r||_1 - allowance_r): looks at exact counts, so it never leaves this class."""
        if ask.selection is None:
            return np.zeros(1)
        allowance = np.asarray(ask.allowance)
        most = self._most_apart(model)
        away = np.full(len(allowance), most)
        open_ones = np.flatnonzero(allowance < most)
        asked = [ask.candidates[i] for i in open_ones]
        for i, clique, estimate in zip(open_ones, asked, self._answers(model, asked), strict=True):
            away[i] = np.abs(self._counts[clique] - estimate).sum()
        return np.asarray(ask.weights) * (away - allowance)

    def _most_apart(self, model: Model | None) -> float:
        """How far apart in L1 two tables of so many rows can be, by what is public.

        A candidate with more noise than that could not be worth measuring however wrong the model is: it is given this bound,
        which no data moves, and is spared the rest.
        """
        rows = self._total if model is None else model.total
        return np.inf if rows is None else 2.0 * rows

    def _choose(self, ask: Ask, scores: Buffer) -> int:
        if ask.selection is None:
            return 0
        sensitivity = weighted_l1_score(self._meter.reserved.neighbours, ask.weights)
        return self._source.select(scores, sensitivity, ask.selection)

    def _measure(self, clique: Clique, width: Width) -> Measurement:
        exact = self._counts[clique].astype(np.int64)
        if isinstance(width, Sigma):
            noisy = self._source.discrete_gaussian(exact, width)
            return Measurement(clique, noisy.values, stddev=stddev(width), noise="gaussian")
        noisy = self._source.discrete_laplace(exact, width)
        return Measurement(clique, noisy.values, stddev=stddev(width), noise="laplace")

    def _moved(self, before: Model | None, after: Model, clique: Clique) -> float:
        (old,), (new,) = (tuple(self._answers(m, [clique])) for m in (before, after))
        return float(np.abs(new - old).sum())

    def _report(self, number: int) -> None:
        if self._progress is None:
            return
        total = self._policy.rounds
        pace = (perf_counter() - self._began) / number
        left = None if total is None else pace * (total - number)
        self._progress(Step("rounds", number, total, left))
