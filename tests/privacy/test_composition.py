"""Mixed costs: sound against exact laws, tight against dp-accounting."""

import math

import numpy as np
import pytest
from dp_accounting import DpEventBuilder, GaussianDpEvent, LaplaceDpEvent
from dp_accounting.pld import PLDAccountant

from consilience.privacy.composition import delta_at, epsilon_at
from consilience.privacy.cost import Cost
from consilience.privacy.sensitivity import Neighbours, marginals
from consilience.privacy.units import Epsilon, Scale, Sigma, float_above

ADD = Neighbours.ADD_REMOVE
ONE = marginals(ADD)
MIXED = Cost.gaussian(ONE, Sigma(10)) * 5 + Cost.laplace(ONE, Scale(4)) * 3
DELTAS = [1e-12, 1e-9, 1e-6, 1e-3, 1e-2]


def judged(delta: float) -> float:
    """The same mixture of continuous mechanisms by privacy loss distributions."""
    builder = DpEventBuilder()
    builder.compose(GaussianDpEvent(10.0), 5)
    builder.compose(LaplaceDpEvent(4.0), 3)
    return PLDAccountant().compose(builder.build()).get_epsilon(delta)


@pytest.mark.parametrize("delta", DELTAS)
def test_mixed_forms_are_safe_and_not_far_from_the_best_known(delta):
    stated = epsilon_at(MIXED, delta)
    assert judged(delta) <= stated * 1.001
    assert stated <= judged(delta) * 1.35


@pytest.mark.parametrize("delta", DELTAS)
def test_mixing_is_better_than_adding_the_parts(delta):
    parts = epsilon_at(Cost.gaussian(ONE, Sigma(10)) * 5, delta) + 0.75
    assert epsilon_at(MIXED, delta) < parts


@pytest.mark.parametrize(
    "cost",
    [
        MIXED,
        Cost.gaussian(ONE, Sigma(20)) * 7,
        Cost.gaussian(ONE, Sigma(0.8)),
        Cost.laplace(ONE, Scale(3)) * 20,
        Cost.laplace(ONE, Scale(300)) * 20,
        Cost.laplace(ONE, Scale(0.001)) + Cost.gaussian(ONE, Sigma(1)),
        Cost.selection(ADD, Epsilon(0.2)) * 30 + Cost.gaussian(ONE, Sigma(9)),
    ],
)
@pytest.mark.parametrize("delta", DELTAS)
def test_epsilon_and_delta_are_inverse(cost, delta):
    epsilon = epsilon_at(cost, delta)
    assert delta_at(cost, Epsilon(epsilon)) <= delta * 1.02  # orders are searched on a grid
    if cost.epsilon is not None:
        assert epsilon <= float_above(cost.epsilon.value)


def randomised_response_delta(epsilon: float, times: int, at: float) -> float:
    p = 1 / (1 + math.exp(-epsilon))
    wins = np.arange(times + 1)
    ways = np.array([math.comb(times, int(w)) for w in wins])
    first = ways * p**wins * (1 - p) ** (times - wins)
    second = ways * (1 - p) ** wins * p ** (times - wins)
    return float(np.maximum(first - math.exp(at) * second, 0).sum())


@pytest.mark.parametrize("epsilon", [0.005, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("times", [1, 5, 40])
def test_pure_releases_cover_the_worst_pure_mechanism(epsilon, times):
    """Randomised response is the worst mechanism of its epsilon; its composition is known exactly."""
    cost = Cost.laplace(ONE, Scale(1 / epsilon)) * times
    for at in np.linspace(0, epsilon * times, 7)[1:-1]:
        truth = randomised_response_delta(epsilon, times, float(at))
        assert truth <= delta_at(cost, Epsilon(float(at))) * (1 + 1e-9)


def test_selection_keeps_its_rho():
    """Renyi divergences of the exponential mechanism over every corner of score changes."""
    epsilon, scores = 1.5, np.array([0.0, 0.7, -1.0])
    rho = float(Cost.selection(ADD, Epsilon(epsilon)).rho.value)
    worst = 0.0
    for corner in np.ndindex(3, 3, 3):
        moved = scores + np.array(corner) - 1
        p, q = (np.exp(epsilon * s / 2) for s in (scores, moved))
        p, q = p / p.sum(), q / q.sum()
        assert np.abs(np.log(p / q)).max() <= epsilon + 1e-12
        for alpha in (1.001, 1.5, 2, 4, 16, 64):
            divergence = math.log((p**alpha * q ** (1 - alpha)).sum()) / (alpha - 1)
            worst = max(worst, divergence / alpha)
    assert 0.5 * rho < worst <= rho


def test_nothing_costs_nothing():
    assert epsilon_at(Cost(ADD), 1e-6) == 0
    assert delta_at(Cost(ADD), Epsilon(0)) == 0
    assert (Cost.selection(ADD, Epsilon(1)) * 0) == Cost(ADD)
