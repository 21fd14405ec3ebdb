"""Private-PGM: any convex loss over the marginal polytope (Problem 1), by Prox-PGM with the exact oracle."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from consilience.domain import Buffer, CliqueVector
from consilience.errors import LossError
from consilience.measurements import Loss
from consilience.progress import Progress
from consilience.regions.junction_tree import JunctionTree
from consilience.solvers.mirror import mirror_descent
from consilience.solvers.solution import Solution
from consilience.solvers.work import visits
from consilience.tree.oracle import ExactOracle, ExactState, largest_total

DEFAULT_ITERATIONS = 20_000


class GlobalProblem:
    """A loss over the marginals that some distribution has; steps by junction tree."""

    def __init__(self, loss: Loss, memory: int | None) -> None:
        self.tree = JunctionTree.of(loss.domain, loss.cliques)
        self.oracle = ExactOracle(self.tree, loss.cliques, memory=memory)
        self.bound = loss.bind(self.oracle.layout)

    def uniform(self) -> ExactState:
        return self.oracle.uniform()

    def first_rate(self) -> float:
        smooth = self.bound.smoothness
        if smooth:
            # One joint distribution moves every marginal at once: the constants of the cliques add up.
            return 1.0 / (smooth * len(self.oracle.layout.cliques))
        _, gradient = self.value_and_grad(self.values(self.uniform()))
        return 0.01 / max(float(np.abs(gradient).max()), 1e-300)

    def value_and_grad(self, values: Buffer) -> tuple[float, Buffer]:
        value, gradient = self.bound.value_and_grad(values)
        if not np.isfinite(value) or not np.all(np.isfinite(gradient)):
            raise LossError(
                "the loss must give a finite value and gradient on distributions, got NaN or infinity"
            )
        return value, gradient

    def move(self, state: ExactState, gradient: Buffer, rate: float) -> None:
        self.oracle.step(state, gradient, rate)

    def values(self, state: ExactState) -> Buffer:
        return self.oracle.marginals(state)

    def restart(self, values: Buffer) -> None:
        """Averages of marginals belong to no graphical model at hand."""

    def divergence(
        self, before: ExactState, after: ExactState, gradient: Buffer, rate: float
    ) -> float:
        """KL between the two joint distributions: <change of theta, new marginals> - change of log Z."""
        change = -rate * float(np.einsum("i,i", gradient, self.values(after)))
        return change - (after.log_partition - before.log_partition)

    def lowest(self, start: ExactState, now: ExactState, pull: Buffer) -> float:
        """min over x of <pull, marginals of x>, exactly, by dynamic programming on the tree."""
        return -largest_total(self.tree, CliqueVector(self.oracle.layout, -pull))


def private_pgm(
    loss: Loss,
    *,
    iterations: int | None = None,
    tolerance: float = 1e-6,
    step: float | None = None,
    accelerated: bool = True,
    memory: int | None = None,
    state: ExactState | None = None,
    progress: Progress | None = None,
) -> Solution:
    """Algorithm 1 with the exact oracle. tau has one table per measured clique; `state` holds the graphical model.

    Plain (accelerated=False) the tables are exactly the marginals of the state's distribution; accelerated they are averages
    of such marginals, which are marginals of some distribution too.
    """
    began = perf_counter()
    problem = GlobalProblem(loss, memory)
    result = mirror_descent(
        problem,
        accelerated=accelerated,
        limit=DEFAULT_ITERATIONS if iterations is None else iterations,
        tolerance=tolerance if iterations is None else None,
        step=step,
        state=state,
        progress=progress,
    )
    tau = CliqueVector(problem.oracle.layout, result.values)
    return Solution(
        tau, result.objective, min(result.bound, result.objective), 0.0, result.iterations, perf_counter() - began,
        result.status, "Prox-PGM with the exact oracle", result.state,
        work=result.iterations * visits(problem.oracle.layout.cells, len(problem.oracle.layout.cliques)),
    )  # fmt: skip
