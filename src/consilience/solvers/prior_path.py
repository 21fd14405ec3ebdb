"""The path of fits that are pulled towards a prior, from strong pulls to weak ones, by splitting with an entropic term."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector
from consilience.kernels import splitting as kernels
from consilience.kernels.pair_priors import follow_pairs
from consilience.measurements import SquaredLoss
from consilience.solvers.polish import polish_tables
from consilience.solvers.solution import Iteration, Solution
from consilience.solvers.split_problem import RELAX, SplitProblem
from consilience.status import CONVERGED, out_of_iterations

SMALLEST = 1e-12
FOLLOW, FOLLOWED = 1.5, 4
MOST_FINAL = 400


class PriorPath:
    """Follows the regularised solution along decreasing strength, each point started at the one before."""

    def __init__(
        self, solver: SplitProblem, loss: SquaredLoss, tables: dict[Clique, Buffer]
    ) -> None:
        self.solver = solver
        self.loss = loss
        prior = np.ones(solver.cells)
        for i, clique in enumerate(solver.root_cliques):
            prior[solver._span(solver.ties.roots, i)] = solver._enter(
                np.maximum(tables[clique], SMALLEST), clique
            )
        self.prior = prior
        count = len(solver.root_cliques)
        solver.mode[:count] = kernels.ENTROPIC
        if solver.extra is solver.y:
            solver.extra = prior.copy()
        else:
            solver.extra[: len(prior)] = prior
        solver.v = prior.copy()
        self.strength = 0.0
        self.pairs = np.flatnonzero([len(c) == 2 for c in solver.root_cliques])
        own = solver.own[:count]
        self.unit = np.sqrt(own / solver.scale)
        """N / sigma_r of each table, in the solver's units."""
        self.weight = np.zeros(count)
        cells = solver.ties.roots.cells[:count]
        noise = cells / np.sqrt(own * solver.scale)
        self.close = float(np.clip(2e-3 * noise.mean(), 1e-7, 3e-4))

    def _set(self, strength: float) -> None:
        """Penalties and pulls for a strength, the multipliers scaled in proportion."""
        solver, old = self.solver, self.strength
        count = len(solver.root_cliques)
        z = self.z()
        before = solver.penalty.copy()
        pull = strength * self.unit
        solver.pace[:count] = solver.own[:count] + 0.5 * pull * solver.ties.roots.cells[:count]
        solver._weigh()
        ratio = before / solver.penalty
        ratio[:count] *= strength / old if old > 0 else 0.0
        solver.v = z + (solver.v - z) * np.repeat(ratio, solver.ties.roots.cells)
        solver.pull[:count] = pull / solver.penalty[:count]
        self.strength, self.weight = strength, pull

    def follow(self) -> None:
        """Let the prior of each pair be the product of the fit's own one-way marginals.

        KL(tau || q_a x q_b) over all q is least there, and is then the mutual information: so the pull acts on the dependence
        alone and leaves the one-way marginals to the data. Each update lowers the objective (majorise, minimise); a step
        beyond it (FOLLOW > 1) gets there sooner.
        """
        solver, z = self.solver, self.z()
        roots = solver.ties.roots
        follow_pairs(z, self.prior, self.pairs, roots.at, roots.rows, roots.inner, FOLLOW, SMALLEST)
        solver.extra[: len(self.prior)] = self.prior
        count = len(solver.root_cliques)
        pull = np.zeros(len(solver.ties.roots.at))
        pull[:count] = solver.pull[:count]
        slope = np.log(np.maximum(z, 1e-300) / self.prior)
        solver.v = np.where(np.repeat(pull, solver.ties.roots.cells) > 0, z, solver.v)
        solver.v += np.repeat(pull, solver.ties.roots.cells) * slope

    def z(self) -> Buffer:
        return self.solver.nonnegative() if self.strength > 0 else self.prior.copy()

    def go(self, strength: float, most: int = 8) -> None:
        """The fit at this strength: to the fixed point of prior and fit, then to a small part of the noise."""
        self._set(strength)
        self._settle(most)
        for _ in range(FOLLOWED if len(self.pairs) else 0):
            self.follow()
            for _ in range(8):
                self.solver.iterate()

    def _settle(self, most: int) -> None:
        """Iterate until tables and consistent point agree to a small part of the noise."""
        solver = self.solver
        tables = len(solver.root_cliques)
        for round_ in range(most):
            for _ in range(7):
                solver.iterate()
            before, z = solver.v.copy(), solver.nonnegative()
            solver.iterate()
            distance = float(np.abs(solver.v - before).sum()) / RELAX / tables
            if distance <= self.close:
                return
            moved = float(np.abs(solver.nonnegative() - z).sum()) / tables
            ratio = distance / max(moved, 1e-300)
            if round_ % 2 == 0 and (ratio > 5 or ratio < 0.2):
                solver.rescale(float(np.clip(np.sqrt(ratio), 0.5, 2.0)))

    def solution(
        self,
        strength: float,
        began: float,
        tolerance: float,
        callback: Callable[[Iteration], None] | None,
    ) -> Solution:
        """Finish to the tolerance on the regularised objective and certify it."""
        for stronger in (4.0, 2.0, 1.0):
            self.go(stronger * strength)
        solver = self.solver
        x = np.empty_like(solver.v)
        best, done = -np.inf, 0
        value = gap = np.inf
        while done < MOST_FINAL and gap > tolerance:
            for _ in range(20):
                solver.iterate()
            done += 20
            look = solver.check(x)
            best = max(best, look.bound)
            value = look.consistent + float(solver.stats[solver.mode == kernels.ENTROPIC, 8].sum())
            gap = (value - best) / max(abs(value), 1e-300)
            if callback is not None:
                callback(Iteration(done, value * solver.scale, gap, look.primal))
        # z is positive and nearly consistent; sweeps (KL projections) make it exactly so without touching zeros.
        tau, violation = polish_tables(solver.graph, solver.vector(self.z()))
        value = self._value(tau) * solver.scale
        bound = min(best * solver.scale, value)
        gap = (value - bound) / max(abs(value), 1e-300)
        status = (
            CONVERGED
            if gap <= 2 * tolerance
            else out_of_iterations(done, gap, tolerance, "the relative gap")
        )
        return Solution(
            tau, value, bound, violation, done, perf_counter() - began, status, "splitting with prior", None
        )  # fmt: skip

    def _value(self, tau: CliqueVector) -> float:
        """The regularised objective, in the solver's units."""
        fit = self.loss.bind(tau.layout).value_and_grad(tau.values)[0] / self.solver.scale
        pull = 0.0
        for i, clique in enumerate(self.solver.root_cliques):
            span = self.solver._span(self.solver.ties.roots, i)
            p, q = self.solver._enter(tau[clique], clique), self.prior[span]
            pull += self.weight[i] * float((p * np.log(np.maximum(p, 1e-300) / q) - p + q).sum())
        return fit + pull
