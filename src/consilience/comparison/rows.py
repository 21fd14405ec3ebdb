"""Rows of a comparison: what each reconstruction came to, as values and as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan

from consilience.baselines import Answers
from consilience.errors import ConsilienceError
from consilience.markup import html_table

COLUMNS = (
    ("total_variation", "total variation", ".5f"),
    ("validation", "validated RMSE", ".4g"),
    ("objective", "objective", ".6g"),
    ("violation", "violation", ".1e"),
    ("negative", "negative mass", ".1e"),
    ("seconds", "seconds", ".2f"),
)
"""Field, heading, format; a column without any number is not shown."""


@dataclass(frozen=True)
class Row:
    """One reconstruction. Numbers that could not be had are NaN; `refused` says why there are none at all."""

    method: str
    total_variation: float = float("nan")
    """Mean over the measured cliques of half the L1 distance to the truth, as a share of the total."""
    validation: float = float("nan")
    """Root mean squared distance, in counts, to noise that was held back by thinning, less that noise."""
    objective: float = float("nan")
    """1/2 sum ||Q x - y||^2 / sigma^2 of the answers, the same for every method."""
    violation: float = float("nan")
    """Largest L1 distance between answers on what two measured cliques share, as a share of the total."""
    negative: float = float("nan")
    """Mean over the measured cliques of the mass below zero, as a share of the total."""
    seconds: float = float("nan")
    refused: str = ""

    @property
    def done(self) -> bool:
        return not self.refused


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What several reconstructions made of the same measurements; `answers` holds those that were made."""

    rows: tuple[Row, ...]
    answers: Mapping[str, Answers]
    cliques: int
    cells: int
    total: float

    def __getitem__(self, method: str) -> Row:
        found = next((r for r in self.rows if r.method == method), None)
        if found is None:
            raise ConsilienceError(
                f"the method must be one of {', '.join(r.method for r in self.rows)}, got {method!r}"
            )
        return found

    def _shown(self) -> list[tuple[str, str, str]]:
        """The columns with a number in them."""
        return [
            (field, head, form)
            for field, head, form in COLUMNS
            if any(not isnan(getattr(r, field)) for r in self.rows)
        ]

    def _repr_html_(self) -> str:
        shown = self._shown()
        rows = []
        for r in self.rows:
            values = [(getattr(r, field), form) for field, _, form in shown]
            rows.append([r.method, *("-" if isnan(v) else format(v, f) for v, f in values)])
        title = f"Comparison on {self.cliques} measured cliques, {self.cells:,} cells, total {self.total:,.6g}"
        refused = "; ".join(f"{r.method}: {r.refused}" for r in self.rows if not r.done)
        return html_table(title, rows, ("method", *(h for _, h, _ in shown)), note=refused)

    def __repr__(self) -> str:
        shown = self._shown()
        lines = [["method", *(head for _, head, _ in shown)]]
        for r in self.rows:
            values = [getattr(r, field) for field, _, _ in shown]
            lines.append(
                [r.method]
                + [
                    "-" if isnan(v) else format(v, f)
                    for v, (_, _, f) in zip(values, shown, strict=True)
                ]
            )
        wide = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        text = [
            f"Comparison on {self.cliques} measured cliques, {self.cells:,} cells, total {self.total:,.6g}"
        ]
        for r, line in zip((None, *self.rows), lines, strict=True):
            cells = [
                line[0].ljust(wide[0]),
                *(c.rjust(w) for c, w in zip(line[1:], wide[1:], strict=True)),
            ]
            text.append(
                "  ".join(cells).rstrip() if r is None or r.done else f"{cells[0]}  {r.refused}"
            )
        return "\n".join(text)
