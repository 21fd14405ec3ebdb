"""The prior: its strength is chosen by the data, it helps where there is noise, and it does nothing where there is none."""

from itertools import combinations

import numpy as np
import pytest

import consilience as cs
from consilience.errors import ConsilienceError
from consilience.measurements import SquaredLoss
from consilience.regions import RegionGraph
from consilience.solvers.prior import _choose, _thinned, fit_with_prior, maximum_entropy_table

DOMAIN = cs.Domain({"a": 12, "b": 9, "c": 10, "d": 8})
TOTAL = 10_000.0


def tables(
    rng: np.random.Generator, cliques: list[tuple[str, ...]]
) -> dict[tuple[str, ...], np.ndarray]:
    """Marginals of a mixture of two products: dependent, but weakly."""
    share = np.array([0.7, 0.3])
    ends = {a: rng.dirichlet(np.ones(n), size=2) for a, n in DOMAIN.sizes.items()}
    out = {}
    for clique in cliques:
        table = np.zeros(DOMAIN.shape_of(clique))
        for k in range(2):
            part = np.array(share[k])
            for a in clique:
                part = np.multiply.outer(part, ends[a][k])
            table += part
        out[clique] = table * TOTAL
    return out


def measured(
    rng: np.random.Generator, truth: dict[tuple[str, ...], np.ndarray], sigma: float
) -> list[cs.Measurement]:
    return [
        cs.Measurement(c, t + sigma * rng.standard_normal(t.shape), stddev=sigma)
        for c, t in truth.items()
    ]


def distance(model: cs.Model, truth: dict[tuple[str, ...], np.ndarray]) -> float:
    return (
        float(np.mean([np.abs(model.marginal(c) - t).sum() for c, t in truth.items()])) / 2 / TOTAL
    )


PAIRS = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("a", "c")]
TRIPLES = [("a", "b", "c"), ("b", "c", "d")]


@pytest.mark.parametrize("cliques", [PAIRS, TRIPLES], ids=["pairs", "triples"])
@pytest.mark.parametrize("sigma", [30.0, 150.0])
def test_closer_to_the_truth_than_maximum_likelihood(cliques, sigma):
    rng = np.random.default_rng(7)
    truth = tables(rng, cliques)
    noisy = measured(rng, truth, sigma)
    plain = cs.reconstruct(DOMAIN, noisy, total=TOTAL, fit=cs.LeastSquares(consistency="local"))
    pulled = cs.reconstruct(DOMAIN, noisy, total=TOTAL, fit=cs.Shrunk())
    assert distance(pulled, truth) < 0.95 * distance(plain, truth)


def test_is_consistent_non_negative_and_certified():
    rng = np.random.default_rng(3)
    truth = tables(rng, PAIRS)
    model = cs.reconstruct(DOMAIN, measured(rng, truth, 60.0), total=TOTAL, fit=cs.Shrunk())
    assert model.graph.local_polytope_violation(model.tau) <= 1e-9
    assert model.tau.values.min() >= 0
    assert model.diagnostics.gap <= 5e-4
    assert model.diagnostics.prior == "independence"
    assert model.diagnostics.prior_strength is not None
    assert model.diagnostics.prior_strength > 0


def test_same_seed_same_bits_other_seed_near():
    rng = np.random.default_rng(3)
    noisy = measured(rng, tables(rng, PAIRS), 60.0)
    first, again, other = (
        cs.reconstruct(DOMAIN, noisy, total=TOTAL, fit=cs.Shrunk(seed=s)).tau.values
        for s in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert np.abs(first - other).max() < 0.02


def test_with_hardly_any_noise_it_stays_at_the_data():
    rng = np.random.default_rng(5)
    truth = tables(rng, PAIRS)
    model = cs.reconstruct(DOMAIN, measured(rng, truth, 0.05), total=TOTAL, fit=cs.Shrunk())
    assert distance(model, truth) < 1e-3


def test_halves_of_thinned_noise_are_independent():
    """y1 and y2 have the right variances and no correlation."""
    rng = np.random.default_rng(11)
    size, sigma = 40, 5.0
    domain = cs.Domain({"a": size})
    truth = np.linspace(10, 50, size)
    firsts, seconds = [], []
    for _ in range(4000):
        y = truth + sigma * rng.standard_normal(size)
        one, two = _thinned(domain, [cs.Measurement(("a",), y, stddev=sigma)], 1000.0, rng)
        firsts.append(one.measurements[0].values - truth)
        seconds.append(two.measurements[0].values - truth)
    first, second = np.array(firsts), np.array(seconds)
    assert abs(np.mean(first * second)) / sigma**2 < 0.02
    assert np.var(first) == pytest.approx(2 * sigma**2, rel=0.03)
    assert np.var(second) == pytest.approx(2 * sigma**2, rel=0.03)
    assert one.measurements[0].stddev == pytest.approx(sigma * np.sqrt(2))


def test_choice_is_the_minimum_refined_between_its_neighbours():
    strengths = np.array([8.0, 4.0, 2.0, 1.0, 0.0])
    assert _choose(strengths, np.array([9.0, 4.0, 1.0, 4.0, 9.0])) == pytest.approx(2.0)
    assert 2.0 < _choose(strengths, np.array([9.0, 2.0, 1.0, 4.0, 9.0])) < 4.0
    assert _choose(strengths, np.array([1.0, 2.0, 3.0, 4.0, 9.0])) == 8.0
    assert _choose(strengths, np.array([5.0, 4.0, 3.0, 2.0, 1.0])) == 0.0


def test_maximum_entropy_table_meets_its_marginals_and_adds_no_interaction():
    rng = np.random.default_rng(0)
    joint = rng.dirichlet(np.ones(24)).reshape(2, 3, 4)
    known = {("a", "b"): joint.sum(2), ("a", "c"): joint.sum(1), ("b", "c"): joint.sum(0)}
    table = maximum_entropy_table(("a", "b", "c"), (2, 3, 4), known, rounds=2000)
    for clique, wanted in known.items():
        axes = tuple(i for i, a in enumerate("abc") if a not in clique)
        assert np.abs(table.sum(axis=axes) - wanted).max() < 1e-6
    # No three-way interaction: the log-odds ratio of every 2x2 slice is the same along the third axis.
    logs = np.log(table)
    odds = logs[0, 1:] - logs[0, :-1] - logs[1, 1:] + logs[1, :-1]
    assert np.ptp(odds, axis=1).max() < 1e-4


def test_refusals():
    rng = np.random.default_rng(1)
    given = measured(rng, tables(rng, PAIRS), 20.0)
    laplace = [cs.Measurement(("a",), np.ones(12), stddev=1.0, noise="laplace")]
    with pytest.raises(
        ConsilienceError, match="Shrunk takes gaussian noise, got laplace noise: its strength is"
    ):
        cs.reconstruct(DOMAIN, laplace, TOTAL, cs.Shrunk())
    whole = cs.Shrunk(consistency="global")
    with pytest.raises(
        ConsilienceError, match="Shrunk needs every region without parents measured"
    ):
        cs.reconstruct(DOMAIN, given, TOTAL, whole)
    with pytest.raises(ConsilienceError, match="Shrunk needs every region without parents"):
        whole.plan(DOMAIN, [m.attributes for m in given])
    with pytest.raises(ConsilienceError, match=r"no prior= any more: write fit=cs.Shrunk\(\)"):
        cs.reconstruct(DOMAIN, given, TOTAL, prior="independence")


def test_strength_zero_is_maximum_likelihood_when_that_validates_best(monkeypatch):
    rng = np.random.default_rng(1)
    noisy = measured(rng, tables(rng, PAIRS), 20.0)
    loss = SquaredLoss(DOMAIN, noisy, TOTAL)
    graph = RegionGraph.saturated(DOMAIN, PAIRS)
    monkeypatch.setattr("consilience.solvers.prior._choose", lambda strengths, validation: 0.0)
    fit = fit_with_prior(DOMAIN, loss.measurements, graph, TOTAL, rng=rng, tolerance=1e-6)
    plain = cs.reconstruct(DOMAIN, noisy, total=TOTAL, fit=cs.LeastSquares(consistency="local"))
    assert np.abs(fit.solution.tau.values - plain.tau.values).max() < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_where_noise_drowns_everything_it_does_no_harm(seed):
    """As much noise in a cell as there are records: which strength is judged best is chance, and a pull has to beat that."""
    domain, total = cs.Domain(dict.fromkeys("abcdef", 8)), 1_000.0
    rng = np.random.default_rng(seed)
    ends = {
        a: rng.dirichlet(np.full(8, 0.2)) for a in domain
    }  # spiky: least squares finds some of it
    truth = {
        c: total * np.einsum("i,j,k->ijk", *(ends[a] for a in c))
        for c in list(combinations("abcdef", 3))[::3]
    }
    noisy = measured(rng, truth, total)
    plain = cs.reconstruct(
        domain, noisy, total=total, fit=cs.LeastSquares(consistency="local", tolerance=1e-5)
    )
    pulled = cs.reconstruct(domain, noisy, total=total, fit=cs.Shrunk())
    assert distance(pulled, truth) <= 1.01 * distance(plain, truth)


def test_marginals_whose_zeros_contradict_each_other_still_give_a_table():
    known = {
        ("a", "b"): np.array([[1.0, 0.0], [0.0, 0.0]]),
        ("b", "c"): np.array([[0.0, 0.0], [0.5, 0.5]]),
    }
    table = maximum_entropy_table(("a", "b", "c"), (2, 2, 2), known)
    assert np.isfinite(table).all()
    assert table.sum() == pytest.approx(1.0)
