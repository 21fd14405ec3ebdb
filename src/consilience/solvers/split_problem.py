"""SplitProblem: a squared loss over L(G) compiled for splitting, one iteration of it, and its certificate.

    minimise  f(x) = sum_r w_r/2 ||x_r - y_r||^2 + sum_a w_a/2 ||P x - y_a||^2 + sum_r g_r(x_r)   over L(G)

x lives on the regions without parents. Consistency and the quadratic are handled together in closed form (`regions.ties`),
non-negativity and any further separable term g_r cell by cell; the two take turns on one buffer v:
z = prox(v), x = closest consistent point to 2z - v and the data, v += 1.6 (x - z).
Each check gives a rigorous lower bound (kernels/splitting.py) and a feasible point, hence the relative gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector, Layout
from consilience.errors import LossError, RegionGraphError
from consilience.kernels import splitting as kernels
from consilience.kernels.threads import threads_for
from consilience.measurements import SquaredLoss
from consilience.regions.region_graph import RegionGraph
from consilience.regions.ties import Ties
from consilience.regions.wiring import Tables, chunks, engine_order, group
from consilience.solvers.copies import QueryCopy, make_copies
from consilience.solvers.split_check import Check
from consilience.solvers.structural_zeros import masks_of

RELAX = 1.6
MEASURED, UNMEASURED = 0.12, 0.03
"""Penalty of a table over the weight of its data, per root of its cells (at least one where it is measured): the more cells,
the more of them are held at zero. Three times as much or as little costs at most twice the iterations and changes nothing."""
EXACT = 1e-7
"""Tables that meet the data to this L2 distance meet them exactly: an objective below that counts as zero in a relative gap."""


@dataclass(frozen=True, eq=False)
class Structure:
    """What of a problem does not depend on the values measured: kept, so that a refit to other draws does not compile again."""

    graph: RegionGraph
    below: tuple[Clique, ...]
    copied: tuple[Clique, ...]
    ties: Ties

    def serves(
        self, graph: RegionGraph, below: tuple[Clique, ...], copied: tuple[Clique, ...]
    ) -> bool:
        return self.graph is graph and (self.below, self.copied) == (below, copied)


class SplitProblem:
    """A squared loss over L(G), compiled: tables, ties, weights. Solves, and solves again for other data of the same shape."""

    def __init__(
        self,
        graph: RegionGraph,
        loss: SquaredLoss,
        possible: Mapping[Clique, Buffer] | None = None,
        absolute: bool = False,
        structure: Structure | None = None,
    ) -> None:
        missing = graph.first_unsupported(loss.cliques)
        if missing is not None:
            raise RegionGraphError(
                f"the graph must support every clique of the loss, got {missing}; add it to the graph's cliques"
            )
        self.graph = graph
        self.loss = loss
        self.domain = graph.domain
        part = loss.separable()
        self.constant = part.constant
        self.root_cliques = tuple(graph.regions[i] for i in graph.roots)
        roots = {c: i for i, c in enumerate(self.root_cliques)}
        below = [c for c in part.targets.cliques if c not in roots]
        self.copies: tuple[QueryCopy, ...] = make_copies(part.rest, loss.total)
        needed = (graph, tuple(below), tuple(c.clique for c in self.copies))
        if structure is None or not structure.serves(*needed):
            structure = Structure(*needed, Ties.of(*needed))
        self.structure = structure
        self.ties = structure.ties
        self.layout = Layout(self.domain, self.root_cliques)
        self.cells = self.ties.roots.length
        self._tables()
        self._data(part.weights, part.targets, roots)
        self._structural_zeros(possible or {})
        self.v = self._first()
        self.rho = 1.0
        self.own = np.where(self.data > 0, self.data, self._typical())
        """Weight of each table's data, a typical one where there are none."""
        root = np.sqrt(self.ties.roots.cells)
        stiff = np.where(self.data > 0, np.maximum(MEASURED * root, 1.0), UNMEASURED * root)
        self.pace = stiff * self.own
        """Penalty of each table before the common factor rho."""
        self.slope = np.zeros(len(self.data))
        """Weight of |x - y| on each table, where that replaces the square."""
        if absolute:
            self._take_absolute(bool(possible))
        self._weigh()

    # -- building --------------------------------------------------------------------------------

    def _tables(self) -> None:
        t, n = self.ties.roots, self.ties.nodes
        count = len(t.at)
        self.msg = np.empty(self.ties.down.length)
        self.node_msg = np.empty(self.ties.inner.length)
        self.target = np.zeros(n.length)
        self.target[0] = 1.0
        self.base = np.zeros(n.length)
        self.base_share = np.zeros(len(n.at))
        self.chunk = chunks(t.cells)
        self.stats = np.zeros((count, kernels.STATS))
        self.mode = np.full(count, kernels.NONNEGATIVE, np.int64)
        self.pull = np.zeros(count)
        self.incoming = group(self.ties.down.node, len(n.at))
        self.levels = self.ties.levels
        self.down_edge = np.arange(len(self.ties.down.node), dtype=np.int64)
        self.inner_edge = np.arange(len(self.ties.inner.node), dtype=np.int64)
        self.x = np.empty(self.cells)
        """Scratch: the blend of data and state, then the consistent point."""
        self.z = np.zeros(0)

    def _data(self, weights: Buffer, targets: CliqueVector, roots: dict[Clique, int]) -> None:
        """Targets and weights of the roots, and the constant part of each node's mean from what is measured below."""
        self.scale = float(weights.max()) if len(weights) else max(c.weight for c in self.copies)
        self.data = np.zeros(len(self.ties.roots.at))
        self.y = np.zeros(self.cells)
        self.below: list[tuple[int, float, Buffer]] = []
        nodes = {self._names(m): i for i, m in enumerate(self.ties.nodes.members)}
        for (clique, table), weight in zip(targets.items(), weights, strict=True):
            w = float(weight) / self.scale
            flat = self._enter(table, clique)
            if clique in roots:
                i = roots[clique]
                self.data[i] = w
                self.y[self._span(self.ties.roots, i)] = flat
            else:
                self.below.append((nodes[clique], w, flat))
        for s, w, flat in self.below:
            self._add_base(s, w, flat)
        for copy in self.copies:
            copy.weight /= self.scale
        self.constant /= self.scale

    def _add_base(self, s: int, w: float, flat: Buffer) -> None:
        nodes, fan = self.ties.nodes, self.ties.inner
        self.base[self._span(nodes, s)] += w * flat
        self.base_share[s] += w
        table = flat.reshape([int(nodes.sizes[a]) for a in nodes.members[s]])
        for e in range(fan.ptr[s], fan.ptr[s + 1]):
            t = int(fan.node[e])
            kept = set(nodes.members[t])
            axes = tuple(i for i, a in enumerate(nodes.members[s]) if a not in kept)
            ratio = float(fan.summed[e])
            self.base[self._span(nodes, t)] += w / ratio * table.sum(axis=axes).reshape(-1)
            self.base_share[t] += w / ratio

    def _structural_zeros(self, possible: Mapping[Clique, Buffer]) -> None:
        self.extra = self.y
        self.allowed: CliqueVector | None = None
        if not possible:
            if self.copies:
                self.extra = np.zeros(self.cells)
                self.mode[len(self.root_cliques) :] = kernels.GIVEN
            return
        self.allowed = masks_of(self.graph, possible)
        self.extra = np.ones(self.cells)
        for i, root in enumerate(self.root_cliques):
            if not self.allowed[root].all():
                self.mode[i] = kernels.MASKED
                self.extra[self._span(self.ties.roots, i)] = self._enter(self.allowed[root], root)
        self.mode[len(self.root_cliques) :] = kernels.GIVEN

    def _take_absolute(self, zeros: bool) -> None:
        """sqrt(2) N / stddev |x - y| instead of N^2 / (2 stddev^2) (x - y)^2."""
        if self.copies or self.below or zeros or self.constant != 0.0:
            raise LossError(
                "the absolute likelihood takes each region without parents measured plainly and once, and nothing else; "
                "use prox_pgm with an AbsoluteLoss"
            )
        self.slope = np.sqrt(2.0 * self.data / self.scale)
        self.extra = self.y.copy()
        self.mode[self.data > 0] = kernels.ABSOLUTE
        self.data = np.zeros_like(self.data)

    def _first(self) -> Buffer:
        """Start from the data where there are some, else from the uniform table; either is brought to mass one."""
        t = self.ties.roots
        cells = t.cells
        v = np.repeat(1.0 / cells, cells)
        measured = np.repeat(self.data > 0, cells)
        np.maximum(self.y, 0.0, out=v, where=measured)
        mass = np.maximum(np.add.reduceat(v, t.at), 1e-12)
        v /= np.repeat(mass, cells)
        return v

    def _typical(self) -> float:
        known = [*self.data[self.data > 0], *(w for _, w, _ in self.below)]
        return float(np.median(known)) if known else 1.0

    def _weigh(self) -> None:
        """Weights that depend on the penalty."""
        self.penalty = self.rho * self.pace
        straight = self.slope > 0
        self.pull[straight] = self.slope[straight] / self.penalty[straight]
        for i, copy in enumerate(self.copies):
            self.penalty[len(self.root_cliques) + i] = self.rho * max(
                copy.weight * copy.stiffness, 1e-12
            )
        whole = self.data + self.penalty
        self.mix = self.penalty / whole
        fan = self.ties.down
        owner = np.repeat(np.arange(len(whole)), np.diff(fan.ptr))
        self.edge_weight = whole[owner] / fan.summed
        total = (
            np.bincount(fan.node, self.edge_weight, minlength=len(self.base_share))
            + self.base_share
        )
        self.share = 1.0 / np.maximum(total, 1e-300)

    # -- one iteration ---------------------------------------------------------------------------

    def project(self) -> None:
        """Messages and node targets of the consistent point closest to 2 prox(v) - v and the data."""
        t, n, d, i = self.ties.roots, self.ties.nodes, self.ties.down, self.ties.inner
        kernels.gather(
            self.v, self._kept(), self.y, self.extra, self.mode, self.pull, self.mix, self.x, self.msg, self.chunk,
            t.at, t.rows, t.inner, d.ptr, d.direct, self.down_edge, d.node, d.owner, d.kind, d.map_at,
            d.msg_at, d.width, d.maps, n.rows, n.inner,
        )  # fmt: skip
        for level in self.levels:
            kernels.average(
                self.msg, self.target, self.base, self.edge_weight, self.share, level, n.at, n.rows, n.inner,
                self.incoming[0], self.incoming[1], d.msg_at,
            )  # fmt: skip
            kernels.adjust_nodes(
                self.target, self.node_msg, level, n.at, n.rows, n.inner, i.ptr, i.direct, self.inner_edge, i.node,
                i.owner, i.coef, i.kind, i.map_at, i.msg_at, i.width, i.maps,
            )  # fmt: skip

    def _spread(self, update: bool) -> None:
        t, n, d = self.ties.roots, self.ties.nodes, self.ties.down
        kernels.scatter(
            update, self.v, self._kept(), self.y, self.extra, self.mode, self.pull, self.data, self.penalty, RELAX,
            self.stats, self.x, self.target, self.msg, self.chunk, t.at, t.rows, t.inner, d.ptr, d.direct, d.node, d.owner,
            d.coef, d.kind, d.map_at, d.msg_at, d.width, d.maps, n.at, n.rows, n.inner,
        )  # fmt: skip

    def _kept(self) -> Buffer:
        """Room for z; plain non-negativity needs none."""
        if len(self.z) != len(self.v) and np.any(self.mode):
            self.z = np.empty_like(self.v)
        return self.z

    def iterate(self) -> None:
        with threads_for(self.work):
            self._solve_copies()
            self.project()
            self._spread(True)

    def _solve_copies(self) -> None:
        """z of the tables that carry a query: least squares pulled towards v."""
        for k, copy in enumerate(self.copies):
            i = len(self.root_cliques) + k
            span = self._span(self.ties.roots, i)
            flat = self._leave(self.v[span], copy.clique)
            z = copy.prox(flat.reshape(-1), self.penalty[i])
            self.extra[span] = self._enter(
                z.reshape(self.domain.shape_of(copy.clique)), copy.clique
            )

    # -- the certificate -------------------------------------------------------------------------

    def check(self, x: Buffer) -> Check:
        """Objective, feasible objective and lower bound at the current v; x receives the consistent point."""
        with threads_for(self.work):
            self._solve_copies()
            self.project()
            self._spread(False)
        np.copyto(x, self.x)
        gap, move, fit, off, cross, square, least, term, _more = self.stats.T
        count = len(self.root_cliques)
        value = float(fit.sum()) + self.constant
        bound = value + float(term.sum())
        # Mixing s of the uniform point into x: f(x) + s <grad, u - x> + s^2/2 |u - x|^2_w, u = 1/n on every table.
        cells = self.ties.roots.cells
        shrink = float(least[:count].max(initial=0.0))
        slope = float(self.data @ (off / cells - cross))
        curve = float(self.data @ (1.0 / cells - 2.0 / cells + square))
        for s, w, y in self.below:
            part = self.target[self._span(self.ties.nodes, s)]
            value += 0.5 * w * float(np.square(part - y).sum())
            bound += 0.5 * w * float(np.square(part - y).sum())
            slope += w * float((part - y) @ (1.0 / len(y) - part))
            curve += w * float(np.square(1.0 / len(y) - part).sum())
        for k, copy in enumerate(self.copies):
            span = self._span(self.ties.roots, count + k)
            at_x = self._leave(x[span], copy.clique).reshape(-1)
            at_z = self._leave(self.extra[span], copy.clique).reshape(-1)
            bound += copy.value(at_z)
            mixed = copy.line(at_x, 1.0 / len(at_x) - at_x)
            value += mixed[0]
            slope += mixed[1]
            curve += mixed[2]
        objective = value + shrink * slope + 0.5 * shrink**2 * curve
        if np.any(self.slope):
            mixed_in = (1.0 - shrink) * x + shrink * np.repeat(1.0 / cells, cells)
            away = np.add.reduceat(np.abs(mixed_in - self.y), self.ties.roots.at)
            objective += float(self.slope @ away)
        norm = self.penalty
        return Check(
            value,
            objective,
            bound,
            float(np.sqrt(norm @ gap)),
            float(np.sqrt(norm @ move)),
            shrink,
            0.5 * EXACT**2 * float(self.own.sum()) * 1e6,
        )

    def penalise(self, rho: float) -> None:
        """Set the penalty; with none, the consistent point is the least squares fit to the data alone."""
        self.rho = rho
        self._weigh()

    def rescale(self, factor: float) -> None:
        """Change the penalty by a factor; the multipliers penalty * (v - z) stay what they are."""
        self.rho *= factor
        z = self.nonnegative()
        self.v -= z
        self.v /= factor
        self.v += z
        self.pull /= factor
        self._weigh()

    @property
    def work(self) -> int:
        """Cells, counted tenfold where each needs a transcendental equation solved."""
        return self.cells * (10 if kernels.ENTROPIC in self.mode else 1)

    @property
    def plain(self) -> bool:
        """Whether the tables of the graph are held non-negative, and nothing more is asked of their cells."""
        own = self.mode[: len(self.root_cliques)]
        return self.allowed is None and bool(np.all(own == kernels.NONNEGATIVE))

    def nonnegative(self) -> Buffer:
        """z, table by table in one compiled call."""
        z = np.empty_like(self.v)
        t = self.ties.roots
        with threads_for(self.work):
            kernels.prox_all(self.v, self.extra, self.mode, self.pull, z, t.at, t.rows, t.inner)
        return z

    # -- tables in and out -----------------------------------------------------------------------

    def _span(self, tables: Tables, i: int) -> slice:
        lo = int(tables.at[i])
        return slice(lo, lo + int(tables.rows[i] * tables.inner[i]))

    def _order(self, clique: Clique) -> list[int]:
        """Axes of a domain-order table in engine order: by size, then by place in the domain."""
        if self._ascending:
            return list(range(len(clique)))
        return sorted(range(len(clique)), key=lambda i: (self.domain[clique[i]], i))

    def _enter(self, table: Buffer, clique: Clique) -> Buffer:
        return np.ascontiguousarray(table.transpose(self._order(clique))).reshape(-1)

    def _leave(self, flat: Buffer, clique: Clique) -> Buffer:
        order = self._order(clique)
        shape = [self.domain[clique[i]] for i in order]
        return flat.reshape(shape).transpose(np.argsort(order))

    def _names(self, members: tuple[int, ...]) -> Clique:
        """A node's members are ranks in engine order."""
        return self.domain.clique(self._by_rank[r] for r in members)

    @cached_property
    def _ascending(self) -> bool:
        return engine_order(self.domain) == tuple(range(len(self.domain)))

    @cached_property
    def _by_rank(self) -> list[str]:
        return [self.domain.attributes[i] for i in engine_order(self.domain)]

    def vector(self, x: Buffer) -> CliqueVector:
        """Root tables as a vector in domain order."""
        out = CliqueVector(self.layout)
        for i, clique in enumerate(self.root_cliques):
            out[clique][...] = self._leave(x[self._span(self.ties.roots, i)], clique)
        return out
