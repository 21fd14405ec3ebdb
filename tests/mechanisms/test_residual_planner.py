"""ResidualPlanner: the closed-form plan, errors that come true, reconstruction from equivalent tables, audits."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from scipy.optimize import minimize

import consilience.mechanisms.integer_queries
import consilience.mechanisms.residual_parts
import consilience.privacy.calibration
import consilience.privacy.cost
from consilience.domain import Domain, Workload, all_marginals
from consilience.errors import BudgetError, CapacityError, DomainError
from consilience.fits import LeastSquares, SelectionLikelihood, Shrunk, reconstruct
from consilience.measurements import Centring
from consilience.mechanisms import HDMM, ResidualPlan, ResidualPlanner
from consilience.mechanisms.fixed import add_noise
from consilience.privacy import (
    Budget,
    Cost,
    Ledger,
    Neighbours,
    SeededNoise,
    Sigma,
    residual_family,
    residuals,
    run_audit,
)
from consilience.records import Dataset
from mechanisms.cases import DOMAIN, FIRE_TRIPLES, WORKLOAD, fire_workload, people

DATA = people(400)
BUDGETS = [
    Budget(epsilon=1, delta=1e-6, neighbours="replace-one"),
    Budget(epsilon=1, delta=1e-6, neighbours="add-remove", accounting="gaussian"),
    Budget(rho=0.5, neighbours="add-remove"),
    Budget(rho=0.5, neighbours="replace-one"),
]
RELATIONS = [Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE]

# -- the plan --------------------------------------------------------------------------------------------

LISTED = (1.000, 1.105, 1.629, 2.392, 3.324, 3.965, 5.647, 7.630, 10.67, 13.83)
UNIT_RMSE = dict(zip(FIRE_TRIPLES, LISTED, strict=True))


@pytest.mark.parametrize("k", UNIT_RMSE)
def test_expected_rmse_at_unit_sigma_on_fire(k):
    workload = fire_workload(k)
    plan = ResidualPlan.of(workload, Neighbours.ADD_REMOVE)
    assert plan.unit_rmse == pytest.approx(UNIT_RMSE[k], rel=1e-3)


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_the_plan_is_optimal(neighbours):
    """A numerical optimiser over the shares of the budget finds nothing better, and the same shares."""
    workload = Workload(DOMAIN, {("age", "sex"): 2.0, ("sex", "region"): 1.0, ("income",): 0.5})
    plan = ResidualPlan.of(workload, neighbours)
    places = plan.lattice.places(workload)
    weight = np.square(list(workload.values())) * plan.lattice.cells[places]

    def error(logits):
        shares = np.exp(logits - logits.max())
        variance = plan.price / (shares / shares.sum())
        return math.log(weight @ plan.cell_variances(variance)[places])

    best = minimize(error, np.zeros(len(plan.measured)), method="BFGS", options={"gtol": 1e-9})
    assert error(np.log(plan.shares)) <= best.fun + 1e-9
    shares = np.exp(best.x)
    np.testing.assert_allclose(plan.shares, shares / shares.sum(), rtol=2e-3)
    assert plan.shares.sum() == pytest.approx(1)


def test_the_plan_reaches_the_singular_value_bound():
    """No Gaussian mechanism does better, so HDMM's weighted marginals do not either."""
    domain = Domain({"a": 2, "b": 3, "c": 4, "d": 3})
    workload = Workload(domain, [("a", "b"), ("b", "c"), ("c", "d"), ("a", "b", "d")])
    stacked = []
    for clique in workload:
        m = np.ones((1, 1))
        for a, n in domain.sizes.items():
            m = np.kron(m, np.eye(n) if a in clique else np.ones((1, n)))
        stacked.append(m)
    values = np.linalg.svd(np.concatenate(stacked), compute_uv=False)
    bound = values.sum() ** 2 / domain.size()
    plan = ResidualPlan.of(workload, Neighbours.ADD_REMOVE)
    assert plan.unit_rmse**2 * workload.cells == pytest.approx(bound, rel=1e-9)
    rival = HDMM(workload, noise="gaussian", slack=0).calibrate(BUDGETS[2])
    assert rival.expected_overall_rmse >= plan.unit_rmse * (1 - 1e-9)


# -- a calibration ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", BUDGETS)
def test_cost_is_known_before_data_and_uses_the_budget(budget):
    ready = ResidualPlanner(WORKLOAD).calibrate(budget)
    assert budget.admits(ready.cost)
    spent = budget.spent(ready.cost)
    assert float(spent.value) == pytest.approx(float(budget.capacity.value), rel=1e-6)
    if budget.rho is not None and budget.neighbours == Neighbours.ADD_REMOVE:
        assert ready.expected_overall_rmse == pytest.approx(ready.noise.unit_rmse, rel=1e-3)


@pytest.mark.parametrize("budget", BUDGETS)
def test_expected_variances_come_true(budget):
    """Unbiased answers on many draws spread as was said: not 0.9 and not 1.1 times as much."""
    ready = ResidualPlanner(WORKLOAD).calibrate(budget)
    noise, exact, runs = SeededNoise(seed=2), DATA.marginals(WORKLOAD), 200
    draws = np.stack(
        [
            ready.unbiased(ready.measure(DATA, noise=noise)).values - exact.values
            for _ in range(runs)
        ]
    )
    spread = draws.std(axis=0) / math.sqrt(runs)
    assert (np.abs(draws.mean(axis=0)) < 5 * spread + 1e-9).all(), "unbiased"
    offsets = exact.layout.offsets
    for i, clique in enumerate(WORKLOAD):
        observed = math.sqrt(np.mean(draws[:, offsets[i] : offsets[i + 1]] ** 2))
        assert observed == pytest.approx(ready.expected_rmse[clique], rel=0.08), clique
        assert ready.expected_variance(clique) == pytest.approx(ready.expected_rmse[clique] ** 2)
    assert ready.expected_variance("sex") > 0
    with pytest.raises(DomainError, match="some clique of the workload must contain"):
        ready.expected_variance(("age", "income"))


def test_unbiased_answers_agree_with_one_another():
    ready = ResidualPlanner(WORKLOAD).calibrate(BUDGETS[0])
    tables = ready.unbiased(ready.measure(DATA))
    np.testing.assert_allclose(tables[("age", "sex")].sum(axis=1), tables[("age",)])
    np.testing.assert_allclose(
        tables[("age", "sex")].sum(axis=0), tables[("sex", "region")].sum(axis=1)
    )
    assert tables[("age",)].sum() == pytest.approx(DATA.records), "public under replace-one"


def test_measurements_are_whole_numbers_over_the_cells():
    ready = ResidualPlanner(WORKLOAD).calibrate(BUDGETS[2])
    for part, m in zip(ready.parts, ready.measure(DATA).measurements, strict=True):
        scaled = m.values * part.query.unit
        np.testing.assert_allclose(scaled, np.rint(scaled), atol=1e-9)
        if m.attributes:
            assert isinstance(m.query, Centring)


# -- reconstruction --------------------------------------------------------------------------------------


def exact_weights(ready) -> bool:
    """Whether plain tables can stand for the residuals without any change of what counts."""
    lattice, measured = ready.noise.lattice, ready.noise.measured
    told = (lattice.drops @ ready.precision)[measured]
    wanted = np.array([part.stddev**-2.0 for part in ready.parts])
    return bool(np.allclose(told, wanted))


@pytest.mark.parametrize("budget", [BUDGETS[0], BUDGETS[2]])
def test_equivalent_tables_give_the_model_that_the_residuals_give(budget):
    workload = Workload(DOMAIN, [("age", "sex"), ("region",)])
    ready = ResidualPlanner(
        workload, fit=LeastSquares(consistency="local", tolerance=1e-9)
    ).calibrate(budget)
    release = ready.measure(DATA, noise=SeededNoise(seed=4))
    if budget.neighbours == Neighbours.REPLACE_ONE:
        assert exact_weights(ready)
    ours = ready.reconstruct(release).model
    graph = ours.graph
    judge = reconstruct(
        DOMAIN,
        release.measurements,
        total=ours.total,
        fit=LeastSquares(consistency=graph, tolerance=1e-9),
    )
    if exact_weights(ready):
        for clique in workload:
            np.testing.assert_allclose(ours.marginal(clique), judge.marginal(clique), atol=0.02)
    else:
        assert ours.total == pytest.approx(max(1.0, float(release.measurements[0].values[0])))


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_call_gives_a_consistent_model(budget, tmp_path):
    ready = ResidualPlanner(WORKLOAD).calibrate(budget)
    ledger = Ledger.create(tmp_path / "l", table="people", total=budget)
    result = ready(DATA, ledger=ledger)
    assert ledger.read().spent == ready.cost
    assert "ResidualPlanner: 4 cliques by" in ledger.read().entries[0].description
    assert result.private
    assert result.diagnostics.converged
    for clique in WORKLOAD:
        assert result.model.marginal(clique).min() >= 0
    if budget.neighbours == Neighbours.REPLACE_ONE:
        assert result.model.total == DATA.records
    else:
        assert result.model.total == pytest.approx(float(result.measurements[0].values[0]))


def test_reconstruction_is_closer_than_least_squares():
    ready = ResidualPlanner(WORKLOAD).calibrate(BUDGETS[0])
    exact, ours, straight = DATA.marginals(WORKLOAD), 0.0, 0.0
    for seed in range(10):
        release = ready.measure(DATA, noise=SeededNoise(seed=seed))
        model = ready.reconstruct(release).model
        straight += np.square(ready.unbiased(release).values - exact.values).sum()
        ours += sum(np.square(model.marginal(c) - exact[c]).sum() for c in WORKLOAD)
    assert ours < straight


@pytest.mark.parametrize("fit", [LeastSquares(), Shrunk()], ids=repr)
def test_attributes_of_one_value(fit):
    domain = Domain({"a": 3, "one": 1, "b": 4})
    workload = Workload(domain, [("a", "one"), ("one", "b"), ("a", "b")])
    ready = ResidualPlanner(workload, fit=fit).calibrate(BUDGETS[0])
    assert all("one" not in part.clique for part in ready.parts)
    rng = np.random.default_rng(0)
    columns = [rng.integers(n, size=90) for n in domain.shape]
    data = Dataset(np.column_stack(columns), domain)
    model = ready(data).model
    assert model.marginal(("a", "one")).shape == (3, 1)


# -- audits ----------------------------------------------------------------------------------------------

SMALL = Domain({"a": 2, "b": 3})
PAIRS = {
    "replace-one": ([(0, 0), (1, 1)], [(1, 1), (1, 1)]),
    "add-remove": ([(0, 0), (1, 1)], [(1, 1)]),
    "replace a person": ([(0, 0)] * 3 + [(1, 1)], [(1, 1)] * 4),
    "add a person": ([(0, 0)] * 3 + [(1, 1)], [(1, 1)]),
}
"""The worst neighbours of each relation; `test_no_neighbours_are_worse` looks at all."""
RUNS = 20_000


def ready_for(neighbours: str):
    relation = {"replace a person": "replace-one", "add a person": "add-remove"}
    whose = {"unit": "person", "rows_per_unit": 3} if neighbours in relation else {}
    budget = Budget(
        epsilon=1,
        delta=1e-2,
        accounting="gaussian",
        neighbours=relation.get(neighbours, neighbours),
        **whose,
    )
    return ResidualPlanner(Workload(SMALL, [("a", "b")])).calibrate(budget)


def apart(ready, pair) -> float:
    """The squared distance of two tables' residuals, each over its noise: twice the rho that tells them apart."""
    first, second = (exact_of(ready, rows) for rows in pair)
    moved = zip(first, second, ready.parts, strict=True)
    return sum(float(((x - y) ** 2).sum()) / part.width.value**2 for x, y, part in moved)


@pytest.mark.parametrize("neighbours", PAIRS)
def test_no_neighbours_are_worse(neighbours):
    """Of all, the pair that is audited is told apart best; and what is charged is what tells it apart."""
    ready, cells = ready_for(neighbours), list(product(range(2), range(3)))
    most = 3 if "person" in neighbours else 1
    held = [list(h) for k in range(1, most + 1) for h in combinations_with_replacement(cells, k)]
    after = held if "replace" in neighbours else [[]]
    worst = max(apart(ready, ([*x, (1, 1)], [*y, (1, 1)])) for x in held for y in after)
    assert apart(ready, PAIRS[neighbours]) == pytest.approx(worst, rel=1e-12)
    charged = 2 * float(ready.cost.rho.value)
    if (
        neighbours == "replace a person"
    ):  # the number of rows, which no such pair moves, is charged by itself
        charged -= 2 * float(ready.parts[0].cost(ready.budget.neighbours).rho.value)
    assert charged == pytest.approx(worst, rel=1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("sigma", [1.0, 5.0])
def test_one_residual_costs_what_it_costs_alone(relation, sigma):
    alone = Cost.gaussian(residuals(relation, (3, 2)), Sigma(sigma))
    assert Cost.residuals(relation, (3, 2), [(0, 1)], [Sigma(sigma)]) == alone


def test_a_table_of_two_by_two_costs_a_third_less():
    """The example of the review: each residual at its own worst would cost half as much again."""
    domain, relation = Domain({"a": 2, "b": 2}), Neighbours.REPLACE_ONE
    budget = Budget(rho=Fraction(1, 3), neighbours=relation)
    ready = ResidualPlanner(Workload(domain, [("a", "b")])).calibrate(budget)
    alone = Cost.sum(relation, (part.cost(relation) for part in ready.parts))
    assert float(ready.cost.rho.value) == pytest.approx(1 / 3, rel=1e-9)
    assert float(alone.rho.value) == pytest.approx(1 / 2, rel=1e-9)


def exact_of(ready, rows) -> list[np.ndarray]:
    counts = Dataset(np.array(rows), SMALL).marginals([part.clique for part in ready.parts])
    return [p.query.exact(counts[p.clique].astype(np.int64)).ravel() for p in ready.parts]


def test_a_call_draws_as_the_audits_do():
    """The audits below draw many calls at once; one call is one of those."""
    ready, rows = ready_for("add-remove"), PAIRS["add-remove"][0]
    widths = [part.width for part in ready.parts]
    together = add_noise(SeededNoise(seed=9), exact_of(ready, rows), widths, None)
    release = ready.measure(Dataset(np.array(rows), SMALL), noise=SeededNoise(seed=9))
    for part, values, m in zip(ready.parts, together, release.measurements, strict=True):
        np.testing.assert_array_equal(m.values.ravel(), values / part.query.unit)


def passes(neighbours, ready, confidence, noise=None) -> bool:
    """The most powerful statistic: the likelihood ratio of all residuals. Seeded noise has the law of the secure one, which
    tests/privacy audits, and is quick.
    """
    pair, source = PAIRS[neighbours], noise or SeededNoise(seed=6)
    widths = [part.width for part in ready.parts]
    first, second = (exact_of(ready, rows) for rows in pair)

    def sampler(rows, runs):
        many = [np.tile(x, (runs, 1)) for x in exact_of(ready, rows)]
        noisy = add_noise(source, many, widths, None)
        parts = zip(noisy, first, second, widths, strict=True)
        return sum(y @ (a - b) / width.value**2 for y, a, b, width in parts)

    promise = ready_for(neighbours).cost
    return run_audit(sampler, pair, promise, runs=RUNS, confidence=confidence).passed


class Narrow(SeededNoise):
    """Planted: noise of half the width asked for."""

    def discrete_gaussian(self, counts, sigma, progress=None):
        return super().discrete_gaussian(counts, Sigma(0.5 * sigma.value), progress)


@pytest.mark.parametrize("neighbours", PAIRS)
def test_the_real_thing_passes(neighbours):
    assert passes(neighbours, ready_for(neighbours), 1 - 1e-6)


@pytest.mark.parametrize("neighbours", PAIRS)
def test_too_little_noise_is_found_out(neighbours):
    assert not passes(neighbours, ready_for(neighbours), 0.99, Narrow(seed=7))


@pytest.mark.parametrize("neighbours", PAIRS)
def test_half_the_sensitivity_is_found_out(neighbours, monkeypatch):
    def halved(*given, **more):
        true = residuals(*given, **more)
        return replace(true, l2_squared=true.l2_squared / 4)

    for module in (
        consilience.mechanisms.residual_parts,
        consilience.mechanisms.integer_queries,
    ):
        monkeypatch.setattr(module, "residuals", halved)
    for module in (consilience.privacy.calibration, consilience.privacy.cost):
        monkeypatch.setattr(module, "residual_family", lambda *a: residual_family(*a) / 4)
    ready = ready_for(neighbours)
    monkeypatch.undo()
    assert not passes(neighbours, ready, 0.99)


def test_add_remove_noise_under_replace_one_is_found_out(monkeypatch):
    """Planted: the price of the other relation, which is half as high or less."""

    def other(neighbours, *more, **also):
        true = residuals(Neighbours.ADD_REMOVE, *more, **also)
        return replace(true, neighbours=neighbours)

    def others(neighbours, *more):
        return residual_family(Neighbours.ADD_REMOVE, *more)

    for module in (
        consilience.mechanisms.residual_parts,
        consilience.mechanisms.integer_queries,
    ):
        monkeypatch.setattr(module, "residuals", other)
    for module in (consilience.privacy.calibration, consilience.privacy.cost):
        monkeypatch.setattr(module, "residual_family", others)
    ready = ready_for("replace-one")
    monkeypatch.undo()
    assert not passes("replace-one", ready, 0.99)


# -- refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make, error, words",
    [
        (
            lambda: ResidualPlanner(WORKLOAD).calibrate(Budget(epsilon=1, neighbours="add-remove")),
            BudgetError,
            "give the budget a delta (or rho), or use HDMM with Laplace noise",
        ),
        (
            lambda: ResidualPlanner(all_marginals(Domain({"a": 1000, "b": 1000, "c": 1000}), 3)),
            CapacityError,
            "1,000,000,000 cells need",
        ),
        (
            lambda: ResidualPlanner(WORKLOAD, fit=LeastSquares(memory="1.5 kB")).calibrate(BUDGETS[0]),
            CapacityError,
            "the tables of the residuals must fit the memory budget of 1.5 kB",
        ),
        (
            lambda: ResidualPlanner(WORKLOAD).calibrate(Budget(rho=1e-36, neighbours="add-remove")),
            ValueError,
            "must be at most 2^50",
        ),
        (
            lambda: ResidualPlanner(WORKLOAD, fit=SelectionLikelihood()),
            ValueError,
            "fits the choices of FEM and DualQuery (Selections), got tables with gaussian noise",
        ),
        (lambda: ResidualPlanner(WORKLOAD, fit="mine"), ValueError, "fit must be an estimator"),
        (
            lambda: ResidualPlanner(WORKLOAD, fit=LeastSquares("very")).calibrate(BUDGETS[0]),
            ValueError,
            "consistency must be",
        ),
    ],
)  # fmt: skip
def test_the_impossible_is_refused_before_anything_is_spent(make, error, words):
    with pytest.raises(error) as caught:
        make()
    assert words in str(caught.value)
