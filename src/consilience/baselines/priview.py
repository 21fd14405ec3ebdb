"""PriView: make noisy tables agree in closed form, remove negative cells table by table, and repeat.

Qardaji, Yang, Li (2014) for the consistency, team DPSyn (2018) for the loop with norm-cut, which the paper compares with. Not the
minimiser of any loss, and tables may disagree slightly in the end; it is quick, and norm-cut does well on sparse tables.

On a set A that several views contain, their sums down to A are replaced by their mean, weighted by 1 / variance, and the
difference is spread evenly over the summed-out cells. Done for the empty set first (the total) and then for every
intersection, subsets before supersets, a later step leaves the earlier ones intact. Processed on an intersection-closed
family each step touches components of its own only, so one pass is the least-squares projection onto consistent tables; that
is `regions.ties.Projection`, which does the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from consilience.baselines.answers import Tables
from consilience.domain import Buffer, Clique, CliqueVector, Domain
from consilience.errors import ConsilienceError, MeasurementError
from consilience.kernels import cells as kernels
from consilience.kernels.cells import NONNEGATIVE
from consilience.kernels.splitting import Roots
from consilience.kernels.threads import spread
from consilience.loop import Check, Goal, Stop, iterate
from consilience.measurements import Measurement, SquaredLoss
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.regions.ties import Projection, Ties
from consilience.regions.wiring import EngineTables, engine_members, engine_order, enter, leave
from consilience.status import CONVERGED


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
        self.tables = EngineTables.of(members, np.array(domain.shape, np.int64))
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
        mode = np.full(count, NONNEGATIVE, np.int64)
        # With mix 0 the data y itself are projected; the state v is not read.
        work = np.empty_like(values)
        self.projection.target[0] = total
        self.projection.project(Roots(values, work, values, work, mode, np.zeros(count)))
        values[...] = work

    def disagreement(self, values: Buffer, total: float) -> float:
        """The largest L1 distance, as a share of the total, between a table and the agreed one."""
        agreed = values.copy()
        self.agree(agreed, total)
        apart = np.add.reduceat(np.abs(agreed - values), self.ties.roots.at)
        return float(apart.max(initial=0.0)) / total


Nonnegativity = Literal["norm-cut", "norm-sub"]
SMALLEST = 1e-9
"""Negative cells above minus this share of the total are rounding."""


def priview(
    domain: Domain,
    measurements: Iterable[Measurement],
    total: float | None = None,
    *,
    nonnegativity: Nonnegativity = "norm-cut",
    rounds: int = 100,
    progress: Progress | None = None,
) -> Tables:
    """Measured tables made consistent and non-negative in turn, at most `rounds` times; the last step is non-negativity.

    nonnegativity: "norm-cut" (the smallest cells pay for the negative ones) or "norm-sub" (Euclidean projection).
    total: number of records if public; None estimates it. In what progress sees, violation is
    the negative mass, as a share of the total, that a round removed.
    """
    if nonnegativity not in ("norm-cut", "norm-sub"):
        raise ConsilienceError(
            f"nonnegativity must be 'norm-cut' or 'norm-sub', got {nonnegativity!r}"
        )
    if rounds < 1:
        raise ConsilienceError(f"rounds must be at least 1, got {rounds}")
    loss = SquaredLoss(domain, measurements, total)
    part = loss.separable()
    if part.rest:
        raise MeasurementError(
            f"PriView takes measurements of whole tables, got a query on {part.rest[0].clique}; use reconstruct"
        )
    views = Views(domain, part.targets.cliques, part.weights)
    method = _PriView(views, views.enter(part.targets) * loss.total, loss.total, nonnegativity)
    run = iterate(
        method, limit=rounds, tolerance=0.0, goal=Goal.VIOLATION, stage="rounds", progress=progress
    )
    values = np.maximum(run.state.values, 0.0)
    return Tables(
        views.leave(values),
        loss.total,
        f"PriView with {nonnegativity}",
        run.iterations,
        views.disagreement(values, loss.total),
    )


@dataclass
class _Working:
    """The tables in one buffer, and the negative mass that the last round found, as a share of the total."""

    values: Buffer
    negative: float = np.inf


class _PriView:
    """Consistency and non-negativity in turns, as a method of the loop. It ends when consistent tables are non-negative."""

    def __init__(self, views: Views, first: Buffer, total: float, how: Nonnegativity) -> None:
        self.views = views
        self.first = first
        self.total = total
        self.remove = kernels.norm_cut_all if how == "norm-cut" else kernels.norm_sub_all

    def start(self) -> _Working:
        return _Working(self.first)

    def step(self, state: _Working, most: int) -> int:
        self.views.agree(state.values, self.total)
        state.negative = -float(np.minimum(state.values, 0.0).sum()) / self.total
        if float(state.values.min()) >= -SMALLEST * self.total:
            raise Stop(CONVERGED)
        tables = self.views.ties.roots
        spread(
            self.remove, len(tables.at), len(state.values), state.values, tables.at, tables.cells
        )
        return 1

    def check(self, state: _Working, done: int) -> Check:
        return Check(violation=state.negative)


def norm_cut(table: Buffer) -> Buffer:
    """The table without negative cells and with the same sum: its smallest positive cells pay, each in full but the last."""
    return _one(table, kernels.norm_cut_one)


def norm_sub(table: Buffer) -> Buffer:
    """The closest table (Euclidean) without negative cells and with the same sum."""
    return _one(table, kernels.norm_sub_one)


def _one(table: Buffer, kernel: Callable[[Buffer], None]) -> Buffer:
    given = np.asarray(table, np.float64)
    if not np.all(np.isfinite(given)):
        raise ConsilienceError(
            "a table must be finite to be made non-negative, got NaN or infinity"
        )
    flat = given.reshape(-1).copy()
    kernel(flat)
    return flat.reshape(given.shape)
