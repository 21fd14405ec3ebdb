"""Budgets divided between levels: expected errors beside a dense solve, optimised shares beside others, the census's own."""

from __future__ import annotations

import numpy as np
import pytest

import consilience as cs
from consilience.mechanisms.level_shares import CENSUS, LevelDesign

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
