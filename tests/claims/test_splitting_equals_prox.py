"""Two roads to one optimum: the splitting solver, Prox-PGM and a generic quadratic programming solver agree."""

from functools import cache

import numpy as np
import pytest

from consilience.domain import Domain
from consilience.errors import DomainError, RegionGraphError
from consilience.measurements import Identity, Kronecker, Measurement, Prefix, SquaredLoss
from consilience.regions import RegionGraph
from consilience.solvers.prox import prox_pgm
from consilience.solvers.solution import Solution
from consilience.solvers.splitting import splitting
from solvers.problems import BUILDERS, RECORDS, D, Judged, cliques_of, noisy, solve_generically

PREFIX_BOTH = Kronecker([Prefix(4), Identity(3)])
CASES = {
    # cliques measured, noise levels in turn, queries
    "pairs in a loop": ("ab bc cd de ae", (20.0,), {}),
    "pairs, unequal noise": ("ab bc cd de ae ac", (10.0, 40.0, 20.0), {}),
    "pairs, little noise": ("ab bc cd ac", (0.5,), {}),
    "pairs, much noise": ("ab bc cd ac", (300.0,), {}),
    "triples": ("abc bcd cde abe", (20.0,), {}),
    "triples, unequal noise": ("abc bcd abe", (15.0, 30.0), {}),
    "disconnected": ("ab cd e", (20.0, 10.0), {}),
    "cliques inside cliques": ("abc bcd ab c de", (20.0, 10.0), {}),
    "one clique twice": ("abc abc cd", (20.0, 30.0), {}),
    "prefix sums on one attribute": ("ab bc c cd", (20.0, 10.0), {"c": Prefix(4)}),
    "a query on a pair": ("ce bc de", (20.0,), {"ce": PREFIX_BOTH}),
    "the whole domain": ("abcde", (20.0,), {}),
}


@cache
def problem(case: str, kind: str) -> tuple[SquaredLoss, RegionGraph]:
    words, sigmas, queries = CASES[case]
    loss = SquaredLoss(D, noisy(D, words, 7, sigmas, queries), RECORDS)
    return loss, BUILDERS[kind](D, cliques_of(words))


@cache
def judged(case: str, kind: str) -> Judged:
    loss, graph = problem(case, kind)
    return solve_generically(graph, loss)


@cache
def by_splitting(case: str, kind: str) -> Solution:
    loss, graph = problem(case, kind)
    return splitting(loss, graph, tolerance=1e-9)


def distance(loss: SquaredLoss, one, other) -> float:
    """The largest difference of a cell over measured cliques; unmeasured tables need not be unique."""
    return max(float(np.abs(one.project(c) - other.project(c)).max()) for c in loss.cliques)


EVERYWHERE = [(case, kind) for case in CASES for kind in BUILDERS]


@pytest.mark.parametrize("case, kind", EVERYWHERE)
def test_splitting_equals_a_generic_solver(case: str, kind: str) -> None:
    loss, graph = problem(case, kind)
    found, judge = by_splitting(case, kind), judged(case, kind)
    assert found.status.converged
    assert found.objective == pytest.approx(judge.objective, rel=1e-7)
    # A relative gap of 1e-9 pins the fitted answers, not each cell of a table seen through a query, to about 3e-5.
    assert distance(loss, found.tau, judge.tau) < 1e-5
    assert found.violation < 1e-9
    assert graph.local_polytope_violation(found.tau) == found.violation
    assert found.tau.values.min() >= 0
    # The value is that of the returned tables, not of some other point.
    assert loss.value_and_grad(found.tau)[0] == pytest.approx(found.objective, rel=1e-10)


@pytest.mark.parametrize("case, kind", EVERYWHERE)
def test_prox_equals_splitting(case: str, kind: str) -> None:
    loss, graph = problem(case, kind)
    one, other = prox_pgm(loss, graph, tolerance=1e-4), by_splitting(case, kind)
    assert one.objective == pytest.approx(other.objective, rel=1e-6)
    assert distance(loss, one.tau, other.tau) < 1e-4
    assert one.violation < 1e-9
    assert one.tau.values.min() >= 0


@pytest.mark.parametrize("iterations", [0, 1, 5, 40])
@pytest.mark.parametrize("solver", [splitting, prox_pgm])
@pytest.mark.parametrize("case, kind", EVERYWHERE)
def test_certificates_hold_at_every_stop(case: str, kind: str, solver, iterations: int) -> None:
    """bound <= optimum <= objective, however early the solver is stopped, and the point is feasible."""
    loss, graph = problem(case, kind)
    found, optimum = solver(loss, graph, iterations=iterations), judged(case, kind).objective
    slack = 1e-9 * optimum
    assert found.bound <= optimum + slack
    assert found.objective >= optimum - slack
    assert found.iterations == iterations
    assert graph.local_polytope_violation(found.tau) < 1e-9
    assert loss.value_and_grad(found.tau)[0] == pytest.approx(found.objective, rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_random_clique_sets(seed: int) -> None:
    """Cliques, noise levels and data drawn at random, on all three graphs."""
    rng = np.random.default_rng(seed)
    pool = [
        tuple(c) for c in ("ab", "ac", "ad", "bc", "be", "cd", "de", "abd", "ace", "bce", "cde")
    ]
    words = " ".join("".join(pool[i]) for i in rng.choice(len(pool), 4, replace=False))
    loss = SquaredLoss(D, noisy(D, words, seed, tuple(rng.uniform(5, 50, 4))))
    for build in BUILDERS.values():
        graph = build(D, cliques_of(words))
        judge = solve_generically(graph, loss)
        found = splitting(loss, graph, tolerance=1e-9)
        assert found.objective == pytest.approx(judge.objective, rel=1e-7)
        assert distance(loss, found.tau, judge.tau) < 1e-4


def test_a_warm_start_needs_fewer_iterations() -> None:
    loss, graph = problem("triples", "saturated")
    for solver in (splitting, prox_pgm):
        first = solver(loss, graph, tolerance=1e-4)
        again = solver(loss, graph, tolerance=1e-4, state=first.state)
        assert again.status.converged
        assert again.iterations <= first.iterations
        assert again.objective == pytest.approx(first.objective, rel=1e-4)


@pytest.mark.parametrize("kind", BUILDERS)
def test_impossible_cells_stay_empty(kind: str) -> None:
    """Masks on cliques that regions share, one with its axes in another order; one cell is impossible by implication."""
    words = "abc bcd cde ae"
    loss = SquaredLoss(D, noisy(D, words, 3), RECORDS)
    graph = BUILDERS[kind](D, cliques_of(words))
    cd = np.array([[1, 0], [1, 1], [0, 1], [0, 0]], bool)
    ec = np.array([[1, 1, 0, 1], [1, 1, 1, 1], [0, 1, 1, 1]], bool)
    found = splitting(loss, graph, possible={("c", "d"): cd, ("e", "c"): ec}, tolerance=1e-8)
    judge = solve_generically(graph, loss, {("c", "d"): cd, ("c", "e"): ec.T})
    assert found.status.converged
    assert not found.tau.project(("c", "d"))[~cd].any()
    assert not found.tau.project(("c", "e"))[~ec.T].any()
    assert not found.tau.project(("c",))[3].any()
    assert found.objective == pytest.approx(judge.objective, rel=1e-7)
    assert found.objective > splitting(loss, graph).objective * (1 + 1e-3)
    assert found.bound <= judge.objective * (1 + 1e-9)
    assert graph.local_polytope_violation(found.tau) < 1e-9
    # Stopped early the point is feasible all the same, and nothing is claimed that does not hold.
    early = splitting(loss, graph, possible={("c", "d"): cd, ("e", "c"): ec}, iterations=3)
    assert not early.tau.project(("c", "d"))[~cd].any()
    assert early.bound <= judge.objective <= early.objective
    assert graph.local_polytope_violation(early.tau) < 1e-9


def test_masks_that_do_not_fit_are_named() -> None:
    loss = SquaredLoss(D, noisy(D, "ab bcd", 3), RECORDS)
    graph = RegionGraph.saturated(D, cliques_of("ab bcd"))
    for possible, words in (
        (
            {("a", "b"): np.ones((3, 2), bool)},
            r"of \('a', 'b'\) must have shape \(2, 3\), got \(3, 2\)",
        ),
        ({("a", "b"): np.ones((2, 3))}, "True or False in every cell, got type float64"),
        (
            {("a", "e"): np.ones((2, 3), bool)},
            r"some region must contain .*\('a', 'e'\), none does",
        ),
        ({("b",): np.zeros(3, bool)}, "must leave some cell of .* possible, they leave none"),
    ):
        with pytest.raises(DomainError, match=words):
            splitting(loss, graph, possible=possible)


def test_masks_that_contradict_each_other_are_named() -> None:
    """a = b, b = c and a != c leave every single cell possible and no distribution."""
    domain = Domain({"a": 2, "b": 2, "c": 2})
    cliques = cliques_of("ab bc ac")
    made = [Measurement(c, np.full((2, 2), 25.0), stddev=5.0) for c in cliques]
    same = np.eye(2, dtype=bool)
    possible = {("a", "b"): same, ("b", "c"): same, ("a", "c"): ~same}
    loss = SquaredLoss(domain, made, 100.0)
    # Locally consistent tables exist (half and half everywhere); globally there are none.
    fine = splitting(loss, RegionGraph.saturated(domain, cliques), possible=possible)
    np.testing.assert_allclose(fine.tau["a", "b"], [[0.5, 0], [0, 0.5]], atol=1e-6)
    with pytest.raises(DomainError, match=r"must leave some cell of .* possible"):
        splitting(loss, RegionGraph.junction_tree(domain, cliques), possible=possible)


def test_a_factor_graph_with_queries_on_overlapping_cliques_is_refused() -> None:
    """Tables that the graph leaves apart must not be tied on the quiet."""
    words = "abc abd ab"
    loss = SquaredLoss(D, noisy(D, words, 1, queries={"ab": Prefix(6)}), RECORDS)
    graph = RegionGraph.factor_graph(D, cliques_of(words))
    with pytest.raises(
        RegionGraphError, match=r"contain \('a', 'b'\) tied on it.*use solver='prox'"
    ):
        splitting(loss, graph)
    judge = solve_generically(graph, loss)
    assert prox_pgm(loss, graph, tolerance=1e-5).objective == pytest.approx(
        judge.objective, rel=1e-6
    )


def test_measurements_of_the_total_are_a_constant() -> None:
    made = noisy(D, "ab bc", 5)
    graph = RegionGraph.saturated(D, cliques_of("ab bc"))
    plain = splitting(SquaredLoss(D, made, RECORDS), graph, tolerance=1e-9)
    told = SquaredLoss(D, [*made, Measurement((), [RECORDS + 30], stddev=10.0)], RECORDS)
    found = splitting(told, graph, tolerance=1e-9)
    assert found.objective == pytest.approx(plain.objective + 4.5, rel=1e-8)
    np.testing.assert_allclose(found.tau.values, plain.tau.values, atol=1e-6)
