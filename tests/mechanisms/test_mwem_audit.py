"""MWEM and AIM keep their promise on neighbouring tables, and each planted fault is found out.

Measuring: thousands of runs in one call, as in test_audit.py: the table of a run is that of one stratum of the attribute
"run". Choosing: what a run hands to the exponential mechanism on either table, drawn from thousands of times.
Reconstruction is replaced by a fixed estimate: it sees no data, so it cannot leak. Seeds make the verdicts repeat.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import consilience.mechanisms.aim
import consilience.mechanisms.fixed
import consilience.mechanisms.mwem
import consilience.mechanisms.rounds
from consilience.domain import Domain, Workload
from consilience.fits import LeastSquares, PossibleCells
from consilience.mechanisms import AIM, MWEM
from consilience.mechanisms.estimates import Estimates
from consilience.mechanisms.rounds import Meter
from consilience.privacy import (
    Budget,
    Cost,
    Scale,
    SeededNoise,
    Sigma,
    marginals,
    run_audit,
    weighted_l1_score,
)
from consilience.records import Dataset

pytestmark = pytest.mark.slow

RUNS = 30_000
SAME = [(1, 1)] * 9
PAIR = {
    "replace-one": ([(0, 0), *SAME], [(1, 1), *SAME]),
    "add-remove": ([(0, 0), *SAME], SAME),
    "replace a person": ([(0, 0)] * 3 + SAME, [(1, 1)] * 3 + SAME),
    "add a person": ([(0, 0)] * 3 + SAME, SAME),
}
"""The worst neighbours of each relation; all three rows of a person lie in one cell."""


@pytest.fixture(autouse=True)
def _no_reconstruction(monkeypatch):
    def uniform(self, model, cliques):
        size = self.domain.size
        return (np.full(self.domain.shape_of(c), (self.total or 0) / size(c)) for c in cliques)

    whatever = SimpleNamespace(total=np.inf)  # so many rows that every candidate is looked at
    for fit in (LeastSquares, PossibleCells):
        monkeypatch.setattr(fit, "__call__", lambda self, *args, **options: whatever)
    monkeypatch.setattr(Estimates, "__call__", uniform)


class Last(SeededNoise):
    """Chooses the last candidate, which for AIM is the table with all attributes."""

    def select(self, scores, sensitivity, epsilon):
        return len(scores) - 1


class Narrow(Last):
    """Planted: noise of 0.7 times the width asked for."""

    def discrete_gaussian(self, counts, sigma, progress=None):
        return super().discrete_gaussian(counts, Sigma(0.7 * sigma.value), progress)

    def discrete_laplace(self, counts, scale, progress=None):
        return super().discrete_laplace(counts, Scale(0.7 * scale.value), progress)


def halved(neighbours, count: int = 1):
    """Planted: half of the true distance between neighbours."""
    true = marginals(neighbours, count)
    return replace(true, l1=true.l1 / 2, l2_squared=true.l2_squared / 4)


def domain(runs: int) -> Domain:
    return Domain({"run": runs, "a": 2, "b": 2})


def strata(rows, runs: int, relation: str) -> Dataset:
    codes = np.repeat(np.arange(runs), len(rows))
    columns = np.column_stack([codes, np.tile(rows, (runs, 1))])
    whose = ("person", 3) if "person" in relation else None
    return Dataset(columns, domain(runs), unit_rows=whose)


def mwem(runs: int) -> MWEM:
    """One round, nearly all of it for measuring."""
    return MWEM(Workload(domain(runs), [("run", "a"), ("run", "b")]), 1, select_share=0.05)


def aim(runs: int) -> AIM:
    return AIM(Workload(domain(runs), [("run", "a")]))


MECHANISMS = {"mwem": (mwem, {"epsilon": 1}), "aim": (aim, {"rho": 0.5})}
ALL = [(m, n) for m in MECHANISMS for n in PAIR]
SUBTLE = [(m, n) for m, n in ALL if m == "mwem" or "person" not in n]
"""Where a fault of these sizes is seen in so many runs: of AIM's many rounds the audit sees the largest."""


def calibrated(name: str, neighbours: str):
    build, amounts = MECHANISMS[name]
    relation = {"replace a person": "replace-one", "add a person": "add-remove"}
    whose = {"unit": "person", "rows_per_unit": 3} if neighbours in relation else {}
    budget = Budget(**amounts, neighbours=relation.get(neighbours, neighbours), **whose)
    return build(RUNS // 2).calibrate(budget)


def ratio(release, pair):
    """Per stratum, how much more likely the first rows made these tables than the second, up to a constant."""
    first, second = (np.array(rows) for rows in pair)
    out = np.zeros(RUNS // 2)
    for m in release.measurements:
        if m.attributes not in (("run", "a"), ("run", "b")):
            continue  # the same on both, or of all strata together
        column = "ab".index(m.attributes[1])
        x, y = (np.bincount(rows[:, column], minlength=2) for rows in (first, second))
        if m.noise == "gaussian":
            out += (m.values * (x - y)).sum(axis=1) / m.stddev**2
        else:
            out += (np.abs(m.values - y) - np.abs(m.values - x)).sum(axis=1)
    return out


def audit(name, neighbours, ready, promise, noise):
    pair = PAIR[neighbours]

    def sampler(rows, runs):
        return ratio(ready.measure(strata(rows, runs, neighbours), noise=noise), pair)

    return run_audit(sampler, pair, promise, runs=RUNS, confidence=0.99)


@pytest.mark.parametrize("name, neighbours", ALL)
def test_the_real_thing_passes(name, neighbours):
    ready = calibrated(name, neighbours)
    found = audit(name, neighbours, ready, ready.cost, Last(seed=1))
    assert found.passed, found


@pytest.mark.parametrize("name, neighbours", SUBTLE)
def test_too_little_noise_is_found_out(name, neighbours):
    ready = calibrated(name, neighbours)
    assert not audit(name, neighbours, ready, ready.cost, Narrow(seed=1)).passed


@pytest.mark.parametrize("name, neighbours", ALL)
def test_half_the_sensitivity_is_found_out(name, neighbours, monkeypatch):
    honest = calibrated(name, neighbours)
    for module in (
        consilience.mechanisms.fixed,
        consilience.mechanisms.mwem,
        consilience.mechanisms.aim,
    ):
        monkeypatch.setattr(module, "marginals", halved)
    faulty = calibrated(name, neighbours)
    assert not audit(name, neighbours, faulty, honest.cost, Last(seed=1)).passed


@pytest.mark.parametrize("name, neighbours", SUBTLE)
def test_one_round_too_many_is_found_out(name, neighbours, monkeypatch):
    """The last round, the largest, is not counted. The meter would refuse what follows, so it only counts."""
    ready = calibrated(name, neighbours)
    honest, costs = type(ready).asks, []

    def count(self, cost):
        costs.append(cost)
        self.spent += cost

    def forgetful(self, run):
        yield from honest(self, run)
        assert costs[-1].rho == max(cost.rho for cost in costs)
        run.begun -= 1
        run._meter.spent = Cost.sum(run.spent.neighbours, costs[:-1])
        yield from honest(self, run)

    def sampler(rows, runs):
        costs.clear()
        table = strata(rows, runs, neighbours)
        release = ready.measure(table, noise=Last(seed=1 + runs))
        assert costs[-1].rho == costs[-2 if name == "aim" else 0].rho, "one round twice"
        return ratio(release, pair)

    monkeypatch.setattr(Meter, "charge", count)
    monkeypatch.setattr(type(ready), "asks", forgetful)
    pair = PAIR[neighbours]
    assert not run_audit(sampler, pair, ready.cost, runs=RUNS, confidence=0.99).passed


# -- choosing --------------------------------------------------------------------------------------

SMALL = Domain({"a": 2, "b": 2})
FIRST = np.array([(0, 0)] * 12 + [(0, 1)] * 4 + [(1, 1)] * 4)
SECOND = np.array([(0, 0)] * 12 + [(1, 0)] + [(0, 1)] * 3 + [(1, 1)] * 4)
CHOOSING = MWEM(Workload(SMALL, [("a",), ("b",)]), 1, select_share=0.9)
DRAWS = 8000


class Spy(SeededNoise):
    """Remembers what it was asked to choose by."""

    def select(self, scores, sensitivity, epsilon):
        self.asked = (scores, sensitivity, epsilon)
        return super().select(scores, sensitivity, epsilon)


def choosing():
    """P(b) on two tables of which one moves a towards uniform and b away from it: scores 12 and 4, then 10 and 6."""
    ready = CHOOSING.calibrate(Budget(epsilon=2, neighbours="replace-one"))
    draw = SeededNoise(seed=5)

    def sampler(rows, runs):
        spy = Spy(seed=0)
        next(ready.start(Dataset(rows, SMALL), noise=spy))
        return [draw.select(*spy.asked) for _ in range(runs)]

    return run_audit(sampler, (FIRST, SECOND), ready.cost, runs=DRAWS, confidence=0.99)


def test_half_the_score_sensitivity_is_found_out(monkeypatch):
    found = choosing()
    assert found.passed, found
    assert found.epsilon_low() > 1.2, "the pair shows most of what there is to see"
    monkeypatch.setattr(
        consilience.mechanisms.rounds,
        "weighted_l1_score",
        lambda neighbours, weights: weighted_l1_score(neighbours, weights) / 2,
    )
    assert not choosing().passed
