"""Norm-cut: least squares made non-negative by taking from the smallest cells, not from all of them alike.

The optimal fit subtracts about the same from every cell of a table until nothing is negative, so a sparse table keeps a haze of
small positive cells. Here negative cells become zero and the smallest positive ones pay for them, in turns with the exact least
squares solution of consistency. No loss is minimised and nothing is certified; on sparse tables of high order the total
variation is lower.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np

from consilience.domain import Buffer, CliqueVector
from consilience.errors import ConsilienceError
from consilience.kernels.threads import threads_for
from consilience.kernels.views import norm_cut_all
from consilience.measurements import SquaredLoss
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.polish import polish_tables
from consilience.solvers.solution import Iteration, Solution
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
    callback: Callable[[Iteration], None] | None = None,
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
    solver = SplitProblem(graph, loss)
    solver.penalise(0.0)
    tables = solver.ties.roots
    away, done = np.inf, 0
    while done < rounds and away > AGREED:
        consistent = _least_squares(solver)
        cut = consistent.copy()
        with threads_for(len(cut)):
            norm_cut_all(cut, tables.at, tables.cells)
        away = float(np.abs(cut - consistent).sum()) / len(tables.at)
        solver.y[...] = cut
        done += 1
        if callback is not None:
            callback(Iteration(done, float("nan"), float("nan"), away))
    tau, violation = _agreed(solver)
    value = loss.bind(graph.layout).value_and_grad(tau.values)[0]
    status = not_certified("norm-cut")
    return Solution(tau, value, 0.0, violation, done, perf_counter() - began, status, "norm-cut")


def _agreed(solver: SplitProblem) -> tuple[CliqueVector, float]:
    """Tables that agree: by sweeps, which keep small cells small; where zeros contradict each other, least squares."""
    graph, cells = solver.graph, solver.ties.roots.cells
    tau, violation = polish_tables(graph, solver.vector(np.maximum(solver.y, LEAST)))
    if violation <= CONSISTENT:
        return tau, violation
    for i, clique in enumerate(solver.root_cliques):
        solver.y[solver._span(solver.ties.roots, i)] = solver._enter(tau[clique], clique)
    consistent = _least_squares(solver)
    below = np.maximum(-np.minimum.reduceat(consistent, solver.ties.roots.at), 0.0)
    tau = feasible(solver, consistent, float((below / (below + 1.0 / cells)).max()))
    return tau, graph.local_polytope_violation(tau)


def _least_squares(solver: SplitProblem) -> Buffer:
    """The consistent tables closest to `solver.y`, whatever their sign."""
    with threads_for(solver.work):
        solver.project()
        solver._spread(False)
    return solver.x
