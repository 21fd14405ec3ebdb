"""Amounts are exact, noise is a float, and no unit passes for another."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.errors import BudgetError
from consilience.privacy.accounting import zcdp_epsilon, zcdp_rho
from consilience.privacy.calibration import gaussian_sigma, laplace_scale
from consilience.privacy.cost import Cost
from consilience.privacy.sensitivity import Neighbours, marginals
from consilience.privacy.units import (
    Epsilon,
    MuSquared,
    Rho,
    Scale,
    Sigma,
    exact,
    float_above,
    round_up,
)

ONE = marginals(Neighbours.ADD_REMOVE)


@pytest.mark.parametrize(
    "value, expected",
    [
        (0.1, Fraction(1, 10)),
        (np.float64(0.3), Fraction(3, 10)),
        (np.int32(3), Fraction(3)),
        (2, Fraction(2)),
        (Decimal("0.7"), Fraction(7, 10)),
        (Fraction(1, 3), Fraction(1, 3)),
        (1e-12, Fraction(1, 10**12)),
    ],
)
def test_a_number_is_what_it_prints(value, expected):
    assert exact(value, "x") == expected


@pytest.mark.parametrize(
    "value, words",
    [
        ("1.0", "epsilon must be a number, got '1.0'"),
        (None, "epsilon must be a number, got None"),
        (True, "epsilon must be a number, got True"),
        (1j, "epsilon must be a number"),
        (float("nan"), "epsilon must be finite, got nan"),
        (float("inf"), "epsilon must be finite, got inf"),
        (Decimal("NaN"), "epsilon must be finite"),
        (-1, "epsilon must not be negative, got -1"),
        (Rho(1), "epsilon must be a plain number, got Rho(1); units are never converted"),
        (Sigma(1), "epsilon must be a plain number, got Sigma(1)"),
    ],
)
def test_what_is_no_amount(value, words):
    with pytest.raises(BudgetError) as caught:
        Epsilon(value)
    assert words in str(caught.value)


@pytest.mark.parametrize("value", [0, 0.0, -1.0, float("nan"), float("inf"), "2"])
def test_what_is_no_noise(value):
    with pytest.raises(BudgetError, match=r"sigma must be (greater than zero|finite|a number)"):
        Sigma(value)


@pytest.mark.parametrize(
    "mix",
    [
        lambda: Rho(1) + Epsilon(1),
        lambda: Rho(1) <= MuSquared(1),
        lambda: Rho(1) < 2,
        lambda: Epsilon(1) - Rho(1),
        lambda: Rho(1) >= Sigma(1),
        lambda: Rho(1) > 0.5,
    ],
)
def test_units_do_not_mix(mix):
    with pytest.raises(BudgetError, match="only amounts of one unit can be combined"):
        mix()


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: laplace_scale(ONE, Rho(1)), "must be given as Epsilon"),
        (lambda: laplace_scale(ONE, 1.0), "must be given as Epsilon"),
        (lambda: gaussian_sigma(ONE, Epsilon(1)), "cannot keep a pure epsilon"),
        (lambda: gaussian_sigma(ONE, Sigma(1)), "must be given as MuSquared"),
        (lambda: gaussian_sigma(ONE, 0.5), "must be given as MuSquared"),
        (lambda: Cost.gaussian(ONE, Scale(1)), "must be given as Sigma"),
        (lambda: Cost.gaussian(ONE, Rho(1)), "must be given as Sigma"),
        (lambda: Cost.laplace(ONE, Sigma(1)), "must be given as Scale"),
        (lambda: Cost.selection(Neighbours.ADD_REMOVE, Rho(1)), "must be given as Epsilon"),
        (lambda: zcdp_rho(Rho(1), 1e-6), "must be given as Epsilon"),
        (lambda: zcdp_epsilon(Epsilon(1), 1e-6), "must be given as Rho"),
    ],
)
def test_a_function_takes_its_own_unit(call, words):
    with pytest.raises(BudgetError) as caught:
        call()
    assert words in str(caught.value)


@given(
    st.fractions(min_value=Fraction(1, 10**9), max_value=1000),
    st.lists(st.floats(min_value=1e-6, max_value=1e6), min_size=1, max_size=30),
)
def test_parts_sum_exactly_to_the_whole(whole, weights):
    parts = Rho(whole).split(weights)
    assert sum((p.value for p in parts), Fraction(0)) == whole


@pytest.mark.parametrize("weights", [[], [1, 0], [1, -1], [float("nan")], ["half", "half"]])
def test_splits_that_make_no_sense(weights):
    with pytest.raises(BudgetError, match="weight"):
        Rho(1).split(weights)


@given(st.fractions(min_value=Fraction(1, 10**30), max_value=10**9))
def test_rounding_is_upwards_and_slight(value):
    assert 0 <= round_up(value) / value - 1 <= Fraction(1, 2**126)
    assert 0 <= Fraction(float_above(value)) / value - 1 <= Fraction(1, 2**51)
