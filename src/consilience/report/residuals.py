"""Residuals against noise: u = (Q x - y) / sigma for every noisy number, beside the law that the noise was drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod, sqrt

import numpy as np
from scipy.special import ndtr
from scipy.stats import chi2

from consilience.domain import Buffer
from consilience.model import Model
from consilience.regions import Kind

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


def residuals_of(model: Model) -> Residuals:
    """The fit against what it was fitted to."""
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
