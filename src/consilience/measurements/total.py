"""The number of records that measurements tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum, isfinite, sqrt

import numpy as np

from consilience.domain import Buffer, Clique, Domain
from consilience.errors import MeasurementError
from consilience.measurements.measurement import BoundMeasurement, Measurement
from consilience.measurements.measurements import MOST, Measurements
from consilience.measurements.queries import LinearMap, Operator, shortest_total
from consilience.measurements.structured import Centring


@dataclass(frozen=True)
class Total:
    """An estimate of the number of records (never below 1) and its standard deviation.

    `cliques` says how many measured cliques determine it. The standard deviation is that of the
    unbiased estimate, before it is raised to 1 if it is below.
    """

    value: float
    stddev: float
    cliques: int


def estimate_total(domain: Domain, measurements: Iterable[Measurement] | Measurements) -> Total:
    """N = max(1, sum_r w_r N_r / sum_r w_r), N_r estimated from clique r with variance 1 / w_r.

    N_r is the best linear unbiased estimate from all measurements of clique r together. For plain
    marginals N is then the best linear unbiased estimate from everything, because the sum of a
    table is uncorrelated with all that tables tell beyond their sums. With other queries on
    overlapping cliques it is unbiased but need not be the best. If no measurement determines the
    total, that is an error: there is no default.
    """
    return total_of(Measurements.of(domain, measurements))


def total_of(bound: Measurements) -> Total:
    """`estimate_total` of measurements that are bound to their domain."""
    asked = bound.cliques.take(np.array(sorted(bound.queries), np.int64)).distinct()
    alone = asked.find(bound.cliques) < 0  # cliques of which only the whole table was measured
    plain = np.flatnonzero(alone)
    sums, variances = bound.sums(plain), bound.stddevs[plain] ** 2 * bound.cliques.sizes[plain]
    known = len(bound.cliques.take(plain).distinct())
    groups: dict[Clique, list[BoundMeasurement]] = {}
    for i in np.flatnonzero(~alone):
        groups.setdefault(bound.cliques[i], []).append(bound[i])
    found = [part for group in groups.values() if (part := _estimate(group)) is not None]
    if not len(plain) and not found:
        raise MeasurementError(
            f"some measurement must determine the total, none of those on {len(groups)} cliques "
            "does; give total=... or measure the sum of a table"
        )
    rest = np.array(found).reshape(-1, 2)
    mean, variance = _combine(
        np.concatenate([sums, rest[:, 0]]), np.concatenate([variances, rest[:, 1]])
    )
    return Total(max(1.0, mean), sqrt(variance), known + len(found))


def checked_total(total: float | None, bound: Measurements) -> float:
    """The total as given, or estimated when None is given."""
    if total is None:
        return total_of(bound).value
    if not (isfinite(total) and total > 0):
        raise MeasurementError(
            f"total must be positive and finite, got {total}; leave it out to estimate it"
        )
    if not 1 / MOST <= total <= MOST:
        raise MeasurementError(f"total must be from {1 / MOST:g} to {MOST:g}, got {total:g}")
    return float(total)


def _combine(values: Buffer, variances: Buffer) -> tuple[float, float]:
    """The mean of independent estimates weighted by 1 / variance, and its variance."""
    precision = fsum((1 / variances).tolist())
    return fsum((values / variances).tolist()) / precision, 1 / precision


def _estimate(group: list[BoundMeasurement]) -> tuple[float, float] | None:
    """(value, variance) of the best estimate from one clique's measurements, None without one."""
    group = [m for m in group if not (isinstance(m.query, Centring) and m.clique)]
    if not group:  # residuals are what a table says beyond its sum
        return None
    if len(group) == 1:
        c = group[0].query.total_coefficients()
        return (
            None if c is None else (float(c @ group[0].values), group[0].stddev ** 2 * float(c @ c))
        )
    unit = min(m.stddev for m in group)  # only the ratios of the noise levels matter for c
    c = shortest_total(_stack(group, unit))
    if c is not None:
        values = np.concatenate([m.values * (unit / m.stddev) for m in group])
        return float(c @ values), unit**2 * float(c @ c)
    # Not determined together, or too large and ill-conditioned to say: what each tells alone.
    alone = [part for m in group if (part := _estimate([m])) is not None]
    return _combine(*np.array(alone).T) if alone else None


def _stack(group: list[BoundMeasurement], unit: float) -> Operator:
    """The queries of one clique below each other, scaled so that all noise has stddev `unit`."""
    cuts = np.cumsum([m.query.rows for m in group])

    def apply(x: Buffer) -> Buffer:
        return np.concatenate([m.query.apply(x) * (unit / m.stddev) for m in group])

    def adjoint(y: Buffer) -> Buffer:
        parts = zip(group, np.split(y, cuts[:-1]), strict=True)
        return np.add.reduce([m.query.adjoint(part) * (unit / m.stddev) for m, part in parts])

    shape = (int(cuts[-1]), group[0].query.cells)
    return Operator(LinearMap(shape, apply, adjoint))
