"""FEM and DualQuery keep their promise on neighbouring tables, and each planted fault is found out.

One call per run; the statistic is the log of how much more likely the first table made the choices, the best one there is.
The noise is seeded: what is audited is what the mechanisms do with it (the samplers have audits of their own).
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

import consilience.mechanisms.game
from consilience.domain import CliqueVector, Domain, Workload
from consilience.measurements.selections import SelectionLoss, Selections
from consilience.mechanisms import FEM, DualQuery
from consilience.privacy import Budget, Epsilon, SeededNoise, repeated, run_audit
from consilience.records import Dataset

pytestmark = pytest.mark.slow

DOMAIN = Domain({"a": 2, "b": 2})
WORKLOAD = Workload(DOMAIN, [("a",), ("b",)])
PAIR = (
    Dataset(np.array([[0, 0], [1, 1], [0, 1]]), DOMAIN),
    Dataset(np.array([[1, 1], [1, 1], [0, 1]]), DOMAIN),
)
BUDGET = Budget(rho=0.5, neighbours="replace-one")
MADE = {
    "fem": FEM(WORKLOAD, rounds=8, samples=2, restarts=0),
    "dual query": DualQuery(WORKLOAD, rounds=5, samples=3, restarts=0),
}
RUNS = 400


class Sharp(SeededNoise):
    """Planted: choices three times as sharp as asked for."""

    def select(self, scores, sensitivity, epsilon):
        return super().select(scores, sensitivity, Epsilon(3 * epsilon.value))


@cache
def shares() -> list[CliqueVector]:
    return [d.marginals(WORKLOAD.cliques) * (1 / d.records) for d in PAIR]


def ratio(selections: Selections) -> float:
    """log P(choices | first table) - log P(choices | second table)."""
    bound = SelectionLoss(selections).bind(shares()[0].layout)
    first, second = (bound.value_and_grad(s.values)[0] for s in shares())
    return second - first


def passes(name, ready, noise, confidence) -> bool:
    promised = MADE[name].calibrate(BUDGET).cost

    def once(table) -> float:
        return ratio(ready.measure(table, noise=noise).selections)

    return run_audit(repeated(once), PAIR, promised, runs=RUNS, confidence=confidence).passed


def found_out(name, ready, noise) -> bool:
    return any(not passes(name, ready, noise, 0.99) for _ in range(2))


@pytest.mark.parametrize("name", MADE)
def test_the_real_thing_passes(name) -> None:
    assert passes(name, MADE[name].calibrate(BUDGET), SeededNoise(seed=1), 1 - 1e-6)


@pytest.mark.parametrize("name", MADE)
def test_choices_that_are_too_sharp_are_found_out(name) -> None:
    assert found_out(name, MADE[name].calibrate(BUDGET), Sharp(seed=2))


@pytest.mark.parametrize("name", MADE)
def test_a_third_of_the_sensitivity_is_found_out(name, monkeypatch) -> None:
    ready = MADE[name].calibrate(BUDGET)
    monkeypatch.setattr(consilience.mechanisms.game, "cell_score", lambda _: Fraction(1, 3))
    assert found_out(name, ready, SeededNoise(seed=3))


def test_rounds_that_were_not_paid_for_are_found_out() -> None:
    """Sixteen rounds at the price of two."""
    ready = replace(MADE["fem"], rounds=2).calibrate(BUDGET)
    noise = SeededNoise(seed=4)

    def once(table) -> float:
        return ratio(replace(ready, rounds=16).measure(table, noise=noise).selections)

    def found() -> bool:
        return not run_audit(repeated(once), PAIR, ready.cost, runs=RUNS, confidence=0.99).passed

    assert found() or found()
