"""Under mbi: its measurements, losses, constraints and warm starts in, its MarkovRandomField out. Runs the mbi that is installed,
1.1 or 2.0; `tests/adapters/test_functions.py` has what needs none.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import consilience as cs
from consilience.adapters.mbi import Estimator, replacing
from consilience.errors import AdapterError

pytestmark = pytest.mark.slow

SIZES = {"a": 3, "b": 4, "c": 2, "d": 5}
CLIQUES = [("a", "b"), ("c", "b"), ("d", "a"), ("c",)]


@pytest.fixture(scope="module")
def mbi() -> Any:
    jax = pytest.importorskip("jax", reason="needs jax")
    jax.config.update("jax_enable_x64", True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("mbi", reason="needs mbi")


def data(mbi: Any, sizes: dict = SIZES, seed: int = 0, rows: int = 2000) -> Any:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 6, rows)
    columns = {
        a: (first * (i + 1) + rng.integers(0, 3, rows)) % n
        for i, (a, n) in enumerate(sizes.items())
    }
    return mbi.Dataset(columns, mbi.Domain.fromdict(sizes))


def noisy(mbi: Any, cliques=CLIQUES, stddev: float = 6.0, seed: int = 1, rows=None) -> list[Any]:
    rng = np.random.default_rng(seed)
    rows = data(mbi) if rows is None else rows
    return [
        mbi.LinearMeasurement(
            np.asarray(rows.project(c).datavector()) + rng.normal(0, stddev, rows.domain.size(c)), c, stddev
        )
        for c in cliques
    ]  # fmt: skip


def theirs(mbi: Any, domain: Any, made: Any, **options: Any) -> Any:
    if hasattr(mbi.estimation, "MirrorDescent"):
        return mbi.estimation.MirrorDescent().estimate(domain, made, iters=3000, **options)
    return mbi.estimation.mirror_descent(domain, made, iters=3000, **options)


def table(model: Any, clique) -> np.ndarray:
    return np.asarray(model.project(clique).datavector(flatten=False))


def test_the_same_optimum_as_mbi(mbi: Any) -> None:
    domain, made = data(mbi).domain, noisy(mbi)
    ours = Estimator(cs.LeastSquares("global", tolerance=1e-8)).estimate(domain, made)
    judge = theirs(mbi, domain, made)
    assert float(ours.total) == pytest.approx(float(judge.total), rel=1e-6)
    for clique in [*CLIQUES, ("b",), ("c", "d"), ("d", "b", "a")]:
        assert table(ours, clique).shape == table(judge, clique).shape
        np.testing.assert_allclose(table(ours, clique), table(judge, clique), atol=0.5)


def test_it_is_a_markov_random_field_with_potentials_of_its_own(mbi: Any) -> None:
    domain, made = data(mbi).domain, noisy(mbi)
    for fit in (None, cs.LeastSquares(), cs.LeastSquares("local"), cs.LatentClasses()):
        model = Estimator(fit).estimate(domain, made)
        assert isinstance(model, mbi.MarkovRandomField)
        assert model.domain == domain
        assert isinstance(model.cliques, list)
        found = mbi.marginal_oracles.message_passing_stable(model.potentials, float(model.total))
        near = 1e-6 if isinstance(fit, cs.LeastSquares) and fit.consistency == "auto" else 30.0
        for clique in [("a", "b"), ("d",)]:
            np.testing.assert_allclose(table(found, clique), table(model, clique), atol=near)
        assert model.supports("a")
        assert not model.supports("who")
        np.testing.assert_allclose(
            np.asarray(model.marginals.project(("a",)).datavector()),
            table(model, ("a",)),
            atol=1e-6,
        )


def test_rows_follow_the_global_seed(mbi: Any) -> None:
    model = Estimator().estimate(data(mbi).domain, noisy(mbi))
    drawn = []
    for _ in range(2):
        np.random.seed(7)  # noqa: NPY002
        drawn.append(model.synthetic_data(rows=500))
    pairs = [np.asarray(d.project(("a", "b")).datavector()) for d in drawn]
    np.testing.assert_array_equal(*pairs)
    assert pairs[0].sum() == 500
    assert (
        np.abs(pairs[0] / 500 - table(model, ("a", "b")).reshape(-1) / float(model.total)).sum()
        < 0.1
    )


def test_nothing_measured_and_the_total_alone(mbi: Any) -> None:
    domain = data(mbi).domain
    model = Estimator().estimate(domain, [], known_total=100.0)
    np.testing.assert_allclose(table(model, ("a", "c")), np.full((3, 2), 100 / 6))
    assert model.cliques == []
    alone = Estimator().estimate(domain, [mbi.LinearMeasurement(np.array([50.0]), (), 2.0)])
    assert float(alone.total) == pytest.approx(50.0)
    assert float(Estimator().estimate(domain, []).total) == 1.0


def test_a_warm_start_goes_on(mbi: Any) -> None:
    domain, made = data(mbi).domain, noisy(mbi)
    estimator = Estimator(cs.LeastSquares("global"))
    first = estimator.estimate(domain, made)
    cliques = [m.clique for m in made]
    for warm in ({"warm_start": first}, {"potentials": first.potentials.expand(cliques)}):
        again = estimator.estimate(domain, made, **warm)
        assert again.ours.diagnostics.iterations < first.ours.diagnostics.iterations
    own = theirs(mbi, domain, made)
    assert estimator.estimate(domain, made, warm_start=own).ours.diagnostics.converged


def test_queries(mbi: Any) -> None:
    """Cells with weights, some of the cells, and sums, as code: judged by mbi's own estimate."""
    rows = data(mbi)
    domain, y = rows.domain, np.asarray(rows.project(("a", "b")).datavector())
    w = np.linspace(0.5, 2.0, 12)
    queries = {
        "weights": (lambda f: f.datavector() * w, y * w),
        "one weight": (lambda f: f.datavector() * 0.5, y * 0.5),
        "some": (lambda f: f.datavector()[:5], y[:5]),
        "others": (lambda f: f.datavector()[3:], y[3:]),
        "sums": (lambda f: f.project(("b",)).datavector(), y.reshape(3, 4).sum(axis=0)),
    }
    for query, values in queries.values():
        made = [
            *noisy(mbi, [("a", "b"), ("b", "c")]),
            mbi.LinearMeasurement(values + 3.0, ("a", "b"), 2.0, query),
        ]
        ours = Estimator(cs.LeastSquares("global", tolerance=1e-8)).estimate(
            domain, made, known_total=2000.0
        )
        judge = theirs(mbi, domain, made, known_total=2000.0)
        np.testing.assert_allclose(table(ours, ("a", "b")), table(judge, ("a", "b")), atol=1.0)


def test_losses(mbi: Any) -> None:
    domain, made = data(mbi).domain, noisy(mbi)
    build = mbi.marginal_loss.from_linear_measurements
    seen: list[Any] = []
    if hasattr(mbi, "Constraint"):
        loss = build(made, domain)
        model = Estimator().estimate(domain, loss, known_total=2000.0, callback_fn=seen.append)
        assert model.total == 2000.0
        assert len(seen) == 1
        laplace = Estimator().estimate(domain, build(made, domain, norm="l1"), known_total=2000.0)
        assert isinstance(laplace.ours.fit, cs.LaplaceLikelihood)
        other = build(made, domain, normalize=True)
    else:
        other = build(made)
    with pytest.raises(AdapterError, match="must be a list of LinearMeasurement"):
        Estimator().estimate(domain, other)


def test_constraints(mbi: Any) -> None:
    if not hasattr(mbi, "Constraint"):
        pytest.skip("needs mbi 2.0, which has constraints")
    domain, made = data(mbi).domain, noisy(mbi)
    given = [
        mbi.Constraint(domain.project(("b", "a")), invalid=np.array([[0, 0], [3, 2]])),
        mbi.Constraint(domain.project(("a", "c")), mapping=np.array([0, 1, 1])),
        mbi.Constraint(
            domain.project(("c", "b")), valid=np.array([[0, 0], [0, 1], [1, 1], [1, 2], [1, 3]])
        ),
    ]
    model = Estimator().estimate(domain, made, constraints=given)
    assert table(model, ("a", "b"))[0, 0] == table(model, ("a", "b"))[2, 3] == 0.0
    assert table(model, ("a", "c"))[0, 1] == table(model, ("a", "c"))[1, 0] == 0.0
    assert table(model, ("b", "c"))[2, 0] == 0.0
    rows = model.synthetic_data(300)
    assert np.asarray(rows.project(("a", "c")).datavector(flatten=False))[0, 1] == 0
    with pytest.raises(AdapterError, match="keeps combinations impossible, got PossibleCells"):
        Estimator(cs.PossibleCells()).estimate(domain, made, constraints=given)


def test_in_the_place_of_mbis_own(mbi: Any) -> None:
    domain, made = data(mbi).domain, noisy(mbi)
    name = "MirrorDescent" if hasattr(mbi.estimation, "MirrorDescent") else "mirror_descent"
    before = getattr(mbi.estimation, name)
    with replacing(cs.LeastSquares()) as ours:
        found = getattr(mbi.estimation, name)
        if name == "mirror_descent":
            model = found(domain, made, iters=10, stepsize=1.0)
        else:
            model = found(None, stepsize=1.0).estimate(domain, made, iters=10)
            assert ours.precompile(domain, made).result() is None
        assert isinstance(model.ours, cs.Model)
    assert getattr(mbi.estimation, name) is before


def test_numbers_for_names_and_labels(mbi: Any) -> None:
    sizes = {0: 3, 1: 4, 2: 2}
    rows = data(mbi, sizes)
    model = Estimator().estimate(rows.domain, noisy(mbi, [(1, 0), (2, 1)], rows=rows))
    assert table(model, (1, 0)).shape == (4, 3)
    assert table(model, (2,)).shape == (2,)
    assert model.potentials.domain == rows.domain
    assert set(model.synthetic_data(10).domain.attributes) == {0, 1, 2}


# -- mechanisms ------------------------------------------------------------------------------------


def mwem(mbi: Any, rows: Any, estimate: Any, rounds: int = 4) -> Any:
    """The loop of MWEM+PGM as mbi's users write it, without noise in the choice: start from nothing, go on from the last."""
    candidates = [(a, b) for i, a in enumerate(SIZES) for b in list(SIZES)[i + 1 :]]
    model, made = estimate(rows.domain, [], known_total=2000.0), []
    rng = np.random.default_rng(3)
    for _ in range(rounds):
        away = {
            c: np.abs(table(model, c) - np.asarray(rows.project(c).datavector(flatten=False))).sum()
            for c in candidates
        }
        worst = max(candidates, key=away.__getitem__)
        y = np.asarray(rows.project(worst).datavector()) + rng.normal(
            0, 6.0, rows.domain.size(worst)
        )
        made.append(mbi.LinearMeasurement(y, worst, 6.0))
        cliques = list(dict.fromkeys(m.clique for m in made))
        model = estimate(
            rows.domain, made, known_total=2000.0, potentials=model.potentials.expand(cliques)
        )
    return model


def test_a_mechanism_in_rounds(mbi: Any) -> None:
    rows = data(mbi)
    model = mwem(mbi, rows, Estimator().estimate)
    pairs = [("a", "b"), ("a", "d"), ("b", "d")]
    away = [
        np.abs(table(model, c) - np.asarray(rows.project(c).datavector(flatten=False))).sum()
        for c in pairs
    ]
    assert max(away) < 400
    assert model.synthetic_data().project(("a",)).datavector().sum() == 2000


def test_the_call_of_dpsynth(mbi: Any) -> None:
    """As `generate_synthetic_data_from_marginals` makes it: cells that were not measured have weight 0."""
    rows = data(mbi)
    seen = np.ones(12)
    seen[[2, 7]] = 0.0
    y = np.asarray(rows.project(("a", "b")).datavector()) * seen
    made = [
        mbi.LinearMeasurement(y, ("a", "b"), query=lambda f: f.datavector() * seen),
        *noisy(mbi, [("c",)], stddev=1.0),
    ]
    model = Estimator().estimate(
        rows.domain, made, iters=100, callback_fn=lambda _: None, known_total=2000.0, constraints=()
    )
    found = table(model, ("a", "b")).reshape(-1)
    np.testing.assert_allclose(found[seen > 0], y[seen > 0], atol=1.0)
    assert found[[2, 7]].sum() == pytest.approx(2000.0 - y.sum(), abs=10.0)
    assert sum(model.synthetic_data(100).to_dict()["a"] >= 0) == 100
