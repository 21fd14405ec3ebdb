"""Inferred tables: how far they may be from the truth is learnt from the last tables that were measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import consilience as cs
from consilience.model.assumed import NOTHING, Assumed, assumed_of

DOMAIN = cs.Domain(dict.fromkeys("abcdefgh", 4))
TREE = [("a", b) for b in "bcdefgh"]
REST = [("b", "c"), ("d", "e"), ("f", "g"), ("c", "h")]


def people(linked: float, seed: int = 0, rows: int = 20_000) -> cs.Dataset:
    """Columns that follow the first, and with a chance of `linked` the column before them instead: what a tree cannot say."""
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, 4, rows)]
    for _ in range(7):
        column = np.where(rng.random(rows) < 0.5, columns[0], rng.integers(0, 4, rows))
        columns.append(np.where(rng.random(rows) < linked, columns[-1], column))
    return cs.Dataset(np.column_stack(columns), DOMAIN)


def model_of(data: cs.Dataset, stddev: float = 10.0, seed: int = 1) -> cs.Model:
    rng = np.random.default_rng(seed)
    measured = [
        cs.Measurement(p, data.marginal(p) + rng.normal(scale=stddev, size=(4, 4)), stddev=stddev)
        for p in [*TREE, *REST]
    ]
    return cs.reconstruct(DOMAIN, measured, data.records, fit=cs.LeastSquares("local"))


def held(data: cs.Dataset, model: cs.Model) -> float:
    """The part of the cells of inferred pairs that 90 % intervals hold."""
    asked = [p for p in cs.all_marginals(DOMAIN, 2) if not model.in_model(p)]
    ends = [u.interval(0.9) for u in model.uncertainties(asked)]
    inside = [(e[0] <= data.marginal(p)) & (data.marginal(p) <= e[1]) for p, e in zip(asked, ends, strict=True)]  # fmt: skip
    return float(np.mean(inside))


@pytest.mark.parametrize("linked", [0.3, 0.6])
def test_intervals_of_inferred_tables_hold_what_inference_assumes(linked: float) -> None:
    data = people(linked)
    model = model_of(data)
    found = assumed_of(model, cs.LeastSquares("local"))
    assert found.order == 2
    assert max(found.rate / 100, found.part) > 0.1
    assert held(data, model) > 0.8
    bare = model.lasting()
    assert bare.replicates is not None
    object.__setattr__(bare.replicates, "assumed", NOTHING)
    assert held(data, bare) < 0.65


def test_where_the_tree_is_the_truth_little_is_added() -> None:
    data = people(0.0)
    found = assumed_of(model_of(data), cs.LeastSquares("local"))
    assert found.rate <= 2
    assert found.part <= 0.05


def test_departures_keep_single_attributes_and_repeat() -> None:
    table = np.arange(12, dtype=float).reshape(3, 4) * 10
    about = Assumed(4.0, 0.2, 2)
    drawn = about.drawn(("a", "b"), table, 2000, (0, 1))
    np.testing.assert_array_equal(drawn, about.drawn(("a", "b"), table, 2000, (0, 1)))
    spread = np.sqrt(4 * (table + 1) + (0.2 * table) ** 2)
    for axis in (1, 2):
        assert np.abs(drawn.sum(axis=axis)).max() < 0.3 * spread.max()
    assert (drawn.std(axis=0) < 1.1 * spread).all()
    assert (drawn.std(axis=0) > 0.3 * spread).all()


def test_nothing_is_said_of_larger_tables_or_where_every_pair_was_measured() -> None:
    assert not Assumed(1.0, 0.1, 2).covers(("a", "b", "c"))
    domain = cs.Domain({"a": 2, "b": 2})
    whole = cs.reconstruct(domain, [cs.Measurement(("a", "b"), np.ones((2, 2)), stddev=1.0)])
    assert assumed_of(whole, cs.LeastSquares()) is NOTHING


def test_it_is_kept_in_files(tmp_path: Path) -> None:
    model = model_of(people(0.3)).lasting()
    model.save(tmp_path / "model.npz")
    again = cs.load(tmp_path / "model.npz")
    assert again.replicates is not None
    assert model.replicates is not None
    assert again.replicates.assumed == model.replicates.assumed
    np.testing.assert_array_equal(model.stderr(("b", "d")), again.stderr(("b", "d")))
