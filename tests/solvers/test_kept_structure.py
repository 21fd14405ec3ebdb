"""A refit to other draws keeps what was compiled, and nothing else: same answer, same ties, never another graph's."""

from __future__ import annotations

import numpy as np

from consilience.measurements import SquaredLoss
from consilience.regions import RegionGraph
from consilience.solvers.split_problem import SplitProblem
from consilience.solvers.splitting import SplittingState, splitting
from solvers.problems import RECORDS, D, cliques_of, noisy

WORDS = "abc bcd de b"
GRAPH = RegionGraph.saturated(D, cliques_of(WORDS))


def loss(seed: int, words: str = WORDS) -> SquaredLoss:
    return SquaredLoss(D, noisy(D, words, seed), RECORDS)


def test_ties_are_kept_and_the_answer_is_that_of_a_fresh_solve() -> None:
    first = splitting(loss(1), GRAPH)
    kept = splitting(loss(2), GRAPH, state=first.state)
    bare = splitting(loss(2), GRAPH, state=SplittingState(first.state.v.copy(), first.state.rho))
    fresh = splitting(loss(2), GRAPH)
    assert kept.state.structure is first.state.structure
    assert bare.state.structure is not first.state.structure
    np.testing.assert_allclose(kept.tau.values, fresh.tau.values, atol=1e-4)
    assert kept.objective <= fresh.objective * (1 + 2e-6)


def test_another_graph_or_other_cliques_are_compiled_anew() -> None:
    first = splitting(loss(1), GRAPH).state
    again = RegionGraph.saturated(D, cliques_of(WORDS))
    assert splitting(loss(2), again, state=first.copy()).state.structure is not first.structure
    other = splitting(loss(2, "abc bcd de c"), GRAPH, state=first.copy())
    assert other.state.structure is not first.structure
    fresh = splitting(loss(2, "abc bcd de c"), GRAPH)
    np.testing.assert_allclose(other.tau.values, fresh.tau.values, atol=1e-4)


def test_a_larger_graph_goes_on_from_the_tables_that_it_shares() -> None:
    small = splitting(loss(1, "abc bcd"), RegionGraph.saturated(D, cliques_of("abc bcd")))
    known = small.state.by_clique()
    problem = SplitProblem(GRAPH, loss(1))
    carried = small.state.carried_into(problem)
    assert carried.rho == small.state.rho
    assert list(carried.by_clique()) == list(problem.root_cliques)
    assert set(known) < set(problem.root_cliques)
    for clique, v in carried.by_clique().items():
        if clique in known:
            np.testing.assert_array_equal(v, known[clique])
    before = {c: v.copy() for c, v in known.items()}
    found, fresh = (splitting(loss(1), GRAPH, state=s) for s in (small.state, None))
    assert found.status.converged
    assert found.objective <= fresh.objective * (1 + 2e-6)
    for clique, v in small.state.by_clique().items():
        np.testing.assert_array_equal(v, before[clique])
