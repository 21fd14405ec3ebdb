"""SelectionLikelihood: from choices to a model, by the exact likelihood of an exponential mechanism.

Over the local polytope the likelihood is flat in most directions: a few choices say little about half a million cells. What
they leave open is decided by the start, the records' own marginals mixed with the product of their one-way marginals, and by how
far the steps go. A fixed number of steps is a regulariser here: solved to the end the fit follows single choices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from consilience.domain import Buffer, Clique, Cliques, CliqueVector, Domain
from consilience.errors import ConsilienceError, MeasurementError
from consilience.measurements import Measurement, Measurements
from consilience.measurements.measurement import Noise
from consilience.measurements.selections import SelectionLoss, Selections
from consilience.model.diagnostics import Diagnostics
from consilience.model.fit import Fit
from consilience.model.model import Model
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.local import LocalProblem
from consilience.solvers.planner import Plan, make_plan, plan_for_graph
from consilience.solvers.prox import ProxState, prox_pgm
from consilience.solvers.work import USUAL_LOAD, Load

FIRST_RATE = 100.0
"""Step to start with, in units of what smoothness guarantees; blocks of steps that do not improve are undone and halved."""
PSEUDO = 0.5
"""Added to each value's count, so that no value is impossible."""
ONLY_CHOICES = "SelectionLikelihood fits the choices of FEM and DualQuery (Selections)"
OTHERS = "use another fit, such as LeastSquares"
CONSISTENCIES = ("auto", "local", "factor")


@dataclass(frozen=True, eq=False, repr=False)
class SelectionLikelihood(Fit):
    """How choices of cells (FEM, DualQuery) become a model. blend: share of the product of one-way marginals in the start."""

    noises: ClassVar[tuple[Noise, ...]] = ()

    consistency: str | RegionGraph = "local"
    iterations: int = 80
    blend: float = 0.5
    memory: str | int | float = "2 GB"

    def __post_init__(self) -> None:
        if not isinstance(self.consistency, RegionGraph) and self.consistency not in CONSISTENCIES:
            raise ConsilienceError(
                f"consistency must be 'auto', 'local', 'factor' or a RegionGraph, got {self.consistency!r}; "
                "the likelihood of choices is fitted over region graphs"
            )
        if self.iterations < 1:
            raise ConsilienceError(f"iterations must be at least 1, got {self.iterations}")
        if not 0 < self.blend <= 1:
            raise ConsilienceError(f"blend must be above 0 and at most 1, got {self.blend}")

    def check(self, noise: Noise, *, query: bool = False) -> None:
        """Refuse every noisy measurement, for a mechanism before it spends."""
        raise MeasurementError(f"{ONLY_CHOICES}, got tables with {noise} noise; {OTHERS}")

    def plan(self, domain: Domain, cliques: Iterable[Clique], load: Load = USUAL_LOAD) -> Plan:
        listed = Cliques.of(domain, cliques)
        if isinstance(self.consistency, RegionGraph):
            return plan_for_graph(self.consistency, listed, "prox", self.memory)
        kind = "local" if self.consistency == "auto" else self.consistency
        return make_plan(domain, listed, consistency=kind, solver="prox", memory=self.memory)

    def __call__(
        self,
        domain: Domain,
        measurements: Iterable[Measurement] | Measurements | Selections,
        total: float | None = None,
        *,
        warm: Model | None = None,
        progress: Progress | None = None,
    ) -> Model:
        """The model of the choices in `measurements`, started from the records that answered them."""
        if not isinstance(measurements, Selections):
            raise MeasurementError(f"{ONLY_CHOICES}, got {type(measurements).__name__}; {OTHERS}")
        records = measurements.records
        if not len(measurements) or records is None or total is None:
            raise MeasurementError(
                "a fit of choices needs at least one choice, the records that answered them and the total, got less"
            )
        loss = SelectionLoss(measurements)
        plan = self.plan(domain, measurements.cliques)
        graph = plan.graph
        problem = LocalProblem(loss, graph, "parallel")
        start = _start(domain, records, graph, self.blend)
        beliefs = problem.restart(problem.wiring.enter(start))
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
            solution.violation, solution.iterations, solution.seconds, work=solution.work,
        )  # fmt: skip
        return Model(
            domain,
            float(total),
            graph,
            solution.tau,
            Measurements.of(domain, (), empty=True),
            diagnostics,
            self,
        )


def _start(domain: Domain, records: np.ndarray, graph: RegionGraph, blend: float) -> CliqueVector:
    """(1 - blend) * the records' marginals + blend * the product of their one-way marginals: consistent and positive."""
    count = len(records)

    def counts(clique: Clique) -> Buffer:
        shape = domain.shape_of(clique)
        cells = np.ravel_multi_index([records[:, domain.position(a)] for a in clique], shape)
        return np.bincount(cells, minlength=domain.size(clique)).reshape(shape).astype(np.float64)

    single = {a: (counts((a,)) + PSEUDO) / (count + PSEUDO * domain[a]) for a in domain.attributes}
    tables = {}
    for region in graph.regions:
        product = np.array(blend)
        for a in region:
            product = np.multiply.outer(product, single[a])
        tables[region] = counts(region) * ((1 - blend) / count) + product
    return CliqueVector.from_tables(domain, tables)
