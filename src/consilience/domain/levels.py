"""Level: a coarser reading of an attribute. Blocks are read as tracts, tracts as counties, codes of occupations as groups.

A level is a partition of the values of its attribute. Its name stands wherever an attribute's does, and a table over it is the
attribute's own with the values of each unit summed. So a clique at a level is decided by every clique that holds the attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DomainError

Units = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Level:
    """The units of one level: `units[v]` is the one that value v of the attribute belongs to."""

    name: str
    attribute: str
    units: Units
    size: int

    def parents(self, other: Level) -> Units | None:
        """For each unit here the unit there that holds it; None where some unit here lies in several."""
        if self.attribute != other.attribute:
            return None
        found = np.zeros(self.size, np.int64)
        found[self.units] = other.units
        return found if np.array_equal(found[self.units], other.units) else None

    @cached_property
    def _runs(self) -> tuple[Units | None, Units]:
        """The values unit by unit (None where they are in that order already), and where each unit begins."""
        sorted_already = bool((np.diff(self.units) >= 0).all())
        order = None if sorted_already else np.argsort(self.units, kind="stable")
        ordered = self.units if order is None else self.units[order]
        return order, np.searchsorted(ordered, np.arange(self.size))

    def summed(self, table: NDArray[Any], axis: int) -> NDArray[Any]:
        """The table with the values of each unit summed along one axis."""
        order, begins = self._runs
        ordered = table if order is None else np.take(table, order, axis=axis)
        return np.add.reduceat(ordered, begins, axis=axis)

    def spread(self, table: NDArray[Any], axis: int) -> NDArray[Any]:
        """The transpose of `summed`: each value gets what its unit has."""
        return np.take(table, self.units, axis=axis)


def checked_levels(sizes: Mapping[str, int], given: object) -> dict[str, Level]:
    """{name: (attribute or finer level, for each of its values the unit here)} as levels over attributes."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise DomainError(
            f"levels must be given as {{name: (attribute or finer level, units)}}, got {given!r}"
        )
    levels: dict[str, Level] = {}
    for name, pair in given.items():
        if isinstance(pair, Level):
            pair = (pair.attribute, pair.units)
        if not isinstance(name, str) or not name or name in sizes:
            raise DomainError(
                f"a level must have a name of its own, a non-empty string, got {name!r}"
                + (", which is an attribute" if name in sizes else "")
            )
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise DomainError(
                f"level {name!r} must be (attribute or finer level, units), got {pair!r}"
            )
        below, units = pair
        if below not in sizes and below not in levels:
            known = ", ".join(map(repr, [*list(sizes)[:8], *levels]))
            raise DomainError(
                f"level {name!r} must lie over an attribute or a level named before it, got {below!r}; there are {known}"
            )
        size = sizes[below] if below in sizes else levels[below].size
        found = _checked_units(name, below, size, units)
        over = levels.get(below)
        levels[name] = Level(
            name,
            below if over is None else over.attribute,
            _kept(found if over is None else found[over.units]),
            int(found.max()) + 1,
        )
    return levels


def _kept(units: Units) -> Units:
    units.setflags(write=False)
    return units


def _checked_units(name: str, below: str, size: int, given: Any) -> Units:
    units = np.asarray(given)
    if units.dtype.kind not in "iu" or units.shape != (size,):
        raise DomainError(
            f"level {name!r} must say for each of the {size} values of {below!r} which unit it belongs to, in whole numbers, got "
            f"shape {units.shape} of {units.dtype}"
        )
    if units.min() < 0:
        raise DomainError(
            f"the units of level {name!r} must be numbered from 0 on, got {int(units.min())}"
        )
    found = units.astype(np.int64)
    empty = np.flatnonzero(np.bincount(found) == 0)
    if len(empty):
        raise DomainError(
            f"every unit of level {name!r} must hold a value of {below!r}, unit {empty[0]} of {int(found.max()) + 1} holds none; "
            "number them without gaps"
        )
    return found
