"""Workloads: which cliques a user cares about, and how much.

A workload is a mapping from canonical clique to positive weight, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import comb, isfinite
from types import MappingProxyType
from typing import Any

import numpy as np

from consilience.domain.cliques import Cliques, Family
from consilience.domain.domain import Clique, Domain, whole_number
from consilience.domain.rows import row_keys, subsets_of
from consilience.errors import DomainError


@dataclass(frozen=True, repr=False)
class Workload(Mapping[Clique, float]):
    """Cliques with positive weights (1 unless given). Iterating yields the cliques.

    A list names each clique once, however often and in whatever order its attributes are spelled; a mapping that spells one
    clique twice gives it the sum of the weights. Attributes may be read at levels: ("county", "race").
    """

    domain: Domain
    weights: Mapping[Clique, float]

    def __init__(
        self,
        domain: Domain,
        cliques: Iterable[Iterable[str]] | Mapping[Any, float],
    ) -> None:
        weights: dict[Clique, float] = {}
        if isinstance(cliques, Mapping):
            for given, weight in cliques.items():
                clique = domain.named(given)
                weights[clique] = weights.get(clique, 0.0) + _checked_weight(clique, weight)
        elif not isinstance(cliques, Iterable):
            raise DomainError(
                f"a workload must be a list of cliques, or {{clique: weight}}, got {cliques!r}"
            )
        else:
            weights = dict.fromkeys((domain.named(c) for c in cliques), 1.0)
        if not weights:
            raise DomainError("a workload must hold at least one clique, got none")
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "weights", MappingProxyType(weights))

    def __hash__(self) -> int:
        return hash((self.domain, frozenset(self.weights.items())))

    def __reduce__(self) -> tuple[type[Workload], tuple[Domain, dict[Clique, float]]]:
        return Workload, (self.domain, dict(self.weights))

    def __getitem__(self, clique: Clique) -> float:
        return self.weights[self.domain.named(clique)]

    def __iter__(self) -> Iterator[Clique]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def cliques(self) -> tuple[Clique, ...]:
        return tuple(self.weights)

    @property
    def at_levels(self) -> bool:
        """Whether some of them are read at a level of an attribute."""
        return any(a in self.domain.levels for c in self.weights for a in c)

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
    wanted = whole_number(count)
    if wanted is None or not 1 <= wanted <= available:
        raise DomainError(
            f"count must be a whole number from 1 to {available} for {k}-way marginals, got {count!r}"
        )
    start = whole_number(seed)
    if start is None or start < 0:
        raise DomainError(f"seed must be a whole number that is not negative, got {seed!r}")
    rng = np.random.default_rng(start)
    if available <= 2_000_000:
        every = list(combinations(domain.attributes, k))
        chosen = [every[i] for i in rng.choice(available, count, replace=False)]
    else:
        seen: dict[tuple[int, ...], None] = {}
        while len(seen) < count:
            seen.setdefault(tuple(sorted(rng.choice(len(domain), k, replace=False).tolist())))
        chosen = [tuple(domain.attributes[i] for i in c) for c in seen]
    return Workload(domain, chosen)


def maximal(domain: Domain, cliques: Iterable[Iterable[str]]) -> Cliques:
    """The cliques that no other one contains, each once, in order of first appearance."""
    return Cliques.of(domain, cliques).maximal()


def closure(domain: Domain, cliques: Iterable[Iterable[str]]) -> Cliques:
    """All subsets of the cliques, the empty one included, smaller ones first, then domain order."""
    by_rank = Cliques.of(domain, cliques).sets.by_rank
    parts = []
    for size in range(max(by_rank, default=-1) + 1):
        rows = [subsets_of(rows, size) for rank, (_, rows) in by_rank.items() if rank >= size]
        every = np.concatenate(rows)
        parts.append(every[np.unique(row_keys(every), return_index=True)[1]])
    return Cliques(domain, Family.joined(Family.of_rows(p) for p in parts))


def _check_order(domain: Domain, k: int) -> None:
    order = whole_number(k)
    if order is None or not 1 <= order <= len(domain):
        raise DomainError(
            f"k must be a whole number from 1 to the number of attributes ({len(domain)}), got {k!r}"
        )


def _checked_weight(clique: Clique, weight: object) -> float:
    number = isinstance(weight, int | float | np.integer | np.floating)
    if isinstance(weight, bool) or not number or not (isfinite(weight) and weight > 0):
        raise DomainError(
            f"the weight of a workload clique must be a positive, finite number, got {weight!r} for {clique}"
        )
    return float(weight)
