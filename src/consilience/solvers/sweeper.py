"""Beliefs of all regions of a graph, and the sweeps of Convex-GBP that change them (`convex_gbp.py` says what a sweep is)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, CliqueVector, dot
from consilience.errors import RegionGraphError
from consilience.kernels import rounds
from consilience.kernels import sweep as kernels
from consilience.kernels.agreement import Belief, Messages, combine
from consilience.kernels.tables import FLOOR, Shapes, Work
from consilience.kernels.threads import spread
from consilience.regions.wiring import Stage, Wiring, chunks, joined, schedule

Marks = NDArray[np.uint8]
WHOLE_CELLS = 300_000
"""Up to this many cells one thread that does whole sweeps beats several that meet after every pass."""


class _Applied:
    """An array of a state that is read and written after the factors that the last sweep left to do are applied."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = f"_{name}"

    def __get__(self, state: Beliefs, owner: type) -> Buffer:
        state.apply_pending()
        return getattr(state, self.name)

    def __set__(self, state: Beliefs, values: Buffer) -> None:
        state.apply_pending()
        setattr(state, self.name, values)


class Beliefs:
    """Mutable working state: `tau` are the beliefs in engine order, B_r = kappa_r (log tau_r + shift_r).

    A sweep may leave its last factors unapplied until the next pass over the tables; reading `tau`, `shift` or `mass` applies
    them first. Passing the state on is a warm start; `copy` it to keep a snapshot.
    """

    tau = _Applied()
    shift = _Applied()
    mass = _Applied()
    """What each table still has to be divided by."""

    def __init__(
        self,
        wiring: Wiring,
        tau: Buffer,
        shift: Buffer,
        violation: float = np.inf,
        mass: Buffer | None = None,
    ) -> None:
        self.wiring = wiring
        self._tau = tau
        self._shift = shift
        self._mass = np.ones(len(shift)) if mass is None else mass
        self.violation = violation
        self.drift: Buffer = np.zeros(wiring.edges.length)
        """Logarithms of the factors that the sweeps since the last step applied, edge by edge."""
        self._sweeper: Sweeper | None = None

    def apply_pending(self) -> None:
        """Apply the factors that the last sweep left to do."""
        if self._sweeper is not None:
            self._sweeper.apply_pending()

    @property
    def arrays(self) -> Belief:
        """The beliefs as they are, factors that are still to be applied left out."""
        return Belief(self._tau, self._shift, self._mass)

    @classmethod
    def uniform(cls, wiring: Wiring, possible: CliqueVector | None = None) -> Beliefs:
        """B = 0 on every cell, and minus infinity where `possible` is zero."""
        cells = wiring.tables.cells
        tau = np.repeat(1.0 / cells, cells) if possible is None else wiring.enter(possible)
        state = cls(wiring, tau, np.log(cells.astype(np.float64)))
        if possible is not None:
            state._restrict()
        return state

    @classmethod
    def of_potentials(cls, wiring: Wiring, theta: CliqueVector) -> Beliefs:
        """B = theta. Minus infinity marks an impossible cell. A region with counting number zero can hold none."""
        state = cls.uniform(wiring)
        values = wiring.enter(theta)
        kappa = np.repeat(wiring.kappa, wiring.tables.cells)
        if np.any((kappa == 0) & (values != 0)):
            raise RegionGraphError(
                "theta must be zero on regions with counting number zero; move it to a parent (CliqueVector.expand)"
            )
        scaled = np.divide(values, kappa, out=np.zeros_like(values), where=kappa > 0)
        starts = wiring.tables.at
        top = np.maximum.reduceat(scaled, starts)
        if np.any(~np.isfinite(top)):
            raise RegionGraphError(
                "theta must have a finite entry in every region and no NaN or plus infinity"
            )
        state.tau = np.exp(scaled - np.repeat(top, wiring.tables.cells))
        np.maximum(state.tau, FLOOR, out=state.tau, where=np.isfinite(scaled))
        mass = np.add.reduceat(state.tau, starts)
        state.tau /= np.repeat(mass, wiring.tables.cells)
        state.shift = top + np.log(mass)
        return state

    def copy(self) -> Beliefs:
        return Beliefs(
            self.wiring, self.tau.copy(), self.shift.copy(), self.violation, self.mass.copy()
        )

    def adopt(self, other: Beliefs) -> None:
        """Take over another state's numbers without new memory."""
        np.copyto(self.tau, other.tau)
        np.copyto(self.shift, other.shift)
        np.copyto(self.mass, other.mass)
        np.copyto(self.drift, other.drift)
        self.violation = other.violation

    def settle(self) -> None:
        """Bring every belief to mass one. Steps leave the last division to the next pass over the cells."""
        self.apply_pending()
        shapes = self.wiring.tables.shapes
        spread(kernels.settle, len(shapes.at), len(self._tau), self.arrays, shapes)

    @property
    def dual(self) -> float:
        """D(lambda), exact once the beliefs are settled. Problem 3's value is at least -D."""
        return dot(self.wiring.kappa, self.shift)

    def marginals(self) -> CliqueVector:
        return self.wiring.leave(self.tau)

    def _restrict(self) -> None:
        """Uniform over the possible cells; shift keeps B = 0 there."""
        starts = self.wiring.tables.at
        self.tau = (self.tau > 0).astype(np.float64)
        mass = np.add.reduceat(self.tau, starts)
        if np.any(mass == 0):
            raise RegionGraphError(
                "every region must have at least one possible cell, got one with none"
            )
        self.tau /= np.repeat(mass, self.wiring.tables.cells)
        self.shift = np.log(mass)


@dataclass(frozen=True)
class Rate:
    """What a mirror step goes along: `other` is the gradient or the target, rate[r] the step of region r; where a loss is to be
    summed up, weights[r] is the weight of region r in it."""

    other: Buffer
    rate: Buffer
    weights: Buffer | None = None


@dataclass(frozen=True)
class Steps:
    """Mirror steps done, the sweeps of the last one, and per step the weighted sums of `Sweeper.square` and `.cross`."""

    done: int
    sweeps: int
    squares: Buffer
    crosses: Buffer


class Sweeper:
    """Runs sweeps of one schedule over `Beliefs`; holds the messages as scratch.

    Regions that only the first stage touches wait: what a sweep asks of them is applied by the next pass over the tables,
    or when their beliefs are read.
    """

    def __init__(self, wiring: Wiring, name: str = "parallel") -> None:
        self.wiring = wiring
        self.stages = schedule(wiring, name)
        self._msg = np.empty(wiring.edges.length)
        self._lift = np.zeros(len(wiring.edges.parent))
        order, children, parents = joined(self.stages)
        count = len(wiring.tables.members)
        self.square = np.zeros(count)
        self.cross = np.zeros(count)
        self.track = False
        """Whether sweeps keep the drift that `foresee` needs."""
        self._pending: Beliefs | None = None
        self._no_rate = np.zeros(count)
        # The mirror step visits every region once and sums down the first stage's edges on the way.
        every, chunk = np.arange(count, dtype=np.int64), chunks(wiring.tables.cells)
        ptr, edge = np.zeros(count + 1, np.int64), np.zeros(0, np.int64)
        if self.stages:
            first = self.stages[0].parents
            ptr[first.region + 1] = np.diff(first.ptr)
            edge = first.edge
        self._round = rounds.Round(
            Work(chunk, every, np.cumsum(ptr), edge),
            Work(chunk, every, np.zeros(count + 1, np.int64), edge),
            order, children, parents, _deferrable(self.stages, count), np.zeros(count, np.uint8),
            np.zeros(len(children.region)),
        )  # fmt: skip
        cells = wiring.tables.cells
        self._visited = [
            (int(cells[s.parents.region].sum()), int(wiring.edges.width[s.children.edge].sum()))
            for s in self.stages
        ]
        """Cells of each stage's parents and of its messages."""

    def sweep(self, state: Beliefs) -> None:
        """One pass over all stages; afterwards `state.violation` is the largest L1 gap met on an edge."""
        self.sweeps(state, 1, 0.0)

    def sweeps(self, state: Beliefs, most: int, allowed: float) -> int:
        """Sweeps until `state.violation` is at most `allowed`, at least one and at most `most`; how many were done."""
        pending, done = self._take(state), 0
        if len(state._tau) < WHOLE_CELLS:
            done, state.violation = rounds.sweeps(
                most, allowed, pending, self.track, state.arrays, self._messages(state), self._round, self.wiring.kappa,
                self._shapes, self.wiring.edges,
            )  # fmt: skip
        while done == 0 or (done < most and state.violation > allowed):
            self._start(state, pending)
            state.violation = self._agree(state)
            done, pending = done + 1, bool(self.stages)
        self._leave(state)
        return done

    def step_gradient(
        self, state: Beliefs, gradient: Buffer, rate: Buffer, foresee: bool = False
    ) -> None:
        """tau_r *= exp(-rate_r gradient_r), then one sweep.

        With `foresee` the drift of the sweeps since the last step is applied first: near the optimum every step is undone by
        the same reparametrisation as the one before, so guessing it leaves the sweep little to do.
        """
        self.steps(kernels.GRADIENT, state, Rate(gradient, rate), 1, foresee)

    def step_squared(
        self, state: Beliefs, target: Buffer, rate: Buffer, foresee: bool = False
    ) -> None:
        """The same with gradient tau - target; leaves sums for value and linearisation in `square` and `cross`."""
        self.steps(kernels.SQUARED, state, Rate(target, rate), 1, foresee)

    def steps(
        self, mode: int, state: Beliefs, rate: Rate, count: int, foresee: bool = False, most: int = 1, allowed: float = 0.0
    ) -> Steps:  # fmt: skip
        """At most `count` mirror steps of one mode, each with sweeps until the violation is at most `allowed`, or `most` of them.

        A step that took more than two sweeps is the last, unless the drift is foreseen already.
        """
        pending = self._take(state)
        slope = kernels.Slope(rate.other, rate.rate, self.square, self.cross)
        sums, weights = (
            np.zeros((count, 2)),
            self._no_rate if rate.weights is None else rate.weights,
        )
        if len(state._tau) < WHOLE_CELLS:
            done, sweeps, state.violation = rounds.run(
                count, most, allowed, mode, foresee, pending, self.track, state.arrays, slope, self._messages(state),
                self._round, self.wiring.kappa, self._shapes, self.wiring.edges, weights, sums,
            )  # fmt: skip
            self._leave(state)
            return Steps(done, sweeps, sums[:done, 0], sums[:done, 1])
        done, sweeps = 0, 0
        while done < count and (sweeps <= 2 or foresee):
            self._step(mode, foresee, pending, state, slope)
            state.violation = self._agree(state)
            self._leave(state)
            sums[done] = weights @ self.square, weights @ self.cross
            done, sweeps, pending = done + 1, 1, bool(self.stages)
            if state.violation > allowed and most > 1:
                sweeps += self.sweeps(state, most - 1, allowed)
        return Steps(done, sweeps, sums[:done, 0], sums[:done, 1])

    # -- factors that wait for the next pass over the tables ----------------------------------------

    def apply_pending(self) -> None:
        """Apply the factors that the last sweep left on the messages."""
        state = self._pending
        if state is not None:
            self._pending, state._sweeper = None, None
            self._scale(state, 0, self._round.deferred, 1)

    def _take(self, state: Beliefs) -> bool:
        """Whether the last sweep was of this state and left factors to do; those of any other are applied."""
        if self._pending is not state:
            self.apply_pending()
            state.apply_pending()
        return self._pending is state

    def _leave(self, state: Beliefs) -> None:
        if self.stages:
            self._pending, state._sweeper = state, self

    # -- large graphs: pass by pass (kernels/rounds.py does the same in one call) ------------

    def _step(
        self, mode: int, ahead: bool, pending: bool, state: Beliefs, slope: kernels.Slope
    ) -> None:
        """A mirror step, and the sums that a sweep begins with."""
        round, messages = self._round, self._messages(state)
        if not ahead:
            if self.track:
                state.drift[:] = 0.0
            waiting = round.deferred if pending else round.nobody
            self._at_all(kernels.step, round.every, mode, state.arrays, slope, waiting, messages)
            return
        if pending:
            self._scale(state, 0, round.deferred, 1)
        self._at_all(kernels.step, round.bare, mode, state.arrays, slope, round.nobody, messages)
        self._lift[:] = 0.0
        for k in range(len(self.stages)):
            self._at_children(kernels.foresee, k, state._tau, messages, self.wiring.kappa)
            self._scale(state, k, round.nobody, -1)
        self._start(state, False)

    def _start(self, state: Beliefs, pending: bool) -> None:
        waiting = self._round.deferred if pending else self._round.nobody
        self._at_all(kernels.start, self._round.every, state.arrays, waiting, self._messages(state))

    def _agree(self, state: Beliefs) -> float:
        """One sweep once the first stage's parents are summed down; the largest gap that it met comes back."""
        round, messages = self._round, self._messages(state)
        for k in range(len(self.stages)):
            if k > 0:
                self._at_parents(kernels.sum_parents, k, state._tau, self._msg)
            self._at_children(
                combine, k, self.track, state.arrays, messages, round.gap, self.wiring.kappa
            )
            self._scale(state, k, round.deferred, 0 if k == 0 else -1)
        return float(round.gap.max(initial=0.0))

    def _at_all(self, kernel: Callable[..., None], work: Work, *args: Any) -> None:
        graph = (work, self._shapes, self.wiring.edges)
        spread(kernel, len(work.chunk) - 1, self.wiring.tables.length, *args, *graph)

    def _scale(self, state: Beliefs, k: int, waiting: Marks, mark: int) -> None:
        """Scale the parents of stage k whose entry in `waiting` is `mark`, or all of them if that is negative."""
        self._at_parents(kernels.scale, k, state.arrays, waiting, mark, self._messages(state))

    def _at_parents(self, kernel: Callable[..., None], k: int, *args: Any) -> None:
        first, last = self._round.order.item[k : k + 2].tolist()
        graph = (self._round.parents, self._shapes, self.wiring.edges)
        spread(kernel, last - first, self._visited[k][0], *args, *graph, start=first)

    def _at_children(self, kernel: Callable[..., None], k: int, *args: Any) -> None:
        first, last = self._round.order.child[k : k + 2].tolist()
        graph = (self._round.children, self._shapes, self.wiring.edges)
        spread(kernel, last - first, self._visited[k][1], *args, *graph, start=first)

    @property
    def _shapes(self) -> Shapes:
        return self.wiring.tables.shapes

    def _messages(self, state: Beliefs) -> Messages:
        return Messages(self._msg, self._lift, state.drift)


def _deferrable(stages: tuple[Stage, ...], count: int) -> Marks:
    """Marks the regions that only the first stage touches: their factors can wait until the next pass sums them down."""
    marks = np.zeros(count, np.uint8)
    if stages:
        marks[stages[0].parents.region] = 1
        for stage in stages[1:]:
            marks[stage.parents.region] = 0
            marks[stage.children.region] = 0
    return marks
