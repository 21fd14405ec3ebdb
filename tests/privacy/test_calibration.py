"""Noise scales: exactly enough, never less, and in closed form."""

import math
import time
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.gaussian_mechanism import get_sigma_gaussian
from hypothesis import given
from hypothesis import strategies as st

from consilience.errors import BudgetError
from consilience.privacy.budget import Budget
from consilience.privacy.calibration import (
    analytic_gaussian_sigma,
    gaussian_sigma,
    laplace_scale,
    selection_epsilon,
    weighted_gaussian_sigmas,
)
from consilience.privacy.cost import Cost
from consilience.privacy.sensitivity import Neighbours, marginals, total
from consilience.privacy.units import Epsilon, MuSquared, Rho

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
amounts = st.fractions(min_value=Fraction(1, 10**7), max_value=200)


@given(
    amounts,
    st.integers(1, 10_000),
    st.sampled_from(
        [Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE, Neighbours("replace-one", "id", 3)]
    ),
)
def test_never_less_noise_than_asked_and_hardly_more(amount, k, relation):
    sensitivity = marginals(relation, k)
    scale = laplace_scale(sensitivity, Epsilon(amount))
    assert Cost.laplace(sensitivity, scale).epsilon.value <= amount
    assert Fraction(scale.value) == pytest.approx(sensitivity.l1 / amount, rel=1e-14)
    sigma = gaussian_sigma(sensitivity, Rho(amount))
    assert sensitivity.l2_squared / (2 * Fraction(sigma.value) ** 2) <= amount
    assert sigma.value == pytest.approx(math.sqrt(sensitivity.l2_squared / (2 * amount)), rel=1e-14)
    smooth = gaussian_sigma(sensitivity, MuSquared(amount))
    assert sensitivity.l2_squared / (Fraction(smooth.value) ** 2 - 2) <= amount
    assert smooth.value**2 == pytest.approx(float(sensitivity.l2_squared / amount) + 2, rel=1e-13)


@given(amounts)
def test_selection_spends_its_rho_by_bounded_range(amount):
    epsilon = selection_epsilon(Rho(amount))
    cost = Cost.selection(REPLACE, epsilon)
    assert cost.rho.value <= amount
    assert float(cost.rho.value) == pytest.approx(float(amount), rel=1e-14)
    assert selection_epsilon(Epsilon(amount)) == Epsilon(amount)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=12), amounts)
def test_weights_share_the_noise(weights, amount):
    for share in (Rho(amount), MuSquared(amount)):
        sigmas = weighted_gaussian_sigmas(REPLACE, weights, share)
        cost = Cost.sum(REPLACE, (Cost.gaussian(marginals(REPLACE), s) for s in sigmas))
        spent = cost.rho if isinstance(share, Rho) else cost.mu_squared
        assert spent <= share
        assert float(spent.value) == pytest.approx(float(amount), rel=1e-8)
        widths = np.array([s.value * w for s, w in zip(sigmas, weights, strict=True)])
        assert np.ptp(widths) <= 1e-12 * widths.max()


def test_equal_weights_are_no_weights():
    for share in (Rho(0.1), MuSquared(0.1)):
        one = gaussian_sigma(marginals(ADD, 7), share).value
        assert [s.value for s in weighted_gaussian_sigmas(ADD, [2] * 7, share)] == pytest.approx(
            [one] * 7, rel=1e-13
        )


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
def test_the_analytic_gaussian_agrees_with_dp_accounting(epsilon, delta):
    k = 32
    sigma = analytic_gaussian_sigma(marginals(REPLACE, k), Epsilon(epsilon), delta).value
    judge = get_sigma_gaussian(epsilon, delta) * math.sqrt(2 * k)
    assert sigma == pytest.approx(judge, rel=1e-7)


def test_accountings_in_order():
    """Adult's 32 pairs at epsilon 1: paper 5.35, tight zCDP 4.53, Gaussian 4.23, analytic 4.22."""
    budget = Budget(epsilon=1.0, delta=1e-6, neighbours="add-remove")
    sensitivity = marginals(ADD, 32)
    zcdp = gaussian_sigma(sensitivity, budget.capacity).value
    closer = Budget(epsilon=1.0, delta=1e-6, neighbours="add-remove", accounting="gaussian")
    gaussian = gaussian_sigma(sensitivity, closer.capacity).value
    analytic = analytic_gaussian_sigma(sensitivity, Epsilon(1), 1e-6).value
    assert [x / math.sqrt(32) for x in (zcdp, gaussian, analytic)] == pytest.approx(
        [4.531, 4.232, 4.225], abs=1e-3
    )


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: laplace_scale(marginals(ADD), Epsilon(0)), "a share must be greater than zero"),
        (lambda: gaussian_sigma(marginals(ADD), Rho(0)), "a share must be greater than zero"),
        (lambda: gaussian_sigma(marginals(ADD), MuSquared(0)), "a share must be greater than zero"),
        (lambda: gaussian_sigma(total(REPLACE), Rho(1)), "needs no noise; publish it as it is"),
        (lambda: laplace_scale(total(REPLACE), Epsilon(1)), "needs no noise"),
        (lambda: weighted_gaussian_sigmas(ADD, [], Rho(1)), "at least one marginal"),
        (lambda: weighted_gaussian_sigmas(ADD, [1, -1], Rho(1)), "a weight must be greater"),
        (lambda: weighted_gaussian_sigmas(ADD, [1], Epsilon(1)), "cannot keep a pure epsilon"),
        (lambda: selection_epsilon(MuSquared(1)), "must be given as Rho"),
    ],
)
def test_bad_requests(call, words):
    with pytest.raises(BudgetError) as caught:
        call()
    assert words in str(caught.value)


def test_a_thousand_calibrations_take_few_evaluations(monkeypatch, record_property):
    """Under a second here; the clock is recorded, what is judged is the number of evaluations."""
    import consilience.privacy.accounting as accounting

    calls = 0
    inner = accounting._gaussian_delta

    def counted(mu, eps):
        nonlocal calls
        calls += 1
        return inner(mu, eps)

    monkeypatch.setattr(accounting, "_gaussian_delta", counted)
    epsilons = np.geomspace(1e-12, 100, 1000)
    start = time.perf_counter()
    for epsilon in epsilons:
        budget = Budget(
            epsilon=epsilon, delta=1e-6, neighbours="replace-one", accounting="gaussian"
        )
        gaussian_sigma(marginals(REPLACE, 32), budget.capacity)
    record_property("seconds", time.perf_counter() - start)
    assert calls < 60 * len(epsilons)
