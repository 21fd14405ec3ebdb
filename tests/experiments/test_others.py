"""Others' mechanisms beside ours: the judge against plain counting, and rows that say how a run ended."""

import argparse
import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import others
import pytest

import consilience as cs

SIZES = [3, 4, 2, 5]


def people(seed: int, rows: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, n, rows) for n in SIZES], axis=1)


def judged(real: np.ndarray, made: np.ndarray, ways: int) -> float:
    away = []
    for clique in itertools.combinations(range(len(SIZES)), ways):
        one, two = (Counter(map(tuple, x[:, clique].tolist())) for x in (real, made))
        away.append(sum(abs(one[k] / len(real) - two[k] / len(made)) for k in one | two) / 2)
    return float(np.mean(away))


@pytest.mark.parametrize("ways", [2, 3])
def test_distances_are_those_of_plain_counting(ways: int) -> None:
    real, made = people(0, 300), people(1, 170)
    expected = judged(real, made, ways)
    assert others.distances(real, SIZES, made, ways) == pytest.approx(expected, abs=1e-12)
    assert others.distances(real, SIZES, real, ways) == 0.0
    tables = []
    for clique in itertools.combinations(range(len(SIZES)), ways):
        edges = [np.arange(SIZES[i] + 1) - 0.5 for i in clique]
        tables.append(np.histogramdd(made[:, clique], edges)[0].reshape(-1))
    found = others.distances(real, SIZES, real, ways, np.concatenate(tables))
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "cap", "status"),
    [
        ("ours-gaussian", 600, "done"),
        ("ours-nothing", 600, "failed: KeyError"),
        ("ours-gaussian", 1, "no end"),
    ],
)
def test_a_row_says_how_a_run_ended(run: str, cap: int, status: str) -> None:
    data = cs.Dataset(people(0, 500), cs.Domain({f"x{i}": n for i, n in enumerate(SIZES)}))
    given = argparse.Namespace(path=[], folder=Path(), cap=cap)
    row = others.run(data, run, 2, 5.0, 0, given)
    assert row["status"] == status
    assert row["cpu_seconds"] > 0
    assert row["peak_mb"] > 10
    if status == "done":
        assert 0 < row["pairs"] < row["triples"] < 0.5
        assert 0 < row["pairs_model"] < 0.2
    else:
        assert "pairs" not in row
