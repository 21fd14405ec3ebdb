"""Conversions against 60-digit arithmetic, against dp-accounting, and against their inverses."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from dp_accounting import NeighboringRelation, ZCDpEvent
from dp_accounting.gaussian_mechanism import get_epsilon_gaussian, get_sigma_gaussian
from dp_accounting.rdp import RdpAccountant

from consilience.errors import BudgetError
from consilience.privacy import accounting
from consilience.privacy.units import Epsilon, MuSquared, Rho

EPSILONS = [1e-3, 1e-2, 0.1, 1.0, 3.0, 10.0, 31.6, 100.0]
DELTAS = [1e-12, 1e-9, 1e-6, 1e-4, 1e-2]
GRID = [(e, d) for e in EPSILONS for d in DELTAS]


def true_gaussian_delta(mu_squared: Fraction, epsilon: float):
    with mp.workdps(60):
        mu = mp.sqrt(mp.mpf(mu_squared.numerator) / mu_squared.denominator)
        e = mp.mpf(epsilon)
        return mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)


def true_zcdp_delta(rho: float, epsilon: float, alpha: float):
    with mp.workdps(60):
        r, e, a = mp.mpf(rho), mp.mpf(epsilon), mp.mpf(alpha)
        return mp.exp((a - 1) * (a * r - e)) / (a - 1) * (1 - 1 / a) ** a


@pytest.mark.parametrize("epsilon, delta", GRID)
def test_gaussian_dp_is_safe_and_tight_to_seven_digits(epsilon, delta):
    mu2 = accounting.gaussian_mu_squared(Epsilon(epsilon), delta)
    truth = true_gaussian_delta(mu2.value, epsilon)
    assert truth <= delta
    assert truth >= delta * (1 - 1e-7)
    stated = accounting.gaussian_delta(mu2, Epsilon(epsilon))
    assert truth <= stated <= truth * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("delta", [1e-12, 1e-2])
def test_tiny_epsilons_keep_their_digits(epsilon, delta):
    mu2 = accounting.gaussian_mu_squared(Epsilon(epsilon), delta)
    truth = true_gaussian_delta(mu2.value, epsilon)
    assert delta * (1 - 1e-7) <= truth <= delta
    rho = accounting.zcdp_rho(Epsilon(epsilon), delta)
    assert 0 < rho.value <= mu2.value / 2


@pytest.mark.parametrize("epsilon, delta", GRID)
def test_gaussian_dp_agrees_with_dp_accounting(epsilon, delta):
    mu = math.sqrt(accounting.gaussian_mu_squared(Epsilon(epsilon), delta).value)
    assert 1 / mu == pytest.approx(get_sigma_gaussian(epsilon, delta), rel=1e-7)
    found = accounting.gaussian_epsilon(MuSquared(mu * mu), delta)
    assert float(found.value) == pytest.approx(get_epsilon_gaussian(1 / mu, delta), rel=1e-6)


@pytest.mark.parametrize("epsilon, delta", GRID)
def test_gaussian_dp_inverse_pairs(epsilon, delta):
    mu2 = accounting.gaussian_mu_squared(Epsilon(epsilon), delta)
    back = accounting.gaussian_epsilon(mu2, delta)
    assert true_gaussian_delta(mu2.value, float(back.value)) <= delta
    assert float(back.value) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("epsilon, delta", GRID)
def test_zcdp_agrees_with_dp_accounting(epsilon, delta):
    rho = accounting.zcdp_rho(Epsilon(epsilon), delta)
    best = 1 + math.sqrt(-math.log(delta) / rho.value)
    orders = 1 + np.geomspace(max(0.011, (best - 1) * 1e-2), (best - 1) * 1e2, 4000)
    judge = RdpAccountant(list(orders), NeighboringRelation.REPLACE_ONE)
    judge.compose(ZCDpEvent(float(rho.value)))
    # the judge searches a grid (so it is never tighter than the truth), and also knows a bound
    # through KL divergence that matters when delta is large and epsilon tiny: hence one-sided
    assert judge.get_epsilon(delta) <= epsilon * (1 + 1e-5)
    if judge.get_epsilon(delta) > 0:
        assert judge.get_epsilon(delta) >= epsilon * (1 - 1e-9)
    stated = float(accounting.zcdp_epsilon(rho, delta).value)
    assert stated == pytest.approx(epsilon, rel=1e-7)
    assert accounting.zcdp_delta(rho, Epsilon(epsilon)) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("epsilon, delta", GRID)
def test_zcdp_promises_are_proven_by_some_order(epsilon, delta):
    rho = float(accounting.zcdp_rho(Epsilon(epsilon), delta).value)
    centre, reach = math.sqrt(-math.log(delta) / rho), 4.0
    for _ in range(7):  # zoom in on the best order, in 60-digit arithmetic
        orders = np.geomspace(centre / reach, centre * reach, 41)
        proofs = [true_zcdp_delta(rho, epsilon, 1 + x) for x in orders]
        centre, reach = orders[int(np.argmin(proofs))], reach ** (1 / 10)
    assert min(proofs) <= delta
    assert accounting.zcdp_delta(Rho(rho), Epsilon(epsilon)) == pytest.approx(
        float(min(proofs)), rel=1e-6
    )


@pytest.mark.parametrize("epsilon, delta", GRID)
def test_the_standard_formula_and_its_inverse(epsilon, delta):
    rho = accounting.standard_zcdp_rho(Epsilon(epsilon), delta)
    r = float(rho.value)
    assert r + 2 * math.sqrt(r * math.log(1 / delta)) == pytest.approx(epsilon, rel=1e-9)
    assert accounting.standard_zcdp_epsilon(rho, delta).value <= Fraction(epsilon) * (
        1 + Fraction(1, 10**9)
    )
    assert rho <= accounting.zcdp_rho(Epsilon(epsilon), delta)


@pytest.mark.parametrize("epsilon, delta", GRID)
def test_gaussian_noise_is_never_better_described_by_rho(epsilon, delta):
    """mu^2 / 2 = rho for a Gaussian, so its own formula must allow at least as much."""
    rho, mu2 = (
        accounting.zcdp_rho(Epsilon(epsilon), delta),
        accounting.gaussian_mu_squared(Epsilon(epsilon), delta),
    )
    assert rho.value * 2 <= mu2.value


def test_the_papers_noise():
    """sigma of one marginal in the paper's table is 526.1, 5.351, 0.101 (algorithms.md 10.1)."""
    for epsilon, sigma in [(0.01, 525.7), (1.0, 5.350), (100.0, 0.1017)]:
        rho = accounting.standard_zcdp_rho(Epsilon(epsilon), 1e-6)
        assert 1 / math.sqrt(2 * rho.value) == pytest.approx(sigma, rel=1e-3)


def test_the_ends():
    assert accounting.gaussian_delta(MuSquared(0), Epsilon(1)) == 0
    assert accounting.gaussian_epsilon(MuSquared(Fraction(1, 10**12)), 0.1) == Epsilon(0)
    assert accounting.gaussian_delta(MuSquared(10**6), Epsilon(1)) == 1
    assert accounting.zcdp_delta(Rho(0), Epsilon(1)) == 0
    assert accounting.zcdp_epsilon(Rho(0), 0.1) == Epsilon(0)
    assert accounting.zcdp_delta(Rho(1000), Epsilon(1)) == 1


@pytest.mark.parametrize("delta", [0, 1, 1.5, -0.1, float("nan"), "1e-6"])
@pytest.mark.parametrize(
    "convert", [accounting.zcdp_rho, accounting.gaussian_mu_squared, accounting.standard_zcdp_rho]
)
def test_delta_is_a_small_chance(convert, delta):
    with pytest.raises(BudgetError, match="delta must be"):
        convert(Epsilon(1), delta)


@pytest.mark.parametrize(
    "convert", [accounting.zcdp_rho, accounting.gaussian_mu_squared, accounting.standard_zcdp_rho]
)
def test_no_noise_keeps_epsilon_zero(convert):
    with pytest.raises(BudgetError, match="epsilon must be greater than zero"):
        convert(Epsilon(0), 1e-6)
