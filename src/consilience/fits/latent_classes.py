"""LatentClasses: tables pulled towards one mixture of products that was fitted to all of them. Biased, usually much closer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import ClassVar

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector, Layout, maximal
from consilience.errors import ConsilienceError
from consilience.fits.graph_fit import GraphFit, check_tolerance, masks_by_clique, model_of
from consilience.measurements import SquaredLoss
from consilience.measurements.evidence import Evidence
from consilience.measurements.measurement import Noise
from consilience.model.diagnostics import Trace
from consilience.model.impossible import Masks, emptied, held
from consilience.model.model import Model
from consilience.model.out_of_model import project
from consilience.progress import Progress
from consilience.regions.pseudo_marginals import PseudoMarginals
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.feasible import inner_point, masks_of, respect
from consilience.solvers.latent import LatentPrior, fit_prior, freedoms, one_ways
from consilience.solvers.mixture import Mixture
from consilience.solvers.prior import PriorPath
from consilience.solvers.solution import Solution
from consilience.solvers.split_problem import SplitProblem

LEAST_TOLERANCE = 1e-3
"""A pulled fit is never solved more finely than this: how far it is pulled is an estimate itself."""
SMALLEST = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class LatentClasses(GraphFit):
    """Least squares with a pull towards a mixture of latent classes, as strong as the noise warrants (docs/latent-classes.md).

    The mixture is kept in the model: a distribution over the whole domain from which answers that nobody measured, and rows,
    begin. classes: how many, of each of two mixtures that are averaged; None leaves it to the size of the domain. seed: of
    their starts and of the noise that measurements are thinned with.
    """

    noises: ClassVar[tuple[Noise, ...]] = ("gaussian",)
    why: ClassVar[str] = "its strength is chosen by splitting Gaussian noise in two"

    consistency: str | RegionGraph = "auto"
    memory: str | int | float = "2 GB"
    tolerance: float = LEAST_TOLERANCE
    possible: Masks = field(default_factory=dict)
    classes: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)
        object.__setattr__(self, "possible", masks_by_clique(self.possible))
        if self.consistency not in ("auto", "local"):
            raise ConsilienceError(
                f"LatentClasses has local consistency, got consistency={self.consistency!r}; leave it out"
            )
        if self.classes is not None and self.classes < 1:
            raise ConsilienceError(f"classes must be at least 1, got {self.classes}")

    def coarser(self, tolerance: float) -> LatentClasses:
        return replace(self, tolerance=max(self.tolerance, tolerance))

    def solve(
        self, loss: SquaredLoss, graph: RegionGraph, warm: Model | None, progress: Progress
    ) -> Solution:
        return self._solved(loss, graph, progress)[0]

    def fitted(
        self, loss: SquaredLoss, total_known: bool, warm: Model | None, progress: Progress
    ) -> Model:
        trace = Trace(progress)
        plan, graph = self._graph(loss, warm)
        solution, mixture = self._solved(loss, graph, trace)
        model = model_of(self, loss, graph, solution, plan, total_known, trace)
        return replace(model, mixture=mixture)

    def _solved(
        self, loss: SquaredLoss, graph: RegionGraph, progress: Progress
    ) -> tuple[Solution, Mixture]:
        began = perf_counter()
        evidence = Evidence.of(loss)
        prior = fit_prior(evidence, self.classes, self.seed, progress)
        levels = _Levels(self, evidence, prior, progress)
        solution = levels.solution(graph, began)
        return replace(solution, prior_strength=prior.pull), prior.larger


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

    def solution(self, graph: RegionGraph, began: float) -> Solution:
        """The fit of the highest order, from those of all lower ones."""
        domain, roots = self.evidence.domain, graph.root_cliques
        highest = int(max(len(r) for r in roots))
        single, free = one_ways(self.evidence, self.latent.pairs)
        self.prior = {c: single[c] for c in single}
        self.freedom = dict(zip(single.cliques, free.tolist(), strict=True))
        below = RegionGraph.saturated(domain, single.cliques)
        tau = single
        for order in range(2, highest + 1):
            known = PseudoMarginals.of(below, tau, tau.cliques)
            last = order == highest
            here = graph if last else self._graph(order)
            self._take(known, [r for r in here.root_cliques if len(r) == order])
            tau, below = self._agreed(here, order, last, began), here
            if last:
                return tau
        return self._agreed(graph, 1, True, began)

    def _graph(self, order: int) -> RegionGraph:
        kept = [t for t in self.evidence.lattice.subsets if 0 < len(t) <= order]
        return RegionGraph.saturated(self.evidence.domain, maximal(self.evidence.domain, kept))

    def _take(self, known: PseudoMarginals, cliques: list[Clique]) -> None:
        """The mixture's tables of these cliques, made to agree with the order below, and how far the fit may leave them."""
        evidence, domain = self.evidence, self.evidence.domain
        larger = len(cliques[0]) > 2
        start = (self.latent.larger if larger else self.latent.pairs).marginals(cliques)
        masks = self.fit.possible
        found, _ = project(
            known, cliques, lambda c: emptied(domain, masks, c, start[c]), rough=True
        )
        prior = CliqueVector(start.layout, np.concatenate([t.reshape(-1) for t in found]))
        noisy = self._noisy(prior)
        at = evidence.tables.layout.cliques.find(prior.cliques)
        unit = evidence.total * np.sqrt(np.maximum(evidence.precision[1 + at], 1e-300))
        shape = np.array(domain.shape)
        price = np.array([np.prod(1 - 1 / shape[list(c)]) for c in prior.cliques.sets])
        free = freedoms(noisy, prior, unit, price)
        self.prior |= {c: prior[c] for c in cliques}
        self.freedom |= dict(zip(prior.cliques, free.tolist(), strict=True))

    def _noisy(self, prior: CliqueVector) -> CliqueVector:
        """z_r + (b_r - C b_r): what was measured of the highest residual, with the lower orders of the prior."""
        ours = CliqueVector(Layout(prior.domain, prior.cliques), prior.values.copy())
        residuals, n = self.evidence.residuals, self.evidence.total
        for c in ours.cliques:
            table = ours[c]
            own = table.copy()
            for axis in range(own.ndim):
                own -= own.mean(axis=axis, keepdims=True)
            table += residuals[c] / n - own
        return ours

    def _agreed(self, graph: RegionGraph, order: int, last: bool, began: float) -> ...:
        evidence = self.evidence if last else self.evidence.up_to(order)
        problem = SplitProblem(graph, evidence)
        roots = graph.root_cliques
        tables = CliqueVector.from_tables(
            evidence.domain, {r: np.maximum(self.prior[r], SMALLEST) for r in roots}
        )
        freedom = np.array([self.freedom[r] for r in problem.root_cliques])
        path = PriorPath.towards(problem, tables, freedom)
        if last:
            solution = path.solution(
                1.0, began, max(self.fit.tolerance, LEAST_TOLERANCE), self.progress
            )
            return self._respected(graph, solution)
        path.go(1.0)
        return problem.vector(path.z())

    def _respected(self, graph: RegionGraph, solution: Solution) -> Solution:
        masks = held(graph, self.fit.possible)
        if not masks:
            return solution
        allowed = masks_of(graph, masks)
        tau, violation = respect(graph, solution.tau, allowed, inner_point(graph, allowed))
        return replace(solution, tau=tau, violation=violation)
