"""Trees of places as plain arrays, and what is known about the tables of their places.

A tree has levels 0 (roots) to L (leaves); `parents[l - 1][i]` is the place of level l - 1 that place i of level l lies in. Each
place has a table over the other attributes, the sum of its children's; the leaves' tables determine all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.domain import Buffer
from consilience.errors import ConsilienceError, MeasurementError
from consilience.measurements.structured import centred
from consilience.solvers.place_components import Components, Subset

PORTION = 1 << 20
"""Cells treated at once where NumPy needs copies."""


@dataclass(frozen=True, eq=False)
class Places:
    """A tree, or several: how many roots, and for each further level the parents of its places. Any order, unequal groups."""

    roots: int
    parents: tuple[NDArray[np.int64], ...]

    def __init__(self, roots: int, parents: Sequence[ArrayLike]) -> None:
        found = tuple(np.asarray(p, np.int64) for p in parents)
        object.__setattr__(self, "roots", int(roots))
        object.__setattr__(self, "parents", found)
        above = self.roots
        if above < 1:
            raise ConsilienceError(f"a tree of places must have a root, got {roots}")
        for level, places in enumerate(found, 1):
            if places.ndim != 1 or not len(places):
                raise ConsilienceError(
                    f"the parents of level {level} must be a list of places, got shape {places.shape}"
                )
            if places.min() < 0 or places.max() >= above:
                raise ConsilienceError(
                    f"parents of level {level} must be places 0 to {above - 1} of the level above, "
                    f"got {places.min()} to {places.max()}"
                )
            held = np.bincount(places, minlength=above)
            if (held == 0).any():
                raise ConsilienceError(
                    f"every place above the leaves must hold another, got place {int(np.argmin(held))} of level {level - 1} "
                    "without any; repeat it at each level below"
                )
            above = len(places)

    @property
    def last(self) -> int:
        """The level of the leaves."""
        return len(self.parents)

    def count(self, level: int) -> int:
        return self.roots if level == 0 else len(self.parents[level - 1])

    @property
    def leaves(self) -> int:
        return self.count(self.last)

    def ancestors(self, level: int, of: int | None = None) -> NDArray[np.int64]:
        """For each place of level `of` (the leaves') the place of the level above that holds it."""
        of = self.last if of is None else of
        at = np.arange(self.count(of))
        for k in range(of, level, -1):
            at = self.parents[k - 1][at]
        return at

    def sums(self, leaves: Buffer, level: int) -> Buffer:
        """The tables of a level: the leaves' added up."""
        at = self.ancestors(level)
        order = np.argsort(at, kind="stable")
        starts = np.searchsorted(at[order], np.arange(self.count(level)))
        if (order[1:] > order[:-1]).all():
            return np.add.reduceat(leaves, starts, axis=0)
        return np.add.reduceat(leaves[order], starts, axis=0)

    def deeper(self) -> Places:
        """The same tree with each leaf repeated below itself."""
        return Places(self.roots, [*self.parents, np.arange(self.leaves)])

    def repeated(self, times: int) -> Places:
        """So many copies of the tree side by side: a forest."""
        counts = [self.count(l) for l in range(self.last)]
        return Places(
            self.roots * times,
            [
                (p[None, :] + n * np.arange(times)[:, None]).reshape(-1)
                for p, n in zip(self.parents, counts, strict=True)
            ],
        )


@dataclass(frozen=True, eq=False)
class PlaceQuery:
    """Noisy marginals of every place of a level: values has a row per place, one number per cell of the marginal in C order.

    stddev: one number, or one per place with inf where the place was not measured. groups: for a query on coarser values, a label
    for each cell of the marginal; values then has a number per label. residual: what was measured is the marginals with
    their mean along every attribute subtracted.
    """

    level: int
    attributes: Subset
    values: Buffer
    stddev: Any = 1.0
    groups: NDArray[np.int64] | None = None
    residual: bool = False


@dataclass(frozen=True, eq=False)
class PlaceRange:
    """Marginals of every place of a level that lie between low and high; exactly known where both are the same numbers."""

    level: int
    attributes: Subset
    low: Buffer
    high: Buffer
    fixing: bool | None = None
    """Whether the solve itself keeps it (`fixes`); a part of a tree cannot tell from its own rows."""

    @staticmethod
    def exact(level: int, attributes: Subset, values: Buffer) -> PlaceRange:
        return PlaceRange(level, attributes, values, values)

    @property
    def is_exact(self) -> bool:
        return self.low is self.high or np.array_equal(self.low, self.high)

    @property
    def held(self) -> NDArray[np.bool_]:
        """Which places it fixes."""
        return (self.low == self.high).all(axis=1)

    def fixes(self, last: int) -> bool:
        """Whether it fixes every place that it says something about, so that the solve itself can keep it: of the leaves, all."""
        if self.fixing is not None:
            return self.fixing
        if self.is_exact:
            return True
        open_rows = (self.low <= 0.0).all(axis=1) & np.isinf(self.high).all(axis=1)
        return self.level < last and bool((self.held | open_rows).all())


Given = TypeVar("Given", PlaceQuery, PlaceRange)


class Pull(NamedTuple):
    """A pull on every cell of the leaves: weight / 2 (x - to)^2 is added to the loss."""

    to: Buffer
    weight: Buffer


@dataclass(frozen=True, eq=False)
class Asked:
    """What is asked of a tree of places or of a part of one, checked: `queries` in one number per component, `grouped` on sums.

    `possible` is one row of cells for all leaves, or one for each. `deeper`: the leaves are repeated below themselves.
    """

    places: Places
    components: Components
    queries: tuple[PlaceQuery, ...]
    grouped: tuple[PlaceQuery, ...]
    controls: tuple[PlaceRange, ...]
    possible: NDArray[np.bool_]
    deeper: bool
    pull: Pull | None = None

    @staticmethod
    def of(
        places: Places,
        shape: Sequence[int],
        queries: Sequence[PlaceQuery],
        controls: Sequence[PlaceRange] = (),
        possible: NDArray[np.bool_] | None = None,
        pull: Pull | None = None,
    ) -> Asked:
        """Checked. Leaves are repeated where nothing is above them, and where copies of theirs need a level above the cells."""
        sizes = tuple(int(n) for n in shape)
        ranges = [checked_range(places, sizes, c) for c in controls]
        given = [checked_query(places, sizes, q) for q in queries]
        grouped = [q for q in given if q.groups is not None]
        plain = [q for q in given if q.groups is None]
        copied = [*(c for c in ranges if not c.fixes(places.last)), *grouped]
        low = places.last == 0 or any(c.level == places.last for c in copied)
        if not any(np.isfinite(q.stddev).any() for q in plain):
            raise MeasurementError("a reconstruction must have at least one measurement, got none")
        components = Components(sizes, [q.attributes for q in (*plain, *ranges, *grouped)])
        tree = places.deeper() if low else places
        lowered = [_lowered(c, places, low and c.is_exact) for c in ranges]
        return Asked(
            tree,
            components,
            tuple(_lowered(q, places, low) for q in plain),
            tuple(grouped),
            tuple(replace(c, fixing=c.fixes(tree.last)) for c in lowered),
            _checked_possible(possible, places.leaves, components),
            low,
            pull,
        )


def _lowered(given: Given, places: Places, deeper: bool) -> Given:
    """What is about the leaves is about their copies, if they have such."""
    return replace(given, level=given.level + 1) if deeper and given.level == places.last else given


def _checked_possible(
    possible: NDArray[np.bool_] | None, leaves: int, components: Components
) -> NDArray[np.bool_]:
    many, shape = components.cells, components.shape
    if possible is None:
        possible = np.ones(many, bool)
    possible = np.asarray(possible, bool)
    if possible.size == many and possible.shape != (leaves, *shape):
        return possible.reshape(1, many)
    if possible.size == leaves * many:
        return possible.reshape(leaves, many)
    raise ConsilienceError(
        f"possible cells must be {many} or {leaves} x {many} truth values, got shape {possible.shape}"
    )


def checked_query(places: Places, shape: tuple[int, ...], query: PlaceQuery) -> PlaceQuery:
    """The query with values as (places, cells) and a standard deviation for each place."""
    many, cells = _check_place(places, shape, query.level, query.attributes)
    if query.groups is not None:
        groups = np.asarray(query.groups, np.int64)
        if groups.shape != (cells,) or groups.min() < 0:
            raise MeasurementError(
                f"groups must be a label from 0 on for each of {cells} cells, got {groups.shape}"
            )
        cells = int(groups.max()) + 1
    values = np.asarray(query.values, np.float64)
    if values.size != many * cells:
        raise MeasurementError(
            f"values of level {query.level} over attributes {query.attributes} must be {many} x {cells} numbers, "
            f"got shape {values.shape}"
        )
    stddev = np.broadcast_to(np.asarray(query.stddev, np.float64), (many,))
    if np.isnan(stddev).any() or (stddev <= 0).any():
        raise MeasurementError(
            f"a standard deviation must be positive (inf: not measured), got {stddev.min()}"
        )
    values = values.reshape(many, cells)
    step = max(1, PORTION // cells)
    for lo in range(0, many, step):  # values may be a mapped file
        if not np.isfinite(values[lo : lo + step][np.isfinite(stddev[lo : lo + step])]).all():
            raise MeasurementError("measured values must be finite, got nan or infinity")
    return PlaceQuery(query.level, query.attributes, values, stddev, query.groups, query.residual)


def residual_rows(rows: Buffer, sizes: Sequence[int]) -> Buffer:
    """Rows of marginals, each with its mean along every attribute subtracted."""
    tables = np.moveaxis(rows.reshape(len(rows), *sizes), 0, -1)
    return np.moveaxis(centred(tables, len(sizes)), -1, 0).reshape(len(rows), -1)


def checked_range(places: Places, shape: tuple[int, ...], given: PlaceRange) -> PlaceRange:
    """The range with both ends as (places, cells)."""
    many, cells = _check_place(places, shape, given.level, given.attributes)
    exact = given.low is given.high
    ends = [np.asarray(end, np.float64) for end in (given.low, given.high)]
    for end in ends:
        if end.size != many * cells:
            raise ConsilienceError(
                f"controls of level {given.level} over attributes {given.attributes} must be {many} x {cells} numbers, "
                f"got shape {end.shape}"
            )
    low, high = (end.reshape(many, cells) for end in ends)
    wrong = ~((low <= high) & (high >= 0) & (low < np.inf))
    if wrong.any():
        i, c = np.argwhere(wrong)[0]
        raise ConsilienceError(
            f"a control must be a range of numbers that are not negative, got {low[i, c]:g} to {high[i, c]:g} for cell {c} of "
            f"place {i} of level {given.level}"
        )
    return PlaceRange(given.level, given.attributes, low, low if exact else high)


def _check_place(
    places: Places, shape: tuple[int, ...], level: int, attributes: Subset
) -> tuple[int, int]:
    if not 0 <= level <= places.last:
        raise ConsilienceError(f"a level must be 0 to {places.last}, got {level}")
    if list(attributes) != sorted(set(attributes)) or any(
        not 0 <= i < len(shape) for i in attributes
    ):
        raise ConsilienceError(
            f"attributes must be ascending positions 0 to {len(shape) - 1}, got {attributes}"
        )
    return places.count(level), prod(shape[i] for i in attributes)
