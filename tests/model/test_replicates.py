"""Replicates: kept with the model, the same from a file, and near what whole refits say of answers that nobody measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from consilience.domain import Domain
from consilience.errors import ConsilienceError, ModelFileError
from consilience.fits import LeastSquares, PossibleCells, Shrunk, load, reconstruct
from consilience.measurements import Measurement
from consilience.model import Model, replicates
from consilience.model.assumed import NOTHING
from consilience.model.replicates import FEWEST, USUAL, affordable, replicates_of
from consilience.model.uncertainty import deviations
from consilience.progress import quiet

CHAIN = Domain({"a": 4, "b": 3, "c": 5, "d": 3})
PAIRS = (("a", "b"), ("b", "c"), ("c", "d"))


def chain(fit=None, skew: float = 0.6, noise: float = 15.0, seed: int = 0) -> Model:
    rng = np.random.default_rng(seed)
    table = 4000 * rng.dirichlet(np.full(CHAIN.size(), skew)).reshape(CHAIN.shape)
    made = []
    for pair in PAIRS:
        exact = table.sum(axis=tuple(i for i, x in enumerate(CHAIN) if x not in pair))
        made.append(Measurement(pair, exact + rng.normal(0, noise, exact.shape), stddev=noise))
    return reconstruct(CHAIN, made, 4000.0, fit or LeastSquares(consistency="local"))


@pytest.mark.parametrize("fit", [None, Shrunk(), PossibleCells()], ids=["squares", "shrunk", "cells"])  # fmt: skip
def test_a_file_keeps_what_errors_are_made_of(tmp_path: Path, fit) -> None:
    model = chain(fit).lasting(12)
    model.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert again.replicates is not None
    assert len(again.replicates) == 12
    seen: list[str] = []
    for asked in (("a", "b"), "c", ("d", "a"), ("a", "c", "d")):
        one = model.uncertainty(asked)
        two = again.uncertainty(asked, progress=lambda step: seen.append(step.stage))
        assert "refits" not in seen
        np.testing.assert_array_equal(one.answer, two.answer)
        np.testing.assert_array_equal(one.stderr, two.stderr)
        for this, that in zip(one.interval(), two.interval(), strict=True):
            np.testing.assert_array_equal(this, that)


def test_plain_models_make_them_once() -> None:
    model = chain()
    seen: list[str] = []
    first = model.uncertainty(("a", "d"), progress=lambda step: seen.append(step.stage))
    assert seen.count("refits") == USUAL
    model.uncertainty(("a", "c"), progress=lambda step: seen.append(step.stage))
    assert seen.count("refits") == USUAL
    assert first.replicates == USUAL


def test_how_many_follows_from_the_bytes() -> None:
    model = chain()
    cells = sum(CHAIN.size(p) for p in PAIRS)
    assert affordable(model) == USUAL
    assert affordable(model, 2 * cells * 20) == 20
    assert affordable(model, 1) == FEWEST
    with pytest.raises(ConsilienceError, match="replicates must be at least 2, got 1"):
        model.lasting(1)
    assert model.lasting(0).replicates is None


def test_inferred_answers_move_as_whole_refits_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each replicate's own backbone, grown anew, beside the model's backbone moved to the replicate. The noise alone."""
    monkeypatch.setattr(replicates, "assumed_of", lambda *_: NOTHING)
    model = chain(skew=3.0)
    asked = [("a", "c"), ("a", "d"), ("a", "b", "d")]
    found = model.uncertainties(asked, replicates=60, rng=1)
    fit, rng = model.fit, np.random.default_rng(2)
    assert fit is not None
    draws: list[list[np.ndarray]] = [[] for _ in asked]
    for _ in range(60):
        made = [
            Measurement(p, model.marginal(p) + rng.normal(0, 15.0, CHAIN.shape_of(p)), stddev=15.0)
            for p in PAIRS
        ]
        refit = fit(CHAIN, made, 4000.0)
        for kept, table in zip(draws, refit.marginals(asked), strict=True):
            kept.append(table)
    for clique, one, kept in zip(asked, found, draws, strict=True):
        spread = deviations(model.marginal(clique), np.array(kept))
        assert one.stderr.sum() == pytest.approx(spread.stderr.sum(), rel=0.2), clique
        assert one.distance.sum() == pytest.approx(spread.distance.sum(), rel=0.2), clique


def test_an_error_is_the_same_in_whatever_company() -> None:
    model = chain().lasting(10)
    alone = model.uncertainty(("a", "d"))
    (_, together) = model.uncertainties([("a", "c"), ("a", "d")])
    np.testing.assert_array_equal(alone.stderr, together.stderr)


def test_half_precision_is_enough() -> None:
    model = chain()
    fine = replicates_of(model, 20, np.random.default_rng(0), quiet)
    one, two = (
        replace(model, replicates=r).stderr(("a", "b"), method="bootstrap")
        for r in (fine, fine.rounded())
    )
    np.testing.assert_allclose(one, two, rtol=1e-3)


def test_a_file_with_other_replicates_than_it_says_is_damaged(tmp_path: Path) -> None:
    model = chain().lasting(4)
    assert model.replicates is not None
    for deviations_ in (model.replicates.deviations[:, 1:], model.replicates.deviations[1:]):
        broken = replace(model, replicates=replace(model.replicates, deviations=deviations_))
        broken.save(tmp_path / "model.npz")
        with pytest.raises(ModelFileError, match="replicates are not as many as they say"):
            load(tmp_path / "model.npz")
