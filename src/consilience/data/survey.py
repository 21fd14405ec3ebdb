"""CodedTable and Survey: a table coded by a schema, and what had to be settled in it, for the custodian's eyes only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from consilience.data.columns import MISSING
from consilience.data.schema import Schema
from consilience.domain import Domain
from consilience.errors import DataError


@dataclass(frozen=True)
class Survey:
    """Rows, and per column the cells that were no declared value (`unread`), out of bounds (`outside`), or missing.

    `filled` are missing values of columns that have no cell for them: they count as what the schema says. `missing` are all of
    them. `dropped`: rows that are not counted, because their unit has enough others or no name.
    """

    records: int
    unread: Mapping[str, int]
    outside: Mapping[str, int]
    dropped: int = 0
    missing: Mapping[str, int] = field(default_factory=dict)
    filled: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, schema: Schema, counts: Sequence[int], dropped: int) -> Survey:
        """From the number of rows, then three numbers per column: unread, outside, missing."""
        names = schema.domain.attributes
        each = [dict(zip(names, counts[k::3], strict=True)) for k in (1, 2, 3)]
        filled = {n: m for n, m in each[2].items() if MISSING not in schema[n].labels}
        return cls(counts[0], each[0], each[1], dropped, each[2], filled)

    def lines(self) -> list[str]:
        """What was settled, in words; nothing where every value was declared."""
        said: list[str] = []
        for name, unread in self.unread.items():
            outside = self.outside[name]
            parts = [f"{unread:,} not declared"] if unread else []
            parts += [f"{outside:,} out of bounds"] if outside else []
            filled = self.filled.get(name, 0)
            parts += [f"{filled:,} missing, for which it has no cell,"] if filled else []
            if parts:
                said.append(f"  {name}: {', '.join(parts)} of {self.records:,}")
        if said:
            said.insert(
                0,
                "values that the schema does not declare (shown to you only, not in the release):",
            )
        if self.dropped:
            said.append(
                f"{self.dropped:,} rows are not counted, because their unit has enough others or no name (shown to you only)"
            )
        return said

    def refuse(self) -> None:
        """Refuse such cells: an error that names the first column with such cells."""
        for role, counts in (("not declared values", self.unread), ("out of bounds", self.outside)):
            for name, count in counts.items():
                if count:
                    raise DataError(
                        f"with strict, every cell must be a declared value, {count:,} of column "
                        f"{name!r} are {role}; correct the table or the schema, or leave out strict"
                    )


class CodedTable(ABC):
    """A table that stays where it is and is coded there by a schema; a `Source`, as far as it can be looked through."""

    schema: Schema

    @property
    def domain(self) -> Domain:
        return self.schema.domain

    @property
    def unit_rows(self) -> tuple[str, int] | None:
        """Whose rows these are and how many of each are counted at most; None where every row stands for itself."""
        return None if self.schema.unit is None else (self.schema.unit, self.schema.rows_per_unit)

    def share_done(self) -> float | None:
        """How much of the query that runs now is done, from 0 to 1; None where the engine does not say."""
        return None

    @cached_property
    def survey(self) -> Survey:
        """How many rows there are and how many cells the schema had to settle; looked for once."""
        return self._look()

    @abstractmethod
    def _look(self) -> Survey: ...

    @property
    def records(self) -> int:
        """Number of rows."""
        return self.survey.records

    @abstractmethod
    def undeclared(self, name: str, most: int) -> list[tuple[str, int]]:
        """The most frequent values of a column that are not declared or out of bounds, and how often each occurs."""


def check_columns(schema: Schema, present: Sequence[str], shown: str) -> None:
    """The table and the schema must speak of the same columns; only names are looked at."""
    wanted = [c.name for c in schema] + ([] if schema.unit is None else [schema.unit])
    absent = [name for name in wanted if name not in present]
    if absent:
        hint = "is it another delimiter, or is the column to be taken out of the schema?"
        raise DataError(
            f"the table {shown!r} must have the column {absent[0]!r} of the schema, it has "
            f"{_some(present)}; {hint}"
        )
    declared = {*wanted, *schema.ignored}
    extra = [name for name in present if name not in declared]
    if extra:
        raise DataError(
            f"the schema must declare the column {extra[0]!r} of {shown!r}, or list it under ignore"
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
