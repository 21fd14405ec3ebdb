"""Polish: from nearly consistent beliefs to tables that agree and are non-negative to 1e-9 or better.

Sweeps bring the beliefs close (they are KL projections, so they keep zeros and stay near); the last digits come from
rebuilding every child as its first parent's marginal, so that what is left is measured, not assumed.
"""

from __future__ import annotations

from consilience.domain import CliqueVector
from consilience.oracles.beliefs import Beliefs, Sweeper
from consilience.regions.region_graph import RegionGraph

POLISHED = 1e-11
MOST_SWEEPS = 20_000


def polish(graph: RegionGraph, beliefs: Beliefs, limit: int = MOST_SWEEPS) -> tuple[CliqueVector, float]:
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
