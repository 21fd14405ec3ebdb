"""Moments of the discrete noise laws, which are not those of the continuous ones when noise is narrow.

Discrete Laplace, P(z) in proportion to q^|z| with q = exp(-1/b):
    Var = 2 q / (1 - q)^2,    E|z| = 2 q / (1 - q^2).
Discrete Gaussian, P(z) in proportion to exp(-z^2 / (2 s^2)): no closed form; the series is summed
where noise is narrow. Where it is wide, Poisson summation gives Var = s^2 and Euler-Maclaurin
E|z| = sqrt(2 / pi) (s - 1 / (12 s) - 1 / (240 s^3)), both to double precision.
"""

from __future__ import annotations

import math

import numpy as np

from consilience.privacy import Scale, Sigma

Width = Sigma | Scale

NARROWEST = 1e-9
"""No standard deviation is reported below it: there noise is zero in all but one of 10^18 draws, and losses divide by it."""

_WIDE = 20.0


def stddev(width: Width) -> float:
    """The standard deviation of one draw."""
    return max(NARROWEST, math.sqrt(_moments(width)[0]))


def mean_absolute(width: Width) -> float:
    """E|z| of one draw: the expected L1 distance per cell."""
    return _moments(width)[1]


def _moments(width: Width) -> tuple[float, float]:
    """(variance, mean absolute value)."""
    w = width.value
    if isinstance(width, Scale):
        q, one_less = math.exp(-1 / w), -math.expm1(-1 / w)  # 1 - q, exact when b is large
        return 2 * q / one_less**2, 2 * q / (one_less * (1 + q))
    if w > _WIDE:
        return w * w, math.sqrt(2 / math.pi) * (w - 1 / (12 * w) - 1 / (240 * w**3))
    z = np.arange(1, math.ceil(40 * w) + 2, dtype=float)
    p = np.exp(-((z / w) ** 2) / 2)
    mass = 1 + 2 * p.sum()
    return float(2 * (z * z * p).sum() / mass), float(2 * (z * p).sum() / mass)
