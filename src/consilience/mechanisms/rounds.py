"""Rounds: choose the clique that the model answers worst, measure it, fit again.

What a round asks for is the mechanism's own: a loop that yields one `Ask` after the other (`MWEM`, `AIM`). A `Run` carries
them out. Its meter charges every round before it draws, so that a run never draws more than was reserved for it, and a round
that is interrupted after its charge is lost: it is never drawn again.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique
from consilience.errors import BudgetError, MeasurementError
from consilience.measurements import Measurement
from consilience.mechanisms.estimates import Estimates
from consilience.mechanisms.fixed import noise_cost
from consilience.mechanisms.mechanism import (
    Calibrated,
    Call,
    M,
    Piece,
    Release,
    Result,
    Source,
    Tape,
)
from consilience.mechanisms.moments import Width, stddev
from consilience.model import Fit, Model
from consilience.privacy import (
    Cost,
    Epsilon,
    Ledger,
    Neighbours,
    NoiseSource,
    Scale,
    Sigma,
    weighted_l1_score,
)
from consilience.progress import Progress, Step, quiet

ROUND_TOLERANCE = 1e-4
"""Relative gap of the fits between rounds, which only rank candidates; the last fit takes the caller's."""
MOST_PEOPLE = 10**10
"""No table has more rows than there are people: noise beyond that drowns whatever is measured."""


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
        measured = noise_cost(neighbours, self.width)
        if self.selection is None:
            return measured
        return Cost.selection(neighbours, self.selection) + measured


@dataclass(frozen=True, eq=False)
class Round:
    """What one round measured, and the model after it: all of it public. `of` is None where the number is not known."""

    number: int
    of: int | None
    measurement: Measurement
    model: Model


Asks = Generator[Ask, Clique | None, None]
"""The loop of a mechanism: each `yield` of an Ask returns the clique that was measured, None if the round was cut short.

A loop that is interrupted while it works is begun anew: it goes on from what the run has on record.
"""


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

    def __init__(self, ready: CalibratedAdaptive[Any], call: Call) -> None:
        self._call, self._counts = call, call.counts(ready.candidates)
        self._fit = ready.in_rounds.coarser(ROUND_TOLERANCE)
        rows = None if call.total is None else float(call.total)
        self._estimates = Estimates(ready.domain, rows, ready.mechanism.fit.unmeasured)
        self._finer: tuple[Model | None, Estimates] | None = None
        self._meter = Meter(ready.cost)
        self._measurements: list[Measurement] = []
        self._model: Model | None = None
        self._before: Model | None = None
        self._fitted = 0
        self._ready, self._number_of_rounds = ready, ready.number_of_rounds
        self._asks = ready.asks(self)
        self.begun = 0
        """Rounds that were charged, whatever came of them."""
        self.share: Fraction | None = None
        """rho of a round by now, where the mechanism changes it on the way."""
        self._ask: Ask | None = None
        self._measured: Clique | None = None
        self._began = perf_counter()
        for piece in call.drawn:
            self._restore(piece)

    @property
    def release(self) -> Release:
        return self._call.release(self._measurements)

    @property
    def spent(self) -> Cost:
        """What was drawn so far: a part of what was reserved."""
        return self._meter.spent

    @property
    def cliques(self) -> list[Clique]:
        """What was measured so far, round by round."""
        return [tuple(m.attributes) for m in self._measurements]

    @property
    def model(self) -> Model | None:
        """The model of all measurements so far; None before the first."""
        if self._fitted < len(self._measurements):
            fitted = self._fit(
                self._counts.domain,
                self._measurements,
                self._estimates.total,
                warm=self._model,
            )
            self._before, self._model = self._model, fitted
            self._fitted = len(self._measurements)
        return self._model

    def __reduce_ex__(self, protocol: object) -> Any:
        """As of its call: neither copied nor pickled."""
        return self._call.__reduce_ex__(protocol)

    def answers(self, cliques: Sequence[Clique]) -> Iterator[Buffer]:
        """Expected counts of any cliques by the model so far, closer than candidates are ranked by."""
        model = self.model
        if self._finer is None or self._finer[0] is not model:
            self._finer = model, self._estimates.finer(model)
        return self._finer[1](model, cliques)

    def moved(self, clique: Clique) -> float:
        """How far the last round moved the model's answer on a clique (L1, counts)."""
        (old,), (new,) = (tuple(self._estimates(m, [clique])) for m in (self._before, self._model))
        return float(np.abs(new - old).sum())

    def __next__(self) -> Round:
        model = self.model  # fitted here if an interruption came between measuring and fitting
        if self._ask is None:
            self._ask = self._next_ask()
        ask, scores = self._ask, self._scores(model, self._ask)
        self._meter.charge(ask.cost(self._meter.reserved.neighbours))
        self._ask = None  # charged, so it is never asked again
        self.begun += 1
        piece = self._call.piece(len(self._measurements), lambda: self._drawn(ask, scores))
        self._measured = self._take(piece)
        fitted = self.model
        assert fitted is not None
        number = len(self._measurements)
        self._report(number)
        return Round(number, self._number_of_rounds, self._measurements[-1], fitted)

    # -- parts of a round ------------------------------------------------------------------------

    def _next_ask(self) -> Ask:
        measured, self._measured = self._measured, None
        try:
            return self._asks.send(measured)
        except StopIteration:
            raise
        except BaseException:  # which ended the loop, but not the run
            self._asks = self._ready.asks(self)
            raise

    def _scores(self, model: Model | None, ask: Ask) -> Buffer:
        """w_r (||M_r x - estimate_r||_1 - allowance_r): looks at exact counts, so it never leaves this class."""
        if ask.selection is None:
            return np.zeros(1)
        allowance = np.asarray(ask.allowance)
        most = self._most_apart(model)
        away = np.full(len(allowance), most)
        open_ones = np.flatnonzero(allowance < most)
        asked = [ask.candidates[i] for i in open_ones]
        for i, clique, estimate in zip(
            open_ones, asked, self._estimates(model, asked), strict=True
        ):
            away[i] = np.abs(self._counts[clique] - estimate).sum()
        return np.asarray(ask.weights) * (away - allowance)

    def _most_apart(self, model: Model | None) -> float:
        """How far apart in L1 two tables of so many rows can be, by what is public.

        A candidate with more noise than that could not be worth measuring however wrong the model is: it is given this bound,
        which no data moves, and is spared the rest.
        """
        rows = self._call.total if model is None else model.total
        return np.inf if rows is None else 2.0 * rows

    def _choose(self, ask: Ask, scores: Buffer) -> int:
        if ask.selection is None:
            return 0
        sensitivity = weighted_l1_score(self._meter.reserved.neighbours, ask.weights)
        return self._call.noise.select(scores, sensitivity, ask.selection)

    def _drawn(self, ask: Ask, scores: Buffer) -> Piece:
        """The choice and the noisy table of a round, with what they cost."""
        clique = ask.candidates[self._choose(ask, scores)]
        values = self._measure(clique, ask.width)
        about = {
            "clique": clique,
            "law": "gaussian" if isinstance(ask.width, Sigma) else "laplace",
            "width": ask.width.value.hex(),
            "selection": None if ask.selection is None else str(ask.selection.value),
            "share": None if self.share is None else str(self.share),
        }
        text = json.dumps(about, ensure_ascii=False).encode()
        return {"values": values, "about": np.frombuffer(text, np.uint8)}

    def _measure(self, clique: Clique, width: Width) -> NDArray[np.int64]:
        exact = self._counts[clique].astype(np.int64)
        if isinstance(width, Sigma):
            return self._call.noise.discrete_gaussian(exact, width).values
        return self._call.noise.discrete_laplace(exact, width).values

    def _take(self, piece: Piece) -> Clique:
        """A drawn round becomes a measurement."""
        about = _about(piece)
        clique, width = self._counts.domain.clique(about["clique"]), _width_of(about)
        made = Measurement(clique, piece["values"], stddev=stddev(width), noise=about["law"])
        self._measurements.append(made)
        return clique

    def _restore(self, piece: Piece) -> None:
        """A round that an earlier process drew under the same reservation, charged as it was then."""
        about = _about(piece)
        selection = about["selection"]
        ask = Ask((), _width_of(about), None if selection is None else Epsilon(Fraction(selection)))
        self._meter.charge(ask.cost(self._meter.reserved.neighbours))
        self.begun += 1
        self.share = None if about["share"] is None else Fraction(about["share"])
        self._take(piece)

    def _report(self, number: int) -> None:
        total = self._number_of_rounds
        each = (perf_counter() - self._began) / number
        left = None if total is None else each * (total - number)
        self._call.progress(Step("rounds", number, total, left))


def _about(piece: Piece) -> dict[str, Any]:
    return json.loads(piece["about"].tobytes())


def _width_of(about: Mapping[str, Any]) -> Width:
    value = float.fromhex(about["width"])
    return Sigma(value) if about["law"] == "gaussian" else Scale(value)


class CalibratedAdaptive(Calibrated[M]):
    """An adaptive mechanism: the cost of the whole run is fixed beforehand, what it measures is not.

    A call counts every candidate once, reserves the cost of the whole run, and only then draws; `start` gives the run
    itself, to watch round by round, or to stop and keep what it has.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_useful(self.least_noise)

    @property
    def in_rounds(self) -> Fit:
        """The estimator of the mechanism as rounds call it."""
        return self.mechanism.fit.in_rounds()

    @property
    def fit(self) -> Fit:
        """The estimator of the end: that of the rounds, unless the mechanism's is made for the end alone."""
        return self.mechanism.fit.at_the_end()

    @property
    @abstractmethod
    def candidates(self) -> tuple[Clique, ...]:
        """Every clique that may be measured."""

    @property
    def number_of_rounds(self) -> int | None:
        """Where it is known beforehand."""
        return None

    @property
    @abstractmethod
    def least_noise(self) -> float:
        """Expected L1, in counts, of the noise in the table that gets least of it in the first round."""

    @abstractmethod
    def asks(self, run: Run) -> Asks:
        """The rounds, as a loop that knows no more of the data than what the run made public."""

    def start(
        self,
        data: Source,
        *,
        noise: NoiseSource | None = None,
        ledger: Ledger | None = None,
        progress: Progress | None = None,
        tape: Tape | None = None,
    ) -> Run:
        """Count every candidate and reserve the whole cost; the run that comes back has drawn nothing yet.

        tape: as of `measure`; a run goes on after the rounds that are on it.
        """
        return self._run(Call(self, data, noise, ledger, progress or quiet, tape))

    def _run(self, call: Call) -> Run:
        check_useful(self.least_noise, call.total)
        return Run(self, call)

    def draw(self, call: Call) -> Release:
        """All rounds, one after the other."""
        run = self._run(call)
        for _ in run:
            pass
        return run.release

    def reconstruct(self, release: Release, *, progress: Progress | None = None) -> Result:
        """The model of all that was measured, to the tolerance of the fit."""
        if not release.measurements:
            raise MeasurementError(
                "a release must hold at least one measurement, got none; let its run make a round"
            )
        return super().reconstruct(release, progress=progress)


def check_useful(least_noise: float, records: int | None = None) -> None:
    """Refuse a budget under which even the smallest table drowns: nothing that it measures could be told from noise.

    `records` is given only where it is public; otherwise only what holds for every table of people is used.
    """
    limit = MOST_PEOPLE if records is None else records
    if least_noise > limit:
        rows = "any table of people" if records is None else f"{records:,} rows"
        raise BudgetError(
            f"the noise of a round must leave something to see, its expected L1 is {least_noise:,.6g} counts in the "
            f"smallest table, too much for {rows}; give more budget, fewer rounds or coarser attributes; "
            "nothing was spent"
        )
