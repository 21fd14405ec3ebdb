"""Theorem 1: Convex-GBP converges to the solution of Problem 3, the free energy over the local polytope."""

import itertools

import numpy as np
import pytest

from claims.judges import (
    constraints,
    free_energy,
    random_vector,
    solve_free_energy_generically,
)
from consilience.domain import CliqueVector, Domain
from consilience.errors import RegionGraphError
from consilience.regions import RegionGraph
from consilience.regions.wiring import Wiring
from consilience.solvers.convex_gbp import convex_gbp, solve_free_energy, start
from consilience.solvers.sweeper import Beliefs, Sweeper

D = Domain({"a": 2, "b": 3, "c": 2, "d": 3, "e": 2})
FIGURE_1 = [tuple(c) for c in ("abc", "ad", "bcd", "de")]
LOOP = [tuple(c) for c in ("ab", "bc", "cd", "ad", "ac")]
TRIPLES = [tuple(c) for c in ("abc", "bcd", "cde", "abe", "ade")]


def user_made(domain: Domain) -> RegionGraph:
    """Three levels, an edge that skips one, a region tied to nothing, and no singletons at all."""
    regions = [tuple(c) for c in ("abc", "bcd", "abd", "bc", "b", "e")]
    edges = [("abc", "bc"), ("bcd", "bc"), ("bc", "b"), ("abd", "b"), ("abc", "b")]
    return RegionGraph(domain, regions, [(tuple(p), tuple(c)) for p, c in edges])


GRAPHS = {
    "saturated": RegionGraph.saturated(D, FIGURE_1),
    "saturated, all Hasse edges": RegionGraph.saturated(D, TRIPLES, minimal=False),
    "saturated, minimal edges": RegionGraph.saturated(D, TRIPLES),
    "factor graph": RegionGraph.factor_graph(D, LOOP),
    "junction tree": RegionGraph.junction_tree(D, LOOP),
    "over-saturated": RegionGraph.saturated(D, LOOP, extra=[("a", "b", "e"), ("c", "d", "e")]),
    "user-made": user_made(D),
    "one region": RegionGraph(D, [("a", "b")], []),
}
SCHEDULES = ("sequential", "parallel")


def with_random_kappa(graph: RegionGraph, seed: int) -> RegionGraph:
    """Counting numbers from 0.1 to 10, and zero where a region has parents and no children."""
    rng = np.random.default_rng(seed)
    kappa = dict(zip(graph.regions, 10 ** rng.uniform(-1, 1, len(graph.regions)), strict=True))
    parents, children = {p for p, _ in graph.edges}, {c for _, c in graph.edges}
    for i, region in enumerate(sorted(children - parents)):
        kappa[region] = 0.0 if i % 2 == 0 else kappa[region]
    return graph.with_counting_numbers(kappa)


KAPPAS = {
    "kappa 1": lambda g: g,
    "kappa 0.3": lambda g: g.with_counting_numbers(0.3),
    "random kappa, some zero": lambda g: with_random_kappa(g, 0),
}


def potentials(graph: RegionGraph, seed: int, scale: float = 2.0) -> CliqueVector:
    """Random on every region whose counting number is positive."""
    theta = random_vector(D, graph.regions, np.random.default_rng(seed), scale)
    for region, kappa in zip(graph.regions, graph.counting_numbers, strict=True):
        if kappa == 0:
            theta[region][...] = 0
    return theta


@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("name", GRAPHS)
def test_solves_problem_3(name: str, kappa: str) -> None:
    graph = KAPPAS[kappa](GRAPHS[name])
    theta = potentials(graph, seed=1)
    found = solve_free_energy(graph, theta, tolerance=1e-12)
    assert found.status.converged
    # In the local polytope, by the graph's own measure and by the constraints written out cell by cell.
    a, b = constraints(graph)
    assert np.abs(a @ found.tau.values - b).max() < 1e-11
    assert graph.local_polytope_violation(found.tau) < 1e-11
    assert found.tau.values.min() >= 0
    # Optimal: strong duality is a certificate that needs no other solver ...
    value = free_energy(graph, theta, found.tau)
    assert value == pytest.approx(-found.dual, abs=1e-9)
    # ... and a generic solver finds nothing better, and the same point.
    judged = solve_free_energy_generically(graph, theta)
    assert value <= free_energy(graph, theta, judged) + 1e-7
    np.testing.assert_allclose(found.tau.values, judged.values, atol=2e-4)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("name", GRAPHS)
def test_the_dual_never_rises(name: str, kappa: str, schedule: str) -> None:
    graph = KAPPAS[kappa](GRAPHS[name])
    theta = potentials(graph, seed=2, scale=4.0)
    state = start(Wiring.of(graph), theta)
    duals = [state.dual]

    def note_dual(_: object) -> None:
        state.settle()
        duals.append(state.dual)

    solve_free_energy(
        graph,
        state=state,
        schedule=schedule,
        tolerance=0.0,
        iterations=40,
        progress=note_dual,
    )
    slack = 1e-12 * max(1.0, abs(duals[0]))
    assert all(after <= before + slack for before, after in itertools.pairwise(duals))
    if graph.edges:
        assert duals[-1] < duals[0] - 1e-3


@pytest.mark.parametrize("name", GRAPHS)
def test_schedules_agree(name: str) -> None:
    graph = with_random_kappa(GRAPHS[name], 3)
    theta = potentials(graph, seed=4)
    one, other = (solve_free_energy(graph, theta, schedule=s, tolerance=1e-13) for s in SCHEDULES)
    assert one.status.converged
    assert other.status.converged
    assert one.iterations <= other.iterations
    np.testing.assert_allclose(one.tau.values, other.tau.values, atol=1e-10)
    assert one.dual == pytest.approx(other.dual, abs=1e-9)


def test_a_warm_start_goes_on_where_the_other_stopped() -> None:
    graph = GRAPHS["saturated, all Hasse edges"]
    theta = potentials(graph, seed=5)
    whole = solve_free_energy(graph, theta, iterations=12, tolerance=0)
    part = solve_free_energy(graph, theta, iterations=5, tolerance=0)
    assert not part.status.converged
    assert "after 5 iterations" in part.status.advice
    rest = solve_free_energy(graph, state=part.state, iterations=7, tolerance=0)
    np.testing.assert_allclose(rest.tau.values, whole.tau.values, rtol=1e-12)
    assert rest.dual == pytest.approx(whole.dual, rel=1e-13)
    done = solve_free_energy(graph, theta, tolerance=1e-12)
    again = solve_free_energy(graph, state=done.state, tolerance=1e-11)
    assert again.iterations == 1


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", GRAPHS)
def test_impossible_cells_stay_impossible(name: str, schedule: str) -> None:
    """A cell with potential minus infinity is zero, and so is everything that it forces to be."""
    graph = GRAPHS[name]
    theta = potentials(graph, seed=6)
    hit = theta[graph.regions[0]]
    hit.flat[1] = hit.flat[2] = -np.inf
    found = solve_free_energy(graph, theta, schedule=schedule, tolerance=1e-11)
    assert found.status.converged
    assert found.tau[graph.regions[0]].flat[1] == 0.0
    assert found.tau[graph.regions[0]].flat[2] == 0.0
    assert (found.tau[graph.regions[0]].flat[3:] > 0).all()
    assert graph.local_polytope_violation(found.tau) < 1e-10
    judged = solve_free_energy_generically(graph, theta)
    np.testing.assert_allclose(found.tau.values, judged.values, atol=2e-4)
    assert free_energy(graph, theta, found.tau) == pytest.approx(-found.dual, abs=1e-8)


def test_a_value_made_impossible_vanishes_from_every_region() -> None:
    graph = GRAPHS["saturated"]
    theta = potentials(graph, seed=7)
    theta["a", "d"][:, 2] = -np.inf
    found = solve_free_energy(graph, theta, tolerance=1e-11)
    assert found.status.converged
    for region, table in found.tau.items():
        if "d" in region:
            assert not table.take(2, axis=region.index("d")).any()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("scale", [50.0, 150.0])
def test_strong_potentials(scale: float, schedule: str) -> None:
    """Regions that fight over a value with potentials far beyond one factor's reach."""
    domain = Domain({"a": 2, "b": 2, "c": 2})
    graph = RegionGraph.saturated(domain, [("a", "b"), ("b", "c")])
    theta = CliqueVector.zeros(domain, [("a", "b"), ("b", "c")])
    theta["a", "b"][:, 1] = scale
    theta["b", "c"][1, :] = -scale + 1.0
    found = solve_free_energy(graph, theta, schedule=schedule, tolerance=1e-12)
    assert found.status.converged
    # Only the sum counts: b's potential is 1, shared by three tables that each carry its entropy.
    expected = 1 / (1 + np.exp(1 / 3))
    np.testing.assert_allclose(found.tau["b",], [expected, 1 - expected], atol=1e-9)
    np.testing.assert_allclose(found.tau["a", "b"].sum(axis=1), [0.5, 0.5], atol=1e-9)
    assert free_energy(graph, theta, found.tau) == pytest.approx(-found.dual, abs=1e-7)


def test_potentials_on_cliques_that_the_graph_supports() -> None:
    graph = GRAPHS["over-saturated"]
    theta = random_vector(D, LOOP, np.random.default_rng(8))
    tau = convex_gbp(graph, theta, tolerance=1e-12)
    np.testing.assert_allclose(
        tau.values, convex_gbp(graph, theta.expand(graph.regions), tolerance=1e-12).values
    )


def test_shifting_potentials_between_parent_and_child_changes_nothing() -> None:
    """theta matters only modulo what is constant on the local polytope."""
    graph = GRAPHS["saturated"]
    theta = potentials(graph, seed=9)
    moved = theta.copy()
    message = np.array([0.5, -1.0, 2.0])
    moved["d",] = theta["d",] + message
    moved["a", "d"] = theta["a", "d"] - message
    one, other = (convex_gbp(graph, t, tolerance=1e-13) for t in (theta, moved))
    np.testing.assert_allclose(one.values, other.values, atol=1e-11)


def test_a_sweep_reports_the_violation_it_met() -> None:
    graph = GRAPHS["factor graph"]
    state = start(Wiring.of(graph), potentials(graph, seed=10))
    met = graph.local_polytope_violation(state.marginals())
    Sweeper(state.wiring, "parallel").sweep(state)
    assert state.violation == pytest.approx(met)


def test_bad_input_is_named() -> None:
    graph = GRAPHS["saturated"]
    theta = potentials(graph, seed=11)
    with pytest.raises(RegionGraphError, match="give either theta or a state"):
        solve_free_energy(graph)
    with pytest.raises(RegionGraphError, match="must belong to this graph"):
        solve_free_energy(graph, state=Beliefs.uniform(Wiring.of(GRAPHS["junction tree"])))
    with pytest.raises(RegionGraphError, match="schedule must be one of parallel, sequential, got"):
        solve_free_energy(graph, theta, schedule="random")
    with pytest.raises(RegionGraphError, match=r"support every clique of theta, got \('c', 'e'\)"):
        convex_gbp(graph, CliqueVector.zeros(D, [("c", "e")]))
    for bad in (np.nan, np.inf):
        wrong = theta.copy()
        wrong.values[0] = bad
        with pytest.raises(RegionGraphError, match="finite entry in every region"):
            convex_gbp(graph, wrong)
    zero = graph.with_counting_numbers({("d",): 0.0})
    with pytest.raises(
        RegionGraphError, match="theta must be zero on regions with counting number zero"
    ):
        convex_gbp(zero, theta)
