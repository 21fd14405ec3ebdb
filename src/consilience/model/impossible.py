"""Combinations that cannot occur, in answers and rows that no region of the model decides.

A mask is {clique: table}, False where a combination cannot occur. The graph of a fit holds every mask's clique and the solver
keeps it. Here masks act on inferred tables, which contain them, and on the tables that rows are moved towards; a model of 0.1 or
0.2 may have masks that no region holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, Cliques, CliqueVector, Domain
from consilience.errors import DomainError
from consilience.regions.pseudo_marginals import PseudoMarginals
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.feasible import inner_point, masks_of

Masks = Mapping[Clique, Buffer]
NOTHING: Masks = MappingProxyType({})
"""Every combination can occur."""
LEAST = 1e-12
"""A table with less than this on possible cells says nothing about them."""


def held(graph: RegionGraph, masks: Masks) -> dict[Clique, Buffer]:
    """The masks that some region of the graph holds."""
    canonical = graph.domain.clique
    return {c: m for c, m in masks.items() if graph.first_unsupported([canonical(c)]) is None}


def check_masks(domain: Domain, masks: Masks) -> None:
    """Refuse masks that do not fit the domain or leave nothing."""
    for clique, mask in masks.items():
        shape = domain.shape_of(clique)
        if np.shape(mask) != shape or np.asarray(mask).dtype != np.bool_:
            raise DomainError(
                f"the mask of possible cells of {clique} must be True or False in a table of shape {shape}, got "
                f"{np.asarray(mask).dtype} in {np.shape(mask)}"
            )
        if not np.any(mask):
            raise DomainError(f"the mask of {clique} must leave some cell possible, it leaves none")


def check_feasible(graph: RegionGraph, masks: Masks) -> None:
    """Refuse masks that leave no consistent distribution on the graph."""
    inner_point(graph, masks_of(graph, masks))


def trusted(
    graph: RegionGraph, tau: CliqueVector, measured: Cliques, stated: Iterable[Clique]
) -> PseudoMarginals:
    """The tables as questions see them: what was measured is in the model, and so is what a mask or a control speaks of."""
    cliques = [graph.domain.clique(c) for c in stated]
    inside = [c for c in cliques if c and graph.first_unsupported([c]) is None]
    return PseudoMarginals.of(graph, tau, [*measured, *inside] if inside else measured)


def mask_on(domain: Domain, masks: Masks, clique: Clique) -> NDArray[np.bool_] | None:
    """Where a table over the clique may hold something; None where no mask lies inside it."""
    inside = [c for c in masks if set(c) <= set(clique)]
    if not inside:
        return None
    allowed = np.ones(domain.shape_of(clique), np.bool_)
    for c in inside:
        order = [a for a in clique if a in c]
        mask = np.asarray(masks[c], np.bool_).transpose([c.index(a) for a in order])
        allowed &= mask.reshape([domain[a] if a in c else 1 for a in clique])
    return allowed


def emptied(domain: Domain, masks: Masks, clique: Clique, table: Buffer) -> Buffer:
    """The distribution with nothing on impossible cells; what lay there is spread over the rest in proportion."""
    allowed = mask_on(domain, masks, clique)
    if allowed is None or not allowed.any():
        return table
    kept = np.where(allowed, table, 0.0)
    left = float(kept.sum())
    return kept / left if left > LEAST else allowed / allowed.sum()
