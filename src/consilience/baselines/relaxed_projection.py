"""Relaxed Projection: the mixture of products closest to the measurements, by Adam. Not convex.

Aydore et al. (2021) in the form that the paper compares with: the rows of the relaxed table are distributions by softmax, so that
the table is a mixture of as many products, p(x) = 1/K sum_k prod_i softmax(phi_ki)(x_i). Answers anything, and all answers agree;
what few products cannot represent stays as bias, and where Adam ends depends on where it starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from consilience.domain import Buffer, Domain, Layout
from consilience.domain.domain import names_of
from consilience.errors import ConsilienceError, DomainError
from consilience.kernels.products import adam_step
from consilience.loop import Check, iterate
from consilience.measurements import BoundLoss, Measurement, Measurements, SquaredLoss
from consilience.progress import Progress
from consilience.solvers.mixture import ProductWiring

SPREAD = 0.25
"""Standard deviation of the parameters at the start."""
DECAY, DECAY_SQUARE, TINY = 0.9, 0.999, 1e-7
EVERY = 100
"""Iterations between two reports of progress."""


@dataclass(frozen=True, eq=False, repr=False)
class Mixture:
    """p(x) = 1/K sum_k prod_i p_ki(x_i), fitted; any marginal of it, in counts."""

    domain: Domain
    total: float
    probabilities: Buffer
    """One column per component; the rows of each attribute, in domain order, below each other."""
    objective: float
    iterations: int

    @property
    def components(self) -> int:
        return self.probabilities.shape[1]

    def in_model(self, attributes: str | Iterable[str]) -> bool:
        """True: the mixture is one distribution over all attributes."""
        self.domain.clique(attributes)
        return True

    def marginal(self, attributes: str | Iterable[str]) -> Buffer:
        """Expected counts over these attributes, axes in the order asked for."""
        order = names_of(attributes)
        clique = self.domain.clique(order)
        if len(clique) != len(order):
            raise DomainError(f"attributes must be distinct, got {order}")
        if not clique:
            return np.array(self.total)
        table = ProductWiring.of(Layout(self.domain, [clique])).marginals(self.probabilities)[
            clique
        ]
        return self.total * table.transpose([clique.index(a) for a in order])

    def __repr__(self) -> str:
        return (
            f"Mixture({self.components} products, {len(self.domain)} attributes, total {self.total:,.6g}, "
            f"objective {self.objective:.6g}, {self.iterations} iterations)"
        )


def relaxed_projection(
    domain: Domain,
    measurements: Iterable[Measurement] | Measurements,
    total: float | None = None,
    *,
    components: int = 100,
    iterations: int = 2500,
    rate: float = 0.1,
    seed: int = 0,
    progress: Progress | None = None,
) -> Mixture:
    """The mixture of `components` products that Adam finds for the squared loss, started at random by `seed`.

    total: number of records if public; None estimates it. progress sees an `Iteration` now and then; its gap is not known,
    because the problem is not convex.
    """
    # Paper: rate 1 and 250 iterations, which leave a floor of 0.057 on adult. Here: a tenth of the rate, ten times as many.
    for name, given in (("components", components), ("iterations", iterations)):
        if given < 1:
            raise ConsilienceError(f"{name} must be at least 1, got {given}")
    if not (np.isfinite(rate) and rate > 0):
        raise ConsilienceError(f"rate must be positive and finite, got {rate}")
    loss = SquaredLoss(domain, measurements, total)
    wiring = ProductWiring.of(Layout(domain, loss.cliques))
    bound = loss.bind(wiring.layout)
    # Adam does not see the loss's scale but for TINY: take the paper's, where the smallest noise is one count.
    scale = float(loss.measurements.stddevs.min()) ** 2
    phi = SPREAD * np.random.default_rng(seed).standard_normal((wiring.length, components))
    run = iterate(
        _Adam(wiring, bound, scale, rate, phi),
        limit=iterations,
        tolerance=None,
        when=lambda done: done + EVERY,
        progress=progress,
    )
    p = wiring.probabilities(run.state.phi)
    value, _ = bound.value_and_grad(wiring.marginals(p).values)
    return Mixture(domain, loss.total, p, value, iterations)


@dataclass
class _Working:
    """Parameters of the mixture, Adam's running means of gradients and of their squares, and the loss before the last step."""

    phi: Buffer
    mean: Buffer
    square: Buffer
    done: int = 0
    value: float = np.inf


@dataclass(frozen=True)
class _Adam:
    """Adam (Kingma and Ba 2015) on the parameters of a mixture, as a method of the loop."""

    wiring: ProductWiring
    bound: BoundLoss
    scale: float
    rate: float
    first: Buffer

    def start(self) -> _Working:
        return _Working(self.first, np.zeros_like(self.first), np.zeros_like(self.first))

    def step(self, state: _Working, most: int) -> int:
        p = self.wiring.probabilities(state.phi)
        state.value, slope = self.bound.value_and_grad(self.wiring.marginals(p).values)
        grad = self.wiring.gradient(p, self.scale * slope)
        state.done += 1
        adam_step(
            state.phi, grad, state.mean, state.square, state.done, self.rate, DECAY, DECAY_SQUARE, TINY
        )  # fmt: skip
        return 1

    def check(self, state: _Working, done: int) -> Check:
        return Check(state.value)
