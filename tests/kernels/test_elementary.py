"""exp and log against NumPy's, over their whole range and at its ends."""

import numpy as np
import pytest
from numba import njit

from consilience.kernels.elementary import (
    NEAR,
    SHORT,
    TINY,
    exp,
    log,
    short_exp,
    short_log1p,
    tiny_exp,
)


@njit
def exp_all(x, out):
    for i in range(x.size):
        out[i] = exp(x[i])


@njit
def log_all(x, out):
    for i in range(x.size):
        out[i] = log(x[i])


def apply(loop, x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    loop(x, out)
    return out


RANGES = {
    "whole": (-700.0, 700.0),
    "near zero": (-1e-3, 1e-3),
    "one reduction interval": (-0.35, 0.35),
    "usual steps": (-5.0, 5.0),
    "at the ends": (699.0, 700.0),
}


@pytest.mark.parametrize("name", RANGES)
def test_exp(name: str) -> None:
    x = np.random.default_rng(0).uniform(*RANGES[name], 200_000)
    np.testing.assert_allclose(apply(exp_all, x), np.exp(x), rtol=1e-15)


def test_exp_outside_its_range_is_the_value_at_the_nearer_end() -> None:
    x = np.array([-1e300, -701.0, 701.0, 1e300, -np.inf, np.inf])
    ends = np.exp([-700.0, -700.0, 700.0, 700.0, -700.0, 700.0])
    np.testing.assert_allclose(apply(exp_all, x), ends, rtol=1e-15)


def test_exp_of_zero_is_one_exactly() -> None:
    assert apply(exp_all, np.array([0.0, -0.0])).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("low, high", [(-300, 300), (-1, 1), (-100, 0)])
def test_log(low: float, high: float) -> None:
    x = 10 ** np.random.default_rng(1).uniform(low, high, 200_000)
    np.testing.assert_allclose(apply(log_all, x), np.log(x), rtol=1e-15)


def test_log_near_one_keeps_its_digits() -> None:
    x = 1 + np.random.default_rng(2).uniform(-1e-6, 1e-6, 200_000)
    np.testing.assert_allclose(apply(log_all, x), np.log(x), rtol=4e-15)
    assert apply(log_all, np.array([1.0])).tolist() == [0.0]


def test_log_of_zero_is_finite_and_below_every_floor() -> None:
    found = apply(log_all, np.array([0.0, 5e-324, 2.2250738585072014e-308]))
    np.testing.assert_allclose(found, np.log(2.2250738585072014e-308))


def test_exp_undoes_log() -> None:
    x = 10 ** np.random.default_rng(3).uniform(-100, 0, 100_000)
    back = apply(exp_all, apply(log_all, x))
    np.testing.assert_allclose(back, x, rtol=2e-14)  # the exponent's own rounding, times 230


@njit
def short_all(x, out_exp, out_log):
    for i in range(x.size):
        out_exp[i] = short_exp(x[i])
        out_log[i] = short_log1p(x[i])


def test_short_series_are_as_accurate_up_to_their_limits() -> None:
    x = np.linspace(-SHORT, SHORT, 100_001)
    e, l = np.empty_like(x), np.empty_like(x)
    short_all(x, e, l)
    np.testing.assert_allclose(e, np.exp(x), rtol=1e-15)
    near = np.abs(x) <= NEAR
    np.testing.assert_allclose(l[near], np.log1p(x[near]), rtol=1e-15, atol=1e-16)


@njit
def tiny_all(x, out):
    for i in range(x.size):
        out[i] = tiny_exp(x[i])


def test_the_shortest_series_is_as_accurate_up_to_its_limit() -> None:
    x = np.linspace(-TINY, TINY, 100_001)
    np.testing.assert_allclose(apply(tiny_all, x), np.exp(x), rtol=1e-15)


def test_no_exponent_of_the_short_road_passes_its_series() -> None:
    """|u| <= -log(1 - NEAR); an exponent is weight (mean - log mass - u), each of the three at most that."""
    assert 3 * -np.log1p(-NEAR) <= SHORT
