"""Measurements at levels of one attribute as a tree of places: when they are one, and least squares on it.

Levels that lie in each other make the attribute a tree: its values are the leaves, and what was measured without it belongs to
the root. Where one region of the graph holds everything measured, its table is the leaves' tables side by side, and splitting on
the tree (place_splitting.py) takes the place of splitting on cliques: the same problem, the same optimum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Clique, CliqueVector, Domain
from consilience.domain.levels import Level
from consilience.measurements import (
    BoundControl,
    BoundMeasurement,
    Coarsened,
    Identity,
    Measurements,
    SquaredLoss,
)
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.controls import with_masks
from consilience.solvers.feasible import masks_of
from consilience.solvers.place_splitting import PlaceState, fit_places
from consilience.solvers.places import PlaceQuery, PlaceRange, Places
from consilience.solvers.solution import Solution

METHOD = "splitting on a tree of places"
VISITS = 6.0
"""Of each cell in an iteration (solvers/work.py)."""


@dataclass(frozen=True, eq=False)
class Tree:
    """An attribute as a tree: its levels from the root (None) down, the attribute itself left out at the end."""

    attribute: str
    levels: tuple[Level | None, ...]
    places: Places

    def level_of(self, clique: Clique, named: Level | None) -> int:
        """The level at which a measurement reads the tree; the root's where it does not mention the attribute."""
        if self.attribute not in clique:
            return 0
        return self.places.last if named is None else self.levels.index(named)


def read_tree(
    domain: Domain, measured: Measurements, controls: Sequence[BoundControl] = ()
) -> Tree | None:
    """The one attribute that is measured or controlled at levels, as a tree; None where there is none, or several, or more is
    asked.
    """
    if not domain.levels:
        return None
    used = {a: domain.levels[a] for c in controls for a in c.named if a in domain.levels}
    for query in measured.queries.values():
        if not (isinstance(query, Coarsened) and isinstance(query.of, Identity)):
            return None
        used |= {v.name: v for v in query.levels if v is not None}
    if not used or len({v.attribute for v in used.values()}) > 1:
        return None
    chain = sorted(used.values(), key=lambda v: v.size)
    attribute = chain[0].attribute
    size = domain[attribute]
    parents: list[NDArray[np.int64]] = [np.zeros(chain[0].size, np.int64)]
    for above, below in zip(chain, [*chain[1:], None], strict=True):
        if below is None:
            parents.append(above.units)
            continue
        found = below.parents(above)
        if found is None:
            return None
        parents.append(found)
    assert len(parents[-1]) == size
    return Tree(attribute, (None, *chain), Places(1, parents))


def on_places(
    loss: SquaredLoss,
    graph: RegionGraph,
    *,
    tolerance: float,
    iterations: int | None = None,
    state: Any = None,
    possible: Mapping[Any, Any] | None = None,
    controls: Sequence[BoundControl] = (),
    progress: Progress | None = None,
) -> Solution | None:
    """Least squares on the tree that the measurements are; None where they are none, or no region holds all of it."""
    tree = read_tree(loss.domain, loss.measurements, controls)
    if tree is None or len(graph.root_cliques) != 1:
        return None
    region = graph.root_cliques[0]
    axis = region.index(tree.attribute)
    others = tuple(a for a in region if a != tree.attribute)
    shape = loss.domain.shape_of(others)
    queries = [_query(tree, loss.domain.sizes, others, m) for m in loss.measurements if m.clique]
    total = PlaceRange.exact(0, (), np.array([[loss.total]]))
    ranges = [_range(tree, loss.domain, others, c) for c in controls]
    mask = None
    masks = with_masks(loss.domain, possible or {}, controls)
    if masks:
        allowed = np.moveaxis(masks_of(graph, masks)[region] > 0, axis, 0)
        mask = allowed.reshape(allowed.shape[0], -1)
    found = fit_places(
        tree.places,
        shape,
        queries,
        [total, *ranges],
        possible=mask,
        tolerance=tolerance,
        iterations=iterations,
        state=state
        if isinstance(state, PlaceState) and _fits(state, tree, shape, ranges)
        else None,
        progress=progress,
    )
    tau = CliqueVector(graph.layout)
    leaves = found.tables.reshape(tree.places.leaves, *shape)
    whole = np.moveaxis(leaves, 0, axis) / loss.total
    for inner in graph.regions:
        tau[inner][...] = whole.sum(axis=tuple(i for i, a in enumerate(region) if a not in inner))
    constant = _of_the_total(loss)
    return Solution(
        tau,
        found.objective + constant,
        found.bound + constant,
        found.violation / loss.total,
        found.iterations,
        found.seconds,
        found.status,
        METHOD,
        state=found.state,
        work=VISITS * found.iterations * found.tables.size,
    )


def _query(tree: Tree, sizes: Mapping[str, int], others: Clique, m: BoundMeasurement) -> PlaceQuery:
    """A measurement as rows of values, one for each place of its level."""
    levels = m.query.levels if isinstance(m.query, Coarsened) else (None,) * len(m.clique)
    subset = tuple(others.index(a) for a in m.clique if a != tree.attribute)
    if tree.attribute not in m.clique:
        return PlaceQuery(0, subset, m.values.reshape(1, -1), m.stddev)
    axis = m.clique.index(tree.attribute)
    level = tree.level_of(m.clique, levels[axis])
    places = tree.places.count(level)
    before = prod(sizes[a] for a in m.clique[:axis])
    values = np.moveaxis(m.values.reshape(before, places, -1), 1, 0).reshape(places, -1)
    return PlaceQuery(level, subset, values, m.stddev)


def _range(tree: Tree, domain: Domain, others: Clique, control: BoundControl) -> PlaceRange:
    """A control as rows of ranges, one for each place of its level."""
    clique = domain.clique(control.named)
    subset = tuple(others.index(a) for a in clique if a != tree.attribute)
    level, axis = 0, None
    if tree.attribute in clique:
        axis = clique.index(tree.attribute)
        level = tree.level_of(clique, domain.levels.get(control.named[axis]))
    places = tree.places.count(level)
    ends = [
        (end if axis is None else np.moveaxis(end, axis, 0)).reshape(places, -1)
        for end in (control.low, control.high)
    ]
    return PlaceRange(level, subset, ends[0], ends[0] if control.exact else ends[1])


def _fits(
    state: PlaceState, tree: Tree, shape: tuple[int, ...], ranges: Sequence[PlaceRange]
) -> bool:
    sizes = [r.low.size for r in ranges if not r.is_exact]
    return state.v.size == tree.places.leaves * prod(shape) and sizes == [v.size for v in state.ranges]  # fmt: skip


def _of_the_total(loss: SquaredLoss) -> float:
    """What measurements of the total alone add to the loss."""
    off = [
        ((loss.total * m.query.apply(np.ones(1)) - m.values) / m.stddev)
        for m in loss.measurements
        if not m.clique
    ]
    return 0.5 * float(sum(np.square(u).sum() for u in off))
