"""Excess: what latent classes leave open is in replicates, for single attributes too, and nowhere where nothing is open."""

from __future__ import annotations

from copy import copy
from itertools import combinations

import numpy as np
import pytest

import consilience as cs
from consilience.domain import Layout
from consilience.model.excess import PERSON, Excess, _turned

DOMAIN = cs.Domain({"a": 24, "b": 5, "c": 4})
PAIRS = list(combinations(DOMAIN.attributes, 2))
N, NOISE = 6000, 60.0
POSSIBLE = np.ones((24, 5), bool)
POSSIBLE[:6, :2] = False


def truth() -> np.ndarray:
    """Codes of `a` that rise slowly but for three peaks, and cells that classes do not say."""
    rng = np.random.default_rng(3)
    rising = np.linspace(1, 3, 24)
    rising[[5, 11, 20]] *= 4
    table = rising[:, None, None] * rng.dirichlet(np.full(20, 2.0), 24).reshape(24, 5, 4)
    table[:6, :2] = 0
    return np.rint(N * table / table.sum())


def measured(table: np.ndarray, seed: int) -> list[cs.Measurement]:
    rng = np.random.default_rng(seed)
    made = []
    for c in (*PAIRS, ("a",)):
        exact = table.sum(axis=tuple(i for i, x in enumerate(DOMAIN) if x not in c))
        made.append(cs.Measurement(c, exact + rng.normal(0, NOISE, exact.shape), stddev=NOISE))
    return made


def model(seed: int = 0, **options) -> cs.Model:
    table = truth()
    fit = cs.LatentClasses(**options)
    return cs.reconstruct(DOMAIN, measured(table, seed), table.sum(), fit)


@pytest.fixture(scope="module")
def collected() -> Excess:
    """The excess of one model after a few made-up refits."""
    own = model()
    found = Excess(
        own, Layout(DOMAIN, PAIRS), np.concatenate([own.known.table(c).reshape(-1) for c in PAIRS])
    )
    rng = np.random.default_rng(1)
    for k in range(6):
        refit = np.concatenate([own.marginal(c).reshape(-1) for c in PAIRS])
        found.take(
            refit + rng.normal(0, 5, len(refit)),
            own.measurements.replaced(
                own.measurements.values
                + np.random.default_rng(k).normal(0, NOISE, len(own.measurements.values)),
                own.measurements.stddevs,
            ),
        )
    return found


def test_every_subset_is_summed_from_the_largest_tables() -> None:
    domain = cs.Domain({"a": 3, "b": 2, "c": 4, "d": 2})
    joint = np.random.default_rng(0).random(domain.shape)
    table = {
        c: joint.sum(axis=tuple(domain.position(a) for a in "abcd" if a not in c))
        for k in range(1, 5)
        for c in combinations("abcd", k)
    }
    noise = np.random.default_rng(1)
    cliques = [("a", "b", "c"), ("c", "d")]
    made = [
        cs.Measurement(
            c, 900 * table[c] / joint.sum() + noise.normal(0, 9, table[c].shape), stddev=9.0
        )
        for c in cliques
    ]
    small = cs.reconstruct(domain, made, 900, cs.LatentClasses())
    layout = Layout(domain, cliques)
    flat = np.concatenate([table[c].reshape(-1) for c in layout.cliques])
    found = Excess(small, layout, flat)
    assert set(found.layout.cliques) == {
        *[(x,) for x in "abcd"],
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
        *cliques,
    }
    for c in found.layout.cliques:
        lo, hi = (
            found.layout.offsets[found.layout.index[c]],
            found.layout.offsets[found.layout.index[c] + 1],
        )
        np.testing.assert_allclose(found.own[lo:hi], 900 * table[c].reshape(-1))


def test_tables_turn_until_their_sums_are_as_asked() -> None:
    rng = np.random.default_rng(0)
    moved = rng.normal(size=(7, 4, 5))
    sums = [moved.sum(axis=1, keepdims=True), moved.sum(axis=2, keepdims=True)]
    found = _turned(rng.normal(size=(7, 4, 5)), np.ones((4, 5)), sums)
    for axis in (1, 2):
        np.testing.assert_allclose(found.sum(axis=axis, keepdims=True), sums[axis - 1], atol=1e-12)


def test_drawn_deviations_agree_on_what_tables_share(collected: Excess) -> None:
    found = collected.drawn(np.random.default_rng(0))
    tables, start = {}, 0
    for c in PAIRS:
        shape = DOMAIN.shape_of(c)
        tables[c] = found[:, start : start + np.prod(shape)].reshape(-1, *shape)
        start += int(np.prod(shape))
    a_of_b, a_of_c = tables["a", "b"].sum(axis=2), tables["a", "c"].sum(axis=2)
    assert np.abs(a_of_b).mean() > 1e-4  # single attributes move
    np.testing.assert_allclose(a_of_b, a_of_c, atol=0.02 * np.abs(a_of_b).max())
    np.testing.assert_allclose(tables["b", "c"].sum(axis=(1, 2)), 0.0, atol=1e-9)


def test_nothing_is_open_about_what_cannot_be_or_is_public() -> None:
    public = truth().sum(axis=(0, 2))
    told = model(possible={("a", "b"): POSSIBLE}, controls=[cs.Exact("b", public)])
    table, single, wide = told.uncertainties([("a", "b"), ("b",), ("a", "b", "c")])
    assert table.stderr[~POSSIBLE].max() == 0
    assert wide.stderr[~POSSIBLE].max() == 0
    assert table.interval()[1][~POSSIBLE].max() == 0
    assert table.stderr[POSSIBLE].min() > 0
    assert single.stderr.max() == 0
    spread = told.spread().tables(told, {("b", "c"): told.marginal(("b", "c"))})["b", "c"]
    assert np.abs(spread.sum(axis=2) - public).max() < 0.02 * public.max()


@pytest.mark.parametrize("rates", [(30.0, 3.0), (2.0, 20.0)])
def test_each_order_has_the_rate_that_its_misfit_shows(collected: Excess, rates) -> None:
    """A fit that stays where it is, truths that leave it by so many variances of a count, noise on top."""
    found = copy(collected)
    singles = np.repeat([len(c) == 1 for c in found.layout.cliques], np.diff(found.layout.offsets))
    departed = np.where(singles, *rates) * (PERSON + found.own)
    usual = [departed[singles].mean(), departed[~singles].mean()]
    noise = 3 * np.where(singles, *usual)
    found.count, found.noise = 1, noise
    found.covariance = found.moved = np.zeros(len(departed))
    rng, seen = np.random.default_rng(0), []
    for _ in range(60):
        found.misfit = np.square(rng.normal(0, np.sqrt(departed + noise)))
        added = found.variances()
        seen.append([added[singles].mean(), added[~singles].mean()])
    assert np.mean(seen, axis=0) == pytest.approx(usual, rel=0.5)
