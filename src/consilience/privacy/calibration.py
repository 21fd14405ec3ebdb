"""The least noise that keeps a share of a budget, in closed form.

Each function takes an exact amount of privacy and returns a float noise scale. The float is rounded
towards more noise and then judged by `Cost`, in exact rationals: what it costs is at most what was
asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import TypeVar

from scipy.optimize import brentq

from consilience.errors import BudgetError
from consilience.privacy.accounting import gaussian_mu_squared
from consilience.privacy.cost import SMOOTHING, Cost
from consilience.privacy.sensitivity import (
    Neighbours,
    Sensitivity,
    checked_weights,
    marginals,
    residual_family,
)
from consilience.privacy.units import (
    Amount,
    Epsilon,
    MuSquared,
    Real,
    Rho,
    Scale,
    Sigma,
    float_above,
    require,
)

A = TypeVar("A", bound=Amount)


def laplace_scale(sensitivity: Sensitivity, epsilon: Epsilon) -> Scale:
    """b = L1 sensitivity / epsilon."""
    share = _positive(require(epsilon, Epsilon, "the share of a Laplace release")).value
    start = float_above(_moving(sensitivity.l1) / share)
    return Scale(_enough_noise(start, lambda b: _pure(sensitivity, b) <= share))


def gaussian_sigma(sensitivity: Sensitivity, share: Rho | MuSquared) -> Sigma:
    """sigma^2 = D^2 / (2 rho), or D^2 / mu^2 + 2 for discrete noise under Gaussian accounting
    (lemma 1).
    """
    d = _moving(sensitivity.l2_squared)
    if isinstance(share, Rho):
        variance = d / (2 * _positive(share).value)
    else:
        variance = d / _positive(_gaussian_share(share)).value + SMOOTHING
    start = math.sqrt(variance)
    return Sigma(
        _enough_noise(start, lambda s: _within(Cost.gaussian(sensitivity, Sigma(s)), share))
    )


def weighted_gaussian_sigmas(
    neighbours: Neighbours, weights: Iterable[Real], share: Rho | MuSquared
) -> tuple[Sigma, ...]:
    """sigma_i = s / w_i for marginals M_1, ..., M_k with the least s that the share allows.

    zCDP: s^2 = c sum w^2 / (2 rho), c cells changed per marginal. Gaussian accounting: s is the
    root of sum_i c w_i^2 / (s^2 - 2 w_i^2) = mu^2.
    """
    w = checked_weights(weights)
    one = marginals(neighbours)
    floats = [float(x) for x in w]
    squares = sum(x * x for x in floats) * float(one.l2_squared)
    if isinstance(share, Rho):
        start = math.sqrt(squares / (2 * float(_positive(share).value)))
    else:
        start = _smoothed_root(floats, float(one.l2_squared), share, squares)

    def sigmas(s: float) -> tuple[Sigma, ...]:
        return tuple(Sigma(float_above(Fraction(s) / x)) for x in w)

    def enough(s: float) -> bool:
        parts = (Cost.gaussian(one, sigma) for sigma in sigmas(s))
        return _within(Cost.sum(one.neighbours, parts), share)

    return sigmas(_enough_noise(start, enough))


def _smoothed_root(w: list[float], c: float, share: MuSquared, squares: float) -> float:
    target = float(_positive(_gaussian_share(share)).value)
    floor = 2 * max(w) ** 2  # s^2 lies above it, and at most `floor` above the unsmoothed answer

    def excess(t: float) -> float:
        return sum(c * x * x / (t + floor - 2 * x * x) for x in w) - target

    top = squares / target
    return math.sqrt(floor + float(brentq(excess, top * 1e-9 / len(w), top * 1.01, rtol=1e-13)))  # pyright: ignore


def residual_sigmas(
    neighbours: Neighbours,
    sizes: Sequence[int],
    family: Sequence[tuple[int, ...]],
    widths: Sequence[float],
    share: Rho | MuSquared,
    places: Sequence[int] | None = None,
) -> tuple[Sigma, ...]:
    """sigma_t = s w_t for the residuals of a family, with the least s that the share allows them together.

    places: as in `residual_family`.

    zCDP: s^2 = D^2 / (2 rho), D^2 that of the stack over the widths. Gaussian accounting: s is found by bisection.
    """
    w = checked_weights(widths)

    def sigmas(s: float) -> tuple[Sigma, ...]:
        return tuple(Sigma(float_above(Fraction(s) * x)) for x in w)

    def enough(s: float) -> bool:
        return _within(Cost.residuals(neighbours, sizes, family, sigmas(s), places), share)

    squared = float(residual_family(neighbours, sizes, family, [x * x for x in w], places))
    if isinstance(share, Rho):
        return sigmas(_enough_noise(math.sqrt(squared / (2 * _positive(share).value)), enough))
    mu_squared = float(_positive(_gaussian_share(share)).value)
    low = math.sqrt(squared / mu_squared)  # without smoothing
    high = math.sqrt(squared / mu_squared + float(SMOOTHING / min(w) ** 2)) * (1 + 1e-12)
    while high / low > 1 + 1e-12 and low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if enough(middle) else (middle, high)
    return sigmas(_enough_noise(high, enough))


def analytic_gaussian_sigma(sensitivity: Sensitivity, epsilon: Epsilon, delta: Real) -> Sigma:
    """Continuous noise for (epsilon, delta): sigma = D / mu, Balle and Wang (2018). For plans and
    experiments.

    The samplers are discrete: for a release use `gaussian_sigma` with a share of a budget, whose
    proof covers them.
    """
    mu_squared = gaussian_mu_squared(epsilon, delta).value
    variance = _moving(sensitivity.l2_squared) / mu_squared
    return Sigma(_enough_noise(math.sqrt(variance), lambda s: Fraction(s) ** 2 >= variance))


def selection_epsilon(share: Rho | Epsilon) -> Epsilon:
    """The parameter of an exponential mechanism: epsilon itself, or sqrt(8 rho), rounded down."""
    if isinstance(share, Epsilon):
        return _positive(share)
    rho = _positive(require(share, Rho, "the share of a selection")).value
    root = math.sqrt(8 * rho)
    while Fraction(root) ** 2 > 8 * rho:
        root = math.nextafter(root, 0)
    return Epsilon(Fraction(root))


def selection_scale(sensitivity: Fraction, epsilon: Epsilon) -> Scale:
    """Width of the Gumbel (or exponential) noise on scores: 2 * sensitivity / epsilon."""
    return Scale(float_above(2 * _moving(sensitivity) / _positive(epsilon).value))


# -- rounding ------------------------------------------------------------------------------------


def _enough_noise(start: float, enough: Callable[[float], bool]) -> float:
    """The first of a few floats above `start` that is enough; a formula that misses by more is a
    defect.
    """
    width, step = start, math.ulp(start)
    for _ in range(60):
        if enough(width):
            return width
        width, step = width + step, 2 * step
    raise BudgetError(f"no noise near {start:.6g} keeps the share; please report this")


def _pure(sensitivity: Sensitivity, scale: float) -> Fraction:
    amount = Cost.laplace(sensitivity, Scale(scale)).epsilon
    assert amount is not None
    return amount.value


def _within(cost: Cost, share: Amount) -> bool:
    spent = cost.rho if isinstance(share, Rho) else cost.mu_squared
    return spent is not None and spent.value <= share.value


def _gaussian_share(share: object) -> MuSquared:
    if isinstance(share, Epsilon):
        raise BudgetError(
            "Gaussian noise cannot keep a pure epsilon; "
            "use Laplace noise, or a budget with delta or rho"
        )
    return require(share, MuSquared, "the share of a Gaussian release")


def _positive(amount: A) -> A:
    if amount.value <= 0:
        raise BudgetError(f"a share must be greater than zero, got {amount!r}")
    return amount


def _moving(change: Fraction) -> Fraction:
    if change <= 0:
        raise BudgetError(
            "a quantity that no neighbour changes needs no noise; publish it as it is"
        )
    return change
