"""Beliefs: the mirror step, cells that come back, bookkeeping of the dual, snapshots."""

import numpy as np
import pytest

from consilience.domain import CliqueVector, Domain
from consilience.errors import RegionGraphError
from consilience.regions import RegionGraph
from consilience.regions.wiring import Wiring
from consilience.solvers.convex_gbp import solve_free_energy, start
from consilience.solvers.sweeper import Beliefs, Sweeper

D = Domain({"a": 3, "b": 2, "c": 4, "d": 2})
GRAPH = RegionGraph.saturated(
    D,
    [("a", "b", "c"), ("b", "c", "d"), ("a", "d")],
    counting_numbers={("a", "d"): 2.5, ("b", "c"): 0.5},
)
WIRING = Wiring.of(GRAPH)


def random_theta(seed: int, scale: float = 1.0) -> CliqueVector:
    rng = np.random.default_rng(seed)
    return CliqueVector(GRAPH.layout, scale * rng.normal(size=GRAPH.layout.cells))


def solved(theta: CliqueVector) -> np.ndarray:
    return solve_free_energy(GRAPH, theta, tolerance=1e-13).tau.values


def rates(eta: float) -> np.ndarray:
    return eta / GRAPH.counting_numbers


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_a_step_is_a_step_of_theta(schedule: str) -> None:
    """Stepping from the solution for theta and sweeping to the end gives the solution for theta - eta * gradient."""
    theta, gradient = random_theta(0), random_theta(1)
    state = solve_free_energy(GRAPH, theta, tolerance=1e-13).state
    sweeper = Sweeper(WIRING, schedule)
    sweeper.step_gradient(state, WIRING.enter(gradient), rates(0.7))
    for _ in range(3000):
        sweeper.sweep(state)
    state.settle()
    moved = theta - 0.7 * gradient
    expected = solve_free_energy(GRAPH, moved, tolerance=1e-13)
    np.testing.assert_allclose(state.marginals().values, expected.tau.values, atol=1e-10)
    assert state.dual == pytest.approx(expected.dual, abs=1e-9)


@pytest.mark.parametrize("rate", [2.0, 0.2, 0.01], ids=["long", "short", "tiny"])
def test_a_squared_step_is_a_gradient_step_and_leaves_its_sums(rate: float) -> None:
    target = random_theta(2, 0.1)
    one, other = Beliefs.uniform(WIRING), Beliefs.uniform(WIRING)
    sweeper = Sweeper(WIRING)
    tau, wanted = one.tau.copy(), WIRING.enter(target)
    sweeper.step_squared(one, wanted, rates(rate))
    for r, (at, cells) in enumerate(zip(WIRING.tables.at, WIRING.tables.cells, strict=True)):
        u, gap = tau[at : at + cells], (tau - wanted)[at : at + cells]
        assert sweeper.square[r] == pytest.approx(gap @ gap)
        assert sweeper.cross[r] == pytest.approx(gap @ u)
    Sweeper(WIRING).step_gradient(other, tau - wanted, rates(rate))
    one.settle()
    other.settle()
    np.testing.assert_allclose(one.tau, other.tau, rtol=1e-12)
    np.testing.assert_allclose(one.shift, other.shift, atol=1e-12)


def test_a_rate_of_zero_is_no_step() -> None:
    state = Beliefs.uniform(WIRING)
    Sweeper(WIRING).step_gradient(state, random_theta(3).values, np.zeros(len(GRAPH.regions)))
    state.settle()
    np.testing.assert_allclose(state.tau, Beliefs.uniform(WIRING).tau, rtol=1e-14)


def test_a_cell_pushed_out_of_sight_comes_back() -> None:
    """Steps that would underflow to zero several times over leave the cell alive."""
    state = Beliefs.uniform(WIRING)
    sweeper = Sweeper(WIRING, "sequential")
    push = CliqueVector.zeros(D, GRAPH.regions)
    push["a", "d"][0, 0] = 1.0
    gradient = WIRING.enter(push)
    rate = np.ones(len(GRAPH.regions))
    for _ in range(3):
        sweeper.step_gradient(state, gradient, 650.0 * rate)
    state.settle()
    gone = state.marginals()["a", "d"][0, 0]
    assert 0 < gone < 1e-50
    for _ in range(20):
        sweeper.step_gradient(state, gradient, -50.0 * rate)
    state.settle()
    assert state.marginals()["a", "d"][0, 0] > 0.5


def test_the_dual_is_what_its_formula_says() -> None:
    theta = random_theta(4, 3.0)
    state = start(WIRING, theta)
    expected = 0.0
    for region, kappa in zip(GRAPH.regions, GRAPH.counting_numbers, strict=True):
        expected += kappa * np.logaddexp.reduce(theta[region].reshape(-1) / kappa)
    assert state.dual == pytest.approx(expected, rel=1e-13)


def test_sweeps_only_reparametrise() -> None:
    """sum_r B_r, spread over the joint, is sum_r theta_r before and after any number of sweeps."""
    theta = random_theta(5, 2.0)
    state = start(WIRING, theta)

    def spread(values: CliqueVector) -> np.ndarray:
        return sum(
            t.reshape([D[a] if a in c else 1 for a in D]) for c, t in values.items()
        ) + np.zeros(D.shape)

    for schedule in ("sequential", "parallel"):
        sweeper = Sweeper(WIRING, schedule)
        for _ in range(3):
            sweeper.sweep(state)
    state.settle()
    cells = WIRING.tables.cells
    potentials = np.repeat(GRAPH.counting_numbers, cells) * (
        np.log(state.tau) + np.repeat(state.shift, cells)
    )
    np.testing.assert_allclose(
        spread(WIRING.leave(potentials)), spread(theta), rtol=1e-11, atol=1e-11
    )


def test_possible_cells() -> None:
    possible = CliqueVector(GRAPH.layout, np.ones(GRAPH.layout.cells))
    possible["a", "d"][1] = 0
    state = Beliefs.uniform(WIRING, possible)
    tau = state.marginals()
    np.testing.assert_allclose(tau["a", "d"], [[0.25, 0.25], [0, 0], [0.25, 0.25]])
    assert state.shift[GRAPH.regions.index(("a", "d"))] == pytest.approx(np.log(4))
    found = solve_free_energy(GRAPH, state=state, tolerance=1e-12)
    assert found.status.converged
    assert not found.tau["a", "b", "c"][1].any()
    possible["a", "d"][...] = 0
    with pytest.raises(RegionGraphError, match="at least one possible cell, got one with none"):
        Beliefs.uniform(WIRING, possible)


def test_a_copy_is_a_snapshot_and_adopt_returns_to_it() -> None:
    state = start(WIRING, random_theta(6))
    sweeper = Sweeper(WIRING)
    sweeper.sweep(state)
    kept = state.copy()
    before = kept.tau.copy()
    sweeper.step_gradient(state, random_theta(7).values, rates(1.0))
    np.testing.assert_array_equal(kept.tau, before)
    assert not np.array_equal(state.tau, before)
    state.adopt(kept)
    np.testing.assert_array_equal(state.tau, before)
    assert state.dual == kept.dual
    assert state.violation == kept.violation


def test_iterates_of_different_graphs_do_not_mix() -> None:
    other = RegionGraph.saturated(D, [("a", "b")])
    with pytest.raises(RegionGraphError, match="the state must belong to this graph"):
        solve_free_energy(other, state=Beliefs.uniform(WIRING))


def test_the_same_solution_from_another_start() -> None:
    """Warm start from the solution for another theta: what matters is only where the steps led."""
    theta, far = random_theta(8), random_theta(9, 5.0)
    state = solve_free_energy(GRAPH, far, tolerance=1e-10).state
    Sweeper(WIRING).step_gradient(state, WIRING.enter(far - theta), rates(1.0))
    found = solve_free_energy(GRAPH, state=state, tolerance=1e-13)
    np.testing.assert_allclose(found.tau.values, solved(theta), atol=1e-9)
