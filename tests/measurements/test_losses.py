"""Losses against the formula written out, finite differences, and their smoothness constants."""

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from consilience.domain import CliqueVector, Domain, Layout
from consilience.errors import DomainError, LossError, MeasurementError
from consilience.measurements import (
    AbsoluteLoss,
    Dense,
    Kronecker,
    Loss,
    Measurement,
    Prefix,
    Ranges,
    Sparse,
    SquaredLoss,
    as_query,
    estimate_total,
)

DOMAIN = Domain({"a": 2, "b": 3, "c": 4, "d": 2})
RNG = np.random.default_rng(17)
TOTAL = 80.0
RANGES = Ranges(4, [(0, 2), (1, 4), (0, 4)])


def noisy(attributes: str, stddev: float = 2.0, query=None) -> Measurement:
    """Values about as large as real ones; in the order in which the attributes are given."""
    cells = DOMAIN.size(tuple(attributes))
    rows = cells if query is None else as_query(query).rows
    values = TOTAL / cells + 5 * RNG.normal(size=rows)
    return Measurement(tuple(attributes), values, stddev=stddev, query=query)


SPARSE = Sparse(sparse.csr_array(np.where(RNG.random((4, 6)) < 0.5, 1.0, 0.0)))
OPERATOR = aslinearoperator(RNG.normal(size=(3, 8)))
MEASUREMENTS: dict[str, list[Measurement]] = {
    "identity": [noisy("ab"), noisy("bc", 3.0)],
    "permuted": [noisy("ba"), noisy("dcb", 3.0)],
    "repeated": [noisy("ab"), noisy("ba", 5.0), noisy("c"), noisy("ab", 0.5)],
    "dense": [noisy("ab", query=Dense(RNG.normal(size=(7, 6))))],
    "dense permuted": [noisy("ba", query=Dense(RNG.normal(size=(7, 6))))],
    "sparse": [noisy("ab", query=SPARSE), noisy("ab", 4.0)],
    "operator": [noisy("cd", query=OPERATOR), noisy("d")],
    "prefix": [noisy("c", query=Prefix(4)), noisy("c", 3.0)],
    "ranges": [noisy("c", query=RANGES)],
    "product": [noisy("bc", query=Kronecker([Prefix(3), RANGES])), noisy("cd")],
    "product permuted": [noisy("cb", query=Kronecker([RANGES, Prefix(3)]))],
    "sub-cliques": [noisy("a"), noisy("c", 3.0), noisy("ac"), noisy("d", query=Prefix(2))],
    "with the total": [noisy("ab"), Measurement((), TOTAL + 6, stddev=2.0)],
}
FAMILIES = {
    "own": None,
    "larger": [("a", "b", "c"), ("b", "c", "d"), ("a", "c", "d")],
    "one": [("a", "b", "c", "d")],
    "mixed": [("c", "d"), ("a", "b", "d"), ("a", "b"), ("c",), ("b", "c", "d"), ("a", "c")],
}
LOSSES = {
    "squared": lambda m: SquaredLoss(DOMAIN, m, TOTAL),
    "smoothed": lambda m: AbsoluteLoss(DOMAIN, m, TOTAL, smoothing=0.7),
    "absolute": lambda m: AbsoluteLoss(DOMAIN, m, TOTAL, smoothing=0),
}


def random_tau(layout: Layout, rng: np.random.Generator) -> CliqueVector:
    """Distributions, one per clique, not consistent with each other."""
    tau = CliqueVector(layout)
    for _, table in tau.items():
        table[...] = rng.dirichlet(np.ones(table.size)).reshape(table.shape)
    return tau


def family(name: str, loss: Loss) -> Layout:
    return Layout(DOMAIN, FAMILIES[name] or loss.cliques)


def written_out(kind: str, measurements: list[Measurement], tau: CliqueVector) -> float:
    """The definition, from the measurement as it was given (its own axis order, nothing merged)."""
    value = 0.0
    for m in measurements:
        if m.attributes:
            clique = DOMAIN.clique(m.attributes)
            order = [clique.index(a) for a in m.attributes]
            x = TOTAL * tau.project(clique).transpose(order).ravel()
        else:
            x = np.array([TOTAL])
        residual = (x if m.query is None else m.query.apply(x)) - m.values.ravel()
        if kind == "squared":
            value += 0.5 * np.sum((residual / m.stddev) ** 2)
            continue
        u = np.abs(residual / (m.stddev / np.sqrt(2)))
        smooth = np.where(u <= 0.7, u**2 / 1.4, u - 0.35)
        value += np.sum(u if kind == "absolute" else smooth)
    return float(value)


EVERY = [(k, m, f) for k in LOSSES for m in MEASUREMENTS for f in FAMILIES]


@pytest.mark.parametrize("kind, case, cliques", EVERY)
def test_value_and_gradient(kind: str, case: str, cliques: str) -> None:
    measurements = MEASUREMENTS[case]
    loss = LOSSES[kind](measurements)
    tau = random_tau(family(cliques, loss), np.random.default_rng(3))
    value, gradient = loss.value_and_grad(tau)
    assert value == pytest.approx(written_out(kind, measurements, tau), rel=1e-12)
    assert gradient.layout is tau.layout
    # Central differences along random directions that keep the sums at one.
    rng = np.random.default_rng(4)
    step = 1e-6
    for _ in range(4):
        direction = random_tau(tau.layout, rng) - random_tau(tau.layout, rng)
        up = written_out(kind, measurements, tau + step * direction)
        down = written_out(kind, measurements, tau - step * direction)
        slope = (up - down) / (2 * step)
        assert gradient.dot(direction) == pytest.approx(slope, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("kind", LOSSES)
def test_every_entry_of_the_gradient(kind: str) -> None:
    """Finite differences cell by cell, on the loss's own value."""
    loss = LOSSES[kind](MEASUREMENTS["product"] + MEASUREMENTS["sub-cliques"])
    bound = loss.bind(family("mixed", loss))
    values = random_tau(bound.layout, np.random.default_rng(3)).values
    gradient = bound.value_and_grad(values)[1]
    for i in range(values.size):
        step = np.zeros(values.size)
        step[i] = 1e-6
        slope = bound.value_and_grad(values + step)[0] - bound.value_and_grad(values - step)[0]
        assert gradient[i] == pytest.approx(slope / 2e-6, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("kind, case, cliques", EVERY)
def test_convex_and_within_the_smoothness_bound(kind: str, case: str, cliques: str) -> None:
    loss = LOSSES[kind](MEASUREMENTS[case])
    bound = loss.bind(family(cliques, loss))
    rng = np.random.default_rng(5)
    for near in (1.0, 1.0, 0.1, 0.01):
        a = random_tau(bound.layout, rng)
        b = a + near * (random_tau(bound.layout, rng) - a)
        (at_a, _), (at_b, slope) = bound.value_and_grad(a.values), bound.value_and_grad(b.values)
        bregman = at_a - at_b - slope @ (a.values - b.values)
        middle = bound.value_and_grad((a.values + b.values) / 2)[0]
        slack = 1e-10 * (abs(at_a) + abs(at_b))
        assert bregman >= -slack
        assert middle <= (at_a + at_b) / 2 + slack
        if bound.smoothness is not None:
            norm = sum(np.abs(table).sum() ** 2 for _, table in (a - b).items())
            assert bregman <= bound.smoothness / 2 * norm + slack


def test_the_smoothness_constant_is_reached() -> None:
    """All mass moves from one cell to the other, and the query reads their difference."""
    m = Measurement("d", [1.0], stddev=2.0, query=[[1.0, -1.0]])
    bound = SquaredLoss(DOMAIN, [m], TOTAL).bind(Layout(DOMAIN, [("d",)]))
    a, b = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    (at_a, _), (at_b, slope) = bound.value_and_grad(a), bound.value_and_grad(b)
    assert bound.smoothness == pytest.approx(TOTAL**2 / 4)
    assert at_a - at_b - slope @ (a - b) == pytest.approx(bound.smoothness / 2 * 2**2)


def test_smoothness_adds_up_where_tables_share_a_home() -> None:
    loss = SquaredLoss(DOMAIN, [noisy("a", 1.0), noisy("b", 1.0), noisy("c", 2.0)], 1.0)
    assert loss.smoothness == pytest.approx(1.0)
    assert loss.bind(Layout(DOMAIN, loss.cliques)).smoothness == pytest.approx(1.0)
    assert loss.bind(Layout(DOMAIN, [("a", "b"), ("c",)])).smoothness == pytest.approx(2.0)
    assert loss.bind(Layout(DOMAIN, [("a", "b", "c")])).smoothness == pytest.approx(2.25)


def test_smoothness_of_queries_and_of_smoothing() -> None:
    m = [noisy("c", 2.0, Prefix(4)), noisy("c", 1.0)]
    assert SquaredLoss(DOMAIN, m, 10.0).smoothness == pytest.approx(100 * (4 / 4 + 1))
    smoothed = AbsoluteLoss(DOMAIN, m, 10.0, smoothing=0.5)
    assert smoothed.smoothness == pytest.approx(100 / 0.5 * (4 / 2 + 1 / 0.5))
    assert AbsoluteLoss(DOMAIN, m, 10.0, smoothing=0).smoothness is None


@pytest.mark.parametrize("case", MEASUREMENTS)
def test_separable_form_agrees(case: str) -> None:
    loss = SquaredLoss(DOMAIN, MEASUREMENTS[case], TOTAL)
    tau = random_tau(Layout(DOMAIN, loss.cliques), np.random.default_rng(6))
    form = loss.separable()
    assert not any(m.is_identity for m in form.rest)
    value, gradient = form.constant, CliqueVector(tau.layout)
    for weight, (clique, target) in zip(form.weights, form.targets.items(), strict=True):
        value += 0.5 * weight * np.sum((tau[clique] - target) ** 2)
        gradient[clique] += weight * (tau[clique] - target)
    for m in form.rest:
        residual = m.query.apply(TOTAL * tau[m.clique].ravel()) - m.values
        value += 0.5 * np.sum((residual / m.stddev) ** 2)
        slope = m.query.adjoint(residual) * TOTAL / m.stddev**2
        gradient[m.clique] += slope.reshape(tau[m.clique].shape)
    expected, expected_gradient = loss.value_and_grad(tau)
    assert value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(gradient.values, expected_gradient.values, rtol=1e-11, atol=1e-9)


def test_separable_by_hand() -> None:
    first = Measurement("d", [30.0, 50.0], stddev=2.0)
    second = Measurement("d", [40.0, 40.0], stddev=1.0)
    form = SquaredLoss(DOMAIN, [first, second], 100.0).separable()
    assert form.targets.cliques == (("d",),)
    np.testing.assert_allclose(form.weights, [100.0**2 * 1.25])
    np.testing.assert_allclose(form.targets["d"], [0.38, 0.42])
    spread = 0.5 * ((8**2 + 8**2) / 4 + (2**2 + 2**2) / 1)
    assert form.constant == pytest.approx(spread)


def test_merging_changes_nothing() -> None:
    """A repeated measurement given as a dense identity is not merged, so it is the judge."""
    plain = [noisy("ab"), noisy("ab", 3.0), noisy("ab", 0.5)]
    unmerged = [Measurement(("a", "b"), m.values, stddev=m.stddev, query=np.eye(6)) for m in plain]
    tau = random_tau(Layout(DOMAIN, [("a", "b", "c"), ("a", "b")]), np.random.default_rng(7))
    merged = SquaredLoss(DOMAIN, plain, TOTAL)
    apart = SquaredLoss(DOMAIN, unmerged, TOTAL)
    assert len(merged.separable().rest) == 0
    assert len(apart.separable().rest) == 3
    (value, gradient), (other, same) = merged.value_and_grad(tau), apart.value_and_grad(tau)
    assert value == pytest.approx(other, rel=1e-12)
    np.testing.assert_allclose(gradient.values, same.values, rtol=1e-11, atol=1e-9)
    assert merged.smoothness == pytest.approx(apart.smoothness)


def test_a_clique_goes_to_the_first_smallest_that_contains_it() -> None:
    loss = SquaredLoss(DOMAIN, [noisy("a")], TOTAL)
    layout = Layout(DOMAIN, [("a", "b", "c"), ("a", "b"), ("a", "c"), ("b", "d"), ("a", "d")])
    gradient = loss.value_and_grad(random_tau(layout, np.random.default_rng(8)))[1]
    assert [c for c, table in gradient.items() if table.any()] == [("a", "d")]
    assert CliqueVector(layout).covering("a") == ("a", "d")


def test_total_is_estimated_or_given() -> None:
    measurements = MEASUREMENTS["identity"]
    estimated = estimate_total(DOMAIN, measurements).value
    assert SquaredLoss(DOMAIN, measurements).total == estimated
    assert AbsoluteLoss(DOMAIN, measurements).total == estimated
    assert SquaredLoss(DOMAIN, measurements, total=7).total == 7.0
    undetermined = [noisy("c", query=Ranges(4, [(0, 2)]))]
    with pytest.raises(MeasurementError, match="some measurement must determine the total"):
        SquaredLoss(DOMAIN, undetermined)
    assert SquaredLoss(DOMAIN, undetermined, total=7).total == 7.0


def test_the_total_does_not_ask_for_a_clique() -> None:
    loss = SquaredLoss(DOMAIN, [Measurement((), 90.0, stddev=5.0), noisy("ab")], TOTAL)
    assert loss.cliques == (("a", "b"),)
    assert loss.separable().constant == pytest.approx(0.5 * 4.0)


def test_smoothing_gap_bounds_the_distance_to_the_absolute_loss() -> None:
    measurements = MEASUREMENTS["product"] + MEASUREMENTS["repeated"]
    exact = AbsoluteLoss(DOMAIN, measurements, TOTAL, smoothing=0)
    layout = Layout(DOMAIN, exact.cliques)
    for smoothing in (0.01, 0.1, 1.0, 10.0):
        smoothed = AbsoluteLoss(DOMAIN, measurements, TOTAL, smoothing=smoothing)
        tau = random_tau(layout, np.random.default_rng(9))
        gap = exact.value_and_grad(tau)[0] - smoothed.value_and_grad(tau)[0]
        assert 0 < gap <= smoothed.smoothing_gap
    assert exact.smoothing_gap == 0


@pytest.mark.parametrize("total", [0, -3.0, np.nan, np.inf])
def test_bad_total(total: float) -> None:
    with pytest.raises(MeasurementError, match="total must be positive and finite, got"):
        SquaredLoss(DOMAIN, [noisy("a")], total)


@pytest.mark.parametrize("smoothing", [-0.1, np.nan, np.inf])
def test_bad_smoothing(smoothing: float) -> None:
    with pytest.raises(LossError, match="smoothing must be finite and at least 0, got"):
        AbsoluteLoss(DOMAIN, [noisy("a")], smoothing=smoothing)


def test_no_clique_that_covers() -> None:
    loss = SquaredLoss(DOMAIN, [noisy("ab")], TOTAL)
    words = r"some clique of the vector must contain \('a', 'b'\), none of 2 does"
    with pytest.raises(DomainError, match=words):
        loss.bind(Layout(DOMAIN, [("a", "c"), ("b",)]))


def test_another_domain() -> None:
    other = Domain({"a": 2, "b": 3})
    with pytest.raises(DomainError, match="a loss must be bound to its own domain"):
        SquaredLoss(DOMAIN, [noisy("ab")], TOTAL).bind(Layout(other, [("a", "b")]))


def test_no_measurements() -> None:
    with pytest.raises(MeasurementError, match="at least one measurement must be given, got none"):
        SquaredLoss(DOMAIN, [])
    with pytest.raises(DomainError, match="clique of a measurement must be in the domain"):
        SquaredLoss(DOMAIN, [Measurement("z", [1.0], stddev=1)])
