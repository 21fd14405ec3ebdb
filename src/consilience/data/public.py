"""Controls in a schema: marginals of declared columns or hierarchies that are public, as rows of labels and a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from consilience.domain import Buffer, Domain
from consilience.errors import DataError
from consilience.measurements import Bounds, Control, Exact

Rows = tuple[tuple[str | int | float, ...], ...]
"""A label of each column, then a count."""
KINDS = ("exact", "low", "high")


@dataclass(frozen=True)
class PublicTable:
    """What is public about the counts of some columns or hierarchies.

    `exact` names every cell, `low` and `high` those that they bound.
    """

    columns: tuple[str, ...]
    exact: Rows = ()
    low: Rows = ()
    high: Rows = ()

    def control(self, domain: Domain, labels: Mapping[str, tuple[str, ...]]) -> Control:
        """The same as a table; refuses what is no cell, a cell twice, and exact counts that leave a cell out."""
        if not self.columns or bool(self.exact) == bool(self.low or self.high):
            raise DataError(
                "a control must name columns and either exact, or low and high, as rows of labels and a count, got "
                f"{self.columns}"
            )
        unknown = next((c for c in self.columns if c not in domain), None)
        if unknown is not None:
            raise DataError(
                f"a control must name columns or hierarchies of the schema, got {unknown!r}"
            )
        places = [{v: k for k, v in enumerate(labels[c])} for c in self.columns]
        shape = domain.shape_of(self.columns)

        def table(rows: Rows, usual: float) -> Buffer:
            found = np.full(shape, np.nan)
            for row in rows:
                at = self._cell(row, places)
                if not np.isnan(found[at]):
                    raise DataError(f"a control of {self._said} names {row[:-1]} twice")
                found[at] = row[-1]
            if np.isnan(usual) and np.isnan(found).any():
                cell = np.argwhere(np.isnan(found))[0]
                named = tuple(labels[c][k] for c, k in zip(self.columns, cell, strict=True))
                raise DataError(
                    f"an exact control of {self._said} must name every cell, {named} is missing; give it, 0 if it is empty"
                )
            return np.where(np.isnan(found), usual, found)

        if self.exact:
            return Exact(self.columns, table(self.exact, np.nan))
        return Bounds(self.columns, table(self.low, 0.0), table(self.high, inf))

    def _cell(self, row: tuple[Any, ...], places: Sequence[Mapping[str, int]]) -> tuple[int, ...]:
        number = row[-1] if row else None
        if len(row) != len(places) + 1 or isinstance(number, str | bool) or number is None:
            raise DataError(
                f"a row of a control of {self._said} must be a label of each and a count, got {list(row)!r}"
            )
        wrong = next((k for k, v in enumerate(row[:-1]) if v not in places[k]), None)
        if wrong is not None:
            raise DataError(
                f"a control of {self._said} must name labels of column {self.columns[wrong]!r}, got {row[wrong]!r}; it has "
                f"{', '.join(map(repr, list(places[wrong])[:12]))}"
            )
        return tuple(place[v] for place, v in zip(places, row[:-1], strict=True))

    @property
    def _said(self) -> str:
        return ", ".join(map(repr, self.columns))
