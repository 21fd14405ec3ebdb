"""The paper's A-B-C chain: A and C were never measured together, and their correlation must survive."""

from __future__ import annotations

import numpy as np
import pytest

import consilience as cs
from claims.judges import joint, marginal
from consilience.domain import CliqueVector, Domain
from consilience.tree.growth import backbone_of
from model.cases import known_of


def chain(length: int, size: int, strength: float, seed: int) -> tuple[Domain, np.ndarray, str]:
    """A Markov chain whose neighbours are strongly tied, and the words of its edges."""
    domain = Domain({"abcdefgh"[i]: size for i in range(length)})
    rng = np.random.default_rng(seed)
    names = domain.attributes
    theta = CliqueVector.zeros(domain, [(names[i], names[i + 1]) for i in range(length - 1)])
    for c in theta.cliques:
        theta[c][...] = strength * np.eye(size) + 0.3 * rng.normal(size=(size, size))
    return domain, joint(theta)[0], " ".join(a + b for a, b in theta.cliques)


@pytest.mark.parametrize("length, size", [(3, 2), (3, 5), (5, 3), (8, 3)])
def test_the_ends_of_a_chain_stay_dependent(length: int, size: int) -> None:
    domain, p, words = chain(length, size, 3.0, 1)
    known = known_of(domain, p, words)
    backbone = backbone_of(known)
    ends = (domain.attributes[0], domain.attributes[-1])
    truth = marginal(domain, p, ends)
    found = backbone.marginal(ends)
    np.testing.assert_allclose(found, truth, atol=1e-12)
    independent = np.outer(truth.sum(axis=1), truth.sum(axis=0))
    assert np.abs(truth - independent).sum() > 0.1


@pytest.mark.parametrize("consistency", ["local", "global", "factor"])
def test_a_reconstructed_model_keeps_the_correlation(consistency: str) -> None:
    domain, p, _ = chain(3, 2, 3.0, 0)
    made = [
        cs.Measurement(c, 1e6 * marginal(domain, p, c), stddev=1.0)
        for c in (("a", "b"), ("b", "c"))
    ]
    model = cs.reconstruct(
        domain, made, total=1e6, fit=cs.LeastSquares(consistency=consistency, tolerance=1e-10)
    )
    truth = marginal(domain, p, ("a", "c"))

    def correlation(t: np.ndarray) -> float:
        one, other = t.sum(axis=1)[1], t.sum(axis=0)[1]
        return float((t[1, 1] - one * other) / np.sqrt(one * (1 - one) * other * (1 - other)))

    assert correlation(truth) > 0.5
    assert abs(correlation(model.marginal(("a", "c")) / 1e6) - correlation(truth)) <= 1e-6
    assert abs(correlation(model.marginal(("a", "c"), "local") / 1e6)) <= 1e-9
