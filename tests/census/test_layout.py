"""The bureau's numbers, checked against its own sums and published variances."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from consilience.census import layout
from consilience.census.layout import LEVELS, QUESTIONS


def test_shares_sum_to_one() -> None:
    assert sum(layout.LEVEL_SHARES.values()) == 1
    for l in range(len(LEVELS)):
        assert sum((q.shares[l] for q in QUESTIONS), Fraction(0)) == 1


@pytest.mark.parametrize(
    ("level", "query", "expected"),
    [("State", "total", 1.209), ("County", "total", 4.702), ("Tract", "total", 6.110), ("Block_Group", "total", 3.069),
     ("Block", "total", 7963.3), ("Tract", "hispanic * cenrace", 4.953), ("Block", "hispanic * cenrace", 1896.0),
     ("State", "detailed", 19.84), ("Block_Group", "detailed", 4.063), ("Block", "detailed", 10.09),
     ("County", "hhinstlevels", 1469.7)],
)  # fmt: skip
def test_variances_are_those_of_the_production_run(level: str, query: str, expected: float) -> None:
    question = next(q for q in QUESTIONS if q.name == query)
    found = layout.sigma_squared(layout.LEVEL_SHARES[level], question.shares[LEVELS.index(level)])
    assert float(found) == pytest.approx(expected, rel=4e-4)


def test_variance_of_a_merged_block_group() -> None:
    both = layout.LEVEL_SHARES["Block_Group"] + layout.LEVEL_SHARES["Block"]
    total = layout.sigma_squared(both, QUESTIONS[0].shares[LEVELS.index("Block_Group")])
    assert float(total) == pytest.approx(2.713, rel=4e-4)


def test_shapes_and_answers() -> None:
    assert sum(int(np.prod(q.shape(layout.SIZES))) for q in QUESTIONS) == 2603
    tables = np.random.default_rng(0).integers(0, 9, (3, 8, 2, 2, 7))
    inst = next(q for q in QUESTIONS if q.grouped).answers(tables)
    kinds = tables.sum(axis=(2, 3, 4))
    assert np.array_equal(inst, np.stack([kinds[:, 0], kinds[:, 1:5].sum(1), kinds[:, 5:].sum(1)], 1))  # fmt: skip
    race = next(q for q in QUESTIONS if q.name == "votingage * cenrace").answers(tables)
    assert np.array_equal(race.reshape(3, 2, 7), tables.sum(axis=(1, 3)))


def test_labels_of_races() -> None:
    found = layout.race_labels(63)
    assert len(set(found)) == 63
    assert [i for i in range(1, 63) if found[i].count("+") != found[i - 1].count("+")] == [6, 21, 41, 56, 62]  # fmt: skip


def test_the_discrete_variance_is_below_the_parameter() -> None:
    assert layout.discrete_variance(0.2) < 0.2
    assert layout.discrete_variance(10.0) == pytest.approx(10.0, abs=1e-9)
