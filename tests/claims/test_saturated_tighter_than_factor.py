"""More edges, smaller polytope, larger least loss: factor graph <= saturated <= junction tree, and closer to the truth."""

import numpy as np
import pytest

from consilience.domain import Domain
from consilience.measurements import Measurement, SquaredLoss
from consilience.regions import RegionGraph
from consilience.solvers.splitting import splitting
from solvers.problems import RECORDS, D, cliques_of, marginal_of, noisy, true_counts

CLIQUE_SETS = ["ab bc cd ad", "abc bcd abd", "abcd bce cde", "abc cde ae", "ab cd", "abc bc cd"]


def least_loss(loss: SquaredLoss, graph: RegionGraph) -> tuple[float, float]:
    """(bound, objective): the optimum is certified to lie between."""
    found = splitting(loss, graph, tolerance=1e-9)
    assert found.status.converged
    return found.bound, found.objective


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("words", CLIQUE_SETS)
def test_the_least_loss_grows_with_the_constraints(words: str, seed: int) -> None:
    loss = SquaredLoss(D, noisy(D, words, seed, (40.0,)), RECORDS)
    cliques = cliques_of(words)
    factor = least_loss(loss, RegionGraph.factor_graph(D, cliques))
    saturated = least_loss(loss, RegionGraph.saturated(D, cliques))
    extra = RegionGraph.saturated(D, cliques, extra=[("a", "b", "c", "d")])
    more = least_loss(loss, extra)
    tree = least_loss(loss, RegionGraph.junction_tree(D, cliques))
    for weaker, stronger in ((factor, saturated), (saturated, more), (saturated, tree)):
        assert stronger[1] >= weaker[0] * (1 - 1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_strictly_where_cliques_share_two_attributes(seed: int) -> None:
    loss = SquaredLoss(D, noisy(D, "abc bcd", seed, (40.0,)), RECORDS)
    cliques = cliques_of("abc bcd")
    factor = least_loss(loss, RegionGraph.factor_graph(D, cliques))
    saturated = least_loss(loss, RegionGraph.saturated(D, cliques))
    assert saturated[0] > factor[1] * 1.01


def test_strictly_where_a_loop_hides_a_contradiction() -> None:
    """a = b, b = c, a != c, measured with little noise: fine for each pair of tables, impossible together."""
    domain = Domain({"a": 2, "b": 2, "c": 2})
    same, different = np.eye(2) * 50.0, (1 - np.eye(2)) * 50.0
    tables = {("a", "b"): same, ("b", "c"): same, ("a", "c"): different}
    loss = SquaredLoss(domain, [Measurement(c, y, stddev=1.0) for c, y in tables.items()], 100.0)
    local = splitting(loss, RegionGraph.saturated(domain, list(tables)), tolerance=1e-6)
    tree = splitting(loss, RegionGraph.junction_tree(domain, list(tables)), tolerance=1e-6)
    assert local.objective < 1e-6
    # Each of the eight cells misses one table at least: the best joint spreads its mass evenly over the misses.
    assert tree.bound > 100.0


def test_tighter_is_closer_to_the_truth_on_average() -> None:
    """Projection onto a smaller convex set that holds the truth: the weighted distance to it can only shrink in the mean."""
    words, errors = "abc bcd abd", {"factor": 0.0, "saturated": 0.0}
    cliques = cliques_of(words)
    for seed in range(8):
        loss = SquaredLoss(D, noisy(D, words, seed, (40.0,)), RECORDS)
        truth = true_counts(D, seed) / RECORDS
        for kind, graph in (
            ("factor", RegionGraph.factor_graph(D, cliques)),
            ("saturated", RegionGraph.saturated(D, cliques)),
        ):
            tau = splitting(loss, graph, tolerance=1e-6).tau
            errors[kind] += sum(
                float(np.square(tau[c] - marginal_of(D, truth, c)).sum()) for c in cliques
            )
    assert errors["saturated"] < 0.95 * errors["factor"]
