"""Combinations that cannot occur, in answers and rows that no region of the model decides.

A mask is {clique: table}, False where a combination cannot occur. The solver respects those that some region holds. The others
act here: on inferred tables, and on the tables that rows are moved towards.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, Domain
from consilience.errors import DomainError
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


def check_masks(graph: RegionGraph, masks: Masks) -> None:
    """Refuse masks that do not fit the domain, or that leave no consistent distribution on the graph."""
    for clique, mask in masks.items():
        shape = graph.domain.shape_of(clique)
        if np.shape(mask) != shape or np.asarray(mask).dtype != np.bool_:
            raise DomainError(
                f"the mask of possible cells of {clique} must be True or False in a table of shape {shape}, got "
                f"{np.asarray(mask).dtype} in {np.shape(mask)}"
            )
        if not np.any(mask):
            raise DomainError(f"the mask of {clique} must leave some cell possible, it leaves none")
    inside = held(graph, masks)
    if inside:
        inner_point(graph, masks_of(graph, inside))


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
