"""Workloads: which cliques a user cares about, and how much.

A workload is a mapping from canonical clique to positive weight, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import comb, isfinite

import numpy as np

from consilience.domain.domain import Clique, Domain
from consilience.errors import DomainError


@dataclass(frozen=True, repr=False)
class Workload(Mapping[Clique, float]):
    """Cliques with positive weights (1 unless given). Iterating yields the cliques."""

    domain: Domain
    weights: Mapping[Clique, float]

    def __init__(
        self,
        domain: Domain,
        cliques: Iterable[Iterable[str]] | Mapping[Clique, float],
    ) -> None:
        pairs = cliques.items() if isinstance(cliques, Mapping) else ((c, 1.0) for c in cliques)
        weights: dict[Clique, float] = {}
        for given, weight in pairs:
            clique = domain.clique(given)
            if not (isfinite(weight) and weight > 0):
                raise DomainError(
                    f"the weight of a workload clique must be positive and finite, got {weight} for {clique}"
                )
            weights[clique] = (
                weights.get(clique, 0.0) + float(weight) if clique in weights else float(weight)
            )
        if not weights:
            raise DomainError("a workload must hold at least one clique, got none")
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "weights", weights)

    def __getitem__(self, clique: Clique) -> float:
        return self.weights[self.domain.clique(clique)]

    def __iter__(self) -> Iterator[Clique]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def cliques(self) -> tuple[Clique, ...]:
        return tuple(self.weights)

    @property
    def cells(self) -> int:
        return sum(self.domain.size(c) for c in self.weights)

    def __repr__(self) -> str:
        orders = sorted({len(c) for c in self.weights})
        ways = "/".join(f"{k}-way" for k in orders)
        return f"Workload({len(self)} {ways} marginals, {self.cells:,} cells)"


def all_marginals(domain: Domain, k: int) -> Workload:
    """All marginals of exactly k attributes, in domain order."""
    _check_order(domain, k)
    return Workload(domain, combinations(domain.attributes, k))


def random_marginals(domain: Domain, k: int, count: int, seed: int) -> Workload:
    """`count` distinct k-way marginals drawn without replacement, the same for the same seed."""
    _check_order(domain, k)
    available = comb(len(domain), k)
    if not 1 <= count <= available:
        raise DomainError(
            f"count must be between 1 and {available} for {k}-way marginals, got {count}"
        )
    rng = np.random.default_rng(seed)
    if available <= 2_000_000:
        every = list(combinations(domain.attributes, k))
        chosen = [every[i] for i in rng.choice(available, count, replace=False)]
    else:
        seen: dict[tuple[int, ...], None] = {}
        while len(seen) < count:
            seen.setdefault(tuple(sorted(rng.choice(len(domain), k, replace=False).tolist())))
        chosen = [tuple(domain.attributes[i] for i in c) for c in seen]
    return Workload(domain, chosen)


def maximal(domain: Domain, cliques: Iterable[Iterable[str]]) -> tuple[Clique, ...]:
    """The cliques that no other one contains, each once, in order of first appearance."""
    canonical = list(dict.fromkeys(domain.clique(c) for c in cliques))
    holders: dict[str, set[int]] = {}
    kept: list[Clique] = []
    for i in sorted(range(len(canonical)), key=lambda i: -len(canonical[i])):
        clique = canonical[i]
        # Contained in a kept clique iff some kept clique holds every attribute of it.
        common = (
            set.intersection(*(holders.get(a, set()) for a in clique))
            if clique
            else set(range(len(kept)))
        )
        if common:
            continue
        for a in clique:
            holders.setdefault(a, set()).add(len(kept))
        kept.append(clique)
    keep = set(kept)
    return tuple(c for c in canonical if c in keep)


def closure(domain: Domain, cliques: Iterable[Iterable[str]]) -> tuple[Clique, ...]:
    """All subsets of the cliques, the empty one included, smaller ones first, then domain order."""
    seen: dict[Clique, None] = {}
    for given in cliques:
        clique = domain.clique(given)
        if clique in seen:
            continue
        for k in range(len(clique) + 1):
            for subset in combinations(clique, k):
                seen.setdefault(subset)
    return tuple(sorted(seen, key=lambda c: (len(c), domain.axes(c))))


def _check_order(domain: Domain, k: int) -> None:
    if not 1 <= k <= len(domain):
        raise DomainError(
            f"k must be between 1 and the number of attributes ({len(domain)}), got {k}"
        )
