"""Convex-GBP: solve Problem 3 (approximate free energy minimisation over the local polytope) to a tolerance. Algorithm 2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from consilience.domain import CliqueVector
from consilience.errors import RegionGraphError
from consilience.oracles.beliefs import Beliefs, Sweeper
from consilience.regions.region_graph import RegionGraph
from consilience.regions.wiring import Wiring
from consilience.status import CONVERGED, Status, out_of_iterations


@dataclass(frozen=True)
class FreeEnergySolution:
    """tau minimises -<theta, tau> - sum kappa H over L(G), to within `violation`; `dual` is D, the value is -D at the optimum."""

    tau: CliqueVector
    state: Beliefs
    dual: float
    violation: float
    iterations: int
    status: Status


def solve_free_energy(
    graph: RegionGraph,
    theta: CliqueVector | None = None,
    *,
    tolerance: float = 1e-9,
    iterations: int = 100_000,
    schedule: str = "sequential",
    state: Beliefs | None = None,
    callback: Callable[[int, Beliefs], None] | None = None,
) -> FreeEnergySolution:
    """Sweep until the largest L1 gap along an edge is at most `tolerance`.

    Give theta, or a `state` to go on from (a warm start). `schedule` is "sequential" (full updates of regions that share no
    parent, fewest sweeps) or "parallel" (all regions of a level at once, damped, cheapest sweeps); in both the dual never
    rises. `callback` sees the sweep number and the live state.
    """
    if (theta is None) == (state is None):
        raise RegionGraphError(
            "give either theta or a state to start from, not both and not neither"
        )
    if state is None:
        assert theta is not None
        state = start(Wiring.of(graph), theta)
    elif state.wiring.graph is not graph:
        raise RegionGraphError("the state must belong to this graph; it was made for another one")
    sweeper = Sweeper(state.wiring, schedule)
    done = 0
    while done < iterations:
        sweeper.sweep(state)
        done += 1
        if callback is not None:
            state.settle()
            callback(done, state)
        if state.violation <= tolerance:
            break
    state.settle()
    status = (
        CONVERGED
        if state.violation <= tolerance
        else out_of_iterations(done, state.violation, tolerance, "the consistency violation")
    )
    return FreeEnergySolution(state.marginals(), state, state.dual, state.violation, done, status)


def start(wiring: Wiring, theta: CliqueVector) -> Beliefs:
    """Beliefs with potentials theta, given on the regions or on any cliques that the graph supports."""
    graph = wiring.graph
    if theta.cliques != graph.regions:
        missing = graph.first_unsupported(theta.cliques)
        if missing is not None:
            raise RegionGraphError(
                f"the graph must support every clique of theta, got {missing}; no region contains it"
            )
        theta = theta.expand(graph.regions)
    return Beliefs.of_potentials(wiring, theta)


def convex_gbp(
    graph: RegionGraph,
    theta: CliqueVector,
    *,
    tolerance: float = 1e-9,
    iterations: int = 100_000,
    schedule: str = "sequential",
) -> CliqueVector:
    """Algorithm 2 to convergence: the pseudo-marginals that solve Problem 3 for these potentials."""
    return solve_free_energy(
        graph, theta, tolerance=tolerance, iterations=iterations, schedule=schedule
    ).tau
