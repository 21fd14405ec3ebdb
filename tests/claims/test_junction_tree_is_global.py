"""On a junction tree local consistency is global; a saturated graph is at least as tight as a factor graph."""

import numpy as np
import pytest
from scipy.optimize import linprog

from claims.judges import constraints, joint, marginals, random_vector
from consilience.domain import CliqueVector, Domain
from consilience.regions import JunctionTree, RegionGraph
from consilience.solvers.convex_gbp import convex_gbp
from consilience.tree.oracle import exact_marginals

D = Domain({"a": 2, "b": 3, "c": 2, "d": 2})
CLIQUES = {
    "loop": ["ab", "bc", "cd", "ad"],
    "triangle": ["ab", "bc", "ac"],
    "tree": ["ab", "bc", "cd"],
    "triples": ["abc", "bcd", "ad"],
    "disconnected": ["ab", "cd"],
}


def cliques_of(case: str) -> list[tuple[str, ...]]:
    return [tuple(c) for c in CLIQUES[case]]


def realisable(tau: CliqueVector) -> float:
    """The least L1 distance from tau to the marginals of any joint distribution, by a linear programme over all cells."""
    n, m = D.size(), tau.values.size
    to_marginals = np.concatenate(
        [marginals(D, e.reshape(D.shape), tau.cliques).values[:, None] for e in np.eye(n)], axis=1
    )
    found = linprog(
        np.concatenate([np.zeros(n), np.ones(2 * m)]),
        A_eq=np.block(
            [[to_marginals, np.eye(m), -np.eye(m)], [np.ones((1, n)), np.zeros((1, 2 * m))]]
        ),
        b_eq=np.concatenate([tau.values, [1.0]]),
    )
    return float(found.fun)


@pytest.mark.parametrize("case", CLIQUES)
def test_a_point_of_the_junction_trees_polytope_is_realisable(case: str) -> None:
    graph = RegionGraph.junction_tree(D, cliques_of(case))
    theta = random_vector(D, graph.regions, np.random.default_rng(1), 5.0)
    tau = convex_gbp(graph, theta, tolerance=1e-12)
    assert realisable(tau) < 1e-9


def test_a_point_of_a_loops_polytope_need_not_be() -> None:
    """Three attributes, each pair all but opposite: consistent two by two, impossible together."""
    domain_cliques = [("a", "c"), ("c", "d"), ("a", "d")]
    graph = RegionGraph.saturated(D, domain_cliques)
    theta = CliqueVector.zeros(D, domain_cliques)
    for clique in domain_cliques:
        theta[clique] = 10.0 * np.array([[0, 1], [1, 0]])
    tau = convex_gbp(graph, theta, tolerance=1e-12)
    assert graph.local_polytope_violation(tau) < 1e-11
    assert realisable(tau) > 0.5


@pytest.mark.parametrize("case", CLIQUES)
def test_exact_marginals_solve_problem_3_with_the_bethe_counting_numbers(case: str) -> None:
    """The joint's entropy is sum of clique entropies minus separators'; positive kappa reach it by theta alone.

    H(p) = sum_C H_C - sum_S H_S. With kappa = 1 everywhere Problem 3 has extra separator entropies; a theta that makes up for
    their gradient at the exact marginals must give these marginals back.
    """
    theta = random_vector(D, cliques_of(case), np.random.default_rng(2))
    graph = RegionGraph.junction_tree(D, cliques_of(case))
    mu, _ = exact_marginals(D, theta, graph.regions)
    tree = JunctionTree.of(D, cliques_of(case))
    lifted = theta.expand(graph.regions)
    for region in graph.regions:
        count = float(region in tree.cliques) - tree.separators.count(region)
        lifted[region] = lifted[region] + (1 - count) * np.log(mu[region])
    tau = convex_gbp(graph, lifted, tolerance=1e-13)
    np.testing.assert_allclose(tau.values, mu.values, atol=1e-10)


@pytest.mark.parametrize("case", CLIQUES)
def test_exact_marginals_lie_in_every_local_polytope(case: str) -> None:
    cliques = cliques_of(case)
    theta = random_vector(D, cliques, np.random.default_rng(3), 3.0)
    p, _ = joint(theta)
    for graph in (
        RegionGraph.saturated(D, cliques),
        RegionGraph.factor_graph(D, cliques),
        RegionGraph.junction_tree(D, cliques),
        RegionGraph.saturated(D, cliques, extra=[("a", "b", "d")]),
    ):
        assert graph.local_polytope_violation(marginals(D, p, graph.regions)) < 1e-12


def implies(strong: RegionGraph, weak: RegionGraph, regions) -> bool:
    """Whether the equalities of `strong` imply those of `weak` on the regions' tables (rank of stacked rows)."""
    a, b = constraints(strong)
    rows = np.column_stack([a, b])
    c, d = constraints(weak)
    place = np.concatenate(
        [
            np.arange(strong.layout.offsets[i], strong.layout.offsets[i + 1])
            for i in (strong.regions.index(r) for r in weak.regions)
        ]
    )
    wide = np.zeros((len(c), strong.layout.cells))
    wide[:, place] = c
    stacked = np.vstack([rows, np.column_stack([wide, d])])
    assert set(regions) <= set(weak.regions)
    return np.linalg.matrix_rank(stacked) == np.linalg.matrix_rank(rows)


def with_singletons(cliques) -> list[tuple[str, ...]]:
    return [*cliques, *({(a,): None for c in cliques for a in c})]


@pytest.mark.parametrize("case", CLIQUES)
def test_saturated_is_at_least_as_tight_as_the_factor_graph(case: str) -> None:
    cliques = cliques_of(case)
    weak = RegionGraph.factor_graph(D, cliques)
    strong = RegionGraph.saturated(D, with_singletons(cliques))
    assert implies(strong, weak, cliques)


def test_and_strictly_tighter_where_cliques_share_two_attributes() -> None:
    cliques = [("a", "b", "c"), ("b", "c", "d")]
    weak = RegionGraph.factor_graph(D, cliques)
    strong = RegionGraph.saturated(D, with_singletons(cliques))
    assert implies(strong, weak, cliques)
    with_pair = RegionGraph(D, [*weak.regions, ("b", "c")], [*weak.edges, (cliques[0], ("b", "c"))])
    assert not implies(with_pair, strong, cliques)
    # A point that the factor graph accepts: b and c equal in one table, opposite in the other.
    tau = CliqueVector.uniform(D, weak.regions)
    tau[cliques[0]] = np.broadcast_to([[0.25, 0], [0, 0.25], [0, 0]], (2, 3, 2))
    tau[cliques[1]] = np.broadcast_to(
        np.array([[0, 0.25], [0.25, 0], [0, 0]])[..., None], (3, 2, 2)
    )
    tau["b",] = [0.5, 0.5, 0]
    assert weak.local_polytope_violation(tau) < 1e-15
    assert realisable(tau) > 0.5


@pytest.mark.parametrize("case", CLIQUES)
def test_the_junction_tree_is_at_least_as_tight_as_saturated(case: str) -> None:
    cliques = cliques_of(case)
    saturated = RegionGraph.saturated(D, cliques)
    tree = RegionGraph.junction_tree(D, cliques)
    # The tree's tables determine the saturated graph's: project a point of the one, land in the other.
    tau = convex_gbp(
        tree, random_vector(D, tree.regions, np.random.default_rng(4), 4.0), tolerance=1e-13
    )
    landed = CliqueVector.from_tables(D, {r: tau.project(r) for r in saturated.regions})
    assert saturated.local_polytope_violation(landed) < 1e-11
