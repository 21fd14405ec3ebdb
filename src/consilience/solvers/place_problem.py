"""Least squares on a tree of places, compiled: places in the order of the tree, precisions, and the exact two-pass solve.

Without non-negativity the closest tables that add up are found by one pass up, which combines what a place and the places below
it say, and one pass down, which shares out what is left. Both are one number per place and component (place_components.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer
from consilience.kernels import places as kernels
from consilience.kernels.place_sharing import Ranges
from consilience.kernels.threads import spread
from consilience.solvers.place_order import Order
from consilience.solvers.places import (
    PORTION,
    Asked,
    PlaceQuery,
    Pull,
    Subset,
    residual_rows,
)

RIDGE = 1e-12
"""What nothing measures is divided evenly, by a precision of this share of the largest."""


@dataclass(frozen=True, eq=False)
class Gains:
    """One number per place and component: `up` of the children's sum, `own` of a place's information, `share` of what the parent
    has to give, at every level above the leaves; own of each kind of leaf and share of each run of leaves."""

    up: list[Buffer]
    own: list[Buffer]
    share: list[Buffer]
    leaf_own: Buffer
    run_share: Buffer
    root_variance: Buffer
    """Of each root, component by component, by the least-squares estimate if rho is 0; not of a shard."""
    whole: Buffer
    """The variance of the sums of the roots' children."""


class Left(NamedTuple):
    """How far an exact control is left, relative to its size, and which: its level, attributes, place and cell."""

    off: float = 0.0
    level: int = 0
    attributes: Subset = ()
    place: int = 0
    cell: int = 0
    wanted: float = 0.0
    found: float = 0.0


@dataclass(frozen=True, eq=False)
class Below:
    """What shards say of the places that they hang on: the variance of their children's sums, the leaves that may hold something,
    and the ranges that follow from those below, by attributes."""

    whole: Buffer
    room: Buffer
    ranges: dict[Subset, tuple[Buffer, Buffer]]


class PlaceProblem:
    """Queries and controls on a tree of places. `a` is the least-squares point of each level that keeps the exact controls,
    `least` its loss; `free` are the controls that are ranges, and `grouped` the queries on sums of cells, all above the
    leaves.

    A part of a tree is one too. A shard is `hanging`: its roots belong to the top, which says what is left to give there. The top
    stands above shards: its leaves only stand for them, and what they say is `below`.
    """

    def __init__(
        self,
        asked: Asked,
        *,
        solved: bool = True,
        hanging: bool = False,
        below: Below | None = None,
        tiny: float | None = None,
    ) -> None:
        self.places, self.components = asked.places, asked.components
        self.shape, self.cells = self.components.shape, self.components.cells
        self.queries, self.grouped, self.controls = asked.queries, asked.grouped, asked.controls
        self.below, self.lowest = below, int(hanging)
        self._deeper = asked.deeper
        self._weigh()
        self.tiny = RIDGE * _most(self.precision) if tiny is None else tiny
        self.mask = asked.possible
        if len(self.mask) > 1:
            self.mask = self.order.take(self.mask, self.last)
        blank = np.zeros((0, self.cells))
        self.pull = Pull(blank, blank)
        if asked.pull is not None:
            self.pull = Pull(*(self.order.take(x, self.last) for x in asked.pull))
        self._find_room()
        self._fix()
        if solved:
            passes = Passes(self)
            self.least_up(passes)
            self.least_down(passes)
            self.least = self.loss(self.a)

    @property
    def last(self) -> int:
        return self.places.last

    def count(self, level: int) -> int:
        return self.places.count(level)

    @property
    def total(self) -> float:
        """Of the least-squares tables."""
        return max(1.0, abs(float(self.a[0].sum())))

    # -- compiling ------------------------------------------------------------------------------------------

    def _weigh(self) -> None:
        """`precision[l]`: one row of numbers per place of level l above the leaves, one per kind of leaf at the last."""
        parts = self.components
        found = [np.zeros((self.count(l), len(parts))) for l in range(self.last)]
        seen = [q for q in self.queries if q.level == self.last]
        rows = np.stack([q.stddev for q in seen] or [np.full(self.count(self.last), np.inf)], 1)
        if (rows == rows[0]).all():
            each, kinds = rows[:1], np.zeros(len(rows), np.int64)
        else:
            each, kinds = np.unique(rows, axis=0, return_inverse=True)
        self.order = Order(self.places, kinds.reshape(-1))
        leaf = np.zeros((len(each), len(parts)))
        for j, q in enumerate(seen):
            leaf += each[:, j, None] ** -2.0 * self._seen(q)
        for q in self.queries:
            if q.level < self.last:
                weight = self.order.take(q.stddev, q.level)[:, None] ** -2.0
                found[q.level] += weight * self._seen(q)
        self.precision = [*found, leaf]

    def _seen(self, query: PlaceQuery) -> Buffer:
        """M'M of a query, one number per component."""
        parts, s = self.components, query.attributes
        seen = parts.only(s) if query.residual else parts.inside(s)
        return parts.copies(s) * seen.astype(np.float64)

    def _find_room(self) -> None:
        """`mask` has one row for all leaves or one for each; `room[l]` counts possible leaves below each place, by cell."""
        first = self.order.first
        if self.below is not None:
            room = [self.below.room]
        elif len(self.mask) == 1:
            room = [np.diff(first[-1]).astype(float)[:, None] * self.mask]
        else:
            room = [np.add.reduceat(self.mask, first[-1][:-1], axis=0, dtype=float)]
        for l in range(self.last - 2, -1, -1):
            room.insert(0, np.add.reduceat(room[0], first[l][:-1], axis=0))
        self.room = room

    def _fix(self) -> None:
        """`fixed[l]`: the components that exact controls determine at level l, in one row or a row per place."""
        self.fixed = [np.zeros((1, len(self.components)), bool) for _ in range(self.last + 1)]
        self.exact = [c for c in self.controls if c.fixes(self.last)]
        self.free = [c for c in self.controls if not c.fixes(self.last)]
        self._new: list[NDArray[np.bool_]] = []
        for c in self.exact:
            held = np.ones(1, bool) if c.is_exact else self.order.take(c.held, c.level)
            inside = self.components.inside(c.attributes)
            new = held[:, None] & inside & ~self.fixed[c.level]
            self.fixed[c.level] = self.fixed[c.level] | new
            self._new.append(new)

    def gains(
        self, rho: float, more: Sequence[Buffer] | None = None, whole: Buffer | None = None
    ) -> Gains:
        """The numbers of both passes with rho added to every leaf's precision, and `more[l]` to level l's.

        whole: of the top, the variance of the sums that shards give.
        """
        order, blank = self.order, np.zeros((0, len(self.components)))
        leaf_own, run_share = blank, blank
        if whole is None:
            leaf = self.precision[-1] + rho + (0.0 if more is None else more[-1])
            leaf = np.maximum(leaf, self.tiny)
            var = np.where(self.fixed[-1], 0.0, 1.0 / leaf)
            many = np.diff(order.begin).astype(float)[:, None]
            whole = np.add.reduceat(many * var[order.run_kind], order.runs[:-1], axis=0)
            run_share = _ratio(var[order.run_kind], whole[order.run_parent])
            # Nothing is known about what has no precision, so nothing is made of it: huge numbers would only cancel badly.
            leaf_own = np.where(leaf > self.tiny, var, 0.0)
        ups, owns, shares = ([blank] * self.last for _ in range(3))
        var = blank
        for l in range(self.last - 1, self.lowest - 1, -1):
            q = self.precision[l] + (0.0 if more is None else more[l])
            ups[l] = np.where(self.fixed[l], 0.0, 1.0 / (1.0 + q * whole))
            var = ups[l] * whole
            owns[l] = np.where(q > 0.0, var, 0.0)
            if l:
                whole = np.add.reduceat(var, order.first[l - 1][:-1], axis=0)
                shares[l] = _ratio(var, whole[order.parent[l]])
        rows = self.components.as_averages
        up, own, share = ([rows(x) for x in numbers] for numbers in (ups, owns, shares))
        return Gains(up, own, share, rows(leaf_own), rows(run_share), var, whole)

    def variances(self) -> list[Buffer]:
        """Of every place's components by least squares, level by level: rows of places in the order of the tree."""
        order = self.order
        leaf = np.where(self.fixed[-1], 0.0, 1.0 / np.maximum(self.precision[-1], self.tiny))
        up, whole = [leaf[order.kind]], []
        for l in range(self.last - 1, -1, -1):
            below = np.add.reduceat(up[0], order.first[l][:-1], axis=0)
            whole.insert(0, below)
            up.insert(0, np.where(self.fixed[l], 0.0, below / (1.0 + self.precision[l] * below)))
        found = [up[0]]
        for l in range(1, self.last + 1):
            parent = order.parent[l]
            share = _ratio(up[l], whole[l - 1][parent])
            found.append(up[l] * (1.0 - share) + np.square(share) * found[-1][parent])
        return found

    def cell_stderr(self, level: int, subset: Subset) -> Buffer:
        """The standard error of a cell of each place's marginal by least squares; every cell of a marginal has the same."""
        parts, most = self.components, self.places.last
        at = most if self._deeper and level == most - 1 else level
        variance = self.variances()[at] @ (parts.inside(subset) * parts.dimensions)
        return np.sqrt(self.order.back(variance * parts.copies(subset) ** 2 / parts.cells, at))

    @cached_property
    def precision_rows(self) -> list[Buffer]:
        """Precisions as operators; for leaves with the least of them beside."""
        rows = [self.components.as_averages(p) for p in self.precision]
        there = self.components.dimensions > 0
        least = self.precision[-1][:, there].min(axis=1, keepdims=True)
        return [*rows[:-1], np.concatenate([rows[-1], least], axis=1)]

    # -- the exact solve ------------------------------------------------------------------------------------

    def least_up(self, passes: Passes) -> None:
        """The pass up of least squares; the leaves' estimates are in a[-1] then. `passes` has the sums that shards gave."""
        gains = self._least_gains()
        self.a = [self._information(l) for l in range(self.last + (self.below is None))]
        for l in range(self.lowest, self.last):
            self.operate(self.a[l], np.arange(len(self.a[l])), gains.own[l])
        if self.below is None:
            self.operate(self.a[-1], self.order.kind, gains.leaf_own)
        self._control(self.a)
        if self.below is None:
            leaves = self.a[-1]
            spread(
                kernels.add_children, self.count(self.last - 1), leaves.size, self.order.first[-1], leaves,
                passes.sums[-1],
            )  # fmt: skip
        passes.up(gains, self.a[: self.last])

    def least_down(self, passes: Passes) -> None:
        """The pass down; of a shard from what is left at its roots."""
        gains = self._least_gains()
        passes.down(gains)
        if self.below is not None:
            total = self.components.inside(()).argmax()
            self.total_variance = gains.root_variance[:, total]
            self.a = [x.copy() for x in passes.x]
            return
        leaves = self.a[-1]
        share = np.repeat(gains.run_share, np.diff(self.order.begin), axis=0)
        spread(
            kernels.down, len(leaves), leaves.size, self.order.parent[-1], passes.left[-1], share,
            self.components.averages, leaves,
        )  # fmt: skip
        self.a = [*(x.copy() for x in passes.x), leaves]

    def _least_gains(self) -> Gains:
        return self.gains(0.0, whole=None if self.below is None else self.below.whole)

    def operate(self, tables: Buffer, which: NDArray[np.int64], rows: Buffer) -> None:
        """Each table by its operator rows[which[i]], in place."""
        spread(
            kernels.operate_rows, len(tables), tables.size, tables, which, rows, self.components.averages
        )  # fmt: skip

    def _information(self, level: int) -> Buffer:
        """sum over queries of M'y / sigma^2 of every place of the level."""
        out = np.zeros((self.count(level), self.cells))
        for q in self.queries:
            if q.level == level:
                for part in self._portions(level):
                    chosen = self.order.of[level][part]
                    weighted = q.values[chosen] * q.stddev[chosen, None] ** -2.0
                    weighted[np.isinf(q.stddev[chosen])] = 0.0
                    if q.residual:
                        weighted = residual_rows(weighted, [self.shape[i] for i in q.attributes])
                    to = out[part].reshape(-1, *self.shape)
                    to += self.components.spread(weighted, q.attributes)
        return out

    def _control(self, extra: list[Buffer]) -> None:
        """Add what exact controls say to the estimates that their levels begin with."""
        for c, new in zip(self.exact, self._new, strict=True):
            if new.any():
                rows = self.components.as_averages(new.astype(float))
                values = self.order.take(c.low, c.level) / self.components.copies(c.attributes)
                wide = self.components.spread(values, c.attributes)
                table = np.ascontiguousarray(wide).reshape(-1, self.cells)
                table = table.copy() if not table.flags.owndata else table
                which = np.arange(len(table)) if len(rows) > 1 else np.zeros(len(table), np.int64)
                self.operate(table, which, rows)
                extra[c.level] += table

    def leaf_sums(self) -> Buffer:
        """The leaves' least-squares tables added up to the roots."""
        found = self.a[-1]
        for l in range(self.last - 1, -1, -1):
            found = np.add.reduceat(found, self.order.first[l][:-1], axis=0)
        return found

    def left_controls(self, tables: Buffer, deepest: int) -> Left:
        """The exact control that is left by most, relative to its size, by tables of places of the level `deepest`.

        Controls that contradict each other are met by no table, so not by the least-squares one.
        """
        worst = Left()
        for c in self.exact:
            found = self.components.sums(tables, c.attributes)
            for l in range(deepest - 1, c.level - 1, -1):
                found = np.add.reduceat(found, self.order.first[l][:-1], axis=0)
            wanted = self.order.take(c.low, c.level)
            off = np.abs(found - wanted) / (1.0 + np.abs(wanted))
            off[~self.order.take(c.held, c.level)] = 0.0
            if off.max(initial=0.0) > worst.off:
                i, cell = np.unravel_index(int(off.argmax()), off.shape)
                place = int(self.order.of[c.level][i])
                worst = Left(
                    float(off[i, cell]), c.level, c.attributes, place, int(cell), float(wanted[i, cell]),
                    float(found[i, cell]),
                )  # fmt: skip
        return worst

    def loss(self, tables: Sequence[Buffer]) -> float:
        """sum over places and queries of |M x - y|^2 / (2 sigma^2), of tables of every level in the order of the tree."""
        total = 0.0
        for q in self.queries:
            for part in self._portions(q.level):
                chosen = self.order.of[q.level][part]
                found = self.components.sums(tables[q.level][part], q.attributes)
                if q.residual:
                    found = residual_rows(found, [self.shape[i] for i in q.attributes])
                off = found - q.values[chosen]
                square = np.square(off).sum(axis=1) * q.stddev[chosen] ** -2.0
                total += 0.5 * float(square[np.isfinite(q.stddev[chosen])].sum())
        return total

    def _portions(self, level: int) -> list[slice]:
        step = max(1, PORTION // self.cells)
        return [slice(lo, lo + step) for lo in range(0, self.count(level), step)]

    # -- ranges ---------------------------------------------------------------------------------------------

    def ranges(self) -> list[dict[Subset, tuple[Buffer, Buffer]]]:
        """For each level the ranges of its marginals, with those that follow from the levels below."""
        held: list[dict[Subset, tuple[Buffer, Buffer]]] = [{} for _ in range(self.last + 1)]
        for c in self.controls:
            low, high = (self.order.take(end, c.level) for end in (c.low, c.high))
            _narrow(held[c.level], c.attributes, low, high)
        if self.below is not None:
            held[-1] = self.below.ranges
        for l in range(self.last - 1, -1, -1):
            starts = self.order.first[l][:-1]
            for subset, ends in held[l + 1].items():
                _narrow(held[l], subset, *(np.add.reduceat(end, starts, axis=0) for end in ends))
        return held

    def as_ranges(self, held: dict[Subset, tuple[Buffer, Buffer]], count: int) -> Ranges:
        sizes = np.array([ends[0].shape[1] for ends in held.values()], np.int64)
        at = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        maps = [self.components.map_to(s) for s in held]
        blank = np.zeros((count if held else 0, 0))
        low = np.concatenate([blank, *(ends[0] for ends in held.values())], axis=1)
        high = np.concatenate([blank, *(ends[1] for ends in held.values())], axis=1)
        return Ranges(
            np.stack(maps) if maps else np.zeros((0, self.cells), np.int32), sizes, at, low, high
        )


class Passes:
    """Buffers of both passes above the leaves: sums of the children, estimates of the pass up, tables `x` of the pass down, what
    is left to give. Of a shard level 0 is the top's: it has sums there and is told what is left."""

    def __init__(self, problem: PlaceProblem) -> None:
        self.problem = problem
        counts = [problem.count(l) for l in range(problem.last)]
        self.sums, self.est, self.x, self.left = (
            [np.zeros((n, problem.cells)) for n in counts] for _ in range(4)
        )
        self._nothing = np.zeros((0, problem.cells))

    def up(self, gains: Gains, extra: Sequence[Buffer] | None = None) -> None:
        """From sums[-1] to the roots."""
        problem, order = self.problem, self.problem.order
        for l in range(problem.last - 1, -1, -1):
            many, cells = self.est[l].shape
            if l < problem.last - 1:
                spread(
                    kernels.add_children, many, self.est[l + 1].size, order.first[l], self.est[l + 1], self.sums[l]
                )  # fmt: skip
            if l < problem.lowest:
                break
            more = self._nothing if extra is None else extra[l]
            spread(
                kernels.up, many, many * cells, self.sums[l], gains.up[l], more, problem.components.averages,
                self.est[l],
            )  # fmt: skip

    def down(self, gains: Gains) -> None:
        """From the roots, or of a shard from left[0], to the parents of the leaves. The estimates stay."""
        problem, order = self.problem, self.problem.order
        for l in range(problem.lowest, problem.last):
            np.copyto(self.x[l], self.est[l])
            if l:
                many, cells = self.x[l].shape
                spread(
                    kernels.down, many, many * cells, order.parent[l], self.left[l - 1], gains.share[l],
                    problem.components.averages, self.x[l],
                )  # fmt: skip
            np.subtract(self.x[l], self.sums[l], out=self.left[l])


def _most(precision: Sequence[Buffer]) -> float:
    return max(float(p.max(initial=0.0)) for p in precision)


def _ratio(part: Buffer, whole: Buffer) -> Buffer:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _narrow(
    held: dict[Subset, tuple[Buffer, Buffer]], key: Subset, low: Buffer, high: Buffer
) -> None:
    if key in held:
        low, high = np.maximum(low, held[key][0]), np.minimum(high, held[key][1])
    held[key] = low, high
