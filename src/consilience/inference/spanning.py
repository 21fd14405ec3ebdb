"""The maximum-mutual-information spanning tree of pairs: the least that keeps long-range dependence."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from consilience.domain import Buffer, Clique, Domain


def mutual_information(table: Buffer) -> float:
    """I(a; b) in nats of a distribution over two attributes."""
    independent = np.outer(table.sum(axis=1), table.sum(axis=0))
    live = table > 0
    return max(0.0, float((table[live] * np.log(table[live] / independent[live])).sum()))


def spanning_tree(domain: Domain, weights: Iterable[tuple[Clique, float]]) -> tuple[Clique, ...]:
    """Kruskal: the heaviest pairs that close no circle. Connects whatever the pairs connect; ties go to domain order."""
    leader = {a: a for a in domain}

    def find(a: str) -> str:
        while leader[a] != a:
            leader[a] = leader[leader[a]]
            a = leader[a]
        return a

    kept = []
    for pair, _ in sorted(weights, key=lambda w: (-w[1], domain.axes(w[0]))):
        ends = find(pair[0]), find(pair[1])
        if ends[0] != ends[1]:
            leader[ends[0]] = ends[1]
            kept.append(pair)
    return tuple(sorted(kept, key=domain.axes))
