"""Under OpenDP's extras.mbi, unpatched: Fixed, MST and AIM. It pins mbi 1.1, so that this runs where that is installed."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import consilience as cs
from consilience.adapters import opendp as adapter

pytestmark = pytest.mark.slow

SIZES = {"a": 3, "b": 4, "c": 2, "d": 5}
ROWS = 3000


@pytest.fixture(scope="module")
def dp() -> Any:
    jax = pytest.importorskip("jax", reason="needs jax")
    jax.config.update("jax_enable_x64", True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mbi = pytest.importorskip("mbi", reason="needs mbi")
        if hasattr(mbi, "Constraint"):
            pytest.skip("needs mbi 1.1, which OpenDP 0.16 pins (make adapters)")
        import opendp.prelude as found
    found.enable_features("contrib", "honest-but-curious")
    return found


def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    first = rng.integers(0, 6, ROWS)
    return {
        a: (first * (i + 1) + rng.integers(0, 3, ROWS)) % n
        for i, (a, n) in enumerate(SIZES.items())
    }


def released(dp: Any, algorithm: Any) -> Any:
    import polars as pl

    columns = {n: pl.Series(v).replace(SIZES[n] - 1, None) for n, v in rows().items()}
    values = dp.option_domain(dp.atom_domain(T="i64"))
    mechanism, _, _ = dp.mbi.make_contingency_table(
        dp.lazyframe_domain([dp.series_domain(n, values) for n in SIZES]),
        dp.frame_distance(dp.symmetric_distance()),
        dp.zero_concentrated_divergence(),
        d_in=[dp.polars.Bound(by=[], per_group=1)],
        d_out=0.5,
        keys={n: [*range(s - 1), None] for n, s in SIZES.items()},
        algorithm=algorithm,
    )
    return mechanism(pl.DataFrame(columns).lazy())


@pytest.mark.parametrize("name", ["Fixed", "MST", "AIM"])
def test_algorithms(dp: Any, name: str) -> None:
    options: dict[str, Any] = {"estimator": adapter.estimator()}
    if name == "Fixed":
        options["queries"] = [dp.mbi.Count(by=("a", "b")), dp.mbi.Count(by=("c", "d"))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = released(dp, getattr(dp.mbi, name)(**options))
        drawn = table.synthesize(200)
    data = rows()
    exact = np.histogram2d(data["a"], data["b"], bins=[np.arange(4), np.arange(5)])[0]
    found = np.asarray(table.project(["a", "b"]))
    assert np.abs(exact - found).sum() < 300
    assert drawn.shape == (200, 4)
    errors = adapter.std(table, ("a", "b"))
    low, high = adapter.interval(table, ("a", "b"), 0.99)
    assert errors.shape == exact.shape
    assert np.all(errors > 0)
    if name == "Fixed":  # the others need not measure this pair
        assert np.mean((low - 1 <= exact) & (exact <= high + 1)) > 0.6
    assert isinstance(adapter.model_of(table), cs.Model)
