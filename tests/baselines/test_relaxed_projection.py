"""The mixture of products against dense sums, finite differences, and data that it can represent."""

from __future__ import annotations

import numpy as np
import pytest

import consilience as cs
from consilience.baselines import Answers, relaxed_projection
from consilience.baselines.relaxed_projection import ProductWiring
from consilience.domain import Layout
from consilience.errors import ConsilienceError, DomainError

DOMAIN = cs.Domain({"a": 2, "b": 4, "c": 3, "d": 3})
CLIQUES = [("a", "b"), ("b", "c", "d"), ("d",), ("a", "b", "c", "d")]


def dense(p, domain):
    """The joint table of a mixture whose attributes' rows lie below each other."""
    starts = np.cumsum([0, *domain.shape])
    parts = [p[starts[i] : starts[i + 1]] for i in range(len(domain))]
    return np.einsum("ak,bk,ck,dk->abcd", *parts) / p.shape[1]


def wiring_and_phi(components=5, seed=0):
    wiring = ProductWiring.of(Layout(DOMAIN, CLIQUES))
    return wiring, np.random.default_rng(seed).standard_normal((wiring.length, components))


def test_marginals_are_those_of_the_dense_mixture() -> None:
    wiring, phi = wiring_and_phi()
    p = wiring.probabilities(phi)
    joint = dense(p, DOMAIN)
    np.testing.assert_allclose(joint.sum(), 1)
    for clique, table in wiring.marginals(p).items():
        axes = tuple(i for i, a in enumerate(DOMAIN.attributes) if a not in clique)
        np.testing.assert_allclose(table, joint.sum(axis=axes), atol=1e-14)


def test_the_gradient_is_that_of_finite_differences() -> None:
    wiring, phi = wiring_and_phi()
    slope = np.random.default_rng(1).standard_normal(wiring.layout.cells)

    def value(at):
        return float(slope @ wiring.marginals(wiring.probabilities(at)).values)

    found = wiring.gradient(wiring.probabilities(phi), slope)
    step = 1e-6
    for v, k in np.ndindex(*phi.shape):
        up, low = phi.copy(), phi.copy()
        up[v, k] += step
        low[v, k] -= step
        assert found[v, k] == pytest.approx((value(up) - value(low)) / (2 * step), abs=2e-9)


def test_a_mixture_is_found_again_and_answers_what_was_not_measured() -> None:
    """Two products measured on all pairs, without noise to speak of."""
    rng = np.random.default_rng(2)
    starts = [*DOMAIN.shape]
    p = np.vstack([rng.dirichlet(np.ones(n), size=2).T for n in starts])
    joint = dense(p, DOMAIN) * 1000
    cliques = list(cs.all_marginals(DOMAIN, 2).cliques)
    exact = {
        c: joint.sum(axis=tuple(i for i, a in enumerate(DOMAIN.attributes) if a not in c))
        for c in cliques
    }
    found = relaxed_projection(
        DOMAIN,
        [cs.Measurement(c, exact[c], stddev=1) for c in cliques],
        total=1000,
        iterations=1500,
    )
    assert isinstance(found, Answers)
    for c in cliques:
        assert np.abs(found.marginal(c) - exact[c]).sum() < 10
    assert found.in_model(("a", "b", "c"))
    triple = found.marginal(("a", "b", "c"))
    assert np.abs(triple - joint.sum(axis=3)).sum() < 100
    np.testing.assert_allclose(triple.sum(axis=2), found.marginal(("a", "b")), rtol=1e-10)
    np.testing.assert_array_equal(found.marginal(("b", "a")), found.marginal(("a", "b")).T)
    assert found.marginal(()) == 1000


def test_the_same_seed_gives_the_same_bits_another_seed_does_not() -> None:
    given = [cs.Measurement(("a", "b"), np.arange(8.0).reshape(2, 4), stddev=1)]
    runs = [
        relaxed_projection(DOMAIN, given, iterations=20, components=7, seed=s) for s in (0, 0, 1)
    ]
    np.testing.assert_array_equal(runs[0].probabilities, runs[1].probabilities)
    assert np.abs(runs[0].probabilities - runs[2].probabilities).max() > 1e-3


def test_queries_and_progress() -> None:
    """A query says how many have b >= 2; the fit must meet it."""
    seen: list[cs.Solution] = []
    query = np.array([[0.0, 0, 1, 1]])
    found = relaxed_projection(
        DOMAIN,
        [
            cs.Measurement("b", [70.0], stddev=1, query=query),
            cs.Measurement("a", [50.0, 50.0], stddev=1),
        ],
        iterations=300,
        components=3,
        progress=seen.append,  # type: ignore[arg-type]
    )
    assert found.marginal("b")[2:].sum() == pytest.approx(70, abs=0.5)
    assert [s.done for s in seen] == [100, 200, 300]  # type: ignore[attr-defined]
    assert seen[-1].objective < 1e-2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"components": 0}, "components must be at least 1, got 0"),
        ({"iterations": 0}, "iterations must be at least 1, got 0"),
        ({"rate": -1.0}, "rate must be positive and finite, got -1.0"),
    ],
)
def test_bad_settings_are_refused(settings, words) -> None:
    with pytest.raises(ConsilienceError, match=words):
        relaxed_projection(DOMAIN, [cs.Measurement("a", [1.0, 2.0], stddev=1)], **settings)


def test_attributes_must_be_distinct() -> None:
    found = relaxed_projection(
        DOMAIN, [cs.Measurement("a", [1.0, 2.0], stddev=1)], iterations=1, components=2
    )
    with pytest.raises(DomainError, match="distinct"):
        found.marginal(("a", "a"))
