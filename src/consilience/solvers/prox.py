"""Prox-PGM (Algorithm 1) with Convex-GBP: any convex loss over the local polytope (Problem 2, Theorem 2).

Paper: theta <- theta - eta grad L(tau), tau <- oracle(theta), with a step eta chosen by hand. Here: theta is never formed;
the step multiplies the beliefs and the oracle's sweeps go on from there. Steps start at the size that smoothness
guarantees and grow while blocks of steps keep improving; a block that does not is undone. Sweeps per step follow the
progress, so that the inconsistency left by an inexact oracle never decides the answer.

The certificate: the gradients' linearisations average to a lower bound of L, and what the beliefs lost since the start of
a window is an exact reparametrisation of the summed gradients, so the sum of its per-region minima bounds them from below
over all of L(G):  L* >= [sum_t eta_t (L(tau_t) - <g_t, tau_t>) + sum_r min_x (B_start - B_end)_r(x)] / sum_t eta_t.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from consilience.domain import dot
from consilience.errors import LossError
from consilience.kernels.tables import FLOOR
from consilience.kernels.threads import small
from consilience.loop import Check, Goal, Stop, iterate
from consilience.measurements import Loss
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.convex_gbp import Beliefs
from consilience.solvers.feasible import polish
from consilience.solvers.local import LocalProblem
from consilience.solvers.mirror import mirror_descent
from consilience.solvers.solution import Solution
from consilience.solvers.work import visits
from consilience.status import Ending, not_convex, out_of_iterations, stalled, unbounded

BLOCK = 8
"""Steps between two decisions about the step size."""
MOST_FAILURES = 30
AGREED = 1e-6
"""Violation of the beliefs at which a solve may end."""
MARGIN = 0.5
"""Share of the tolerance that the gap must reach: polishing the beliefs at the end costs a little of it."""
GROWTH, SHRINK = 1.5, 0.5
MOST_SWEEPS = 50
DEFAULT_ITERATIONS = 20_000


@dataclass
class ProxState:
    """Everything that a continued solve needs: the beliefs and the step size in use."""

    beliefs: Beliefs
    rate: float


@dataclass
class _Window:
    """Accumulates the lower bound since its start."""

    start: Beliefs
    first: int
    weight: float = 0.0
    intercept: float = 0.0

    def add(self, rate: float, value: float, cross: float) -> None:
        self.weight += rate
        self.intercept += rate * (value - cross)

    def bound(self, problem: LocalProblem, now: Beliefs) -> float:
        if self.weight == 0.0:
            return -np.inf
        return (self.intercept + problem.fall(self.start, now)) / self.weight


def prox_pgm(
    loss: Loss,
    graph: RegionGraph,
    *,
    iterations: int | None = None,
    tolerance: float = 1e-6,
    step: float | None = None,
    accelerated: bool = False,
    schedule: str | None = None,
    state: ProxState | None = None,
    progress: Progress | None = None,
) -> Solution:
    """Minimise a convex loss over L(graph).

    `iterations` given: exactly that many mirror steps are done. Otherwise stop when the certified relative gap is at most
    `tolerance`. `schedule` None: sequential for small graphs, parallel for large ones. `step` given: that constant step,
    honoured exactly. `accelerated`: the interior gradient
    method, fewer iterations each with more sweeps. `state` from an earlier `Solution` is a warm start (not accelerated).
    """
    began = perf_counter()
    if schedule is None:
        schedule = "sequential" if small(graph.cells) else "parallel"
    problem = LocalProblem(loss, graph, schedule)
    if accelerated:
        return _accelerated(problem, iterations, tolerance, step, progress, began)
    method = _ProxPGM(problem, step, state, tolerance)
    run = iterate(
        method,
        limit=DEFAULT_ITERATIONS if iterations is None else iterations,
        tolerance=tolerance if iterations is None else None,
        progress=progress,
    )
    end, status = run.state, run.status
    tau, violation = polish(graph, end.beliefs)
    objective, _ = problem.bound.value_and_grad(tau.values)
    method.note_bound(end)
    solution = Solution(
        tau, objective, min(end.bound, objective), violation, run.iterations, perf_counter() - began, status,
        "Prox-PGM with Convex-GBP", ProxState(end.beliefs, end.rate),
        work=run.iterations * visits(graph.cells, len(graph.regions)),
    )  # fmt: skip
    size = max(abs(objective), abs(end.first_value or 0.0))
    if end.bound > objective + 1e-6 * size and status.ending is not Ending.UNBOUNDED:
        return replace(solution, status=not_convex(end.bound, objective))
    late = status.converged and solution.gap > 2 * tolerance
    if late or status.ending is Ending.OUT_OF_ITERATIONS:
        reached = out_of_iterations(run.iterations, solution.gap, tolerance, Goal.GAP)
        return replace(solution, status=reached)
    return solution


def _accelerated(
    problem: LocalProblem,
    iterations: int | None,
    tolerance: float,
    step: float | None,
    progress: Progress | None,
    began: float,
) -> Solution:
    result = mirror_descent(
        problem,
        accelerated=True,
        limit=DEFAULT_ITERATIONS if iterations is None else iterations,
        tolerance=tolerance if iterations is None else None,
        step=step,
        progress=progress,
    )
    final = problem.uniform()
    final.tau[:] = np.maximum(result.values, FLOOR)
    tau, violation = polish(problem.graph, final)
    objective, _ = problem.bound.value_and_grad(tau.values)
    return Solution(
        tau, objective, min(result.bound, objective), violation, result.iterations, perf_counter() - began, result.status,
        "accelerated Prox-PGM with Convex-GBP", ProxState(result.state, result.rate),
        work=result.iterations * visits(problem.graph.cells, len(problem.graph.regions)),
    )  # fmt: skip


@dataclass
class _Working:
    """What changes in a solve. `allowed` is the inconsistency that a step may leave; `foresee` see `Sweeper.step_gradient`."""

    beliefs: Beliefs
    rate: float
    snapshot: Beliefs
    window: _Window
    bound: float = -np.inf
    value: float = np.inf
    gap: float = np.inf
    next_bound: int = 4 * BLOCK
    allowed: float = 1e-2
    failures: int = 0
    foresee: bool = False
    done: int = 0
    first_value: float | None = None


class _ProxPGM:
    """Algorithm 1 as a method of the loop. A step is a block of mirror steps, undone where it does not improve."""

    def __init__(
        self, problem: LocalProblem, step: float | None, state: ProxState | None, tolerance: float
    ) -> None:
        if step is not None and not (np.isfinite(step) and step > 0):
            raise LossError(f"step must be positive and finite, got {step}")
        self.problem = problem
        self.fixed = step
        self.warm = state
        self.tolerance = tolerance

    def start(self) -> _Working:
        warm, problem = self.warm, self.problem
        beliefs = warm.beliefs.copy() if warm is not None else problem.uniform()
        if beliefs.wiring.graph is not problem.graph:
            if beliefs.wiring.graph.regions != problem.graph.regions:
                raise LossError("a warm start must come from a solve over the same graph")
            beliefs.wiring = problem.wiring
        rate = self.fixed
        if rate is None:
            rate = warm.rate if warm is not None else problem.first_rate()
        return _Working(beliefs, rate, beliefs.copy(), _Window(beliefs.copy(), 0))

    def step(self, state: _Working, most: int) -> int:
        count = min(BLOCK, most)
        state.snapshot.adopt(state.beliefs)
        values, crosses = self._block(state, count)
        before, after = values[0], values[-1]
        state.first_value = before if state.first_value is None else state.first_value
        lowest = float(np.nanmin(values))
        if lowest < min(-1e12, -1e6 * abs(state.first_value)):
            raise Stop(unbounded(lowest))
        worse = not np.isfinite(after) or after > before + 1e-13 * abs(before)
        if worse and self.fixed is None:
            self._undo(state, before)
            return 0
        state.failures = 0
        for value, cross in zip(values[:-1], crosses, strict=True):
            state.window.add(state.rate, value, cross)
        if self.fixed is None:
            state.rate *= GROWTH
            state.beliefs.drift *= GROWTH
        fallen = (before - after) / max(abs(after), 1e-300) / count
        state.allowed = float(np.clip(0.03 * fallen, 1e-12, state.allowed))
        state.value = after
        state.done += count
        return count

    def check(self, state: _Working, done: int) -> Check:
        if done == 0:
            state.value = self._value(state)
        bounded = done >= state.next_bound
        if bounded:
            self.note_bound(state)
            state.gap = self._gap(state, state.value)
            state.next_bound = int(1.25 * done) + BLOCK
            if done >= 2 * state.window.first + 4 * BLOCK:
                state.window = _Window(state.beliefs.copy(), done)
        violation = state.beliefs.violation
        ready = bounded and violation <= AGREED and state.gap <= MARGIN * self.tolerance
        return Check(state.value, state.gap, violation, ready)

    def _undo(self, state: _Working, before: float) -> None:
        """Go back to where the block started, and take shorter steps from there."""
        state.failures += 1
        state.beliefs.adopt(state.snapshot)
        state.rate *= SHRINK
        state.beliefs.drift *= SHRINK
        state.allowed = max(state.allowed * 0.3, 1e-13)
        # Inconsistent beliefs can look better than any point of L(G): compare with a consistent one next time.
        self.problem.sweeper.sweeps(state.beliefs, MOST_SWEEPS, state.allowed)
        if state.failures > MOST_FAILURES:
            self.note_bound(state)
            raise Stop(stalled(state.done, self._gap(state, before), self.tolerance, Goal.GAP))

    def _block(self, state: _Working, count: int) -> tuple[list[float], list[float]]:
        """`count` steps; the values before each and after the last, and <g, tau> before each."""
        values, crosses = [], []
        problem, beliefs = self.problem, state.beliefs
        while len(values) < count:
            if problem.takes_fused(state.rate):
                found, before = problem.steps_fused(
                    beliefs,
                    state.rate,
                    count - len(values),
                    state.foresee,
                    MOST_SWEEPS,
                    state.allowed,
                )
                values += before.tolist()
                crosses += found.crosses.tolist()
                sweeps = found.sweeps
            else:
                beliefs.settle()
                value, gradient = problem.value_and_grad(beliefs.tau)
                values.append(value)
                if self.fixed is None and problem.too_far(gradient, state.rate):
                    return [*values, np.inf], crosses
                crosses.append(dot(gradient, beliefs.tau))
                problem.step(beliefs, gradient, state.rate, state.foresee)
                sweeps = 1
                if beliefs.violation > state.allowed:
                    sweeps += problem.sweeper.sweeps(beliefs, MOST_SWEEPS - 1, state.allowed)
            state.foresee = problem.sweeper.track = state.foresee or sweeps > 2
        values.append(self._value(state))
        return values, crosses

    def _value(self, state: _Working) -> float:
        state.beliefs.settle()
        inside, tau = self.problem.wiring, state.beliefs.tau
        values = tau if inside.same_order else inside.leave(tau).values
        return self.problem.bound.value_and_grad(values)[0]

    # -- the certificate -------------------------------------------------------------------------

    def note_bound(self, state: _Working) -> None:
        state.beliefs.settle()
        state.bound = max(state.bound, state.window.bound(self.problem, state.beliefs))

    def _gap(self, state: _Working, value: float) -> float:
        return max(0.0, value - state.bound) / max(abs(value), 1e-300)
