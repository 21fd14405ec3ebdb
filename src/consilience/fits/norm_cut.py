"""NormCut: least squares made non-negative by taking from the smallest cells. Often closer on sparse tables, not certified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consilience.fits.graph_fit import GraphFit
from consilience.measurements import SquaredLoss
from consilience.model.model import Model
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.norm_cut import norm_cut_fit
from consilience.solvers.solution import Solution


@dataclass(frozen=True, eq=False, repr=False)
class NormCut(GraphFit):
    """Consistent tables by least squares and cutting the smallest cells, in turns; no loss is minimised.

    On sparse tables of high order its total variation is often lower than that of `LeastSquares`, which keeps a haze of
    small positive cells. "auto" is local consistency, whose tables are the measured ones.
    """

    queries: ClassVar[bool] = False
    closed_form: ClassVar[bool] = True
    why: ClassVar[str] = "it cuts the measured cells themselves"
    roots_measured: ClassVar[bool] = True

    consistency: str | RegionGraph = "auto"
    memory: str | int | float = "2 GB"

    def solve(
        self, loss: SquaredLoss, graph: RegionGraph, warm: Model | None, progress: Progress
    ) -> Solution:
        return norm_cut_fit(loss, graph, progress=progress)
