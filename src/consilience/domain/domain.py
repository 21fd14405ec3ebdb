"""Domain: the attributes of a table and their sizes, in order (the paper's Omega and n_i)."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain.levels import Level, checked_levels
from consilience.errors import DomainError

Clique = tuple[str, ...]
"""A set of attributes as a tuple of names in domain order without duplicates. Build one with `Domain.clique`, or with
`Domain.named` where levels keep their names."""


def names_of(attributes: str | Iterable[str]) -> tuple[str, ...]:
    """The attribute names as given: one name, or a collection of them. A whole number is the name that its digits are."""
    if isinstance(attributes, str):
        return (attributes,)
    if whole_number(attributes) is not None:
        return (name_of(attributes),)
    try:
        return tuple([a if type(a) is str else name_of(a) for a in attributes])
    except TypeError:
        raise DomainError(
            f"a clique must be an attribute name or a collection of names, got {attributes!r}"
        ) from None


def name_of(given: Any) -> str:
    """A name as domains keep it: text; the digits of a whole number, which other tools take for names."""
    number = None if isinstance(given, str) else whole_number(given)
    return given if number is None else str(number)


def whole_number(value: object) -> int | None:
    """The value as a Python integer, or None if it is not one; a boolean is not."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _checked_size(name: str, size: object) -> int:
    n = whole_number(size)
    if n is None:
        raise DomainError(
            f"the size of attribute {name!r} must be a whole number, got {size!r}; "
            "give the number of values that the attribute can take"
        )
    if n < 1:
        raise DomainError(
            f"the size of attribute {name!r} must be at least 1, got {n}; "
            "give the number of values that the attribute can take"
        )
    return n


@dataclass(frozen=True, eq=False, repr=False)
class Domain:
    """Attributes and their sizes, ordered.

    `Domain({"age": 10, "sex": 2})` or `Domain([("age", 10), ("sex", 2)])`; the second form notices duplicates.
    levels: coarser readings of attributes, `{"tract": ("block", units), "county": ("tract", units)}`, each with a whole number
    for every value of the attribute or level below it: the unit that it belongs to. Their names stand wherever attributes' do.
    labels: what codes are called, `{"sex": ("female", "male")}`, of some attributes or all; `Model.table` shows them,
    and two domains that differ in them alone are equal. A name may be given as a whole number and is then kept as its digits.
    """

    sizes: Mapping[str, int]
    levels: Mapping[str, Level]
    labels: Mapping[str, tuple[str, ...]]
    _position: Mapping[str, int] = field(init=False)
    _names: Clique = field(init=False)

    def __init__(
        self,
        sizes: Mapping[str, int] | Iterable[tuple[str, int]],
        levels: Mapping[str, Level | tuple[str, Any]] | None = None,
        labels: Mapping[str, Iterable[object]] | None = None,
    ) -> None:
        pairs = sizes.items() if isinstance(sizes, Mapping) else sizes
        if not isinstance(pairs, Iterable):
            raise DomainError(
                f"a domain must be given as a mapping of attribute to size, got {pairs!r}"
            )
        checked: dict[str, int] = {}
        for pair in pairs:
            if not (isinstance(pair, tuple | list) and len(pair) == 2):
                raise DomainError(f"a domain must list (attribute, size) pairs, got {pair!r}")
            name, size = name_of(pair[0]), pair[1]
            if not isinstance(name, str) or not name:
                raise DomainError(f"an attribute name must be a non-empty string, got {name!r}")
            if name in checked:
                raise DomainError(
                    f"attribute names must be distinct, got {name!r} twice; rename one of them"
                )
            checked[name] = _checked_size(name, size)
        if not checked:
            raise DomainError("a domain must have at least one attribute, got none")
        found = checked_levels(checked, levels)
        place = {name: i for i, name in enumerate(checked)}
        object.__setattr__(self, "sizes", MappingProxyType(checked))
        object.__setattr__(self, "levels", MappingProxyType(found))
        object.__setattr__(
            self, "_position", place | {n: place[level.attribute] for n, level in found.items()}
        )
        object.__setattr__(self, "_names", tuple(checked))
        object.__setattr__(self, "labels", MappingProxyType(self._checked_labels(labels or {})))

    def _checked_labels(self, given: Mapping[str, Iterable[object]]) -> dict[str, tuple[str, ...]]:
        found = {name_of(name): tuple(map(str, words)) for name, words in given.items()}
        for name, words in found.items():
            if len(words) != self[name] or len(set(words)) < len(words):
                raise DomainError(
                    f"the labels of {name!r} must be {self[name]} different words, one for each code, got {len(words)}: "
                    f"{', '.join(words[:6])}{', ...' if len(words) > 6 else ''}"
                )
        return found

    # -- reading ---------------------------------------------------------------------------------

    @property
    def attributes(self) -> Clique:
        return self._names

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.sizes.values())

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[str]:
        return iter(self.sizes)

    def __contains__(self, attribute: object) -> bool:
        """Whether it is the name of an attribute, or of a level of one."""
        name = name_of(attribute)
        return isinstance(name, str) and name in self._position

    def __getitem__(self, attribute: str) -> int:
        name = self._known(attribute)
        return self.levels[name].size if name in self.levels else self.sizes[name]

    def __eq__(self, other: object) -> bool:
        """Same attributes, same sizes, same order, same levels."""
        if self is other:
            return True
        if not isinstance(other, Domain) or list(self.sizes.items()) != list(other.sizes.items()):
            return False
        if not self.levels and not other.levels:
            return True
        return self.levels.keys() == other.levels.keys() and all(
            level.attribute == other.levels[n].attribute
            and np.array_equal(level.units, other.levels[n].units)
            for n, level in self.levels.items()
        )

    def __hash__(self) -> int:
        return hash((*self.sizes.items(), *self.levels))

    def __reduce__(self) -> tuple[type[Domain], tuple[dict[str, Any], ...]]:
        """Copies and worker processes get it from its sizes: a read-only mapping cannot be pickled."""
        return Domain, (
            dict(self.sizes),
            {n: (v.attribute, v.units) for n, v in self.levels.items()},
            dict(self.labels),
        )

    def __repr__(self) -> str:
        shown = [f"{name}: {size}{self._levels_of(name)}" for name, size in self.sizes.items()]
        if len(shown) > 12:
            shown = [*shown[:10], "...", shown[-1]]
        cells = self.size()
        total = f"{cells:,}" if cells < 10**15 else f"about 10^{len(str(cells)) - 1}"
        return f"Domain({', '.join(shown)}; {len(self)} attributes, {total} cells)"

    def _levels_of(self, attribute: str) -> str:
        above = [f"{n} {v.size}" for n, v in self.levels.items() if v.attribute == attribute]
        return f" in {', '.join(above)}" if above else ""

    # -- cliques ---------------------------------------------------------------------------------

    def position(self, attribute: str) -> int:
        """Place of an attribute in the order of the domain; a level has that of its attribute."""
        return self._position[self._known(attribute)]

    def clique(self, attributes: str | Iterable[str]) -> Clique:
        """The canonical clique of a set of attributes: domain order, duplicates removed, levels read as their attributes."""
        given, place = names_of(attributes), self._position
        try:
            order = sorted({place[a] for a in given})
        except (KeyError, TypeError):
            order = sorted({place[self._known(a)] for a in given})
        return tuple([self._names[i] for i in order])

    def named(self, attributes: str | Iterable[str]) -> Clique:
        """`clique` with levels under their own names; of two levels of one attribute, the finer one."""
        given = names_of(attributes)
        if not self.levels:
            return self.clique(given)
        kept: dict[int, str] = {}
        for name in given:
            place = self.position(name)
            kept[place] = self._finer(kept.get(place, name), name)
        return tuple(kept[place] for place in sorted(kept))

    def _finer(self, one: str, other: str) -> str:
        """Of two names of one attribute, that from which the other can be read: a level, or the attribute itself."""
        if one == other or one in self.sizes:
            return one
        if other in self.sizes:
            return other
        if self.levels[one].parents(self.levels[other]) is not None:
            return one
        if self.levels[other].parents(self.levels[one]) is not None:
            return other
        return self.levels[one].attribute

    @property
    def positions(self) -> Mapping[str, int]:
        """The place of every attribute, and of every level's."""
        return self._position

    def coarsened(self, table: NDArray[Any], clique: Clique) -> NDArray[Any]:
        """A table over the attributes of a named clique, read at its levels."""
        for axis, name in enumerate(clique):
            if name in self.levels:
                table = self.levels[name].summed(table, axis)
        return table

    def axes(self, clique: Clique) -> tuple[int, ...]:
        return tuple(self.position(a) for a in clique)

    def shape_of(self, clique: Clique) -> tuple[int, ...]:
        return tuple(self[a] for a in clique)

    def size(self, attributes: Iterable[str] | None = None) -> int:
        """Number of cells of a marginal (of the whole domain if None), a Python integer of any length."""
        return prod(self.shape if attributes is None else self.shape_of(self.named(attributes)))

    # -- new domains -----------------------------------------------------------------------------

    def project(self, attributes: str | Iterable[str]) -> Domain:
        """The domain of some of the attributes, in this domain's order."""
        kept = {a: self.sizes[a] for a in self.clique(attributes)}
        levels = {n: v for n, v in self.levels.items() if v.attribute in kept}
        inside = kept.keys() | levels
        return Domain(kept, levels, {n: w for n, w in self.labels.items() if n in inside})

    def _known(self, attribute: str) -> str:
        if attribute not in self:
            names = ", ".join(map(repr, list(self._position)[:8]))
            names += ", ..." if len(self._position) > 8 else ""
            raise DomainError(
                f"every attribute must be in the domain, got {attribute!r}; the domain has {names}"
            )
        return name_of(attribute)
