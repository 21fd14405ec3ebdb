"""PseudoMarginals: tables on a region graph as questions see them: which attribute sets they decide, and what they say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from consilience.domain import Buffer, Clique, Cliques, CliqueVector, Domain, Family, maximal
from consilience.domain.rows import row_keys, subsets_of
from consilience.regions.region_graph import Kind, RegionGraph


@dataclass(frozen=True, eq=False)
class PseudoMarginals:
    """tau on the regions of a graph, and the cliques that it is trusted on.

    A clique is in the model if one of `cliques` contains it. For a junction tree these are the measured cliques: the rest
    of its tables is fill, which no measurement determines. For every other graph they are the regions.
    """

    graph: RegionGraph
    tau: CliqueVector
    cliques: Cliques

    @classmethod
    def of(
        cls, graph: RegionGraph, tau: CliqueVector, measured: Iterable[Clique]
    ) -> PseudoMarginals:
        listed = Cliques.of(graph.domain, measured)
        trusted = listed if graph.kind is Kind.JUNCTION_TREE and listed else graph.root_cliques
        return cls(graph, tau, trusted.maximal())

    @property
    def domain(self) -> Domain:
        return self.graph.domain

    def holds(self, clique: Clique) -> bool:
        """Whether the clique is in the model: its table is read off, not inferred."""
        return not clique or clique in self.cliques or bool(self.cliques.holders.of(clique))

    def holds_pairs(self, clique: Clique) -> bool:
        """Whether every two attributes of the clique are in the model together."""
        return all(map(self.holds, combinations(clique, 2)))

    def region_of(self, clique: Clique) -> Clique | None:
        """The smallest region that contains the clique (the first of equals), if the clique is in the model."""
        if not self.holds(clique):
            return None
        home = self.tau.layout.home(clique) if clique else None
        return clique if home is None else self.tau.cliques[home]

    def table(self, clique: Clique) -> Buffer:
        """The distribution of a clique in the model, a new array; uniform for an attribute that nothing mentions."""
        region = self.region_of(clique)
        if not clique or region is None:
            return np.full(self.domain.shape_of(clique), 1.0 / self.domain.size(clique))
        axes = tuple(i for i, a in enumerate(region) if a not in clique)
        return self.tau[region].sum(axis=axes) if axes else self.tau[region].copy()

    def overlaps(self, clique: Clique) -> tuple[Clique, ...]:
        """The maximal sets among the intersections of the clique with the cliques of the model: Problem 4's targets."""
        kept = set(clique)
        near = self.cliques.holders.touching(clique)
        found: set[Clique] = {tuple([a for a in self.cliques[i] if a in kept]) for i in near}
        return tuple(maximal(self.domain, sorted(found, key=self._by_size)))

    def _by_size(self, clique: Clique) -> tuple[int, tuple[int, ...]]:
        return -len(clique), self.domain.axes(clique)

    @cached_property
    def pairs(self) -> tuple[Clique, ...]:
        """Every pair of attributes inside a clique of the model."""
        by_rank = self.cliques.sets.by_rank
        rows = np.concatenate([subsets_of(rows, 2) for _, rows in by_rank.values()])
        found = rows[np.unique(row_keys(rows), return_index=True)[1]]
        return tuple(Cliques(self.domain, Family.of_rows(found)))
