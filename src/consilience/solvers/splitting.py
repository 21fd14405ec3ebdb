"""Splitting: Problem 2 with weighted squared loss, by Douglas-Rachford in the residual basis. Linear passes, no step size.

The problem is in `split_problem.py`, one iteration and its certificate in `split_iteration.py`; here they become a method of the
loop, with what decides that it ends and the feasible point that it ends with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector
from consilience.errors import LossError
from consilience.loop import Check, Goal, iterate
from consilience.measurements import BoundControl, SquaredLoss
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.feasible import inner_point, respect
from consilience.solvers.mending import mended
from consilience.solvers.solution import Solution
from consilience.solvers.split_iteration import (
    Certificate,
    SplitIteration,
    SplittingState,
    certify,
)
from consilience.solvers.split_problem import SplitProblem
from consilience.solvers.work import MANY
from consilience.status import CONVERGED, out_of_iterations
from consilience.tree.point import TreePoint

CHECK = 10
DEFAULT_ITERATIONS = 20_000
MOST_CHANGES = 30
"""Changes of the penalty in one solve."""


def splitting(
    loss: SquaredLoss,
    graph: RegionGraph,
    *,
    iterations: int | None = None,
    tolerance: float = 1e-6,
    state: SplittingState | None = None,
    possible: Mapping[Clique, Buffer] | None = None,
    controls: Sequence[BoundControl] = (),
    absolute: bool = False,
    progress: Progress | None = None,
) -> Solution:
    """Minimise a squared loss over L(graph); the solution's tau has one table per region of the graph.

    `state` of an earlier solution is a warm start, over the same graph or over one that has more or fewer cliques.
    `absolute` replaces the squares by sqrt(2) |N tau - y| / stddev, the exact likelihood of Laplace noise (soft thresholds); it
    takes plain measurements of regions without parents.
    """
    began = perf_counter()
    if not isinstance(loss, SquaredLoss):
        raise LossError(
            f"the splitting solver takes a SquaredLoss, got {type(loss).__name__}; use solver='prox'"
        )
    known = None if state is None else state.structure
    problem = SplitProblem(graph, loss, possible, absolute, known, controls)
    return solve(problem, iterations, tolerance, state=state, progress=progress, began=began)


def solve(
    problem: SplitProblem,
    iterations: int | None,
    tolerance: float,
    *,
    state: SplittingState | None = None,
    progress: Progress | None = None,
    began: float | None = None,
) -> Solution:
    """Solve a compiled problem; `began` is when the work on it did, for the solution's seconds."""
    began = perf_counter() if began is None else began
    if state is not None and not state.fits(problem):
        state = state.carried_into(problem)
    run = iterate(
        _Splitting(problem, state, tolerance if iterations is None else None),
        limit=DEFAULT_ITERATIONS if iterations is None else iterations,
        tolerance=tolerance if iterations is None else None,
        when=lambda done: done + min(50, max(CHECK, done // 5)),
        progress=progress,
    )
    last, scale = run.state, problem.scale
    found = last.found
    end = finish(last.iteration, found, last.tree) if last.end is None else last.end
    bound = min(max(last.bound, found.bound) * scale, end.objective)
    gap = (end.objective - bound) / max(abs(end.objective), found.floor * scale)
    status = run.status
    if iterations is not None and gap <= tolerance:
        status = CONVERGED
    elif iterations is None and not status.converged:
        status = out_of_iterations(run.iterations, gap, tolerance, Goal.GAP)
    return Solution(
        end.tau, end.objective, bound, end.violation, run.iterations, perf_counter() - began, status, "splitting",
        last.iteration.state, floor=found.floor * scale, work=last.iteration.visited,
    )  # fmt: skip


@dataclass(frozen=True)
class End:
    """The feasible point that a solve ends with."""

    tau: CliqueVector
    violation: float
    objective: float


@dataclass
class _Working:
    """What changes in a solve: the iteration, its last certificate, the best bound, and the end once there is one."""

    iteration: SplitIteration
    tree: TreePoint | None
    bound: float = -np.inf
    changes: int = 0
    next_try: int = 0
    end: End | None = None
    found: Certificate = field(init=False)


class _Splitting:
    """Splitting as a method of the loop; `tolerance` None: no end is looked for before the last iteration."""

    def __init__(
        self, problem: SplitProblem, warm: SplittingState | None, tolerance: float | None
    ) -> None:
        self.problem = problem
        self.warm = warm
        self.tolerance = tolerance

    def start(self) -> _Working:
        tree = TreePoint.of(self.problem.graph) if self.problem.plain else None
        return _Working(SplitIteration(self.problem, self.warm), tree)

    def step(self, state: _Working, most: int) -> int:
        state.iteration.step()
        return 1

    def check(self, state: _Working, done: int) -> Check:
        found = certify(state.iteration)
        state.bound = max(state.bound, found.bound)
        state.found = found = replace(found, bound=min(state.bound, found.objective))
        check = Check(found.objective * self.problem.scale, found.gap, found.shrink, ready=False)
        if self._worth_trying(state, done):
            tried = self._try_to_end(state, done)
            if tried is not None:
                return tried
        if done:
            self._adapt(state)
        return check

    def _worth_trying(self, state: _Working, done: int) -> bool:
        """Whether an end may be good enough: the mixture is close or, on a tree, the point before mixing is."""
        tolerance, found = self.tolerance, state.found
        if tolerance is None:
            return False
        if found.gap <= tolerance:
            return self.problem.allowed is None or done >= state.next_try
        size = max(abs(found.consistent), found.floor)
        left = found.consistent - found.bound
        if state.tree is not None:
            return left <= 2 * tolerance * size and done >= state.next_try
        return self._mends and left <= 0.25 * tolerance * size and done >= state.next_try

    def _try_to_end(self, state: _Working, done: int) -> Check | None:
        """The check of a feasible point that meets the tolerance; None if it does not, and then not again soon."""
        assert self.tolerance is not None
        scale = self.problem.scale
        if self._mends and state.tree is None and state.found.gap > self.tolerance:
            end = self._mended(state, self.tolerance)
        else:
            end = finish(state.iteration, state.found, state.tree)
        if end is not None:
            least = max(abs(end.objective), state.found.floor * scale)
            left = end.objective - state.bound * scale
            if left <= self.tolerance * least:
                state.end = end
                gap = min(max(0.0, left) / least, self.tolerance)
                return Check(end.objective, gap, end.violation)
        state.next_try = int(1.2 * done)
        return None

    @property
    def _mends(self) -> bool:
        return self.problem.plain and self.problem.count >= MANY

    def _mended(self, state: _Working, tolerance: float) -> End | None:
        """The end by mending the tables that are negative, at the price of half the tolerance."""
        found, problem = state.found, self.problem
        room = 0.5 * tolerance * max(abs(found.objective), found.floor)
        # The objective is convex along the mixture, so that a part of the share costs at most that part.
        share = found.shrink * min(1.0, room / max(found.objective - found.consistent, 1e-300))
        point = mended(state.iteration, share)
        if point is None:
            return None
        tau = feasible(problem, point[0], 0.0)
        violation = problem.graph.local_polytope_violation(tau)
        return End(tau, violation, problem.value(*point) * problem.scale)

    def _adapt(self, state: _Working) -> None:
        """Balance the residuals: a penalty that makes one much larger than the other is changed."""
        ratio = state.found.primal / max(state.found.dual, 1e-300)
        if state.changes < MOST_CHANGES and (ratio > 3.0 or ratio < 1 / 3.0):
            state.iteration.rescale(float(np.clip(np.sqrt(ratio), 0.5, 2.0)))
            state.changes += 1


def finish(iteration: SplitIteration, found: Certificate, tree: TreePoint | None = None) -> End:
    """The feasible point on every region; on a junction tree the better of two.

    Where cells are impossible, or controls must hold, mixing with the uniform table will not do: cells are emptied and sweeps
    restore consistency.
    """
    problem = iteration.problem
    graph, tau = problem.graph, feasible(problem, iteration.x, found.shrink)
    if problem.allowed is not None:
        inner = inner_point(graph, problem.allowed)
        keeps = None if not problem.controls else problem.keep_controls
        tau, violation = respect(graph, tau, problem.allowed, inner, keeps)
        return End(tau, violation, problem.loss.bind(graph.layout).value_and_grad(tau.values)[0])
    objective = found.objective * problem.scale
    if tree is not None:
        other = tree.near(problem.vector(iteration.prox()))
        value = problem.loss.bind(graph.layout).value_and_grad(other.values)[0]
        tau, objective = (other, value) if value < objective else (tau, objective)
    return End(tau, graph.local_polytope_violation(tau), objective)


def feasible(problem: SplitProblem, x: Buffer, shrink: float) -> CliqueVector:
    """Roots mixed with the uniform table until nothing is negative, all other regions summed from a parent."""
    graph = problem.graph
    if shrink > 0.0:
        x = problem.mixed(x, shrink)
    tau = CliqueVector(graph.layout)
    problem.write(x, tau, graph.roots)
    np.maximum(tau.values, 0.0, out=tau.values)
    graph.sum_from_parents(tau)
    return tau
