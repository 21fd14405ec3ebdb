"""reconstruct: noisy measurements in, one consistent model out. Plans first, then solves, then certifies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from consilience.domain import Buffer, Clique, Domain
from consilience.errors import ConsilienceError, MeasurementError, RegionGraphError
from consilience.inference.diagnostics import Diagnostics, Trace
from consilience.inference.model import Model
from consilience.inference.settings import Settings, solve
from consilience.measurements import Measurement, SquaredLoss
from consilience.progress import Iteration, Progress
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.planner import (
    TIME_LIMIT,
    Plan,
    build_graph,
    make_plan,
    plan_for_graph,
)
from consilience.solvers.solution import Solution


def plan(
    domain: Domain,
    measurements: Iterable[Measurement],
    *,
    consistency: str | RegionGraph = "auto",
    solver: str = "auto",
    memory: str | int | float = "2 GB",
    time_limit: float = TIME_LIMIT,
) -> Plan:
    """What `reconstruct` would do with the same arguments, without doing it."""
    bound = [m.bind(domain) for m in measurements]
    cliques = tuple(dict.fromkeys(m.clique for m in bound if m.clique))
    if not cliques:
        raise MeasurementError(
            "a reconstruction must have at least one measurement of a marginal, got none"
        )
    if isinstance(consistency, RegionGraph):
        return plan_for_graph(consistency, len(cliques), solver, memory, squared=True)
    return make_plan(
        domain,
        cliques,
        consistency=consistency,
        solver=solver,
        memory=memory,
        squared=True,
        time_limit=time_limit,
    )


def reconstruct(
    domain: Domain,
    measurements: Iterable[Measurement],
    *,
    total: float | None = None,
    consistency: str | RegionGraph = "auto",
    solver: str = "auto",
    memory: str | int | float = "2 GB",
    time_limit: float = TIME_LIMIT,
    prior: str | None = None,
    possible: Mapping[Clique, Buffer] | None = None,
    likelihood: str = "squared",
    nonnegativity: str = "optimal",
    iterations: int | None = None,
    tolerance: float = 1e-6,
    seed: int = 0,
    progress: Progress | None = None,
    on_plan: Callable[[Plan], None] | None = None,
) -> Model:
    """The closest consistent, non-negative tables to noisy measurements of marginals.

    total: number of records if public (replace-one neighbours); None estimates it from the measurements.
    consistency: "auto" (global where it fits the memory budget and is expected to take no more than time_limit seconds, else
    local), "global", "local", "factor", or a RegionGraph.
    solver: "auto", "splitting" or "prox". prior: None (maximum likelihood) or "independence" (shrinks tables towards
    what their lower-order marginals say, as far as the noise warrants; biased, usually more accurate).
    possible: {clique: boolean table}, False where a combination can not occur, which no answer and no row then shows.
    seed: for the prior's noise thinning only.
    likelihood: "squared" (least squares, as in the paper) or "laplace" (the exact likelihood of Laplace noise).
    nonnegativity: "optimal" (part of the least squares problem) or "norm-cut" (the smallest cells pay for the negative ones:
    often a lower total variation on sparse tables of high order, no certificate).
    progress sees an `Iteration` now and then; on_plan sees the plan before any work is done.
    """
    if prior not in (None, "independence"):
        raise ConsilienceError(f"prior must be None or 'independence', got {prior!r}")
    if not (np.isfinite(tolerance) and tolerance > 0):
        raise ConsilienceError(f"tolerance must be positive and finite, got {tolerance}")
    if iterations is not None and iterations < 0:
        raise ConsilienceError(f"iterations must be at least 0, got {iterations}")
    if isinstance(consistency, RegionGraph) and consistency.domain != domain:
        raise RegionGraphError(
            f"the graph must be over the same domain as the measurements, got {consistency.domain!r}"
        )
    listed = list(measurements)
    _check_nonnegativity(nonnegativity, prior, possible, likelihood)
    if consistency == "auto" and (
        prior is not None or likelihood == "laplace" or nonnegativity == "norm-cut"
    ):
        consistency = "local"  # they act on measured tables, which are the local graph's own
    masks = {(k,) if isinstance(k, str) else tuple(k): m for k, m in (possible or {}).items()}
    chosen = plan(
        domain,
        listed,
        consistency=consistency,
        solver=solver,
        memory=memory,
        time_limit=time_limit,
    )
    if on_plan is not None:
        on_plan(chosen)
    loss = SquaredLoss(domain, listed, total)
    graph = (
        consistency
        if isinstance(consistency, RegionGraph)
        else build_graph(domain, loss.cliques, chosen.consistency)
    )
    if likelihood not in ("squared", "laplace"):
        raise ConsilienceError(f"likelihood must be 'squared' or 'laplace', got {likelihood!r}")
    if likelihood == "laplace" and (prior is not None or chosen.solver != "splitting"):
        raise ConsilienceError(
            "likelihood='laplace' works with the splitting solver and prior=None"
        )
    settings = Settings(
        chosen.solver,
        total is not None,
        iterations,
        tolerance,
        prior,
        seed,
        masks,
        likelihood,
        nonnegativity,
    )
    trace = Trace(progress)
    solution = solve(loss, graph, settings, trace)
    return model_of(domain, loss, graph, solution, chosen, settings, trace.iterations)


def _check_nonnegativity(
    how: str, prior: str | None, possible: Mapping[Clique, Buffer] | None, likelihood: str
) -> None:
    if how not in ("optimal", "norm-cut"):
        raise ConsilienceError(f"nonnegativity must be 'optimal' or 'norm-cut', got {how!r}")
    if how == "norm-cut" and (prior is not None or possible or likelihood != "squared"):
        raise ConsilienceError(
            "nonnegativity='norm-cut' works with prior=None, likelihood='squared' and no declared impossible cells"
        )


def model_of(
    domain: Domain,
    loss: SquaredLoss,
    graph: RegionGraph,
    solution: Solution,
    chosen: Plan | None,
    settings: Settings | None = None,
    trace: tuple[Iteration, ...] = (),
) -> Model:
    """The model of a solution."""
    diagnostics = Diagnostics(
        chosen,
        solution.method,
        solution.status.name,
        solution.status.advice,
        solution.status.converged,
        solution.objective,
        solution.bound,
        solution.violation,
        solution.iterations,
        solution.seconds,
        None if settings is None else settings.prior,
        solution.prior_strength,
        trace,
    )
    return Model(domain, loss.total, graph, solution.tau, loss.measurements, diagnostics, settings)
