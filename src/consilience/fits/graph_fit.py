"""GraphFit: what the estimators on a region graph share. Plan, bind, solve, certify, in this order and each once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from consilience.domain import Buffer, Clique, Cliques, CliqueVector, Domain
from consilience.domain.domain import names_of
from consilience.errors import ConsilienceError, MeasurementError, RegionGraphError
from consilience.measurements import (
    Exact,
    Measurement,
    SquaredLoss,
    bound_controls,
    public_total,
)
from consilience.memory import parse_bytes
from consilience.model.diagnostics import Diagnostics, Trace
from consilience.model.fit import Fit
from consilience.model.impossible import Masks, check_feasible, check_masks, mask_on
from consilience.model.model import Model
from consilience.model.out_of_model import TOLERANCE, project
from consilience.progress import Progress, Step
from consilience.regions.junction_tree import JunctionTree
from consilience.regions.pseudo_marginals import PseudoMarginals
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.contradictions import check_controls
from consilience.solvers.controls import controlled, with_masks
from consilience.solvers.feasible import inner_point, masks_of, respect
from consilience.solvers.place_reading import on_places
from consilience.solvers.planner import TIME_LIMIT, Plan, build_graph, make_plan, plan_for_graph
from consilience.solvers.solution import Solution
from consilience.solvers.splitting import SplittingState, splitting
from consilience.solvers.work import USUAL_LOAD, Load
from consilience.status import CONVERGED
from consilience.tree.oracle import ExactOracle

UNMET = 1e-4
"""Controls that are left by more of the total are not kept."""
PRECISE = 0.05
"""The noise that biased fits take exact marginals to have, in units of the least that was measured with."""


@dataclass(frozen=True)
class Planned(Step):
    """The step at which a fit knows its plan and has not begun to work."""

    plan: Plan | None = None


class GraphFit(Fit):
    """An estimator of pseudo-marginals on a region graph.

    A subclass is a dataclass with at least `consistency` and `memory`, and gives `solve`.
    """

    consistency: str | RegionGraph = "auto"
    """"auto", "global", "local", "factor", or a RegionGraph."""
    time_limit: float = TIME_LIMIT
    solver: str = "auto"
    tolerance: float = 1e-6
    automatic: ClassVar[str] = "local"
    """The consistency that "auto" stands for; "auto" leaves it to the planner."""
    roots_measured: ClassVar[bool] = False
    """Whether every region without parents must be measured itself."""

    @abstractmethod
    def solve(
        self, loss: SquaredLoss, graph: RegionGraph, warm: Model | None, progress: Progress
    ) -> Solution:
        """The estimate itself."""

    @property
    def additive(self) -> bool:
        return self._consistency not in ("auto", "global")

    @property
    def unmeasured(self) -> str:
        return "backbone" if self.consistency == "auto" else "local"

    def in_rounds(self) -> Self:
        """Rounds fit local tables: a junction tree of every round's cliques would be solved again and again."""
        if self.consistency != "auto":
            return self
        return replace(self, consistency="local")  # pyright: ignore[reportArgumentType]

    def of_fewer(self) -> Self:
        """Where regions without parents must be measured, a graph that was planned for more tables has some that are not."""
        if self.roots_measured and isinstance(self.consistency, RegionGraph):
            return replace(self, consistency="auto")  # pyright: ignore[reportArgumentType]
        return self

    @property
    def _consistency(self) -> str | RegionGraph:
        return self.automatic if self.consistency == "auto" else self.consistency

    def plan(self, domain: Domain, cliques: Iterable[Clique], load: Load = USUAL_LOAD) -> Plan:
        check_masks(domain, self.possible)
        known = public_total(self.controls, None)
        check_controls(domain, bound_controls(domain, self.controls), known, self.possible)
        plan = self._plan(domain, cliques, load)
        if self.possible:
            check_feasible(plan.graph, self.possible)
        return plan

    def _plan(self, domain: Domain, cliques: Iterable[Clique], load: Load) -> Plan:
        """The plan before it is known whether the masks leave anything, which the solver finds out as well."""
        measured = Cliques.of(domain, cliques).distinct(empty=False)
        if not measured:
            raise MeasurementError(
                "a reconstruction must have at least one measurement of a marginal, got none"
            )
        held = self._decided(measured)
        load = replace(load, tolerance=self.tolerance)
        asked = self._consistency
        if isinstance(asked, RegionGraph):
            _check_covers(asked, domain, held)
            plan = plan_for_graph(asked, measured, self.solver, self.memory, load)
        else:
            plan = make_plan(
                domain,
                held,
                consistency=asked,
                solver=self.solver,
                memory=self.memory,
                time_limit=self.time_limit,
                load=load,
            )
        plan = replace(plan, cliques=len(measured))
        if self.roots_measured and plan.consistency not in ("local", "factor"):
            self._check_roots(plan.graph, measured)
        return plan

    def _decided(self, measured: Cliques) -> Cliques:
        """The cliques that the graph must hold: what is measured, and the attributes of masks and controls.

        A mask that no region holds could be kept by no answer: tables that agree need not admit a joint table that respects it.
        """
        if not self.stated:
            return measured
        return Cliques.of(measured.domain, [*measured, *self.stated]).distinct(empty=False)

    def _check_roots(self, graph: RegionGraph, measured: Cliques) -> None:
        roots = graph.root_cliques
        bare = np.flatnonzero(measured.find(roots) < 0)
        if len(bare):
            raise ConsilienceError(
                f"{type(self).__name__} needs every region without parents measured, got {roots[bare[0]]} unmeasured; "
                "use consistency='local'"
            )

    def fitted(
        self, loss: SquaredLoss, total_known: bool, warm: Model | None, progress: Progress
    ) -> Model:
        if not len(loss.cliques):
            return even_model(self, loss, total_known)
        trace = Trace(progress)
        plan, graph = self._graph(loss, warm)
        trace(Planned("planning", 1, 1, plan=plan))
        solution = self.solve(loss, graph, warm, trace)
        return model_of(self, loss, graph, solution, plan, total_known, trace)

    def _graph(self, loss: SquaredLoss, warm: Model | None) -> tuple[Plan | None, RegionGraph]:
        """The plan and its graph; those of the warm start where it was asked for the same and measured on the same cliques."""
        if warm is not None and warm.domain == loss.domain:
            whole = warm.graph.first_unsupported(map(loss.domain.clique, self.stated)) is None
            if whole and warm.cliques == loss.cliques and self._asks_for_the_same(warm.fit):
                return warm.diagnostics.plan, warm.graph
            if self._consistency in ("local", "factor", "global"):
                cliques = self._decided(Cliques.of(loss.domain, loss.cliques))
                return None, build_graph(loss.domain, cliques, str(self._consistency))
        plan = self._plan(loss.domain, loss.cliques, Load.of(loss.measurements, loss.total))
        return plan, plan.graph

    # Paper: no controls. Here: fits that are biased anyway are told of exact marginals as of nearly exact ones, and what comes
    # out is scaled to the controls. LeastSquares has them in its problem.

    def _informed(self, loss: SquaredLoss) -> SquaredLoss:
        """The loss with exact controls as measurements that have next to no noise."""
        exact = [c for c in self.controls if isinstance(c, Exact)]
        if not exact:
            return loss
        stddev = PRECISE * float(loss.measurements.stddevs.min())
        more = [Measurement(c.attributes, c.values, stddev=stddev).bind(loss.domain) for c in exact]
        return SquaredLoss(loss.domain, [*loss.measurements, *more], loss.total)

    def _kept(self, loss: SquaredLoss, graph: RegionGraph, solution: Solution) -> Solution:
        """The solution next to this one that keeps masks and controls."""
        if not self.controls:
            return solution
        bound = bound_controls(loss.domain, self.controls)
        allowed = masks_of(graph, with_masks(loss.domain, self.possible, bound))
        tau, violation = respect(
            graph,
            solution.tau,
            allowed,
            inner_point(graph, allowed),
            lambda near: controlled(graph, near, allowed, bound, loss.total),
        )
        value = loss.bind(graph.layout).value_and_grad(tau.values)[0]
        return replace(solution, tau=tau, violation=violation, objective=value, bound=-np.inf)

    def _asks_for_the_same(self, other: Fit | None) -> bool:
        if not isinstance(other, GraphFit) or type(other) is not type(self):
            return False
        return other.consistency == self.consistency


class SplittingFit(GraphFit):
    """An estimator that the splitting solver finds, to a relative gap or in a number of iterations."""

    iterations: int | None = None
    clear: float | None = None
    workers: Any = None
    absolute: ClassVar[bool] = False
    """Whether distances count as they are, and not squared."""

    def coarser(self, tolerance: float) -> Self:
        return replace(self, tolerance=max(self.tolerance, tolerance))  # pyright: ignore[reportArgumentType]

    def solve(
        self, loss: SquaredLoss, graph: RegionGraph, warm: Model | None, progress: Progress
    ) -> Solution:
        state = None if warm is None or self.iterations is not None else warm.state
        controls = bound_controls(loss.domain, self.controls)
        places = None
        if not self.absolute:
            places = on_places(
                loss,
                graph,
                tolerance=self.tolerance,
                iterations=self.iterations,
                state=state,
                possible=self.possible or None,
                controls=controls,
                clear=self.clear,
                workers=self.workers,
                progress=progress,
            )
        if places is None and self.workers is not None:
            raise ConsilienceError(
                "workers need measurements at levels of one attribute that one table holds, these are others; leave out workers="
            )
        return places or splitting(
            loss,
            graph,
            iterations=self.iterations,
            tolerance=self.tolerance,
            state=state if isinstance(state, SplittingState) else None,
            possible=self.possible or None,
            controls=controls,
            absolute=self.absolute,
            progress=progress,
        )


def model_of(
    fit: Fit,
    loss: SquaredLoss,
    graph: RegionGraph,
    solution: Solution,
    plan: Plan | None,
    total_known: bool,
    trace: Trace | None = None,
) -> Model:
    """The model of a solution, which keeps the fit and the state for the next one; refuses one that leaves the controls."""
    if fit.controls and not solution.violation <= UNMET:
        raise ConsilienceError(
            f"no tables were found that keep the controls: they are left by {solution.violation:.2g} of the total; give "
            "ranges more room, or leave a control out"
        )
    status = solution.status
    diagnostics = Diagnostics(
        plan,
        solution.method,
        status.name,
        status.advice,
        status.converged,
        solution.objective,
        solution.bound,
        solution.violation,
        solution.iterations,
        solution.seconds,
        solution.prior_strength,
        solution.towards,
        solution.work,
        () if trace is None else trace.iterations,
    )
    return Model(
        loss.domain,
        loss.total,
        graph,
        _spread_evenly(graph, solution.tau, loss.cliques, fit.possible),
        loss.measurements,
        diagnostics,
        fit,
        total_known,
        state=solution.state,
    )


def even_model(fit: Fit, loss: SquaredLoss, total_known: bool) -> Model:
    """The uniform distribution on all that is possible: the model where no marginal was measured."""
    domain, masks = loss.domain, fit.possible
    check_masks(domain, masks)
    graph = build_graph(domain, [*masks, *((a,) for a in domain)], "global")
    check_feasible(graph, masks)
    roots = [graph.regions[i] for i in graph.roots]
    oracle = ExactOracle(JunctionTree.of(domain, roots), roots, memory=parse_bytes(fit.memory))
    with np.errstate(divide="ignore"):
        theta = CliqueVector.from_tables(domain, {c: np.log(m) for c, m in masks.items()})
    tables = CliqueVector(oracle.layout, oracle.marginals(oracle.of_potentials(theta)))
    tau = CliqueVector(graph.layout)
    for root in roots:
        tau[root][...] = tables[root]
    graph.sum_from_parents(tau)
    value, _ = loss.bind(tau.layout).value_and_grad(tau.values)
    solution = Solution(tau, value, value, 0.0, 0, 0.0, CONVERGED, "uniform")
    return model_of(fit, loss, graph, solution, None, total_known)


def _spread_evenly(
    graph: RegionGraph, tau: CliqueVector, measured: Cliques, masks: Masks
) -> CliqueVector:
    """tau with the most entropy in regions that are there for a mask alone.

    Of such a table measurements say only what lies in its overlaps with the others, which stay as they are; what the solver
    leaves in between is no more likely than anything else.
    """
    roots = graph.root_cliques
    alone = [c for c in map(graph.domain.clique, masks) if c in roots and c not in measured]
    if not alone:
        return tau
    even = CliqueVector(tau.layout, tau.values.copy())
    for region in alone:
        others = [*(c for c in graph.regions if c != region), *measured]
        known = PseudoMarginals(graph, tau, Cliques.of(graph.domain, others).distinct(empty=False))
        allowed = mask_on(graph.domain, masks, region)
        assert allowed is not None
        (table,), (left,) = project(known, [region], lambda _, a=allowed: a / a.sum())
        if left <= TOLERANCE:
            even[region][...] = np.where(allowed, table, 0.0)
    return even


# -- what several estimators check -----------------------------------------------------------------


def masks_by_clique(possible: Mapping[Any, Buffer]) -> Masks:
    """Declared masks under tuples of attribute names."""
    return {names_of(k): m for k, m in possible.items()}


def check_tolerance(tolerance: float) -> None:
    if not (np.isfinite(tolerance) and tolerance > 0):
        raise ConsilienceError(f"tolerance must be positive and finite, got {tolerance}")


def check_iterations(iterations: int | None) -> None:
    if iterations is not None and iterations < 0:
        raise ConsilienceError(f"iterations must be at least 0, got {iterations}")


def _check_covers(graph: RegionGraph, domain: Domain, cliques: Cliques) -> None:
    """Every measured clique must have a region that holds it, over the same domain."""
    if graph.domain != domain:
        raise RegionGraphError(
            f"the graph must be over the same domain as the measurements, got {graph.domain!r}"
        )
    missing = graph.first_unsupported(cliques)
    if missing is not None:
        raise RegionGraphError(
            f"some region of the graph must contain {missing}, none does; add it, or leave consistency='auto'"
        )
