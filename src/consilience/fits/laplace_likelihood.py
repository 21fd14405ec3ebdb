"""LaplaceLikelihood: the exact likelihood of Laplace noise in place of least squares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from consilience.domain import Clique, Domain
from consilience.errors import LossError
from consilience.fits.graph_fit import (
    GraphFit,
    check_iterations,
    check_tolerance,
    masks_by_clique,
)
from consilience.measurements import SquaredLoss
from consilience.model.impossible import Masks, held
from consilience.model.model import Model
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.planner import Plan
from consilience.solvers.solution import Solution
from consilience.solvers.splitting import SplittingState, splitting


@dataclass(frozen=True, eq=False, repr=False)
class LaplaceLikelihood(GraphFit):
    """Minimise sqrt(2) |table - measurement| / stddev over consistent tables: soft thresholds instead of squares.

    The arguments mean what they mean for `LeastSquares`; "auto" is local consistency, whose tables are the measured ones.
    """

    queries: ClassVar[bool] = False
    why: ClassVar[str] = "its thresholds are those of measured cells"

    consistency: str | RegionGraph = "local"
    memory: str | int | float = "2 GB"
    tolerance: float = 1e-6
    possible: Masks = field(default_factory=dict)
    iterations: int | None = None

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)
        check_iterations(self.iterations)
        object.__setattr__(self, "possible", masks_by_clique(self.possible))
        if self.consistency == "auto":
            object.__setattr__(self, "consistency", "local")

    def coarser(self, tolerance: float) -> LaplaceLikelihood:
        return replace(self, tolerance=max(self.tolerance, tolerance))

    def _plan(self, domain: Domain, cliques: Iterable[Clique]) -> Plan:
        """Refuses here what the solver would, so that a mechanism hears of it before it spends."""
        listed = tuple(cliques)
        plan = super()._plan(domain, listed)
        roots = {plan.graph.regions[i] for i in plan.graph.roots}
        inside = next((c for c in listed if c and c not in roots), None)
        if inside is not None:
            raise LossError(
                f"LaplaceLikelihood takes tables measured plainly and once, none inside another region, got {inside}; "
                "leave it out, or use another fit, such as LeastSquares"
            )
        if self.possible:
            raise LossError(
                "LaplaceLikelihood takes no combinations that cannot occur; leave out possible=, or use LeastSquares"
            )
        return plan

    def solve(
        self, loss: SquaredLoss, graph: RegionGraph, warm: Model | None, progress: Progress
    ) -> Solution:
        state = None if warm is None or self.iterations is not None else warm.state
        return splitting(
            loss,
            graph,
            iterations=self.iterations,
            tolerance=self.tolerance,
            state=state if isinstance(state, SplittingState) else None,
            possible=held(graph, self.possible) or None,
            absolute=True,
            progress=progress,
        )
