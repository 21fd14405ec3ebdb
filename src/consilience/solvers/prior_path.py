"""PriorPath: fits pulled towards a prior, followed from strong pulls to weak ones, by splitting with an entropic term.

minimise  L(tau) + sum_r pull_r KL(tau_r || pi_r)   over L(G)
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, CliqueVector
from consilience.kernels.cells import ENTROPIC, follow_pairs
from consilience.kernels.threads import spread
from consilience.loop import Check, Goal, iterate
from consilience.progress import Progress
from consilience.solvers.feasible import polish_tables
from consilience.solvers.solution import Solution
from consilience.solvers.split_iteration import RELAX, SplitIteration, certify
from consilience.solvers.split_problem import SplitProblem
from consilience.status import CONVERGED, out_of_iterations

SMALLEST = 1e-12
FOLLOW, FOLLOWED = 1.5, 4
MOST_FINAL, EVERY = 400, 20
"""Iterations at the end, and between two checks of them."""


class PriorPath:
    """Follows the regularised solution along decreasing strength, each point started at the one before."""

    def __init__(
        self, problem: SplitProblem, prior: Buffer, unit: Buffer, pairs: NDArray[np.int64]
    ) -> None:
        """prior: tables of the roots, in the engine's order of cells. unit: the pull of each at strength 1, in the problem's
        units. pairs: the tables whose prior follows the fit.
        """
        self.problem = problem
        self.iteration = SplitIteration(problem)
        self.prior, self.unit, self.pairs = prior, unit, pairs
        count = problem.count
        self.iteration.mode[:count] = ENTROPIC
        self.iteration.extra = prior.copy()
        self.iteration.v[...] = prior
        self.strength = 0.0
        self.weight = np.zeros(count)
        cells = problem.ties.roots.cells[:count]
        noise = cells / np.sqrt(problem.own[:count] * problem.scale)
        self.close = float(np.clip(2e-3 * noise.mean(), 1e-7, 3e-4))

    @classmethod
    def of_lower_order(cls, problem: SplitProblem, tables: dict[Clique, Buffer]) -> PriorPath:
        """Towards tables that the lower-order marginals tell; for pairs these follow the fit. The unit is N / sigma_r."""
        prior = np.ones(problem.cells)
        for i, clique in enumerate(problem.root_cliques):
            least = np.maximum(tables[clique], SMALLEST)
            prior[problem.span(i)] = problem.enter(least, clique)
        pairs = np.flatnonzero([len(c) == 2 for c in problem.root_cliques])
        return cls(problem, prior, _units(problem), pairs)

    @classmethod
    def towards(cls, problem: SplitProblem, tables: CliqueVector, freedom: Buffer) -> PriorPath:
        """Towards fixed tables of the roots, which keep their empty cells. The unit is N / (sigma_r g_r), with g_r the freedom
        of a table to leave its prior.
        """
        cells = problem.ties.roots.cells
        prior = np.repeat(1.0 / cells, cells)
        end = problem.span(problem.count - 1).stop
        where = tables.cliques.find(problem.root_cliques)
        prior[:end] = problem.entered(tables, where)[:end]
        return cls(problem, prior, _units(problem) / freedom, np.zeros(0, np.int64))

    def _set(self, strength: float) -> None:
        """Penalties and pulls for a strength, the multipliers scaled in proportion."""
        problem, it, old = self.problem, self.iteration, self.strength
        count, cells = problem.count, problem.ties.roots.cells
        z = self.z()
        before = it.penalty.copy()
        pull = strength * self.unit
        it.stiffness[:count] = problem.own[:count] + 0.5 * pull * cells[:count]
        it.weigh()
        ratio = before / it.penalty
        ratio[:count] *= strength / old if old > 0 else 0.0
        it.v[...] = z + (it.v - z) * np.repeat(ratio, cells)
        it.pull[:count] = pull / it.penalty[:count]
        self.strength, self.weight = strength, pull

    def follow(self) -> None:
        """Let the prior of each pair be the product of the fit's own one-way marginals.

        KL(tau || q_a x q_b) over all q is least there, and is then the mutual information: so the pull acts on the dependence
        alone and leaves the one-way marginals to the data. Each update lowers the objective (majorise, minimise); a step
        beyond it (FOLLOW > 1) gets there sooner.
        """
        it, z, roots, count = self.iteration, self.z(), self.problem.ties.roots, self.problem.count
        also = (self.pairs, roots.shapes, FOLLOW, SMALLEST)
        spread(follow_pairs, len(self.pairs), len(z), z, self.prior, *also)
        it.extra[...] = self.prior
        pull = np.zeros(len(roots.at))
        pull[:count] = it.pull[:count]
        pulled = np.repeat(pull, roots.cells)
        slope = np.log(np.maximum(z, 1e-300) / self.prior)
        it.v[...] = np.where(pulled > 0, z, it.v) + pulled * slope

    def z(self) -> Buffer:
        return self.iteration.prox() if self.strength > 0 else self.prior.copy()

    def go(self, strength: float, most: int = 8) -> None:
        """The fit at this strength: to the fixed point of prior and fit, then to a small part of the noise."""
        self._set(strength)
        self._settle(most)
        for _ in range(FOLLOWED if len(self.pairs) else 0):
            self.follow()
            for _ in range(8):
                self.iteration.step()

    def _settle(self, most: int) -> None:
        """Iterate until tables and consistent point agree to a small part of the noise."""
        it, tables = self.iteration, self.problem.count
        for round_ in range(most):
            for _ in range(7):
                it.step()
            before, z = it.v.copy(), it.prox()
            it.step()
            distance = float(np.abs(it.v - before).sum()) / RELAX / tables
            if distance <= self.close:
                return
            moved = float(np.abs(it.prox() - z).sum()) / tables
            ratio = distance / max(moved, 1e-300)
            if round_ % 2 == 0 and (ratio > 5 or ratio < 0.2):
                it.rescale(float(np.clip(np.sqrt(ratio), 0.5, 2.0)))

    def solution(
        self, strength: float, began: float, tolerance: float, progress: Progress | None
    ) -> Solution:
        """Finish to the tolerance on the regularised objective and certify it."""
        for stronger in (4.0, 2.0, 1.0):
            self.go(stronger * strength)
        problem = self.problem
        run = iterate(
            _Finishing(self.iteration),
            limit=MOST_FINAL,
            tolerance=tolerance,
            when=lambda done: done + EVERY,
            progress=progress,
        )
        # z is positive and nearly consistent; sweeps (KL projections) make it exactly so without touching zeros.
        tau, violation = polish_tables(problem.graph, problem.vector(self.z()))
        value = self._value(tau) * problem.scale
        bound = min(run.state.bound * problem.scale, value)
        gap = (value - bound) / max(abs(value), 1e-300)
        status = CONVERGED
        if gap > 2 * tolerance:
            status = out_of_iterations(run.iterations, gap, tolerance, Goal.GAP)
        seconds = perf_counter() - began
        return Solution(
            tau, value, bound, violation, run.iterations, seconds, status, "splitting with prior",
            work=self.iteration.visited,
        )  # fmt: skip

    def _value(self, tau: CliqueVector) -> float:
        """The regularised objective, in the problem's units."""
        problem = self.problem
        fit = problem.loss.bind(tau.layout).value_and_grad(tau.values)[0] / problem.scale
        pull = 0.0
        for i, clique in enumerate(problem.root_cliques):
            p, q = problem.enter(tau[clique], clique), self.prior[problem.span(i)]
            ratio = np.maximum(p, 1e-300) / np.maximum(q, 1e-300)
            pull += self.weight[i] * float((p * np.log(ratio) - p + q).sum())
        return fit + pull


def _units(problem: SplitProblem) -> Buffer:
    """N / sigma_r of each root, in the problem's units."""
    return np.sqrt(problem.own[: problem.count] / problem.scale)


@dataclass
class _Bounded:
    """An iteration with a prior, and the best lower bound on its objective."""

    iteration: SplitIteration
    bound: float = -np.inf


class _Finishing:
    """Splitting with an entropic term as a method of the loop."""

    def __init__(self, iteration: SplitIteration) -> None:
        self.iteration = iteration

    def start(self) -> _Bounded:
        return _Bounded(self.iteration)

    def step(self, state: _Bounded, most: int) -> int:
        state.iteration.step()
        return 1

    def check(self, state: _Bounded, done: int) -> Check:
        it = state.iteration
        found = certify(it)
        state.bound = max(state.bound, found.bound)
        value = found.consistent + float(it.projection.stats[it.mode == ENTROPIC, 8].sum())
        gap = (value - state.bound) / max(abs(value), 1e-300)
        return Check(value * it.problem.scale, gap, found.primal)
