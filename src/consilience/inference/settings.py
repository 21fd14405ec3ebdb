"""Settings: what a model was asked to be, kept so that it can be fitted again to other draws of the noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from consilience.domain import Buffer, Clique
from consilience.errors import ConsilienceError
from consilience.measurements import SquaredLoss
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.prox import prox_pgm
from consilience.solvers.solution import Iteration, Solution
from consilience.solvers.splitting import splitting


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


def solve(
    loss: SquaredLoss,
    graph: RegionGraph,
    settings: Settings,
    progress: Callable[[Iteration], None] | None = None,
    state: Any = None,
) -> Solution:
    """The constrained least squares fit by the solver of the settings; `state` of an earlier solution is a warm start."""
    if settings.solver == "splitting":
        return splitting(
            loss,
            graph,
            iterations=settings.iterations,
            tolerance=settings.tolerance,
            state=state,
            possible=settings.possible or None,
            callback=progress,
        )
    if settings.possible:
        raise ConsilienceError(
            "declared impossible cells need solver='splitting' here; leave solver='auto'"
        )
    return prox_pgm(
        loss,
        graph,
        iterations=settings.iterations,
        tolerance=settings.tolerance,
        state=state,
        callback=progress,
    )
