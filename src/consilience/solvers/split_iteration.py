"""One iteration of splitting, the state that it changes, and the certificate of that state.

The cells' terms and consistency take turns on one buffer v (Douglas-Rachford): z = prox(v), x = the consistent point closest to
2z - v and the data, v += 1.6 (x - z). A certificate is a rigorous lower bound (kernels/splitting.py) and a feasible point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from consilience.domain import Buffer, Clique
from consilience.errors import LossError
from consilience.kernels import cells as kernels
from consilience.kernels.splitting import Roots, Terms
from consilience.kernels.threads import spread
from consilience.regions.ties import Projection
from consilience.solvers.split_problem import SplitProblem, Structure
from consilience.solvers.work import visits

RELAX = 1.6
EXACT = 1e-7
"""Tables that meet the data to this L2 distance meet them exactly: an objective below that counts as zero in a relative gap."""


@dataclass
class SplittingState:
    """What a continued solve needs: the buffer v and the penalty, relative to the data weights; what was compiled, if known."""

    v: Buffer
    rho: float
    structure: Structure | None = None

    def copy(self) -> SplittingState:
        return SplittingState(self.v.copy(), self.rho, self.structure)

    def by_clique(self) -> Mapping[Clique, Buffer]:
        """Each root clique's part of v, views in the engine's order of cells."""
        if self.structure is None:
            raise LossError("the state must come from a solution to be read clique by clique")
        return dict(self.structure.by_clique(self.v))

    def carried_into(self, problem: SplitProblem) -> SplittingState:
        """A start for another problem: tables that were here go on from where they are, new ones start at their data."""
        start = SplitIteration(problem)
        start.rescale(self.rho / start.rho)
        known = self.by_clique()
        for clique, v in problem.structure.by_clique(start.v):
            if clique in known:
                v[...] = known[clique]
        return start.state

    def fits(self, problem: SplitProblem) -> bool:
        """Whether v has exactly the problem's tables."""
        if self.structure is None:
            return len(self.v) == problem.cells
        mine, other = self.structure, problem.structure
        return (mine.root_cliques, mine.copied) == (other.root_cliques, other.copied)


class SplitIteration:
    """A problem, where its iteration stands (v, rho), and one step of it.

    `mode`, `extra` and `stiffness` begin as the problem's and may be changed before `weigh`; `pull` is the weight of a table's
    further term over its penalty.
    """

    def __init__(self, problem: SplitProblem, state: SplittingState | None = None) -> None:
        self.problem = problem
        self.v = problem.first.copy()
        self.rho = 1.0
        self.y = problem.y
        self.x = np.empty(problem.cells)
        """Scratch: the blend of data and state, then the consistent point."""
        self.mode = problem.mode.copy()
        self.extra = problem.extra.copy() if problem.copies else problem.extra
        self.stiffness = problem.stiffness.copy()
        self.pull = np.zeros(len(problem.data))
        self.projection = Projection(problem.ties)
        self.projection.base[...], self.projection.base_share[...] = problem.node_means()
        self._z = np.zeros(0)
        self.steps = 0
        if state is not None:
            self.v[...] = state.v
            self.rho = state.rho
        self.weigh()

    @property
    def state(self) -> SplittingState:
        return SplittingState(self.v, self.rho, self.problem.structure)

    @property
    def work(self) -> int:
        """Cells, counted tenfold where each needs a transcendental equation solved."""
        return self.problem.cells * (10 if kernels.ENTROPIC in self.mode else 1)

    @property
    def visited(self) -> float:
        """Visits of cells so far, checks included."""
        queries = sum(copy.work for copy in self.problem.copies)
        return self.steps * visits(self.work, len(self.problem.data), queries)

    # -- weights ---------------------------------------------------------------------------------

    def weigh(self) -> None:
        """Set the weights that depend on the penalty rho * stiffness."""
        problem = self.problem
        self.penalty = self.rho * self.stiffness
        straight = problem.slope > 0
        self.pull[straight] = problem.slope[straight] / self.penalty[straight]
        for i, copy in enumerate(problem.copies, problem.count):
            self.penalty[i] = self.rho * max(copy.weight * copy.stiffness, 1e-12)
        whole = problem.data + self.penalty
        self.mix = self.penalty / whole
        self.projection.weigh(whole)

    def penalise(self, rho: float) -> None:
        """Set the penalty; with none, the consistent point is the least squares fit to the data alone."""
        self.rho = rho
        self.weigh()

    def rescale(self, factor: float) -> None:
        """Change the penalty by a factor; the multipliers penalty * (v - z) stay what they are."""
        self.rho *= factor
        z = self.prox()
        self.v -= z
        self.v /= factor
        self.v += z
        self.pull /= factor
        self.weigh()

    # -- one step --------------------------------------------------------------------------------

    def step(self) -> None:
        self._project(RELAX)

    def consistent(self) -> Buffer:
        """x, the consistent point that belongs to v, which stays as it is."""
        self._project(0.0)
        return self.x

    def measure(self) -> Buffer:
        """Statistics of the point that `consistent` found, a row per table."""
        terms = Terms(self.extra, self.pull, self.problem.data, self.penalty)
        return self.projection.measure(self._roots(), terms, RELAX)

    def _project(self, relax: float) -> None:
        self.steps += 1
        self._solve_copies()
        if np.any(self.mode):
            self._z = self.prox(self._z)
        self.projection.project(self._roots(), relax)

    def prox(self, z: Buffer | None = None) -> Buffer:
        """z = prox(v), table by table, in the given buffer if it fits. Only further terms ask for loops of their own."""
        z = np.empty_like(self.v) if z is None or len(z) != len(self.v) else z
        if not np.all(self.mode):
            np.maximum(self.v, 0.0, out=z)
        args = (self.v, self.extra, self.mode, self.pull, z, self.problem.ties.roots.shapes)
        if np.any((self.mode > 0) & (self.mode != kernels.ENTROPIC)):
            spread(kernels.prox_tables, len(self.mode), self.work, *args)
        if kernels.ENTROPIC in self.mode:
            spread(kernels.prox_entropic, len(self.mode), self.work, *args)
        return z

    def _roots(self) -> Roots:
        """Buffers and weights as the kernels take them. z has room only where more than plain non-negativity is asked for."""
        return Roots(self.v, self._z, self.y, self.x, self.mode, self.mix)

    def _solve_copies(self) -> None:
        """z of the tables that carry a query: least squares pulled towards v."""
        problem = self.problem
        for i, copy in enumerate(problem.copies, problem.count):
            span = problem.span(i)
            flat = problem.leave(self.v[span], copy.clique)
            z = copy.prox(flat.reshape(-1), self.penalty[i])
            shape = problem.domain.shape_of(copy.clique)
            self.extra[span] = problem.enter(z.reshape(shape), copy.clique)


@dataclass(frozen=True)
class Certificate:
    """One look at the iterate: objective of the consistent point, of the feasible one, lower bound, residuals."""

    consistent: float
    objective: float
    bound: float
    primal: float
    dual: float
    shrink: float
    """How much of the uniform distribution must be mixed in to make the consistent point non-negative."""
    floor: float
    """An objective below this is as good as zero."""

    @property
    def gap(self) -> float:
        return max(0.0, self.objective - self.bound) / max(abs(self.objective), self.floor)


def certify(iteration: SplitIteration) -> Certificate:
    """Objective, feasible objective and lower bound at the current v; iteration.x is then the consistent point."""
    problem, x = iteration.problem, iteration.consistent()
    gap, move, fit, off, cross, square, least, term, _more = iteration.measure().T
    value = float(fit.sum()) + problem.constant
    bound = value + float(term.sum())
    # Mixing s of the uniform point into x: f(x) + s <grad, u - x> + s^2/2 |u - x|^2_w, u = 1/n on every table.
    cells = problem.ties.roots.cells
    shrink = float(least[: problem.count].max(initial=0.0))
    slope = float(problem.data @ (off / cells - cross))
    curve = float(problem.data @ (1.0 / cells - 2.0 / cells + square))
    for s, w, y in problem.below:
        part = iteration.projection.target[problem.ties.nodes.span(s)]
        value += 0.5 * w * float(np.square(part - y).sum())
        bound += 0.5 * w * float(np.square(part - y).sum())
        slope += w * float((part - y) @ (1.0 / len(y) - part))
        curve += w * float(np.square(1.0 / len(y) - part).sum())
    for i, copy in enumerate(problem.copies, problem.count):
        span = problem.span(i)
        at_x = problem.leave(x[span], copy.clique).reshape(-1)
        at_z = problem.leave(iteration.extra[span], copy.clique).reshape(-1)
        bound += copy.value(at_z)
        mixed = copy.line(at_x, 1.0 / len(at_x) - at_x)
        value += mixed[0]
        slope += mixed[1]
        curve += mixed[2]
    objective = value + shrink * slope + 0.5 * shrink**2 * curve
    if np.any(problem.slope):
        away = np.abs(problem.mixed(x, shrink) - problem.y)
        objective += float(problem.slope @ np.add.reduceat(away, problem.ties.roots.at))
    return Certificate(
        value,
        objective,
        bound,
        float(np.sqrt(iteration.penalty @ gap)),
        float(np.sqrt(iteration.penalty @ move)),
        shrink,
        0.5 * EXACT**2 * float(problem.own.sum()) * 1e6,
    )
