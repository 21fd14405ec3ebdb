"""Packing: a model as named arrays and one JSON text, and back.

Entries: `consilience` (JSON as UTF-8 bytes), `tau`, `edges`, `counting_numbers`, `region_names` and `region_ends` (positions of
attributes, region after region), the same for what was measured, `values`, `value_ends`, `stddevs`, `noises`, `queries` (position
in the JSON's list of queries, -1 for the whole table), and one entry per matrix of a query or declared mask.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Clique, CliqueVector, Domain
from consilience.errors import ConsilienceError
from consilience.inference.diagnostics import Diagnostics
from consilience.inference.settings import Settings
from consilience.inference.stored_queries import Arrays, QueryReader, QueryWriter
from consilience.measurements import BoundMeasurement, Identity
from consilience.measurements.measurement import Noise
from consilience.progress import Iteration
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.planner import Option, Plan

if TYPE_CHECKING:
    from consilience.inference.model import Model

FORMAT = "consilience model"
VERSION = 1
NOISES: tuple[Noise, ...] = ("gaussian", "laplace")


# -- packing -----------------------------------------------------------------------------------------


def packed(model: Model) -> Arrays:
    arrays: Arrays = {
        "tau": model.tau.values,
        "edges": model.graph.edge_array,
        "counting_numbers": model.graph.counting_numbers,
    }
    arrays |= _pack_cliques("region", model.domain, model.graph.regions)
    measured = model.measurements
    arrays |= _pack_cliques("measured", model.domain, [m.clique for m in measured])
    queries = QueryWriter()
    arrays["queries"] = np.array(
        [-1 if m.is_identity else queries.add(m.query) for m in measured], np.int64
    )
    arrays["values"] = np.concatenate([np.zeros(0), *(m.values for m in measured)])
    arrays["value_ends"] = np.cumsum([m.values.size for m in measured], dtype=np.int64)
    arrays["stddevs"] = np.array([m.stddev for m in measured], np.float64)
    arrays["noises"] = np.array([NOISES.index(m.noise) for m in measured], np.uint8)
    settings = None
    if model.settings is not None:
        settings = {f.name: getattr(model.settings, f.name) for f in fields(Settings)}
        masks = settings.pop("possible")
        settings["possible"] = [list(c) for c in masks]
        for k, mask in enumerate(masks.values()):
            arrays[f"possible_{k}"] = np.asarray(mask, bool)
    plan = model.diagnostics.plan
    described = {
        "format": FORMAT,
        "version": VERSION,
        "domain": [[name, size] for name, size in model.domain.sizes.items()],
        "total": model.total,
        "graph": model.graph.kind,
        "queries": queries.records,
        "settings": settings,
        "diagnostics": {
            f.name: getattr(model.diagnostics, f.name)
            for f in fields(Diagnostics)
            if f.name not in ("plan", "trace")
        },
        "plan": None if plan is None else asdict(plan),
        "trace": [(i.done, i.objective, i.gap, i.violation) for i in model.diagnostics.trace],
    }
    text = json.dumps(_to_json(described), allow_nan=False, ensure_ascii=True)
    first: Arrays = {"consilience": np.frombuffer(text.encode(), np.uint8)}
    return first | arrays | queries.arrays


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


def _pack_cliques(name: str, domain: Domain, cliques: Iterable[Clique]) -> Arrays:
    listed = list(cliques)
    flat = [domain.position(a) for c in listed for a in c]
    ends = np.cumsum([len(c) for c in listed], dtype=np.int64)
    return {f"{name}_names": np.array(flat, np.int32), f"{name}_ends": ends}


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


def unpacked(arrays: Mapping[str, NDArray[Any]], described: dict[str, Any]) -> dict[str, Any]:
    domain = Domain([(name, size) for name, size in described["domain"]])
    kappa = _floats(arrays["counting_numbers"])
    regions = _cliques("region", domain, arrays)
    graph = RegionGraph(domain, regions, _ints(arrays["edges"]), kappa, described["graph"])
    if graph.regions != tuple(regions):
        raise ConsilienceError("regions repeat")
    tau = CliqueVector(graph.layout, _floats(arrays["tau"]))
    total = float(described["total"])
    if not (isfinite(total) and total > 0 and np.isfinite(tau.values).all()):
        raise ConsilienceError("numbers are not finite")
    return {
        "domain": domain,
        "total": total,
        "graph": graph,
        "tau": tau,
        "measurements": _measurements(domain, arrays, described["queries"]),
        "diagnostics": Diagnostics(
            plan=_plan(described["plan"]),
            trace=tuple(
                Iteration("reconstructing", done, None, None, *numbers)
                for done, *numbers in described.get("trace", ())
            ),
            **described["diagnostics"],
        ),
        "settings": _settings(described["settings"], arrays),
    }


def _cliques(name: str, domain: Domain, arrays: Mapping[str, NDArray[Any]]) -> list[Clique]:
    names, flat = domain.attributes, _ints(arrays[f"{name}_names"]).tolist()
    if any(not 0 <= i < len(names) for i in flat):
        raise ConsilienceError("an attribute is not in the domain")
    found, start = [], 0
    for end in _ints(arrays[f"{name}_ends"]).tolist():
        found.append(tuple(names[i] for i in flat[start:end]))
        start = end
    if start != len(flat) or any(domain.clique(c) != c for c in found):
        raise ConsilienceError("cliques are out of order")
    return found


def _measurements(
    domain: Domain, arrays: Mapping[str, NDArray[Any]], records: Sequence[Any]
) -> tuple[BoundMeasurement, ...]:
    cliques = _cliques("measured", domain, arrays)
    values = _floats(arrays["values"])
    values.flags.writeable = False
    ends = _ints(arrays["value_ends"]).tolist()
    stddevs, noises = _floats(arrays["stddevs"]).tolist(), _ints(arrays["noises"]).tolist()
    reader = QueryReader(records, arrays)
    found, start = [], 0
    for clique, end, stddev, noise, which in zip(
        cliques, ends, stddevs, noises, _ints(arrays["queries"]).tolist(), strict=True
    ):
        cells = domain.size(clique)
        query = Identity(cells) if which < 0 else reader[which]
        part = values[start:end]
        if query.shape != (part.size, cells) or not (isfinite(stddev) and stddev > 0):
            raise ConsilienceError(f"the measurement of {clique} does not fit")
        found.append(BoundMeasurement(clique, part, stddev, NOISES[noise], query))
        start = end
    if start != values.size:
        raise ConsilienceError("values are left over")
    return tuple(found)


def _plan(given: dict[str, Any] | None) -> Plan | None:
    if given is None:
        return None
    rest = {k: v for k, v in given.items() if k != "options"}
    return Plan(**rest, options=tuple(Option(**o) for o in given["options"]))


def _settings(given: dict[str, Any] | None, arrays: Mapping[str, NDArray[Any]]) -> Settings | None:
    if given is None:
        return None
    masks = {tuple(c): arrays[f"possible_{k}"] for k, c in enumerate(given["possible"])}
    return Settings(**{k: v for k, v in given.items() if k != "possible"}, possible=masks)


def _floats(array: NDArray[Any]) -> NDArray[np.float64]:
    if array.dtype != np.float64:
        raise ConsilienceError(f"numbers of type {array.dtype} where float64 belongs")
    return array


def _ints(array: NDArray[Any]) -> NDArray[np.int64]:
    if array.dtype.kind not in "iu":
        raise ConsilienceError(f"numbers of type {array.dtype} where integers belong")
    return array.astype(np.int64)
