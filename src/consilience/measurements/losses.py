"""The losses of measurements: squared (Gaussian noise) and absolute (Laplace noise).

Both are L(tau) = sum_j sum_i f(u_ji) with u_j = (N Q_j P_j tau - y_j) / s_j. f(u) = u^2 / 2 gives the squared loss,
f(u) = |u| (or its Huber smoothing) the absolute loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, CliqueVector, Domain, Layout, dot
from consilience.errors import LossError
from consilience.measurements.loss import BoundLoss, Loss, Route, check_domain, routes
from consilience.measurements.measurement import (
    BoundMeasurement,
    Measurement,
    bind_all,
    checked_total,
)
from consilience.measurements.queries import Identity, Query


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


def smoothness(
    homes: Iterable[object], terms: Iterable[Term], penalty: Penalty, total: float
) -> float | None:
    """N^2 max(f'') max_r sum_{j routed to r} ||Q_j||_{1->2}^2 / s_j^2.

    For a change d of tau, ||Q_j P_j d_r||_2 <= ||Q_j||_{1->2} ||d_r||_1, as P_j does not increase
    the 1-norm.
    """
    if penalty.curvature is None:
        return None
    load: dict[object, float] = {}
    for home, term in zip(homes, terms, strict=True):
        load[home] = load.get(home, 0.0) + (term.query.column_norm / term.scale) ** 2
    return total**2 * penalty.curvature * max(load.values(), default=0.0)


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
    layout: Layout, terms: Sequence[Term], penalty: Penalty, total: float, constant: float
) -> BoundResidualLoss:
    """Compile the terms for a layout."""
    found = routes(layout, [t.clique for t in terms])
    direct: dict[int, tuple[Route, Term]] = {}
    groups: dict[Clique, tuple[Route, list[Term]]] = {}
    for route, term in zip(found, terms, strict=True):
        if route.exact and isinstance(term.query, Identity) and route.home not in direct:
            direct[route.home] = route, term
        else:
            groups.setdefault(term.clique, (route, []))[1].append(term)
    return BoundResidualLoss(
        layout,
        smoothness([r.home for r in found], terms, penalty, total),
        penalty,
        total,
        constant,
        _block([direct[i] for i in sorted(direct)]),
        tuple((route, tuple(members)) for route, members in groups.values()),
    )


def _block(direct: Sequence[tuple[Route, Term]]) -> _Block:
    """Flat arrays for terms in layout order; a slice when their tables are neighbours."""
    if not direct:
        return _Block(slice(0, 0), np.zeros(0), 1.0)
    first, last = direct[0][0], direct[-1][0]
    if last.home - first.home + 1 == len(direct):
        where = slice(first.lo, last.hi)
    else:
        where = np.concatenate([np.arange(route.lo, route.hi) for route, _ in direct])
    scales = np.array([1 / term.scale for _, term in direct])
    inverse = (
        float(scales[0])
        if np.ptp(scales) == 0
        else np.repeat(scales, [r.hi - r.lo for r, _ in direct])
    )
    return _Block(where, np.concatenate([term.values for _, term in direct]), inverse)


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
    cliques: tuple[Clique, ...]
    measurements: tuple[BoundMeasurement, ...]
    total: float
    """The number of records that tables are scaled to."""
    _merged: tuple[Term, ...]
    _rest: tuple[BoundMeasurement, ...]
    _constant: float

    def __init__(
        self, domain: Domain, measurements: Iterable[Measurement], total: float | None = None
    ) -> None:
        bound = bind_all(domain, measurements)
        n = checked_total(total, bound)
        repeated: dict[Clique, list[BoundMeasurement]] = {}
        for m in bound:
            if m.clique and m.is_identity:
                repeated.setdefault(m.clique, []).append(m)
        merged = [_merge(group) for group in repeated.values()]
        constant = _on_total(_terms([m for m in bound if not m.clique]), Square(), n)
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "cliques", _cliques(bound))
        object.__setattr__(self, "measurements", bound)
        object.__setattr__(self, "total", n)
        object.__setattr__(self, "_merged", tuple(term for term, _ in merged))
        object.__setattr__(self, "_rest", tuple(m for m in bound if m.clique and not m.is_identity))
        object.__setattr__(self, "_constant", constant + sum(spread for _, spread in merged))

    @property
    def smoothness(self) -> float | None:
        """N^2 max_c sum_{j on c} ||Q_j||_{1->2}^2 / sigma_j^2."""
        terms = [*self._merged, *_terms(self._rest)]
        return smoothness([t.clique for t in terms], terms, Square(), self.total)

    def bind(self, layout: Layout) -> BoundResidualLoss:
        check_domain(self, layout)
        terms = [*self._merged, *_terms(self._rest)]
        return bind_terms(layout, terms, Square(), self.total, self._constant)

    def separable(self) -> Separable:
        """The part of L that is a squared distance per clique: weight N^2 / sigma^2, target y / N.

        L(tau) is its value at tau plus 1/2 ||N Q P tau - y||^2 / sigma^2 for each measurement of
        `rest`.
        """
        layout = Layout(self.domain, [t.clique for t in self._merged])
        values = [t.values for t in self._merged]
        flat = np.concatenate(values) / self.total if values else None
        weights = np.array([(self.total / t.scale) ** 2 for t in self._merged])
        return Separable(weights, CliqueVector(layout, flat), self._rest, self._constant)

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
    cliques: tuple[Clique, ...]
    measurements: tuple[BoundMeasurement, ...]
    total: float
    smoothing: float
    _constant: float

    def __init__(
        self,
        domain: Domain,
        measurements: Iterable[Measurement],
        total: float | None = None,
        *,
        smoothing: float = 0.1,
    ) -> None:
        if not (isfinite(smoothing) and smoothing >= 0):
            raise LossError(
                f"smoothing must be finite and at least 0, got {smoothing}; it is in units of "
                "the noise scale"
            )
        bound = bind_all(domain, measurements)
        n = checked_total(total, bound)
        on_total = _terms([m for m in bound if not m.clique], laplace=True)
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "cliques", _cliques(bound))
        object.__setattr__(self, "measurements", bound)
        object.__setattr__(self, "total", n)
        object.__setattr__(self, "smoothing", float(smoothing))
        object.__setattr__(self, "_constant", _on_total(on_total, Huber(float(smoothing)), n))

    @property
    def smoothing_gap(self) -> float:
        """The exact absolute loss is between L and L + smoothing_gap."""
        return 0.5 * self.smoothing * sum(m.query.rows for m in self.measurements)

    @property
    def smoothness(self) -> float | None:
        """N^2 / smoothing * max_c sum_{j on c} ||Q_j||_{1->2}^2 / b_j^2."""
        terms = self._active()
        return smoothness([t.clique for t in terms], terms, Huber(self.smoothing), self.total)

    def bind(self, layout: Layout) -> BoundResidualLoss:
        check_domain(self, layout)
        return bind_terms(layout, self._active(), Huber(self.smoothing), self.total, self._constant)

    def _active(self) -> list[Term]:
        return _terms([m for m in self.measurements if m.clique], laplace=True)

    def __repr__(self) -> str:
        return (
            f"AbsoluteLoss({len(self.measurements)} measurements, total {self.total:g}, "
            f"smoothing {self.smoothing:g})"
        )


def _cliques(measurements: Iterable[BoundMeasurement]) -> tuple[Clique, ...]:
    return tuple(dict.fromkeys(m.clique for m in measurements if m.clique))


def _terms(measurements: Iterable[BoundMeasurement], laplace: bool = False) -> list[Term]:
    return [
        Term(m.clique, m.query, m.values, m.scale if laplace else m.stddev) for m in measurements
    ]


def _on_total(terms: Iterable[Term], penalty: Penalty, total: float) -> float:
    """What measurements of the total add to the loss, the same for every tau."""
    n = np.array([total])
    return sum(penalty.value((t.query.apply(n) - t.values) / t.scale) for t in terms)


def _merge(group: Sequence[BoundMeasurement]) -> tuple[Term, float]:
    """The weighted mean of measurements of one marginal, and their spread around it.

    sum_j ||x - y_j||^2 / sigma_j^2 = W ||x - mean||^2 + sum_j ||y_j - mean||^2 / sigma_j^2, W =
    sum_j 1 / sigma_j^2.
    """
    first = group[0]
    if len(group) == 1:
        return Term(first.clique, first.query, first.values, first.stddev), 0.0
    values = np.stack([m.values for m in group])
    precisions = np.array([m.stddev**-2.0 for m in group])
    mean = precisions @ values / precisions.sum()
    spread = 0.5 * float(precisions @ np.square(values - mean).sum(axis=1))
    return Term(first.clique, first.query, mean, float(precisions.sum() ** -0.5)), spread
