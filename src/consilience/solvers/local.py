"""The local oracle as a solver sees it: mirror steps over the local polytope of a region graph."""

from __future__ import annotations

import numpy as np

from consilience.domain import Buffer, CliqueVector, dot
from consilience.errors import LossError, RegionGraphError
from consilience.kernels.sweep import SQUARED, rise
from consilience.kernels.tables import FLOOR
from consilience.kernels.threads import spread
from consilience.measurements import BoundLoss, Loss, SquaredLoss
from consilience.regions.region_graph import RegionGraph
from consilience.regions.wiring import Wiring
from consilience.solvers.convex_gbp import Beliefs, Rate, Steps, Sweeper

INNER_FLOOR, INNER_SHARE, INNER_SWEEPS = 1e-10, 1e-6, 300
LARGEST_EXPONENT, MOST_PIECES = 200.0, 1000


class LocalProblem:
    """A loss over L(G): value and gradient on engine buffers, steps by Convex-GBP.

    A squared loss whose measured cliques are regions takes the fused kernel: the gradient is formed inside the step.
    """

    def __init__(self, loss: Loss, graph: RegionGraph, schedule: str) -> None:
        missing = graph.first_unsupported(loss.cliques)
        if missing is not None:
            raise RegionGraphError(
                f"the graph must support every clique of the loss, got {missing}; add it to the graph's cliques"
            )
        self.graph = graph
        self.wiring = Wiring.of(graph)
        self.sweeper = Sweeper(self.wiring, schedule)
        self.bound: BoundLoss = loss.bind(graph.layout)
        self.kappa = self.wiring.kappa
        self.positive = np.where(self.kappa > 0, self.kappa, np.inf)
        self.fused = self._fuse(loss)
        self.last_rate = 0.0
        self.reach = 1.0 + float(np.abs(self.fused[1]).max(initial=0.0)) if self.fused else 1.0
        self.heaviest = float(self.fused[0].max()) if self.fused else 0.0

    @property
    def smoothness(self) -> float | None:
        return self.bound.smoothness

    def uniform(self) -> Beliefs:
        return Beliefs.uniform(self.wiring)

    def value_and_grad(self, values: Buffer) -> tuple[float, Buffer]:
        """L and its gradient at an engine buffer."""
        inside = self.wiring.leave(values).values if not self.wiring.same_order else values
        value, gradient = self.bound.value_and_grad(inside)
        if not np.isfinite(value) or not np.all(np.isfinite(gradient)):
            raise LossError(
                "the loss must give a finite value and gradient on distributions, got NaN or infinity"
            )
        if self.kappa.min() == 0.0:
            gradient = self._move_up(gradient)
        if self.wiring.same_order:
            return value, gradient
        return value, self.wiring.enter(CliqueVector(self.graph.layout, gradient))

    def step(self, state: Beliefs, gradient: Buffer, rate: float, foresee: bool = False) -> None:
        """One mirror step and a sweep. A step whose exponent would overflow is taken in pieces, so that none of it is lost."""
        pieces = self._pieces(rate * float(np.abs(gradient).max(initial=0.0)))
        if pieces > MOST_PIECES:
            raise LossError(
                f"a step must move log-beliefs by less than {MOST_PIECES * LARGEST_EXPONENT:.0f}, the loss's gradient asks for "
                f"{rate * float(np.abs(gradient).max()):.3g}; take a smaller step, or check that the loss is bounded below"
            )
        for _ in range(pieces):
            self.sweeper.step_gradient(
                state, gradient, rate / pieces / self.positive, foresee and pieces == 1
            )

    def steps_fused(
        self, state: Beliefs, rate: float, count: int, foresee: bool = False, most: int = 1, allowed: float = 0.0
    ) -> tuple[Steps, Buffer]:  # fmt: skip
        """At most `count` steps of the separable squared loss (`Sweeper.steps`), and L at the point before each."""
        assert self.fused is not None
        weights, targets, constant = self.fused
        along = Rate(targets, rate * weights / self.positive, weights)
        found = self.sweeper.steps(SQUARED, state, along, count, foresee, most, allowed)
        return found, 0.5 * found.squares + constant

    def takes_fused(self, rate: float) -> bool:
        """Whether the loss is separable and squared, and a step so short that it needs no pieces."""
        return self.fused is not None and self._pieces(rate * self.heaviest * self.reach) == 1

    def _pieces(self, exponent: float) -> int:
        most = LARGEST_EXPONENT * float(self.kappa[self.kappa > 0].min())
        return max(1, int(np.ceil(exponent / most))) if np.isfinite(exponent) else 1

    def too_far(self, gradient: Buffer, rate: float) -> bool:
        """Whether a step would be so long that no number of pieces makes it sensible."""
        return self._pieces(rate * float(np.abs(gradient).max(initial=0.0))) > MOST_PIECES

    # -- as a MirrorProblem (solvers/mirror.py) ----------------------------------------------------

    def first_rate(self) -> float:
        smooth = self.smoothness
        kappa = float(self.kappa[self.kappa > 0].min())
        if smooth:
            return kappa / smooth
        # No constant known: start so small that no log-belief moves by more than a hundredth.
        _, gradient = self.value_and_grad(self.uniform().tau)
        return 0.01 * kappa / max(float(np.abs(gradient).max()), 1e-300)

    def move(self, state: Beliefs, gradient: Buffer, rate: float) -> None:
        """A step and as many sweeps as make its inconsistency negligible."""
        self.sweeper.track = True
        if self.last_rate > 0:
            state.drift *= rate / self.last_rate
        self.step(state, gradient, rate, foresee=self.last_rate > 0)
        self.last_rate = rate
        goal = max(INNER_FLOOR, INNER_SHARE * state.violation)
        if state.violation > goal:
            self.sweeper.sweeps(state, INNER_SWEEPS, goal)

    def values(self, state: Beliefs) -> Buffer:
        state.settle()
        return state.tau

    def restart(self, values: Buffer) -> Beliefs:
        """Any positive point of L(G) is what the oracle gives for theta = kappa log tau."""
        state = self.uniform()
        np.maximum(values, FLOOR, out=state.tau)
        self.last_rate = 0.0
        return state

    def divergence(self, before: Beliefs, after: Beliefs, gradient: Buffer, rate: float) -> float:
        """sum_r kappa_r KL(after_r || before_r)."""
        kappa = np.repeat(self.kappa, self.wiring.tables.cells)
        ratio = np.log(np.maximum(after.tau, FLOOR) / np.maximum(before.tau, FLOOR))
        return float(np.einsum("i,i,i", kappa, after.tau, ratio))

    def lowest(self, start: Beliefs, now: Beliefs, pull: Buffer) -> float:
        return self.fall(start, now)

    def fall(self, before: Beliefs, after: Beliefs) -> float:
        """sum_r min_x (B_before - B_after): a bound on <sum of rate * gradient, s> over every s in L(G), from below."""
        t = self.wiring.tables
        out = np.empty(len(t.at))
        spread(rise, len(out), t.length, before.tau, after.tau, out, t.shapes)
        return -dot(self.kappa, out + after.shift - before.shift)

    def _fuse(self, loss: Loss) -> tuple[Buffer, Buffer, float] | None:
        if not isinstance(loss, SquaredLoss):
            return None
        part = loss.separable()
        index = self.graph.layout.index
        if part.rest or any(c not in index for c in part.targets.cliques):
            return None
        places = np.array([index[c] for c in part.targets.cliques], np.int64)
        if np.any(self.kappa[places] == 0):
            return None
        weights = np.zeros(len(self.graph.regions))
        weights[places] = part.weights
        wanted = CliqueVector(self.graph.layout)
        for clique, table in part.targets.items():
            wanted[clique][...] = table
        return weights, self.wiring.enter(wanted), part.constant

    def _move_up(self, gradient: Buffer) -> Buffer:
        """Gradients on regions with counting number zero belong to a parent: <g, tau_t> = <spread g, tau_p>."""
        vector = CliqueVector(self.graph.layout, gradient.copy())
        regions = self.graph.regions
        parent_of = {int(c): int(p) for p, c in self.graph.edge_array[::-1]}
        for t in np.flatnonzero(self.kappa == 0):
            table = vector[regions[t]]
            if np.any(table):
                home = regions[parent_of[int(t)]]
                shape = [self.graph.domain[a] if a in regions[t] else 1 for a in home]
                vector[home][...] += table.reshape(shape)
                table[...] = 0.0
        return vector.values
