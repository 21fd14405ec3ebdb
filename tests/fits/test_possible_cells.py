"""PossibleCells with steps, AIM's last fit: closer to the truth than the optimum, and honest about what it left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import consilience as cs
from consilience.fits import possible_cells
from consilience.mechanisms import AIM
from consilience.privacy import Budget, SeededNoise

DOMAIN = cs.Domain({"a": 5, "b": 4, "c": 6, "d": 3})


def chain(rows: int, seed: int) -> cs.Dataset:
    """Rows in which each column mostly follows the one before."""
    rng = np.random.default_rng(seed)
    columns = [rng.integers(0, 5, rows)]
    for size in (4, 6, 3):
        follows = rng.random(rows) < 0.7
        columns.append(np.where(follows, columns[-1] % size, rng.integers(0, size, rows)))
    return cs.Dataset(np.column_stack(columns), DOMAIN)


def noisy(data: cs.Dataset, stddev: float, seed: int) -> list[cs.Measurement]:
    rng = np.random.default_rng(seed)
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]
    return [
        cs.Measurement(p, data.marginal(p) + rng.normal(scale=stddev, size=DOMAIN.shape_of(p)), stddev=stddev)
        for p in pairs
    ]  # fmt: skip


def test_steps_lead_to_the_optimum_and_stop_short_of_it() -> None:
    """Judge: exact least squares. Many steps reach it; few stay nearer to the uniform distribution."""
    measured = noisy(chain(2000, 0), 25.0, 1)
    best = cs.reconstruct(DOMAIN, measured, 2000, fit=cs.LeastSquares("global", tolerance=1e-9))
    away, entropy = [], []
    for steps in (4, 12, 24, 400):
        model = cs.reconstruct(DOMAIN, measured, 2000, fit=cs.PossibleCells(steps=steps))
        away.append(np.abs(model.marginal(("a", "b")) - best.marginal(("a", "b"))).sum() / 2000)
        share = model.marginal(("a", "b", "c", "d")).reshape(-1) / 2000
        entropy.append(-np.sum(share * np.log(np.maximum(share, 1e-300))))
        assert model.diagnostics.prior == "maximum entropy"
        assert model.diagnostics.iterations == steps
    assert away == sorted(away, reverse=True)
    assert 2 * away[-1] < away[0]
    assert entropy == sorted(entropy, reverse=True)


def test_noise_is_followed_less() -> None:
    """Over twenty draws of noise, on tables that were measured and on one that was not."""
    data = chain(1000, 2)
    asked = [("a", "b"), ("c", "d"), ("a", "c")]
    far = np.zeros(2)
    for seed in range(20):
        measured = noisy(data, 40.0, seed)
        for i, fit in enumerate((cs.LeastSquares("global"), cs.PossibleCells(steps=24))):
            model = cs.reconstruct(DOMAIN, measured, 1000, fit=fit)
            far[i] += sum(np.abs(model.marginal(c) - data.marginal(c)).sum() for c in asked)
    assert far[1] < 0.98 * far[0]


def test_a_model_that_misses_the_measurements_gives_way_to_least_squares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Were cells left out that matter, the misfit says so; here it is said to."""
    measured = noisy(chain(2000, 0), 25.0, 1)
    fit = cs.PossibleCells(steps=24)
    assert cs.reconstruct(DOMAIN, measured, 2000, fit=fit).fit is fit
    monkeypatch.setattr(possible_cells, "_missed", lambda *_: True)
    other = cs.reconstruct(DOMAIN, measured, 2000, fit=fit)
    assert isinstance(other.fit, cs.LeastSquares)
    assert other.diagnostics.prior is None


def test_misfit_is_judged_by_the_noise() -> None:
    """The truth misses its own measurements by a cell's variance a cell; twice the noise is a miss."""
    data = chain(2000, 0)
    for wrong in (False, True):
        measured = noisy(data, 50.0 if wrong else 25.0, 1)
        if wrong:
            measured = [replace(m, stddev=5.0) for m in measured]
        found = cs.reconstruct(DOMAIN, measured, 2000, fit=cs.PossibleCells(steps=24))
        assert isinstance(found.fit, cs.LeastSquares) is wrong


@pytest.mark.parametrize("steps", [0, -1, 1.5])
def test_steps_are_checked(steps: float) -> None:
    with pytest.raises(cs.ConsilienceError, match="steps must be a whole number of at least 1"):
        cs.PossibleCells(steps=steps)  # pyright: ignore[reportArgumentType]


def test_aim_ends_with_it_and_rounds_do_not() -> None:
    data = chain(2000, 0)
    ready = AIM(cs.all_marginals(DOMAIN, 2)).calibrate(
        Budget(epsilon=1, delta=1e-6, neighbours="replace-one")
    )
    run = ready.start(data, noise=SeededNoise(seed=0))
    for made in run:
        assert isinstance(made.model.fit, cs.LeastSquares)
    model = ready.reconstruct(run.release).model
    assert isinstance(model.fit, cs.PossibleCells)
    assert model.fit.steps == possible_cells.AT_THE_END
    assert model.diagnostics.prior == "maximum entropy"
    plain = AIM(cs.all_marginals(DOMAIN, 2), fit=cs.LeastSquares()).calibrate(ready.budget)
    assert plain.reconstruct(run.release).model.diagnostics.prior is None
