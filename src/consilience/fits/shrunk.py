"""Shrunk: tables pulled towards what their lower-order marginals say, or small places towards the shape of the place around
them, as far as the noise warrants. Biased, usually closer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from consilience.domain import Clique, Domain
from consilience.errors import ConsilienceError
from consilience.fits.graph_fit import GraphFit, check_tolerance, masks_by_clique
from consilience.fits.least_squares import CLEAR
from consilience.measurements import Control, SquaredLoss, bound_controls
from consilience.measurements.measurement import Noise
from consilience.model.impossible import Masks
from consilience.model.model import Model
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.place_reading import on_places
from consilience.solvers.planner import Plan
from consilience.solvers.prior import fit_with_prior
from consilience.solvers.solution import Solution
from consilience.solvers.work import USUAL_LOAD, Load

LEAST_TOLERANCE = 1e-4
"""A pulled fit is never solved more finely than this: its strength is an estimate itself."""


@dataclass(frozen=True, eq=False, repr=False)
class Shrunk(GraphFit):
    """Least squares with a pull towards independence, whose strength is chosen from the noise (docs/prior.md).

    controls: marginals that are public, `Exact(...)` and `Bounds(...)`; the pulled tables are scaled to them. seed: of the
    noise that measurements are thinned with to choose the strength. "auto" is local consistency, whose tables
    are the measured ones. On a tree of places (docs/hierarchies.md) it is `LeastSquares` with `clear` at every level but the
    last, whose tables are pulled towards the shape of the place that they lie in; there it takes `possible` and `workers` too.
    """

    noises: ClassVar[tuple[Noise, ...]] = ("gaussian",)
    why: ClassVar[str] = "its strength is chosen by splitting Gaussian noise in two"
    roots_measured: ClassVar[bool] = True

    consistency: str | RegionGraph = "auto"
    memory: str | int | float = "2 GB"
    tolerance: float = LEAST_TOLERANCE
    possible: Masks = field(default_factory=dict)
    controls: Sequence[Control] = ()
    seed: int = 0
    workers: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "possible", masks_by_clique(self.possible))
        object.__setattr__(self, "controls", tuple(self.controls))
        check_tolerance(self.tolerance)

    def plan(self, domain: Domain, cliques: Iterable[Clique], load: Load = USUAL_LOAD) -> Plan:
        cliques = list(cliques)
        asked = [set(domain.clique(c)) for c in cliques]
        if self.possible and not (domain.levels and set().union(*asked) in asked):
            raise _only_on_trees()
        return super().plan(domain, cliques, load)

    def coarser(self, tolerance: float) -> Shrunk:
        return replace(self, tolerance=max(self.tolerance, tolerance))

    def solve(
        self, loss: SquaredLoss, graph: RegionGraph, warm: Model | None, progress: Progress
    ) -> Solution:
        tolerance = max(self.tolerance, LEAST_TOLERANCE)
        controls = bound_controls(loss.domain, self.controls)
        state = None if warm is None else warm.state
        places = on_places(
            loss,
            graph,
            tolerance=tolerance,
            state=state,
            possible=self.possible or None,
            controls=controls,
            clear=CLEAR,
            pulled=True,
            workers=self.workers,
            progress=progress,
        )
        if places is not None:
            return places
        if self.possible or self.workers is not None:
            raise _only_on_trees()
        informed = self._informed(loss)
        found = fit_with_prior(
            loss.domain,
            informed.measurements,
            graph,
            loss.total,
            rng=np.random.default_rng(self.seed),
            tolerance=tolerance,
            progress=progress,
        )
        pulled = replace(found.solution, prior_strength=found.strength)
        return self._kept(loss, graph, pulled)


def _only_on_trees() -> ConsilienceError:
    return ConsilienceError(
        "Shrunk takes combinations that cannot occur, and workers, only for tables at levels of one attribute that one table "
        "holds; use LeastSquares"
    )
