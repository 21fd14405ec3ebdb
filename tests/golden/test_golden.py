"""Every problem of golden.json gives today what it gave before the internals were rebuilt."""

from __future__ import annotations

import numpy as np
import pytest

from golden.problems import PROBLEMS, computed, read

CLOSE = 1e-9
"""Of the largest number of an array."""
FLAT = {
    "frustrated_global": 1e-6,
    "frustrated_factor_and_prior": 1e-7,
    "prox_pgm_absolute_junction_tree": 1e-7,
}
"""Instead of CLOSE: processors with other vector instructions add up in another order, and end elsewhere on a flat bottom."""
ROUNDING = 1e-12
"""Of arrays that are zero but for rounding."""
CERTIFIED = ("gap", "violation")
"""Differences of numbers near each other, as a share of one of them: compared as they are."""

KEPT = read()


def test_the_file_and_the_problems_are_the_same() -> None:
    assert set(KEPT) == set(PROBLEMS)
    assert len(KEPT) >= 45


@pytest.mark.parametrize("name", PROBLEMS)
def test_golden(name: str) -> None:
    kept, found = KEPT[name], computed(name)
    assert set(found) == set(kept)
    close = FLAT.get(name, CLOSE)
    apart = [
        f"{key}: {why}" for key in kept if (why := difference(key, kept[key], found[key], close))
    ]
    assert not apart, "\n".join(apart)


def difference(key: str, kept: object, found: object, close: float = CLOSE) -> str:
    """What is wrong with a value; empty where nothing is."""
    if isinstance(kept, str | int) or isinstance(found, str | int):
        return "" if kept == found and type(kept) is type(found) else f"{found!r}, was {kept!r}"
    before, now = np.asarray(kept, float), np.asarray(found, float)
    if before.shape != now.shape:
        return f"{now.size} numbers, were {before.size}"
    finite = np.isfinite(before)
    if not np.array_equal(before[~finite], now[~finite], equal_nan=True):
        return f"{now[~finite]}, was {before[~finite]}"
    if not finite.any():
        return ""
    allowed = close * float(np.abs(before[finite]).max()) + ROUNDING
    if key.endswith(CERTIFIED):
        allowed = max(allowed, close)
    far = np.abs(now[finite] - before[finite]).max()
    return "" if far <= allowed else f"apart by {far:.3g}, allowed {allowed:.3g}"


def test_a_difference_is_seen() -> None:
    assert difference("table", [1.0, 2.0], [1.0, 2.0 + 1e-8])
    assert not difference("table", [1.0, 2.0], [1.0, 2.0 + 1e-10])
    assert difference("table", [1.0, float("nan")], [1.0, 2.0])
    assert not difference("gap", 1e-7, 1e-7 + 1e-10)
    assert difference("status", "converged", "stalled")
    assert difference("iterations", 20, 21)
    assert difference("bound", 1.0, float("nan"))
