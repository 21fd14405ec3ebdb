"""TreePoint: tables of a junction tree that do not quite agree become one distribution's, and agreeing ones stay."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import consilience as cs
from consilience.tree.point import TreePoint

DOMAIN = cs.Domain({"a": 3, "b": 2, "c": 4, "d": 2, "e": 3})
CASES = {
    "chain": [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")],
    "cycle": [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("d", "e")],
    "star": [("a", "b"), ("a", "c"), ("a", "d"), ("a", "e")],
    "nested separators": [("a", "b", "c"), ("a", "b", "d"), ("a", "e")],
    "forest": [("a", "b"), ("c", "d"), ("e",)],
}


def roots_of(graph: cs.RegionGraph) -> list:
    return [graph.regions[i] for i in graph.roots]


@pytest.mark.parametrize("case", CASES)
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6), empty=st.booleans())
def test_any_tables_become_one_distribution(case: str, seed: int, empty: bool) -> None:
    graph = cs.RegionGraph.junction_tree(DOMAIN, CASES[case])
    rng = np.random.default_rng(seed)
    tables = {c: rng.gamma(0.3, size=DOMAIN.shape_of(c)) + 1e-9 for c in roots_of(graph)}
    if empty:  # a whole slice of one table has nothing to be scaled up
        tables[roots_of(graph)[-1]][0] = 0.0
    tree = TreePoint.of(graph)
    assert tree is not None
    tau = tree.near(cs.CliqueVector.from_tables(DOMAIN, tables))
    assert tau.values.min() >= 0
    assert graph.local_polytope_violation(tau) < 1e-12
    for clique in tau.cliques:
        assert tau[clique].sum() == pytest.approx(1.0)


@pytest.mark.parametrize("case", CASES)
def test_tables_of_a_distribution_stay_what_they_are(case: str) -> None:
    graph = cs.RegionGraph.junction_tree(DOMAIN, CASES[case])
    joint = np.random.default_rng(0).dirichlet(np.full(DOMAIN.size(), 0.3)).reshape(DOMAIN.shape)

    def marginal(clique: tuple[str, ...]) -> np.ndarray:
        return joint.sum(axis=tuple(i for i, a in enumerate(DOMAIN) if a not in clique))

    tables = {c: 7.0 * marginal(c) for c in roots_of(graph)}
    tau = TreePoint.of(graph).near(cs.CliqueVector.from_tables(DOMAIN, tables))
    for clique in tau.cliques:
        np.testing.assert_allclose(tau[clique], marginal(clique), atol=1e-14)


def test_only_junction_trees_have_one() -> None:
    assert TreePoint.of(cs.RegionGraph.saturated(DOMAIN, CASES["cycle"])) is None


def test_what_is_stopped_early_on_a_tree_is_close_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cell that is a little negative costs the mixture with the uniform table a lot, and the tree next to nothing."""
    domain = cs.Domain({"a": 40, "b": 15, "c": 10, "d": 6, "e": 4, "f": 3})
    pairs = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("d", "e"), ("e", "f"), ("c", "f")]
    rng = np.random.default_rng(1)
    codes = np.minimum(rng.geometric(0.15, (5000, 6)) - 1, np.array(domain.shape) - 1)
    truth = cs.Dataset(codes, domain).marginals(pairs)
    noisy = [
        cs.Measurement(c, t + rng.normal(0, 40, t.shape), stddev=40.0) for c, t in truth.items()
    ]
    loss = cs.SquaredLoss(domain, noisy, 5000.0)
    graph = cs.RegionGraph.junction_tree(domain, pairs)
    best = cs.splitting(loss, graph, tolerance=1e-8).objective
    early = cs.splitting(loss, graph, iterations=60)
    assert early.bound <= best <= early.objective
    monkeypatch.setattr(TreePoint, "of", lambda graph: None)
    mixed = cs.splitting(loss, graph, iterations=60)
    assert early.objective - best < 0.1 * (mixed.objective - best)
