"""What a report is about: a model and all that is known about the release that it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from consilience.domain import Buffer, Clique
from consilience.errors import ConsilienceError
from consilience.model import Model
from consilience.model.sampling import SampledRows
from consilience.progress import Progress
from consilience.report.promise import Promise
from consilience.report.residuals import Residuals, residuals_of
from consilience.report.tables import (
    Example,
    Labels,
    PublishedTable,
    basis_of_pairs,
    checked_labels,
    example_of,
    least_reliable,
    published_tables,
)

MOST_ROWS = 50_000
"""Synthetic rows drawn for the report, at most."""


@dataclass(frozen=True, eq=False)
class RowsReport:
    """Synthetic rows against the model's tables: total variation of each, or why there are no rows."""

    rows: SampledRows | None
    variation: Mapping[Clique, float]
    refused: str = ""


@dataclass(frozen=True, eq=False)
class Subject:
    """Everything that the page says, as values."""

    title: str
    model: Model
    labels: Mapping[str, tuple[str, ...]]
    promise: Promise | None
    mechanism: str
    tables: list[PublishedTable]
    residuals: Residuals
    basis: Mapping[Clique, str]
    example: Example
    rows: RowsReport
    version: str

    @property
    def worst(self) -> list[PublishedTable]:
        return least_reliable(self.tables)


def subject_of(
    model: Model,
    *,
    title: str,
    labels: Labels | None,
    promise: Promise | None,
    mechanism: str,
    stderr: Mapping[Clique, Buffer | None] | None,
    rows: SampledRows | int | None,
    replicates: int,
    version: str,
    progress: Progress,
) -> Subject:
    """Look at a model from every side. `rows`: drawn already, a number to draw, or None for as many as the total."""
    named = checked_labels(model.domain, labels)
    tables = published_tables(model, stderr=stderr, replicates=replicates, progress=progress)
    return Subject(
        title, model, named, promise, mechanism, tables, residuals_of(model), basis_of_pairs(model),
        example_of(tables, named), _rows_report(model, rows, tables, progress), version,
    )  # fmt: skip


def _rows_report(
    model: Model,
    rows: SampledRows | int | None,
    tables: list[PublishedTable],
    progress: Progress,
) -> RowsReport:
    if rows is None:
        rows = min(MOST_ROWS, max(1, round(model.total)))
    if isinstance(rows, int):
        if rows == 0:
            return RowsReport(None, {}, "no rows were asked for")
        try:
            rows = model.sample_with_report(rows, rng=0, progress=progress)
        except ConsilienceError as why:
            return RowsReport(None, {}, str(why))
    cliques = [t.clique for t in tables]
    counts = rows.data.marginals(cliques)
    n = len(rows.data)
    apart = {
        t.clique: 0.5 * float(np.abs(counts[t.clique] / n - t.counts / model.total).sum())
        for t in tables
    }
    return RowsReport(rows, apart)
