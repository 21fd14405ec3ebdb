"""Points of the local polytope: from nearly consistent tables to tables that agree, and cells that cannot occur.

Sweeps bring beliefs close (they are KL projections, so they keep zeros and stay near). Where the sweeps that the work allows are
not enough, the closest consistent tables are found in closed form, and mixed with uniform ones until none is negative. What is
left is measured, not assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from consilience.domain import CliqueVector
from consilience.errors import DomainError, RegionGraphError
from consilience.kernels.cells import NONNEGATIVE
from consilience.kernels.splitting import Roots
from consilience.kernels.tables import FLOOR
from consilience.loop import Goal, iterate
from consilience.regions.region_graph import RegionGraph
from consilience.regions.ties import Projection, Ties
from consilience.regions.wiring import Wiring
from consilience.solvers.convex_gbp import Sweeps
from consilience.solvers.sweeper import Beliefs

POLISHED = 1e-11
MOST_SWEEPS = 20_000
FEW_SWEEPS, FREE_CELLS = 20, 20_000_000
"""Sweeps that the end of a solve may always take, or as many as visit this many cells; besides, one per iteration."""
FEASIBLE = 1e-9


def polish_tables(graph: RegionGraph, roots: CliqueVector) -> tuple[CliqueVector, float]:
    """Consistent tau and the violation that is left, from positive tables of the regions without parents that nearly agree."""
    vector = CliqueVector(graph.layout)
    for r in graph.roots:
        vector[graph.regions[r]][...] = roots[graph.regions[r]]
    graph.sum_from_parents(vector)
    violation = graph.local_polytope_violation(vector)
    if violation <= POLISHED:
        return vector, violation
    wiring = Wiring.of(graph)
    beliefs = Beliefs.uniform(wiring)
    beliefs.tau = np.maximum(wiring.enter(vector), FLOOR)
    beliefs.settle()
    return polish(graph, beliefs, limit=2000)


def sweeps_allowed(graph: RegionGraph, iterations: int) -> int:
    """Sweeps at the end of a solve of so many iterations: by counted work, so that the end never outweighs the solve by far."""
    return min(MOST_SWEEPS, iterations + max(FEW_SWEEPS, FREE_CELLS // graph.cells))


def polish(
    graph: RegionGraph, beliefs: Beliefs, limit: int = MOST_SWEEPS
) -> tuple[CliqueVector, float]:
    """Non-negative tau and the violation that is left after at most so many sweeps; the given beliefs stay as they are."""
    state = beliefs.copy()
    sweeps = Sweeps(state, "sequential", POLISHED)
    iterate(sweeps, limit=limit, tolerance=POLISHED, goal=Goal.VIOLATION)
    state.settle()
    tau = state.marginals()
    return tau, graph.local_polytope_violation(tau)


def polish_within(
    graph: RegionGraph, beliefs: Beliefs, iterations: int
) -> tuple[CliqueVector, float]:
    """`polish` within what a solve of so many iterations allows, and the rest in closed form where the graph has one."""
    tau, violation = polish(graph, beliefs, sweeps_allowed(graph, iterations))
    if violation <= FEASIBLE:
        return tau, violation
    try:
        ties = Ties.of(graph)
    except RegionGraphError:  # no closed form: what is left is reported
        return tau, violation
    other = _projected(graph, ties, tau)
    left = graph.local_polytope_violation(other)
    return (other, left) if left < violation else (tau, violation)


def _projected(graph: RegionGraph, ties: Ties, tau: CliqueVector) -> CliqueVector:
    """The closest consistent tables (Euclidean), mixed with uniform ones until nothing is negative."""
    wiring = Wiring.of(graph)
    values, cells = wiring.enter(tau), ties.roots.cells
    is_root = np.zeros(len(graph.regions), bool)
    is_root[graph.roots] = True
    inside = np.repeat(is_root, wiring.tables.cells)
    x, y, count = np.empty(ties.roots.length), values[inside], len(cells)
    projection = Projection(ties)
    projection.weigh(np.ones(count))
    # With mix 0 the data y themselves are projected; the state v is not read.
    projection.project(Roots(y, x, y, x, np.full(count, NONNEGATIVE, np.int64), np.zeros(count)))
    below = np.maximum(-np.minimum.reduceat(x, ties.roots.at), 0.0)
    share = float((below / (below + 1.0 / cells)).max())
    values[inside] = np.maximum((1.0 - share) * x + share * np.repeat(1.0 / cells, cells), 0.0)
    out = wiring.leave(values)
    graph.sum_from_parents(out)
    return out


# -- structural zeros: cells that cannot occur, as 0/1 tables on the regions ------------------------------


def masks_of(graph: RegionGraph, possible: Mapping[Any, Any]) -> CliqueVector:
    """One where a cell may hold mass, zero where a declared mask, or what it implies along the edges, forbids it.

    A mask's axes follow the order in which its key names the attributes.
    """
    domain = graph.domain
    allowed = CliqueVector(graph.layout, np.ones(graph.layout.cells))
    for given, mask in possible.items():
        order = (given,) if isinstance(given, str) else tuple(given)
        clique, table = domain.clique(order), np.asarray(mask)
        if len(clique) != len(order) or table.shape != domain.shape_of(order):
            raise DomainError(
                f"the mask of possible cells of {order} must have shape {domain.shape_of(order)}, got {table.shape}"
            )
        if table.dtype != np.bool_:
            raise DomainError(
                f"the mask of possible cells of {order} must be True or False in every cell, got type {table.dtype}"
            )
        if graph.first_unsupported([clique]) is not None:
            raise DomainError(
                f"some region must contain the impossible cells' attributes {clique}, none does; measure such a clique"
            )
        table = table.transpose([order.index(a) for a in clique])
        for region in graph.regions:
            if set(clique) <= set(region):
                shape = [domain[a] if a in clique else 1 for a in region]
                allowed[region][...] *= table.reshape(shape)
    _imply(graph, allowed)
    for region, table in allowed.items():
        if not table.any():
            raise DomainError(
                f"the masks must leave some cell of {region} possible, they leave none"
            )
    return allowed


def _imply(graph: RegionGraph, allowed: CliqueVector) -> None:
    """A cell of a child needs a possible cell in every parent, one of a parent a possible cell in every child."""
    before = -1.0
    while allowed.values.sum() != before:
        before = allowed.values.sum()
        for parent, child in graph.edges:
            axes = tuple(i for i, a in enumerate(parent) if a not in child)
            allowed[child][...] *= allowed[parent].any(axis=axes)
            shape = [graph.domain[a] if a in child else 1 for a in parent]
            allowed[parent][...] *= allowed[child].reshape(shape)


def inner_point(graph: RegionGraph, allowed: CliqueVector) -> CliqueVector:
    """The point of greatest entropy that respects the masks: positive wherever mass is possible."""
    state = Beliefs.uniform(Wiring.of(graph), allowed)
    tau, violation = polish(graph, state, limit=MOST_SWEEPS)
    if violation > FEASIBLE:
        raise DomainError(
            f"the masks must leave some consistent distribution, none was found (violation {violation:.2g}); allow more cells"
        )
    return tau


def respect(
    graph: RegionGraph,
    tau: CliqueVector,
    allowed: CliqueVector,
    inner: CliqueVector,
    keep: Callable[[CliqueVector], tuple[CliqueVector, float]] | None = None,
) -> tuple[CliqueVector, float]:
    """A consistent point next to tau with nothing on impossible cells, and the violation left.

    What lies on impossible cells is dropped, a little of the inner point makes up for it, and sweeps (which keep zeros) restore
    consistency; `keep` does that where more than consistency is asked for.
    """
    dropped = float((tau.values * (1.0 - allowed.values)).sum())
    share = min(0.5, max(1e-9, 10.0 * dropped))
    near = CliqueVector(
        graph.layout, (1.0 - share) * tau.values * allowed.values + share * inner.values
    )
    if keep is not None:
        return keep(near)
    wiring = Wiring.of(graph)
    state = Beliefs.uniform(wiring, allowed)
    state.tau = wiring.enter(near)
    state.settle()
    return polish(graph, state)
