"""The problems that benchmarks share: noisy marginals of generated records, over domains of the paper's sizes."""

from __future__ import annotations

import json
import os
from itertools import combinations
from pathlib import Path

import numpy as np

import consilience as cs

FOLDER = Path(os.environ.get("CONSILIENCE_DATA", Path(__file__).parents[2] / "shared" / "data"))
ADULT = (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)
RECORDS = 20_000
STDDEV = 20.0

Cliques = list[tuple[str, ...]]


def hundred() -> cs.Domain:
    """100 attributes of size 10."""
    return cs.Domain({f"x{i:02d}": 10 for i in range(100)})


def adult() -> cs.Domain:
    """The sizes of adult: 2 to 100."""
    path = FOLDER / "adult-domain.json"
    if path.exists():
        return cs.Domain(json.loads(path.read_text()))
    return cs.Domain({f"x{i:02d}": n for i, n in enumerate(ADULT)})


def triples(domain: cs.Domain, kind: str, count: int) -> Cliques:
    """`random`: drawn without replacement. `greedy`: those that span the fewest attributes of the order."""
    if kind == "random":
        return list(cs.random_marginals(domain, 3, count, seed=0))
    near = sorted(combinations(range(len(domain)), 3), key=lambda t: (t[2] - t[0], t))
    return [tuple(domain.attributes[i] for i in t) for t in near[:count]]


def records(domain: cs.Domain) -> cs.Dataset:
    """Each attribute follows the one before it with some noise, so that marginals are far from uniform."""
    rng = np.random.default_rng(0)
    codes = np.empty((RECORDS, len(domain)), np.int64)
    before = rng.random(RECORDS)
    for i, n in enumerate(domain.shape):
        before = np.where(rng.random(RECORDS) < 0.7, before, rng.random(RECORDS) ** 2)
        codes[:, i] = np.minimum((before * n).astype(np.int64), n - 1)
    return cs.Dataset(codes, domain)


def noisy(domain: cs.Domain, cliques: Cliques, stddev: float = STDDEV) -> list[cs.Measurement]:
    """The marginals with Gaussian noise."""
    exact = records(domain).marginals(cliques)
    rng = np.random.default_rng(1)
    return [
        cs.Measurement(c, table + rng.normal(0.0, stddev, table.shape), stddev=stddev)
        for c, table in exact.items()
    ]


def loss(domain: cs.Domain, cliques: Cliques) -> cs.SquaredLoss:
    return cs.SquaredLoss(domain, noisy(domain, cliques), total=RECORDS)
