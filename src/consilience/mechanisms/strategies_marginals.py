"""OPT_M: which marginals to measure, and how precisely, for the least expected squared error of a workload.

With weights theta_a (noise in marginal a of width proportional to 1 / theta_a) and lambda_t as in `strategies`,

    Laplace    error = 2 / epsilon^2 (sum theta)^2  sum_t d_t omega_t / lambda_t
    Gaussian   error = 1 / (2 rho)    sum theta^2   sum_t d_t omega_t / lambda_t        (add-remove)

Both are minimised over log theta by L-BFGS. For Gaussian noise the problem is convex in theta^2, so a stationary point is
the optimum, and `gap` bounds the distance to it.
# Paper: HDMM optimises 2^d weights with triangular solves of that size. Here: the diagonal form, on the workload's closure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import minimize

from consilience.domain import Buffer, Clique, Workload
from consilience.mechanisms.strategies import Lattice

Law = Literal["laplace", "gaussian"]

_NEGLIGIBLE = (1e-2, 1e-3, 1e-4, 1e-6)
"""Weights below these shares of the largest are tried as zeros, the coarsest first."""
_WORTH = 1e-7
"""A relative loss that is not worth a marginal."""


@dataclass(frozen=True, eq=False)
class MarginalStrategy:
    """Weights theta of the marginals to measure; those that are not worth measuring are left out.

    `error` is (sum theta^p)^(2/p) sum_t d_t omega_t / lambda_t, p = 1 for Laplace and 2 for Gaussian noise. `gap` bounds
    how far the error (without slack) is above the least of any weights, as a share of it (Gaussian only, else None).
    """

    law: Law
    weights: dict[Clique, float]
    error: float
    gap: float | None


@dataclass(frozen=True, eq=False)
class _Objective:
    """log error over x = log theta, restricted to the marginals `live`."""

    lattice: Lattice
    gain: Buffer
    """d_t omega_t."""
    power: int
    live: np.ndarray

    def __call__(self, x: Buffer) -> tuple[float, Buffer]:
        theta = np.exp(x - x.max())
        squares, mass = theta**2, theta**self.power
        full = np.zeros(len(self.gain))
        full[self.live] = squares
        known = self.lattice.spread @ full
        share = np.divide(self.gain, known, out=np.zeros_like(known), where=self.gain > 0)
        error, length = share.sum(), mass.sum()
        pull = np.divide(share, known, out=np.zeros_like(known), where=self.gain > 0)
        slope = (self.lattice.spread.T @ pull)[self.live]
        value = 2 / self.power * np.log(length) + np.log(error)
        return value, 2 * (mass / length - squares * slope / error)

    def gap(self, x: Buffer) -> float:
        """For u = theta^2 with sum 1 the error f is convex: f - f* <= <grad f, u> - min_a grad_a f, and <grad f, u> = -f."""
        squares = np.exp(2 * (x - x.max()))
        full = np.zeros(len(self.gain))
        full[self.live] = squares / squares.sum()
        known = self.lattice.spread @ full
        share = np.divide(self.gain, known, out=np.zeros_like(known), where=self.gain > 0)
        pull = np.divide(share, known, out=np.zeros_like(known), where=self.gain > 0)
        return float((self.lattice.spread.T @ pull).max() / share.sum() - 1)


def optimal_marginals(
    workload: Workload,
    law: Law,
    *,
    total_known: bool = False,
    restarts: int = 3,
    seed: int = 0,
    slack: float = 0.0,
    lattice: Lattice | None = None,
) -> MarginalStrategy:
    """The best of several descents; deterministic. `total_known`: the number of rows need not be measured.

    With `slack` the weights are made as equal as a rise of the expected RMSE by that share allows.
    """
    lattice = lattice or Lattice.of(workload.domain, workload)
    gain = lattice.dims * lattice.importance(workload)
    if total_known:
        gain[0] = 0.0
    everything = np.arange(len(gain))
    objective = _Objective(lattice, gain, 1 if law == "laplace" else 2, everything)
    wanted = np.zeros(len(gain), bool)
    wanted[lattice.places(workload)] = True
    rng = np.random.default_rng(seed)
    starts = [np.where(wanted, 0.0, -3.0), np.zeros(len(gain))]
    starts += [rng.normal(-1.0, 1.0, len(gain)) for _ in range(restarts - len(starts))]
    x, value = min(
        (_descend(objective, start) for start in starts[: max(1, restarts)]), key=lambda f: f[1]
    )
    objective, x, value = _prune(objective, x, value)
    gap = objective.gap(x) if law == "gaussian" else None
    if slack > 0:
        x, value = _even(objective, x, value + 2 * np.log1p(slack))
    theta = np.exp(x - x.max())
    weights = {lattice.subsets[i]: float(w) for i, w in zip(objective.live, theta, strict=True)}
    return MarginalStrategy(law, weights, float(np.exp(value)), gap)


def _descend(objective: _Objective, start: Buffer) -> tuple[Buffer, float]:
    options = {"maxiter": 2_000, "maxfun": 3_000, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-8}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    return found.x, float(found.fun)


def _prune(objective: _Objective, x: Buffer, value: float) -> tuple[_Objective, Buffer, float]:
    """Without the marginals that hardly matter: fewer tables to count, to draw and to reconstruct."""
    for threshold in _NEGLIGIBLE:
        keep = x - x.max() > np.log(threshold)
        if () in (objective.lattice.subsets[i] for i in objective.live[keep]):
            keep &= objective.live > 0  # the total alone is not a table; others tell it
        if keep.all():
            continue
        smaller = _Objective(
            objective.lattice, objective.gain, objective.power, objective.live[keep]
        )
        if not _covers(smaller):
            continue
        candidate, reached = _descend(smaller, x[keep])
        if reached - value <= _WORTH:
            return smaller, candidate, reached
    return objective, x, value


def _even(objective: _Objective, x: Buffer, allowed: float) -> tuple[Buffer, float]:
    """theta^alpha for the least alpha in [0, 1] that the allowance permits, by bisection."""
    low, high = 0.0, 1.0
    if objective(low * x)[0] <= allowed:
        return low * x, objective(low * x)[0]
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if objective(middle * x)[0] <= allowed else (middle, high)
    return high * x, objective(high * x)[0]


def _covers(objective: _Objective) -> bool:
    full = np.zeros(len(objective.gain))
    full[objective.live] = 1.0
    known = objective.lattice.spread @ full
    return bool((known[objective.gain > 0] > 0).all())
