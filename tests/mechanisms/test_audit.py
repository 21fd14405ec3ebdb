"""Each mechanism keeps its promise on neighbouring tables, and each planted fault is found out.

Thousands of runs in one call: the tables of a run are those of one stratum of the attribute "run". One
person changes as many cells of ("run", "a") as of ("a",), and noise is independent from cell to cell, so
that a call on all strata is that many independent calls on one. A second, slower audit makes one call per run.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import consilience.mechanisms.fixed
import consilience.privacy.calibration
from consilience.domain import Domain, Workload
from consilience.mechanisms import Gaussian, Laplace
from consilience.privacy import (
    Budget,
    Neighbours,
    Scale,
    SecureNoise,
    Sensitivity,
    Sigma,
    marginals,
    repeated,
    run_audit,
)
from consilience.records import Dataset

pytestmark = pytest.mark.slow

RUNS = 30_000
OTHER = (1, 1, 1)
TABLES = {
    "replace-one": ([(0, 0, 0), OTHER], [OTHER, OTHER]),
    "add-remove": ([(0, 0, 0), OTHER], [OTHER]),
    "replace a person": ([(0, 0, 0)] * 3 + [OTHER], [OTHER] * 3 + [OTHER]),
    "add a person": ([(0, 0, 0)] * 3 + [OTHER], [OTHER]),
}
"""The worst neighbours of each relation; all rows of a person lie in one cell."""
PERSON = {"unit": "person", "rows_per_unit": 3}
RELATIONS = {
    "replace-one": {"neighbours": "replace-one"},
    "add-remove": {"neighbours": "add-remove"},
    "replace a person": {"neighbours": "replace-one", **PERSON},
    "add a person": {"neighbours": "add-remove", **PERSON},
}
MECHANISMS = {
    "gaussian": (Gaussian, {"epsilon": 0.5, "delta": 1e-2, "accounting": "gaussian"}),
    "laplace": (Laplace, {"epsilon": 1.0}),
}
ALL = [(name, neighbours) for name in MECHANISMS for neighbours in TABLES]


class Narrow(SecureNoise):
    """Planted: noise of 0.7 times the width asked for (or another share of it)."""

    share = 0.7

    def discrete_gaussian(self, counts, sigma, progress=None):
        return super().discrete_gaussian(counts, Sigma(self.share * sigma.value), progress)

    def discrete_laplace(self, counts, scale, progress=None):
        return super().discrete_laplace(counts, Scale(self.share * scale.value), progress)


def halved(neighbours, count: int = 1) -> Sensitivity:
    """Planted: half of the true distance between neighbours."""
    true = marginals(neighbours, count)
    return replace(true, l1=true.l1 / 2, l2_squared=true.l2_squared / 4)


def domain(runs: int) -> Domain:
    return Domain({"run": runs, "a": 2, "b": 2, "c": 2})


def strata(rows, runs: int, relation: str) -> Dataset:
    """The same few people in each of so many strata."""
    codes = np.repeat(np.arange(runs), len(rows))
    columns = np.column_stack([codes, np.tile(rows, (runs, 1))])
    whose = ("person", 3) if "person" in relation else None
    return Dataset(columns, domain(runs), unit_rows=whose)


def workload(runs: int, tables: str = "ab") -> Workload:
    return Workload(domain(runs), [("run", t) for t in tables])


def calibrated(name: str, neighbours: str, runs: int, tables: str = "ab"):
    build, amounts = MECHANISMS[name]
    return build(workload(runs, tables)).calibrate(Budget(**amounts, **RELATIONS[neighbours]))


def ratio(ready, release, pair):
    """Per stratum, the log of how much more likely the first table made these measurements."""
    first, second = (np.array(rows) for rows in pair)
    out = 0.0
    for column, m in zip(range(3), release.measurements, strict=False):
        x, y = (np.bincount(rows[:, column], minlength=2) for rows in (first, second))
        if isinstance(ready.mechanism, Gaussian):
            out = out + (m.values * (x - y)).sum(axis=1)
        else:
            out = out + (np.abs(m.values - y) - np.abs(m.values - x)).sum(axis=1)
    return out


def audit(name, neighbours, ready, *, noise=None, confidence, tables="ab", runs=RUNS):
    """The faulty (or honest) `ready` against what the honest mechanism promises."""
    pair = TABLES[neighbours]
    source = noise or SecureNoise()

    def sampler(rows, strata_count):
        release = ready.measure(strata(rows, strata_count, neighbours), noise=source)
        return ratio(ready, release, pair)

    honest = calibrated(name, neighbours, runs // 2, tables)
    return run_audit(sampler, pair, honest.cost, runs=runs, confidence=confidence)


def found_out(*args, **options) -> bool:
    """Whether one of two audits fails: one misses a fault in at most one of a thousand tries."""
    return any(not audit(*args, confidence=0.99, **options).passed for _ in range(2))


@pytest.mark.parametrize("name, neighbours", ALL)
def test_the_real_thing_passes(name, neighbours):
    ready = calibrated(name, neighbours, RUNS // 2)
    found = audit(name, neighbours, ready, confidence=1 - 1e-6)
    assert found.passed, found
    assert found.epsilon_low(float(ready.budget.delta or 0)) <= ready.budget.epsilon.value


@pytest.mark.parametrize("name, neighbours", ALL)
def test_too_little_noise_is_found_out(name, neighbours):
    ready = calibrated(name, neighbours, RUNS // 2)
    assert found_out(name, neighbours, ready, noise=Narrow())


@pytest.mark.parametrize("name, neighbours", ALL)
def test_half_the_sensitivity_is_found_out(name, neighbours, monkeypatch):
    for module in (consilience.privacy.calibration, consilience.mechanisms.fixed):
        monkeypatch.setattr(module, "marginals", halved)
    ready = calibrated(name, neighbours, RUNS // 2)
    monkeypatch.undo()
    assert found_out(name, neighbours, ready)


@pytest.mark.parametrize("name, neighbours", [one for one in ALL if "person" in one[1]])
def test_the_noise_of_one_row_is_found_out(name, neighbours, monkeypatch):
    """Planted: a person's other rows are forgotten."""

    def of_a_row(relation, count: int = 1) -> Sensitivity:
        true, one = marginals(relation, count), marginals(Neighbours(relation.value), count)
        return replace(true, l1=one.l1, l2_squared=one.l2_squared)

    for module in (consilience.privacy.calibration, consilience.mechanisms.fixed):
        monkeypatch.setattr(module, "marginals", of_a_row)
    ready = calibrated(name, neighbours, RUNS // 2)
    monkeypatch.undo()
    assert found_out(name, neighbours, ready)


@pytest.mark.parametrize("name, neighbours", ALL)
def test_one_table_too_many_is_found_out(name, neighbours):
    """Two tables with the noise that was calibrated for one."""
    runs = 2 * RUNS
    ready = calibrated(name, neighbours, runs // 2, "a")
    (width,) = ready.widths.values()
    more = workload(runs // 2, "ab")
    build = MECHANISMS[name][0]
    faulty = replace(ready, mechanism=build(more), widths=dict.fromkeys(more, width))
    assert found_out(name, neighbours, faulty, tables="a", runs=runs)


class Narrower(Narrow):
    share = 0.25


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_call_by_call(name):
    """One call of the mechanism per run: fewer runs, so a coarser fault."""
    ready, pair = calibrated(name, "replace-one", 1), TABLES["replace-one"]
    tables = {id(rows): strata(rows, 1, "replace-one") for rows in pair}

    def passes(noise, confidence):
        def once(rows):
            return float(ratio(ready, ready.measure(tables[id(rows)], noise=noise), pair)[0])

        sampler = repeated(once)
        return run_audit(sampler, pair, ready.cost, runs=1000, confidence=confidence).passed

    assert passes(SecureNoise(workers=1), 1 - 1e-6)
    assert not passes(Narrower(workers=1), 0.99)
