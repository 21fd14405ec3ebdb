"""Networks of 40 to 80 variables with long chains, measured on their edges and on random pairs until exact inference gives up:
out of the model the backbone's L1 distance to the truth is at most half of the local method's.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from consilience.domain import CliqueVector, Domain
from consilience.model.out_of_model import inferred
from consilience.records import Dataset
from consilience.regions import RegionGraph
from consilience.regions.junction_tree import JunctionTree
from consilience.regions.pseudo_marginals import PseudoMarginals
from consilience.tree.growth import backbone_of

MEMORY = 8_000_000
"""Bytes for the backbone here: an eighth of the default, so that exact inference gives up early."""


def network(variables: int, seed: int, rows: int = 60_000) -> tuple[Domain, np.ndarray, list]:
    """Records of a network in which most variables follow the one before, some a second one too; and its edges."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 6, variables)
    codes = np.zeros((rows, variables), np.int64)
    edges = []
    codes[:, 0] = rng.integers(sizes[0], size=rows)
    for v in range(1, variables):
        first = v - 1 if rng.random() < 0.9 else int(rng.integers(v))
        parents = {first, int(rng.integers(v))} if rng.random() < 0.25 else {first}
        near = sum(codes[:, p] * (3 + i) for i, p in enumerate(sorted(parents)))
        noise = rng.random(rows) < 0.08
        codes[:, v] = np.where(noise, rng.integers(sizes[v], size=rows), near % sizes[v])
        edges += [tuple(sorted((p, v))) for p in parents]
    return Domain({f"x{i:02}": int(n) for i, n in enumerate(sizes)}), codes, edges


def compare(variables: int, seed: int) -> tuple[float, float, int]:
    """Mean L1 out of the model, backbone and local, and how many pairs were measured."""
    domain, codes, edges = network(variables, seed)
    names = domain.attributes
    data = Dataset(codes, domain)
    pairs = list(combinations(names, 2))
    truth = {c: t / len(codes) for c, t in data.marginals(pairs).items()}
    measured = list(dict.fromkeys((names[a], names[b]) for a, b in edges))
    spare = np.random.default_rng(seed).permutation(pairs).tolist()
    while 8 * JunctionTree.of(domain, measured).cells <= 50 * MEMORY:
        measured.append(tuple(spare.pop()))
    measured = list(dict.fromkeys(measured))
    graph = RegionGraph.saturated(domain, measured)
    tables = {c: truth[c] if len(c) == 2 else data.marginal(c) / len(codes) for c in graph.regions}
    known = PseudoMarginals.of(graph, CliqueVector.from_tables(domain, tables), measured)
    backbone = backbone_of(known, MEMORY)
    assert not backbone.whole
    out = [p for p in pairs if not known.holds(p)]
    distance = []
    for method in ("backbone", "local"):
        found, _ = inferred(known, out, method, lambda: backbone)
        lost = [np.abs(t - truth[c]).sum() for c, t in zip(out, found, strict=True)]
        distance.append(float(np.mean(lost)))
    return distance[0], distance[1], len(measured)


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables, seed",
    [
        (40, 0),
        pytest.param(60, 1, marks=pytest.mark.slow),
        pytest.param(80, 2, marks=pytest.mark.slow),
    ],
)
def test_at_most_half_of_the_local_distance(variables: int, seed: int) -> None:
    ours, local, measured = compare(variables, seed)
    assert measured > variables + 10
    assert ours <= 0.5 * local
