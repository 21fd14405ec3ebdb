"""Measurements at levels of one attribute are fitted on its tree, to the optimum that the general road reaches."""

from __future__ import annotations

import numpy as np
import pytest

import consilience as cs
from consilience.measurements import SquaredLoss
from consilience.solvers.place_reading import METHOD, read_tree
from consilience.solvers.splitting import splitting

DOMAIN = cs.Domain(
    {"age": 2, "block": 9, "sex": 3},
    levels={"tract": ("block", [0, 2, 1, 1, 0, 2, 2, 2, 1]), "county": ("tract", [1, 0, 0])},
)
CLIQUES = [
    ("county", "age", "sex"),
    ("tract", "age"),
    ("age", "block", "sex"),
    ("sex",),
    ("tract",),
]


def noisy(seed: int, cliques=CLIQUES, mean: float = 2.0) -> list[cs.Measurement]:
    rng = np.random.default_rng(seed)
    joint = rng.poisson(mean, DOMAIN.shape).astype(float)
    found = []
    for clique in cliques:
        named = DOMAIN.named(clique)
        away = tuple(i for i, a in enumerate(DOMAIN) if a not in DOMAIN.clique(clique))
        table = DOMAIN.coarsened(joint.sum(axis=away), named)
        stddev = float(rng.uniform(0.5, 3.0))
        found.append(
            cs.Measurement(named, table + rng.normal(0, stddev, table.shape), stddev=stddev)
        )
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_tree_reaches_the_optimum_of_the_general_road(seed):
    given = noisy(seed)
    model = cs.reconstruct(DOMAIN, given, 100.0, cs.LeastSquares(tolerance=1e-8))
    assert model.diagnostics.method == METHOD
    assert model.diagnostics.violation < 1e-9
    table = model.marginal(DOMAIN.attributes)
    assert table.min() >= 0
    assert table.sum() == pytest.approx(100.0)
    loss = SquaredLoss(DOMAIN, given, 100.0)
    general = splitting(loss, model.graph, tolerance=1e-8)
    assert model.diagnostics.objective == pytest.approx(general.objective, rel=1e-6)
    np.testing.assert_allclose(table.reshape(-1), 100.0 * general.tau.values, atol=0.02)
    own = loss.bind(model.tau.layout).value_and_grad(model.tau.values)[0]
    assert model.diagnostics.objective == pytest.approx(own, rel=1e-9)


def test_what_cannot_occur_stays_empty_on_the_tree():
    mask = np.ones((2, 3), bool)
    mask[0, 2] = False
    fit = cs.LeastSquares(possible={("age", "sex"): mask})
    model = cs.reconstruct(DOMAIN, noisy(1), fit=fit)
    assert model.diagnostics.method == METHOD
    assert (model.marginal(("age", "sex", "county"))[0, 2] == 0).all()


def test_levels_that_are_no_tree_take_the_general_road():
    crossed = cs.Domain(
        {"a": 4, "b": 2}, levels={"x": ("a", [0, 0, 1, 1]), "y": ("a", [0, 1, 0, 1])}
    )
    given = [
        cs.Measurement(("x", "b"), np.full((2, 2), 5.0), stddev=1.0),
        cs.Measurement(("y", "b"), np.full((2, 2), 5.0), stddev=1.0),
    ]
    model = cs.reconstruct(crossed, given)
    assert model.diagnostics.method == "splitting"
    np.testing.assert_allclose(model.marginal(("a", "b")), 2.5, atol=1e-6)
    assert read_tree(crossed, SquaredLoss(crossed, given).measurements) is None


def test_tables_that_no_clique_holds_together_take_the_general_road():
    model = cs.reconstruct(DOMAIN, noisy(2, [("tract", "age"), ("tract", "sex"), ("block",)]))
    assert model.diagnostics.method == "splitting"
    assert model.diagnostics.converged
    np.testing.assert_allclose(
        model.marginal(("tract", "age")).sum(axis=1), model.marginal("tract"), atol=1e-6
    )


@pytest.mark.parametrize("seed", range(3))
def test_two_hierarchies_reach_the_optimum_of_the_general_road(seed):
    """Places, and kinds of quarters in groups: the larger is the tree, sums over the other are queries on it."""
    domain = cs.Domain(
        {"quarters": 4, "block": 8, "sex": 2},
        levels={"tract": ("block", [0, 0, 1, 1, 2, 2, 2, 1]), "kind": ("quarters", [0, 1, 1, 1])},
    )
    rng = np.random.default_rng(seed)
    joint = rng.poisson(3.0, domain.shape).astype(float)
    given = []
    for clique in [("tract", "kind"), ("kind", "block", "sex"), ("kind",), ("quarters", "block", "sex")]:  # fmt: skip
        named = domain.named(clique)
        away = tuple(i for i, a in enumerate(domain) if a not in domain.clique(clique))
        table = domain.coarsened(joint.sum(axis=away), named)
        given.append(cs.Measurement(named, table + rng.normal(0, 2.0, table.shape), stddev=2.0))
    total = float(joint.sum())
    model = cs.reconstruct(domain, given, total, cs.LeastSquares(tolerance=1e-7))
    assert model.diagnostics.method == METHOD
    general = splitting(SquaredLoss(domain, given, total), model.graph, tolerance=1e-7)
    assert model.diagnostics.objective == pytest.approx(general.objective, rel=1e-5)
    np.testing.assert_allclose(
        model.marginal("kind"), domain.coarsened(model.marginal("quarters"), ("kind",))
    )
    assert (model.interval("kind")[1] > model.marginal("kind")).all()
