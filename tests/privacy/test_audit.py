"""Audits pass on the real primitives and fail on each planted fault.

A primitive is written as `sampler(faults)`: with no fault it is what a mechanism runs; `noise` scales
the noise, `sensitivity` the sensitivity that it was calibrated with, `rounds` counts releases that were
priced as one. All use the real samplers.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from consilience.errors import AuditError
from consilience.privacy.audit import (
    approximate,
    lower_bound,
    pure,
    repeated,
    run_audit,
    upper_bound,
)
from consilience.privacy.calibration import gaussian_sigma, laplace_scale
from consilience.privacy.cost import Cost
from consilience.privacy.noise import SecureNoise, SeededNoise
from consilience.privacy.sensitivity import Neighbours, Sensitivity
from consilience.privacy.units import Epsilon, MuSquared, Rho, Scale, Sigma

pytestmark = pytest.mark.slow

NOISE = SecureNoise()
REPLACE = Neighbours.REPLACE_ONE
TENFOLD = Sensitivity(REPLACE, Fraction(20), Fraction(200), 2)  # one marginal counted in tenths
PAIR = (np.array([100, 100]), np.array([90, 110]))  # one person moved, in tenths
FAULTS = {
    "noise x 0.7": {"noise": 0.7},
    "sensitivity halved": {"sensitivity": Fraction(1, 2)},
    "one round too many": {"rounds": 2},
}


def smaller(sensitivity: Sensitivity, factor: Fraction) -> Sensitivity:
    return replace(
        sensitivity, l1=sensitivity.l1 * factor, l2_squared=sensitivity.l2_squared * factor**2
    )


def laplace(noise=1.0, sensitivity=Fraction(1), rounds=1):
    scale = laplace_scale(smaller(TENFOLD, sensitivity), Epsilon(1))
    width = Scale(scale.value * noise)

    def sampler(x, runs):
        """The log-likelihood ratio of the two inputs, up to a factor."""
        y = NOISE.discrete_laplace(np.tile(x, (runs * rounds, 1)), width).values
        ratio = (np.abs(y - PAIR[1]) - np.abs(y - PAIR[0])).sum(axis=1)
        return ratio.reshape(runs, rounds).sum(axis=1)

    return sampler


def gaussian(share):
    def build(noise=1.0, sensitivity=Fraction(1), rounds=1):
        sigma = gaussian_sigma(smaller(TENFOLD, sensitivity), share)
        width = Sigma(sigma.value * noise)

        def sampler(x, runs):
            y = NOISE.discrete_gaussian(np.tile(x, (runs * rounds, 1)), width).values
            return (y[:, 1] - y[:, 0]).reshape(runs, rounds).sum(axis=1)

        return sampler

    return build


def choice(method):
    def build(noise=1.0, sensitivity=Fraction(1), rounds=1):
        epsilon = Epsilon(Fraction(2) / Fraction(noise))
        choose, change = getattr(NOISE, method), 100 * sensitivity

        def once(scores):
            """How often the first candidate is chosen."""
            return float(sum(choose(scores, change, epsilon) == 0 for _ in range(rounds)))

        return repeated(once)

    return build


SCORES = (np.array([100, 100]), np.array([0, 200]))  # each may move by one, in hundredths
PRIMITIVES = {
    "laplace": (laplace, PAIR, Cost.laplace(TENFOLD, laplace_scale(TENFOLD, Epsilon(1))), 12_000),
    "gaussian, Gaussian DP": (
        gaussian(MuSquared(1)),
        PAIR,
        Cost.gaussian(TENFOLD, gaussian_sigma(TENFOLD, MuSquared(1))),
        12_000,
    ),
    "gaussian, zCDP": (
        gaussian(Rho(Fraction(1, 2))),
        PAIR,
        Cost.gaussian(TENFOLD, gaussian_sigma(TENFOLD, Rho(Fraction(1, 2)))),
        12_000,
    ),
    "selection": (choice("select"), SCORES, Cost.selection(REPLACE, Epsilon(2)), 10_000),
}


ALL = [
    pytest.param(name, marks=[pytest.mark.slow] if name == "gaussian, zCDP" else [])
    for name in PRIMITIVES
]


@pytest.mark.parametrize("name", ALL)
def test_the_real_thing_passes(name):
    build, inputs, cost, runs = PRIMITIVES[name]
    found = run_audit(build(), inputs, cost, runs=runs, confidence=1 - 1e-6)
    assert found.passed, found


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ALL)
def test_each_planted_fault_fails(name, fault):
    build, inputs, cost, runs = PRIMITIVES[name]
    found = run_audit(build(**FAULTS[fault]), inputs, cost, runs=runs, confidence=0.99)
    assert not found.passed, found


def coin(truthful: float):
    """Randomised response, whose epsilon is known: it answers truthfully with this chance."""
    rng = np.random.default_rng(11)
    return lambda x, runs: np.where(rng.random(runs) < truthful, x, 1 - x)


def test_the_bound_is_close_to_the_truth_from_below():
    truth = np.log(0.75 / 0.25)
    found = run_audit(coin(0.75), (0, 1), pure(truth), runs=100_000)
    assert found.passed
    assert 0.95 * truth < found.epsilon_low() <= truth
    assert found.epsilon_low(delta=0.5) == pytest.approx(0, abs=0.02)
    assert found.epsilon_low(delta=0.9) == 0
    assert not run_audit(coin(0.75), (0, 1), pure(0.9 * truth), runs=100_000).passed


def test_delta_counts():
    """One time in ten the input is published: (0, 0.1) holds, (0, 0.05) and any pure epsilon do not."""
    rng = np.random.default_rng(5)

    def leak(x, runs):
        return np.where(rng.random(runs) < 0.1, x, 0)

    inputs = (1, -1)
    assert run_audit(leak, inputs, approximate(0.0, 0.1)).passed
    assert not run_audit(leak, inputs, approximate(1.0, 0.05)).passed
    assert not run_audit(leak, inputs, pure(3.0)).passed


def test_seeded_noise_follows_the_same_law():
    seeded, sigma = SeededNoise(seed=3), gaussian_sigma(TENFOLD, MuSquared(1))
    cost = Cost.gaussian(TENFOLD, sigma)

    def sampler(width):
        def sample(x, runs):
            y = seeded.discrete_gaussian(np.tile(x, (runs, 1)), width).values
            return y[:, 1] - y[:, 0]

        return sample

    assert run_audit(sampler(sigma), PAIR, cost).passed
    assert not run_audit(sampler(Sigma(0.7 * sigma.value)), PAIR, cost).passed


@pytest.mark.parametrize("hits, runs", [(0, 50), (50, 50), (7, 50), (3, 1000)])
def test_clopper_pearson(hits, runs):
    """At the bound, the chance of what was seen or more extreme is the tail."""
    from scipy.stats import binom

    low, high = lower_bound(hits, runs, 0.01), upper_bound(hits, runs, 0.01)
    assert low <= hits / runs <= high
    if hits > 0:
        assert binom.sf(hits - 1, runs, low) == pytest.approx(0.01, rel=1e-9)
    if hits < runs:
        assert binom.cdf(hits, runs, high) == pytest.approx(0.01, rel=1e-9)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: run_audit(coin(0.5), (0, 1), pure(1), runs=10), "at least 100 runs, got 10"),
        (
            lambda: run_audit(coin(0.5), (0, 1), pure(1), confidence=1),
            "between zero and one, got 1",
        ),
        (
            lambda: run_audit(lambda x, n: np.zeros(3), (0, 1), pure(1)),
            "one number per run (10000)",
        ),
        (lambda: run_audit(lambda x, n: np.full(n, np.nan), (0, 1), pure(1)), "one number per run"),
    ],
)
def test_bad_audits(call, words):
    with pytest.raises(AuditError) as caught:
        call()
    assert words in str(caught.value)
