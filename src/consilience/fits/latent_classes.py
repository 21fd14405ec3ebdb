"""LatentClasses: tables pulled towards one mixture of products that was fitted to all of them. Biased, usually much closer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, CliqueVector, Domain, Layout, maximal
from consilience.errors import ConsilienceError
from consilience.fits.graph_fit import (
    GraphFit,
    Planned,
    check_tolerance,
    even_model,
    masks_by_clique,
    model_of,
)
from consilience.measurements import Control, Measurement, Measurements, SquaredLoss
from consilience.measurements.evidence import Evidence
from consilience.measurements.measurement import Noise
from consilience.measurements.structured import centred
from consilience.model.diagnostics import Trace
from consilience.model.impossible import Masks, emptied, held
from consilience.model.model import Model
from consilience.model.out_of_model import Start, project, uniform_start
from consilience.progress import Progress, quiet
from consilience.regions.pseudo_marginals import PseudoMarginals
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.beside import beside
from consilience.solvers.feasible import inner_point, masks_of, respect
from consilience.solvers.latent import LatentPrior, fit_prior, freedoms, one_ways, refit_work
from consilience.solvers.mixture import Mixture
from consilience.solvers.prior_path import PriorPath
from consilience.solvers.solution import Solution
from consilience.solvers.split_problem import SplitProblem

LEAST_TOLERANCE = 1e-3
"""A pulled fit is never solved more finely than this: how far it is pulled is an estimate itself."""
SMALLEST = 1e-12


@dataclass(frozen=True, eq=False)
class Outlook:
    """The number of records, the tables that a mixture expects, as distributions, and how far data may move each of them."""

    total: float
    tables: Mapping[Clique, Buffer]
    freedom: Mapping[Clique, float]


@dataclass(frozen=True, eq=False, repr=False)
class LatentClasses(GraphFit):
    """Least squares with a pull towards a mixture of latent classes, as strong as the noise warrants (docs/latent-classes.md).

    The mixture is kept in the model: a distribution over the whole domain from which answers that nobody measured, and rows,
    begin. controls: marginals that are public, `Exact(...)` and `Bounds(...)`; the pulled tables are scaled to them.
    classes: how many, of each of the mixtures that are averaged; None leaves it to the size of the domain. seed: of their
    starts and of the noise that measurements are thinned with.
    """

    noises: ClassVar[tuple[Noise, ...]] = ("gaussian",)
    why: ClassVar[str] = "its strength is chosen by splitting Gaussian noise in two"

    consistency: str | RegionGraph = "auto"
    memory: str | int | float = "2 GB"
    tolerance: float = LEAST_TOLERANCE
    possible: Masks = field(default_factory=dict)
    controls: Sequence[Control] = ()
    classes: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)
        object.__setattr__(self, "possible", masks_by_clique(self.possible))
        object.__setattr__(self, "controls", tuple(self.controls))
        if self.consistency not in ("auto", "local"):
            raise ConsilienceError(
                f"LatentClasses has local consistency, got consistency={self.consistency!r}; leave it out"
            )
        if self.classes is not None and self.classes < 1:
            raise ConsilienceError(f"classes must be at least 1, got {self.classes}")

    def coarser(self, tolerance: float) -> LatentClasses:
        return replace(self, tolerance=max(2 * LEAST_TOLERANCE, tolerance))

    def solve(
        self, loss: SquaredLoss, graph: RegionGraph, warm: Model | None, progress: Progress
    ) -> Solution:
        return self._solved(loss, graph, progress)[0]

    def fitted(
        self, loss: SquaredLoss, total_known: bool, warm: Model | None, progress: Progress
    ) -> Model:
        if not len(loss.cliques):
            return even_model(self, loss, total_known)
        trace = Trace(progress)
        plan, graph = self._graph(loss, warm)
        trace(Planned("planning", 1, 1, plan=plan))
        again = warm if self.tolerance > LEAST_TOLERANCE else None  # a refit for errors
        pull = None if again is None else again.diagnostics.prior_strength
        solution, mixture = self._solved(self._informed(loss), graph, trace, pull)
        solution = self._kept(loss, graph, solution)
        model = model_of(self, loss, graph, solution, plan, total_known, trace)
        return replace(model, mixture=mixture)

    def look(
        self,
        domain: Domain,
        measurements: Iterable[Measurement] | Measurements,
        total: float | None = None,
        progress: Progress | None = None,
    ) -> Outlook:
        """What these measurements say about each table of two attributes or more, before tables are made to agree."""
        evidence = beside(Evidence.of(SquaredLoss(domain, measurements, total)))
        prior = fit_prior(evidence, self.classes, self.seed, progress)
        levels = _Levels(self, evidence, prior, progress or quiet)
        levels.solution(RegionGraph.saturated(domain, evidence.cliques.maximal()), None)
        return Outlook(evidence.total, levels.prior, levels.freedom)

    def _solved(
        self, loss: SquaredLoss, graph: RegionGraph, progress: Progress, pull: float | None = None
    ) -> tuple[Solution, Mixture]:
        began = perf_counter()
        # A mask may ask for a table that nobody measured.
        evidence = beside(Evidence.of(loss, graph.root_cliques))
        prior = fit_prior(evidence, self.classes, self.seed, progress, pull)
        solution = _Levels(self, evidence, prior, progress).solution(graph, began)
        assert solution is not None
        work = solution.work + refit_work(loss.domain, self.classes)
        pulled = replace(solution, prior_strength=prior.pull, towards="latent classes", work=work)
        return pulled, prior.larger


class _Levels:
    """Tables of one attribute, then of two, and so on: each order is pulled towards the mixture, made to agree with the fit of
    the order below.
    """

    def __init__(
        self, fit: LatentClasses, evidence: Evidence, latent: LatentPrior, progress: Progress
    ) -> None:
        self.fit, self.evidence, self.latent, self.progress = fit, evidence, latent, progress
        self.prior: dict[Clique, Buffer] = {}
        self.freedom: dict[Clique, float] = {}

    def solution(self, graph: RegionGraph, began: float | None) -> Solution | None:
        """The fit of the highest order, from those of all lower ones; None, with all priors known, where `began` is None."""
        domain, roots = self.evidence.domain, graph.root_cliques
        highest = int(roots.sets.ranks.max())
        tau, free = one_ways(self.evidence, self.latent.pairs)
        self.prior = {c: tau[c] for c in tau}
        self.freedom = dict(zip(tau.cliques, free.tolist(), strict=True))
        below = RegionGraph.saturated(domain, tau.cliques)
        for order in range(2, highest + 1):
            if order > 2:
                below = self._graph(order - 1)
                tau = self._tables(below, order - 1)
            here = graph if order == highest else self._graph(order)
            known = PseudoMarginals.of(below, tau, tau.cliques)
            self._take(known, [r for r in here.root_cliques if len(r) == order])
        if began is None:
            return None
        _, path = self._path(graph, self.evidence)
        tolerance = max(self.fit.tolerance, LEAST_TOLERANCE)
        solution = path.solution(1.0, began, tolerance, self.progress)
        return self._respected(graph, solution)

    def _graph(self, order: int) -> RegionGraph:
        kept = [t for t in self.evidence.lattice.subsets if 0 < len(t) <= order]
        return RegionGraph.saturated(self.evidence.domain, maximal(self.evidence.domain, kept))

    def _take(self, known: PseudoMarginals, cliques: list[Clique]) -> None:
        """The mixture's tables of these cliques, made to agree with the order below, and how far the fit may leave them.

        Of three attributes or more, a table whose own noisy values favour the maximum-entropy one is pulled towards that: where
        lower orders are well known, what classes add to them is often wrong.
        """
        if not cliques:
            return
        larger = len(cliques[0]) > 2
        start = (self.latent.larger if larger else self.latent.pairs).marginals(cliques)
        at = self.evidence.tables.layout.cliques.find(start.cliques)
        prior, free, risk = self._towards(known, start.layout, at, lambda c: start[c])
        if larger:
            plain, plain_free, plain_risk = self._towards(
                known, start.layout, at, uniform_start(known)
            )
            better = plain_risk < risk
            free = np.where(better, plain_free, free)
            cells = np.repeat(better, np.diff(start.layout.offsets))
            prior = CliqueVector(start.layout, np.where(cells, plain.values, prior.values))
        free[self.evidence.precision[1 + at] <= 0] = 1.0  # no data of its own: any pull serves
        self.prior |= {c: prior[c] for c in cliques}
        self.freedom |= dict(zip(prior.cliques, free.tolist(), strict=True))

    def _towards(
        self, known: PseudoMarginals, layout: Layout, at: NDArray[np.int64], start: Start
    ) -> tuple[CliqueVector, Buffer, Buffer]:
        """Tables made to agree with the order below; how far the fit may leave each, and the risk then; `at`: their evidence."""
        evidence, domain, masks = self.evidence, self.evidence.domain, self.fit.possible
        found, _ = project(
            known,
            list(layout.cliques),
            lambda c: emptied(domain, masks, c, start(c)),
            rough=True,
        )
        prior = CliqueVector(layout, np.concatenate([t.reshape(-1) for t in found]))
        unit = evidence.total * np.sqrt(np.maximum(evidence.precision[1 + at], 1e-300))
        share = evidence.lattice.dims[1 + at] / evidence.lattice.cells[1 + at]
        return prior, *freedoms(self._noisy(prior), prior, unit, share)

    def _noisy(self, prior: CliqueVector) -> CliqueVector:
        """z_r + (b_r - C b_r): what was measured of the highest residual, with the lower orders of the prior."""
        out = CliqueVector(prior.layout, prior.values.copy())
        residuals, n = self.evidence.residuals, self.evidence.total
        for c in out.cliques:
            table = out[c]
            table += residuals[c] / n - centred(table, table.ndim)
        return out

    def _tables(self, graph: RegionGraph, order: int) -> CliqueVector:
        """The fit of a lower order, to a small part of its noise."""
        problem, path = self._path(graph, self.evidence.up_to(order))
        path.go(1.0)
        return problem.vector(path.z())

    def _path(self, graph: RegionGraph, evidence: Evidence) -> tuple[SplitProblem, PriorPath]:
        problem = SplitProblem(graph, evidence.raised())
        masks = self.fit.possible
        tables = CliqueVector.from_tables(
            evidence.domain,
            {
                r: emptied(evidence.domain, masks, r, np.maximum(self.prior[r], SMALLEST))
                for r in problem.root_cliques
            },
        )
        freedom = np.array([self.freedom[r] for r in problem.root_cliques])
        return problem, PriorPath.towards(problem, tables, freedom)

    def _respected(self, graph: RegionGraph, solution: Solution) -> Solution:
        masks = held(graph, self.fit.possible)
        if not masks:
            return solution
        allowed = masks_of(graph, masks)
        tau, violation = respect(graph, solution.tau, allowed, inner_point(graph, allowed))
        return replace(solution, tau=tau, violation=violation)
