"""What a cost amounts to as (epsilon, delta): the least of every bound that applies.

Closed forms answer costs of one kind. Where kinds mix, dp-accounting composes their Renyi
divergences: a pure epsilon as randomised response, which dominates every pure mechanism, and the
rest by their rho. These bounds describe parameters fixed beforehand; the rule that admits releases
one after another is `Budget.admits`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from consilience.privacy.accounting import (
    MARGIN,
    checked_delta,
    gaussian_delta,
    gaussian_epsilon,
    zcdp_delta,
    zcdp_epsilon,
)
from consilience.privacy.cost import Cost
from consilience.privacy.units import Epsilon, Real, float_above, require

_PURE = ("laplace", "noisy-max")
_SMALL, _LARGE = 0.01, 30
"""Outside, epsilon^2 / 2 is used: as tight below, and beyond doubt in floating point above."""


def epsilon_at(cost: Cost, delta: Real) -> float:
    """The least epsilon at `delta` that is proven for the cost, rounded up."""
    failure = checked_delta(delta)
    if not cost.spends:
        return 0.0
    bounds = [float_above(zcdp_epsilon(cost.rho, failure).value)]
    if cost.epsilon is not None:
        bounds.append(float_above(cost.epsilon.value))
    if cost.mu_squared is not None:
        tightened = failure * (1 - cost.slack)
        epsilon = gaussian_epsilon(cost.mu_squared, tightened).value + cost.slack
        bounds.append(float_above(epsilon))
    elif _is_mixed(cost):
        accountant = _renyi(cost, math.floor(math.log10(failure)))
        bounds.append(float(accountant.get_epsilon(float(failure))) * (1 + MARGIN))
    return min(bounds)


def delta_at(cost: Cost, epsilon: Epsilon) -> float:
    """The least delta at `epsilon` that is proven for the cost, rounded up."""
    eps = require(epsilon, Epsilon, "epsilon")
    if not cost.spends or (cost.epsilon is not None and cost.epsilon <= eps):
        return 0.0
    bounds = [zcdp_delta(cost.rho, eps)]
    if cost.epsilon is not None:
        bounds.append(_randomised_response(float(cost.epsilon.value), float(eps.value)))
    if cost.mu_squared is not None and eps.value > cost.slack:
        reduced = Epsilon(eps.value - cost.slack)
        bounds.append(gaussian_delta(cost.mu_squared, reduced) * math.exp(cost.slack))
    elif _is_mixed(cost) and min(bounds) > 0:
        accountant = _renyi(cost, math.floor(math.log10(min(bounds))))
        bounds.append(float(accountant.get_delta(float(eps.value))) * (1 + MARGIN))
    return min(bounds)


def _randomised_response(epsilon: float, at: float) -> float:
    """delta at `at` < epsilon of the worst mechanism of pure epsilon."""
    p = 1 / (1 + math.exp(-epsilon))
    return (p - math.exp(at - epsilon) * p) * (1 + MARGIN)


def _is_mixed(cost: Cost) -> bool:
    """Whether composing Renyi divergences can beat both adding epsilons and adding rhos."""
    several = sum(s.times for s in cost.spends) > 1
    return several and any(s.form in _PURE for s in cost.spends)


@lru_cache(maxsize=64)
def _renyi(cost: Cost, magnitude: int) -> Any:
    """dp-accounting's Renyi accountant of the cost, on orders that suit deltas of 10^magnitude."""
    import dp_accounting  # takes a second to load, and only mixed costs need it
    from dp_accounting.rdp import RdpAccountant

    centre = math.sqrt(max(1, -magnitude) * math.log(10) / float(cost.rho.value))
    orders = 1 + np.geomspace(max(0.02, centre * 1e-2), max(2.0, centre * 1e2), 240)
    accountant = RdpAccountant(list(orders), dp_accounting.NeighboringRelation.REPLACE_ONE)
    for s in cost.spends:
        if s.form in _PURE and s.epsilon is not None and _SMALL <= s.epsilon <= _LARGE:
            event = dp_accounting.RandomizedResponseDpEvent(2 / (1 + math.exp(s.epsilon)), 2)
        else:
            event = dp_accounting.ZCDpEvent(float(s.rho))
        accountant.compose(event, s.times)
    return accountant
