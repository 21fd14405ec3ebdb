"""Check: what a schema would settle in a table, column by column, for the custodian's eyes and before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from consilience.data.columns import CLIP, MISSING, Categorical, Column
from consilience.data.duck import DuckDBTable
from consilience.data.engines import EngineTable
from consilience.data.schema import Schema
from consilience.data.survey import Survey
from consilience.domain import Clique

SHOWN = 5
"""Undeclared values of a column that are named."""


@dataclass(frozen=True)
class Check:
    """The survey of a table, its undeclared values by column, and the rows that are in impossible cells by clique."""

    schema: Schema
    survey: Survey
    values: Mapping[str, Sequence[tuple[str, int]]]
    impossible: Mapping[Clique, int]

    def facts(self) -> dict[str, Any]:
        """For scripts."""
        s = self.survey
        return {
            "records": s.records,
            "columns": {
                c.name: {
                    "undeclared": s.unread[c.name],
                    "out_of_bounds": s.outside[c.name],
                    "missing": s.missing[c.name],
                    "missing_cell": MISSING in c.labels,
                    "values": dict(self.values.get(c.name, ())),
                }
                for c in self.schema
            },
            "impossible": [{"columns": list(c), "rows": n} for c, n in self.impossible.items()],
            "dropped": s.dropped,
        }

    def lines(self) -> list[str]:
        """One line per column, then what the rules say."""
        said = [f"{self.survey.records:,} rows; nothing is spent, and this is for your eyes only"]
        said += [
            f"  {c.name}: {'; '.join(self._of(c)) or 'every value is declared'}"
            for c in self.schema
        ]
        for rule in self.schema.rules:
            said += [f"rule {rule.text!r}: {remark}" for remark in rule.remarks]
        broken = {c: n for c, n in self.impossible.items() if n}
        for clique, rows in broken.items():
            tied = ", ".join(clique)
            said.append(
                f"rows in combinations of {tied} that the schema calls impossible: {rows:,}"
            )
        if self.impossible and not broken:
            said.append("no row is in a combination that the schema calls impossible")
        if self.survey.dropped:
            said.append(
                f"{self.survey.dropped:,} rows are not counted, because their unit has enough others or no name"
            )
        if self.schema.draft:
            said.append(
                "the schema is a draft, and a release refuses it: check what its line draft = [...] lists"
            )
        return said

    def _of(self, column: Column) -> list[str]:
        s, name = self.survey, column.name
        shown = ", ".join(f"{v!r} {n:,}" for v, n in self.values.get(name, ()))
        parts = []
        if s.unread[name]:
            parts.append(f"{s.unread[name]:,} not declared, counted as {_as_unread(column)}")
        if s.outside[name]:
            parts.append(f"{s.outside[name]:,} out of bounds, counted as {_as_outside(column)}")
        if parts:
            parts[-1] += f" ({shown})"
        if s.missing[name]:
            shown = column.labels[column.missing_code]
            parts.append(f"{s.missing[name]:,} missing, counted as {shown}")
        return parts


def checked(table: DuckDBTable | EngineTable) -> Check:
    """Look at every row of a table."""
    schema, survey = table.schema, table.survey
    settled = [n for n in survey.unread if survey.unread[n] or survey.outside[n]]
    values = {n: table.undeclared(n, SHOWN) for n in settled}
    masks = schema.possible
    counts = table.marginals(list(masks)) if masks else {}
    rows = {c: int(counts[c][~mask].sum()) for c, mask in masks.items()}
    return Check(schema, survey, values, rows)


def _as_unread(column: Column) -> str:
    code = column.other_code if isinstance(column, Categorical) else column.missing_code
    return column.labels[code]


def _as_outside(column: Any) -> str:
    return "the nearest" if column.outside == CLIP else column.outside
