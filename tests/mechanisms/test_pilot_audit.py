"""Pilot keeps its promise on neighbouring tables, stage by stage, and planted faults are found out.

One call per run: residuals hold all rows together, so that a table cannot be many runs side by side. What is made of the pilot's
noisy values (latent classes, water-filling) is replaced by even tables and equal precisions: it sees no data, so it cannot leak,
and takes most of the time. Seeds make the verdicts repeat.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

import consilience.mechanisms.pilot
from consilience.domain import Domain, all_marginals
from consilience.fits import LatentClasses
from consilience.fits.latent_classes import Outlook
from consilience.mechanisms import Pilot
from consilience.mechanisms.mechanism import Tape
from consilience.mechanisms.pilot import _Stages
from consilience.mechanisms.rounds import Meter
from consilience.privacy import (
    Budget,
    Cost,
    Neighbours,
    Rho,
    SeededNoise,
    Sigma,
    run_audit,
)
from consilience.records import Dataset

pytestmark = pytest.mark.slow

RUNS = 600
DOMAIN = Domain({"a": 2, "b": 2, "c": 3})
PAIRS = all_marginals(DOMAIN, 2)
OTHERS = [(0, 0, 0), (1, 1, 1), (0, 1, 2), (1, 0, 0)] * 30
NEIGHBOURS = {
    "replace-one": ([(0, 0, 0), *OTHERS], [(1, 1, 0), *OTHERS]),
    "add-remove": ([(0, 0, 0), *OTHERS], OTHERS),
    "replace a person": ([(0, 0, 0)] * 3 + OTHERS, [(1, 1, 0)] * 3 + OTHERS),
    "add a person": ([(0, 0, 0)] * 3 + OTHERS, OTHERS),
}
"""Neighbours that are as far apart as can be (replacing takes .93 of rho or more); a person's three rows lie in one cell."""


class Narrow(SeededNoise):
    """Planted: noise of a quarter of the width asked for."""

    def discrete_gaussian(self, counts, sigma, progress=None):
        return super().discrete_gaussian(counts, Sigma(0.25 * sigma.value), progress)


@pytest.fixture(autouse=True)
def _no_reconstruction(monkeypatch):
    def look(self, domain: Domain, measurements, total=None, progress=None) -> Outlook:
        even = {c: np.full(domain.shape_of(c), 1 / domain.size(c)) for c in PAIRS}
        return Outlook(float(len(OTHERS)), even, dict.fromkeys(PAIRS, 1.0))

    def filled(kinds, variances, known, part, price, weight, rest: float) -> np.ndarray:
        return np.full(len(price), rest / price.sum())

    monkeypatch.setattr(LatentClasses, "look", look)
    monkeypatch.setattr(consilience.mechanisms.pilot, "_water_filling", filled)


def table(rows, relation: str) -> Dataset:
    whose = ("person", 3) if "person" in relation else None
    return Dataset(np.array(rows), DOMAIN, unit_rows=whose)


def calibrated(relation: str):
    person = {"unit": "person", "rows_per_unit": 3} if "person" in relation else {}
    neighbours = "replace-one" if "replace" in relation else "add-remove"
    return Pilot(PAIRS).calibrate(Budget(rho=1.0, neighbours=neighbours, **person))


def audit(ready, relation: str, noise: type[SeededNoise] = SeededNoise, confidence: float = 0.99):
    """Of the log of how much more likely the first table made what was measured than the second."""
    pair = NEIGHBOURS[relation]
    data = [table(rows, relation) for rows in pair]
    seeds: Iterator[int] = itertools.count()

    def once(which: Dataset) -> float:
        found = 0.0
        for m in ready.measure(which, noise=noise(seed=next(seeds))).measurements:
            first, second = (
                np.ravel(m.query.apply(d.marginal(m.attributes).astype(float).reshape(-1)))
                if m.query is not None
                else d.marginal(m.attributes).astype(float).reshape(-1)
                for d in data
            )
            y = np.ravel(m.values)
            found += (np.square(y - second) - np.square(y - first)).sum() / (2 * m.stddev**2)
        return float(found)

    def sampler(rows, runs: int) -> list[float]:
        return [once(data[0] if rows is pair[0] else data[1]) for _ in range(runs)]

    return run_audit(sampler, pair, ready.cost, runs=RUNS, confidence=confidence)


def test_the_run_that_is_audited_has_every_stage() -> None:
    tape = Tape()
    calibrated("add-remove").measure(
        table(OTHERS, "add-remove"), noise=SeededNoise(seed=0), tape=tape
    )
    assert any("shares" in piece for piece in tape.pieces)


@pytest.mark.parametrize("relation", NEIGHBOURS)
def test_the_real_thing_passes(relation: str) -> None:
    found = audit(calibrated(relation), relation, confidence=1 - 1e-6)
    assert found.passed, found


@pytest.mark.parametrize("relation", NEIGHBOURS)
def test_too_little_noise_is_found_out(relation: str) -> None:
    assert not audit(calibrated(relation), relation, Narrow).passed


@pytest.mark.parametrize("relation", ["replace-one", "add a person"])
def test_stages_that_are_not_counted_are_found_out(relation: str, monkeypatch) -> None:
    """Planted: a meter that counts an eighth, so that later stages find most of rho left, and the last is drawn again."""
    ready, honest = calibrated(relation), _Stages.planned

    def again(self, plan):
        return honest(self, plan) * 16

    def charge(self, cost):
        self.spent += Cost.adaptive(cost.neighbours, Rho(cost.rho.value / 8))

    monkeypatch.setattr(Meter, "charge", charge)
    monkeypatch.setattr(_Stages, "planned", again)
    assert not audit(ready, relation).passed


@pytest.mark.parametrize("relation", ["replace a person", "add a person"])
def test_the_noise_of_one_row_is_found_out(relation: str, monkeypatch) -> None:
    """Planted: a person is taken for one row that comes or goes where residuals are priced together."""
    ready = calibrated(relation)
    honest = consilience.mechanisms.pilot.residual_parts

    def of_a_row(domain, cliques, variances, rho, _):
        return honest(domain, cliques, variances, rho, Neighbours("add-remove"))

    monkeypatch.setattr(consilience.mechanisms.pilot, "residual_parts", of_a_row)
    monkeypatch.setattr(Meter, "charge", _any_relation)
    assert not audit(ready, relation).passed


def _any_relation(self: Meter, cost: Cost) -> None:
    self.spent += Cost.adaptive(self.spent.neighbours, cost.rho)
