"""Polish: from nearly consistent beliefs to tables that agree and are non-negative to 1e-9 or better.

Sweeps bring the beliefs close (they are KL projections, so they keep zeros and stay near); the last digits come from
rebuilding every child as its first parent's marginal, so that what is left is measured, not assumed.
"""

from __future__ import annotations

import numpy as np

from consilience.domain import CliqueVector
from consilience.kernels.tables import FLOOR
from consilience.oracles.beliefs import Beliefs, Sweeper
from consilience.regions.region_graph import RegionGraph
from consilience.regions.wiring import Wiring

POLISHED = 1e-11
MOST_SWEEPS = 20_000


def polish_tables(graph: RegionGraph, roots: CliqueVector) -> tuple[CliqueVector, float]:
    """The same from positive tables of the regions without parents that nearly agree."""
    wiring = Wiring.of(graph)
    vector = CliqueVector(graph.layout)
    for r in graph.roots:
        vector[graph.regions[r]][...] = roots[graph.regions[r]]
    sum_from_parents(graph, vector)
    beliefs = Beliefs.uniform(wiring)
    beliefs.tau = np.maximum(wiring.enter(vector), FLOOR)
    beliefs.settle()
    return polish(graph, beliefs, limit=2000)


def sum_from_parents(graph: RegionGraph, tau: CliqueVector) -> None:
    """Make every region that has parents its first parent's marginal, the largest regions first."""
    graph.sum_from_parents(tau)


def polish(
    graph: RegionGraph, beliefs: Beliefs, limit: int = MOST_SWEEPS
) -> tuple[CliqueVector, float]:
    """Consistent, non-negative tau and the violation that is left; the given beliefs stay as they are."""
    state = beliefs.copy()
    sweeper = Sweeper(state.wiring, "sequential")
    for _ in range(limit):
        sweeper.sweep(state)
        if state.violation <= POLISHED:
            break
    state.settle()
    tau = state.marginals()
    return tau, graph.local_polytope_violation(tau)
