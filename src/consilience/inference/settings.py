"""Settings: what a model was asked to be, kept so that it can be fitted again to other draws of the noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from consilience.domain import Buffer, Clique
from consilience.errors import ConsilienceError
from consilience.inference.impossible import held
from consilience.measurements import SquaredLoss
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.norm_cut import norm_cut_fit
from consilience.solvers.prior import fit_with_prior
from consilience.solvers.prox import prox_pgm
from consilience.solvers.solution import Solution
from consilience.solvers.splitting import splitting

PRIOR_TOLERANCE = 1e-4
"""A pulled fit is never solved more finely than this: its strength is an estimate itself."""


@dataclass(frozen=True)
class Settings:
    """The arguments of `reconstruct` that decide the estimate, apart from the data and the graph."""

    solver: str = "splitting"
    total_known: bool = True
    iterations: int | None = None
    tolerance: float = 1e-6
    prior: str | None = None
    seed: int = 0
    possible: Mapping[Clique, Buffer] = field(default_factory=dict)
    likelihood: str = "squared"
    nonnegativity: str = "optimal"


def solve(
    loss: SquaredLoss,
    graph: RegionGraph,
    settings: Settings,
    progress: Progress | None = None,
    state: Any = None,
) -> Solution:
    """The constrained least squares fit by the solver of the settings; `state` of an earlier solution is a warm start.

    With a prior the fit is pulled towards its own lower-order marginals instead (no warm start there).
    """
    if settings.prior is not None:
        return _solve_with_prior(loss, graph, settings, progress)
    if settings.nonnegativity == "norm-cut":
        return norm_cut_fit(loss, graph, progress=progress)
    if settings.solver == "splitting":
        return splitting(
            loss,
            graph,
            iterations=settings.iterations,
            tolerance=settings.tolerance,
            state=state,
            possible=held(graph, settings.possible) or None,
            absolute=settings.likelihood == "laplace",
            progress=progress,
        )
    if held(graph, settings.possible):
        raise ConsilienceError(
            "declared impossible cells need solver='splitting' here; leave solver='auto'"
        )
    return prox_pgm(
        loss,
        graph,
        iterations=settings.iterations,
        tolerance=settings.tolerance,
        state=state,
        progress=progress,
    )


def _solve_with_prior(
    loss: SquaredLoss,
    graph: RegionGraph,
    settings: Settings,
    progress: Progress | None,
) -> Solution:
    measured = set(loss.cliques)
    bare = next((graph.regions[i] for i in graph.roots if graph.regions[i] not in measured), None)
    if bare is not None:
        raise ConsilienceError(
            f"prior='independence' needs every region without parents measured, got {bare} unmeasured; "
            "use consistency='local'"
        )
    if settings.solver != "splitting" or settings.possible:
        raise ConsilienceError(
            "prior='independence' works with the splitting solver and without declared impossible "
            "cells; leave solver='auto'"
        )
    fit = fit_with_prior(
        loss.domain,
        loss.measurements,
        graph,
        loss.total,
        rng=np.random.default_rng(settings.seed),
        tolerance=max(settings.tolerance, PRIOR_TOLERANCE),
        progress=progress,
    )
    return replace(fit.solution, prior_strength=fit.strength)
