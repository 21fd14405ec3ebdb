"""Theorem 2: Prox-PGM solves Problem 2, any convex loss over the local polytope, whatever the counting numbers."""

from functools import cache
from itertools import pairwise

import clarabel
import numpy as np
import pytest
from scipy import sparse

from claims.judges import constraints
from consilience.domain import CliqueVector
from consilience.errors import LossError, RegionGraphError
from consilience.measurements import AbsoluteLoss, CustomLoss, Loss, SquaredLoss
from consilience.regions import RegionGraph
from consilience.solvers.convex_gbp import convex_gbp
from consilience.solvers.prox import prox_pgm
from solvers.problems import BUILDERS, RECORDS, D, cliques_of, noisy, rows_of, solve_generically

CLIQUE_SETS = {"loop": "ab bd de ae", "triples": "abd bde ade", "tree": "ab bd de"}
SMOOTHING = 0.5


def user_made() -> RegionGraph:
    """Two tables tied on a pair, a third tied on one attribute only, and an edge that skips a level."""
    edges = [("abd", "bd"), ("bde", "bd"), ("bd", "d"), ("ade", "d"), ("abd", "d")]
    regions = cliques_of("abd bde ade bd d")
    return RegionGraph(D, regions, [(tuple(p), tuple(c)) for p, c in edges])


@cache
def graph_of(kind: str, words: str) -> RegionGraph:
    return user_made() if kind == "user-made" else BUILDERS[kind](D, cliques_of(words))


GRAPHS = [(kind, words) for kind in BUILDERS for words in CLIQUE_SETS.values()]
GRAPHS.append(("user-made", CLIQUE_SETS["triples"]))


# -- a generic judge for losses that are sums of Huber's function or of -y log(x) ------------------------


def conic(graph: RegionGraph, extra: int, cost, rows, right, cones) -> CliqueVector:
    """min cost.(tau, t) over tau in L(G) and `rows (tau, t) + s = right`, s in the cones."""
    a, b = constraints(graph)
    n = graph.layout.cells
    equal = np.hstack([a, np.zeros((len(a), extra))])
    positive = np.hstack([-np.eye(n), np.zeros((n, extra))])
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    quadratic = np.zeros((n + extra, n + extra)) if cost[1] is None else cost[1]
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix(np.triu(quadratic)),
        cost[0],
        sparse.csc_matrix(np.vstack([equal, positive, rows])),
        np.concatenate([b, np.zeros(n), right]),
        [clarabel.ZeroConeT(len(a)), clarabel.NonnegativeConeT(n), *cones],
        settings,
    )
    return CliqueVector(graph.layout, np.array(solver.solve().x)[:n])


def huber_generically(graph: RegionGraph, loss: AbsoluteLoss) -> CliqueVector:
    """Huber(u) = min over e of |u - e| + e^2 / (2 delta); with v >= |u - e|: a quadratic programme."""
    u = np.concatenate([loss.total / m.scale * rows_of(graph, m.clique) for m in loss.measurements])
    y = np.concatenate([m.values / m.scale for m in loss.measurements])
    n, m = graph.layout.cells, len(y)
    eye = np.eye(m)
    rows = np.block([[u, -eye, -eye], [-u, eye, -eye]])  # +-(u - y - e) - v <= 0
    quadratic = np.zeros((n + 2 * m, n + 2 * m))
    quadratic[n : n + m, n : n + m] = eye / loss.smoothing
    cost = np.concatenate([np.zeros(n + m), np.ones(m)])
    right = np.concatenate([y, -y])
    return conic(graph, 2 * m, (cost, quadratic), rows, right, [clarabel.NonnegativeConeT(2 * m)])


def likelihood(graph_cliques, seed: int) -> tuple[CustomLoss, dict]:
    """-sum of counts * log(tau + 0.01): multinomial likelihood with a floor, convex, not quadratic, smoothness unknown."""
    rng = np.random.default_rng(seed)
    counts = {c: rng.gamma(0.7, 20.0, D.shape_of(c)) for c in graph_cliques}

    def fn(tau: CliqueVector):
        value = -sum(float((counts[c] * np.log(tau[c] + 0.01)).sum()) for c in counts)
        return value, {c: -counts[c] / (tau[c] + 0.01) for c in counts}

    return CustomLoss(fn, D, graph_cliques), counts


def likelihood_generically(graph: RegionGraph, counts: dict) -> CliqueVector:
    """t <= log(x + 0.01) is (t, 1, x + 0.01) in the exponential cone."""
    u = np.concatenate([rows_of(graph, c) for c in counts])
    weight = np.concatenate([table.reshape(-1) for table in counts.values()])
    n, m = graph.layout.cells, len(weight)
    rows, right = np.zeros((3 * m, n + m)), np.zeros(3 * m)
    for k in range(m):
        rows[3 * k, n + k] = -1.0
        right[3 * k + 1] = 1.0
        rows[3 * k + 2, :n] = -u[k]
        right[3 * k + 2] = 0.01
    cost = np.concatenate([np.zeros(n), -weight])
    return conic(graph, m, (cost, None), rows, right, [clarabel.ExponentialConeT()] * m)


# -- the theorem ------------------------------------------------------------------------------------------


def value(loss: Loss, graph: RegionGraph, tau: CliqueVector) -> float:
    clipped = CliqueVector(graph.layout, np.maximum(tau.values, 0))
    return loss.value_and_grad(clipped)[0]


def assert_optimal(
    loss: Loss, graph: RegionGraph, judge: CliqueVector, rel: float, unique: bool = True
) -> None:
    found = prox_pgm(loss, graph, tolerance=1e-4)
    best = value(loss, graph, judge)
    size = max(abs(best), 1.0)
    assert found.objective == pytest.approx(best, abs=rel * size)
    assert found.bound <= best + 1e-8 * size
    assert found.violation < 1e-9
    assert found.tau.values.min() >= 0
    assert value(loss, graph, found.tau) == pytest.approx(found.objective, rel=1e-12)
    for clique in loss.cliques if unique else ():
        np.testing.assert_allclose(found.tau.project(clique), judge.project(clique), atol=1e-3)


@pytest.mark.parametrize("kind, words", GRAPHS)
def test_squared_loss(kind: str, words: str) -> None:
    graph = graph_of(kind, words)
    loss = SquaredLoss(D, noisy(D, words, 11, (20.0, 30.0)), RECORDS)
    assert_optimal(loss, graph, solve_generically(graph, loss).tau, 1e-6)


@pytest.mark.parametrize("kind, words", GRAPHS)
def test_smoothed_absolute_loss(kind: str, words: str) -> None:
    graph = graph_of(kind, words)
    made = noisy(D, words, 12, (40.0,), noise="laplace")
    loss = AbsoluteLoss(D, made, RECORDS, smoothing=SMOOTHING)
    assert_optimal(loss, graph, huber_generically(graph, loss), 1e-5, unique=False)


@pytest.mark.parametrize("kind, words", GRAPHS)
def test_a_custom_loss_that_is_not_quadratic(kind: str, words: str) -> None:
    graph = graph_of(kind, words)
    loss, counts = likelihood(cliques_of(words), 13)
    assert_optimal(loss, graph, likelihood_generically(graph, counts), 1e-6)


@pytest.mark.parametrize("kind", BUILDERS)
def test_the_counting_numbers_do_not_change_tau(kind: str) -> None:
    """They change the parameters: the beliefs' own reparametrisation, log tau_r = theta_r / kappa_r + messages."""
    words = CLIQUE_SETS["loop"]
    loss = SquaredLoss(D, noisy(D, words, 14), RECORDS)
    graph = graph_of(kind, words)
    rng = np.random.default_rng(0)
    kappas = (0.05, 1.0, 20.0, dict(zip(graph.regions, 10 ** rng.uniform(-1, 1, 99), strict=False)))
    found = [prox_pgm(loss, graph.with_counting_numbers(k), tolerance=1e-6) for k in kappas]
    for other in found[1:]:
        assert other.objective == pytest.approx(found[0].objective, rel=1e-7)
        for clique in loss.cliques:
            np.testing.assert_allclose(
                other.tau.project(clique), found[0].tau.project(clique), atol=1e-5
            )
    # theta = -sum of steps * gradients: with the same gradients at the end, its length follows the steps taken.
    potentials = [kappa_log_beliefs(s) for s in found]
    assert np.ptp(potentials[0] - potentials[2]) > 1.0


def kappa_log_beliefs(solution) -> np.ndarray:
    beliefs = solution.state.beliefs
    beliefs.settle()
    kappa = np.repeat(beliefs.wiring.kappa, beliefs.wiring.tables.cells)
    return kappa * np.log(np.maximum(beliefs.tau, 1e-9))


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_both_schedules_reach_the_optimum(schedule: str) -> None:
    words = CLIQUE_SETS["loop"]
    graph = graph_of("saturated", words)
    loss = SquaredLoss(D, noisy(D, words, 15), RECORDS)
    judge = solve_generically(graph, loss)
    found = prox_pgm(loss, graph, schedule=schedule, tolerance=1e-5)
    assert found.status.converged
    assert found.objective == pytest.approx(judge.objective, rel=1e-6)


def test_a_graph_with_counting_numbers_of_zero() -> None:
    words = "ab bd de b d"
    graph = graph_of("saturated", words).with_counting_numbers({("b",): 0.0, ("d",): 0.0})
    loss = SquaredLoss(D, noisy(D, words, 16), RECORDS)
    judge = solve_generically(graph, loss)
    found = prox_pgm(loss, graph, tolerance=1e-5)
    assert found.objective == pytest.approx(judge.objective, rel=1e-6)


# -- settings and bad input -------------------------------------------------------------------------------

GRAPH = RegionGraph.saturated(D, cliques_of("ab bd"))


def test_iterations_and_step_are_honoured_exactly() -> None:
    loss = SquaredLoss(D, noisy(D, "ab bd", 17), RECORDS)
    for count in (0, 1, 7, 8, 9, 33):
        found = prox_pgm(loss, GRAPH, iterations=count)
        assert found.iterations == count
        assert not found.status.converged
        assert f"after the {count} iterations asked for" in found.status.advice
    start = prox_pgm(loss, GRAPH, iterations=0)
    np.testing.assert_allclose(start.tau["a", "b"], 1 / 6, rtol=1e-12)
    # One step from the uniform start, by hand: multiply, then restore consistency along b.
    step = 1e-4 / RECORDS
    first = prox_pgm(loss, GRAPH, iterations=1, step=step)
    _, gradient = loss.value_and_grad(start.tau)
    from_theta = convex_gbp(GRAPH, gradient * -step, tolerance=1e-13)
    np.testing.assert_allclose(first.tau.values, from_theta.values, atol=1e-9)


def test_a_callback_sees_progress() -> None:
    loss = SquaredLoss(D, noisy(D, "ab bd", 18), RECORDS)
    seen = []
    found = prox_pgm(loss, GRAPH, tolerance=1e-6, progress=seen.append)
    assert seen[-1].done <= found.iterations
    assert seen[0].objective >= seen[-1].objective
    assert all(s.done > r.done for r, s in pairwise(seen))


UNEQUAL = np.arange(1.0, 7.0).reshape(2, 3)  # so that the uniform start is no stationary point


def custom(fn) -> CustomLoss:
    return CustomLoss(fn, D, [("a", "b")])


def test_bad_losses_are_named() -> None:
    def nan_gradient(tau):
        return 1.0, {("a", "b"): np.full((2, 3), np.nan)}

    def nan_value(tau):
        return np.nan, {("a", "b"): np.zeros((2, 3))}

    with pytest.raises(LossError, match="gradient of a custom loss must be finite, got nan"):
        prox_pgm(custom(nan_gradient), GRAPH)
    with pytest.raises(LossError, match="value of a custom loss must be finite, got nan"):
        prox_pgm(custom(nan_value), GRAPH)
    loss = SquaredLoss(D, noisy(D, "ab cd", 19), RECORDS)
    with pytest.raises(
        RegionGraphError, match=r"support every clique of the loss, got \('c', 'd'\)"
    ):
        prox_pgm(loss, GRAPH)
    good = SquaredLoss(D, noisy(D, "ab", 19), RECORDS)
    for step in (0.0, -1.0, np.inf):
        with pytest.raises(LossError, match="step must be positive and finite, got"):
            prox_pgm(good, GRAPH, step=step)


def test_a_loss_that_is_not_bounded_below_ends_with_a_status() -> None:
    """A likelihood with its sign wrong falls without end as a cell comes near zero."""

    def falls(tau):
        x = np.maximum(tau["a", "b"], 1e-200)
        return -float((UNEQUAL / x).sum()), {("a", "b"): UNEQUAL / x**2}

    found = prox_pgm(custom(falls), GRAPH)
    assert not found.status.converged
    assert found.status.name == "loss not bounded below"
    assert "bounded below, check its sign" in found.status.advice


def test_a_loss_that_is_not_convex_is_caught_by_its_own_tangents() -> None:
    def falls(tau):
        left = 1.0 - tau["a", "b"][0, 0]
        slope = np.zeros((2, 3))
        slope[0, 0] = -3.0 / left**4
        return -1.0 / left**3, {("a", "b"): slope}

    def concave(tau):
        x = tau["a", "b"]
        return -float((UNEQUAL * x * x).sum()), {("a", "b"): -2 * UNEQUAL * x}

    for fn in (falls, concave):
        found = prox_pgm(custom(fn), GRAPH)
        assert not found.status.converged
        assert found.status.name in ("loss not convex", "stalled")
        assert "convex" in found.status.advice


def test_a_gradient_of_the_wrong_sign_claims_nothing() -> None:
    def wrong(tau):
        off = tau["a", "b"] - np.array([[0.5, 0.1, 0.1], [0.1, 0.1, 0.1]])
        return 0.5 * float(np.square(off).sum()), {("a", "b"): -off}

    found = prox_pgm(custom(wrong), GRAPH)
    assert not found.status.converged
