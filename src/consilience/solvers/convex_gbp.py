"""Convex-GBP: solve Problem 3 (approximate free energy minimisation over the local polytope) to a tolerance. Algorithm 2.

Paper: Algorithm 2 keeps two messages per edge. Here: only the regions' beliefs are kept; all messages cancel (the index
slips of the printed algorithm do not arise). With b_r the log-belief of region r, S_p the log of parent p's belief
summed to child t, one update of t is

    q_t = (kappa_t b_t + sum_p kappa_p S_p) / (kappa_t + sum_p kappa_p),    b_p += q_t - S_p,    b_t = q_t,

which is exact block coordinate descent on the dual of Problem 3, D = sum_r kappa_r log sum exp b_r.
"""

from __future__ import annotations

from dataclasses import dataclass

from consilience.domain import CliqueVector
from consilience.errors import RegionGraphError
from consilience.loop import Check, Goal, iterate
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.regions.wiring import Wiring
from consilience.solvers.sweeper import Beliefs, Sweeper
from consilience.status import Status

TOGETHER = 8
"""Sweeps between two looks at the violation."""


@dataclass(frozen=True)
class FreeEnergySolution:
    """tau minimises -<theta, tau> - sum kappa H over L(G), to within `violation`; `dual` is D, the value is -D at the optimum."""

    tau: CliqueVector
    state: Beliefs
    dual: float
    violation: float
    iterations: int
    status: Status


class Sweeps:
    """Sweeps of Convex-GBP over given beliefs, as a method of the loop: they go on until the regions agree."""

    def __init__(self, state: Beliefs, schedule: str, tolerance: float) -> None:
        self.beliefs = state
        self.sweeper = Sweeper(state.wiring, schedule)
        self.tolerance = tolerance

    def start(self) -> Beliefs:
        return self.beliefs

    def step(self, state: Beliefs, most: int) -> int:
        return self.sweeper.sweeps(state, min(most, TOGETHER), self.tolerance)

    def check(self, state: Beliefs, done: int) -> Check:
        return Check(violation=state.violation)


def solve_free_energy(
    graph: RegionGraph,
    theta: CliqueVector | None = None,
    *,
    tolerance: float = 1e-9,
    iterations: int = 100_000,
    schedule: str = "sequential",
    state: Beliefs | None = None,
    progress: Progress | None = None,
) -> FreeEnergySolution:
    """Sweep until the largest L1 gap along an edge is at most `tolerance`.

    Give theta, or a `state` to go on from (a warm start). `schedule` is "sequential" (full updates of regions that share no
    parent, fewest sweeps) or "parallel" (all regions of a level at once, damped, cheapest sweeps); in both the dual never
    rises.
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
    run = iterate(
        Sweeps(state, schedule, tolerance),
        limit=iterations,
        tolerance=tolerance,
        goal=Goal.VIOLATION,
        stage="sweeps",
        progress=progress,
    )
    state.settle()
    return FreeEnergySolution(
        state.marginals(), state, state.dual, state.violation, run.iterations, run.status
    )


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
    progress: Progress | None = None,
) -> CliqueVector:
    """Algorithm 2 to convergence: the pseudo-marginals that solve Problem 3 for these potentials."""
    return solve_free_energy(
        graph,
        theta,
        tolerance=tolerance,
        iterations=iterations,
        schedule=schedule,
        progress=progress,
    ).tau
