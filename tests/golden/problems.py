"""Small seeded problems whose answers are pinned in golden.json, written before the internals were rebuilt.

Calls of the package go through the helpers of the first section: where an option gets another name, only they change. Words that
the package may rename (kinds of consistency, methods) go through `word`. From the project's root:

    python tests/golden/problems.py --write                  # adds what is not there yet
    python tests/golden/problems.py --write --force NAME     # replaces one entry: say in the CHANGELOG why
    python tests/golden/problems.py --write --to FILE        # all of them into another file, to compare
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import consilience as cs
from consilience import mechanisms
from consilience.measurements import Kronecker, Prefix, Ranges
from consilience.privacy import Epsilon, Rho, SeededNoise

GOLDEN = Path(__file__).parent / "golden.json"

# -- the package, as it is called ----------------------------------------------------------------------


OF_FITS = ("consistency", "memory", "time_limit", "tolerance", "possible", "solver", "iterations")


def estimator(options: dict[str, Any]) -> dict[str, Any]:
    """The options of 0.1 as a fit, and the rest of them."""
    own = {k: options.pop(k) for k in OF_FITS if k in options}
    if options.pop("prior", None) is not None:
        kind, own = cs.Shrunk, own | {k: options.pop(k) for k in ("seed",) if k in options}
    elif options.pop("likelihood", "squared") == "laplace":
        kind = cs.LaplaceLikelihood
    elif options.pop("nonnegativity", "optimal") == "norm-cut":
        kind = cs.NormCut
    else:
        kind = cs.LeastSquares
    return options | ({"fit": kind(**own)} if own or kind is not cs.LeastSquares else {})


def fit(domain: cs.Domain, measurements: Any, **options: Any) -> cs.Model:
    return cs.reconstruct(domain, measurements, **estimator(options))


def planned(domain: cs.Domain, measurements: Any, **options: Any) -> dict[str, Any]:
    return plan_of(cs.plan(domain, measurements, **estimator(options)))


def calibrated(name: str, *arguments: Any, budget: cs.Budget, **options: Any) -> Any:
    """A mechanism of `cs.mechanisms` by its name, calibrated; "MWEM.as_published" for that constructor."""
    make: Any = mechanisms
    for part in name.split("."):
        make = getattr(make, part)
    given = options if "fit" in options else estimator(options)
    return make(*arguments, **given).calibrate(budget)


def released(ready: Any, data: cs.Dataset, seed: int = 1) -> Any:
    return ready(data, noise=SeededNoise(seed=seed))


def measured(ready: Any, data: cs.Dataset, seed: int = 1) -> Any:
    return ready.measure(data, noise=SeededNoise(seed=seed))


def rounds_of(ready: Any, data: cs.Dataset, seed: int = 1) -> Any:
    """The run of an adaptive mechanism, to be made round by round."""
    return ready.start(data, noise=SeededNoise(seed=seed))


def game_fit(**options: Any) -> Any:
    return cs.SelectionLikelihood(**options)


def word(name: Any) -> str:
    """A name of 0.1, where it changed since."""
    return {"factor graph": "factor"}.get(str(name), str(name))


def tables_of(model: Any, cliques: Any) -> dict[str, Any]:
    cliques = [(c,) if isinstance(c, str) else tuple(c) for c in cliques]
    return {"table " + " ".join(c): model.marginal(c) for c in cliques}


def told(model: cs.Model, cliques: Any = ()) -> dict[str, Any]:
    """What a fit came to: its certificate and its tables of these cliques (the measured ones unless given)."""
    d = model.diagnostics
    found = {
        "total": model.total,
        "objective": d.objective,
        "bound": d.bound,
        "gap": d.gap,
        "violation": d.violation,
        "iterations": d.iterations,
        "status": d.status,
        "converged": str(d.converged),
        "method": word(d.method),
        "graph": word(model.graph.kind),
    }
    if d.prior_strength is not None:
        found["strength"] = d.prior_strength
    return found | tables_of(model, cliques or model.cliques)


def solved(solution: cs.Solution) -> dict[str, Any]:
    """What one of the paper's algorithms came to."""
    return {
        "objective": solution.objective,
        "bound": solution.bound,
        "gap": solution.gap,
        "violation": solution.violation,
        "iterations": solution.iterations,
        "status": str(solution.status.name),
        "method": word(solution.method),
    } | {"tau " + " ".join(c): t for c, t in solution.tau.items()}


def cost_of(cost: Any) -> dict[str, Any]:
    pure, mu = cost.epsilon, cost.mu_squared
    return {
        "rho": float(cost.rho.value),
        "epsilon": "none" if pure is None else float(pure.value),
        "mu squared": "none" if mu is None else float(mu.value),
    }


def result_of(result: Any, cliques: Any = ()) -> dict[str, Any]:
    """Cost, what was measured and the model of a release."""
    listed = result.measurements
    values = [np.ravel(m.values) for m in listed]
    return {
        **cost_of(result.cost),
        "measured": "; ".join(" ".join(m.attributes) for m in listed),
        "stddevs": np.array([m.stddev for m in listed]),
        "noisy": np.concatenate(values) if values else np.zeros(0),
        **told(result.model, cliques),
    }


def plan_of(plan: Any) -> dict[str, Any]:
    """What was chosen; expected seconds are left out, they are about a machine."""
    found = {"consistency": word(plan.consistency), "solver": word(plan.solver)}
    found |= {"bytes": plan.bytes, "budget": plan.budget, "cliques": plan.cliques}
    for o in plan.options:
        name = word(o.consistency)
        found |= {f"{name} cells": o.cells, f"{name} bytes": o.bytes, f"{name} fits": str(o.fits)}
    return found


def trust_of(trust: Any) -> dict[str, Any]:
    return {
        "verdict": trust.verdict,
        "links": "; ".join(" ".join(c) for c in trust.links),
        "weakest": trust.weakest,
        "trust violation": trust.violation,
        "entropy gap": trust.entropy_gap,
        "trust method": word(trust.method),
    }


def spread_of(found: Any, name: str = "") -> dict[str, Any]:
    return {
        f"stderr {name}": found.stderr,
        f"bias {name}": found.bias,
        f"stderr method {name}": word(found.method),
        f"replicates {name}": found.replicates,
    }


def rows_of(report: Any) -> dict[str, Any]:
    return {
        "rows": report.data.to_array(),
        "exact": str(report.exact),
        "distance": report.distance,
        "worst": report.worst,
        "worst clique": " ".join(report.worst_clique),
        "before": report.before,
        "independent": report.independent,
        "moved": report.moved,
        "sweeps": report.sweeps,
        "replaced": report.replaced,
    }


# -- what the problems share ---------------------------------------------------------------------------

FOUR = cs.Domain({"a": 3, "b": 2, "c": 4, "d": 3})
TWOS = cs.Domain({"a": 2, "b": 2, "c": 2, "d": 2})
FIVE = cs.Domain({"a": 3, "b": 2, "c": 3, "d": 2, "e": 3})
CYCLE = (("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"))
CHAIN = (("a", "b"), ("b", "c"), ("c", "d"))
FIVE_PAIRS = (("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("a", "e"), ("b", "e"))
TRIPLES = (("a", "b", "c"), ("b", "c", "d"), ("c", "d", "e"), ("a", "e"))
UNMEASURED = (("a", "c"), ("b", "d"), ("a", "b", "d"), ("a", "b", "c", "d"))
"""By none of CYCLE."""
REPLACE = {"neighbours": "replace-one"}
ADD = {"neighbours": "add-remove"}


def people(domain: cs.Domain, rows: int = 600, seed: int = 0) -> cs.Dataset:
    """Columns that follow each other: each is the one before, scaled to its size, with some noise, and skewed."""
    rng = np.random.default_rng(seed)
    latent = rng.random(rows)
    columns = []
    for size in domain.shape:
        latent = np.clip(0.75 * latent + 0.35 * rng.random(rows) - 0.08, 0.0, 0.999)
        columns.append((size * latent**1.6).astype(np.int64))
    return cs.Dataset(np.column_stack(columns), domain)


def noisy(
    domain: cs.Domain, cliques: Any, stddev: float = 8.0, seed: int = 0, law: str = "gaussian"
) -> list[cs.Measurement]:
    rng, data, found = np.random.default_rng(seed + 100), people(domain), []
    for clique in cliques:
        exact = data.marginal(clique)
        if law == "laplace":
            drawn = rng.laplace(scale=stddev / np.sqrt(2), size=exact.shape)
        else:
            drawn = rng.normal(scale=stddev, size=exact.shape)
        found.append(cs.Measurement(clique, exact + drawn, stddev=stddev, noise=law))
    return found


def frustrated(seed: int = 0) -> list[cs.Measurement]:
    """Pairs of a cycle that agree locally and that no distribution has: equal, equal, equal, different."""
    rng, found = np.random.default_rng(seed + 300), []
    for clique in CYCLE:
        table = np.array([[280.0, 20.0], [20.0, 280.0]])
        table = table[::-1] if clique == ("a", "d") else table
        found.append(cs.Measurement(clique, table + rng.normal(scale=9, size=(2, 2)), stddev=9.0))
    return found


def asked(clique: Any, query: Any, stddev: float = 5.0, seed: int = 0) -> cs.Measurement:
    """Noisy answers of a query on one table of FOUR."""
    table = people(FOUR).marginal(clique).reshape(-1)
    exact = query @ table if hasattr(query, "__matmul__") else query.apply(table)
    drawn = np.random.default_rng(seed + 200).normal(scale=stddev, size=exact.shape)
    return cs.Measurement(clique, exact + drawn, stddev=stddev, query=query)


def budget(**options: Any) -> cs.Budget:
    return cs.Budget(**(options or {"epsilon": 2, "delta": 1e-6} | REPLACE))


PROBLEMS: dict[str, Callable[[], dict[str, Any]]] = {}


def problem(function: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    PROBLEMS[function.__name__] = function
    return function


# -- reconstruct ---------------------------------------------------------------------------------------


@problem
def auto_total_known() -> dict[str, Any]:
    model = fit(FOUR, noisy(FOUR, CYCLE), total=600)
    return told(model) | plan_of(model.diagnostics.plan)


@problem
def auto_total_unknown() -> dict[str, Any]:
    listed = noisy(FOUR, CYCLE)
    total = cs.estimate_total(FOUR, listed)
    found = {"estimate": total.value, "estimate stddev": total.stddev, "holders": total.cliques}
    return told(fit(FOUR, listed)) | found


@problem
def total_measured() -> dict[str, Any]:
    counted = cs.Measurement((), [603.0], stddev=2.0)
    return told(fit(FOUR, [*noisy(FOUR, CYCLE), counted], consistency="local"))


@problem
def local_cycle() -> dict[str, Any]:
    return told(fit(FOUR, noisy(FOUR, CYCLE), total=600, consistency="local"))


@problem
def local_cycle_heavy_noise() -> dict[str, Any]:
    return told(fit(FOUR, noisy(FOUR, CYCLE, 60.0, 1), total=600, consistency="local"))


@problem
def global_cycle_heavy_noise() -> dict[str, Any]:
    return told(fit(FOUR, noisy(FOUR, CYCLE, 60.0, 1), total=600, consistency="global"))


@problem
def global_chain() -> dict[str, Any]:
    return told(fit(FOUR, noisy(FOUR, CHAIN, 20.0), consistency="global"))


@problem
def factor_cycle() -> dict[str, Any]:
    return told(fit(FOUR, noisy(FOUR, CYCLE, 30.0), total=600, consistency="factor"))


@problem
def local_triples() -> dict[str, Any]:
    return told(fit(FIVE, noisy(FIVE, TRIPLES, 12.0), total=600, consistency="local"))


@problem
def global_triples() -> dict[str, Any]:
    return told(fit(FIVE, noisy(FIVE, TRIPLES, 12.0), total=600, consistency="global"))


@problem
def prox_local() -> dict[str, Any]:
    options = {"consistency": "local", "solver": "prox", "iterations": 250}
    return told(fit(FOUR, noisy(FOUR, CYCLE, 30.0), total=600, **options))


@problem
def prox_global() -> dict[str, Any]:
    options = {"consistency": "global", "solver": "prox", "iterations": 250}
    return told(fit(FOUR, noisy(FOUR, CYCLE, 30.0), total=600, **options))


@problem
def loose_tolerance() -> dict[str, Any]:
    listed = noisy(FIVE, TRIPLES, 40.0)
    return told(fit(FIVE, listed, total=600, consistency="local", tolerance=1e-2))


@problem
def seven_iterations() -> dict[str, Any]:
    listed = noisy(FOUR, CYCLE, 60.0)
    return told(fit(FOUR, listed, total=600, consistency="local", iterations=7))


@problem
def own_graph_saturated() -> dict[str, Any]:
    graph = cs.RegionGraph.saturated(FOUR, [("a", "b", "c"), ("c", "d"), ("a", "d")])
    model = fit(FOUR, noisy(FOUR, CYCLE, 20.0), total=600, consistency=graph)
    return told(model, [*CYCLE, ("a", "c")]) | {"in model": str(model.in_model(("a", "c")))}


@problem
def own_graph_by_hand() -> dict[str, Any]:
    regions = [*CYCLE, ("a",), ("b",), ("c",)]
    edges = [(p, c) for p in CYCLE for c in regions[4:] if set(c) <= set(p)]
    graph = cs.RegionGraph(FOUR, regions, edges)
    return told(fit(FOUR, noisy(FOUR, CYCLE, 20.0), total=600, consistency=graph))


@problem
def repeated_and_nested_tables() -> dict[str, Any]:
    listed = [
        *noisy(FOUR, [*CYCLE, ("a", "b"), ("a",), ("c",)], 15.0),
        *noisy(FOUR, [("b", "a"), ("b", "c", "d")], 5.0, seed=3),
    ]
    return told(fit(FOUR, listed, consistency="local"))


@problem
def repeated_and_nested_tables_global() -> dict[str, Any]:
    listed = [
        *noisy(FOUR, [*CYCLE, ("a", "b"), ("a",), ("c",)], 15.0),
        *noisy(FOUR, [("b", "a"), ("b", "c", "d")], 5.0, seed=3),
    ]
    return told(fit(FOUR, listed, consistency="global"))


@problem
def disconnected_tables() -> dict[str, Any]:
    return told(fit(FIVE, noisy(FIVE, [("a", "b"), ("c", "d")], 20.0)), [("a", "b"), ("c", "d")])


@problem
def dense_query() -> dict[str, Any]:
    over_one = asked(("c",), np.array([[0.0, 0.0, 1.0, 1.0], [1.0, 0.5, 0.0, -1.0]]))
    model = fit(FOUR, [*noisy(FOUR, CYCLE, 20.0), over_one], total=600, consistency="local")
    query = np.array([[0.0, 1.0, 1.0, 0.0]])
    return told(model) | {"answer": model.answer("c", query)}


@problem
def prefix_and_kronecker_queries() -> dict[str, Any]:
    prefix = asked(("c",), Prefix(4))
    product = asked(("c", "a"), Kronecker([Prefix(4), np.eye(3)]), seed=2)
    return told(fit(FOUR, [*noisy(FOUR, CYCLE, 20.0), prefix, product], consistency="local"))


@problem
def sparse_and_range_queries() -> dict[str, Any]:
    matrix = sparse.csr_array(np.array([[1.0, 0, 1, 0, 0, 1], [0, 1.0, 0, 0, 1, 0]]))
    listed = [asked(("a", "b"), matrix), asked(("c",), Ranges(4, [(0, 2), (1, 4), (2, 3)]), seed=4)]
    return told(fit(FOUR, [*noisy(FOUR, CHAIN, 20.0), *listed], total=600))


@problem
def queries_alone() -> dict[str, Any]:
    listed = [asked(("a", "b"), np.tri(6)), asked(("b", "c"), np.tri(8), seed=6)]
    return told(fit(FOUR, listed, total=600, consistency="local"))


@problem
def residual_queries() -> dict[str, Any]:
    ready = calibrated("ResidualPlanner", cs.Workload(FOUR, CYCLE), budget=budget())
    release = measured(ready, people(FOUR))
    model = fit(FOUR, release.measurements, total=600, consistency="local", tolerance=1e-4)
    return told(model, CYCLE)


@problem
def impossible_cells() -> dict[str, Any]:
    mask = np.ones((3, 4), dtype=bool)
    mask[0, :2] = False
    mask[2, 3] = False
    options = {"possible": {("d", "c"): mask}, "consistency": "local"}
    model = fit(FOUR, noisy(FOUR, CYCLE, 20.0), total=600, **options)
    rows = model.sample_with_report(50, rng=2)
    return told(model, [*CYCLE, ("a", "c"), ("a", "c", "d")]) | rows_of(rows)


@problem
def impossible_cells_global() -> dict[str, Any]:
    mask = np.array([[True, False], [True, True], [False, True]])
    options = {"possible": {("a", "b"): mask}, "consistency": "global"}
    return told(fit(FOUR, noisy(FOUR, CYCLE, 20.0), total=600, **options))


@problem
def laplace_likelihood() -> dict[str, Any]:
    listed = noisy(FOUR, CYCLE, 30.0, 5, "laplace")
    return told(fit(FOUR, listed, total=600, likelihood="laplace", tolerance=1e-3))


@problem
def laplace_noise_squared() -> dict[str, Any]:
    return told(fit(FOUR, noisy(FOUR, CYCLE, 30.0, 5, "laplace"), consistency="local"))


@problem
def norm_cut() -> dict[str, Any]:
    return told(fit(FOUR, noisy(FOUR, CYCLE, 60.0), total=600, nonnegativity="norm-cut"))


@problem
def norm_cut_triples() -> dict[str, Any]:
    return told(fit(FIVE, noisy(FIVE, TRIPLES, 40.0), nonnegativity="norm-cut"))


@problem
def prior_pairs() -> dict[str, Any]:
    return told(fit(FOUR, noisy(FOUR, CYCLE, 30.0), total=600, prior="independence"))


@problem
def prior_triples_other_seed() -> dict[str, Any]:
    return told(fit(FIVE, noisy(FIVE, TRIPLES, 25.0), prior="independence", seed=3))


@problem
def frustrated_local() -> dict[str, Any]:
    model = fit(TWOS, frustrated(), total=600, consistency="local")
    inferred = model.marginals(UNMEASURED, "local")
    found = {"local " + " ".join(c): t for c, t in zip(UNMEASURED, inferred, strict=True)}
    spread = spread_of(model.uncertainty(("a", "c"), method="bootstrap", replicates=4, rng=1))
    rows = rows_of(model.sample_with_report(80, rng=5))
    return told(model, [*CYCLE, *UNMEASURED]) | found | spread | rows


@problem
def frustrated_global() -> dict[str, Any]:
    model = fit(TWOS, frustrated(), total=600, consistency="global")
    return told(model, [*CYCLE, *UNMEASURED]) | rows_of(model.sample_with_report(40, rng=5))


@problem
def frustrated_factor_and_prior() -> dict[str, Any]:
    factor = told(fit(TWOS, frustrated(1), consistency="factor"), [*CYCLE, *UNMEASURED])
    pulled = told(fit(TWOS, frustrated(1), prior="independence"), [*CYCLE, *UNMEASURED])
    return {f"factor {k}": v for k, v in factor.items()} | pulled


@problem
def frustrated_prox() -> dict[str, Any]:
    model = fit(TWOS, frustrated(1), total=600, consistency="global", solver="prox", iterations=200)
    return told(model) | rows_of(model.sample_with_report(30, rng=5, sweeps=2))


@problem
def frustrated_private_pgm() -> dict[str, Any]:
    return solved(cs.private_pgm(cs.SquaredLoss(TWOS, frustrated(1), 600), iterations=150))


@problem
def frustrated_rows_as_drawn() -> dict[str, Any]:
    model = fit(TWOS, frustrated(2), total=600, consistency="local")
    return rows_of(model.sample_with_report(60, rng=8, sweeps=0))


@problem
def plans() -> dict[str, Any]:
    wide = cs.Domain({f"a{i}": 8 for i in range(12)})
    tables = [cs.Measurement(p, np.ones((8, 8)), stddev=5) for p in cs.all_marginals(wide, 2)]
    chain = [cs.Measurement((f"a{i}", f"a{i + 1}"), np.ones((8, 8)), stddev=5) for i in range(11)]
    five = [m for m in tables if set(m.attributes) <= {f"a{i}" for i in range(5)}]
    asked_for = {
        "pairs": (tables, {}),
        "chain": (chain, {}),
        "five": (five, {}),
        "five, little memory": (five, {"memory": "2200 kB"}),
        "chain, little time": (chain, {"time_limit": 1e-9}),
        "chain, local": (chain, {"consistency": "local"}),
        "chain, prox": (chain, {"solver": "prox", "consistency": "factor"}),
        "own graph": (chain, {"consistency": cs.RegionGraph.factor_graph(wide, [c.attributes for c in chain])}),
    }  # fmt: skip
    found = {k: planned(wide, m, **options) for k, (m, options) in asked_for.items()}
    return {f"{k}: {name}": v for k, plan in found.items() for name, v in plan.items()}


# -- the paper's algorithms ----------------------------------------------------------------------------


def _potentials(domain: cs.Domain, cliques: Any) -> cs.CliqueVector:
    rng = np.random.default_rng(8)
    return cs.CliqueVector.from_tables(
        domain, {tuple(c): rng.normal(size=domain.shape_of(tuple(c))) for c in cliques}
    )


def _beliefs(graph: cs.RegionGraph, cliques: Any, **options: Any) -> dict[str, Any]:
    tau = cs.convex_gbp(graph, _potentials(graph.domain, cliques), **options)
    return {"tau " + " ".join(c): t for c, t in tau.items()}


@problem
def convex_gbp_saturated() -> dict[str, Any]:
    return _beliefs(cs.RegionGraph.saturated(FIVE, TRIPLES), TRIPLES)


@problem
def convex_gbp_factor_parallel() -> dict[str, Any]:
    return _beliefs(cs.RegionGraph.factor_graph(FOUR, CYCLE), CYCLE, schedule="parallel")


@problem
def convex_gbp_junction_tree_counting_numbers() -> dict[str, Any]:
    graph = cs.RegionGraph.junction_tree(FOUR, CYCLE, counting_numbers=0.3)
    return _beliefs(graph, CYCLE)


@problem
def prox_pgm_saturated() -> dict[str, Any]:
    loss = cs.SquaredLoss(FOUR, noisy(FOUR, CYCLE, 30.0), 600)
    return solved(cs.prox_pgm(loss, cs.RegionGraph.saturated(FOUR, CYCLE), tolerance=1e-2))


@problem
def prox_pgm_factor_parallel() -> dict[str, Any]:
    loss = cs.SquaredLoss(FOUR, noisy(FOUR, CYCLE, 30.0), 600)
    graph = cs.RegionGraph.factor_graph(FOUR, CYCLE)
    return solved(cs.prox_pgm(loss, graph, iterations=150, schedule="parallel"))


@problem
def prox_pgm_accelerated() -> dict[str, Any]:
    loss = cs.SquaredLoss(FOUR, noisy(FOUR, CYCLE, 30.0), 600)
    graph = cs.RegionGraph.saturated(FOUR, CYCLE)
    return solved(cs.prox_pgm(loss, graph, iterations=60, accelerated=True))


@problem
def prox_pgm_constant_step() -> dict[str, Any]:
    loss = cs.SquaredLoss(FOUR, noisy(FOUR, CYCLE, 30.0), 600)
    graph = cs.RegionGraph.saturated(FOUR, CYCLE)
    return solved(cs.prox_pgm(loss, graph, iterations=80, step=1e-4))


@problem
def prox_pgm_absolute_junction_tree() -> dict[str, Any]:
    loss = cs.AbsoluteLoss(FOUR, noisy(FOUR, CYCLE, 30.0, law="laplace"), 600)
    graph = cs.RegionGraph.junction_tree(FOUR, CYCLE)
    return solved(cs.prox_pgm(loss, graph, iterations=150))


@problem
def prox_pgm_custom_loss() -> dict[str, Any]:
    targets = {m.attributes: m.values / 600 for m in noisy(FOUR, CYCLE, 30.0)}

    def log_cosh(tau: cs.CliqueVector) -> tuple[float, dict[Any, Any]]:
        apart = {c: 20 * (tau[c] - t) for c, t in targets.items()}
        value = sum(float(np.log(np.cosh(x)).sum()) for x in apart.values())
        return value, {c: 20 * np.tanh(x) for c, x in apart.items()}

    loss = cs.CustomLoss(log_cosh, FOUR, list(targets))
    return solved(cs.prox_pgm(loss, cs.RegionGraph.saturated(FOUR, CYCLE), iterations=150))


@problem
def prox_pgm_continued() -> dict[str, Any]:
    loss = cs.SquaredLoss(FOUR, noisy(FOUR, CYCLE, 30.0), 600)
    graph = cs.RegionGraph.saturated(FOUR, CYCLE)
    first = cs.prox_pgm(loss, graph, iterations=20)
    return solved(cs.prox_pgm(loss, graph, iterations=20, state=first.state))


@problem
def private_pgm_squared() -> dict[str, Any]:
    loss = cs.SquaredLoss(FOUR, noisy(FOUR, CYCLE, 30.0), 600)
    return solved(cs.private_pgm(loss, tolerance=1e-3))


@problem
def private_pgm_absolute_plain() -> dict[str, Any]:
    loss = cs.AbsoluteLoss(FOUR, noisy(FOUR, CYCLE, 30.0, law="laplace"), 600, smoothing=0.2)
    return solved(cs.private_pgm(loss, iterations=100, accelerated=False))


@problem
def splitting_continued_on_other_data() -> dict[str, Any]:
    graph = cs.RegionGraph.saturated(FOUR, CYCLE)
    first = cs.splitting(cs.SquaredLoss(FOUR, noisy(FOUR, CYCLE, 30.0), 600), graph)
    other = cs.SquaredLoss(FOUR, noisy(FOUR, CYCLE, 30.0, 1), 600)
    return solved(cs.splitting(other, graph, state=first.state))


@problem
def splitting_junction_tree() -> dict[str, Any]:
    loss = cs.SquaredLoss(FOUR, noisy(FOUR, CYCLE, 60.0), 600)
    return solved(cs.splitting(loss, cs.RegionGraph.junction_tree(FOUR, CYCLE), tolerance=1e-5))


# -- what a model answers ------------------------------------------------------------------------------


def _inferred(method: str) -> dict[str, Any]:
    model = fit(FOUR, noisy(FOUR, CYCLE, 20.0), total=600, consistency="local")
    asked_for = UNMEASURED if method in ("auto", "backbone") else UNMEASURED[:3]
    tables = model.marginals(asked_for, method)
    return {" ".join(c): t for c, t in zip(asked_for, tables, strict=True)}


for _method in ("auto", "backbone", "local", "product", "expanded"):
    PROBLEMS[f"inferred_{_method}"] = partial(_inferred, _method)


@problem
def inferred_from_global_and_factor() -> dict[str, Any]:
    listed = noisy(FOUR, CYCLE, 20.0)
    found = {}
    for kind in ("global", "factor"):
        model = fit(FOUR, listed, total=600, consistency=kind)
        found |= {f"{kind} {k}": v for k, v in tables_of(model, UNMEASURED[:3]).items()}
    return found


@problem
def inferred_five_attributes() -> dict[str, Any]:
    model = fit(FIVE, noisy(FIVE, FIVE_PAIRS, 15.0), total=600, consistency="local")
    return tables_of(model, [("a", "c"), ("a", "d"), ("c", "e"), ("a", "c", "d"), ("e", "b", "d")])


@problem
def counts_by_condition() -> dict[str, Any]:
    model = fit(FOUR, noisy(FOUR, CYCLE, 20.0), total=600, consistency="local")
    asked_for = [{"a": 1}, {"a": [0, 2], "b": 1}, {"c": range(1, 4), "a": 0}, {"b": 0, "d": 2}]
    return {"counts": np.array(model.counts(asked_for))}


@problem
def trust() -> dict[str, Any]:
    listed = noisy(FIVE, [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")], 15.0)
    model = fit(FIVE, listed, total=600, consistency="local")
    found = {}
    for clique in (("a", "b"), ("a", "c"), ("b", "d"), ("a", "e")):
        for method in ("auto", "local"):
            told_of = trust_of(model.trust(clique, method))
            found |= {f"{' '.join(clique)} {method} {k}": v for k, v in told_of.items()}
    again = model.trust(("a", "c"), replicates=4, rng=3)
    return found | {"stderr": again.stderr, "replicates": again.replicates}


@problem
def stderr_closed_form() -> dict[str, Any]:
    model = fit(FOUR, noisy(FOUR, CYCLE, 2.0), total=600, consistency="local")
    query = np.tri(4)
    low, high = model.interval(("a", "b"), 0.9, method="closed-form")
    return {
        **spread_of(model.uncertainty(("a", "b"), method="closed-form"), "ab"),
        **spread_of(model.uncertainty("c", query, method="closed-form"), "c"),
        "low": low,
        "high": high,
    }


@problem
def stderr_auto_clear_of_zero() -> dict[str, Any]:
    data = [cs.Measurement(m.attributes, m.values + 200, stddev=8) for m in noisy(FOUR, CHAIN)]
    model = fit(FOUR, data, consistency="global")
    return spread_of(model.uncertainty(("b", "a"))) | {"stderr d": model.stderr("d")}


@problem
def stderr_bootstrap_local() -> dict[str, Any]:
    model = fit(FOUR, noisy(FOUR, CYCLE, 30.0), total=600, consistency="local")
    low, high = model.interval(("a", "b"), 0.8, replicates=6, rng=1)
    found = spread_of(model.uncertainty(("c", "b"), replicates=6, rng=1), "cb")
    many = model.uncertainties(["a", ("a", "d")], method="bootstrap", replicates=5, rng=2)
    return (
        found
        | {"low": low, "high": high}
        | spread_of(many[0], "a")
        | spread_of(many[1], "ad")
        | spread_of(model.uncertainty("c", np.tri(4), method="bootstrap", replicates=5), "query")
    )


@problem
def stderr_bootstrap_global_total_unknown() -> dict[str, Any]:
    model = fit(FOUR, noisy(FOUR, CYCLE, 30.0), consistency="global")
    return spread_of(model.uncertainty(("c", "b"), method="bootstrap", replicates=5, rng=1))


@problem
def stderr_bootstrap_inferred() -> dict[str, Any]:
    model = fit(FOUR, noisy(FOUR, CYCLE, 20.0), total=600, consistency="local")
    return spread_of(model.uncertainty(("a", "c"), method="bootstrap", replicates=4, rng=1))


@problem
def stderr_bootstrap_prior() -> dict[str, Any]:
    model = fit(FOUR, noisy(FOUR, CHAIN, 30.0), total=600, prior="independence")
    return spread_of(model.uncertainty(("a", "b"), replicates=3, rng=1))


@problem
def stderr_bootstrap_other_fits() -> dict[str, Any]:
    cut = fit(FOUR, noisy(FOUR, CYCLE, 30.0), total=600, nonnegativity="norm-cut")
    listed = noisy(FOUR, CYCLE, 30.0, law="laplace")
    median = fit(FOUR, listed, total=600, likelihood="laplace", tolerance=1e-3)
    mask = np.array([[True, False], [True, True], [False, True]])
    held = fit(FOUR, noisy(FOUR, CYCLE, 30.0), total=600, possible={("a", "b"): mask})
    return {
        **spread_of(cut.uncertainty(("a", "b"), replicates=4, rng=1), "norm-cut"),
        **spread_of(median.uncertainty(("a", "b"), replicates=4, rng=1), "laplace"),
        **spread_of(held.uncertainty(("a", "b"), replicates=4, rng=1), "possible"),
    }


@problem
def rows_global() -> dict[str, Any]:
    model = fit(FOUR, noisy(FOUR, CYCLE, 10.0), total=600, consistency="global")
    return rows_of(model.sample_with_report(60, rng=5))


@problem
def rows_local() -> dict[str, Any]:
    model = fit(FOUR, noisy(FOUR, CYCLE, 60.0, 1), total=600, consistency="local")
    return rows_of(model.sample_with_report(80, rng=5))


@problem
def rows_local_no_sweeps() -> dict[str, Any]:
    model = fit(FOUR, noisy(FOUR, CYCLE, 60.0, 1), total=600, consistency="local")
    return rows_of(model.sample_with_report(50, rng=6, sweeps=0))


@problem
def rows_unmeasured_attribute() -> dict[str, Any]:
    model = fit(FIVE, noisy(FIVE, CHAIN, 10.0), total=600, consistency="local")
    return rows_of(model.sample_with_report(50, rng=7, sweeps=3))


@problem
def saved_and_loaded() -> dict[str, Any]:
    mask = np.array([[True, False], [True, True], [True, True]])
    listed = [*noisy(FOUR, CYCLE, 20.0), asked(("c",), Prefix(4))]
    model = fit(FOUR, listed, consistency="local", possible={("a", "b"): mask})
    with tempfile.TemporaryDirectory() as place:
        model.save(Path(place) / "model.npz")
        back = cs.load(Path(place) / "model.npz")
    return {
        **told(back, [*CYCLE, ("a", "c")]),
        **spread_of(back.uncertainty("c", replicates=4, rng=1)),
        "rows": back.sample(30, rng=1).to_array(),
    }


# -- mechanisms ----------------------------------------------------------------------------------------


def _pairs() -> cs.Workload:
    return cs.all_marginals(FOUR, 2)


def _distances(ready: Any) -> dict[str, Any]:
    return {
        "expected rmse": np.array(list(ready.expected_rmse.values())),
        "expected l1": np.array(list(ready.expected_l1.values())),
    }


def _fixed(name: str, *arguments: Any, budget: cs.Budget, **options: Any) -> dict[str, Any]:
    """A mechanism with fixed tables: what is known before, and one release of it."""
    ready = calibrated(name, *arguments, budget=budget, **options)
    found = {"expected rmse": np.array(list(ready.expected_rmse.values()))}
    if hasattr(ready, "expected_l1"):
        found |= _distances(ready)
    if hasattr(ready, "expected_overall_rmse"):
        found["overall rmse"] = ready.expected_overall_rmse
    return found | plan_of(ready.plan) | result_of(released(ready, people(FOUR)), CYCLE)


@problem
def gaussian_replace_one() -> dict[str, Any]:
    return _fixed("Gaussian", _pairs(), budget=budget())


@problem
def gaussian_add_remove_rho_weights() -> dict[str, Any]:
    weights = {c: 1.0 + i for i, c in enumerate(CYCLE)}
    workload = cs.Workload(FOUR, CYCLE)
    return _fixed(
        "Gaussian", workload, budget=budget(rho=0.05, **ADD), weights=weights, consistency="local"
    )


@problem
def gaussian_accounting_optimal_weights_prior() -> dict[str, Any]:
    own = budget(epsilon=1, delta=1e-6, accounting="gaussian", **REPLACE)
    options = {"weights": "optimal", "prior": "independence"}
    return _fixed("Gaussian", cs.Workload(FOUR, CHAIN), budget=own, **options)


@problem
def laplace() -> dict[str, Any]:
    return _fixed("Laplace", _pairs(), budget=budget(epsilon=1, **REPLACE))


@problem
def laplace_add_remove_optimal_weights() -> dict[str, Any]:
    own = budget(epsilon=0.5, delta=1e-6, **ADD)
    return _fixed("Laplace", cs.Workload(FOUR, CYCLE), budget=own, weights="optimal")


@problem
def hdmm_auto() -> dict[str, Any]:
    return _fixed("HDMM", _pairs(), budget=budget())


@problem
def hdmm_laplace_slack() -> dict[str, Any]:
    own = budget(epsilon=1, **ADD)
    return _fixed("HDMM", _pairs(), budget=own, slack=0.1, noise="laplace", consistency="local")


@problem
def hdmm_gaussian_prior() -> dict[str, Any]:
    return _fixed("HDMM", _pairs(), budget=budget(), noise="gaussian", prior="independence")


@problem
def hdmm_prefix() -> dict[str, Any]:
    workload = cs.Workload(FOUR, CYCLE)
    own = budget(rho=0.1, **REPLACE)
    return _fixed("HDMM", workload, {"c": Prefix(4)}, budget=own, restarts=1)


@problem
def hdmm_ranges_laplace() -> dict[str, Any]:
    ranges = Ranges(4, [(0, 2), (1, 3), (0, 4), (3, 4)])
    workload = cs.Workload(FOUR, CHAIN)
    return _fixed("HDMM", workload, {"c": ranges}, budget=budget(epsilon=1, **ADD), restarts=1)


@problem
def residual_planner() -> dict[str, Any]:
    ready = calibrated("ResidualPlanner", _pairs(), budget=budget())
    straight = ready.unbiased(measured(ready, people(FOUR)))
    return {
        "variance": ready.expected_variance(("a", "b")),
        **{"unbiased " + " ".join(c): straight[c] for c in CYCLE},
        **_fixed("ResidualPlanner", _pairs(), budget=budget()),
    }


@problem
def residual_planner_add_remove_weights() -> dict[str, Any]:
    workload = cs.Workload(FOUR, {c: 1.0 + i for i, c in enumerate(CYCLE)})
    options = {"consistency": "local", "prior": None}
    return _fixed("ResidualPlanner", workload, budget=budget(rho=0.05, **ADD), **options)


def _adaptive(name: str, workload: cs.Workload, own: cs.Budget, **options: Any) -> dict[str, Any]:
    ready = calibrated(name, workload, budget=own, **options)
    result = released(ready, people(workload.domain, 1500))
    return plan_of(ready.plan) | result_of(result, list(workload))


@problem
def mwem_default() -> dict[str, Any]:
    return _adaptive("MWEM", _pairs(), budget(epsilon=2, **REPLACE), rounds=4)


@problem
def mwem_default_five_gaussian() -> dict[str, Any]:
    return _adaptive("MWEM", cs.Workload(FIVE, FIVE_PAIRS), budget(), rounds=4)


@problem
def mwem_local() -> dict[str, Any]:
    own = budget(epsilon=2, **REPLACE)
    return _adaptive("MWEM", _pairs(), own, rounds=4, consistency="local")


@problem
def mwem_global() -> dict[str, Any]:
    return _adaptive("MWEM", _pairs(), budget(), rounds=4, consistency="global")


@problem
def mwem_prior_add_remove() -> dict[str, Any]:
    own = budget(epsilon=2, delta=1e-6, **ADD)
    return _adaptive("MWEM", _pairs(), own, rounds=3, prior="independence", noise="gaussian")


@problem
def mwem_possible_and_backbone() -> dict[str, Any]:
    mask = np.ones((3, 2), dtype=bool)
    mask[2, 0] = False
    own = budget(rho=0.2, **REPLACE)
    options = {"per_round": Rho(0.05), "possible": {("a", "b"): mask}, "select_share": 0.25}
    workload = cs.Workload(FOUR, {("a", "b"): 8.0, ("b", "c"): 1.0, ("c", "d"): 1.0, ("a", "d"): 1})
    return _adaptive("MWEM", workload, own, **options)


@problem
def mwem_splitting_backbone() -> dict[str, Any]:
    own = budget(epsilon=2, **REPLACE)
    options = {"per_round": Epsilon(0.5), "solver": "splitting", "allowance": "cells"}
    return _adaptive("MWEM", cs.all_marginals(FIVE, 2), own, **options)


@problem
def mwem_as_published() -> dict[str, Any]:
    own = budget(epsilon=4, **REPLACE)
    return _adaptive("MWEM.as_published", _pairs(), own, epsilon=0.7, rounds=3)


@problem
def mwem_round_by_round() -> dict[str, Any]:
    ready = calibrated("MWEM", _pairs(), budget=budget(epsilon=2, **REPLACE), rounds=5)
    run = rounds_of(ready, people(FOUR, 1500), 4)
    found: dict[str, Any] = {}
    for made in run:
        name = f"round {made.number}"
        found[f"{name} chose"] = " ".join(made.measurement.attributes)
        found[f"{name} answers"] = next(iter(run.answers([("b", "d")])))
        if made.number == 3:
            break
    return found | result_of(ready.reconstruct(run.release), list(_pairs()))


@problem
def mwem_stderr_and_rows() -> dict[str, Any]:
    ready = calibrated("MWEM", _pairs(), budget=budget(), rounds=3)
    model = released(ready, people(FOUR, 1500)).model
    clique = model.cliques[0]
    found = spread_of(model.uncertainty(clique, method="bootstrap", replicates=3, rng=1))
    return found | rows_of(model.sample_with_report(50, rng=1)) | tables_of(model, UNMEASURED)


@problem
def aim_default() -> dict[str, Any]:
    own = budget(epsilon=2, delta=1e-6, **ADD)
    return _adaptive("AIM", cs.all_marginals(FOUR, 2), own, rounds_per_attribute=3)


@problem
def aim_local_triples() -> dict[str, Any]:
    workload = cs.Workload(FIVE, [("a", "b", "c"), ("c", "d", "e"), ("a", "e")])
    return _adaptive("AIM", workload, budget(), rounds_per_attribute=2, consistency="local")


@problem
def aim_global() -> dict[str, Any]:
    own = budget(rho=0.3, **REPLACE)
    return _adaptive("AIM", _pairs(), own, rounds_per_attribute=2, consistency="global")


@problem
def aim_prior() -> dict[str, Any]:
    own = budget(epsilon=1, delta=1e-6, **REPLACE)
    workload = cs.Workload(FOUR, CHAIN)
    return _adaptive("AIM", workload, own, rounds_per_attribute=2, prior="independence")


def _game(name: str, own: cs.Budget | None = None, **options: Any) -> dict[str, Any]:
    ready = calibrated(name, _pairs(), budget=own or budget(), **options)
    result = released(ready, people(FOUR))
    records = result.release.rows.marginals(CYCLE)
    return {
        **plan_of(ready.plan),
        **result_of(result, list(_pairs())),
        **{"records " + " ".join(c): t for c, t in records.items()},
    }


@problem
def fem() -> dict[str, Any]:
    return _game("FEM", rounds=10, samples=20)


@problem
def fem_factor_fit() -> dict[str, Any]:
    own = game_fit(consistency="factor", iterations=30, blend=0.8)
    return _game("FEM", rounds=8, samples=10, seed=3, fit=own)


@problem
def fem_as_published() -> dict[str, Any]:
    own = budget(epsilon=0.1, delta=1e-6, **REPLACE)
    return _game("FEM.as_published", own, preset="adult, 5-way")


@problem
def dual_query() -> dict[str, Any]:
    return _game("DualQuery", rounds=20, samples=5, restarts=3)


# -- baselines and comparison --------------------------------------------------------------------------


@problem
def priview() -> dict[str, Any]:
    found = {}
    for how in ("norm-cut", "norm-sub"):
        options = {"total": 600, "nonnegativity": how, "rounds": 30}
        made = cs.baselines.priview(FIVE, noisy(FIVE, TRIPLES, 25.0), **options)
        found |= {f"{how} {k}": v for k, v in tables_of(made, TRIPLES[2:]).items()}
        found |= {f"{how} rounds": made.rounds, f"{how} violation": made.violation}
    return found


@problem
def norm_cut_and_norm_sub_of_one_table() -> dict[str, Any]:
    table = noisy(FOUR, [("c", "d")], 60.0)[0].values
    return {"cut": cs.baselines.norm_cut(table), "sub": cs.baselines.norm_sub(table)}


@problem
def relaxed_projection() -> dict[str, Any]:
    options = {"total": 600, "components": 10, "iterations": 100, "seed": 2}
    made = cs.baselines.relaxed_projection(FOUR, noisy(FOUR, CYCLE, 25.0), **options)
    found = {"objective": made.objective, "iterations": made.iterations}
    return found | {"components": made.components} | tables_of(made, [*CYCLE, ("a", "c")])


def _compared(found: Any) -> dict[str, Any]:
    fields = ("total_variation", "validation", "objective", "violation", "negative")
    return {
        "total": found.total,
        "cells": found.cells,
        **{f"{r.method} {f}": getattr(r, f) for r in found.rows for f in fields if r.done},
        **{f"{r.method} done": str(r.done) for r in found.rows},
    }


@problem
def compared_with_truth() -> dict[str, Any]:
    truth = people(FOUR).marginals(CYCLE)
    names = ("noisy", "global", "local", "factor", "prior", "norm-cut", "priview")
    own = {"truth": truth, "methods": (*names, "priview-norm-sub")}
    return _compared(cs.compare(FOUR, noisy(FOUR, CYCLE, 25.0), total=600, **own))


@problem
def compared_by_validation() -> dict[str, Any]:
    names = ("noisy", "global", "local", "factor", "norm-cut", "priview")
    return _compared(cs.compare(FOUR, noisy(FOUR, CYCLE, 25.0), methods=names, seed=4))


@problem
def compared_with_refusals_and_own_method() -> dict[str, Any]:
    def own(domain: cs.Domain, measurements: Any, total: float) -> Any:
        return fit(domain, measurements, total=total, consistency="factor", iterations=5)

    listed = [*noisy(FOUR, CHAIN, 25.0), asked(("c",), Prefix(4))]
    names = ("noisy", "local", "prior", "priview")
    refused = _compared(cs.compare(FOUR, listed, total=600, methods=names))
    return refused | _compared(cs.compare(FOUR, listed, total=600, methods={"mine": own}))


# -- the file ------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value as JSON keeps it: strings and whole numbers as they are, others as floats in full precision."""
    if isinstance(value, str):
        return value
    array = np.asarray(value)
    if array.dtype == bool:
        raise TypeError("a golden value must be a number, an array or a string, got a truth value")
    whole = np.issubdtype(array.dtype, np.integer)
    return np.ravel(array).astype(int if whole else float).tolist() if array.ndim else array.item()


def computed(name: str) -> dict[str, Any]:
    return {key: plain(value) for key, value in PROBLEMS[name]().items()}


def written(entries: dict[str, Any]) -> str:
    """One line per value, so that a difference can be read."""
    return json.dumps(
        {
            name: {k: json.dumps(v, separators=(",", ":")) for k, v in found.items()}
            for name, found in sorted(entries.items())
        },
        indent=0,
    )


def read(path: Path = GOLDEN) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    entries = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: {k: json.loads(v) for k, v in found.items()}
        for name, found in sorted(entries.items())
    }


def main(words: list[str]) -> None:
    if "--write" not in words:
        sys.exit(__doc__)
    path = Path(words[words.index("--to") + 1]) if "--to" in words else GOLDEN
    forced = words[words.index("--force") + 1 :] if "--force" in words else []
    if unknown := [name for name in forced if name not in PROBLEMS]:
        sys.exit(f"no such problem: {', '.join(unknown)}")
    entries = read(path)
    for name in PROBLEMS:
        if name in entries and name not in forced:
            print(f"kept     {name}")
            continue
        began = time.perf_counter()
        entries[name] = computed(name)
        print(f"{time.perf_counter() - began:6.2f} s {name}", flush=True)
    path.write_text(written(entries) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
