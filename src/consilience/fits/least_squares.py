"""LeastSquares: the closest consistent, non-negative tables to the measurements. The paper's estimator, certified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from consilience.errors import ConsilienceError
from consilience.fits.graph_fit import (
    SplittingFit,
    check_iterations,
    check_tolerance,
    masks_by_clique,
)
from consilience.measurements import Control, SquaredLoss
from consilience.model.impossible import Masks
from consilience.model.model import Model
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.planner import TIME_LIMIT
from consilience.solvers.prox import ProxState, prox_pgm
from consilience.solvers.solution import Solution

CLEAR = 4.0
"""The usual `clear`: standard errors above zero from which sums of large places keep their least-squares values."""


@dataclass(frozen=True, eq=False, repr=False)
class LeastSquares(SplittingFit):
    """Minimise the squared distances to the measurements, divided by their variances, over consistent tables.

    consistency: "auto" (global where it fits the memory and is expected to take no more than time_limit seconds, else
    local), "global", "local", "factor", or a RegionGraph. possible: {clique: boolean table}, False where a combination
    cannot occur, which no answer and no row then shows. controls: marginals that are public, `Exact(...)` and `Bounds(...)`,
    which every answer keeps. tolerance: the relative gap to the optimum at which a solve ends.
    solver: "auto" and "splitting" are the fast one, "prox" is the paper's Prox-PGM. iterations: how many to make, whatever
    the gap; None for as many as the tolerance needs. clear: on a tree of places, marginals above the leaves that least squares
    has this many standard errors above zero keep its values (docs/hierarchies.md); None for the optimum itself. workers: who
    fits a tree of places, a number of processes or a Spark session; None for this process. The model is the same bit for bit.
    """

    automatic: ClassVar[str] = "auto"
    closed_form: ClassVar[bool] = True

    consistency: str | RegionGraph = "auto"
    memory: str | int | float = "2 GB"
    time_limit: float = TIME_LIMIT
    tolerance: float = 1e-6
    possible: Masks = field(default_factory=dict)
    controls: Sequence[Control] = ()
    solver: str = "auto"
    iterations: int | None = None
    clear: float | None = None
    workers: Any = None

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)
        check_iterations(self.iterations)
        object.__setattr__(self, "possible", masks_by_clique(self.possible))
        object.__setattr__(self, "controls", tuple(self.controls))
        if (self.possible or self.controls) and self.solver == "prox":
            raise ConsilienceError(
                "combinations that cannot occur need the splitting solver; leave out solver= or possible= "
                "(or controls=, which need it too)"
            )

    def solve(
        self, loss: SquaredLoss, graph: RegionGraph, warm: Model | None, progress: Progress
    ) -> Solution:
        if self.solver != "prox":
            return super().solve(loss, graph, warm, progress)
        state = None if warm is None or warm.graph is not graph else warm.state
        return prox_pgm(
            loss,
            graph,
            iterations=self.iterations,
            tolerance=self.tolerance,
            state=state if isinstance(state, ProxState) and self.iterations is None else None,
            progress=progress,
        )
