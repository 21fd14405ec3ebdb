"""Budgets divided between levels: expected errors beside a dense solve, optimised shares beside others, the census's own."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest

import consilience as cs
from consilience.mechanisms.level_shares import CENSUS, LevelDesign
from consilience.privacy.noise import SeededNoise

D = cs.Domain(
    {"block": 24, "sex": 2, "race": 3},
    levels={"tract": ("block", np.repeat(np.arange(6), 4)), "county": ("tract", [0, 0, 1, 1, 2, 2])},
)  # fmt: skip
TABLES = [("county", "sex", "race"), ("tract", "sex"), ("block", "sex", "race"), ("race",)]
BUDGET = cs.Budget(rho=0.5, neighbours="add-remove")


def matrix_of(clique) -> np.ndarray:  # type: ignore[no-untyped-def]
    found = np.ones((1, 1))
    for a in D:
        name = next((n for n in clique if D.clique(n) == (a,)), None)
        axis = np.ones((1, D[a])) if name is None else np.eye(D[a])
        if name in D.levels:
            axis = np.zeros((D[name], D[a]))
            axis[D.levels[name].units, np.arange(D[a])] = 1.0
        found = np.kron(found, axis)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_expected_errors_are_those_of_a_dense_solve(seed):
    workload = cs.Workload(D, dict.fromkeys(TABLES, 1.0))
    design = LevelDesign.of(workload)
    shares = np.random.default_rng(seed).dirichlet(np.ones(len(workload)))
    rows = [matrix_of(c) for c in workload]
    spread = np.linalg.inv(sum(s * m.T @ m for s, m in zip(shares, rows, strict=True)))
    wanted = [np.diag(m @ spread @ m.T).mean() for m in rows]
    np.testing.assert_allclose(design.variances(shares), wanted, rtol=1e-9)


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_optimised_shares_beat_others(power):
    workload = cs.Workload(D, dict.fromkeys(TABLES, 1.0))
    design = LevelDesign.of(workload)

    def cost(shares):  # type: ignore[no-untyped-def]
        return np.sqrt(design.variances(shares ** (2 * power))).sum()

    best = design.best(power)
    assert best.sum() == pytest.approx(1.0)
    rng = np.random.default_rng(0)
    others = [np.full(4, 0.25), *rng.dirichlet(np.ones(4), 50)]
    near = [b / b.sum() for b in best * np.exp(0.05 * rng.normal(size=(50, 4)))]
    assert all(cost(best) <= cost(o) * (1 + 1e-6) for o in [*others, *near])


def test_a_mechanism_takes_them_and_says_what_to_expect():
    workload = cs.Workload(D, dict.fromkeys(TABLES, 1.0))
    ready = cs.mechanisms.Gaussian(workload).calibrate(BUDGET)
    equal = cs.mechanisms.Gaussian(workload, weights=dict.fromkeys(TABLES, 1.0)).calibrate(BUDGET)
    assert len({w.value for w in ready.widths.values()}) > 1
    assert sum(ready.expected_fit.values()) < sum(equal.expected_fit.values())
    assert ready.cost.rho.value == pytest.approx(0.5, rel=1e-6)
    assert all(ready.expected_fit[c] <= ready.expected_rmse[c] for c in workload)


def test_no_tree_no_change():
    flat = cs.Workload(D, {("block", "sex"): 1.0, ("race",): 1.0})
    ready = cs.mechanisms.Gaussian(flat).calibrate(BUDGET)
    assert ready.expected_fit is None
    assert len({w.value for w in ready.widths.values()}) == 1


def test_the_census_preset():
    levels = {"group": ("block", np.arange(24) // 2), "tract": ("group", np.arange(12) // 2)}
    levels |= {"county": ("tract", np.arange(6) // 2), "state": ("county", [0, 0, 0])}
    domain = cs.Domain({"block": 24, "sex": 2}, levels=levels)
    names = ("state", "county", "tract", "group", "block")
    workload = cs.Workload(domain, {(n, "sex"): 1.0 for n in names})
    ready = cs.mechanisms.Gaussian(workload, weights="census").calibrate(BUDGET)
    got = np.array([ready.widths[(n, "sex")].value ** -2.0 for n in names])
    np.testing.assert_allclose(got / got.sum(), np.array(CENSUS[5]) / sum(CENSUS[5]), rtol=1e-3)
    with pytest.raises(cs.ConsilienceError, match="five levels"):
        cs.mechanisms.Gaussian(cs.Workload(D, dict.fromkeys(TABLES, 1.0)), weights="census")


# -- residuals -------------------------------------------------------------------------------------


def residual_matrix(part) -> np.ndarray:  # type: ignore[no-untyped-def]
    """What a part measures, as a matrix on the joint table."""
    table = matrix_of(part.clique)
    return np.stack([part.query.exact(row.astype(np.int64)) for row in table.T]).T / part.query.unit


def dense_rmse(ready) -> list[float]:  # type: ignore[no-untyped-def]
    """By least squares of the parts on the joint table, the total known where it is public."""
    rows = [residual_matrix(p) / p.stddev for p in ready.parts]
    if ready.budget.neighbours.total_public:
        rows.append(np.full((1, 144), 1e5))
    spread = np.linalg.inv(sum(m.T @ m for m in rows))
    tables = [matrix_of(c) for c in ready.workload]
    return [np.sqrt(np.diag(m @ spread @ m.T).mean()) for m in tables]


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_residuals_at_levels_err_as_expected(neighbours):
    workload = cs.Workload(D, dict.fromkeys(TABLES, 1.0))
    budget = cs.Budget(rho=0.5, neighbours=neighbours)
    ready = cs.mechanisms.ResidualPlanner(workload).calibrate(budget)
    tables = cs.mechanisms.Gaussian(workload).calibrate(budget)
    assert ready.cost.rho.value == pytest.approx(0.5, rel=1e-6)
    np.testing.assert_allclose(list(ready.expected_rmse.values()), dense_rmse(ready), rtol=1e-5)
    assert sum(ready.expected_rmse.values()) < sum(tables.expected_fit.values())


def test_no_other_precisions_of_residuals_are_better():
    workload = cs.Workload(D, {c: 1.0 + i for i, c in enumerate(TABLES)})
    design = LevelDesign.of(workload)
    best = design.residual_precisions(total_public=False)
    sizes = np.array(
        [np.prod([design.parts.shape[i] for i in s]) for s in design.parts.subsets] + [6]
    )
    copies, price = 6 / sizes, design.parts.dimensions / sizes

    def cost(precisions):  # type: ignore[no-untyped-def]
        spent = (precisions * price).sum()
        return design.weights @ np.sqrt(design.variances_given(precisions / spent * copies))

    rng = np.random.default_rng(1)
    for size in (0.01, 0.1, 1.0):
        for _ in range(30):
            other = best * np.exp(size * rng.normal(size=best.shape))
            other += size * (rng.random(best.shape) < 0.1) * best.max() * rng.random(best.shape)
            assert cost(best) <= cost(other) * (1 + 1e-9)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_no_neighbours_are_told_apart_better_than_is_charged(neighbours, rows):
    """Every way in which a unit's rows can come, go or change; the worst is charged exactly, but for the number of rows."""
    small = cs.Domain({"s": 2, "b": 3}, levels={"t": ("b", [0, 0, 1])})
    workload = cs.Workload(small, [("s", "t"), ("s", "b"), ("s",)])
    whose = {} if rows == 1 else {"unit": "person", "rows_per_unit": rows}
    budget = cs.Budget(rho=0.5, neighbours=neighbours, **whose)
    ready = cs.mechanisms.ResidualPlanner(workload).calibrate(budget)

    def answers(held):  # type: ignore[no-untyped-def]
        table = np.zeros((2, 3), np.int64)
        for cell in held:
            table[cell] += 1
        out = []
        for p in ready.parts:
            gone = tuple(i for i, a in enumerate(small) if a not in small.clique(p.clique))
            read = small.coarsened(table.sum(axis=gone), p.clique)
            out.append(p.query.exact(read).ravel() / p.width.value)
        return np.concatenate(out)

    cells = list(np.ndindex(2, 3))
    held = [list(h) for k in range(1, rows + 1) for h in combinations_with_replacement(cells, k)]
    after = held if neighbours == "replace-one" else [[]]
    worst = max(np.square(answers(x) - answers(y)).sum() for x in held for y in after)
    charged = 2 * float(ready.cost.rho.value)
    assert worst <= charged * (1 + 1e-12)
    if (neighbours, rows) != ("replace-one", 2):
        assert worst == pytest.approx(charged, rel=1e-6)


def people(seed: int) -> cs.Dataset:
    rng = np.random.default_rng(seed)
    return cs.Dataset(np.stack([rng.integers(0, n, 3000) for n in D.shape], 1), D)


def test_a_release_of_residuals_is_fitted_on_the_tree():
    """The fit is that of the general road on the same measurements, and the truth lies as near as was expected."""
    workload = cs.Workload(D, dict.fromkeys(TABLES, 1.0))
    ready = cs.mechanisms.ResidualPlanner(workload).calibrate(BUDGET)
    data = people(0)
    off = {c: [] for c in workload}
    for seed in range(12):
        result = ready(data, noise=SeededNoise(seed=seed))
        assert result.model.diagnostics.method == "splitting on a tree of places"
        for c in workload:
            off[c].append(np.square(result.model.marginal(c) - data.marginal(c)).mean())
    for c in workload:
        assert np.sqrt(np.mean(off[c])) == pytest.approx(ready.expected_rmse[c], rel=0.35)


def test_levels_that_do_not_lie_in_each_other_are_refused():
    domain = cs.Domain({"a": 4}, levels={"x": ("a", [0, 0, 1, 1]), "y": ("a", [0, 1, 0, 1])})
    with pytest.raises(cs.ConsilienceError, match="lie in each other"):
        cs.mechanisms.ResidualPlanner(cs.Workload(domain, {("x",): 1.0, ("y",): 1.0}))
