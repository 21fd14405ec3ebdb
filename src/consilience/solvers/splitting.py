"""Splitting: Problem 2 with weighted squared loss, by Douglas-Rachford in the residual basis. Linear passes, no step size.

The problem and one iteration are in `split_problem.py`; here is the loop around it, with its stopping and its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector
from consilience.errors import LossError
from consilience.measurements import SquaredLoss
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.polish import sum_from_parents
from consilience.solvers.solution import Iteration, Solution
from consilience.solvers.split_check import Check
from consilience.solvers.split_problem import SplitProblem, Structure
from consilience.solvers.structural_zeros import inner_point, respect
from consilience.status import CONVERGED, Status, as_asked, out_of_iterations
from consilience.tree.point import TreePoint

CHECK = 10
DEFAULT_ITERATIONS = 20_000


@dataclass
class SplittingState:
    """What a continued solve needs: the buffer v and the penalty, relative to the data weights; what was compiled, if known."""

    v: Buffer
    rho: float
    structure: Structure | None = None

    def copy(self) -> SplittingState:
        return SplittingState(self.v.copy(), self.rho, self.structure)


def splitting(
    loss: SquaredLoss,
    graph: RegionGraph,
    *,
    iterations: int | None = None,
    tolerance: float = 1e-6,
    state: SplittingState | None = None,
    possible: Mapping[Clique, Buffer] | None = None,
    absolute: bool = False,
    callback: Callable[[Iteration], None] | None = None,
) -> Solution:
    """Minimise a squared loss over L(graph); the solution's tau has one table per region of the graph.

    `absolute` replaces the squares by sqrt(2) |N tau - y| / stddev, the exact likelihood of Laplace noise (soft thresholds); it
    takes plain measurements of regions without parents.
    """
    began = perf_counter()
    if not isinstance(loss, SquaredLoss):
        raise LossError(
            f"the splitting solver takes a SquaredLoss, got {type(loss).__name__}; use solver='prox'"
        )
    known = None if state is None else state.structure
    solver = SplitProblem(graph, loss, possible, absolute, known)
    if state is not None:
        solver.v[...] = state.v
        solver.penalise(state.rho)
    return run(solver, began, iterations, tolerance, callback)


def run(
    solver: SplitProblem,
    began: float,
    iterations: int | None,
    tolerance: float,
    callback: Callable[[Iteration], None] | None,
) -> Solution:
    limit = DEFAULT_ITERATIONS if iterations is None else iterations
    x = np.empty_like(solver.v)
    done, every, status = 0, CHECK, None
    best_bound = -np.inf
    look = solver.check(x)
    changes, next_try = 0, 0
    tree = TreePoint.of(solver.graph) if solver.plain else None
    end: End | None = None
    while done < limit:
        for _ in range(min(every, limit - done)):
            solver.iterate()
            done += 1
        look = solver.check(x)
        best_bound = max(best_bound, look.bound)
        look = replace(look, bound=min(best_bound, look.objective))
        if callback is not None:
            callback(Iteration(done, look.objective * solver.scale, look.gap, look.shrink))
        certain = look.gap <= tolerance and solver.allowed is None
        if iterations is None and (certain or (done >= next_try and _near(look, tolerance, tree))):
            end = finish(solver, x, look, tree)
            least = max(abs(end.objective), look.floor * solver.scale)
            if end.objective - best_bound * solver.scale <= tolerance * least:
                status = CONVERGED
                break
            end, next_try = None, int(1.2 * done)
        every = min(50, max(CHECK, done // 5))
        ratio = look.primal / max(look.dual, 1e-300)
        if changes < 30 and (ratio > 3.0 or ratio < 1 / 3.0):
            solver.rescale(float(np.clip(np.sqrt(ratio), 0.5, 2.0)))
            changes += 1
    end = finish(solver, x, look, tree) if end is None else end
    bound = min(max(best_bound, look.bound) * solver.scale, end.objective)
    if status is None:
        gap = (end.objective - bound) / max(abs(end.objective), look.floor * solver.scale)
        status = _unfinished(done, iterations, gap, tolerance)
    return Solution(
        end.tau, end.objective, bound, end.violation, done, perf_counter() - began, status, "splitting",
        SplittingState(solver.v, solver.rho, solver.structure), None, look.floor * solver.scale,
    )  # fmt: skip


def _near(look: Check, tolerance: float, tree: TreePoint | None) -> bool:
    """Whether an end is worth trying: the mixture is close enough or, on a tree, the point before mixing is."""
    size = max(abs(look.consistent), look.floor)
    return look.gap <= tolerance or (
        tree is not None and look.consistent - look.bound <= 2 * tolerance * size
    )


def _unfinished(done: int, asked: int | None, gap: float, tolerance: float) -> Status:
    if asked is not None:
        return CONVERGED if gap <= tolerance else as_asked(done)
    return out_of_iterations(done, gap, tolerance, "the relative gap")


@dataclass(frozen=True)
class End:
    """The feasible point that a solve ends with."""

    tau: CliqueVector
    violation: float
    objective: float


def finish(solver: SplitProblem, x: Buffer, look: Check, tree: TreePoint | None = None) -> End:
    """The feasible point on every region; on a junction tree the better of two.

    Where cells are impossible mixing with the uniform table will not do: they are emptied and sweeps restore consistency.
    """
    graph, tau = solver.graph, feasible(solver, x, look.shrink)
    if solver.allowed is not None:
        tau, violation = respect(graph, tau, solver.allowed, inner_point(graph, solver.allowed))
        return End(tau, violation, solver.loss.bind(graph.layout).value_and_grad(tau.values)[0])
    objective = look.objective * solver.scale
    if tree is not None:
        other = tree.near(solver.vector(solver.nonnegative()))
        value = solver.loss.bind(graph.layout).value_and_grad(other.values)[0]
        tau, objective = (other, value) if value < objective else (tau, objective)
    return End(tau, graph.local_polytope_violation(tau), objective)


def feasible(solver: SplitProblem, x: Buffer, shrink: float) -> CliqueVector:
    """Roots mixed with the uniform table until nothing is negative, all other regions summed from a parent."""
    graph = solver.graph
    count = solver.ties.roots.cells
    if shrink > 0.0:
        x = (1.0 - shrink) * x + shrink * np.repeat(1.0 / count, count)
    x = np.maximum(x, 0.0)
    tau = CliqueVector(graph.layout)
    for i, clique in enumerate(solver.root_cliques):
        tau[clique][...] = solver._leave(x[solver._span(solver.ties.roots, i)], clique)
    sum_from_parents(graph, tau)
    return tau
