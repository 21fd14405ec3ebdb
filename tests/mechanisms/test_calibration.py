"""Noise widths against closed forms, shares against a numerical optimiser, expected distances against draws."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from consilience.domain import Domain, Workload, all_marginals
from consilience.mechanisms import Gaussian, Laplace
from consilience.mechanisms.moments import NARROWEST, mean_absolute, stddev
from consilience.privacy import (
    Budget,
    Cost,
    Epsilon,
    Rho,
    Scale,
    SeededNoise,
    Sigma,
    gaussian_sigma,
    marginals,
    zcdp_rho,
)
from mechanisms.cases import DOMAIN, WEIGHTS, WORKLOAD, people

CELLS = {"replace-one": 2, "add-remove": 1}
RELATIONS = list(CELLS)
K = len(WORKLOAD)


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_gaussian_closed_form(neighbours):
    """sigma^2 = c sum(w) / (2 rho w_i)."""
    budget = Budget(rho=0.1, neighbours=neighbours)
    c = CELLS[neighbours]
    equal = Gaussian(WORKLOAD).calibrate(budget)
    for sigma in equal.widths.values():
        assert sigma.value == pytest.approx(math.sqrt(c * K / 0.2), rel=1e-12)
    weighted = Gaussian(WORKLOAD, weights=WEIGHTS).calibrate(budget)
    total = sum(WEIGHTS.values())
    for clique, sigma in weighted.widths.items():
        assert sigma.value == pytest.approx(math.sqrt(c * total / (0.2 * WEIGHTS[clique])))
    assert float(weighted.cost.rho.value) == pytest.approx(0.1, rel=1e-12)
    assert weighted.cost.rho <= Rho(0.1)


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_laplace_closed_form(neighbours):
    """b = c sum(w) / (epsilon w_i)."""
    budget = Budget(epsilon=0.5, neighbours=neighbours)
    c = CELLS[neighbours]
    equal = Laplace(WORKLOAD).calibrate(budget)
    assert {s.value for s in equal.widths.values()} == {c * K / 0.5}
    weighted = Laplace(WORKLOAD, weights=WEIGHTS).calibrate(budget)
    total = sum(WEIGHTS.values())
    for clique, scale in weighted.widths.items():
        assert scale.value == pytest.approx(c * total / (0.5 * WEIGHTS[clique]))
    spent = weighted.cost.epsilon
    assert spent is not None
    assert spent <= Epsilon(0.5)
    assert float(spent.value) == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_equal_noise_is_one_release_of_all_tables(neighbours):
    """Table by table or as one vector of sensitivity sqrt(c k): the same sigma, the same price."""
    budget = Budget(epsilon=1, delta=1e-6, neighbours=neighbours)
    together = marginals(budget.neighbours, K)
    sigma = gaussian_sigma(together, zcdp_rho(Epsilon(1), Fraction(1, 10**6)))
    ready = Gaussian(WORKLOAD).calibrate(budget)
    for found in ready.widths.values():
        assert found.value == pytest.approx(sigma.value, rel=1e-14)
    once = Cost.gaussian(together, sigma)
    assert float(ready.cost.rho.value) == pytest.approx(float(once.rho.value), rel=1e-12)


def test_gaussian_accounting_needs_less_noise():
    budget = Budget(epsilon=1, delta=1e-6, neighbours="replace-one")
    default = Gaussian(WORKLOAD).calibrate(budget)
    other = Budget(epsilon=1, delta=1e-6, neighbours="replace-one", accounting="gaussian")
    closer = Gaussian(WORKLOAD).calibrate(other)
    for clique in WORKLOAD:
        assert closer.widths[clique].value < 0.95 * default.widths[clique].value


def test_laplace_spends_epsilon_whether_or_not_there_is_a_delta():
    pure = Laplace(WORKLOAD).calibrate(Budget(epsilon=1, neighbours="replace-one"))
    other = Laplace(WORKLOAD).calibrate(Budget(epsilon=1, delta=1e-6, neighbours="replace-one"))
    assert pure.widths == other.widths
    assert pure.cost == other.cost


IMPORTANT = Workload(DOMAIN, {("age", "sex"): 3.0, ("region", "income"): 1.0, ("sex",): 8.0})


@pytest.mark.parametrize("build, power", [(Gaussian, 0.5), (Laplace, 1.0)])
def test_the_optimal_weights_are_optimal(build, power):
    """A numerical optimiser over the simplex finds nothing better, and the same shares."""
    budget = Budget(rho=1e-4, neighbours="replace-one")
    if build is Laplace:
        budget = Budget(epsilon=0.01, neighbours="replace-one")  # wide noise: E|z| is a power law

    def importance(ready):
        return sum(IMPORTANT[c] * l1 for c, l1 in ready.expected_l1.items())

    def at(logits):
        shares = dict(zip(IMPORTANT, np.exp(logits - logits.max()), strict=True))
        return importance(build(IMPORTANT, weights=shares).calibrate(budget))

    best = minimize(at, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9})
    ours = importance(build(IMPORTANT, weights="optimal").calibrate(budget))
    assert ours == pytest.approx(best.fun, rel=1e-6)
    assert ours < 0.99 * importance(build(IMPORTANT).calibrate(budget))
    shares = np.exp(best.x)
    target = np.array([(IMPORTANT[c] * DOMAIN.size(c)) ** (1 / (1 + power)) for c in IMPORTANT])
    np.testing.assert_allclose(shares / shares.sum(), target / target.sum(), rtol=1e-3)


@pytest.mark.parametrize("build", [Gaussian, Laplace])
def test_expected_distances_are_those_of_draws(build):
    budget = Budget(epsilon=2, delta=1e-6, neighbours="replace-one")
    ready = build(WORKLOAD, weights=WEIGHTS).calibrate(budget)
    data, noise, runs = people(500), SeededNoise(seed=1), 400
    exact = data.marginals(WORKLOAD)
    l1 = dict.fromkeys(WORKLOAD, 0.0)
    squares = dict.fromkeys(WORKLOAD, 0.0)
    for _ in range(runs):
        for m in ready.measure(data, noise=noise).measurements:
            difference = m.values - exact[m.attributes]
            l1[m.attributes] += np.abs(difference).sum() / runs
            squares[m.attributes] += np.mean(difference**2) / runs
    for c in WORKLOAD:
        assert l1[c] == pytest.approx(ready.expected_l1[c], rel=0.1)
        assert math.sqrt(squares[c]) == pytest.approx(ready.expected_rmse[c], rel=0.1)
        shown = ready.expected_total_variation(500)[c]
        assert shown == pytest.approx(ready.expected_l1[c] / 1000)


WIDTHS = st.floats(0.05, 300)


@given(WIDTHS)
def test_moments_of_discrete_laplace_are_sums_of_the_series(b):
    _judge(Scale(b), lambda z: np.exp(-np.abs(z) / b), reach=60 * b)


@given(WIDTHS)
def test_moments_of_discrete_gaussian_are_sums_of_the_series(s):
    _judge(Sigma(s), lambda z: np.exp(-(z**2) / (2 * s * s)), reach=40 * s)


def _judge(width, weight, reach):
    z = np.arange(-math.ceil(reach) - 2, math.ceil(reach) + 3, dtype=float)
    p = weight(z) / weight(z).sum()
    assert stddev(width) == pytest.approx(max(NARROWEST, math.sqrt((z * z * p).sum())), rel=1e-9)
    assert mean_absolute(width) == pytest.approx((np.abs(z) * p).sum(), rel=1e-9)


@pytest.mark.parametrize("width", [Scale(1e-4), Sigma(1e-3)])
def test_noise_too_narrow_to_matter(width):
    assert stddev(width) == NARROWEST
    assert mean_absolute(width) == 0


@pytest.mark.parametrize("width", [1e5, 2.0**50])
def test_wide_noise_is_continuous_noise(width):
    assert stddev(Sigma(width)) == pytest.approx(width)
    assert mean_absolute(Sigma(width)) == pytest.approx(width * math.sqrt(2 / math.pi))
    assert stddev(Scale(width)) == pytest.approx(width * math.sqrt(2))
    assert mean_absolute(Scale(width)) == pytest.approx(width)


def test_a_calibration_says_what_it_is():
    budget = Budget(rho=0.1, neighbours="replace-one")
    assert (
        str(Gaussian(WORKLOAD).calibrate(budget)) == "Gaussian: 4 tables, 33 cells, sigma 6.32456"
    )
    pure = Budget(epsilon=1, neighbours="add-remove")
    shown = str(Laplace(WORKLOAD, weights=WEIGHTS).calibrate(pure))
    assert shown == "Laplace: 4 tables, 33 cells, scale 2 to 16"


@pytest.mark.parametrize("tables, laplace_is_better", [(6, True), (7, False)])
def test_few_tables_favour_laplace_and_many_gaussian(tables, laplace_is_better):
    """The crossing that docs/mechanisms.md names."""
    domain = Domain({f"x{i}": 3 for i in range(tables)})
    budget = Budget(epsilon=1, delta=1e-6, neighbours="replace-one")
    expected = [
        sum(build(all_marginals(domain, 1)).calibrate(budget).expected_l1.values())
        for build in (Laplace, Gaussian)
    ]
    assert (expected[0] < expected[1]) == laplace_is_better
