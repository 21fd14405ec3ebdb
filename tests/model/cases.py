"""Tables that a model could hold: random joints, their marginals on a graph, and the same made only locally consistent."""

from __future__ import annotations

import numpy as np

from claims.judges import marginal
from consilience.domain import CliqueVector, Domain
from consilience.regions import RegionGraph
from consilience.regions.pseudo_marginals import PseudoMarginals


def random_joint(domain: Domain, seed: int, zeros: float = 0.0) -> np.ndarray:
    """A skewed joint distribution, with this share of its cells impossible."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(domain.size(), 0.3)).reshape(domain.shape)
    p = np.where(rng.random(domain.shape) < zeros, 0.0, p)
    return p / p.sum()


def known_of(
    domain: Domain, p: np.ndarray, words: str, kind=RegionGraph.saturated
) -> PseudoMarginals:
    cliques = [tuple(word) for word in words.split()]
    graph = kind(domain, cliques)
    tau = CliqueVector.from_tables(domain, {r: marginal(domain, p, r) for r in graph.regions})
    return PseudoMarginals.of(graph, tau, cliques)


def maximum_entropy(domain: Domain, known: PseudoMarginals, rounds: int = 3000) -> np.ndarray:
    """Proportional fitting on the whole joint, as in a textbook."""
    q = np.full(domain.shape, 1.0 / domain.size())
    for _ in range(rounds):
        for c in known.cliques:
            have, want = marginal(domain, q, c), known.table(c)
            ratio = np.divide(want, have, out=np.zeros_like(have), where=have > 0)
            q = q * ratio.reshape([domain[a] if a in c else 1 for a in domain])
    return q


def unrealisable(strength: float = 0.95) -> PseudoMarginals:
    """Three binary pairs that agree on single attributes and that no joint has: a = b, b = c, a = not c, each nearly always."""
    domain = Domain({"a": 2, "b": 2, "c": 2})
    same = np.array([[strength, 1 - strength], [1 - strength, strength]]) / 2
    graph = RegionGraph.saturated(domain, [tuple(w) for w in ("ab", "bc", "ac")])
    tables = {("a", "b"): same, ("b", "c"): same, ("a", "c"): same[::-1]}
    tables |= {(x,): np.full(2, 0.5) for x in "abc"}
    return PseudoMarginals.of(graph, CliqueVector.from_tables(domain, tables), graph.regions[:0])
