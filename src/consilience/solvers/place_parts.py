"""The parts of a splitting on a tree of places: shards, which hold the leaves, and the top, which they hang on.

A shard sums its subtrees up to the places of the cut; the top goes on to the roots and back, and tells what is left to give at
the cut; the shard goes on down, takes its step, and sums up again, all in one visit. A shard is three values, `slots`, so that
it can live in memory, in files or in an engine's partitions: what stays, what the penalty decides, and what every step changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np

from consilience.domain import Buffer
from consilience.kernels import places as kernels
from consilience.kernels.place_sharing import rake_rows, share_down
from consilience.kernels.threads import spread
from consilience.solvers.place_copies import PlaceCopy, copies_of
from consilience.solvers.place_problem import Below, Gains, Left, Passes, PlaceProblem
from consilience.solvers.places import Asked

RELAX = 1.6


class Tallies(NamedTuple):
    """What a check sums over shards: |x - z|^2, |z' - z|^2, bound and objective; the lowest slope, the worst range."""

    primal: float
    dual: float
    bound: float
    objective: float
    lowest: float
    violation: float


class Part:
    """Levels above the leaves: both passes, what copies tell, and tables that are shared out from the top down."""

    def __init__(self, problem: PlaceProblem) -> None:
        self.problem = problem
        self.passes = Passes(problem)
        self.copies: list[PlaceCopy] = []
        self.gains: Gains | None = None
        self.rho = 0.0

    def begin_copies(self, ratios: Sequence[float], kept: Sequence[Buffer] | None) -> None:
        problem = self.problem
        self.copies = copies_of(problem, ratios, kept)
        self.ranges = [
            problem.as_ranges(found, problem.count(l)) for l, found in enumerate(problem.ranges())
        ]

    def weigh(self, rho: float, whole: Buffer | None = None) -> None:
        more = None
        if self.copies:
            more = [np.zeros_like(p) for p in self.problem.precision]
            for copy in self.copies:
                more[copy.level] += copy.penalty(rho)
        self.rho, self.gains = rho, self.problem.gains(rho, more, whole)

    def up(self) -> None:
        """From passes.sums[-1], with what copies tell."""
        assert self.gains is not None
        extra = None
        if self.copies:
            extra = [np.zeros_like(x) for x in self.passes.est]
            for copy in self.copies:
                extra[copy.level] += copy.information(self.rho)
            for level in {copy.level for copy in self.copies}:
                self.problem.operate(
                    extra[level], np.arange(len(extra[level])), self.gains.own[level]
                )
        self.passes.up(self.gains, extra)

    def down(self) -> None:
        assert self.gains is not None
        self.passes.down(self.gains)

    def step_copies(self) -> None:
        for copy in self.copies:
            copy.step(self.passes.x[copy.level], self.rho, RELAX)

    # -- the check ------------------------------------------------------------------------------------------

    def push(self, above: Buffer | None) -> tuple[Buffer | None, float, float]:
        """What copies add to the bound: on all leaves below each parent of leaves, along x - a, and without x."""
        problem, along, held = self.problem, 0.0, 0.0
        if not self.copies and above is None:
            return None, along, held
        push = [np.zeros_like(x) for x in self.passes.x]
        if above is not None:
            push[0] += above
        for copy in self.copies:
            cells, more, rest = copy.bound(self.passes.x[copy.level], self.rho)
            push[copy.level] += cells
            along, held = along + more, held + rest
        for level in range(1, problem.last):
            push[level] += push[level - 1][problem.order.parent[level]]
        return push[-1], along, held

    def share_above(self, target: Buffer | None, rakes: int) -> float:
        """Feasible tables of every level above the leaves, from the roots down; the largest distance to a range."""
        problem, order, worst = self.problem, self.problem.order, 0.0
        self.shared = [np.zeros_like(x) for x in self.passes.x]
        if target is not None:
            self.shared[0][...] = target
        for l in range(problem.lowest, problem.last):
            shared = self.shared[l]
            np.add(problem.a[l], self.passes.x[l], out=shared)
            np.maximum(shared, 0.0, out=shared)
            shared[problem.room[l] == 0.0] = 0.0
            many = len(shared) if l == 0 else len(self.shared[l - 1])
            off = np.zeros(many)
            if l == 0:
                rake_rows(0, many, shared, problem.room[0], self.ranges[0], rakes, off)
            else:
                spread(
                    share_down, many, shared.size, order.first[l - 1], self.shared[l - 1], shared,
                    problem.room[l], self.ranges[l], rakes, off,
                )  # fmt: skip
            worst = max(worst, float(off.max()))
        return worst

    def value_above(self) -> float:
        """The part of the objective that these levels and their copies have."""
        problem, total = self.problem, 0.0
        for l in range(problem.lowest, problem.last):
            shared, found = self.shared[l], np.empty(len(self.shared[l]))
            spread(
                kernels.energies, len(shared), shared.size, shared, problem.a[l], np.arange(len(shared)),
                problem.precision_rows[l], problem.components.averages, found,
            )  # fmt: skip
            total += 0.5 * float(found.sum())
        for copy in self.copies:
            sums = problem.components.sums(self.shared[copy.level], copy.subset)
            total += copy.value(sums)
        return total


@dataclass(frozen=True, eq=False)
class Compiled:
    """What a shard says when it is compiled: what the top must know of it, sums of the least-squares pass up, and its part of
    the mean precision of each level below the cut, leaves last, and of the least that a leaf's table is measured with."""

    below: Below
    sums: Buffer
    precision: list[Buffer]
    least: float


@dataclass(frozen=True, eq=False)
class Solved:
    """What a shard says of its least-squares tables: their loss, its leaves added up, the exact control that is left by most."""

    loss: float
    sums: Buffer
    left: Left


@dataclass(frozen=True, eq=False)
class Start:
    """How a splitting begins: the penalty, those of copies over it, and buffers of an earlier solve."""

    rho: float
    ratios: tuple[float, ...]
    v: Buffer | None = None
    copies: tuple[Buffer, ...] | None = None


@dataclass(frozen=True, eq=False)
class Checked:
    """What a check tells a shard: what is left to give at the cut, what copies above push, and the feasible tables there."""

    left: Buffer
    push: Buffer | None
    target: Buffer
    rakes: int


class Shard(Part):
    """Subtrees and their leaves. Every method but the first answers one message of the driver with a few numbers per root."""

    v: Buffer
    out: Buffer | None = None

    @staticmethod
    def compiled(asked: Asked, tiny: float) -> tuple[Shard, Compiled]:
        problem = PlaceProblem(asked, solved=False, hanging=True, tiny=tiny)
        own = Shard(problem)
        problem.least_up(own.passes)
        counts = np.bincount(problem.order.kind).astype(float)
        below = Below(problem.gains(0.0).whole, problem.room[0], problem.ranges()[0])
        precision = [
            *(p.sum(axis=0) for p in problem.precision[1:-1]),
            counts @ problem.precision[-1],
        ]
        least = float(counts @ problem.precision_rows[-1][:, -1])
        return own, Compiled(below, own.passes.sums[0], precision, least)

    def least_squares(self, left: Buffer) -> Solved:
        problem = self.problem
        self.passes.left[0][...] = left
        problem.least_down(self.passes)
        answer = Solved(
            problem.loss(problem.a),
            problem.leaf_sums(),
            problem.left_controls(problem.a[-1], problem.last),
        )
        problem.queries = ()  # a, precisions and the loss say all of them
        return answer

    def least_tables(self) -> Buffer:
        return self.problem.order.back(self.problem.a[-1], self.problem.last)

    def begin(self, start: Start) -> tuple[Buffer, Buffer]:
        a = self.problem.a[-1]
        self.v = np.maximum(a, 0.0) if start.v is None else start.v.copy()
        self.begin_copies(start.ratios, start.copies)
        return self._weighed(start.rho)

    def rescale(self, factor: float) -> tuple[Buffer, Buffer]:
        """Multiply the penalty; the sums at the cut and their variances."""
        spread(
            kernels.rescale, len(self.v), self.v.size, 1.0 / factor, self.rho, self.v, self.problem.mask,
            self.problem.pull.weight, self.problem.pull.to,
        )  # fmt: skip
        for copy in self.copies:
            copy.rescale(self.rho, factor)
        return self._weighed(self.rho * factor)

    def _weighed(self, rho: float) -> tuple[Buffer, Buffer]:
        self.weigh(rho)
        self._sweep(0.0)
        self.up()
        assert self.gains is not None
        return self.passes.sums[0], self.gains.whole

    def step(self, left: Buffer) -> Buffer:
        """The pass down of one iteration and the pass up of the next."""
        self.passes.left[0][...] = left
        self.down()
        self.step_copies()
        self._sweep(RELAX)
        self.up()
        return self.passes.sums[0]

    def _sweep(self, relax: float) -> None:
        passes = self.passes
        spread(
            kernels.sweep, len(passes.left[-1]), self.v.size, self.rho, relax, self._leaves(self.v),
            passes.left[-1], passes.sums[-1], self.problem.components.averages,
        )  # fmt: skip

    def _leaves(self, out: Buffer) -> kernels.Leaves:
        problem, order = self.problem, self.problem.order
        assert self.gains is not None
        return kernels.Leaves(
            self.v, problem.a[-1], problem.mask, out, order.runs, order.begin, order.run_kind,
            self.gains.leaf_own, problem.precision_rows[-1], self.gains.run_share, problem.pull.weight,
            problem.pull.to,
        )  # fmt: skip

    def certify(self, check: Checked) -> Tallies:
        problem, passes = self.problem, self.passes
        passes.left[0][...] = check.left
        self.down()
        push, along, held = self.push(check.push)
        worst = self.share_above(check.target, check.rakes)
        if self.out is None:
            self.out = np.empty_like(self.v)
        stats = np.empty((problem.count(problem.last - 1), kernels.STATS))
        spread(
            kernels.certify, len(stats), self.v.size, self.rho, RELAX, self._leaves(self.out), passes.left[-1],
            np.zeros((0, problem.cells)) if push is None else push, self.shared[-1], self.ranges[-1],
            check.rakes, problem.components.averages, stats,
        )  # fmt: skip
        primal, dual, slope, term, _, _, energy, _ = stats.sum(axis=0).tolist()
        return Tallies(
            primal,
            dual,
            0.5 * (slope + along) + term + held,
            0.5 * energy + self.value_above(),
            float(stats[:, 4].min()),
            max(worst, float(stats[:, 7].max())),
        )

    def tables(self, check: Checked) -> Buffer:
        """The leaves' feasible tables of the last check."""
        if self.out is None:
            self.certify(check)
        assert self.out is not None
        return self.problem.order.back(self.out, self.problem.last)

    def buffers(self) -> tuple[Buffer, list[Buffer]]:
        return self.v, [copy.v for copy in self.copies]

    # -- as values ------------------------------------------------------------------------------------------

    def slots(self) -> dict[str, Any]:
        """What stays, what the penalty decides, what a step changes."""
        moving = (self.passes.sums, self.passes.est, getattr(self, "v", None), [c.v for c in self.copies])  # fmt: skip
        stays = (self.problem, self.copies, getattr(self, "ranges", None))
        return {"stays": stays, "penalty": (self.rho, self.gains), "moving": moving}

    @staticmethod
    def of(slots: dict[str, Any]) -> Shard:
        problem, copies, ranges = slots["stays"]
        own = Shard(problem)
        own.copies = copies
        if ranges is not None:
            own.ranges = ranges
        own.rho, own.gains = slots["penalty"]
        own.passes.sums, own.passes.est, v, kept = slots["moving"]
        if v is not None:
            own.v = v
        for copy, buffer in zip(copies, kept, strict=True):
            copy.v = buffer
        return own


class Job(NamedTuple):
    """A message's kind: what a shard does with it, and the slots that it changes."""

    answer: Callable[[Shard, Any], Any]
    changes: tuple[str, ...] = ()


JOBS = {
    "least_squares": Job(Shard.least_squares, ("stays",)),
    "least_tables": Job(lambda shard, _: shard.least_tables()),
    "begin": Job(Shard.begin, ("stays", "penalty", "moving")),
    "step": Job(Shard.step, ("moving",)),
    "rescale": Job(Shard.rescale, ("penalty", "moving")),
    "certify": Job(Shard.certify),
    "tables": Job(Shard.tables),
    "buffers": Job(lambda shard, _: shard.buffers()),
}


class Top(Part):
    """The cut's places and all above, which the driver keeps."""

    def __init__(self, asked: Asked, below: Below, sums: Buffer, tiny: float) -> None:
        super().__init__(PlaceProblem(asked, solved=False, below=below, tiny=tiny))
        self.take(sums)
        self.problem.least_up(self.passes)
        self.problem.least_down(self.passes)
        self.bound, self.objective, self.violation = -inf, inf, inf

    def take(self, sums: Buffer) -> None:
        self.passes.sums[-1][...] = sums

    @property
    def left(self) -> Buffer:
        """What is left to give at the cut."""
        return self.passes.left[-1]

    def solve(self) -> None:
        """Up to the roots and back to the cut."""
        self.up()
        self.down()
