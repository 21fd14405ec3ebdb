"""The losses of measurements: squared (Gaussian noise) and absolute (Laplace noise).

Both are L(tau) = sum_j sum_i f(u_ji) with u_j = (N Q_j P_j tau - y_j) / s_j. f(u) = u^2 / 2 gives the squared loss,
f(u) = |u| (or its Huber smoothing) the absolute loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, Cliques, CliqueVector, Domain, Layout, dot
from consilience.domain.moves import cells_of
from consilience.errors import LossError
from consilience.measurements.loss import BoundLoss, Loss, Route, check_domain, routes
from consilience.measurements.measurement import BoundMeasurement, Measurement
from consilience.measurements.measurements import Measurements
from consilience.measurements.queries import Identity, Query
from consilience.measurements.total import checked_total


class Penalty(ABC):
    """f, applied to each residual and summed."""

    @property
    @abstractmethod
    def curvature(self) -> float | None:
        """The largest f'', None where f has a kink."""

    @abstractmethod
    def value(self, u: Buffer) -> float:
        """sum_i f(u_i)."""

    @abstractmethod
    def derivative(self, u: Buffer) -> Buffer:
        """f'(u_i) for each i; may overwrite u."""


@dataclass(frozen=True)
class Square(Penalty):
    """f(u) = u^2 / 2."""

    @property
    def curvature(self) -> float:
        return 1.0

    def value(self, u: Buffer) -> float:
        return 0.5 * dot(u, u)

    def derivative(self, u: Buffer) -> Buffer:
        return u


@dataclass(frozen=True)
class Huber(Penalty):
    """f(u) = u^2 / (2 delta) for |u| <= delta, else |u| - delta / 2; f(u) = |u| if delta is 0."""

    delta: float

    @property
    def curvature(self) -> float | None:
        return 1 / self.delta if self.delta > 0 else None

    def value(self, u: Buffer) -> float:
        slope = self._slope(u)
        return dot(slope, u) - 0.5 * self.delta * dot(slope, slope)

    def derivative(self, u: Buffer) -> Buffer:
        return self._slope(u)

    def _slope(self, u: Buffer) -> Buffer:
        return np.clip(u / self.delta, -1.0, 1.0) if self.delta > 0 else np.sign(u)


@dataclass(frozen=True, eq=False)
class Term:
    """One measurement in a loss: its residuals are divided by `scale`."""

    clique: Clique
    query: Query
    values: Buffer
    scale: float


@dataclass(frozen=True, eq=False)
class Plain:
    """Whole tables of distinct cliques, the residuals of table i divided by scales[i]."""

    tables: CliqueVector
    scales: Buffer


def smoothness(
    homes: NDArray[np.int64], squares: Buffer, penalty: Penalty, total: float
) -> float | None:
    """N^2 max(f'') max_r sum_{j routed to r} ||Q_j||_{1->2}^2 / s_j^2; `squares` are the terms of the sum.

    For a change d of tau, ||Q_j P_j d_r||_2 <= ||Q_j||_{1->2} ||d_r||_1, as P_j does not increase
    the 1-norm.
    """
    if penalty.curvature is None:
        return None
    load = np.bincount(homes, squares) if len(homes) else np.zeros(1)
    return float(total**2 * penalty.curvature * load.max())


def _squares(terms: Iterable[Term]) -> list[float]:
    return [(term.query.column_norm / term.scale) ** 2 for term in terms]


@dataclass(frozen=True, eq=False)
class _Block:
    """All terms that read a table of the layout as it is, as flat arrays over cells `where`."""

    where: slice | NDArray[np.int64]
    values: Buffer
    inverse_scale: Buffer | float


@dataclass(frozen=True, eq=False)
class BoundResidualLoss(BoundLoss):
    """sum_j sum_i f(u_ji) + constant: one flat block, then clique by clique the other terms."""

    layout: Layout
    smoothness: float | None
    penalty: Penalty
    total: float
    constant: float
    block: _Block
    groups: tuple[tuple[Route, tuple[Term, ...]], ...]

    def value_and_grad(self, values: Buffer) -> tuple[float, Buffer]:
        gradient = np.zeros(self.layout.cells)
        value = self.constant + self._add_block(values, gradient)
        for route, terms in self.groups:
            x = route.gather(values) * self.total
            slope = np.zeros(x.size)
            for term in terms:
                u = (term.query.apply(x) - term.values) / term.scale
                value += self.penalty.value(u)
                slope += term.query.adjoint(self.penalty.derivative(u)) / term.scale
            route.scatter(gradient, self.total * slope)
        return value, gradient

    def _add_block(self, values: Buffer, gradient: Buffer) -> float:
        block = self.block
        u = values[block.where] * self.total
        u -= block.values
        u *= block.inverse_scale
        value = self.penalty.value(u)
        slope = self.penalty.derivative(u)
        slope *= block.inverse_scale
        slope *= self.total
        gradient[block.where] = slope
        return value


def bind_terms(
    layout: Layout,
    plain: Plain,
    rest: Sequence[Term],
    penalty: Penalty,
    total: float,
    constant: float,
) -> BoundResidualLoss:
    """Compile plain tables and further terms for a layout."""
    home = layout.cliques.find(plain.tables.cliques)
    here = np.flatnonzero(home >= 0)
    terms = [*_as_terms(plain, np.flatnonzero(home < 0)), *rest]
    found = routes(layout, [t.clique for t in terms])
    groups: dict[Clique, tuple[Route, list[Term]]] = {}
    for route, term in zip(found, terms, strict=True):
        groups.setdefault(term.clique, (route, []))[1].append(term)
    homes = np.concatenate([home[here], np.array([r.home for r in found], np.int64)])
    squares = np.concatenate([plain.scales[here] ** -2.0, _squares(terms)])
    return BoundResidualLoss(
        layout,
        smoothness(homes, squares, penalty, total),
        penalty,
        total,
        constant,
        _block(layout, plain, here[np.argsort(home[here], kind="stable")], home),
        tuple((route, tuple(members)) for route, members in groups.values()),
    )


def _as_terms(plain: Plain, which: NDArray[np.int64]) -> list[Term]:
    tables, at = plain.tables, plain.tables.layout.offsets
    return [
        Term(
            tables.cliques[i],
            Identity(int(at[i + 1] - at[i])),
            tables.values[at[i] : at[i + 1]],
            float(plain.scales[i]),
        )
        for i in which.tolist()
    ]


def _block(
    layout: Layout, plain: Plain, which: NDArray[np.int64], home: NDArray[np.int64]
) -> _Block:
    """Flat arrays for tables in layout order; a slice when they are neighbours."""
    if not len(which):
        return _Block(slice(0, 0), np.zeros(0), 1.0)
    homes, counts = home[which], np.diff(plain.tables.layout.offsets)[which]
    first, last = homes[0], homes[-1]
    if last - first + 1 == len(which):
        where = slice(int(layout.offsets[first]), int(layout.offsets[last + 1]))
    else:
        where = cells_of(layout.offsets[homes], counts)
    scales = 1 / plain.scales[which]
    inverse = float(scales[0]) if np.ptp(scales) == 0 else np.repeat(scales, counts)
    values = plain.tables.values
    if not np.array_equal(which, np.arange(len(plain.scales))):
        values = values[cells_of(plain.tables.layout.offsets[which], counts)]
    return _Block(where, values, inverse)


@dataclass(frozen=True, eq=False)
class Separable:
    """1/2 sum_c weights[c] ||tau_c - targets_c||^2 + constant, and the measurements beyond it.

    `weights[i]` belongs to clique i of `targets`; everything is in probability scale.
    """

    weights: Buffer
    targets: CliqueVector
    rest: tuple[BoundMeasurement, ...]
    constant: float


@dataclass(frozen=True, eq=False, repr=False)
class SquaredLoss(Loss):
    """L(tau) = 1/2 sum_j ||N Q_j P_j tau - y_j||^2 / sigma_j^2, N the total.

    The negative log-likelihood of Gaussian noise, weighted least squares for any other.
    `total=None` estimates N with `estimate_total`. Several measurements of one marginal are merged
    into their weighted mean, and the spread around it becomes a constant. A measurement of the
    empty clique tells the total only: a constant too.
    """

    domain: Domain
    cliques: Cliques
    measurements: Measurements
    total: float
    """The number of records that tables are scaled to."""
    _merged: Plain
    _rest: tuple[BoundMeasurement, ...]
    _constant: float

    def __init__(
        self,
        domain: Domain,
        measurements: Iterable[Measurement | BoundMeasurement] | Measurements,
        total: float | None = None,
    ) -> None:
        bound = Measurements.of(domain, measurements)
        n = checked_total(total, bound)
        merged, spread = _merge(bound)
        constant = _on_total(terms_of(_of_total(bound)), Square(), n)
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "cliques", bound.cliques.distinct(empty=False))
        object.__setattr__(self, "measurements", bound)
        object.__setattr__(self, "total", n)
        object.__setattr__(self, "_merged", merged)
        object.__setattr__(self, "_rest", tuple(m for m in _asked(bound) if m.clique))
        object.__setattr__(self, "_constant", constant + spread)

    @property
    def smoothness(self) -> float | None:
        """N^2 max_c sum_{j on c} ||Q_j||_{1->2}^2 / sigma_j^2."""
        return _smoothness(self.cliques, self._merged, terms_of(self._rest), Square(), self.total)

    def bind(self, layout: Layout) -> BoundResidualLoss:
        check_domain(self, layout)
        rest = terms_of(self._rest)
        return bind_terms(layout, self._merged, rest, Square(), self.total, self._constant)

    def separable(self) -> Separable:
        """The part of L that is a squared distance per clique: weight N^2 / sigma^2, target y / N.

        L(tau) is its value at tau plus 1/2 ||N Q P tau - y||^2 / sigma^2 for each measurement of
        `rest`.
        """
        weights = np.square(self.total / self._merged.scales)
        return Separable(weights, self._merged.tables / self.total, self._rest, self._constant)

    def __repr__(self) -> str:
        return f"SquaredLoss({len(self.measurements)} measurements, total {self.total:g})"


@dataclass(frozen=True, eq=False, repr=False)
class AbsoluteLoss(Loss):
    """L(tau) = sum_j sum_i f((N Q_j P_j tau - y_j)_i / b_j), b = stddev / sqrt(2), f(u) near |u|.

    With `smoothing=0`, f(u) = |u|: the negative log-likelihood of Laplace noise; the gradient is a
    subgradient and there is no smoothness constant. With `smoothing=d > 0`, f is Huber's function:
    u^2 / (2d) where |u| <= d, else |u| - d/2. It is convex, within d/2 below |u|, and the gradient
    is Lipschitz with a constant that grows as 1/d, so a first-order method trades the closeness to
    |u| for speed. `smoothing` is in units of b: 0.1 leaves a residual of a tenth of the noise
    undecided. `smoothing_gap` bounds how far L lies below the exact absolute loss.
    """

    domain: Domain
    cliques: Cliques
    measurements: Measurements
    total: float
    smoothing: float
    _plain: Plain
    _rest: tuple[BoundMeasurement, ...]
    _constant: float

    def __init__(
        self,
        domain: Domain,
        measurements: Iterable[Measurement] | Measurements,
        total: float | None = None,
        *,
        smoothing: float = 0.1,
    ) -> None:
        if not (isfinite(smoothing) and smoothing >= 0):
            raise LossError(
                f"smoothing must be finite and at least 0, got {smoothing}; it is in units of "
                "the noise scale"
            )
        bound = Measurements.of(domain, measurements)
        n = checked_total(total, bound)
        on_total = terms_of(_of_total(bound), laplace=True)
        plain, others = _first_plain(bound)
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "cliques", bound.cliques.distinct(empty=False))
        object.__setattr__(self, "measurements", bound)
        object.__setattr__(self, "total", n)
        object.__setattr__(self, "smoothing", float(smoothing))
        object.__setattr__(self, "_plain", Plain(plain.tables, plain.scales / sqrt(2)))
        object.__setattr__(self, "_rest", tuple(bound[i] for i in others.tolist()))
        object.__setattr__(self, "_constant", _on_total(on_total, Huber(float(smoothing)), n))

    @property
    def smoothing_gap(self) -> float:
        """The exact absolute loss is between L and L + smoothing_gap."""
        return 0.5 * self.smoothing * len(self.measurements.values)

    @property
    def smoothness(self) -> float | None:
        """N^2 / smoothing * max_c sum_{j on c} ||Q_j||_{1->2}^2 / b_j^2."""
        rest = terms_of(self._rest, laplace=True)
        return _smoothness(self.cliques, self._plain, rest, Huber(self.smoothing), self.total)

    def bind(self, layout: Layout) -> BoundResidualLoss:
        check_domain(self, layout)
        rest = terms_of(self._rest, laplace=True)
        return bind_terms(
            layout, self._plain, rest, Huber(self.smoothing), self.total, self._constant
        )

    def __repr__(self) -> str:
        return (
            f"AbsoluteLoss({len(self.measurements)} measurements, total {self.total:g}, "
            f"smoothing {self.smoothing:g})"
        )


def _smoothness(
    cliques: Cliques, plain: Plain, rest: Sequence[Term], penalty: Penalty, total: float
) -> float | None:
    """Where each clique of the loss is there itself."""
    asked = np.array([cliques.places[t.clique] for t in rest], np.int64)
    homes = np.concatenate([cliques.find(plain.tables.cliques), asked])
    return smoothness(homes, np.concatenate([plain.scales**-2.0, _squares(rest)]), penalty, total)


def _asked(bound: Measurements) -> list[BoundMeasurement]:
    """Those through queries."""
    return [bound[i] for i in sorted(bound.queries)]


def _of_total(bound: Measurements) -> list[BoundMeasurement]:
    """Those of no attributes."""
    return [bound[i] for i in np.flatnonzero(bound.cliques.sets.ranks == 0).tolist()]


def terms_of(measurements: Iterable[BoundMeasurement], laplace: bool = False) -> list[Term]:
    return [
        Term(m.clique, m.query, m.values, m.scale if laplace else m.stddev) for m in measurements
    ]


def _on_total(terms: Iterable[Term], penalty: Penalty, total: float) -> float:
    """What measurements of the total add to the loss, the same for every tau."""
    n = np.array([total])
    return sum(penalty.value((t.query.apply(n) - t.values) / t.scale) for t in terms)


def _first_plain(bound: Measurements) -> tuple[Plain, NDArray[np.int64]]:
    """The first whole table of every clique, scaled by its standard deviation; and which other measurements there are."""
    marginals = bound.cliques.sets.ranks > 0
    plain = np.flatnonzero(bound.whole & marginals)
    first = plain[bound.cliques.take(plain).sets.first_of_each()]
    others = marginals.copy()
    others[first] = False
    layout = Layout(bound.domain, bound.cliques.take(first))
    values = bound.values
    if len(first) < len(bound):
        values = values[cells_of(bound.at[first], layout.cliques.sizes)]
    return Plain(CliqueVector(layout, values), bound.stddevs[first]), np.flatnonzero(others)


def _merge(bound: Measurements) -> tuple[Plain, float]:
    """The weighted mean of all whole tables of each clique, and what their spread around it adds to the loss.

    sum_j ||x - y_j||^2 / sigma_j^2 = W ||x - mean||^2 + sum_j ||y_j - mean||^2 / sigma_j^2, W =
    sum_j 1 / sigma_j^2.
    """
    plain, others = _first_plain(bound)
    again = others[bound.whole[others]]
    if not len(again):
        return plain, 0.0
    cliques = plain.tables.cliques
    which = np.flatnonzero(bound.whole & (bound.cliques.sets.ranks > 0))
    place = cliques.find(bound.cliques.take(which))
    many = np.bincount(place) > 1
    which, place = which[many[place]], place[many[place]]
    precision = bound.stddevs[which] ** -2.0
    weight = np.bincount(place, precision, minlength=len(cliques))
    counts = cliques.sizes[place]
    given = bound.values[cells_of(bound.at[which], counts)]
    cells = cells_of(plain.tables.layout.offsets[place], counts)
    each = np.repeat(precision, counts)
    sums = np.bincount(cells, each * given, minlength=plain.tables.layout.cells)
    mean, there = plain.tables.values.copy(), np.repeat(many, cliques.sizes)
    mean[there] = (sums / np.repeat(np.where(many, weight, 1.0), cliques.sizes))[there]
    spread = 0.5 * dot(each, np.square(given - mean[cells]))
    scales = plain.scales.copy()
    scales[many] = weight[many] ** -0.5
    return Plain(CliqueVector(plain.tables.layout, mean), scales), spread
