"""Schema: the declared columns of a table, and the coding of a whole table by them.

The domain comes from the declaration and never from the data: a domain read off the records would
not be private.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.data.columns import Column, Values
from consilience.domain import Domain
from consilience.errors import DataError
from consilience.records.dataset import Dataset
from consilience.records.frames import Table, named_columns


@dataclass(frozen=True, repr=False)
class Schema:
    """Declared columns, in order."""

    columns: tuple[Column, ...]

    def __init__(self, columns: Iterable[Column]) -> None:
        declared = tuple(columns)
        Domain([(c.name, len(c.labels)) for c in declared])  # names distinct, at least one column
        object.__setattr__(self, "columns", declared)

    @property
    def domain(self) -> Domain:
        return Domain([(c.name, len(c.labels)) for c in self.columns])

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
        elif data.domain != self.domain:
            raise DataError(
                f"a dataset to decode must have the domain of the schema, got {data.domain!r}; "
                f"the schema has {self.domain!r}"
            )
        return {c.name: c.decode(data.column(c.name)) for c in self}
