"""Views: measured tables compiled for PriView's consistency step, weighted and in topological order.

On a set A that several views contain, their sums down to A are replaced by their mean, weighted by 1 / variance, and the
difference is spread evenly over the summed-out cells. Done for the empty set first (the total) and then for every
intersection, subsets before supersets, a later step leaves the earlier ones intact. Processed on an intersection-closed
family each step touches components of its own only, so one pass is the least-squares projection onto consistent tables; that
is `solvers.projection`, which does the pass.
"""

from __future__ import annotations

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector, Domain
from consilience.kernels.cells import NONNEGATIVE
from consilience.kernels.options import threads_for
from consilience.kernels.splitting import Roots
from consilience.regions.region_graph import RegionGraph
from consilience.regions.ties import Ties
from consilience.regions.wiring import Tables, engine_members, engine_order, enter, leave
from consilience.solvers.projection import Projection


class Views:
    """Tables of cliques in one engine buffer that can be made to agree. Cliques inside others are views like the rest."""

    def __init__(self, domain: Domain, cliques: tuple[Clique, ...], weights: Buffer) -> None:
        graph = RegionGraph.saturated(domain, cliques)
        roots = [graph.regions[i] for i in graph.roots]
        known = set(roots)
        inside = [c for c in cliques if c not in known]
        self.layout = CliqueVector.zeros(domain, [*roots, *inside]).layout
        self.ties = Ties.of(graph, copies=inside)
        members = engine_members(domain, engine_order(domain), self.layout.cliques)
        self.same_order = all(tuple(sorted(m)) == m for m in members)
        self.tables = Tables.of(members, np.array(domain.shape, np.int64))
        place = {c: i for i, c in enumerate(cliques)}
        self.projection = Projection(self.ties)
        self.projection.weigh(weights[[place[c] for c in self.layout.cliques]])

    def enter(self, tables: CliqueVector) -> Buffer:
        """Tables in domain order as a new engine buffer."""
        ordered = CliqueVector(self.layout)
        for clique in self.layout.cliques:
            ordered[clique][...] = tables[clique]
        return enter(ordered, self.tables, self.same_order)

    def leave(self, values: Buffer) -> CliqueVector:
        return leave(values, self.layout, self.tables, self.same_order)

    def agree(self, values: Buffer, total: float) -> None:
        """One pass, in place: the closest tables that agree on every intersection and sum to the total."""
        count = len(self.ties.roots.at)
        none, mode = np.zeros(count), np.full(count, NONNEGATIVE, np.int64)
        # With mix 0 the data y itself are projected; the state v is not read.
        work = np.empty_like(values)
        roots = Roots(values, work, values, work, values, mode, none, none, none, none)
        self.projection.target[0] = total
        with threads_for(len(values)):
            self.projection.project(roots)
            self.projection.spread(roots, 1.0, update=False)
        values[...] = work

    def disagreement(self, values: Buffer, total: float) -> float:
        """The largest L1 distance, as a share of the total, between a table and the agreed one."""
        agreed = values.copy()
        self.agree(agreed, total)
        apart = np.add.reduceat(np.abs(agreed - values), self.ties.roots.at)
        return float(apart.max(initial=0.0)) / total
