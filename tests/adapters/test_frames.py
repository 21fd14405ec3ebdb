"""The exchange format: what goes out comes back, through Arrow, pandas, Polars and Parquet; and dpsynth's frames."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import consilience as cs
from consilience.adapters import dpsynth, frames
from consilience.errors import AdapterError, DomainError

D = cs.Domain({"a": 3, "b": 2, "c": 4}, labels={"a": ("x", "y", "z"), "b": ("no", "yes")})


def some(seed: int = 0) -> list[cs.Measurement]:
    rng = np.random.default_rng(seed)
    return [
        cs.Measurement(("b", "a"), rng.normal(20, 5, (2, 3)), stddev=5.0),
        cs.Measurement(("c",), rng.normal(30, 5, 4), stddev=[1.0, 2.0, 3.0, 4.0]),
        cs.Measurement(("a", "c"), rng.normal(9, 2, 2), stddev=2.0, query=np.eye(12)[[3, 7]]),
        cs.Measurement(("c",), rng.normal(30, 5, 4), stddev=7.0, noise="laplace"),
        cs.Measurement((), [121.5], stddev=3.0),
    ]


THROUGH = {
    "arrow": lambda t, path: t,
    "pandas": lambda t, path: t.to_pandas(),
    "polars": lambda t, path: pl.from_arrow(t),
    "parquet": lambda t, path: (frames.save(path, t), frames.load(path))[1],
}


def same(one: list[cs.Measurement], other: list[cs.Measurement]) -> None:
    """As the fit sees them: residuals of random tables, in units of the noise."""
    x = np.random.default_rng(1).normal(size=D.size())
    assert len(one) == len(other)
    for m, n in zip(one, other, strict=True):
        p, q = m.bind(D), n.bind(D)
        assert (p.clique, p.noise) == (q.clique, q.noise)
        table = x[: p.query.cells]
        for b in (p, q):
            assert len(b.values) == b.query.rows
        left, right = (np.sort((b.query.apply(table) - b.values) / b.stddev) for b in (p, q))
        np.testing.assert_allclose(left, right, rtol=1e-12)


@pytest.mark.parametrize("way", THROUGH)
def test_measurements_come_back(way: str, tmp_path) -> None:
    made = some()
    made[2] = frames.measured_cells(
        D, ("a", "c"), [[0, 3], [1, 3]], made[2].values, 2.0, "gaussian"
    )
    table = frames.measurements_table(D, made)
    assert table.column_names == list(frames.COLUMNS)
    assert table.num_rows == sum(m.values.size for m in made)
    found = THROUGH[way](table, tmp_path / "m.parquet")
    domain, back = found if way == "parquet" else frames.read_measurements(found, D)
    assert domain == D
    assert domain.labels == D.labels
    same(made, back)
    fits = [cs.reconstruct(D, m, fit=cs.LeastSquares("local")) for m in (made, back)]
    np.testing.assert_allclose(
        fits[0].marginal(("a", "c")), fits[1].marginal(("a", "c")), rtol=1e-9
    )


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(12)), st.integers(1, 12), st.integers(0, 2**31))
def test_rows_in_any_order_and_cells_that_are_missing(order, count, seed) -> None:
    rng = np.random.default_rng(seed)
    values, widths = rng.normal(9, 3, 12), rng.uniform(1, 5, 12)
    codes = np.stack(np.unravel_index(np.arange(12), (3, 4)), axis=1)
    kept = list(order[:count])
    m = frames.measured_cells(D, ("a", "c"), codes[kept], values[kept], widths[kept], "gaussian")
    bound, x = m.bind(D), rng.normal(size=12)
    away = np.sort((bound.query.apply(x) - bound.values) / bound.stddev)
    np.testing.assert_allclose(away, np.sort(((x - values) / widths)[kept]), rtol=1e-9)
    assert (m.query is None) == (count == 12)


def test_tables_of_a_model() -> None:
    model = cs.reconstruct(D, some()[:2])
    table = frames.model_table(model, [("a", "b"), ("a", "c")]).to_pandas()
    first = table[table["measurement"] == 0]
    np.testing.assert_allclose(first["value"], model.marginal(("a", "b")).reshape(-1))
    np.testing.assert_allclose(first["stddev"], model.stderr(("a", "b")).reshape(-1))
    assert set(table["noise"]) == {"measured", "inferred"}


def test_what_is_refused() -> None:
    through = cs.Measurement(("a",), [5.0], stddev=1.0, query=[[1.0, 1.0, 0.0]])
    with pytest.raises(AdapterError, match="holds measurements of cells"):
        frames.measurements_table(D, [through])
    table = frames.measurements_table(D, some()[:1])
    with pytest.raises(AdapterError, match="got none named 'stddev'"):
        frames.read_measurements(table.drop_columns(["stddev"]))
    with pytest.raises(AdapterError, match="give domain="):
        frames.read_measurements(table.replace_schema_metadata(None))
    with pytest.raises(AdapterError, match="cannot be read"):
        frames.read_measurements(table.replace_schema_metadata({frames.KEY: b"[1"}))
    with pytest.raises(DomainError, match="must have codes below"):
        frames.read_measurements(table, cs.Domain({"a": 2, "b": 2}))
    mixed = table.set_column(5, "noise", pa.array(["laplace"] + ["gaussian"] * 5))
    with pytest.raises(AdapterError, match="must have one noise, got 2 in measurement 0"):
        frames.read_measurements(mixed)


# -- dpsynth ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", [pd, pl])
def test_frames_of_dpsynth(library) -> None:
    given = [
        library.DataFrame({"sex": ["f", "m"], "count": [40.0, 62.0]}),
        library.DataFrame({"sex": ["f", "m", "m"], "age": [1, 1, 2], "count": [39.0, 30.0, 31.0]}),
        library.DataFrame({"count": [101.0]}),
    ]
    domain, made = dpsynth.measurements(given, stddev=[2.0, 3.0, 4.0])
    assert dict(domain.labels) == {"sex": ("f", "m"), "age": ("1", "2")}
    assert [m.stddev for m in made] == [2.0, 3.0, 4.0]
    assert made[1].bind(domain).query.rows == 3  # (f, 2) was not measured
    model = cs.reconstruct(domain, made)
    back = dpsynth.frames(model, [("sex", "age"), ()])
    assert list(back[0].columns) == ["sex", "age", "count"]
    assert list(back[1].columns) == ["count"]
    again, made = dpsynth.measurements(back, stddev=1.0, domain=domain)
    whole = cs.reconstruct(again, made)
    np.testing.assert_allclose(whole.marginal("sex"), model.marginal("sex"), atol=1e-3)


def test_what_dpsynths_frames_must_be() -> None:
    with pytest.raises(AdapterError, match="must be named 'count', got 'sex'"):
        dpsynth.measurements([pd.DataFrame({"count": [1.0], "sex": ["f"]})], stddev=1.0)
    one = [pd.DataFrame({"sex": ["f"], "count": [1.0]})]
    with pytest.raises(AdapterError, match="must have labels for 'sex'"):
        dpsynth.measurements(one, stddev=1.0, domain=cs.Domain({"sex": 2}))
    known = cs.Domain({"sex": 2}, labels={"sex": ("w", "m")})
    with pytest.raises(AdapterError, match="must be a label of the domain, got 'f'"):
        dpsynth.measurements(one, stddev=1.0, domain=known)
