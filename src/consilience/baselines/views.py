"""Views: measured tables compiled for PriView's consistency step, weighted and in topological order.

On a set A that several views contain, their sums down to A are replaced by their mean, weighted by 1 / variance, and the
difference is spread evenly over the summed-out cells. Done for the empty set first (the total) and then for every
intersection, subsets before supersets, a later step leaves the earlier ones intact. Processed on an intersection-closed
family each step touches components of its own only, so one pass is the least-squares projection onto consistent tables; that
is the projection of `regions.ties`, and its kernels do the pass.
"""

from __future__ import annotations

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector, Domain
from consilience.kernels import splitting as kernels
from consilience.kernels.threads import threads_for
from consilience.regions.region_graph import RegionGraph
from consilience.regions.ties import Ties
from consilience.regions.wiring import (
    Tables,
    chunks,
    engine_members,
    engine_order,
    enter,
    group,
    leave,
)


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
        self._weigh(weights[[place[c] for c in self.layout.cliques]])
        self._scratch()

    def _weigh(self, weights: Buffer) -> None:
        """A view's sum down to s has variance n_{r\\s} / weight."""
        fan = self.ties.down
        owner = np.repeat(np.arange(len(weights)), np.diff(fan.ptr))
        self.edge_weight = weights[owner] / fan.summed
        count = len(self.ties.nodes.at)
        sums = np.bincount(fan.node, self.edge_weight, minlength=count)
        self.share = 1.0 / np.maximum(sums, 1e-300)
        self.incoming = group(fan.node, count)

    def _scratch(self) -> None:
        t, n = self.ties.roots, self.ties.nodes
        self.msg, self.node_msg = np.empty(self.ties.down.length), np.empty(self.ties.inner.length)
        self.target, self.base = np.zeros(n.length), np.zeros(n.length)
        self.chunk = chunks(t.cells)
        self.edges = np.arange(len(self.ties.down.node), dtype=np.int64)
        self.inner_edges = np.arange(len(self.ties.inner.node), dtype=np.int64)
        count = len(t.at)
        self.zero, self.mode = np.zeros(count), np.full(count, kernels.NONNEGATIVE, np.int64)
        self.stats = np.zeros((count, kernels.STATS))
        self.work = np.empty(t.length)

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
        t, n, d, i = self.ties.roots, self.ties.nodes, self.ties.down, self.ties.inner
        self.target[0] = total
        with threads_for(len(values)):
            # With mix 0 the kernels of the splitting solver project y itself; the state v is not read.
            kernels.gather(
                values, self.work, values, values, self.mode, self.zero, self.zero, self.work, self.msg, self.chunk,
                t.at, t.rows, t.inner, d.ptr, d.direct, self.edges, d.node, d.owner, d.kind, d.map_at, d.msg_at, d.width,
                d.maps, n.rows, n.inner,
            )  # fmt: skip
            for level in self.ties.levels:
                kernels.average(
                    self.msg, self.target, self.base, self.edge_weight, self.share, level, n.at, n.rows, n.inner,
                    self.incoming[0], self.incoming[1], d.msg_at,
                )  # fmt: skip
                kernels.adjust_nodes(
                    self.target, self.node_msg, level, n.at, n.rows, n.inner, i.ptr, i.direct, self.inner_edges, i.node,
                    i.owner, i.coef, i.kind, i.map_at, i.msg_at, i.width, i.maps,
                )  # fmt: skip
            kernels.scatter(
                False, values, self.work, values, values, self.mode, self.zero, self.zero, self.zero, 1.0, self.stats,
                self.work, self.target, self.msg, self.chunk, t.at, t.rows, t.inner, d.ptr, d.direct, d.node, d.owner,
                d.coef, d.kind, d.map_at, d.msg_at, d.width, d.maps, n.at, n.rows, n.inner,
            )  # fmt: skip
        values[...] = self.work

    def disagreement(self, values: Buffer, total: float) -> float:
        """The largest L1 distance, as a share of the total, between a table and the agreed one."""
        agreed = values.copy()
        self.agree(agreed, total)
        apart = np.add.reduceat(np.abs(agreed - values), self.ties.roots.at)
        return float(apart.max(initial=0.0)) / total
