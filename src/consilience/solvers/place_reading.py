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

from consilience.domain import Buffer, Clique, CliqueVector, Domain
from consilience.domain.levels import Level
from consilience.measurements import (
    BoundControl,
    BoundMeasurement,
    Centring,
    Coarsened,
    Identity,
    Kronecker,
    Measurements,
    Query,
    Sparse,
    SquaredLoss,
)
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.controls import with_masks
from consilience.solvers.feasible import masks_of
from consilience.solvers.place_prior import pulled_variances, towards_parents
from consilience.solvers.place_problem import PlaceProblem
from consilience.solvers.place_splitting import PlaceState, clear_marginals, fit_places
from consilience.solvers.places import Asked, PlaceQuery, PlaceRange, Places
from consilience.solvers.solution import Solution

METHOD = "splitting on a tree of places"
PARENT = "the shape of the place above"
"""What `towards_parents` pulls leaves to."""
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
    """The attribute that is measured or controlled at levels, as a tree; of several the one with the most values, while sums over
    the others' levels are queries on groups of cells. None where there is none, or more is asked.
    """
    if not domain.levels:
        return None
    used = {a: domain.levels[a] for c in controls for a in c.named if a in domain.levels}
    controlled = {v.attribute for v in used.values()}
    for query in measured.queries.values():
        if isinstance(query, Coarsened):
            used |= {v.name: v for v in query.levels if v is not None}
    if not used:
        return None
    attribute = max(domain, key=lambda a: domain[a] if any(v.attribute == a for v in used.values()) else 0)  # fmt: skip
    if not all(_readable(q, measured.cliques[i], attribute) for i, q in measured.queries.items()):
        return None
    some = [i for i, query in measured.queries.items() if chosen_places(query) is not None]
    if controlled - {attribute} or any(measured.cliques[i][0] != attribute for i in some):
        return None
    chain = sorted((v for v in used.values() if v.attribute == attribute), key=lambda v: v.size)
    parents: list[NDArray[np.int64]] = [np.zeros(chain[0].size, np.int64)]
    for above, below in zip(chain, [*chain[1:], None], strict=True):
        if below is None:
            parents.append(above.units)
            continue
        found = below.parents(above)
        if found is None:
            return None
        parents.append(found)
    assert len(parents[-1]) == domain[attribute]
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
    clear: float | None = None,
    pulled: bool = False,
    workers: Any = None,
    progress: Progress | None = None,
) -> Solution | None:
    """Least squares on the tree that the measurements are; None where they are none, or no region holds all of it.

    clear: marginals that are this many standard errors above zero keep their values (`clear_marginals`). pulled: leaves are
    pulled towards their parents' shape (`towards_parents`). workers: who does it (`fit_places`).
    """
    tree = read_tree(loss.domain, loss.measurements, controls)
    if tree is None or len(graph.root_cliques) != 1:
        return None
    region = graph.root_cliques[0]
    axis = region.index(tree.attribute)
    others = tuple(a for a in region if a != tree.attribute)
    shape = loss.domain.shape_of(others)
    queries = _queries(tree, loss.domain.sizes, others, loss.measurements)
    total = PlaceRange.exact(0, (), np.array([[loss.total]]))
    ranges = [_range(tree, loss.domain, others, c) for c in controls]
    copied = [r.low.size for r in ranges if not r.fixes(tree.places.last)]
    for q in queries:
        if q.groups is not None:
            copied.append(tree.places.count(q.level) * len(q.groups))
    mask = None
    masks = with_masks(loss.domain, possible or {}, controls)
    if masks:
        allowed = np.moveaxis(masks_of(graph, masks)[region] > 0, axis, 0)
        mask = allowed.reshape(allowed.shape[0], -1)
    kept = []
    if clear is not None:
        kept = clear_marginals(tree.places, shape, queries, [total, *ranges], clear)
    found = fit_places(
        tree.places,
        shape,
        queries,
        [total, *ranges, *kept],
        possible=mask,
        tolerance=tolerance,
        iterations=iterations,
        state=state
        if isinstance(state, PlaceState) and _fits(state, tree, shape, copied)
        else None,
        workers=workers,
        progress=progress,
    )
    share = None
    if pulled:
        found, share = towards_parents(
            tree.places,
            shape,
            queries,
            [total, *ranges],
            found,
            possible=mask,
            tolerance=tolerance,
            workers=workers,
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
        prior_strength=share,
        towards=PARENT,
        work=VISITS * found.iterations * found.tables.size,
    )


@dataclass(frozen=True, eq=False)
class _Reading:
    """A table at a level of a tree: which tree, the tree's other attributes, and how the table is asked for."""

    tree: Tree
    others: Clique
    named: Clique
    at: str | None
    level: int
    subset: tuple[int, ...]
    domain: Domain

    @staticmethod
    def of(
        domain: Domain,
        measured: Measurements,
        controls: Sequence[BoundControl],
        region: Clique,
        asked: Clique,
    ) -> _Reading | None:
        """None where there is no tree, or the region that holds everything measured does not hold the table."""
        tree = read_tree(domain, measured, controls)
        named = domain.named(asked)
        clique = domain.clique(named)
        if tree is None or not {*clique, tree.attribute} <= set(region):
            return None
        others = tuple(a for a in region if a != tree.attribute)
        if not all(set(c) <= set(region) for c in measured.cliques):
            return None
        at = next((a for a in named if domain.clique(a) == (tree.attribute,)), None)
        level = domain.levels.get(at) if at is not None else None
        if any(a in domain.levels for a in named if a != at) or (
            level and level not in tree.levels
        ):
            return None
        subset = tuple(others.index(a) for a in clique if a != tree.attribute)
        return _Reading(tree, others, named, at, tree.level_of(clique, level), subset, domain)

    def asked(self, measured: Measurements, controls: Sequence[BoundControl]) -> Asked:
        domain, tree = self.domain, self.tree
        queries = [
            q for q in _queries(tree, domain.sizes, self.others, measured) if q.groups is None
        ]
        exact = [_range(tree, domain, self.others, c) for c in controls if c.exact]
        return Asked.of(tree.places, domain.shape_of(self.others), queries, exact)


def place_stderr(
    domain: Domain,
    measured: Measurements,
    controls: Sequence[BoundControl],
    region: Clique,
    asked: Clique,
) -> Buffer | None:
    """The standard error of each cell of a table at levels by least squares on the tree, before non-negativity; None where there
    is no tree, or the region that holds everything measured does not hold the table.
    """
    read = _Reading.of(domain, measured, controls, region, asked)
    if read is None:
        return None
    problem = PlaceProblem(read.asked(measured, controls), solved=False)
    spread = problem.cell_stderr(read.level, read.subset)
    shape = [len(spread) if a == read.at else 1 for a in read.named]
    table = np.broadcast_to(spread.reshape(shape), domain.shape_of(read.named))
    return table.transpose([read.named.index(a) for a in asked])


def pulled_stderr(
    domain: Domain,
    measured: Measurements,
    controls: Sequence[BoundControl],
    region: Clique,
    asked: Clique,
    table: Buffer,
) -> Buffer | None:
    """The same for leaves that were pulled towards their parents, whose place and noise both tell of them; table: the fitted
    counts of the region. None for a table of other places.
    """
    read = _Reading.of(domain, measured, controls, region, asked)
    if read is None or read.level != read.tree.places.last:
        return None
    tables = np.moveaxis(table, region.index(read.tree.attribute), 0)
    shape = tables.shape[1:]
    variance = pulled_variances(read.asked(measured, controls), tables.reshape(len(tables), -1))
    away = tuple(i + 1 for i in range(len(shape)) if i not in read.subset)
    spread = np.sqrt(variance.reshape(tables.shape).sum(axis=away))
    kept = [read.tree.attribute, *(read.others[i] for i in read.subset)]
    return spread.transpose([kept.index(domain.clique(a)[0]) for a in asked])


def chosen_places(query: Query) -> NDArray[np.int64] | None:
    """The values of the first attribute that the query reads, where it reads whole rows of some only; else None."""
    inner = query.of if isinstance(query, Coarsened) else query
    if not isinstance(inner, Kronecker) or not isinstance(inner.factors[0], Sparse):
        return None
    rows = inner.factors[0].matrix
    plain = all(isinstance(f, Identity) for f in inner.factors[1:])
    single = (rows.data == 1.0).all() and (np.diff(rows.indptr) == 1).all()
    chosen = rows.indices.astype(np.int64)
    return chosen if plain and single and np.unique(chosen).size == chosen.size else None


def _readable(query: Query, clique: Clique, attribute: str) -> bool:
    whole = isinstance(query, Coarsened) and isinstance(query.of, Identity)
    return whole or chosen_places(query) is not None or _is_residual(query, clique, attribute)


def _is_residual(query: Query, clique: Clique, attribute: str) -> bool:
    """Whether the query is the residual of the table of every place: the mean along every other attribute subtracted."""
    inner = query.of if isinstance(query, Coarsened) else query
    if isinstance(inner, Centring):
        return attribute not in clique
    if not isinstance(inner, Kronecker) or len(inner.factors) != len(clique):
        return False
    return all(
        isinstance(f, Identity if a == attribute else Centring)
        for a, f in zip(clique, inner.factors, strict=True)
    )


def _queries(
    tree: Tree, sizes: Mapping[str, int], others: Clique, measured: Sequence[BoundMeasurement]
) -> list[PlaceQuery]:
    """All measurements; those of one marginal at different places of a level, each with its own noise, are one."""
    found: list[PlaceQuery] = []
    for m in measured:
        if not m.clique:
            continue
        new = _query(tree, sizes, others, m)
        for i, old in enumerate(found):
            here, there = np.isfinite(new.stddev), np.isfinite(old.stddev)
            same = (old.level, old.attributes) == (new.level, new.attributes)
            same = same and not (old.residual or new.residual)
            if same and _same_groups(old, new) and not (here & there).any():
                values = np.where(np.atleast_1d(here)[:, None], new.values, old.values)
                stddev = np.where(here, new.stddev, old.stddev)
                found[i] = PlaceQuery(old.level, old.attributes, values, stddev, old.groups)
                break
        else:
            found.append(new)
    return found


def _same_groups(one: PlaceQuery, other: PlaceQuery) -> bool:
    if one.groups is None or other.groups is None:
        return one.groups is other.groups
    return np.array_equal(one.groups, other.groups)


def _query(tree: Tree, sizes: Mapping[str, int], others: Clique, m: BoundMeasurement) -> PlaceQuery:
    """A measurement as rows of values, one for each place of its level."""
    levels = m.query.levels if isinstance(m.query, Coarsened) else (None,) * len(m.clique)
    subset = tuple(others.index(a) for a in m.clique if a != tree.attribute)
    read = list(zip(m.clique, levels, strict=True))
    residual = _is_residual(m.query, m.clique, tree.attribute)
    groups = _groups([(sizes[a], v) for a, v in read if a != tree.attribute])
    if tree.attribute not in m.clique:
        return PlaceQuery(0, subset, m.values.reshape(1, -1), m.stddev, groups, residual)
    axis = m.clique.index(tree.attribute)
    level = tree.level_of(m.clique, levels[axis])
    places = tree.places.count(level)
    before = prod(sizes[a] if v is None else v.size for a, v in read[:axis])
    chosen = chosen_places(m.query)
    if chosen is not None:
        rows = m.values.reshape(len(chosen), -1)
        values, stddev = np.zeros((places, rows.shape[1])), np.full(places, np.inf)
        values[chosen], stddev[chosen] = rows, m.stddev
        return PlaceQuery(level, subset, values, stddev, groups)
    values = np.moveaxis(m.values.reshape(before, places, -1), 1, 0).reshape(places, -1)
    return PlaceQuery(level, subset, values, m.stddev, groups, residual)


def _groups(axes: Sequence[tuple[int, Level | None]]) -> NDArray[np.int64] | None:
    """For each cell of a marginal its cell at these levels; None where no axis is read at one."""
    if all(v is None for _, v in axes):
        return None
    found = np.zeros(1, np.int64)
    for size, level in axes:
        units = np.arange(size) if level is None else level.units
        found = (found[:, None] * (int(units.max()) + 1) + units).reshape(-1)
    return found


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


def _fits(state: PlaceState, tree: Tree, shape: tuple[int, ...], copied: list[int]) -> bool:
    here = [v.size for v in state.copies]
    return state.v.size == tree.places.leaves * prod(shape) and here == copied


def _of_the_total(loss: SquaredLoss) -> float:
    """What measurements of the total alone add to the loss."""
    off = [
        ((loss.total * m.query.apply(np.ones(1)) - m.values) / m.stddev)
        for m in loss.measurements
        if not m.clique
    ]
    return 0.5 * float(sum(np.square(u).sum() for u in off))
