"""Single attributes pulled towards the codes beside them: unbiased risk, closer where codes have an order, harmless elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import consilience as cs
from consilience.measurements import SquaredLoss
from consilience.measurements.evidence import Evidence
from consilience.solvers import beside as module
from consilience.solvers.beside import FREEDOMS, beside, pulled

PEOPLE = 20_000
AGES = np.exp(-0.5 * np.square((np.arange(80) - 38) / 17.0))
AGES *= PEOPLE / AGES.sum()
SPIKES = np.full(80, 5.0)
SPIKES[[0, 20, 39, 40, 63]] = 4_000


def noisy(counts: np.ndarray, stddev: float, seed: int) -> np.ndarray:
    return (counts + np.random.default_rng(seed).normal(scale=stddev, size=len(counts))) / stddev


def far(table: np.ndarray, counts: np.ndarray, stddev: float) -> float:
    """L1, in shares of the people, once it is made non-negative and scaled."""
    table = np.maximum(table * stddev, 0.0)
    return float(np.abs(table * counts.sum() / table.sum() - counts).sum() / counts.sum())


@pytest.mark.parametrize(
    ("counts", "least", "most"),
    [(AGES, 0.0, 0.6), (SPIKES, 0.0, 1.001), (np.random.default_rng(3).permutation(AGES), 0.9, 1.03)],
    ids=["ages", "spikes", "codes without an order"],
)  # fmt: skip
def test_counts_in_order_are_closer_and_others_are_left_alone(
    counts: np.ndarray, least: float, most: float
) -> None:
    stddev, found = 60.0, []
    for seed in range(30):
        y = noisy(counts, stddev, seed)
        table = module._pulled_together(y).table
        found.append((far(table, counts, stddev), far(y, counts, stddev)))
    ours, plain = np.mean(found, axis=0)
    assert least <= ours / plain <= most


def test_the_estimated_risk_is_unbiased() -> None:
    """Stein's estimate against the squared distance from the truth, both averaged over draws, at fixed width and freedom."""
    counts, stddev, g = AGES, 60.0, FREEDOMS[7]
    estimated, achieved = [], []
    for seed in range(400):
        y = noisy(counts, stddev, seed)
        mean = np.maximum(module._mean_beside(y, 3.0), module.LEAST)
        v = pulled(y, mean, g)
        bend = g * v / (1 + g * v)
        estimated.append(np.square(v - y).sum() - len(y) + 2 * bend.sum())
        achieved.append(np.square(v - counts / stddev).sum())
    scatter = np.std(np.subtract(estimated, achieved)) / 20
    assert abs(np.mean(estimated) - np.mean(achieved)) < 4 * scatter


def test_a_mean_leaves_out_its_own_count() -> None:
    y = np.arange(30.0)
    moved = y.copy()
    moved[12] += 100
    change = module._mean_beside(moved, 1.5) - module._mean_beside(y, 1.5)
    assert change[12] == 0
    assert change[11] > 0
    assert change[0] == 0


def test_the_risk_of_clipping_is_that_of_the_nearest_counts() -> None:
    """Against a projection by bisection."""
    y = np.random.default_rng(0).normal(1.0, 2.0, 40)
    low, high = y.min() - y.sum(), y.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(y - middle, 0).sum() > y.sum() else (low, middle)
    v = np.maximum(y - high, 0)
    expected = np.square(v - y).sum() - 40 + 2 * np.count_nonzero(v)
    assert module._risk_of_clipping(y) == pytest.approx(expected)


def test_larger_tables_agree_with_the_pulled_ones() -> None:
    domain = cs.Domain({"age": 80, "sex": 2})
    truth = np.outer(AGES, [0.4, 0.6])
    rng = np.random.default_rng(0)
    measured = [
        cs.Measurement(("age", "sex"), truth + rng.normal(scale=60, size=truth.shape), stddev=60.0),
        cs.Measurement(("sex",), truth.sum(axis=0) + rng.normal(scale=5, size=2), stddev=5.0),
    ]
    before = Evidence.of(SquaredLoss(domain, measured, None))
    after = beside(before)
    at = after.tables.layout.index
    pair, age, sex = (after.tables.table(at[c]) for c in (("age", "sex"), ("age",), ("sex",)))
    np.testing.assert_allclose(pair.reshape(80, 2).sum(axis=1), age, rtol=1e-9)
    np.testing.assert_allclose(pair.reshape(80, 2).sum(axis=0), sex, rtol=1e-9)
    assert np.abs(age - AGES).sum() < 0.7 * np.abs(before.tables.table(at[("age",)]) - AGES).sum()
    own = 1 + at[("age",)]
    assert after.precision[own] > 2 * before.precision[own]
    assert after.exact[own] - before.exact[own] == pytest.approx(
        after.precision[own] - before.precision[own]
    )
    assert after.precision[1 + at[("sex",)]] == before.precision[1 + at[("sex",)]]


def test_the_fit_is_closer_where_codes_have_an_order() -> None:
    domain = cs.Domain({"age": 80, "sex": 2})
    distances = []
    for order in (np.arange(80), np.random.default_rng(1).permutation(80)):
        truth, rng = np.outer(AGES[order], [0.4, 0.6]), np.random.default_rng(5)
        measured = [
            cs.Measurement(("age", "sex"), truth + rng.normal(scale=80, size=(80, 2)), stddev=80.0)
        ]
        model = cs.reconstruct(domain, measured, fit=cs.LatentClasses(classes=8))
        distances.append(np.abs(model.marginal(("age",)) - truth.sum(axis=1)).sum())
    assert distances[0] < 0.7 * distances[1]
