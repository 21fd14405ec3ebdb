"""The likelihood of choices against the dense formula, finite differences and convexity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import consilience as cs
from consilience.errors import LossError, MeasurementError
from consilience.measurements.selections import Choice, SelectionLoss, Selections

DOMAIN = cs.Domain({"a": 2, "b": 3, "c": 4})
CLIQUES = [("a", "b"), ("b", "c"), ("a",)]
CELLS = 6 + 12 + 2


def random_choices(rng, rounds, beta, several=False):
    out = []
    for t in range(rounds):
        cells = rng.choice(CELLS, size=rng.integers(0, 7), replace=False)
        count = int(rng.integers(1, 4)) if several else 1
        out.append(
            Choice(
                beta * (t + 1 if several else 1),
                cells,
                rng.random(len(cells)),
                rng.integers(0, CELLS, count),
                rng.choice([-1, 1], count),
            )
        )
    return out


def dense(choices, mu):
    """The formula of the module's docstring, nothing sparse about it; also its gradient."""
    value, slope = 0.0, np.zeros(CELLS)
    for c in choices:
        a = np.zeros(CELLS)
        a[c.cells] = c.shares
        x = c.beta * (mu - a)
        top = np.abs(x).max()
        mass = (np.exp(x - top) + np.exp(-x - top)).sum()
        value += -(c.signs * x[c.chosen]).sum() + len(c.chosen) * (top + np.log(mass))
        slope += len(c.chosen) * c.beta * (np.exp(x - top) - np.exp(-x - top)) / mass
        np.add.at(slope, c.chosen, -c.beta * c.signs)
    return value, slope


def random_tau(rng, spike=1.0):
    tau = cs.CliqueVector.zeros(DOMAIN, CLIQUES)
    for clique in tau:
        tau[clique] = rng.dirichlet(np.full(DOMAIN.size(clique), spike))
    return tau


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([0.3, 5.0, 60.0, 195.0, 3000.0]),
    st.sampled_from([0.05, 1.0]),
    st.booleans(),
)
def test_value_and_gradient_are_those_of_the_dense_formula(seed, beta, spike, several) -> None:
    rng = np.random.default_rng(seed)
    choices = random_choices(rng, 5, beta, several)
    tau = random_tau(rng, spike)
    value, gradient = SelectionLoss(Selections.of(DOMAIN, CLIQUES, choices)).value_and_grad(tau)
    expected, slope = dense(choices, tau.values)
    assert value == pytest.approx(expected, rel=1e-9, abs=1e-7)
    np.testing.assert_allclose(gradient.values, slope, rtol=1e-7, atol=1e-8 * beta)


def test_the_gradient_is_that_of_finite_differences() -> None:
    rng = np.random.default_rng(1)
    loss = SelectionLoss(Selections.of(DOMAIN, CLIQUES, random_choices(rng, 6, 20.0)))
    bound = loss.bind(cs.CliqueVector.zeros(DOMAIN, CLIQUES).layout)
    tau = random_tau(rng).values
    _, gradient = bound.value_and_grad(tau)
    for j in range(CELLS):
        step = np.zeros(CELLS)
        step[j] = 1e-5
        slope = (bound.value_and_grad(tau + step)[0] - bound.value_and_grad(tau - step)[0]) / 2e-5
        assert gradient[j] == pytest.approx(slope, abs=1e-5)


def test_it_is_convex_and_as_smooth_as_it_says() -> None:
    rng = np.random.default_rng(2)
    loss = SelectionLoss(Selections.of(DOMAIN, CLIQUES, random_choices(rng, 4, 9.0, several=True)))
    assert loss.smoothness is not None
    for _ in range(200):
        a, b = random_tau(rng, 0.3), random_tau(rng, 0.3)
        (at_a, _), (at_b, slope) = loss.value_and_grad(a), loss.value_and_grad(b)
        beyond = at_a - at_b - slope.dot(a - b)
        apart = sum(np.abs(a[c] - b[c]).sum() ** 2 for c in CLIQUES)
        assert -1e-9 <= beyond <= loss.smoothness / 2 * apart + 1e-9


def test_a_choice_raises_the_cell_that_was_chosen() -> None:
    """Many choices of one cell: the likeliest table has more there than uniform."""
    chosen = Choice(30.0, np.zeros(0, np.int64), np.zeros(0), np.array([3]), np.array([1]))
    loss = SelectionLoss(Selections.of(DOMAIN, CLIQUES, [chosen] * 20))
    tau = cs.prox_pgm(loss, cs.RegionGraph.saturated(DOMAIN, CLIQUES), iterations=200).tau
    assert tau["a", "b"].reshape(-1)[3] > 0.5
    np.testing.assert_allclose(tau["a", "b"].sum(axis=1), tau["a"], atol=1e-8)


def test_it_reads_its_cliques_from_larger_ones() -> None:
    rng = np.random.default_rng(3)
    choices = random_choices(rng, 3, 12.0)
    whole = cs.CliqueVector.from_tables(
        DOMAIN, {("a", "b", "c"): rng.dirichlet(np.ones(24)).reshape(2, 3, 4)}
    )
    value, gradient = SelectionLoss(Selections.of(DOMAIN, CLIQUES, choices)).value_and_grad(whole)
    mu = np.concatenate([whole.project(c).reshape(-1) for c in CLIQUES])
    assert value == pytest.approx(dense(choices, mu)[0])
    assert gradient["a", "b", "c"].shape == (2, 3, 4)


EMPTY, ONE = np.zeros(0, np.int64), np.ones(1, np.int64)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (Choice(0.0, EMPTY, np.zeros(0), ONE, ONE), "beta must be positive and finite, got 0.0"),
        (Choice(1.0, ONE * 99, np.ones(1), ONE, ONE), "answered cells must be from 0 to 19"),
        (Choice(1.0, EMPTY, np.zeros(0), ONE * -1, ONE), "chosen cells must be from 0 to 19"),
        (Choice(1.0, EMPTY, np.zeros(0), EMPTY, EMPTY), "at least one; got 0 cells"),
        (Choice(1.0, ONE, np.zeros(0), ONE, ONE), "one share per answered cell"),
        (
            Choice(1.0, np.array([1, 1]), np.ones(2), ONE, ONE),
            "each answered cell must be given once",
        ),
        (Choice(1.0, EMPTY, np.zeros(0), ONE, ONE * 2), "signs must be 1"),
    ],
)
def test_what_a_round_must_be(choice, words) -> None:
    with pytest.raises(MeasurementError, match=words):
        Selections.of(DOMAIN, CLIQUES, [choice])


def test_no_rounds_no_likelihood() -> None:
    with pytest.raises(LossError, match="at least one round"):
        SelectionLoss(Selections.of(DOMAIN, CLIQUES, []))
