"""Losses of residuals: L(tau) = sum_j sum_i f(u_ji) with u_j = (N Q_j P_j tau - y_j) / s_j.

f(u) = u^2 / 2 gives the squared loss, f(u) = |u| (or its Huber smoothing) the absolute loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, Layout, dot
from consilience.measurements.loss import BoundLoss
from consilience.measurements.queries import Identity
from consilience.measurements.query import Query
from consilience.measurements.routing import Route, routes


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

    _layout: Layout
    _smoothness: float | None
    penalty: Penalty
    total: float
    constant: float
    block: _Block
    groups: tuple[tuple[Route, tuple[Term, ...]], ...]

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def smoothness(self) -> float | None:
        return self._smoothness

    def value_and_grad(self, values: Buffer) -> tuple[float, Buffer]:
        gradient = np.zeros(self._layout.cells)
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
