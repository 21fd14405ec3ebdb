"""Selections: cells chosen by an exponential mechanism, and the exact likelihood of the choices.

In round t a cell q and a sign s were chosen with probability in proportion to exp(beta_t s (mu_q - a_tq)), mu the true
marginals as shares, a_t public answers. All that is known of mu is then in

    L(mu) = sum_t [ -beta_t sum_k s_tk (mu_q - a_tq) + m_t log sum_j 2 cosh(beta_t (mu_j - a_tj)) ],     convex,

m_t the number of choices of round t. a_t are answers of a few records: almost all of it is zero, and so a gradient takes one
pass over the cells and a few cells per round (FEM, DualQuery).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, Domain, Layout, OverCliques
from consilience.errors import LossError, MeasurementError
from consilience.kernels import selections as kernels
from consilience.kernels.threads import spread
from consilience.measurements.loss import BoundLoss, Loss, Route, check_domain, routes

HIGH = 8.0
"""Cells with beta mu above this are summed round by round."""
PARTS = 16


@dataclass(frozen=True, eq=False)
class Choice:
    """What one round made public: its answers `shares` on `cells` (zero elsewhere), and which cells it chose with which sign.

    Cells count through the tables of `Selections.cliques`, one after the other.
    """

    beta: float
    cells: NDArray[np.int64]
    shares: Buffer
    chosen: NDArray[np.int64]
    signs: NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Selections(OverCliques):
    """The choices of all rounds, as flat arrays: round t owns entries ptr[t] to ptr[t + 1]."""

    layout: Layout
    beta: Buffer
    ptr: NDArray[np.int64]
    cells: NDArray[np.int64]
    shares: Buffer
    chosen_ptr: NDArray[np.int64]
    chosen: NDArray[np.int64]
    signs: NDArray[np.int64]
    records: NDArray[np.int64] | None = None
    """The public records that answered the choices, one row each, where a fit shall start from them."""

    @classmethod
    def of(cls, domain: Domain, cliques: Iterable[Clique], choices: Sequence[Choice]) -> Selections:
        layout = Layout(domain, cliques)
        for c in choices:
            _check_choice(c, layout.cells)
        order = [np.argsort(c.cells, kind="stable") for c in choices]
        return cls(
            layout,
            np.array([c.beta for c in choices], np.float64),
            _ptr([len(c.cells) for c in choices]),
            _joined([c.cells[o] for c, o in zip(choices, order, strict=True)], np.int64),
            _joined([c.shares[o] for c, o in zip(choices, order, strict=True)], np.float64),
            _ptr([len(c.chosen) for c in choices]),
            _joined([c.chosen for c in choices], np.int64),
            _joined([c.signs for c in choices], np.int64),
        )

    def __len__(self) -> int:
        return len(self.beta)

    def __repr__(self) -> str:
        return f"Selections({len(self)} rounds, {len(self.chosen)} choices among {2 * self.layout.cells:,} queries)"


@dataclass(frozen=True, eq=False, repr=False)
class SelectionLoss(Loss):
    """-log likelihood of choices by an exponential mechanism, less a constant."""

    selections: Selections
    domain: Domain = field(init=False)
    cliques: tuple[Clique, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not len(self.selections):
            raise LossError("a likelihood must have at least one round, got none")
        object.__setattr__(self, "domain", self.selections.domain)
        object.__setattr__(self, "cliques", self.selections.cliques)

    @property
    def smoothness(self) -> float | None:
        """sum_t m_t beta_t^2: the variance of beta delta_j is at most beta^2 max_j delta_j^2."""
        s = self.selections
        return float(np.diff(s.chosen_ptr) @ np.square(s.beta))

    def bind(self, layout: Layout) -> BoundLoss:
        check_domain(self, layout)
        return _BoundSelectionLoss(self, layout)


class _BoundSelectionLoss(BoundLoss):
    def __init__(self, loss: SelectionLoss, layout: Layout) -> None:
        self.layout = layout
        s = self.selections = loss.selections
        self.found: tuple[Route, ...] = tuple(routes(layout, s.cliques))
        shared = np.bincount([route.home for route in self.found])
        self.smoothness = (loss.smoothness or 0.0) * float(shared.max()) ** 2
        self.times = np.diff(s.chosen_ptr).astype(np.float64)
        rounds = np.repeat(np.arange(len(s)), np.diff(s.chosen_ptr))
        self.pull = np.bincount(
            s.chosen, -s.beta[rounds] * s.signs, minlength=s.layout.cells
        ).astype(np.float64)
        self.constant = float(sum(self._offset(t) for t in range(len(s))))
        values, label = np.unique(s.beta, return_inverse=True)
        self.groups = [(float(b), np.flatnonzero(label == i)) for i, b in enumerate(values)]

    def value_and_grad(self, values: Buffer) -> tuple[float, Buffer]:
        s = self.selections
        mu = np.concatenate([route.gather(values) for route in self.found])
        value = self.constant + float(np.einsum("i,i", self.pull, mu))
        slope = self.pull.copy()
        top, mass = np.zeros(len(s)), np.ones(len(s))
        slot = np.full(mu.size, -1, np.int64)
        for beta, rounds in self.groups:
            high = np.flatnonzero(beta * mu > HIGH)
            slot[high] = np.arange(len(high))
            parts = np.empty(PARTS)
            spread(kernels.low_sum, PARTS, mu.size, mu, beta, slot, parts)
            spread(
                kernels.log_partition, len(rounds), mu.size, mu, beta, rounds, s.ptr, s.cells, s.shares, slot, high,
                float(parts.sum()), top, mass,
            )  # fmt: skip
            kernels.add_gradient(
                mu, beta, rounds, self.times, s.ptr, s.cells, s.shares, slot, high, top, mass, slope
            )  # fmt: skip
            slot[high] = -1
        value += float(self.times @ (np.log(mass) + top))
        gradient = np.zeros(self.layout.cells)
        offsets = s.layout.offsets
        for i, route in enumerate(self.found):
            route.scatter(gradient, slope[offsets[i] : offsets[i + 1]])
        return value, gradient

    def _offset(self, t: int) -> float:
        """beta sum_k s_k a_{t, q_k}"""
        s = self.selections
        lo, hi = s.ptr[t], s.ptr[t + 1]
        chosen = s.chosen[s.chosen_ptr[t] : s.chosen_ptr[t + 1]]
        signs = s.signs[s.chosen_ptr[t] : s.chosen_ptr[t + 1]]
        cells, shares = s.cells[lo:hi], s.shares[lo:hi]
        at = np.searchsorted(cells, chosen)
        found = np.zeros(len(chosen))
        inside = at < len(cells)
        hit = inside.copy()
        hit[inside] = cells[at[inside]] == chosen[inside]
        found[hit] = shares[at[hit]]
        return float(s.beta[t] * (signs @ found))


def _check_choice(c: Choice, cells: int) -> None:
    if not (np.isfinite(c.beta) and c.beta > 0):
        raise MeasurementError(f"beta must be positive and finite, got {c.beta}")
    for what, given in (("answered", c.cells), ("chosen", c.chosen)):
        if len(given) and not (given.min() >= 0 and given.max() < cells):
            raise MeasurementError(
                f"{what} cells must be from 0 to {cells - 1}, got {int(given.min())} to {int(given.max())}"
            )
    if len(c.cells) != len(c.shares) or len(c.chosen) != len(c.signs) or not len(c.chosen):
        raise MeasurementError(
            "a round must have one share per answered cell and one sign per chosen cell, at least one; got "
            f"{len(c.cells)} cells, {len(c.shares)} shares, {len(c.chosen)} choices, {len(c.signs)} signs"
        )
    if len(np.unique(c.cells)) != len(c.cells):
        raise MeasurementError(
            "each answered cell must be given once, got one twice; add its shares"
        )
    if not (np.abs(c.signs) == 1).all():
        raise MeasurementError("signs must be 1 (the cell) or -1 (its negation)")


def _ptr(lengths: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _joined(parts: Sequence[NDArray], kind: type) -> NDArray:
    return np.concatenate([np.asarray(p, kind) for p in parts]) if parts else np.zeros(0, kind)
