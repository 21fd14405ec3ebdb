"""LeastSquares: the closest consistent, non-negative tables to the measurements. The paper's estimator, certified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from time import perf_counter

from consilience.domain import Buffer, Clique
from consilience.errors import ConsilienceError
from consilience.fits.graph_fit import (
    GraphFit,
    check_iterations,
    check_tolerance,
    masks_by_clique,
)
from consilience.inference.impossible import Masks, held
from consilience.inference.model import Model
from consilience.measurements import SquaredLoss
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.planner import TIME_LIMIT
from consilience.solvers.prox import ProxState, prox_pgm
from consilience.solvers.solution import Solution
from consilience.solvers.split_problem import SplitProblem, Structure
from consilience.solvers.splitting import run


@dataclass(frozen=True, eq=False, repr=False)
class LeastSquares(GraphFit):
    """Minimise the squared distances to the measurements, divided by their variances, over consistent tables.

    consistency: "auto" (global where it fits the memory and is expected to take no more than time_limit seconds, else
    local), "global", "local", "factor", or a RegionGraph. possible: {clique: boolean table}, False where a combination
    cannot occur, which no answer and no row then shows. tolerance: the relative gap to the optimum at which a solve ends.
    solver: "auto" and "splitting" are the fast one, "prox" is the paper's Prox-PGM. iterations: how many to make, whatever
    the gap; None for as many as the tolerance needs.
    """

    consistency: str | RegionGraph = "auto"
    memory: str | int | float = "2 GB"
    time_limit: float = TIME_LIMIT
    tolerance: float = 1e-6
    possible: Masks = field(default_factory=dict)
    solver: str = "auto"
    iterations: int | None = None

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)
        check_iterations(self.iterations)
        object.__setattr__(self, "possible", masks_by_clique(self.possible))
        if self.possible and self.solver == "prox":
            raise ConsilienceError(
                "combinations that cannot occur need the splitting solver; leave out solver= or possible="
            )

    @property
    def unmeasured(self) -> str:
        return "backbone" if self.consistency == "auto" else "local"

    @property
    def closed_form(self) -> bool:
        return True

    def in_rounds(self) -> LeastSquares:
        """Rounds fit local tables: a junction tree of every round's cliques would be solved again and again."""
        return replace(self, consistency="local") if self.consistency == "auto" else self

    def coarser(self, tolerance: float) -> LeastSquares:
        return replace(self, tolerance=max(self.tolerance, tolerance))

    def solve(
        self, loss: SquaredLoss, graph: RegionGraph, warm: Model | None, progress: Progress
    ) -> Solution:
        if self.solver == "prox":
            state = None if warm is None or warm.graph is not graph else warm.state
            return prox_pgm(
                loss,
                graph,
                iterations=self.iterations,
                tolerance=self.tolerance,
                state=state if isinstance(state, ProxState) and self.iterations is None else None,
                callback=progress,
            )
        return split(loss, graph, self.possible, self.iterations, self.tolerance, warm, progress)


@dataclass(frozen=True, eq=False)
class SplitState:
    """Where a solve by splitting ended: its buffer, whole and clique by clique, the penalty, and what was compiled."""

    v: Buffer
    tables: dict[Clique, Buffer]
    rho: float
    structure: Structure


def split(
    loss: SquaredLoss,
    graph: RegionGraph,
    possible: Masks,
    iterations: int | None,
    tolerance: float,
    warm: Model | None,
    progress: Progress,
    absolute: bool = False,
) -> Solution:
    """Solve by splitting, from where the warm start ended: tables that it had go on, new ones start at their data."""
    began = perf_counter()
    state = None if warm is None or iterations is not None else warm.state
    if not isinstance(state, SplitState):
        state = None
    same = warm is not None and warm.graph is graph and warm.cliques == loss.cliques
    problem = SplitProblem(
        graph,
        loss,
        held(graph, possible) or None,
        absolute,
        state.structure if state is not None and same else None,
    )
    if state is not None and same:
        problem.v[...] = state.v
        problem.penalise(state.rho)
    elif state is not None:
        problem.rescale(state.rho / problem.rho)
        for clique, v in _spans(problem):
            if clique in state.tables:
                v[...] = state.tables[clique]
    solution = run(problem, began, iterations, tolerance, progress)
    ended = SplitState(problem.v, dict(_spans(problem)), problem.rho, problem.structure)
    return replace(solution, state=ended)


def _spans(problem: SplitProblem) -> Iterator[tuple[Clique, Buffer]]:
    """Each root clique's part of the state, a view in the solver's own order of cells."""
    roots = problem.ties.roots
    for i, clique in enumerate(problem.root_cliques):
        at = int(roots.at[i])
        yield clique, problem.v[at : at + int(roots.cells[i])]
