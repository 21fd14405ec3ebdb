"""Standard errors: the closed form against dense generalised least squares and simulation, the bootstrap, and coverage."""

import numpy as np
import pytest

from claims.judges import constraints
from consilience.domain import Domain
from consilience.errors import ConsilienceError, DomainError, MeasurementError
from consilience.fits import LaplaceLikelihood, LeastSquares, PossibleCells, Shrunk, reconstruct
from consilience.measurements import Measurement, Prefix
from consilience.model import Model
from consilience.model.uncertainty import closed_form_holds
from consilience.progress import Step
from consilience.regions import RegionGraph
from solvers.problems import D, cliques_of, marginal_of, rows_of

N = 50_000.0
SMALL = Domain({"a": 2, "b": 3, "c": 2})


def full_table(domain: Domain, seed: int = 0) -> np.ndarray:
    """Every cell well above zero."""
    p = np.random.default_rng(seed).dirichlet(np.full(domain.size(), 40.0))
    return N * p.reshape(domain.shape)


def measured(domain: Domain, words: str, sigmas, rng, table=None, noise="gaussian"):
    table = full_table(domain) if table is None else table
    made = []
    for k, word in enumerate(words.split()):
        x, sigma = marginal_of(domain, table, word), sigmas[k % len(sigmas)]
        draw = (
            rng.normal(0, sigma, x.shape)
            if noise == "gaussian"
            else rng.laplace(0, sigma / 2**0.5, x.shape)
        )
        made.append(Measurement(tuple(word), x + draw, stddev=sigma, noise=noise))
    return made


def model_of(domain: Domain, words: str, sigmas=(10.0, 4.0), seed: int = 0, **given) -> Model:
    return reconstruct(
        domain, measured(domain, words, sigmas, np.random.default_rng(seed)), **given
    )


def dense_covariance(model: Model, total_known: bool) -> np.ndarray:
    """Covariance of least squares on the explicit equality constraints: Z (Z' H Z)^+ Z', in counts."""
    a, _ = constraints(model.graph)
    if not total_known:  # only differences of tables' totals are constrained
        sums = a[: len(model.graph.regions)]
        a = np.vstack([sums[1:] - sums[0], a[len(model.graph.regions) :]])
    _, values, vt = np.linalg.svd(a)
    z = vt[np.sum(values > 1e-9) :].T
    rows = np.concatenate([rows_of(model.graph, m.clique) / m.stddev for m in model.measurements])
    return z @ np.linalg.inv(z.T @ rows.T @ rows @ z) @ z.T


CASES = {
    "pairs": "ab bc ac",
    "a triple and a pair inside it": "abc bc",
    "singles": "a b c",
    "nested with unequal noise": "abc ab bc c",
}


DETERMINED = [
    (words, consistency)
    for words in CASES
    for consistency in ("local", "factor", "global")
    if (words, consistency)
    != ("pairs", "global")  # the junction tree's triple is not determined by pairs
]


@pytest.mark.parametrize("total_known", [True, False])
@pytest.mark.parametrize("case, consistency", DETERMINED)
def test_the_closed_form_is_generalised_least_squares(case, consistency, total_known) -> None:
    model = model_of(
        SMALL,
        CASES[case],
        (10.0, 4.0, 7.0),
        total=N if total_known else None,
        fit=LeastSquares(consistency=consistency),
    )
    covariance = dense_covariance(model, total_known)
    rng = np.random.default_rng(1)
    for region in model.graph.regions:
        k = model.graph.regions.index(region)
        lo, hi = model.graph.layout.offsets[k : k + 2]
        block = covariance[lo:hi, lo:hi]
        expected = np.sqrt(np.diag(block)).reshape(SMALL.shape_of(region))
        found = model.stderr(region, method="closed-form")
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)
        # Any linear query, axes in another order.
        query = rng.normal(size=(3, hi - lo))
        tables = query.reshape(3, *SMALL.shape_of(region[::-1]))
        turned = tables.transpose(0, *range(len(region), 0, -1)).reshape(3, -1)
        np.testing.assert_allclose(
            model.stderr(region[::-1], query, method="closed-form"),
            np.sqrt(np.diag(turned @ block @ turned.T)),
            rtol=1e-7,
        )


def test_marginals_below_regions_and_the_total() -> None:
    model = model_of(D, "abc bcd", (10.0,))
    # One table: averaging over what is summed out. Two tables measure (b, c): half the variance of a plain sum, and less.
    assert model.stderr("a", method="closed-form").shape == (2,)
    plain = 10.0 * np.sqrt(
        2 * 2
    )  # cells summed to reach one cell of (b, c) from (b, c, d) or (a, b, c): 2
    together = model.stderr(("b", "c"), method="closed-form")
    assert together.max() < plain / np.sqrt(2)
    assert together.shape == (3, 4)
    # The total: sums of 24 cells, sigma 10, two of them.
    expected = 10.0 * np.sqrt(24 / 2)
    assert model.stderr((), method="closed-form") == pytest.approx(expected)
    known = model_of(D, "abc bcd", (10.0,), total=N)
    assert known.stderr((), method="closed-form") == 0.0
    measured_total = reconstruct(
        D,
        [*measured(D, "abc", (10.0,), np.random.default_rng(0)), Measurement((), [N], stddev=1e-3)],
    )
    assert measured_total.stderr((), method="closed-form") == pytest.approx(1e-3, rel=1e-3)


def test_a_user_made_graph_is_tied_where_it_says() -> None:
    """Two tables share (b, c) and are tied on b alone: what one says of (b, c) tells nothing of the other's."""
    graph = RegionGraph(
        D, cliques_of("abc bcd b"), [(tuple("abc"), ("b",)), (tuple("bcd"), ("b",))]
    )
    made = measured(D, "abc bcd", (10.0, 5.0), np.random.default_rng(0))
    model = reconstruct(
        D, made, total=N, fit=LeastSquares(consistency=graph, solver="prox", iterations=400)
    )
    covariance = dense_covariance(model, True)
    lo, hi = model.graph.layout.offsets[:2]
    expected = np.sqrt(np.diag(covariance[lo:hi, lo:hi]))
    found = model.stderr(model.graph.regions[0], method="closed-form")
    np.testing.assert_allclose(found.reshape(-1), expected, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_simulation_agrees_with_the_closed_form_and_the_bootstrap(noise: str) -> None:
    """200 fits to fresh noise: their spread is what both methods say, within the simulation's own error."""
    words, sigmas = "ab bc ac", (30.0, 10.0)
    rng = np.random.default_rng(2)
    truth = marginal_of(SMALL, full_table(SMALL), "ab")
    off = []
    for _ in range(200):
        made = measured(SMALL, words, sigmas, rng, noise=noise)
        off.append(
            reconstruct(SMALL, made, fit=LeastSquares(consistency="local")).marginal(("a", "b"))
            - truth
        )
    spread = np.sqrt(np.square(off).mean(axis=0))
    model = reconstruct(SMALL, made, fit=LeastSquares(consistency="local"))
    assert closed_form_holds(model)
    np.testing.assert_allclose(model.stderr(("a", "b")), spread, rtol=0.2)
    by_bootstrap = model.uncertainty(("a", "b"), method="bootstrap", replicates=200, rng=3)
    np.testing.assert_allclose(by_bootstrap.stderr, spread, rtol=0.3)
    assert np.abs(by_bootstrap.bias).max() < 0.3 * spread.max()
    assert by_bootstrap.method == "bootstrap"
    assert by_bootstrap.replicates == 200


def sparse_model(seed: int = 0, **given) -> tuple[Model, np.ndarray]:
    """Many cells empty or nearly so."""
    p = np.random.default_rng(seed).dirichlet(np.full(D.size(), 0.05))
    table = 2000.0 * p.reshape(D.shape)
    made = measured(D, "abc cde", (20.0,), np.random.default_rng(seed + 100), table)
    return reconstruct(D, made, total=2000.0, **given), table


def test_auto_takes_the_bootstrap_where_cells_are_near_zero() -> None:
    model, _ = sparse_model()
    assert not closed_form_holds(model)
    found = model.uncertainty(("a", "b", "c"), replicates=20)
    assert found.method == "bootstrap"
    # Non-negativity makes the fit better than least squares.
    assert found.stderr.mean() < 0.9 * model.stderr(("a", "b", "c"), method="closed-form").mean()
    full = model_of(D, "abc bcd", total=N)
    assert full.uncertainty(("a", "b")).method == "closed-form"


def test_one_bootstrap_serves_many_marginals() -> None:
    model, _ = sparse_model()
    asked = [("a", "b", "c"), ("c", "a"), "e"]
    together = model.uncertainties(asked, replicates=5, rng=7)
    for attributes, found in zip(asked, together, strict=True):
        alone = model.uncertainty(attributes, replicates=5, rng=np.random.default_rng(7))
        np.testing.assert_array_equal(found.stderr, alone.stderr)
        assert found.stderr.shape == model.marginal(attributes).shape


def test_the_bootstrap_of_every_solver_and_query() -> None:
    rng = np.random.default_rng(4)
    table = full_table(D)
    prefix = Measurement(
        "c",
        Prefix(4).apply(marginal_of(D, table, "c")) + rng.normal(0, 5, 4),
        stddev=5.0,
        query=Prefix(4),
    )
    made = [*measured(D, "ab bc", (20.0,), rng), prefix]
    paper = LeastSquares(consistency="local", solver="prox", iterations=60)
    for fit in (LeastSquares(consistency="local"), paper, PossibleCells(), Shrunk()):
        usable = made[:2] if isinstance(fit, Shrunk | PossibleCells) else made
        model = reconstruct(D, usable, N, fit)
        seen: list[Step] = []
        found = model.stderr(("c", "b"), method="bootstrap", replicates=4, progress=seen.append)
        assert found.shape == (4, 3)
        assert (found > 0).all()
        assert [(s.done, s.total) for s in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]
        np.testing.assert_array_equal(
            found, model.stderr(("c", "b"), method="bootstrap", replicates=4)
        )
    answer = model.answer("c", Prefix(4))
    spread = model.stderr("c", Prefix(4), method="bootstrap", replicates=8)
    assert answer.shape == spread.shape
    assert spread[-1] < 1e-3  # the last prefix is the known total


def test_impossible_cells_have_no_error() -> None:
    mask = np.ones((2, 3), bool)
    mask[0, 1] = False
    made = measured(D, "ab bc", (20.0,), np.random.default_rng(5))
    model = reconstruct(D, made, total=N, fit=LeastSquares(possible={("a", "b"): mask}))
    found = model.stderr(("a", "b"), replicates=5)
    assert found[0, 1] == 0.0
    assert (found[mask] > 0).all()


def test_intervals() -> None:
    model, _ = sparse_model()
    table, asked = model.marginal(("b", "a")), ("b", "a")
    spreads = {
        m: model.stderr(asked, method=m, replicates=10) for m in ("closed-form", "bootstrap")
    }
    assert (spreads["closed-form"] > spreads["bootstrap"]).any()
    for method, spread in spreads.items():
        # Both tails are of Student's law with as many degrees of freedom as refits, and one tail alone near zero.
        both, one = (1.8124611, 1.3721836) if method == "bootstrap" else (1.6448536, 1.2815516)
        low, high = model.interval(asked, 0.9, method=method, replicates=10)
        up = spread if method == "closed-form" else np.maximum(*spreads.values())
        np.testing.assert_allclose(high, table + both * up)
        multiple = np.clip(one + 0.2 * (table / spread - one), one, both)
        np.testing.assert_allclose(low, np.maximum(0, table - multiple * spread), atol=1e-9)
    wider = model.interval(asked, 0.99, replicates=10)
    assert (wider[0] <= low).all()
    assert (wider[1] >= high).all()
    full = model_of(D, "abc bcd", total=N)
    low, high = full.interval("a", 0.5)
    np.testing.assert_allclose(high - low, 2 * 0.6744897501960817 * full.stderr("a"))


def coverage(fits, attributes) -> float:
    """The share of true counts inside the 90 % intervals of (model, table) pairs."""
    inside = []
    for model, table in fits:
        low, high = model.interval(attributes, 0.9, replicates=25)
        order = D.clique(attributes)
        truth = marginal_of(model.domain, table, order)
        inside.append((low <= truth) & (truth <= high))
    return float(np.mean(inside))


def test_coverage_where_cells_are_full() -> None:
    """Closed form: 90 % of 90 % intervals hold the truth; 40 fits of 24 cells leave a standard error below 0.02."""
    table = full_table(D)
    fits = [
        (
            reconstruct(
                D,
                measured(D, "abc bcd cde", (20.0, 8.0), np.random.default_rng(s)),
                fit=LeastSquares(consistency="local"),
            ),
            table,
        )
        for s in range(40)
    ]
    assert 0.86 < coverage(fits, ("a", "b", "c")) < 0.94


def test_coverage_where_cells_are_near_zero() -> None:
    """288 cells leave a standard error of 0.02; docs/uncertainty.md has the larger run."""
    found = coverage([sparse_model(s) for s in range(12)], ("a", "b", "c"))
    assert 0.84 < found < 0.96


def test_bad_arguments_are_named() -> None:
    model = model_of(D, "ab bc", total=N)
    with pytest.raises(
        ConsilienceError, match="method must be one of auto, closed-form, bootstrap, got 'x'"
    ):
        model.stderr("a", method="x")
    with pytest.raises(ConsilienceError, match="replicates must be at least 2, got 1"):
        model.stderr("a", method="bootstrap", replicates=1)
    for level in (0.0, 1.0, 90):
        with pytest.raises(ConsilienceError, match="level must be between 0 and 1"):
            model.interval("a", level)
    with pytest.raises(DomainError, match=r"some measured clique must contain .*'bootstrap'"):
        model.stderr(("a", "c", "d"), method="closed-form")
    assert model.stderr(("a", "c"), method="bootstrap", replicates=2).shape == D.shape_of("ac")
    with pytest.raises(MeasurementError, match="one column per cell"):
        model.stderr("a", np.ones((1, 3)))
    through = reconstruct(D, [Measurement("c", np.arange(1.0, 5), stddev=1.0, query=Prefix(4))])
    with pytest.raises(
        MeasurementError, match=r"need measurements of whole tables, got a query on \('c',\)"
    ):
        through.stderr("c", method="closed-form")
    wide = model_of(SMALL, "ab bc ac", total=N, fit=LeastSquares(consistency="global"))
    with pytest.raises(DomainError, match=r"some measured clique must contain \('a', 'b', 'c'\)"):
        wide.stderr(("a", "b", "c"), method="closed-form")
    assert wide.stderr(("a", "b"), method="closed-form").shape == (2, 3)
    prior = reconstruct(
        D, measured(D, "ab bc", (20.0,), np.random.default_rng(0)), total=N, fit=Shrunk()
    )
    with pytest.raises(ConsilienceError, match=r"got a model by Shrunk; use method='bootstrap'"):
        prior.stderr("a", method="closed-form")


def test_the_exact_laplace_likelihood_has_its_own_errors() -> None:
    """It weighs what tables say of each other by medians, not means; only the bootstrap knows the spread of that."""
    made = measured(SMALL, "ab bc ac", (40.0,), np.random.default_rng(6), noise="laplace")
    model = reconstruct(SMALL, made, total=N, fit=LaplaceLikelihood(consistency="local"))
    assert not closed_form_holds(model)
    with pytest.raises(ConsilienceError, match="those of least squares, got a model by LaplaceL"):
        model.stderr("a", method="closed-form")
    found = model.uncertainty(("a", "b"), replicates=20)
    assert found.method == "bootstrap"
    assert (found.stderr > 0).all()
