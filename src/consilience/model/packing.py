"""Packing: a model as named arrays and one JSON text, and back.

Entries: `consilience` (JSON as UTF-8 bytes), `tau`, `edges`, `counting_numbers`, `region_names` and `region_ends` (positions of
attributes, region after region), the same for what was measured, `values`, `value_ends`, `stddevs`, `noises`, `queries` (position
in the JSON's list of queries, -1 for the whole table), and one entry per matrix of a query or declared mask. Structured queries
are stored by their parameters, matrices by their entries.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Clique, CliqueVector, Domain, Layout
from consilience.errors import ConsilienceError
from consilience.measurements import Bounds, Control, Exact, Measurements
from consilience.measurements.measurements import NOISES
from consilience.model.diagnostics import Diagnostics
from consilience.model.fit import Fit
from consilience.model.impossible import trusted
from consilience.model.keeping import (
    Arrays,
    floats,
    ints,
    pack_cliques,
    pack_kept,
    unpack_cliques,
    unpack_kept,
)
from consilience.model.packed_queries import QueryReader, QueryWriter
from consilience.progress import Iteration
from consilience.regions.junction_tree import JunctionTree
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.planner import Option, Plan
from consilience.tree.answers import Backbone
from consilience.tree.fit import TreeFit
from consilience.tree.support import SupportTree

if TYPE_CHECKING:
    from consilience.model.model import Model

FORMAT = "consilience model"
VERSION = 2
LOOK = ("done", "objective", "gap", "violation")
"""What is kept of an iteration."""
Fits = Mapping[str, Callable[..., Fit]]


# -- packing -----------------------------------------------------------------------------------------


def packed(model: Model) -> Arrays:
    arrays: Arrays = {
        "tau": model.tau.values,
        "edges": model.graph.edge_array,
        "counting_numbers": model.graph.counting_numbers,
    }
    arrays |= pack_cliques("region", model.domain, model.graph.regions)
    measured = model.measurements
    arrays |= pack_cliques("measured", model.domain, measured.cliques)
    queries = QueryWriter()
    places = np.full(len(measured), -1, np.int64)
    for i, query in sorted(measured.queries.items(), key=lambda item: item[0]):
        places[i] = queries.add(query)
    arrays["queries"] = places
    arrays["values"] = measured.values
    arrays["value_ends"] = measured.at[1:]
    arrays["stddevs"] = measured.stddevs
    arrays["noises"] = measured.noises
    for k, level in enumerate(model.domain.levels.values()):
        arrays[f"level_{k}"] = level.units
    for k, mask in enumerate(model.masks.values()):
        arrays[f"possible_{k}"] = np.asarray(mask, bool)
    controls = () if model.fit is None else model.fit.controls
    for k, control in enumerate(controls):
        arrays |= {f"control_low_{k}": control.low, f"control_high_{k}": control.high}
    tree, plan = model.tree, model.diagnostics.plan
    if tree is not None:
        arrays |= _pack_tree(model.domain, tree)
    kept, about = pack_kept(model)
    arrays |= kept
    described = {
        "format": FORMAT,
        "version": VERSION,
        "domain": [[name, size] for name, size in model.domain.sizes.items()],
        **({"labels": dict(model.domain.labels)} if model.domain.labels else {}),
        "levels": [[v.name, v.attribute] for v in model.domain.levels.values()],
        "total": model.total,
        "graph": model.graph.kind,
        "queries": queries.records,
        "fit": _pack_fit(model.fit),
        "possible": [list(c) for c in model.masks],
        "controls": [[type(c).__name__, *c.attributes] for c in controls],
        "total_known": model.total_known,
        "tree": tree and {"whole": tree.whole, "steps": tree.fit.iterations, "misfit": tree.misfit},
        "diagnostics": {
            f.name: getattr(model.diagnostics, f.name)
            for f in fields(Diagnostics)
            if f.name not in ("plan", "trace")
        },
        "plan": None if plan is None else _pack_plan(plan),
        "kept": about,
        "trace": [[getattr(look, k) for k in LOOK] for look in model.diagnostics.trace],
    }
    text = json.dumps(_to_json(described), allow_nan=False, ensure_ascii=True)
    first: Arrays = {"consilience": np.frombuffer(text.encode(), np.uint8)}
    return first | arrays | queries.arrays


def _pack_tree(domain: Domain, tree: Backbone) -> Arrays:
    """The cliques and edges of the tree, what it was fitted to, its possible cells and their probabilities."""
    fit = tree.fit
    cells = fit.support.cells
    return {
        **pack_cliques("tree", domain, tree.tree.cliques),
        **pack_cliques("fitted", domain, tree.cliques),
        "tree_edges": np.array(tree.tree.edges, np.int64).reshape(-1, 2),
        "tree_cells": np.concatenate([c.reshape(-1) for c in cells]),
        "tree_counts": np.array([len(c) for c in cells], np.int64),
        "tree_tables": np.concatenate(fit.tables),
        "tree_potentials": fit.theta.values,
    }


def _pack_plan(plan: Plan) -> dict[str, Any]:
    kept = {f.name: getattr(plan, f.name) for f in fields(plan) if f.name != "make_graph"}
    return kept | {"options": [asdict(o) for o in plan.options]}


def _pack_fit(fit: Fit | None) -> dict[str, Any] | None:
    """The estimator by name with its settings; masks lie beside it, and a graph of its own is the model's graph."""
    if fit is None:
        return None
    settings = {f.name: getattr(fit, f.name) for f in fields(fit)} if is_dataclass(fit) else {}
    for name in ("possible", "controls", *fit.aside):
        settings.pop(name, None)
    own = isinstance(settings.get("consistency"), RegionGraph)
    if own:
        del settings["consistency"]
    kind = type(fit)
    name = f"{kind.__module__}.{kind.__name__}"
    name = kind.__name__ if name.startswith("consilience.") else name
    try:
        return {"name": name, "settings": _to_json(settings), "own_graph": own}
    except TypeError:  # somebody's own estimator, with settings that JSON has no word for: answers are kept all the same
        return {"name": name, "settings": None, "own_graph": own}


def _to_json(value: Any) -> Any:
    """Floats that JSON has no word for become {"float": "inf"}, integers beyond 2^53 {"int": "0x..."}."""
    match value:
        case dict():
            return {k: _to_json(v) for k, v in value.items()}
        case list() | tuple():
            return [_to_json(v) for v in value]
        case bool() | None | str():
            return value
        case int() | np.integer():
            return int(value) if abs(value) <= 2**53 else {"int": hex(value)}
        case float() | np.floating():
            return float(value) if isfinite(value) else {"float": str(float(value))}
    raise TypeError(f"no JSON for {type(value).__name__}")


# -- unpacking ---------------------------------------------------------------------------------------


def described_by(entry: NDArray[Any]) -> Any:
    """The JSON of a file."""
    return json.loads(entry.tobytes().decode(), object_hook=_from_json)


def _from_json(given: dict[str, Any]) -> Any:
    if given.keys() == {"float"}:
        return float(given["float"])
    if given.keys() == {"int"}:
        return int(given["int"], 16)
    return given


def unpacked(
    arrays: Mapping[str, NDArray[Any]], described: dict[str, Any], fits: Fits
) -> dict[str, Any]:
    """The fields of the model that was packed; `fits` are the estimators that are known, by name."""
    levels = {
        name: (attribute, ints(arrays[f"level_{k}"]))
        for k, (name, attribute) in enumerate(described.get("levels") or [])
    }
    sizes = [(name, size) for name, size in described["domain"]]
    domain = Domain(sizes, levels, described.get("labels"))
    kappa = floats(arrays["counting_numbers"])
    regions = unpack_cliques("region", domain, arrays)
    graph = RegionGraph(domain, regions, ints(arrays["edges"]), kappa, described["graph"])
    if graph.regions != regions:
        raise ConsilienceError("regions repeat")
    tau = CliqueVector(graph.layout, floats(arrays["tau"]))
    total = float(described["total"])
    if not (isfinite(total) and total > 0 and np.isfinite(tau.values).all()):
        raise ConsilienceError("numbers are not finite")
    measured = _measurements(domain, arrays, described["queries"])
    estimator = _fit(described, graph, arrays, fits)
    stated = estimator["fit"].stated if estimator["fit"] else _masks(described.get("possible") or [], arrays)  # fmt: skip
    known = trusted(graph, tau, measured.cliques.distinct(empty=False), stated)
    return {
        "domain": domain,
        "total": total,
        "graph": graph,
        "tau": tau,
        "measurements": measured,
        "diagnostics": Diagnostics(
            plan=_plan(described["plan"]),
            trace=tuple(
                Iteration("reconstructing", number, None, None, *look)
                for number, *look in described.get("trace", ())
            ),
            **{k: v for k, v in described["diagnostics"].items() if k != "prior"},
        ),
        **estimator,
        "tree": _tree(described.get("tree"), domain, arrays),
        **unpack_kept(arrays, described.get("kept") or {}, known),
    }


def _measurements(
    domain: Domain, arrays: Mapping[str, NDArray[Any]], records: Sequence[Any]
) -> Measurements:
    cliques, values = unpack_cliques("measured", domain, arrays), floats(arrays["values"])
    at = np.concatenate([np.zeros(1, np.int64), ints(arrays["value_ends"])])
    stddevs, noises = floats(arrays["stddevs"]), ints(arrays["noises"])
    places = ints(arrays["queries"])
    if not len(cliques) == len(at) - 1 == len(stddevs) == len(noises) == len(places):
        raise ConsilienceError("measurements are not all there")
    if at[-1] != values.size:
        raise ConsilienceError("values are left over")
    reader = QueryReader(records, arrays, domain.levels)
    queries = {i: reader[int(places[i])] for i in np.flatnonzero(places >= 0).tolist()}
    counts = cliques.sizes.copy()
    for i, query in queries.items():
        if query.cells != counts[i]:
            raise ConsilienceError(f"the measurement of {cliques[i]} does not fit")
        counts[i] = query.rows
    wrong = (np.diff(at) != counts) | ~(np.isfinite(stddevs) & (stddevs > 0))
    wrong |= (noises < 0) | (noises >= len(NOISES))
    if wrong.any():
        raise ConsilienceError(f"the measurement of {cliques[int(np.argmax(wrong))]} does not fit")
    return Measurements.made(cliques, values, at, stddevs, noises.astype(np.uint8), queries)


def _plan(given: dict[str, Any] | None) -> Plan | None:
    if given is None:
        return None
    rest = {k: v for k, v in given.items() if k != "options"}
    return Plan(**rest, options=tuple(Option(**o) for o in given["options"]))


def _fit(
    described: dict[str, Any], graph: RegionGraph, arrays: Mapping[str, NDArray[Any]], fits: Fits
) -> dict[str, Any]:
    """The estimator and whether the total was known. An estimator that is not known here is left out: the model answers, and
    refuses to be fitted again.
    """
    if described["version"] == 1:
        return _fit_of_version_1(described["settings"], graph, arrays, fits)
    found, given = None, described["fit"]
    if given is not None and given["name"] in fits:
        settings = dict(given["settings"])
        if given["own_graph"]:
            settings["consistency"] = graph
        if described["possible"]:
            settings["possible"] = _masks(described["possible"], arrays)
        if described.get("controls"):
            settings["controls"] = _controls(described["controls"], arrays)
        found = fits[given["name"]](**settings)
    return {"fit": found, "total_known": bool(described["total_known"])}


def _fit_of_version_1(
    old: dict[str, Any] | None,
    graph: RegionGraph,
    arrays: Mapping[str, NDArray[Any]],
    fits: Fits,
) -> dict[str, Any]:
    """The options of `reconstruct` in version 0.1 as the estimator that they meant, on the graph of the model."""
    if old is None:
        return {"fit": None}
    settings: dict[str, Any] = {"consistency": graph}
    masks = _masks(old["possible"], arrays)
    if old["prior"] is not None:
        name = "Shrunk"
        settings |= {"tolerance": old["tolerance"], "seed": old["seed"]}
    elif old.get("nonnegativity", "optimal") != "optimal":
        name = "NormCut"
    else:
        name = "LeastSquares"
        settings |= {"tolerance": old["tolerance"], "iterations": old["iterations"]}
        settings |= {"possible": masks}
        if old.get("likelihood", "squared") != "squared":
            name = "LaplaceLikelihood"
        else:
            settings["solver"] = old["solver"]
    return {"fit": fits[name](**settings), "total_known": bool(old["total_known"])}


def _tree(
    given: dict[str, Any] | None, domain: Domain, arrays: Mapping[str, NDArray[Any]]
) -> Backbone | None:
    if given is None:
        return None
    cliques, fitted = (
        unpack_cliques("tree", domain, arrays),
        unpack_cliques("fitted", domain, arrays),
    )
    edges = tuple((int(i), int(j)) for i, j in ints(arrays["tree_edges"]))
    separators = tuple(tuple(a for a in cliques[i] if a in cliques[j]) for i, j in edges)
    tree = JunctionTree(domain, tuple(cliques), edges, separators)
    counts = ints(arrays["tree_counts"])
    ends = np.cumsum(counts * np.array([len(c) for c in cliques]))
    codes = np.split(arrays["tree_cells"].astype(np.int16), ends[:-1])
    cells = [c.reshape(-1, len(k)) for c, k in zip(codes, cliques, strict=True)]
    support = SupportTree.on(tree, cells)
    tables = tuple(np.split(floats(arrays["tree_tables"]), np.cumsum(counts)[:-1]))
    if any(len(t) != len(c) for t, c in zip(tables, support.cells, strict=True)):
        raise ConsilienceError("the tree's tables do not fit its cells")
    theta = CliqueVector(Layout(domain, fitted), floats(arrays["tree_potentials"]))
    fit = TreeFit(support, tables, theta, float(given["misfit"]), int(given["steps"]))
    return Backbone(tuple(fitted), fit, bool(given["whole"]))


def _controls(given: list[list[str]], arrays: Mapping[str, NDArray[Any]]) -> tuple[Control, ...]:
    found: list[Control] = []
    for k, (kind, *names) in enumerate(given):
        ends = (floats(arrays[f"control_{end}_{k}"]) for end in ("low", "high"))
        low, high = (end.reshape(()) if end.size == 1 else end for end in ends)
        found.append(Exact(names, low) if kind == "Exact" else Bounds(names, low, high))
    return tuple(found)


def _masks(cliques: list[list[str]], arrays: Mapping[str, NDArray[Any]]) -> dict[Clique, Any]:
    return {tuple(c): arrays[f"possible_{k}"] for k, c in enumerate(cliques)}
