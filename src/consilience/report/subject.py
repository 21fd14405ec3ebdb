"""What a report is about: a model and all that is known about the release that it came from.

Residuals u = (Q x - y) / sigma stand beside the law that the noise was drawn from, for every noisy number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod, sqrt

import numpy as np
from scipy.special import ndtr
from scipy.stats import chi2

from consilience.domain import Buffer, Clique
from consilience.errors import ConsilienceError
from consilience.model import Model, Uncertainty
from consilience.model.sampling import SampledRows
from consilience.progress import Progress
from consilience.regions import Kind
from consilience.report.promise import Promise
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

EDGES = np.linspace(-4.0, 4.0, 33)
TOO_FAR = 1e-6
"""A table is flagged if residuals as large would come by chance this rarely."""


@dataclass(frozen=True, eq=False)
class TableResiduals:
    """Residuals of one measurement: their root mean square, and whether noise explains them."""

    name: str
    count: int
    rms: float
    flagged: bool


@dataclass(frozen=True, eq=False)
class Residuals:
    """All residuals as a histogram, and by table."""

    density: Buffer
    law: Buffer
    count: int
    rms: float
    beyond: float
    expected_beyond: float
    fitted: float | None
    """Expected root mean square after least squares under consistency, sqrt(1 - free numbers / numbers); None with queries, and
    on a factor graph, whose tables agree on single attributes only."""
    tables: Sequence[TableResiduals]

    @property
    def flagged(self) -> list[TableResiduals]:
        return [t for t in self.tables if t.flagged]


def residuals_of(model: Model) -> Residuals | None:
    """The fit against what it was fitted to; None where that is no noisy counts."""
    if not len(model.measurements):
        return None
    every: list[Buffer] = []
    tables: list[TableResiduals] = []
    laplace = 0
    answers = model.marginals([m.clique for m in model.measurements])
    for m, table in zip(model.measurements, answers, strict=True):
        u = (m.query.apply(np.ascontiguousarray(table).reshape(-1)) - m.values) / m.stddev
        square = float(np.square(u).sum())
        # sum u^2 of pure noise is at most about chi-squared; Laplace tails are heavier, so it is not asked there
        flagged = m.noise == "gaussian" and float(chi2.sf(square, u.size)) < TOO_FAR
        rms = float(np.sqrt(square / u.size))
        tables.append(TableResiduals(" × ".join(m.clique) or "total", u.size, rms, flagged))
        every.append(u)
        laplace += u.size if m.noise == "laplace" else 0
    u = np.concatenate(every)
    counts, _ = np.histogram(np.clip(u, EDGES[0], EDGES[-1]), EDGES)
    share = laplace / u.size
    beyond = (1 - share) * 2 * float(ndtr(-2.0)) + share * float(np.exp(-2.0 * np.sqrt(2)))
    return Residuals(
        counts / (u.size * np.diff(EDGES)),
        _law(share),
        u.size,
        float(np.sqrt(np.mean(np.square(u)))),
        float((np.abs(u) > 2).mean()),
        beyond,
        _fitted(model, u.size),
        tables,
    )


def _fitted(model: Model, numbers: int) -> float | None:
    """Consistent tables are free in one component per subset t of a measured clique, of prod_{i in t} (n_i - 1) numbers."""
    if any(not m.is_identity for m in model.measurements) or model.graph.kind is Kind.FACTOR_GRAPH:
        return None
    subsets = {s for c in model.cliques for k in range(1, len(c) + 1) for s in combinations(c, k)}
    free = sum(prod(model.domain[a] - 1 for a in s) for s in subsets)
    known = model.total_known
    return sqrt(max(0.0, 1 - (free + (not known)) / numbers))


POINTS = np.linspace(-4.0, 4.0, 81)


def _law(laplace: float) -> Buffer:
    """Density of the standardised noise at `POINTS`: normal, Laplace, or a mixture in their shares."""
    normal = np.exp(-np.square(POINTS) / 2) / np.sqrt(2 * np.pi)
    double = np.exp(-np.sqrt(2) * np.abs(POINTS)) / np.sqrt(2)
    return (1 - laplace) * normal + laplace * double


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
    residuals: Residuals | None
    basis: Mapping[Clique, str]
    example: Example
    rows: RowsReport
    version: str

    @property
    def misfits(self) -> set[str]:
        """Names of tables that are further from the fit than their noise explains."""
        return set() if self.residuals is None else {t.name for t in self.residuals.flagged}

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
    errors: Mapping[Clique, Uncertainty | None] | None,
    rows: SampledRows | int | None,
    replicates: int | None,
    version: str,
    progress: Progress,
) -> Subject:
    """Look at a model from every side. `rows`: drawn already, a number to draw, or None for as many as the total."""
    named = checked_labels(model.domain, labels)
    tables = published_tables(model, errors=errors, replicates=replicates, progress=progress)
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

    def found(clique: Clique) -> Buffer:
        domain = model.domain
        return domain.coarsened(counts[domain.clique(clique)], clique)

    apart = {
        t.clique: 0.5 * float(np.abs(found(t.clique) / n - t.counts / model.total).sum())
        for t in tables
    }
    return RowsReport(rows, apart)
