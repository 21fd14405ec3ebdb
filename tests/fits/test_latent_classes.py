"""LatentClasses: tables agree and are not negative, little noise gives the truth, much is met better than by least squares."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import consilience as cs
from consilience.kernels.threads import threads
from consilience.measurements import Centring, Prefix
from consilience.measurements.structured import centred

DOMAIN = cs.Domain({"a": 4, "b": 6, "c": 3, "d": 5, "e": 2})
PAIRS = list(combinations(DOMAIN.attributes, 2))


def of_three_kinds(domain: cs.Domain) -> cs.Dataset:
    """Three kinds of people, within which columns are independent."""
    rng = np.random.default_rng(5)
    kind = rng.choice(3, 20_000, p=[0.5, 0.3, 0.2])
    columns = []
    for n in domain.shape:
        law = rng.dirichlet(np.ones(n) * 0.6, 3)
        columns.append((rng.random(len(kind))[:, None] > np.cumsum(law[kind], axis=1)).sum(axis=1))
    codes = np.minimum(np.stack(columns, axis=1), np.array(domain.shape) - 1)
    return cs.Dataset(codes, domain)


@pytest.fixture(scope="module")
def people() -> cs.Dataset:
    return of_three_kinds(DOMAIN)


def noisy(data: cs.Dataset, cliques: list, stddev: float, seed: int = 0) -> list[cs.Measurement]:
    rng, shape = np.random.default_rng(seed), data.domain.shape_of
    return [
        cs.Measurement(c, data.marginal(c) + stddev * rng.normal(size=shape(c)), stddev=stddev)
        for c in cliques
    ]


def distance(model: cs.Model, data: cs.Dataset, cliques: list) -> float:
    tables = model.marginals(cliques)
    return float(
        np.mean([np.abs(t - data.marginal(c)).sum() for t, c in zip(tables, cliques, strict=True)])
    )


@pytest.fixture(scope="module")
def model(people: cs.Dataset) -> cs.Model:
    return cs.reconstruct(DOMAIN, noisy(people, PAIRS, 150.0), 20_000, cs.LatentClasses())


def test_tables_agree_and_are_not_negative(model: cs.Model) -> None:
    assert model.tau.values.min() >= 0
    assert model.graph.local_polytope_violation(model.tau) <= 1e-9
    assert model.diagnostics.converged
    assert model.diagnostics.gap <= 2e-3


def test_it_is_closer_than_least_squares_where_there_is_noise() -> None:
    wide = cs.Domain({f"x{i}": 7 for i in range(9)})
    data = of_three_kinds(wide)
    pairs, triples = (list(combinations(wide.attributes, k))[::k] for k in (2, 3))
    every = list(combinations(wide.attributes, 2))
    given = noisy(data, every, 100.0)
    plain = cs.reconstruct(wide, given, 20_000, cs.LeastSquares(consistency="local"))
    shared = cs.reconstruct(wide, given, 20_000, cs.LatentClasses())
    assert distance(shared, data, pairs) < 0.6 * distance(plain, data, pairs)
    assert distance(shared, data, triples) < 0.8 * distance(plain, data, triples)


def test_little_noise_gives_the_truth(people: cs.Dataset) -> None:
    fitted = cs.reconstruct(DOMAIN, noisy(people, PAIRS, 0.5), 20_000, cs.LatentClasses())
    assert distance(fitted, people, PAIRS) < 20_000 * 1e-3


def test_it_says_that_it_is_biased(model: cs.Model) -> None:
    assert model.diagnostics.prior == "latent classes"
    assert "latent classes (biased towards it)" in str(model.diagnostics)


def test_the_same_seed_gives_the_same_bits_on_any_number_of_threads(people: cs.Dataset) -> None:
    found = []
    for count in (1, 2):
        with threads(count):
            fit = cs.LatentClasses(seed=3)
            found.append(cs.reconstruct(DOMAIN, noisy(people, PAIRS, 100.0), 20_000, fit))
    np.testing.assert_array_equal(found[0].tau.values, found[1].tau.values)
    assert found[0].mixture is not None
    assert found[1].mixture is not None
    np.testing.assert_array_equal(found[0].mixture.probabilities, found[1].mixture.probabilities)


def test_tables_residuals_and_queries_of_any_order(people: cs.Dataset) -> None:
    rng = np.random.default_rng(1)
    given = noisy(people, [("a", "b", "c"), ("c", "d"), ("e",)], 40.0)
    table = people.marginal(("d", "e"))
    residual = centred(table + 10 * rng.normal(size=table.shape), 2).reshape(-1)
    given.append(cs.Measurement(("d", "e"), residual, stddev=10.0, query=Centring((5, 2))))
    sums = np.cumsum(people.marginal("d")) + 5 * rng.normal(size=5)
    given.append(cs.Measurement("d", sums, stddev=5.0, query=Prefix(5)))
    fitted = cs.reconstruct(DOMAIN, given, fit=cs.LatentClasses())
    assert fitted.graph.local_polytope_violation(fitted.tau) <= 1e-9
    for clique, most in ((("a", "b", "c"), 3_000), (("d", "e"), 600), (("d",), 200)):
        assert np.abs(fitted.marginal(clique) - people.marginal(clique)).sum() < most


def test_impossible_cells_stay_empty_in_tables_answers_and_rows(people: cs.Dataset) -> None:
    possible = np.ones((4, 6), bool)
    possible[0, 3:] = False
    fit = cs.LatentClasses(possible={("a", "b"): possible})
    fitted = cs.reconstruct(DOMAIN, noisy(people, PAIRS, 150.0), 20_000, fit)
    assert fitted.marginal(("a", "b"))[0, 3:].max() == 0
    assert fitted.marginal(("a", "b", "e"))[0, 3:].max() == 0
    rows = fitted.sample(3_000, 0)
    assert rows.marginal(("a", "b"))[0, 3:].max() == 0


def test_rows_follow_the_tables(model: cs.Model) -> None:
    drawn = model.sample_with_report(20_000, 0)
    assert drawn.source == "latent classes"
    assert drawn.distance < drawn.independent
    again = model.sample(20_000, 0)
    for name in DOMAIN:
        np.testing.assert_array_equal(drawn.data.column(name), again.column(name))


def test_a_saved_model_answers_the_same(model: cs.Model, tmp_path) -> None:
    model.save(tmp_path / "m.npz")
    loaded = cs.load(tmp_path / "m.npz")
    for clique in (("a", "b"), ("a", "c", "e")):
        np.testing.assert_array_equal(loaded.marginal(clique), model.marginal(clique))
    assert isinstance(loaded.fit, cs.LatentClasses)


def test_the_mixture_is_one_distribution(model: cs.Model) -> None:
    mixture = model.mixture
    assert mixture is not None
    whole = mixture.marginal(DOMAIN.attributes)
    assert whole.sum() == pytest.approx(1)
    np.testing.assert_allclose(mixture.marginal(("b", "d")), whole.sum(axis=(0, 2, 4)), atol=1e-12)
    rows = mixture.rows(50_000, np.random.default_rng(0))
    counts = cs.Dataset(rows, DOMAIN).marginal(("b", "d")) / 50_000
    assert np.abs(counts - mixture.marginal(("b", "d"))).sum() < 0.03


def test_standard_errors_come_from_refits(model: cs.Model) -> None:
    found = model.uncertainty(("a", "b"), method="bootstrap", replicates=8)
    assert (found.stderr >= 0).all()
    assert found.stderr.max() > 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: cs.LatentClasses(classes=0), "classes must be at least 1"),
        (lambda: cs.LatentClasses(consistency="global"), "has local consistency"),
        (lambda: cs.LatentClasses(tolerance=0.0), "tolerance must be positive"),
    ],
)
def test_refusals(make, words: str) -> None:
    with pytest.raises(cs.ConsilienceError, match=words):
        make()


def test_laplace_noise_is_refused() -> None:
    given = [cs.Measurement("a", [1.0, 2.0, 3.0, 4.0], stddev=1.0, noise="laplace")]
    with pytest.raises(cs.ConsilienceError, match="LatentClasses takes gaussian noise"):
        cs.reconstruct(DOMAIN, given, fit=cs.LatentClasses())


def test_a_mixture_can_be_asked_for_only_where_there_is_one(people: cs.Dataset) -> None:
    plain = cs.reconstruct(DOMAIN, noisy(people, [("a", "b"), ("b", "c")], 10.0), 20_000)
    with pytest.raises(cs.ConsilienceError, match="needs a model with latent classes"):
        plain.marginal(("a", "c"), method="mixture")


def test_answers_nobody_measured_start_where_they_are_closest(people: cs.Dataset) -> None:
    """Maximum entropy where every pair is in the model; else the backbone. Never the classes, which are for rows."""
    measured = noisy(people, [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")], 10.0)
    model = cs.reconstruct(DOMAIN, measured, 20_000, fit=cs.LatentClasses(classes=8))
    asked = [("a", "b", "c"), ("b", "d")]
    found = model.marginals(asked)
    for clique, table, method in zip(asked, found, ("local", "backbone"), strict=True):
        np.testing.assert_allclose(table, model.marginal(clique, method=method), atol=1e-9)
    assert np.abs(found[1] - model.marginal(asked[1], method="local")).max() > 1e-3
    errors = model.uncertainties(asked, replicates=8)
    assert all(e.stderr.max() > 0 for e in errors)


def test_larger_tables_are_pulled_to_what_their_own_noise_favours() -> None:
    """A table in which pairs say all: classes, too few to say it, would add what is not there."""
    domain = cs.Domain({"a": 5, "b": 5, "c": 5})
    rng = np.random.default_rng(3)
    heights = sum(np.expand_dims(1.5 * rng.normal(size=(5, 5)), axis) for axis in range(3))
    truth = np.exp(heights) / np.exp(heights).sum()
    values = 200_000 * truth + 20.0 * rng.normal(size=truth.shape)
    look = cs.LatentClasses(classes=3).look(
        domain, [cs.Measurement(("a", "b", "c"), values, stddev=20.0)], 200_000
    )
    assert np.abs(look.tables["a", "b", "c"] - truth).sum() < 0.018
