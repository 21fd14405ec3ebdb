"""LaplaceLikelihood: the exact likelihood of Laplace noise in place of least squares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from consilience.domain import Clique, Cliques, Domain
from consilience.errors import LossError
from consilience.fits.graph_fit import (
    SplittingFit,
    check_iterations,
    check_tolerance,
)
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.planner import Plan
from consilience.solvers.work import Load


@dataclass(frozen=True, eq=False, repr=False)
class LaplaceLikelihood(SplittingFit):
    """Minimise sqrt(2) |table - measurement| / stddev over consistent tables: soft thresholds instead of squares.

    The arguments mean what they mean for `LeastSquares`; "auto" is local consistency, whose tables are the measured ones.
    """

    absolute: ClassVar[bool] = True
    queries: ClassVar[bool] = False
    nested: ClassVar[bool] = False
    why: ClassVar[str] = "its thresholds are those of measured cells"

    consistency: str | RegionGraph = "auto"
    memory: str | int | float = "2 GB"
    tolerance: float = 1e-6
    iterations: int | None = None

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)
        check_iterations(self.iterations)

    def _plan(self, domain: Domain, cliques: Iterable[Clique], load: Load) -> Plan:
        """Refuses here what the solver would, so that a mechanism hears of it before it spends."""
        listed = Cliques.of(domain, cliques)
        plan = super()._plan(domain, listed, load)
        inside = np.flatnonzero(
            (plan.graph.root_cliques.find(listed) < 0) & (listed.sets.ranks > 0)
        )
        if len(inside):
            raise LossError(
                f"LaplaceLikelihood takes tables measured plainly and once, none inside another region, got {listed[inside[0]]}; "
                "leave it out, or use another fit, such as LeastSquares"
            )
        return plan
