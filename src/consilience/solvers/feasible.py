"""Points of the local polytope: from nearly consistent tables to tables that agree, and cells that cannot occur.

Sweeps bring beliefs close (they are KL projections, so they keep zeros and stay near); the last digits come from
rebuilding every child as its first parent's marginal, so that what is left is measured, not assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from consilience.domain import CliqueVector
from consilience.errors import DomainError
from consilience.kernels.tables import FLOOR
from consilience.loop import Goal, iterate
from consilience.regions.region_graph import RegionGraph
from consilience.regions.wiring import Wiring
from consilience.solvers.convex_gbp import Beliefs, Sweeps

POLISHED = 1e-11
MOST_SWEEPS = 20_000
FEASIBLE = 1e-9


def polish_tables(graph: RegionGraph, roots: CliqueVector) -> tuple[CliqueVector, float]:
    """Consistent tau and the violation that is left, from positive tables of the regions without parents that nearly agree."""
    vector = CliqueVector(graph.layout)
    for r in graph.roots:
        vector[graph.regions[r]][...] = roots[graph.regions[r]]
    graph.sum_from_parents(vector)
    left = graph.local_polytope_violation(vector)
    if left <= POLISHED:
        return vector, left
    wiring = Wiring.of(graph)
    beliefs = Beliefs.uniform(wiring)
    beliefs.tau = np.maximum(wiring.enter(vector), FLOOR)
    beliefs.settle()
    return polish(graph, beliefs, limit=2000)


def polish(
    graph: RegionGraph, beliefs: Beliefs, limit: int = MOST_SWEEPS
) -> tuple[CliqueVector, float]:
    """Consistent, non-negative tau and the violation that is left; the given beliefs stay as they are."""
    state = beliefs.copy()
    sweeps = Sweeps(state, "sequential", POLISHED)
    iterate(sweeps, limit=limit, tolerance=POLISHED, goal=Goal.VIOLATION)
    state.settle()
    tau = state.marginals()
    return tau, graph.local_polytope_violation(tau)


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
    graph: RegionGraph, tau: CliqueVector, allowed: CliqueVector, inner: CliqueVector
) -> tuple[CliqueVector, float]:
    """A consistent point next to tau with nothing on impossible cells, and the violation left.

    What lies on impossible cells is dropped, a little of the inner point makes up for it, and sweeps (which keep zeros) restore
    consistency.
    """
    dropped = float((tau.values * (1.0 - allowed.values)).sum())
    share = min(0.5, max(1e-9, 10.0 * dropped))
    near = CliqueVector(
        graph.layout, (1.0 - share) * tau.values * allowed.values + share * inner.values
    )
    wiring = Wiring.of(graph)
    state = Beliefs.uniform(wiring, allowed)
    state.tau = wiring.enter(near)
    state.settle()
    return polish(graph, state)
