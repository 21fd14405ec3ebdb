"""Mixtures: neighbouring codes that are alike, and whether classes show more than chance."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import consilience as cs
from consilience.measurements import SquaredLoss
from consilience.measurements.evidence import Evidence
from consilience.solvers.beside import beside
from consilience.solvers.latent import fit_prior
from consilience.solvers.mixture import PairEvidence, fit_mixture

JOBS = [f"job{k}" for k in range(6)]
DOMAIN = cs.Domain({"age": 60, **dict.fromkeys(JOBS, 4)})


def tables(link: float, age: np.ndarray) -> dict[tuple[str, ...], np.ndarray]:
    """Marginals of 20,000 people whose jobs depend on age, smoothly, by `link`, and on nothing else."""
    at = np.linspace(0, 1, 60)
    ages = (1 + at) ** 2 / ((1 + at) ** 2).sum()
    given = {}
    for k, job in enumerate(JOBS):
        odds = np.exp(link * np.stack([np.cos(np.pi * m * at + k) for m in range(4)], axis=1))
        given[job] = (odds / odds.sum(axis=1, keepdims=True))[age]
    ages = ages[age]
    found = {("age",): ages, **{(j,): ages @ p for j, p in given.items()}}
    found |= {("age", j): ages[:, None] * p for j, p in given.items()}
    found |= {(i, j): (given[i] * ages[:, None]).T @ given[j] for i, j in combinations(JOBS, 2)}
    return {c: 20_000 * t for c, t in found.items()}


def evidence(link: float, noise: float, seed: int, age: np.ndarray | None = None) -> Evidence:
    """All of them with so much noise."""
    rng = np.random.default_rng(seed)
    measured = []
    for clique, table in tables(link, np.arange(60) if age is None else age).items():
        width = noise
        noisy = table + rng.normal(scale=width, size=table.shape)
        measured.append(cs.Measurement(clique, noisy, stddev=width))
    return Evidence.of(SquaredLoss(DOMAIN, measured, 20_000.0))


def fitted(data: PairEvidence) -> tuple[np.ndarray, np.ndarray]:
    return fit_mixture(data, 0.3 * data.typical, classes=16, steps=150, seed=0)


def test_classes_depart_smoothly_where_codes_are_alike() -> None:
    plain, smooth = [], []
    pair = tables(2.0, np.arange(60))["age", "job0"] / 20_000
    for seed in range(3):
        found = evidence(2.0, 200.0, seed)
        for known, far in ((found, plain), (found.sharper({}, {}, {_place(found): 4.0}), smooth)):
            weights, u = fitted(PairEvidence.of(known))
            far.append(0.5 * np.abs((u[:60] * weights) @ u[60:64].T - pair).sum())
    assert np.mean(smooth) < 0.9 * np.mean(plain)


def test_a_peak_of_everybody_stays_where_codes_are_alike() -> None:
    found = evidence(0.0, 60.0, 0)
    peaked = found.tables.table(_place(found)).copy()
    peaked[30] += 3_000
    known = found.sharper(
        {_place(found): peaked * 20_000 / peaked.sum()},
        {_place(found): 100.0},
        {_place(found): 4.0},
    )
    weights, u = fitted(PairEvidence.of(known))
    assert float(u[30] @ weights) == pytest.approx(peaked[30] / peaked.sum(), rel=0.05)


def _place(found: Evidence) -> int:
    return found.tables.layout.index[("age",)]


def test_only_attributes_whose_counts_show_an_order_have_bells() -> None:
    shown = []
    for age in (None, np.random.default_rng(0).permutation(60)):
        found = [PairEvidence.of(beside(evidence(1.0, 40.0, seed, age))).bells for seed in range(8)]
        shown.append(sum([rows for rows, _ in bells] == [slice(0, 60)] for bells in found))
    assert shown[0] == 8
    assert shown[1] <= 2


def test_a_gain_and_its_scatter() -> None:
    """Against plain sums, and against what fresh noise in the pairs makes of the gain."""
    data = PairEvidence.of(evidence(1.0, 60.0, 0))
    one, other = (
        fit_mixture(data, pull * data.typical, classes=8, steps=40, seed=0) for pull in (12.0, 1.0)
    )
    gain, scatter = data.gain(one, other)

    def misfit(weights: np.ndarray, u: np.ndarray) -> float:
        centred = u - np.repeat(1 / data.sizes, data.sizes)[:, None]
        off = [(centred[b.own] * weights) @ centred[b.other].T - b.target for b in data.blocks]
        return sum(
            float((b.weight * x**2).sum()) / 2 for b, x in zip(data.blocks, off, strict=True)
        )

    assert gain == pytest.approx(misfit(*one) - misfit(*other), rel=1e-4)
    rng, gains = np.random.default_rng(0), []
    for _ in range(400):
        blocks = [
            replace(
                b,
                target=b.target
                + data.typical * rng.standard_normal(b.target.shape) / np.sqrt(b.weight),
            )
            for b in data.blocks
        ]
        gains.append(replace(data, blocks=tuple(blocks)).gain(one, other)[0])
    assert np.std(gains) == pytest.approx(scatter, rel=0.15)


@pytest.mark.parametrize(("link", "noise", "strongest"), [(0.0, 2_000.0, True), (1.0, 30.0, False)])
def test_a_weaker_pull_is_taken_where_it_gains_more_than_chance(
    link: float, noise: float, strongest: bool
) -> None:
    found = [fit_prior(evidence(link, noise, s), 16, s).pull for s in range(6)]
    assert all((pull == 15.0) if strongest else (pull < 12.0) for pull in found), found
