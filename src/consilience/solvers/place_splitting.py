"""Non-negative tables on a tree of places: Douglas-Rachford between the exact two-pass solve and the cells.

With a the least-squares point the loss is f(x) = f(a) + |x - a|^2 / 2 in the metric of the precisions, so that an iteration is
z = max(v, 0), x = a + the solve with information rho (2z - v - a) at every leaf, v += 1.6 (x - z): one visit of each leaf
(kernels/places.py). A check gives a lower bound and a feasible point: the roots' tables of x, shared out level by level. Ranges
and queries on sums of cells have copies of their marginals (place_copies.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf, sqrt
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer
from consilience.errors import ConsilienceError, MeasurementError
from consilience.kernels.place_sharing import LAST_RAKES, MOST_RAKES
from consilience.loop import Check, Goal, iterate
from consilience.progress import Progress, Step, quiet
from consilience.solvers.place_copies import first_ratio
from consilience.solvers.place_engines import Shards, shards_of
from consilience.solvers.place_parts import Checked, Solved, Start, Top
from consilience.solvers.place_problem import RIDGE, Below, PlaceProblem
from consilience.solvers.place_shards import SHARD, Cut, joined
from consilience.solvers.places import Asked, PlaceQuery, PlaceRange, Places, Pull, Subset
from consilience.status import CONVERGED, Status, out_of_iterations

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
    pull: Pull | None = None,
    nonnegative: bool = True,
    tolerance: float = 1e-4,
    iterations: int | None = None,
    state: PlaceState | None = None,
    progress: Progress | None = None,
    workers: Any = None,
    folder: Path | None = None,
    shard_cells: int = SHARD,
) -> PlaceSolution:
    """The leaves' tables over `shape` that fit noisy marginals of every level best.

    possible: False where a cell cannot occur, one row of cells or one per leaf. pull: towards what, and how much, the leaves'
    cells are pulled. nonnegative=False leaves out non-negativity: the exact generalised least-squares estimate, in two passes.
    iterations: how many to make, whatever the gap. workers: None for this process, a number of worker processes, or a Spark
    session; the tables are the same bit for bit. folder: an existing one for the workers' files; the tables are then a mapped
    file in it, `tables.npy`, and there is no state. Values of queries may be mapped files too. shard_cells: cells of the
    leaves of a shard, where the tree allows.
    """
    began = perf_counter()
    asked = Asked.of(places, shape, queries, controls, possible, pull)
    cut = Cut(asked, shard_cells)
    with shards_of(workers, folder) as shards:
        driver = Driver(cut, shards, progress)
        if not nonnegative:
            if (
                asked.grouped
                or driver.top.problem.free
                or not all(c.fixing for c in asked.controls)
            ):
                raise MeasurementError(
                    "the two-pass estimate takes whole marginals and exact controls, got sums of cells or ranges; leave them out"
                )
            tables = driver.gather("least_tables", None, folder)
            return PlaceSolution(
                tables, driver.least, driver.least, 0.0, 0, perf_counter() - began, CONVERGED
            )
        driver.begin(state)
        return _solved(driver, tolerance, iterations, progress, began, folder)


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
    problem = PlaceProblem(Asked.of(places, shape, plain, exact))
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
            low, high = (problem.order.back(end, level) for end in (low, high))
            found.append(PlaceRange(level, subset, low, high))
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


def _solved(
    driver: Driver,
    tolerance: float,
    iterations: int | None,
    progress: Progress | None,
    began: float,
    folder: Path | None,
) -> PlaceSolution:
    run = iterate(
        _PlaceSplitting(driver),
        limit=DEFAULT_ITERATIONS if iterations is None else iterations,
        tolerance=tolerance if iterations is None else None,
        when=lambda done: done + min(50, max(CHECK, done // 5)),
        progress=progress,
    )
    if driver.violation > CLOSE * driver.top.problem.total:
        driver.certify(LAST_RAKES)
    tables = driver.gather("tables", driver.checked, folder)
    found = PlaceSolution(
        tables, driver.objective, min(driver.bound, driver.objective), driver.violation, run.iterations,
        perf_counter() - began, run.status, driver.state() if folder is None else None,
    )  # fmt: skip
    if iterations is not None and found.gap <= tolerance:
        return replace(found, status=CONVERGED)
    if iterations is None and not run.status.converged:
        status = out_of_iterations(run.iterations, found.gap, tolerance, Goal.GAP)
        return replace(found, status=status)
    return found


class Driver:
    """What the shards' answers become: the top of the tree, the penalty, the certificate. Sums over shards are in their order."""

    def __init__(self, cut: Cut, shards: Shards, progress: Progress | None) -> None:
        self.cut, self.shards, self.progress = cut, shards, progress or quiet
        self.bound, self.objective, self.violation = -inf, inf, inf
        self.changes, self.factor = 0, 1.0
        asked = cut.asked
        tiny = RIDGE * _most_precision(asked)
        found = list(self._told("compiling shards", shards.compile(cut, tiny)))
        below = Below(
            joined([f.below.whole for f in found]),
            joined([f.below.room for f in found]),
            {s: _both([f.below.ranges[s] for f in found]) for s in found[0].below.ranges},
        )
        self.top = Top(cut.top(), below, joined([f.sums for f in found]), tiny)
        problem = self.top.problem
        self.means = [p.mean(axis=0) for p in problem.precision[:-1]] + [
            sum(f.precision[l] for f in found) / asked.places.count(cut.level + 1 + l)
            for l in range(asked.places.last - cut.level)
        ]
        self.least_leaf = sum(f.least for f in found) / asked.places.leaves
        del found
        answers = self._run("least_squares", self._slices(self.top.left), "least squares")
        solved = list(answers)
        self.least = problem.loss(problem.a) + sum(s.loss for s in solved)
        self._check_controls(solved)

    def _told(self, stage: str, answers: Iterator[Any]) -> Iterator[Any]:
        many = len(self.cut)
        for done, answer in enumerate(answers, 1):
            if many > 1:
                self.progress(Step(stage, done, many))
            yield answer

    def _run(self, job: str, messages: Iterable[Any], stage: str | None = None) -> Iterator[Any]:
        answers = self.shards.run(job, messages)
        return answers if stage is None else self._told(stage, answers)

    def _slices(self, rows: Buffer) -> Iterator[Buffer]:
        return (rows[self.cut.roots(s)] for s in range(len(self.cut)))

    def _check_controls(self, solved: Sequence[Solved]) -> None:
        """Controls that contradict each other are met by no table, so not by the least-squares one."""
        cut, problem = self.cut, self.top.problem
        worst = problem.left_controls(joined([s.sums for s in solved]), cut.level)
        for i, s in enumerate(solved):
            if s.left.off > worst.off:
                level = s.left.level + cut.level
                worst = s.left._replace(level=level, place=cut.original(i, level, s.left.place))
        if worst.off > 1e-6:
            raise ConsilienceError(
                f"exact controls must not contradict each other: cell {worst.cell} of attributes {worst.attributes} of place "
                f"{worst.place} of level {worst.level} is {worst.wanted:g}, by the others {worst.found:g}"
            )

    # -- the iteration --------------------------------------------------------------------------------------

    def begin(self, warm: PlaceState | None) -> None:
        cut, asked, top = self.cut, self.cut.asked, self.top
        given = [*(c for c in asked.controls if not c.fixing), *asked.grouped]
        ratios = [first_ratio(g, asked, self.means) for g in given]
        low = [i for i, g in enumerate(given) if g.level > cut.level]
        high = [i for i, g in enumerate(given) if g.level <= cut.level]
        self._copied = low, high, [g.level - cut.level for g in given]
        rho = self._first_penalty() if warm is None else warm.rho
        kept = None if warm is None else [warm.copies[i] for i in high]
        top.begin_copies([ratios[i] for i in high], kept)
        self._rho = rho
        self._weighed("begin", (self._start(s, rho, ratios, warm) for s in range(len(cut))))

    def _start(self, s: int, rho: float, ratios: list[float], warm: PlaceState | None) -> Start:
        low, _, levels = self._copied
        own = tuple(ratios[i] for i in low)
        if warm is None:
            return Start(rho, own)
        starts = self.cut.starts
        copies = tuple(warm.copies[i][starts[levels[i]][s] : starts[levels[i]][s + 1]] for i in low)
        return Start(rho, own, warm.v[starts[-1][s] : starts[-1][s + 1]], copies)

    def _weighed(self, job: str, messages: Iterable[Any]) -> None:
        """Sums and variances at the cut by a new penalty."""
        found = list(self._run(job, messages, "starting" if job == "begin" else None))
        self.top.take(joined([sums for sums, _ in found]))
        self.top.weigh(self._rho, joined([whole for _, whole in found]))

    def _first_penalty(self) -> float:
        """PENALTY times what a leaf's cells are measured with; where some of it is not, times the mean of what is."""
        typical = self.least_leaf
        if typical <= 0.0:
            parts = self.cut.asked.components.dimensions
            means = [float((p * parts).sum() / parts.sum()) for p in self.means]
            typical = max(means[-1], max(means) / self.cut.asked.places.leaves)
        return PENALTY * typical

    def step(self) -> None:
        if self.factor != 1.0:
            for copy in self.top.copies:
                copy.rescale(self._rho, self.factor)
            self._rho *= self.factor
            self._weighed("rescale", [self.factor] * len(self.cut))
            self.factor = 1.0
        self.top.solve()
        self.top.step_copies()
        self.top.take(joined(list(self._run("step", self._slices(self.top.left)))))

    def certify(self, rakes: int = MOST_RAKES) -> tuple[float, float]:
        """Set objective, bound and violation; the two residuals. rakes: rounds to meet ranges in."""
        top = self.top
        top.solve()
        push, along, held = top.push(None)
        worst = top.share_above(None, rakes)
        self.checked = [
            Checked(left, None if push is None else push[self.cut.roots(s)], target, rakes)
            for s, (left, target) in enumerate(
                zip(self._slices(top.left.copy()), self._slices(top.shared[-1]), strict=True)
            )
        ]
        found = list(self._run("certify", self.checked))
        primal, dual, bound, value = (sum(column) for column in list(zip(*found, strict=True))[:4])
        self.objective = self.least + top.value_above() + value
        self.violation = max(worst, max(f.violation for f in found))
        bound += self.least + 0.5 * along + held
        lowest = min(f.lowest for f in found)
        if lowest < 0.0:
            bound += lowest * self._most_mass()
        self.bound = max(self.bound, bound)
        return sqrt(primal), sqrt(dual)

    def _most_mass(self) -> float:
        """No better tables than the feasible ones hold more than this, by what the measurements say of the roots' totals."""
        problem = self.top.problem
        room = 2.0 * max(0.0, self.objective - self.least) * problem.cells
        return float(problem.a[0].sum()) + sqrt(room * float(problem.total_variance.sum()))

    # -- results --------------------------------------------------------------------------------------------

    def gather(self, job: str, messages: Sequence[Any] | None, folder: Path | None) -> Buffer:
        """The leaves' tables, as the places were given; in a file of the folder if there is one."""
        cut, many = self.cut, len(self.cut)
        answers = self._run(job, [None] * many if messages is None else messages, "gathering")
        if many == 1 and folder is None and isinstance(cut.rows(0, cut.asked.places.last), slice):
            return next(answers)
        shape = cut.asked.places.leaves, cut.asked.components.cells
        tables = np.empty(shape)
        if folder is not None:
            tables = np.lib.format.open_memmap(folder / "tables.npy", "w+", np.float64, shape)
        for s, part in enumerate(answers):
            tables[cut.rows(s, cut.asked.places.last)] = part
        return tables

    def state(self) -> PlaceState:
        found = list(self._run("buffers", [None] * len(self.cut)))
        low, high, levels = self._copied
        copies: list[Buffer] = [np.zeros(0)] * len(levels)
        for k, i in enumerate(high):
            copies[i] = self.top.copies[k].v
        for k, i in enumerate(low):
            copies[i] = joined([kept[k] for _, kept in found])
        return PlaceState(joined([v for v, _ in found]), self._rho, tuple(copies))


class _PlaceSplitting:
    """The method of the loop."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def start(self) -> Driver:
        return self.driver

    def step(self, state: Driver, most: int) -> int:
        state.step()
        return 1

    def check(self, state: Driver, done: int) -> Check:
        primal, dual = state.certify()
        gap = max(0.0, state.objective - state.bound) / max(abs(state.objective), FLOOR)
        found = Check(state.objective, gap, state.violation)
        ratio = primal / max(dual, 1e-300)
        if done and state.changes < MOST_CHANGES and (ratio > 3.0 or ratio < 1 / 3.0):
            state.factor = float(
                np.clip(sqrt(ratio), 0.5, 2.0)
            )  # of the penalty, from the next step on
            state.changes += 1
        return found


def _most_precision(asked: Asked) -> float:
    """No place's component is known more precisely, if the most precise measurements of a level meet in one place."""
    levels = np.zeros(asked.places.last + 1)
    for q in asked.queries:
        levels[q.level] += asked.components.copies(q.attributes) / float(np.min(q.stddev)) ** 2
    return float(levels.max())


def _both(ends: Sequence[tuple[Buffer, Buffer]]) -> tuple[Buffer, Buffer]:
    return joined([low for low, _ in ends]), joined([high for _, high in ends])
