"""Lemma 1 of docs/privacy.md: reading discrete Gaussian noise as Gaussian DP, against the exact law.

For neighbours that differ by one in m cells, the sum of the m (signed) noisy cells is sufficient, so
its law, m-fold convolved, gives the exact delta of the vector release.
"""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from consilience.privacy.accounting import gaussian_delta
from consilience.privacy.composition import delta_at
from consilience.privacy.cost import SLACK_PER_CELL, SMOOTHING, Cost
from consilience.privacy.sensitivity import Neighbours, Sensitivity
from consilience.privacy.units import Epsilon, MuSquared, Sigma


def pmf(sigma: float) -> np.ndarray:
    reach = math.ceil(14 * sigma) + 2
    z = np.arange(-reach, reach + 1)
    weights = np.exp(-(z**2) / (2 * sigma**2))
    return weights / weights.sum()


def exact_delta(sigma: float, cells: int, epsilon: float) -> float:
    law = pmf(sigma)
    for _ in range(cells - 1):
        law = np.convolve(law, pmf(sigma))
    p = np.concatenate([np.zeros(cells), law])
    q = np.concatenate([law, np.zeros(cells)])
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def claimed(sigma: float, cells: int) -> Cost:
    moved = Fraction(cells)
    return Cost.gaussian(Sensitivity(Neighbours.ADD_REMOVE, moved, moved, cells), Sigma(sigma))


CASES = [
    (sigma, cells, epsilon)
    for sigma in (0.7, 1.0, 1.5, 2.0, 3.0, 10.0)
    for cells in (1, 2, 5, 16)
    for epsilon in (0.01, 0.1, 0.33, 0.5, 1.0, 2.0, 3.7)
]


@pytest.mark.parametrize("sigma, cells, epsilon", CASES)
def test_the_claim_covers_the_exact_law(sigma, cells, epsilon):
    stated = delta_at(claimed(sigma, cells), Epsilon(epsilon))
    assert exact_delta(sigma, cells, epsilon) <= stated + 1e-13


@pytest.mark.parametrize("cells", [1, 4])
def test_the_claim_is_tight_for_wide_noise(cells):
    stated = delta_at(claimed(30.0, cells), Epsilon(0.1))
    assert stated <= exact_delta(30.0, cells, 0.1) * 1.1


def test_the_continuous_formula_alone_would_claim_too_much():
    """Why lemma 1 is needed: somewhere the exact delta passes that of continuous noise."""
    broken = [
        (s, m, e)
        for s, m, e in CASES
        if exact_delta(s, m, e) > gaussian_delta(MuSquared(m / s**2), Epsilon(e)) * 1.001
    ]
    assert broken


def test_the_constant_of_the_lemma():
    with mp.workdps(50):
        b = 2 * mp.nsum(lambda n: mp.exp(-2 * mp.pi**2 * int(SMOOTHING) * n * n), [1, mp.inf])
        assert mp.log((1 + b) / (1 - b)) <= mp.mpf(SLACK_PER_CELL.numerator) / (
            SLACK_PER_CELL.denominator
        )
        # theta(c) = sum exp(-(z-c)^2 / 2 tau^2) stays within 1 +- b of its mean, for every c
        tau2, mean = mp.mpf(int(SMOOTHING)), mp.sqrt(2 * mp.pi * int(SMOOTHING))
        for c in np.linspace(0, 0.5, 11):
            theta = sum(mp.exp(-((z - mp.mpf(float(c))) ** 2) / (2 * tau2)) for z in range(-40, 41))
            assert abs(theta / mean - 1) <= b * (1 + mp.mpf(10) ** -15)
