"""Non-negative tables on a tree of places: Douglas-Rachford between the exact two-pass solve and the cells.

With a the least-squares point the loss is f(x) = f(a) + |x - a|^2 / 2 in the metric of the precisions, so that an iteration is
z = max(v, 0), x = a + the solve with information rho (2z - v - a) at every leaf, v += 1.6 (x - z): one visit of each leaf
(kernels/places.py). A check gives a lower bound and a feasible point: the roots' tables of x, shared out level by level. Ranges
and queries on sums of cells have copies of their marginals (place_copies.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf, sqrt
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer
from consilience.errors import MeasurementError
from consilience.kernels import places as kernels
from consilience.kernels.place_sharing import LAST_RAKES, MOST_RAKES, rake_rows, share_down
from consilience.kernels.threads import spread
from consilience.loop import Check, Goal, iterate
from consilience.progress import Progress
from consilience.solvers.place_copies import copies_of
from consilience.solvers.place_problem import Passes, PlaceProblem
from consilience.solvers.places import PlaceQuery, PlaceRange, Places, Subset
from consilience.status import CONVERGED, Status, out_of_iterations

RELAX = 1.6
PENALTY = 10.0
"""The first penalty, in units of a leaf's precision: thousands of leaves share one multiplier at the top, so it is large."""
CHECK, MOST_CHANGES = 10, 20
DEFAULT_ITERATIONS = 20_000
CLOSE = 1e-12
"""A range that is left by less of the total holds."""
FLOOR = 1e-9
"""Losses below this are as good as zero."""


@dataclass(frozen=True, eq=False)
class PlaceState:
    """What a continued solve needs: the leaves' buffer in the order of the tree, the penalty, the buffers of copies."""

    v: Buffer
    rho: float
    copies: tuple[Buffer, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class PlaceSolution:
    """tables[leaf, cell] minimise the loss over non-negative tables that keep the controls, to within `objective - bound`.

    `violation` is the largest distance by which a control is left; adding up holds because other levels are sums of the leaves.
    """

    tables: Buffer
    objective: float
    bound: float
    violation: float
    iterations: int
    seconds: float
    status: Status
    state: PlaceState | None = field(default=None, repr=False)

    @property
    def gap(self) -> float:
        return max(0.0, self.objective - self.bound) / max(abs(self.objective), FLOOR)

    def __repr__(self) -> str:
        return (
            f"PlaceSolution({self.status.name}, objective {self.objective:.6g}, relative gap {self.gap:.2g}, "
            f"violation {self.violation:.2g}, {self.iterations} iterations, {self.seconds:.2f} s)"
        )


def fit_places(
    places: Places,
    shape: Sequence[int],
    queries: Sequence[PlaceQuery],
    controls: Sequence[PlaceRange] = (),
    *,
    possible: NDArray[np.bool_] | None = None,
    nonnegative: bool = True,
    tolerance: float = 1e-4,
    iterations: int | None = None,
    state: PlaceState | None = None,
    progress: Progress | None = None,
) -> PlaceSolution:
    """The leaves' tables over `shape` that fit noisy marginals of every level best.

    possible: False where a cell cannot occur, one row of cells or one per leaf. nonnegative=False leaves out non-negativity:
    the exact generalised least-squares estimate, in two passes. iterations: how many to make, whatever the gap.
    """
    began = perf_counter()
    problem = PlaceProblem(places, shape, queries, controls, possible)
    if not nonnegative:
        if problem.grouped or problem.free:
            raise MeasurementError(
                "the two-pass estimate takes whole marginals and exact controls, got sums of cells or ranges; leave them out"
            )
        return unbounded_below(problem, began)
    return solve(problem, tolerance, iterations, state, progress, began)


def clear_marginals(
    places: Places,
    shape: Sequence[int],
    queries: Sequence[PlaceQuery],
    controls: Sequence[PlaceRange],
    clear: float,
) -> list[PlaceRange]:
    """Marginals of least squares whose cells all lie `clear` standard errors above zero, as exact ones: at each level from the
    root down the largest inside that of the level above; where not even all totals are, the totals that are.

    Cells that are held at zero push the sums above them up, the more, the larger the noise up there is beside theirs; these
    marginals are then worse than least squares has them, and non-negativity tells nothing about them. Any such choice can be
    met: within a cell of the smaller marginal, children and the rest of the larger one are like rows and columns.
    """
    exact = [c for c in controls if c.is_exact]
    plain = [q for q in queries if q.groups is None]
    problem = PlaceProblem(places, shape, plain, exact)
    parts, spread = problem.components, problem.variances()

    def sums_and_errors(level: int, subset: Subset) -> tuple[Buffer, Buffer]:
        variance = spread[level] @ (parts.inside(subset) * parts.dimensions)
        stderr = np.sqrt(variance * parts.copies(subset) ** 2 / parts.cells)
        return parts.sums(problem.a[level], subset), stderr[:, None]

    asked = sorted({(), *(q.attributes for q in plain)}, key=lambda s: (parts.copies(s), s))
    above, found = parts.whole, []
    kept, values = np.ones(places.roots, bool), parts.sums(problem.a[0], ())[:, 0]
    for level in range(places.last):
        for subset in (s for s in asked if set(s) <= set(above)):
            sums, stderr = sums_and_errors(level, subset)
            held = np.all((sums >= clear * stderr) & (sums > 0.0), axis=1)
            if subset and not (held.all() and kept.all()):
                continue
            if level and not subset:  # of totals those that are clear, made to fit into those above
                parent = problem.order.parent[level]
                held &= kept[parent]
                sums = _fitting(sums[:, 0], stderr[:, 0], held, parent, values)[:, None]
            kept, values, above = held, sums.sum(axis=1), subset
            low = np.where(held[:, None], sums, 0.0)
            high = np.where(held[:, None], sums, inf)
            ends = [problem.order.back(end, level) for end in (low, high)]
            found.append(PlaceRange(level, subset, *ends))
            break
    return found


def _fitting(
    totals: Buffer,
    stderr: Buffer,
    held: NDArray[np.bool_],
    parent: NDArray[np.int64],
    above: Buffer,
) -> Buffer:
    """Totals of held places moved, by their variances, to their parent's where all of its children are held, and to no more
    than it where others share the rest: those may have less than nothing by least squares.
    """
    many = len(above)
    left = above - np.bincount(parent, np.where(held, totals, 0.0), many)
    alone = np.bincount(parent, ~held, many) == 0
    move = np.where(alone, left, np.minimum(left, 0.0))
    weight = np.where(held, np.square(stderr), 0.0)
    share = weight / np.maximum(np.bincount(parent, weight, many), 1e-300)[parent]
    return totals + share * move[parent]


def unbounded_below(problem: PlaceProblem, began: float) -> PlaceSolution:
    """The least-squares point itself, negative cells and all."""
    tables = problem.order.back(problem.a[-1], problem.last)
    least = problem.least
    return PlaceSolution(tables, least, least, 0.0, 0, perf_counter() - began, CONVERGED)


def solve(
    problem: PlaceProblem,
    tolerance: float,
    iterations: int | None,
    state: PlaceState | None,
    progress: Progress | None,
    began: float,
) -> PlaceSolution:
    run = iterate(
        _PlaceSplitting(problem, state),
        limit=DEFAULT_ITERATIONS if iterations is None else iterations,
        tolerance=tolerance if iterations is None else None,
        when=lambda done: done + min(50, max(CHECK, done // 5)),
        progress=progress,
    )
    last = run.state
    if last.violation > CLOSE * problem.total:
        last.certify(LAST_RAKES)
    found = PlaceSolution(
        problem.order.back(last.out, problem.last), last.objective, min(last.bound, last.objective), last.violation,
        run.iterations, perf_counter() - began, run.status, last.state,
    )  # fmt: skip
    if iterations is not None and found.gap <= tolerance:
        return replace(found, status=CONVERGED)
    if iterations is None and not run.status.converged:
        status = out_of_iterations(run.iterations, found.gap, tolerance, Goal.GAP)
        return replace(found, status=status)
    return found


class _Working:
    """What changes in a solve: v, the penalty and what follows from it; the last feasible tables and the best bound."""

    def __init__(self, problem: PlaceProblem, warm: PlaceState | None) -> None:
        self.problem = problem
        a = problem.a[-1]
        self.out = np.empty_like(a)
        self.v = np.maximum(a, 0.0) if warm is None else warm.v.copy()
        self.passes = Passes(problem)
        self.bound, self.objective, self.violation = -inf, inf, inf
        self.changes = 0
        self.shared = [np.empty_like(x) for x in problem.a[:-1]]
        self.ranges = problem.ranges()
        self.copies = copies_of(problem, None if warm is None else warm.copies)
        self.weigh(first_penalty(problem) if warm is None else warm.rho)
        self._sum_leaves()

    @property
    def state(self) -> PlaceState:
        return PlaceState(self.v, self.rho, tuple(copy.v for copy in self.copies))

    def weigh(self, rho: float) -> None:
        self.rho = rho
        more = None
        if self.copies:
            more = [np.zeros_like(p) for p in self.problem.precision]
            for copy in self.copies:
                more[copy.level] += copy.penalty(rho)
        self.gains = self.problem.gains(rho, more)

    @property
    def leaves(self) -> kernels.Leaves:
        problem, order = self.problem, self.problem.order
        return kernels.Leaves(
            self.v, problem.a[-1], problem.mask, self.out, order.runs, order.begin, order.run_kind,
            self.gains.leaf_own, problem.precision_rows[-1], self.gains.run_share,
        )  # fmt: skip

    def _sweep(self, relax: float) -> None:
        passes = self.passes
        spread(
            kernels.sweep, len(passes.left[-1]), self.v.size, self.rho, relax, self.leaves, passes.left[-1],
            passes.sums[-1], self.problem.components.averages,
        )  # fmt: skip

    def _sum_leaves(self) -> None:
        self._sweep(0.0)

    def _solve(self) -> None:
        """The passes above the leaves, with what ranges tell."""
        extra = None
        if self.copies:
            extra = [np.zeros_like(x) for x in self.shared]
            for copy in self.copies:
                extra[copy.level] += copy.information(self.rho)
            for level in {copy.level for copy in self.copies}:
                self.problem.operate(
                    extra[level], np.arange(len(extra[level])), self.gains.own[level]
                )
        self.passes.run(self.gains, extra)

    def step(self) -> None:
        self._solve()
        for copy in self.copies:
            copy.step(self.passes.est[copy.level], self.rho, RELAX)
        self._sweep(RELAX)

    def rescale(self, factor: float) -> None:
        """Multiply the penalty."""
        spread(
            kernels.rescale, len(self.v), self.v.size, 1.0 / factor, self.v, self.problem.mask
        )  # fmt: skip
        for copy in self.copies:
            copy.rescale(self.rho, factor)
        self.weigh(self.rho * factor)
        self._sum_leaves()

    # -- the check ------------------------------------------------------------------------------------------

    def certify(self, rakes: int = MOST_RAKES) -> tuple[float, float]:
        """Set objective, bound, violation and the feasible tables; the two residuals. rakes: rounds to meet ranges in."""
        problem = self.problem
        self._solve()
        push, along, held = self._push()
        worst = self._share_above(rakes)
        stats = np.empty((problem.count(problem.last - 1), kernels.STATS))
        spread(
            kernels.certify, len(stats), self.v.size, self.rho, RELAX, self.leaves, self.passes.left[-1],
            push, self.shared[-1], self.ranges[-1], rakes, problem.components.averages, stats,
        )  # fmt: skip
        primal, dual, slope, term, _, _, energy, _ = stats.sum(axis=0).tolist()
        self.violation = max(worst, float(stats[:, 7].max()))
        self.objective = problem.least + 0.5 * (energy + self._energy_above())
        for copy in self.copies:
            sums = problem.components.sums(self.shared[copy.level], copy.subset)
            self.objective += copy.value(sums)
        bound = problem.least + 0.5 * (slope + along) + term + held
        lowest = float(stats[:, 4].min())
        if lowest < 0.0:
            bound += lowest * self._most_mass()
        self.bound = max(self.bound, bound)
        return sqrt(primal), sqrt(dual)

    def _push(self) -> tuple[Buffer, float, float]:
        """What copies add to the bound: on all leaves below each parent of leaves, along x - a, and without x."""
        problem, along, held = self.problem, 0.0, 0.0
        if not self.copies:
            return np.zeros((0, problem.cells)), along, held
        push = [np.zeros_like(x) for x in self.shared]
        for copy in self.copies:
            cells, more, rest = copy.bound(self.passes.est[copy.level], self.rho)
            push[copy.level] += cells
            along, held = along + more, held + rest
        for level in range(1, problem.last):
            push[level] += push[level - 1][problem.order.parent[level]]
        return push[-1], along, held

    def _share_above(self, rakes: int) -> float:
        """Feasible tables of every level above the leaves, from the roots down; the largest distance to a range."""
        problem, order, worst = self.problem, self.problem.order, 0.0
        for l, shared in enumerate(self.shared):
            np.add(problem.a[l], self.passes.est[l], out=shared)
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

    def _energy_above(self) -> float:
        problem, total = self.problem, 0.0
        for l, shared in enumerate(self.shared):
            found = np.empty(len(shared))
            spread(
                kernels.energies, len(shared), shared.size, shared, problem.a[l], np.arange(len(shared)),
                problem.precision_rows[l], problem.components.averages, found,
            )  # fmt: skip
            total += float(found.sum())
        return total

    def _most_mass(self) -> float:
        """No better tables than the feasible ones hold more than this, by what the measurements say of the roots' totals."""
        problem = self.problem
        own = problem.a[0].sum()
        room = 2.0 * max(0.0, self.objective - problem.least) * problem.cells
        return float(own) + sqrt(room * float(problem.total_variance.sum()))


class _PlaceSplitting:
    """The method of the loop."""

    def __init__(self, problem: PlaceProblem, warm: PlaceState | None) -> None:
        self.problem = problem
        self.warm = warm

    def start(self) -> _Working:
        return _Working(self.problem, self.warm)

    def step(self, state: _Working, most: int) -> int:
        state.step()
        return 1

    def check(self, state: _Working, done: int) -> Check:
        primal, dual = state.certify()
        gap = max(0.0, state.objective - state.bound) / max(abs(state.objective), FLOOR)
        found = Check(state.objective, gap, state.violation)
        ratio = primal / max(dual, 1e-300)
        if done and state.changes < MOST_CHANGES and (ratio > 3.0 or ratio < 1 / 3.0):
            state.rescale(float(np.clip(sqrt(ratio), 0.5, 2.0)))
            state.changes += 1
        return found


def first_penalty(problem: PlaceProblem) -> float:
    """PENALTY times what a leaf's cells are measured with; where some of it is not, times the mean of what is."""
    parts, counts = problem.components.dimensions, np.bincount(problem.order.kind)
    leaf = problem.precision_rows[-1][:, -1]
    typical = float((leaf * counts).sum() / counts.sum())
    if typical <= 0.0:
        means = [float((p * parts).sum() / parts.sum() / len(p)) for p in problem.precision]
        typical = max(means[-1], max(means) / problem.count(problem.last))
    return PENALTY * typical
