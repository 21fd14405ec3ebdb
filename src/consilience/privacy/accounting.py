"""Between the languages of privacy: (epsilon, delta), zCDP and Gaussian DP, in closed forms.

Every function rounds so that the promise is never stronger than the truth: an epsilon or a delta
that is reported is rounded up, a rho or mu that may be spent is rounded down. `MARGIN` covers
floating point (the formulas below are good to about 1e-13 relative;
`tests/privacy/test_accounting.py` checks them against 60-digit arithmetic).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfcx

from consilience.errors import BudgetError
from consilience.privacy.units import Epsilon, MuSquared, Real, Rho, exact, require

MARGIN = 1e-10
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)


def checked_delta(value: Real) -> Fraction:
    """A probability of failure strictly between zero and one."""
    delta = exact(value, "delta")
    if not 0 < delta < 1:
        raise BudgetError(
            f"delta must be greater than zero and less than one, got {value!r}; "
            "for no delta leave it out"
        )
    return delta


# -- zCDP ----------------------------------------------------------------------------------------


def zcdp_delta(rho: Rho, epsilon: Epsilon) -> float:
    """delta = inf_{alpha > 1} exp((alpha - 1)(alpha rho - epsilon)) (1 - 1/alpha)^alpha / (alpha -
    1).

    Canonne, Kamath, Steinke (2020), Proposition 12 with a Renyi divergence of rho * alpha. Each
    alpha proves a delta, so the search can cost tightness but never privacy.
    """
    r = float(require(rho, Rho, "rho").value)
    eps = float(require(epsilon, Epsilon, "epsilon").value)
    if r == 0:
        return 0.0

    def log_delta(log_order: float) -> float:
        excess = math.exp(log_order)  # alpha - 1
        return excess * ((1 + excess) * r - eps - _dual_term(excess))

    centre = max((eps - r) / (2 * r), 1e-3)
    return min(1.0, math.exp(_lowest(log_delta, math.log(centre))) * (1 + MARGIN))


def zcdp_epsilon(rho: Rho, delta: Real) -> Epsilon:
    """The least epsilon with `zcdp_delta(rho, epsilon) <= delta`, rounded up."""
    r = float(require(rho, Rho, "rho").value)
    log_delta = math.log(checked_delta(delta))
    if r == 0:
        return Epsilon(0)

    def epsilon(log_order: float) -> float:
        excess = math.exp(log_order)
        return (1 + excess) * r - log_delta / excess - _dual_term(excess)

    best = _lowest(epsilon, 0.5 * math.log(-log_delta / r))
    return Epsilon(Fraction(max(best, 0.0) * (1 + MARGIN)))


def zcdp_rho(epsilon: Epsilon, delta: Real) -> Rho:
    """The largest rho that proves (epsilon, delta), rounded down.

    For a fixed order alpha the bound above is linear in rho, so it is solved for rho and maximised
    over alpha.
    """
    eps = _positive_epsilon(epsilon)
    log_delta = math.log(checked_delta(delta))

    def minus_rho(log_order: float) -> float:
        excess = math.exp(log_order)
        return -(eps + log_delta / excess + _dual_term(excess)) / (1 + excess)

    guess = standard_zcdp_rho(epsilon, delta).value
    best = -_lowest(minus_rho, 0.5 * math.log(-log_delta / float(guess)))
    # three margins, so that the way back (one margin up, and half as steep) stays within epsilon
    return Rho(max(Fraction(best * (1 - 3 * MARGIN)), guess))


def _dual_term(excess: float) -> float:
    """ln(alpha) / (alpha - 1) - ln(1 - 1/alpha), where alpha = 1 + excess; positive."""
    return math.log1p(excess) / excess + math.log1p(1 / excess)


def _lowest(f: Callable[[float], float], centre: float) -> float:
    """min f near `centre` on a log scale of orders. Any point is valid, the lowest is tightest."""
    found = minimize_scalar(
        f, bounds=(centre - 7, centre + 7), method="bounded", options={"xatol": 1e-7}
    )
    return float(found.fun)


def standard_zcdp_epsilon(rho: Rho, delta: Real) -> Epsilon:
    """epsilon = rho + 2 sqrt(rho ln(1/delta)): Bun and Steinke (2016), Proposition 1.3. Simple, not
    tight.

    The paper's table was calibrated by it, so it is kept to reproduce that table.
    """
    r = float(require(rho, Rho, "rho").value)
    spread = -math.log(checked_delta(delta))
    return Epsilon(Fraction((r + 2 * math.sqrt(r * spread)) * (1 + MARGIN)))


def standard_zcdp_rho(epsilon: Epsilon, delta: Real) -> Rho:
    """The inverse of `standard_zcdp_epsilon`, written without cancellation and rounded down."""
    eps = _positive_epsilon(epsilon)
    spread = -math.log(checked_delta(delta))
    root = eps / (math.sqrt(spread + eps) + math.sqrt(spread))
    return Rho(Fraction(root * root * (1 - 3 * MARGIN)))


# -- Gaussian DP ---------------------------------------------------------------------------------


def gaussian_delta(mu_squared: MuSquared, epsilon: Epsilon) -> float:
    """delta = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu), rounded up.

    Balle and Wang (2018), Theorem 8, with mu = sensitivity / sigma.
    """
    mu = math.sqrt(require(mu_squared, MuSquared, "mu squared").value)
    if mu == 0:
        return 0.0
    eps = float(require(epsilon, Epsilon, "epsilon").value)
    return min(1.0, _gaussian_delta(mu, eps) * (1 + MARGIN))


def _gaussian_delta(mu: float, eps: float) -> float:
    """With x = eps/mu and h = mu/2: exp(-(x-h)^2/2) / 2 * (erfcx((x-h)/sqrt 2) - erfcx((x+h)/sqrt
    2)).

    For small h the difference is integrated, -erfcx'(t) = 2/sqrt(pi) - 2 t erfcx(t), so that tiny
    epsilons lose no digits to cancellation.
    """
    centre, half = eps / mu / math.sqrt(2), mu / 2 / math.sqrt(2)
    low, high = centre - half, centre + half
    if low < -8:
        return 1.0
    if half < 0.5:
        t = centre + half * _NODES
        slope = 2 / math.sqrt(math.pi) - 2 * t * erfcx(t)
        gap = half * float(_WEIGHTS @ slope)
    else:
        gap = float(erfcx(low) - erfcx(high))
    return 0.5 * math.exp(-low * low) * gap


def gaussian_epsilon(mu_squared: MuSquared, delta: Real) -> Epsilon:
    """The least epsilon with `gaussian_delta(mu_squared, epsilon) <= delta`, rounded up."""
    mu = math.sqrt(require(mu_squared, MuSquared, "mu squared").value)
    target = float(checked_delta(delta))
    if mu == 0 or _gaussian_delta(mu, 0.0) <= target:
        return Epsilon(0)
    spread = math.sqrt(-2 * math.log(target))  # Phi(-spread) < delta, so this end always suffices
    high = mu * (mu / 2 + spread)
    root = _root(lambda eps: _gaussian_delta(mu, eps) / target, 0.0, high)
    while _gaussian_delta(mu, root) > target * (1 - MARGIN) and root < high:
        root = min(high, root * (1 + MARGIN) + 1e-300)
    return Epsilon(Fraction(root))


def gaussian_mu_squared(epsilon: Epsilon, delta: Real) -> MuSquared:
    """The largest mu^2 with `gaussian_delta(mu^2, epsilon) <= delta`, rounded down and checked
    again.
    """
    eps = _positive_epsilon(epsilon)
    target = float(checked_delta(delta))
    low = math.sqrt(2 * float(standard_zcdp_rho(epsilon, delta).value))  # mu^2/2 = rho is safe
    high = 2 * low
    while _gaussian_delta(high, eps) < target:
        high *= 2
    mu = _root(lambda m: _gaussian_delta(m, eps) / target, low, high)
    while _gaussian_delta(mu, eps) > target * (1 - MARGIN) and mu > low:
        mu *= 1 - MARGIN
    mu = max(mu, low)
    return MuSquared(Fraction(mu * mu * (1 - 1e-15)))


def _root(ratio: Callable[[float], float], low: float, high: float) -> float:
    """Where log ratio = 0 between `low` and `high`, at which it has opposite signs."""

    def log_ratio(x: float) -> float:
        value = ratio(x)
        return math.log(value) if value > 0 else -1e4

    return float(brentq(log_ratio, low, high, xtol=1e-300, rtol=1e-13))  # pyright: ignore


def _positive_epsilon(epsilon: Epsilon) -> float:
    value = float(require(epsilon, Epsilon, "epsilon").value)
    if value <= 0:
        raise BudgetError(f"epsilon must be greater than zero, got {value!r}")
    return value
