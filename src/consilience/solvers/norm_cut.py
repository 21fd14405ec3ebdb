"""Norm-cut: least squares made non-negative by taking from the smallest cells, not from all of them alike.

The optimal fit subtracts about the same from every cell of a table until nothing is negative, so a sparse table keeps a haze of
small positive cells. Here negative cells become zero and the smallest positive ones pay for them, in turns with the exact least
squares solution of consistency. No loss is minimised and nothing is certified; on sparse tables of high order the total
variation is lower.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np

from consilience.domain import CliqueVector
from consilience.errors import ConsilienceError
from consilience.kernels.cells import norm_cut_all
from consilience.kernels.threads import spread
from consilience.loop import Check, Goal, iterate
from consilience.measurements import SquaredLoss
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.feasible import polish_tables
from consilience.solvers.solution import Solution
from consilience.solvers.split_iteration import SplitIteration
from consilience.solvers.split_problem import SplitProblem
from consilience.solvers.splitting import feasible
from consilience.status import not_certified

ROUNDS = 60
AGREED = 1e-6
"""Mean L1 distance per table between the consistent tables and the cut ones at which the turns end."""
CONSISTENT = 1e-9
LEAST = 1e-12
"""What an emptied cell keeps, so that sweeps can still make the tables agree."""


def norm_cut_fit(
    loss: SquaredLoss,
    graph: RegionGraph,
    *,
    rounds: int = ROUNDS,
    progress: Progress | None = None,
) -> Solution:
    """Consistent, non-negative tables by least squares and norm-cut in turns; `bound` is 0, the least any squared loss can be."""
    began = perf_counter()
    measured = {m.clique for m in loss.measurements if m.is_identity}
    bare = next((graph.regions[i] for i in graph.roots if graph.regions[i] not in measured), None)
    if bare is not None:
        raise ConsilienceError(
            f"nonnegativity='norm-cut' needs every region without parents measured cell by cell, got {bare} otherwise; "
            "use consistency='local' and plain marginals, or nonnegativity='optimal'"
        )
    run = iterate(
        _NormCut(SplitProblem(graph, loss)),
        limit=rounds,
        tolerance=AGREED,
        goal=Goal.VIOLATION,
        progress=progress,
    )
    tau, violation = _agreed(run.state.iteration)
    value = loss.bind(graph.layout).value_and_grad(tau.values)[0]
    status, seconds = not_certified("norm-cut"), perf_counter() - began
    return Solution(
        tau, value, 0.0, violation, run.iterations, seconds, status, "norm-cut", work=run.state.iteration.visited
    )  # fmt: skip


@dataclass
class _Turns:
    """`iteration.y` are the tables by now; `away` how far the last cut took them from the consistent ones."""

    iteration: SplitIteration
    away: float = np.inf


class _NormCut:
    """Least squares and norm-cut in turns, as a method of the loop."""

    def __init__(self, problem: SplitProblem) -> None:
        self.problem = problem

    def start(self) -> _Turns:
        iteration = SplitIteration(self.problem)
        iteration.penalise(0.0)
        return _Turns(iteration)

    def step(self, state: _Turns, most: int) -> int:
        tables = self.problem.ties.roots
        consistent = state.iteration.consistent()
        cut = consistent.copy()
        spread(norm_cut_all, len(tables.at), len(cut), cut, tables.at, tables.cells)
        state.away = float(np.abs(cut - consistent).sum()) / len(tables.at)
        state.iteration.y = cut
        return 1

    def check(self, state: _Turns, done: int) -> Check:
        return Check(violation=state.away)


def _agreed(iteration: SplitIteration) -> tuple[CliqueVector, float]:
    """Tables that agree: by sweeps, which keep small cells small; where zeros contradict each other, least squares."""
    problem = iteration.problem
    graph, roots = problem.graph, problem.ties.roots
    tau, violation = polish_tables(graph, problem.vector(np.maximum(iteration.y, LEAST)))
    if violation <= CONSISTENT:
        return tau, violation
    for clique, y in problem.structure.by_clique(iteration.y):
        y[...] = problem.enter(tau[clique], clique)
    consistent = iteration.consistent()
    below = np.maximum(-np.minimum.reduceat(consistent, roots.at), 0.0)
    tau = feasible(problem, consistent, float((below / (below + 1.0 / roots.cells)).max()))
    return tau, graph.local_polytope_violation(tau)
