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

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from consilience.domain import dot
from consilience.errors import LossError
from consilience.kernels.tables import FLOOR
from consilience.kernels.threads import SERIAL_CELLS
from consilience.measurements import Loss
from consilience.oracles.beliefs import Beliefs
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.local import LocalProblem
from consilience.solvers.mirror import mirror_descent
from consilience.solvers.polish import polish
from consilience.solvers.solution import Iteration, Solution
from consilience.status import (
    CONVERGED,
    Status,
    as_asked,
    not_convex,
    out_of_iterations,
    stalled,
    unbounded,
)

BLOCK = 8
"""Steps between two decisions about the step size."""
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
    callback: Callable[[Iteration], None] | None = None,
) -> Solution:
    """Minimise a convex loss over L(graph).

    `iterations` given: exactly that many mirror steps are done. Otherwise stop when the certified relative gap is at most
    `tolerance`. `schedule` None: sequential for small graphs, parallel for large ones. `step` given: that constant step,
    honoured exactly. `accelerated`: the interior gradient
    method, fewer iterations each with more sweeps. `state` from an earlier `Solution` is a warm start (not accelerated).
    """
    began = perf_counter()
    if schedule is None:
        schedule = "sequential" if graph.cells < SERIAL_CELLS else "parallel"
    problem = LocalProblem(loss, graph, schedule)
    if accelerated:
        return _accelerated(problem, iterations, tolerance, step, callback, began)
    run = _Run(problem, step, state)
    limit = iterations if iterations is not None else DEFAULT_ITERATIONS
    status = run.loop(limit, tolerance if iterations is None else None, callback)
    tau, violation = polish(graph, run.beliefs)
    objective, _ = problem.bound.value_and_grad(tau.values)
    run.note_bound()
    solution = Solution(
        tau, objective, min(run.best_bound, objective), violation, run.done, perf_counter() - began, status,
        "Prox-PGM with Convex-GBP", ProxState(run.beliefs, run.rate),
    )  # fmt: skip
    size = max(abs(objective), abs(run.first_value or 0.0))
    if run.best_bound > objective + 1e-6 * size and not status.name.endswith("bounded below"):
        return replace(solution, status=not_convex(run.best_bound, objective))
    if status.converged and solution.gap > 2 * tolerance:
        late = out_of_iterations(run.done, solution.gap, tolerance, "the relative gap")
        return replace(solution, status=late)
    return solution


def _accelerated(
    problem: LocalProblem,
    iterations: int | None,
    tolerance: float,
    step: float | None,
    callback: Callable[[Iteration], None] | None,
    began: float,
) -> Solution:
    result = mirror_descent(
        problem,
        accelerated=True,
        limit=DEFAULT_ITERATIONS if iterations is None else iterations,
        tolerance=tolerance if iterations is None else None,
        step=step,
        callback=callback,
    )
    final = problem.uniform()
    final.tau[:] = np.maximum(result.values, FLOOR)
    tau, violation = polish(problem.graph, final)
    objective, _ = problem.bound.value_and_grad(tau.values)
    return Solution(
        tau, objective, min(result.bound, objective), violation, result.iterations, perf_counter() - began, result.status,
        "accelerated Prox-PGM with Convex-GBP", ProxState(result.state, result.rate),
    )  # fmt: skip


class _Run:
    """One solve: the loop of Algorithm 1 with its bookkeeping."""

    def __init__(self, problem: LocalProblem, step: float | None, state: ProxState | None) -> None:
        self.problem = problem
        self.beliefs = state.beliefs.copy() if state is not None else problem.uniform()
        if self.beliefs.wiring.graph is not problem.graph:
            if self.beliefs.wiring.graph.regions != problem.graph.regions:
                raise LossError("a warm start must come from a solve over the same graph")
            self.beliefs.wiring = problem.wiring
        self.fixed = step is not None
        self.rate = self._first_rate(step, state)
        self.done = 0
        self.foresee = False
        self.best_bound = -np.inf
        self.first_value: float | None = None
        self.snapshot = self.beliefs.copy()
        self.window = _Window(self.beliefs.copy(), 0)

    def _first_rate(self, step: float | None, state: ProxState | None) -> float:
        if step is not None:
            if not (np.isfinite(step) and step > 0):
                raise LossError(f"step must be positive and finite, got {step}")
            return step
        if state is not None:
            return state.rate
        return self.problem.first_rate()

    # -- the loop --------------------------------------------------------------------------------

    def loop(
        self, limit: int, tolerance: float | None, callback: Callable[[Iteration], None] | None
    ) -> Status:
        allowed = 1e-2
        failures = 0
        next_check = 4 * BLOCK
        gap = np.inf
        while self.done < limit:
            count = min(BLOCK, limit - self.done)
            self.snapshot.adopt(self.beliefs)
            values, crosses = self._block(count, allowed)
            before, after = values[0], values[-1]
            self.first_value = before if self.first_value is None else self.first_value
            lowest = float(np.nanmin(values))
            if lowest < min(-1e12, -1e6 * abs(self.first_value)):
                return unbounded(lowest)
            worse = not np.isfinite(after) or after > before + 1e-13 * abs(before)
            if worse and not self.fixed:
                failures += 1
                self.beliefs.adopt(self.snapshot)
                self.rate *= SHRINK
                self.beliefs.drift *= SHRINK
                allowed = max(allowed * 0.3, 1e-13)
                # Inconsistent beliefs can look better than any point of L(G): compare with a consistent one next time.
                self._sweep_to(allowed)
                if failures > 30:
                    self.note_bound()
                    return stalled(
                        self.done, self._gap(before), tolerance or 0.0, "the relative gap"
                    )
                continue
            failures = 0
            for value, cross in zip(values[:-1], crosses, strict=True):
                self.window.add(self.rate, value, cross)
            self.done += count
            if not self.fixed:
                self.rate *= GROWTH
                self.beliefs.drift *= GROWTH
            progress = (before - after) / max(abs(after), 1e-300) / count
            allowed = float(np.clip(0.03 * progress, 1e-12, allowed))
            if self.done >= next_check:
                self.note_bound()
                gap = self._gap(after)
                next_check = int(1.25 * self.done) + BLOCK
                if (
                    tolerance is not None
                    and gap <= 0.5 * tolerance
                    and self.beliefs.violation <= 1e-6
                ):
                    return CONVERGED
                if self.done >= 2 * self.window.first + 4 * BLOCK:
                    self.window = _Window(self.beliefs.copy(), self.done)
            if callback is not None:
                callback(Iteration(self.done, after, gap, self.beliefs.violation))
        if tolerance is None:
            return as_asked(self.done)
        self.note_bound()
        return out_of_iterations(self.done, self._gap(self._value()), tolerance, "the relative gap")

    def _block(self, count: int, allowed: float) -> tuple[list[float], list[float]]:
        """`count` steps; the values before each and after the last, and <g, tau> before each."""
        values, crosses = [], []
        for _ in range(count):
            if self.problem.fused is not None:
                value, cross = self.problem.step_fused(self.beliefs, self.rate, self.foresee)
            else:
                self.beliefs.settle()
                value, gradient = self.problem.value_and_grad(self.beliefs.tau)
                cross = dot(gradient, self.beliefs.tau)
                if not self.fixed and self.problem.too_far(gradient, self.rate):
                    return [*values, value, np.inf], crosses
                self.problem.step(self.beliefs, gradient, self.rate, self.foresee)
            values.append(value)
            crosses.append(cross)
            sweeps = 1
            while self.beliefs.violation > allowed and sweeps < MOST_SWEEPS:
                self.problem.sweep(self.beliefs)
                sweeps += 1
            self.foresee = self.problem.sweeper.track = self.foresee or sweeps > 2
        values.append(self._value())
        return values, crosses

    def _sweep_to(self, allowed: float) -> None:
        for _ in range(MOST_SWEEPS):
            self.problem.sweep(self.beliefs)
            if self.beliefs.violation <= allowed:
                return

    def _value(self) -> float:
        self.beliefs.settle()
        inside = self.problem.wiring
        values = self.beliefs.tau if inside.same_order else inside.leave(self.beliefs.tau).values
        return self.problem.bound.value_and_grad(values)[0]

    # -- the certificate -------------------------------------------------------------------------

    def note_bound(self) -> None:
        self.beliefs.settle()
        self.best_bound = max(self.best_bound, self.window.bound(self.problem, self.beliefs))

    def _gap(self, value: float) -> float:
        return max(0.0, value - self.best_bound) / max(abs(value), 1e-300)
