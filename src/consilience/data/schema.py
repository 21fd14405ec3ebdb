"""Schema: the declared columns of a table, and the coding of a whole table by them.

The domain comes from the declaration and never from the data: a domain read off the records would
not be private.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.data.binned import Dates, Numeric
from consilience.data.columns import RESERVED, Column
from consilience.data.public import PublicTable
from consilience.data.rules import Rule, compiled
from consilience.data.values import Values
from consilience.domain import Clique, Domain
from consilience.errors import DataError
from consilience.measurements import Control, public_total
from consilience.records.dataset import Dataset, Table, named_columns

Combination = Mapping[str, tuple[str, ...]]
"""{column: labels}: every combination of one of these labels from each column."""
MOST_CELLS = 50_000_000
"""Of the columns that a rule ties together."""


@dataclass(frozen=True)
class Grouping:
    """A coarser reading of a column, or of another grouping: each label belongs to one named group. It is a level of the domain.

    groups: {group: labels}. prefix: instead of groups, how many characters the labels of one group have in common, as codes of
    places do.
    """

    name: str
    of: str
    groups: Mapping[str, tuple[str, ...]]
    prefix: int | None = None


@dataclass(frozen=True, repr=False)
class Schema:
    """Declared columns, in order.

    ignored: columns of the table that are left out on purpose.
    impossible: combinations of labels that cannot occur (structural zeros), and rules such as "age < 15 and marital != never",
    which come to such combinations (`rules.py`).
    groupings: coarser readings of columns.
    public: marginals that are public, exact or in ranges, which a release keeps and does not protect.
    name: of the table, by which ledgers know it.
    unit: the column that says whose a row is; it is never released, and at most rows_per_unit rows of each are counted. Without
    one every row stands for itself.
    draft: what was read off the data and nobody has checked; a release refuses a schema that has any.
    """

    columns: tuple[Column, ...]
    ignored: tuple[str, ...] = ()
    impossible: tuple[Combination | str, ...] = ()
    groupings: tuple[Grouping, ...] = ()
    public: tuple[PublicTable, ...] = ()
    name: str | None = None
    unit: str | None = None
    rows_per_unit: int = 1
    draft: tuple[str, ...] = ()

    def __init__(
        self,
        columns: Iterable[Column],
        ignored: Iterable[str] = (),
        impossible: Iterable[Combination | str] = (),
        groupings: Iterable[Grouping] = (),
        public: Iterable[PublicTable] = (),
        *,
        name: str | None = None,
        unit: str | None = None,
        rows_per_unit: int | None = None,
        draft: Iterable[str] = (),
    ) -> None:
        declared = tuple(columns)
        Domain([(c.name, len(c.labels)) for c in declared])  # names distinct, at least one column
        object.__setattr__(self, "columns", declared)
        object.__setattr__(self, "ignored", tuple(ignored))
        object.__setattr__(self, "impossible", tuple(impossible))
        object.__setattr__(self, "groupings", _checked_groupings(declared, groupings))
        object.__setattr__(self, "public", tuple(public))
        object.__setattr__(self, "name", _checked_name(name))
        object.__setattr__(self, "unit", unit)
        object.__setattr__(self, "rows_per_unit", _checked_rows(unit, rows_per_unit))
        object.__setattr__(self, "draft", tuple(draft))
        both = [name for name in self.ignored if name in self.domain]
        if both:
            raise DataError(
                f"a column is either declared or ignored, got both for {both[0]!r}; drop one"
            )
        if unit is not None and (unit in self.domain or unit in self.ignored):
            raise DataError(
                f"the unit says whose a row is and is never released, got {unit!r}, which is declared or ignored too; drop that"
            )
        for combination in self.impossible:
            if not isinstance(combination, str):
                _check_combination(self, combination)
        for combination in self.combinations:
            _check_cells(self, combination)
        public_total(self.controls, None)

    @cached_property
    def domain(self) -> Domain:
        """Columns as attributes, groupings as levels of them."""
        levels: dict[str, tuple[str, NDArray[np.int64]]] = {}
        for g in self.groupings:
            unit = {label: k for k, labels in enumerate(g.groups.values()) for label in labels}
            levels[g.name] = g.of, np.array([unit[v] for v in self.labels[g.of]], np.int64)
        return Domain([(c.name, len(c.labels)) for c in self.columns], levels)

    @cached_property
    def labels(self) -> Mapping[str, tuple[str, ...]]:
        """What the values of each column, and the groups of each grouping, are called."""
        groups = {g.name: tuple(g.groups) for g in self.groupings}
        return {c.name: c.labels for c in self.columns} | groups

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        names = ", ".join(repr(c.name) for c in self.columns)
        raise DataError(f"the column must be declared in the schema, got {name!r}; it has {names}")

    def __repr__(self) -> str:
        shown = ", ".join(f"{c.name}: {type(c).__name__.lower()} {len(c.labels)}" for c in self)
        return f"Schema({shown})"

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rules among what is impossible, compiled."""
        columns = {c.name: c for c in self.columns}
        return tuple(compiled(r, columns) for r in self.impossible if isinstance(r, str))

    @property
    def combinations(self) -> tuple[Combination, ...]:
        """Everything that cannot occur as combinations of labels, those of rules included."""
        listed = [c for c in self.impossible if not isinstance(c, str)]
        ruled = [
            {name: tuple(v for v in self[name].labels if v in labels) for name, labels in c.items()}
            for rule in self.rules
            for c in rule.combinations
        ]
        return (*listed, *ruled)

    @property
    def possible(self) -> dict[Clique, Any]:
        """{clique: False where a combination cannot occur}, as `reconstruct` takes it."""
        masks: dict[Clique, NDArray[np.bool_]] = {}
        domain = self.domain
        for combination in self.combinations:
            clique = domain.clique(combination)
            mask = masks.setdefault(clique, np.ones(domain.shape_of(clique), dtype=bool))
            codes = [[self[a].labels.index(v) for v in combination[a]] for a in clique]
            mask[np.ix_(*codes)] = False
        return masks

    @cached_property
    def controls(self) -> tuple[Control, ...]:
        """What is public, as fits take it."""
        return tuple(table.control(self.domain, self.labels) for table in self.public)

    def encode(self, table: Table, weights: ArrayLike | None = None) -> Dataset:
        """A table of values as codes; columns are matched by name, undeclared ones ignored."""
        domain = self.domain
        values = named_columns(table, domain.attributes)
        codes = {c.name: c.encode(v) for c, v in zip(self, values, strict=True)}
        return Dataset(codes, domain, weights)

    def decode(self, data: Dataset | NDArray[np.integer]) -> dict[str, Values]:
        """Values for codes, column by column; `encode` gives the same codes back."""
        if not isinstance(data, Dataset):
            data = Dataset(data, self.domain)
        elif list(data.domain.sizes.items()) != list(self.domain.sizes.items()):
            raise DataError(
                f"a dataset to decode must have the domain of the schema, got {data.domain!r}; "
                f"the schema has {self.domain!r}"
            )
        return {c.name: c.decode(data.column(c.name)) for c in self}

    def texts(self, data: Dataset) -> dict[str, Values]:
        """`decode` for a file of text."""
        return self.spelled(self.decode(data))

    def spelled(self, columns: Mapping[str, Values]) -> dict[str, Values]:
        """Values for a file of text: numbers and days as their columns' formats spell them."""
        found = dict(columns)
        for column in self:
            if isinstance(column, Numeric | Dates):
                found[column.name] = column.texts(found[column.name])
        return found


def _checked_name(name: object) -> str | None:
    if name is None or (isinstance(name, str) and name.strip() and name.isprintable()):
        return name
    raise DataError(f"the name of a table must be a line of text, got {name!r}")


def _checked_rows(unit: object, rows: object) -> int:
    if unit is not None and not (isinstance(unit, str) and unit):
        raise DataError(
            f"unit must be the name of the column that says whose a row is, got {unit!r}"
        )
    if unit is None and rows is None:
        return 1
    if unit is None:
        raise DataError(
            f"rows_per_unit goes with unit, the column that says whose a row is, got {rows!r} and no unit"
        )
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise DataError(
            f"a schema with unit = {unit!r} must say rows_per_unit, a whole number from 1 on: how many rows of a unit count at "
            f"most, got {rows!r}"
        )
    return rows


def _check_combination(schema: Schema, combination: Combination) -> None:
    if len(combination) < 2:
        raise DataError(
            "an impossible combination must name labels of at least two columns, got "
            f"{', '.join(map(repr, combination)) or 'none'}; leave an impossible label undeclared"
        )
    for name, labels in combination.items():
        _check_labels(schema, name, labels, "an impossible combination")


def _check_cells(schema: Schema, combination: Combination) -> None:
    cells = schema.domain.size(schema.domain.clique(combination))
    if cells > MOST_CELLS:
        raise DataError(
            f"an impossible combination must tie columns of at most {MOST_CELLS:,} cells together, got {cells:,} of "
            f"{', '.join(map(repr, combination))}; merge labels, or state a rule on fewer columns"
        )


def _checked_groupings(
    columns: Iterable[Column], given: Iterable[Grouping]
) -> tuple[Grouping, ...]:
    known = {c.name: c.labels for c in columns}
    found: list[Grouping] = []
    for grouping in given:
        found.append(_checked_grouping(known, grouping))
        known[grouping.name] = tuple(found[-1].groups)
    return tuple(found)


def _checked_grouping(known: Mapping[str, tuple[str, ...]], grouping: Grouping) -> Grouping:
    """The grouping with its groups, once each label of what it lies over is in one of them."""
    name, of = grouping.name, grouping.of
    if name in known:
        raise DataError(
            f"a hierarchy must have a name of its own, got {name!r}, which is a column or another hierarchy"
        )
    if of not in known:
        raise DataError(
            f"hierarchy {name!r} must lie over a column or a hierarchy declared before it, got of = {of!r}; there are "
            f"{', '.join(map(repr, list(known)[:12]))}"
        )
    if grouping.prefix is not None:
        return replace(grouping, groups=_by_prefix(name, known[of], grouping.prefix))
    listed = Counter(label for labels in grouping.groups.values() for label in labels)
    apart = [v for v in known[of] if v in RESERVED and not listed[v] and v not in grouping.groups]
    if apart:  # what is missing or outside stays by itself
        alone = {v: (v,) for v in apart}
        listed.update(apart)
        grouping = replace(grouping, groups={**grouping.groups, **alone})
    _check_known_labels(known[of], of, tuple(listed), f"hierarchy {name!r}")
    left = next((v for v in known[of] if listed[v] != 1), None)
    if left is not None:
        raise DataError(
            f"hierarchy {name!r} must put every label of {of!r} in one group, got {left!r} in {listed[left]}"
        )
    empty = next((g for g, labels in grouping.groups.items() if not labels), None)
    if empty is not None:
        raise DataError(f"every group of hierarchy {name!r} must have a label, {empty!r} has none")
    return grouping


def _by_prefix(name: str, labels: tuple[str, ...], prefix: object) -> dict[str, tuple[str, ...]]:
    """Labels by their first characters; what is missing or outside stays by itself."""
    if not isinstance(prefix, int) or isinstance(prefix, bool) or prefix < 1:
        raise DataError(
            f"the prefix of hierarchy {name!r} must be a number of characters from 1 on, got {prefix!r}"
        )
    short = next((v for v in labels if v not in RESERVED and len(v) < prefix), None)
    if short is not None:
        raise DataError(
            f"hierarchy {name!r} takes the first {prefix} characters of each label, got {short!r}, which is shorter"
        )
    groups: dict[str, list[str]] = {}
    for label in labels:
        groups.setdefault(label if label in RESERVED else label[:prefix], []).append(label)
    return {group: tuple(members) for group, members in groups.items()}


def _check_labels(schema: Schema, name: str, labels: tuple[str, ...], where: str) -> None:
    _check_known_labels(schema[name].labels, name, labels, where)


def _check_known_labels(
    known: tuple[str, ...], name: str, labels: tuple[str, ...], where: str
) -> None:
    there = set(known)
    unknown = [v for v in labels if v not in there]
    if unknown or not labels:
        raise DataError(
            f"{where} must name labels of column {name!r}, got "
            f"{unknown[0] if unknown else 'none'!r}; it has {', '.join(map(repr, known[:12]))}"
        )
