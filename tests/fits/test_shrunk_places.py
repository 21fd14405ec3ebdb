"""Shrunk on a tree of places: small places are pulled towards the place that they lie in, nothing above them changes."""

from __future__ import annotations

import numpy as np

import consilience as cs

TRACTS, BLOCKS = 8, 15
DOMAIN = cs.Domain(
    {"block": TRACTS * BLOCKS, "sex": 2, "race": 5},
    levels={"tract": ("block", np.repeat(np.arange(TRACTS), BLOCKS))},
)
FITS = {"plain": cs.LeastSquares(tolerance=1e-5, clear=4.0), "pulled": cs.Shrunk()}
NOISE = {"tract": 2.0, "block": 5.0}


def counts_of(rng: np.random.Generator, alike: bool) -> np.ndarray:
    """Blocks that are like their tract, or like nothing else."""
    shape = rng.dirichlet(np.full(10, 0.5), TRACTS if alike else TRACTS * BLOCKS)
    each = np.repeat(shape, BLOCKS, axis=0) if alike else shape
    people = rng.gamma(1.5, 25.0, (TRACTS * BLOCKS, 1))
    return rng.poisson(people * each).reshape(-1, 2, 5).astype(float)


def measured(counts: np.ndarray, rng: np.random.Generator) -> list[cs.Measurement]:
    out = []
    for level, stddev in NOISE.items():
        table = DOMAIN.coarsened(counts, (level, "sex", "race"))
        noisy = table + stddev * rng.normal(size=table.shape)
        out.append(cs.Measurement((level, "sex", "race"), noisy, stddev=stddev))
    return out


def errors_of(alike: bool, seeds: range) -> dict[str, float]:
    sums = dict.fromkeys(FITS, 0.0)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        counts = counts_of(rng, alike)
        given = measured(counts, rng)
        for name, fit in FITS.items():
            model = cs.reconstruct(DOMAIN, given, float(counts.sum()), fit)
            sums[name] += np.square(model.marginal(("block", "sex", "race")) - counts).mean()
    return sums


def test_blocks_that_are_like_their_tract_are_much_closer():
    found = errors_of(alike=True, seeds=range(4))
    assert found["pulled"] < 0.5 * found["plain"]


def test_blocks_that_are_like_nothing_else_are_no_further():
    found = errors_of(alike=False, seeds=range(4))
    assert found["pulled"] < 1.03 * found["plain"]


def test_nothing_above_the_blocks_changes_and_the_model_says_what_it_is():
    rng = np.random.default_rng(9)
    counts = counts_of(rng, alike=True)
    given = measured(counts, rng)
    plain, pulled = (cs.reconstruct(DOMAIN, given, float(counts.sum()), f) for f in FITS.values())
    tract = ("tract", "sex", "race")
    np.testing.assert_allclose(pulled.marginal(tract), plain.marginal(tract), rtol=2e-3, atol=0.05)
    assert pulled.marginal(("block", "sex", "race")).min() >= 0
    assert pulled.diagnostics.prior == "the shape of the place above"
    assert 0 < pulled.diagnostics.prior_strength < 1
    assert pulled.diagnostics.gap < 1e-3
    low, high = pulled.interval(("block", "sex", "race"))
    held = (low <= counts) & (counts <= high)
    assert held.mean() > 0.85
    assert (high - low).mean() < 0.7 * np.subtract(
        *reversed(plain.interval(("block", "sex", "race")))
    ).mean()


def test_controls_hold_in_pulled_tables():
    rng = np.random.default_rng(10)
    counts = counts_of(rng, alike=True)
    exact = counts.sum(axis=(1, 2))
    controls = [cs.Exact("block", exact), cs.Bounds(("block", "sex"), low=0, high=400)]
    given = measured(counts, rng)
    model = cs.reconstruct(DOMAIN, given, fit=cs.Shrunk(controls=controls))
    np.testing.assert_allclose(model.marginal("block"), exact, atol=1e-6)
    plain = cs.reconstruct(DOMAIN, given, fit=cs.LeastSquares(tolerance=1e-5, controls=controls))
    far = [np.abs(m.marginal(("block", "sex", "race")) - counts).mean() for m in (model, plain)]
    assert far[0] < far[1]


def test_the_same_numbers_again():
    rng = np.random.default_rng(11)
    counts = counts_of(rng, alike=True)
    given = measured(counts, rng)
    one, two = (cs.reconstruct(DOMAIN, given, 5000.0, cs.Shrunk()) for _ in range(2))
    np.testing.assert_array_equal(one.marginal("block"), two.marginal("block"))
