"""Private-PGM (exact oracle): the optimum of Problem 1, by two methods, with a valid certificate."""

import numpy as np
import pytest

import consilience as cs

DOMAIN = cs.Domain({"a": 3, "b": 2, "c": 4, "d": 2})
CYCLE = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]
TREE = [("a", "b"), ("b", "c"), ("c", "d")]


def problem(cliques, seed=0, sigma=15.0):
    rng = np.random.default_rng(seed)
    joint = rng.dirichlet(np.full(DOMAIN.size(), 0.4)).reshape(DOMAIN.shape) * 800
    out = []
    for clique in cliques:
        axes = tuple(i for i, a in enumerate(DOMAIN) if a not in clique)
        table = joint.sum(axis=axes)
        out.append(
            cs.Measurement(clique, table + sigma * rng.standard_normal(table.shape), stddev=sigma)
        )
    return out


@pytest.mark.parametrize("cliques", [TREE, CYCLE], ids=["tree", "cycle"])
@pytest.mark.parametrize("accelerated", [False, True])
def test_reaches_the_optimum_over_the_marginal_polytope(cliques, accelerated):
    """The splitting solver on the junction tree's region graph solves the same problem another way."""
    loss = cs.SquaredLoss(DOMAIN, problem(cliques), 800)
    graph = cs.RegionGraph.junction_tree(DOMAIN, cliques)
    judge = cs.splitting(loss, graph, tolerance=1e-9)
    found = cs.private_pgm(loss, tolerance=1e-5, accelerated=accelerated)
    assert found.objective == pytest.approx(judge.objective, rel=2e-5)
    assert found.bound <= judge.objective * (1 + 1e-9) <= found.objective * (1 + 2e-9)
    for clique in cliques:
        assert np.abs(found.tau[clique] - judge.tau.project(clique)).max() < 2e-3


@pytest.mark.parametrize("steps", [1, 7])
def test_certificate_holds_when_stopped_early(steps):
    loss = cs.SquaredLoss(DOMAIN, problem(CYCLE), 800)
    best = cs.splitting(loss, cs.RegionGraph.junction_tree(DOMAIN, CYCLE), tolerance=1e-9).objective
    early = cs.private_pgm(loss, iterations=steps)
    assert early.iterations == steps
    assert early.bound <= best <= early.objective


@pytest.mark.parametrize("sharper", [1e-2, 1e4])
def test_acceleration_does_not_depend_on_the_unit_of_the_loss(sharper):
    """Noise `sharper` times smaller, said of the same tables, multiplies the loss and changes nothing else."""

    def found(scale):
        tables = [
            cs.Measurement(m.attributes, m.values, stddev=15.0 / scale) for m in problem(CYCLE)
        ]
        loss = cs.SquaredLoss(DOMAIN, tables, 800)
        graph = cs.RegionGraph.saturated(DOMAIN, CYCLE)
        return [
            cs.private_pgm(loss, iterations=60),
            cs.prox_pgm(loss, graph, iterations=60, accelerated=True),
        ]

    for plain, other in zip(found(1.0), found(sharper), strict=True):
        assert np.abs(other.tau.values - plain.tau.values).max() < 1e-6
        assert other.gap == pytest.approx(plain.gap, rel=1e-2, abs=1e-9)


def test_tables_are_realisable():
    """Marginals of one distribution agree with each other exactly."""
    found = cs.private_pgm(cs.SquaredLoss(DOMAIN, problem(CYCLE), 800), tolerance=1e-4)
    assert np.abs(found.tau[("a", "b")].sum(0) - found.tau[("b", "c")].sum(1)).max() < 1e-12
    assert found.tau.values.min() >= 0


def test_refuses_a_tree_that_does_not_fit():
    loss = cs.SquaredLoss(DOMAIN, problem(CYCLE), 800)
    with pytest.raises(cs.ConsilienceError, match="memory"):
        cs.private_pgm(loss, memory=100)
