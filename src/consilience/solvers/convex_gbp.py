"""Convex-GBP: solve Problem 3 (approximate free energy minimisation over the local polytope) to a tolerance. Algorithm 2.

Paper: Algorithm 2 keeps two messages per edge. Here: only the regions' beliefs are kept; all messages cancel (the index
slips of the printed algorithm do not arise). With b_r the log-belief of region r, S_p the log of parent p's belief
summed to child t, one update of t is

    q_t = (kappa_t b_t + sum_p kappa_p S_p) / (kappa_t + sum_p kappa_p),    b_p += q_t - S_p,    b_t = q_t,

which is exact block coordinate descent on the dual of Problem 3, D = sum_r kappa_r log sum exp b_r.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, CliqueVector, dot
from consilience.errors import RegionGraphError
from consilience.kernels import sweep as kernels
from consilience.kernels.agreement import Belief, Messages
from consilience.kernels.tables import FLOOR, Shapes, Work
from consilience.kernels.threads import small, spread
from consilience.loop import Check, Goal, iterate
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.regions.wiring import Stage, Wiring, chunks, joined, schedule
from consilience.status import Status

Marks = NDArray[np.uint8]
TOGETHER = 8
"""Sweeps between two looks at the violation."""


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
        self._round = kernels.Round(
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
        rate = Rate(state._tau, self._no_rate)
        return self.steps(kernels.PLAIN, state, rate, 1, most=most, allowed=allowed).sweeps

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
        if self._pending is not state:
            self.apply_pending()
            state.apply_pending()
        pending = self._pending is state
        slope = kernels.Slope(rate.other, rate.rate, self.square, self.cross)
        sums, weights = (
            np.zeros((count, 2)),
            self._no_rate if rate.weights is None else rate.weights,
        )
        if small(len(state._tau)):
            done, sweeps, state.violation = kernels.run(
                count, most, allowed, mode, foresee, pending, self.track, state.arrays, slope, self._messages(state),
                self._round, self.wiring.kappa, self._shapes, self.wiring.edges, weights, sums,
            )  # fmt: skip
        else:
            done, sweeps = 0, 0
            while done < count and (sweeps <= 2 or foresee):
                state.violation = self._sweep(mode, foresee, pending, state, slope)
                sums[done] = weights @ self.square, weights @ self.cross
                done, sweeps, pending = done + 1, 1, bool(self.stages)
                while state.violation > allowed and sweeps < most:
                    state.violation = self._sweep(kernels.PLAIN, False, pending, state, slope)
                    sweeps += 1
        if self.stages:
            self._pending, state._sweeper = state, self
        return Steps(done, sweeps, sums[:done, 0], sums[:done, 1])

    # -- factors that wait for the next pass over the tables ----------------------------------------

    def apply_pending(self) -> None:
        """Apply the factors that the last sweep left on the messages."""
        state = self._pending
        if state is not None:
            self._pending, state._sweeper = None, None
            self._scale(state, 0, self._round.deferred, 1)

    # -- large graphs: pass by pass (kernels.run does the same in one call) ---------------------------

    def _sweep(
        self, mode: int, ahead: bool, pending: bool, state: Beliefs, slope: kernels.Slope
    ) -> float:
        """A mirror step and a sweep; the largest gap that the sweep met comes back."""
        round, deferred = self._round, self._round.deferred
        if ahead:
            if pending:
                self._scale(state, 0, deferred, 1)
            self._mirror(mode, state, slope, round.bare, round.nobody)
            self._lift[:] = 0.0
            for k in range(len(self.stages)):
                self._at_children(
                    kernels.foresee, k, state._tau, self._messages(state), self.wiring.kappa
                )
                self._scale(state, k, round.nobody, -1)
            mode, pending = kernels.PLAIN, False
        elif mode != kernels.PLAIN and self.track:
            state.drift[:] = 0.0
        self._mirror(mode, state, slope, round.every, deferred if pending else round.nobody)
        for k in range(len(self.stages)):
            if k > 0:
                self._at_parents(kernels.sum_parents, k, state._tau, self._msg)
            self._at_children(
                kernels.combine,
                k,
                self.track,
                state.arrays,
                self._messages(state),
                round.gap,
                self.wiring.kappa,
            )
            self._scale(state, k, deferred, 0 if k == 0 else -1)
        return float(round.gap.max(initial=0.0))

    def _mirror(
        self, mode: int, state: Beliefs, slope: kernels.Slope, work: Work, waiting: Marks
    ) -> None:
        spread(
            kernels.step, len(work.chunk) - 1, len(state._tau), mode, state.arrays, slope, waiting, self._messages(state),
            work, self._shapes, self.wiring.edges,
        )  # fmt: skip

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


@dataclass(frozen=True)
class FreeEnergySolution:
    """tau minimises -<theta, tau> - sum kappa H over L(G), to within `violation`; `dual` is D, the value is -D at the optimum."""

    tau: CliqueVector
    state: Beliefs
    dual: float
    violation: float
    iterations: int
    status: Status


class Sweeps:
    """Sweeps of Convex-GBP over given beliefs, as a method of the loop: they go on until the regions agree."""

    def __init__(self, state: Beliefs, schedule: str, tolerance: float) -> None:
        self.beliefs = state
        self.sweeper = Sweeper(state.wiring, schedule)
        self.tolerance = tolerance

    def start(self) -> Beliefs:
        return self.beliefs

    def step(self, state: Beliefs, most: int) -> int:
        return self.sweeper.sweeps(state, min(most, TOGETHER), self.tolerance)

    def check(self, state: Beliefs, done: int) -> Check:
        return Check(violation=state.violation)


def solve_free_energy(
    graph: RegionGraph,
    theta: CliqueVector | None = None,
    *,
    tolerance: float = 1e-9,
    iterations: int = 100_000,
    schedule: str = "sequential",
    state: Beliefs | None = None,
    progress: Progress | None = None,
) -> FreeEnergySolution:
    """Sweep until the largest L1 gap along an edge is at most `tolerance`.

    Give theta, or a `state` to go on from (a warm start). `schedule` is "sequential" (full updates of regions that share no
    parent, fewest sweeps) or "parallel" (all regions of a level at once, damped, cheapest sweeps); in both the dual never
    rises.
    """
    if (theta is None) == (state is None):
        raise RegionGraphError(
            "give either theta or a state to start from, not both and not neither"
        )
    if state is None:
        assert theta is not None
        state = start(Wiring.of(graph), theta)
    elif state.wiring.graph is not graph:
        raise RegionGraphError("the state must belong to this graph; it was made for another one")
    run = iterate(
        Sweeps(state, schedule, tolerance),
        limit=iterations,
        tolerance=tolerance,
        goal=Goal.VIOLATION,
        stage="sweeps",
        progress=progress,
    )
    state.settle()
    return FreeEnergySolution(
        state.marginals(), state, state.dual, state.violation, run.iterations, run.status
    )


def start(wiring: Wiring, theta: CliqueVector) -> Beliefs:
    """Beliefs with potentials theta, given on the regions or on any cliques that the graph supports."""
    graph = wiring.graph
    if theta.cliques != graph.regions:
        missing = graph.first_unsupported(theta.cliques)
        if missing is not None:
            raise RegionGraphError(
                f"the graph must support every clique of theta, got {missing}; no region contains it"
            )
        theta = theta.expand(graph.regions)
    return Beliefs.of_potentials(wiring, theta)


def convex_gbp(
    graph: RegionGraph,
    theta: CliqueVector,
    *,
    tolerance: float = 1e-9,
    iterations: int = 100_000,
    schedule: str = "sequential",
    progress: Progress | None = None,
) -> CliqueVector:
    """Algorithm 2 to convergence: the pseudo-marginals that solve Problem 3 for these potentials."""
    return solve_free_energy(
        graph,
        theta,
        tolerance=tolerance,
        iterations=iterations,
        schedule=schedule,
        progress=progress,
    ).tau
