"""PossibleCells: the exact model of noisy tables on the cells that can occur, stopped before it follows the noise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import ClassVar

import numpy as np

from consilience.domain import Clique, CliqueVector, Domain
from consilience.domain.domain import whole_number
from consilience.errors import ConsilienceError
from consilience.fits.graph_fit import Planned, even_model, model_of
from consilience.fits.least_squares import LeastSquares
from consilience.measurements import SquaredLoss
from consilience.memory import parse_bytes
from consilience.model.fit import Fit
from consilience.model.model import Model
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.feasible import polish_tables
from consilience.solvers.planner import Plan
from consilience.solvers.solution import Solution
from consilience.solvers.work import USUAL_LOAD, Load, visits
from consilience.status import STOPPED_EARLY
from consilience.tree.fit import NoisyTables
from consilience.tree.growth import CELL_BYTES, MOST_CELLS, ROUGH_LEVEL, GrowingModel

AT_THE_END = 24
"""Proximal steps of a last fit. By then cells that hold a fifth of the noise's standard deviation are followed, and what no
measurement shows is little pulled on any more: Stein's risk, which sees measured tables alone, ends too early for the others
(decision 045)."""


@dataclass(frozen=True, eq=False, repr=False)
class PossibleCells(Fit):
    """One distribution over the whole domain, kept on a junction tree's possible cells, so that it outlives its full tables.

    Prox-PGM from the uniform distribution, ended where Stein's estimate of the risk stops falling (docs/adaptive.md), or after
    so many `steps`. The model keeps that distribution as its `tree`, and answers, rows and errors come from it. It is biased
    towards maximum entropy. Tables that do not fit the memory are read beside it; where not even one fits, this is
    LeastSquares(consistency="local"), and the diagnostics say so.

    With steps=, as for AIM's last fit, rounds before it are local least squares, and where the memory leaves out a table or
    cells of more than a sixteenth of the noise, or the model misses the measurements by more than their noise, the model is
    that of LeastSquares(consistency="local").
    """

    queries: ClassVar[bool] = False
    closed_form: ClassVar[bool] = True
    why: ClassVar[str] = "its steps move towards the cells of tables"

    memory: str | int | float = "2 GB"
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.steps is not None and (whole_number(self.steps) or 0) < 1:
            raise ConsilienceError(
                f"steps must be a whole number of at least 1, got {self.steps!r}"
            )

    def in_rounds(self) -> Fit:
        return self if self.steps is None else self._local

    def at_the_end(self) -> Fit:
        return self

    def plan(self, domain: Domain, cliques: Iterable[Clique], load: Load = USUAL_LOAD) -> Plan:
        return self._local.plan(domain, cliques, load)

    @property
    def additive(self) -> bool:
        return True

    @property
    def _local(self) -> LeastSquares:
        return LeastSquares(consistency="local", memory=self.memory)

    def fitted(
        self, loss: SquaredLoss, total_known: bool, warm: Model | None, progress: Progress
    ) -> Model:
        if not len(loss.cliques):
            return even_model(self, loss, total_known)
        began = perf_counter()
        domain = loss.domain
        part = loss.separable()
        noisy = NoisyTables(part.targets, part.weights)
        same = warm is not None and warm.cliques == loss.cliques
        plan = None if warm is not None else self.plan(domain, loss.cliques)
        progress(Planned("planning", 1, 1, plan=plan))
        if same and warm is not None and warm.tree is not None:
            grown, graph = GrowingModel.refitted(warm.tree, noisy), warm.graph
        else:
            grown = self._grown(domain, loss, noisy, warm, progress)
            graph = RegionGraph.saturated(domain, loss.cliques) if plan is None else plan.graph
        if grown.backbone is None:
            return replace(self._local.fitted(loss, total_known, warm, progress), fit=self)
        solution = _tables(loss, graph, grown, noisy, began)
        if self.steps is not None and not same and _missed(grown, solution, noisy):
            return self._local.fitted(loss, total_known, None, progress)
        model = model_of(self, loss, graph, solution, plan, total_known)
        return replace(model, tree=grown.backbone)

    def _grown(
        self,
        domain: Domain,
        loss: SquaredLoss,
        noisy: NoisyTables,
        warm: Model | None,
        report: Progress,
    ) -> GrowingModel:
        """The tree of the warm start and what is new, as far as it fits."""
        cells = parse_bytes(self.memory) // CELL_BYTES
        grown = None if warm is None else warm.state
        if not isinstance(grown, GrowingModel):
            grown = GrowingModel(domain, min(cells, MOST_CELLS), fixed=self.steps)
            if self.steps is None:
                grown = replace(grown, level=ROUGH_LEVEL)
        return grown.take([m.clique for m in loss.measurements if m.clique], noisy, report)


def _missed(grown: GrowingModel, solution: Solution, noisy: NoisyTables) -> bool:
    """Whether cells were left out that may matter: tables, cells of more than the least part of the noise, or so much that the
    model is farther from the measurements than the noise explains, as the truth itself would not be.
    """
    if grown.outside or grown.level > 0:
        return True
    tables = solution.tau
    fitted = np.concatenate([tables.project(c).reshape(-1) for c in noisy.values.cliques])
    return bool(np.mean(noisy.by_cell * (fitted - noisy.values.values) ** 2) > 1.0)


def _tables(
    loss: SquaredLoss, graph: RegionGraph, grown: GrowingModel, noisy: NoisyTables, began: float
) -> Solution:
    """The tree's tables on the regions of the graph, made to agree with those that are read beside it."""
    roots = [graph.regions[i] for i in graph.roots]
    tables = CliqueVector.from_tables(loss.domain, grown.tables(roots, noisy))
    tau, violation = polish_tables(graph, tables)
    value, _ = loss.bind(tau.layout).value_and_grad(tau.values)
    assert grown.backbone is not None
    support = grown.backbone.fit.support
    work = grown.steps * len(grown.inside) * visits(support.size, len(support.cells))
    method = f"exact model of {len(grown.inside)} tables on possible cells"
    return Solution(
        tau,
        value,
        -np.inf,
        violation,
        grown.steps,
        perf_counter() - began,
        STOPPED_EARLY,
        method,
        state=grown,
        prior_strength=1 / max(grown.steps, 1),
        towards="maximum entropy",
        work=work,
    )
