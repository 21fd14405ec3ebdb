"""From choices to a model: the exact likelihood of an exponential mechanism, by Prox-PGM from where its records stand.

Over the local polytope the likelihood is flat in most directions: a few choices say little about half a million cells. What
they leave open is decided by the start, the records' own marginals mixed with the product of their one-way marginals, and by how
far the steps go. A fixed number of steps is a regulariser here: solved to the end the fit follows single choices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.domain import Clique, CliqueVector, Domain
from consilience.errors import ConsilienceError, MeasurementError
from consilience.inference import Diagnostics, Model
from consilience.measurements.selections import SelectionLoss
from consilience.mechanisms.fem_game import SelectionRelease
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.local import LocalProblem
from consilience.solvers.planner import Plan, build_graph, make_plan, plan_for_graph
from consilience.solvers.prox import ProxState, prox_pgm

FIRST_RATE = 100.0
"""Step to start with, in units of what smoothness guarantees; blocks of steps that do not improve are undone and halved."""
PSEUDO = 0.5
"""Added to each value's count, so that no value is impossible."""


@dataclass(frozen=True, eq=False)
class GameFit:
    """How choices become a model. blend: share of the product of one-way marginals in the start."""

    consistency: str | RegionGraph = "local"
    iterations: int = 80
    blend: float = 0.5
    memory: str | int | float = "2 GB"

    def __post_init__(self) -> None:
        if not isinstance(self.consistency, RegionGraph) and self.consistency not in (
            "auto",
            "local",
            "factor",
        ):
            raise ConsilienceError(
                f"consistency must be 'auto', 'local', 'factor' or a RegionGraph, got {self.consistency!r}; "
                "the likelihood of choices is fitted over region graphs"
            )
        if self.iterations < 1:
            raise ConsilienceError(f"iterations must be at least 1, got {self.iterations}")
        if not 0 < self.blend <= 1:
            raise ConsilienceError(f"blend must be above 0 and at most 1, got {self.blend}")

    def plan(self, domain: Domain, cliques: tuple[Clique, ...]) -> Plan:
        if isinstance(self.consistency, RegionGraph):
            return plan_for_graph(
                self.consistency, len(cliques), "prox", self.memory, squared=False
            )
        return make_plan(
            domain,
            cliques,
            consistency=self._kind,
            solver="prox",
            memory=self.memory,
            squared=False,
        )

    @property
    def _kind(self) -> str:
        return "local" if self.consistency == "auto" else str(self.consistency)

    def __call__(
        self,
        release: SelectionRelease,
        plan: Plan | None = None,
        progress: Progress | None = None,
    ) -> Model:
        """The model of a release; free of privacy cost, can be repeated with other settings."""
        if not len(release.selections) or release.total is None:
            raise MeasurementError("a release must hold at least one choice, got none")
        loss = SelectionLoss(release.selections)
        graph = (
            self.consistency
            if isinstance(self.consistency, RegionGraph)
            else build_graph(release.domain, release.selections.cliques, self._kind)
        )
        problem = LocalProblem(loss, graph, "parallel")
        beliefs = problem.restart(problem.wiring.enter(_start(release, graph, self.blend)))
        rate = FIRST_RATE * problem.first_rate()
        solution = prox_pgm(
            loss,
            graph,
            iterations=self.iterations,
            schedule="parallel",
            state=ProxState(beliefs, rate),
            progress=progress,
        )
        status = solution.status
        diagnostics = Diagnostics(
            plan, solution.method, status.name, status.advice, status.converged, solution.objective, solution.bound,
            solution.violation, solution.iterations, solution.seconds,
        )  # fmt: skip
        return Model(release.domain, float(release.total), graph, solution.tau, (), diagnostics)


def _start(release: SelectionRelease, graph: RegionGraph, blend: float) -> CliqueVector:
    """(1 - blend) * the records' marginals + blend * the product of their one-way marginals: consistent and positive."""
    rows = release.rows
    domain, count = release.domain, rows.records
    ones = rows.marginals([(a,) for a in domain.attributes])
    single = {a: (ones[(a,)] + PSEUDO) / (count + PSEUDO * domain[a]) for a in domain.attributes}
    start = rows.marginals(graph.regions) * ((1 - blend) / count)
    for region in graph.regions:
        product = np.array(blend)
        for a in region:
            product = np.multiply.outer(product, single[a])
        start[region][...] += product
    return start
