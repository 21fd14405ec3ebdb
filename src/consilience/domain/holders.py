"""Holders: the one answer to "which is the smallest clique that holds these attributes?"."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence


class Holders:
    """An inverted index of a list of cliques. Attributes may be names or positions, as long as questions use the same."""

    def __init__(self, cliques: Iterable[Iterable[Hashable]]) -> None:
        found: dict[Hashable, set[int]] = {}
        count = 0
        for i, clique in enumerate(cliques):
            count += 1
            for a in clique:
                found.setdefault(a, set()).add(i)
        self._every = frozenset(range(count))
        self._by_attribute = {a: frozenset(s) for a, s in found.items()}

    def of(self, attributes: Iterable[Hashable]) -> frozenset[int]:
        """The numbers of all cliques that hold every one of these attributes; all cliques hold the empty set."""
        sets = [self._by_attribute.get(a, frozenset()) for a in attributes]
        return frozenset.intersection(*sets) if sets else self._every

    def touching(self, attributes: Iterable[Hashable]) -> frozenset[int]:
        """The numbers of all cliques that hold at least one of these attributes."""
        return frozenset().union(*(self._by_attribute.get(a, frozenset()) for a in attributes))

    def smallest(self, attributes: Iterable[Hashable], sizes: Sequence[int]) -> int | None:
        """Among the cliques that hold these attributes the one of least size, the first of equals; None if none does."""
        return min(self.of(attributes), key=lambda i: (sizes[i], i), default=None)
