"""Mechanisms by name, and a mechanism as a record: what a command asks for, and what an interrupted release is made from again.

A record is JSON: the mechanism's name, its workload and those of its settings that are not the default. What cannot be
written down (a region graph, a mechanism of somebody's own) has no record, and is given again by whoever resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np

from consilience.data.schema import Schema
from consilience.domain import Domain, Workload
from consilience.errors import ConsilienceError
from consilience.fits import (
    FITS,
    Fit,
    LaplaceLikelihood,
    LatentClasses,
    LeastSquares,
    NormCut,
    PossibleCells,
    Shrunk,
)
from consilience.measurements import Query
from consilience.mechanisms import (
    AIM,
    FEM,
    HDMM,
    MWEM,
    Auto,
    DualQuery,
    Gaussian,
    Laplace,
    Mechanism,
    Pilot,
    ResidualPlanner,
)
from consilience.model.packed_queries import QueryReader, QueryWriter
from consilience.privacy import Epsilon, Rho
from consilience.solvers.planner import TIME_LIMIT

FIT_NAMES: Mapping[str, type[Fit]] = {
    "least-squares": LeastSquares,
    "shrunk": Shrunk,
    "latent-classes": LatentClasses,
    "laplace-likelihood": LaplaceLikelihood,
    "norm-cut": NormCut,
    "possible-cells": PossibleCells,
}
"""The estimators that a command knows by name."""

USUAL: Mapping[str, Any] = {
    "fit": None,
    "consistency": "auto",
    "memory": "2 GB",
    "time_limit": TIME_LIMIT,
}
"""Settings of the reconstruction that a command passes on, and what they are unless given."""

_VALUES: Mapping[str, type] = FITS
_NUMBERS: Mapping[str, type] = {"Fraction": Fraction, "Epsilon": Epsilon, "Rho": Rho}


@dataclass(frozen=True)
class Entry:
    """A mechanism by name: its class, its own options with their readers, and what it does in a line.

    counts: it publishes counts with noise of a known width, and takes the settings of the reconstruction; choices otherwise.
    """

    make: Callable[..., Mechanism]
    options: Mapping[str, Callable[[str], Any]]
    line: str
    counts: bool = True


MECHANISMS: Mapping[str, Entry] = {
    "auto": Entry(Auto, {}, "the best for the budget and the tables, by what is public"),
    "gaussian": Entry(
        Gaussian, {"weights": str}, "every table once, Gaussian noise; needs a delta or rho"
    ),
    "laplace": Entry(
        Laplace, {"weights": str}, "every table once, Laplace noise; good for few tables"
    ),
    "hdmm": Entry(
        HDMM,
        {"slack": float, "restarts": int, "seed": int},
        "other tables than those asked for, where that needs less noise",
    ),
    "residual-planner": Entry(
        ResidualPlanner, {}, "the least total variance for Gaussian noise, many attributes"
    ),
    "pilot": Entry(Pilot, {}, "a little of everything, then the rest where that says it helps"),
    "mwem": Entry(
        MWEM,
        {"rounds": int, "noise": str, "select_share": float, "allowance": str},
        "chooses the worst answered table, measures it, and again",
    ),
    "aim": Entry(
        AIM,
        {"rounds_per_attribute": int},
        "chooses what is worth measuring, with the budget it has",
    ),
    "fem": Entry(
        FEM,
        {"rounds": int, "samples": int, "split": float, "perturbation": float, "seed": int},
        "chooses badly answered cells, and fits records that answer them",
        counts=False,
    ),
    "dual-query": Entry(
        DualQuery,
        {"rounds": int, "samples": int, "seed": int},
        "draws queries, and finds records that answer them",
        counts=False,
    ),
}


def name_of(mechanism: Mechanism) -> str | None:
    """The name of a mechanism that comes with the package, None of any other."""
    return next((n for n, e in MECHANISMS.items() if e.make is type(mechanism)), None)


# -- from words ------------------------------------------------------------------------------------


def named(
    name: str,
    workload: Workload,
    own: Sequence[str],
    settings: Mapping[str, Any],
    queries: Mapping[str, Query] = MappingProxyType({}),
) -> Mechanism:
    """A mechanism from words: its name, its own options as KEY=VALUE, and the settings of the reconstruction (`USUAL`).

    queries: what is asked along columns instead of their values.
    """
    if name not in MECHANISMS:
        raise ConsilienceError(
            f"the mechanism must be one of {', '.join(MECHANISMS)}, got {name!r}"
        )
    if name == "auto" and queries:
        name = "hdmm"  # which is what measures sums along columns
    entry = MECHANISMS[name]
    options = dict(_own_option(name, entry, given) for given in own)
    options |= _asked_options(name, entry, workload, queries, options)
    if entry.counts:
        return entry.make(workload, **options, fit=fit_named(settings, _usual_fit(entry)))
    unused = next((k for k, usual in USUAL.items() if settings[k] != usual), None)
    if unused is not None:
        raise ConsilienceError(f"{name} does not take --{unused.replace('_', '-')}; leave it out")
    return entry.make(workload, **options)


def _asked_options(
    name: str,
    entry: Entry,
    workload: Workload,
    queries: Mapping[str, Query],
    given: Mapping[str, Any],
) -> dict[str, Any]:
    """The options in which a mechanism takes what a workload asks along columns, and its weights."""
    if queries and entry.make is not HDMM:
        raise ConsilienceError(
            f"ranges, prefixes and hierarchies, as along {next(iter(queries))!r}, are measured by hdmm, got {name}; add "
            "--mechanism hdmm"
        )
    if queries:
        return {"queries": queries}
    if len(set(workload.values())) == 1 or "weights" in given:
        return {}
    if entry.make in (Gaussian, Laplace):
        return {"weights": dict(workload.items())}
    if not entry.counts:
        raise ConsilienceError(f"{name} does not take weights of tables; leave out *WEIGHT")
    return {}


def _usual_fit(entry: Entry) -> Fit:
    """The estimator that the mechanism takes unless told otherwise."""
    return entry.make.fit  # pyright: ignore[reportFunctionMemberAccess]


def fit_named(settings: Mapping[str, Any], usual: Fit) -> Fit:
    """The estimator that words ask for: by name, or the usual one, with the settings that are given.

    A consistency, or how long it may take, is a matter of LeastSquares where the usual estimator knows none.
    """
    given = {k: v for k, v in settings.items() if k != "fit" and v != USUAL[k]}
    name = settings["fit"]
    if name is not None:
        return _changed_fit(FIT_NAMES[name](), given)
    plain = {"consistency", "time_limit"} & set(given)
    if plain and isinstance(usual, PossibleCells | LatentClasses):
        usual = LeastSquares()
    return _changed_fit(usual, given)


def _changed_fit(fit: Fit, given: Mapping[str, Any]) -> Fit:
    known = _fields(fit)
    unknown = next((k for k in given if k not in known), None)
    if unknown is not None:
        name = next((n for n, kind in FIT_NAMES.items() if kind is type(fit)), type(fit).__name__)
        raise ConsilienceError(f"{name} does not take --{unknown.replace('_', '-')}; leave it out")
    return replace(fit, **given) if given else fit  # pyright: ignore[reportArgumentType]


def _own_option(name: str, entry: Entry, given: str) -> tuple[str, Any]:
    key, equals, value = given.partition("=")
    key = key.strip().replace("-", "_")
    if not equals or key not in entry.options:
        known = ", ".join(entry.options) or "none"
        raise ConsilienceError(
            f"an option of {name} must be KEY=VALUE with one of: {known}; got {given!r}"
        )
    try:
        return key, entry.options[key](value.strip())
    except ValueError:
        kind = entry.options[key].__name__
        raise ConsilienceError(f"option {key} of {name} must be a {kind}, got {value!r}") from None


def with_settings(mechanism: Mechanism, **settings: Any) -> Mechanism:
    """The same mechanism with other settings of the reconstruction: what was measured stays as it is."""
    if not settings:
        return mechanism
    fit = fit_named({**USUAL, **settings}, mechanism.fit)
    return replace(mechanism, fit=fit)  # pyright: ignore[reportArgumentType]


def keep_stated(mechanism: Mechanism, schema: Schema) -> Mechanism:
    """The mechanism whose fit keeps what the schema states, impossible combinations and controls; refused where it cannot."""
    fit = with_stated(mechanism.fit, schema)
    return mechanism if fit is mechanism.fit else replace(mechanism, fit=fit)  # pyright: ignore[reportArgumentType]


def with_stated(fit: Fit, schema: Schema) -> Fit:
    """The estimator that keeps the schema's impossible combinations empty, and its controls: LeastSquares in place of
    PossibleCells.
    """
    stated: dict[str, Any] = {}
    if schema.impossible:
        stated["possible"] = schema.possible
    if schema.controls:
        stated["controls"] = schema.controls
    if stated and isinstance(fit, PossibleCells):
        fit = LeastSquares(memory=fit.memory)
    for field, words in (("possible", "impossible combinations empty"), ("controls", "controls")):
        # Shrunk has masks only on a tree of places, which is known when tables are measured: too late.
        unsure = isinstance(fit, Shrunk) and field == "possible"
        if field in stated and (unsure or field not in _fields(fit)):
            raise ConsilienceError(
                f"{type(fit).__name__} cannot keep the schema's {words}; use least-squares, and a mechanism that measures tables"
            )
    return replace(fit, **stated) if stated else fit  # pyright: ignore[reportArgumentType]


# -- as a record -----------------------------------------------------------------------------------


def own_settings(mechanism: Mechanism) -> dict[str, Any]:
    """What was asked of the mechanism itself: settings that are not the default, in words where they are objects."""
    return {
        name: _plain(value, strict=False)
        for name, value in _changed(mechanism).items()
        if name != "fit"
    }


def to_record(mechanism: Mechanism) -> dict[str, Any] | None:
    """The mechanism as JSON, without what the schema states; None if it cannot be written down."""
    name = name_of(mechanism)
    if name is None:
        return None
    workload = mechanism.workload
    try:
        settings = {key: _plain(value) for key, value in _changed(mechanism).items()}
    except TypeError:
        return None
    return {
        "name": name,
        "workload": [[list(clique), weight] for clique, weight in workload.items()],
        "settings": settings,
    }


def from_record(record: Mapping[str, Any], domain: Domain) -> Mechanism:
    """The mechanism of a record."""
    workload = Workload(domain, {tuple(clique): weight for clique, weight in record["workload"]})
    settings = {key: _value(value) for key, value in record["settings"].items()}
    return MECHANISMS[record["name"]].make(workload, **settings)


def _fields(value: Mechanism | Fit) -> dict[str, Field[Any]]:
    return {f.name: f for f in fields(value)} if is_dataclass(value) else {}


def _changed(value: Any) -> dict[str, Any]:
    """{field: value} of a dataclass where it is not the default, apart from the workload and what the schema states."""
    found = {f.name: (f, getattr(value, f.name)) for f in fields(value)}
    return {
        name: given
        for name, (field, given) in found.items()
        if name not in ("workload", "possible", "controls") and not _is_default(field, given)
    }


def _is_default(field: Field[Any], given: Any) -> bool:
    if field.default is not MISSING:
        return type(given) is type(field.default) and given == field.default
    if field.default_factory is MISSING:
        return False
    usual = field.default_factory()
    return not _changed(given) if type(given) in _VALUES.values() else given == usual


def _plain(value: Any, strict: bool = True) -> Any:
    """A setting as JSON: numbers and words as they are, what else can be written down by its name."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    for name, kind in _NUMBERS.items():
        if type(value) is kind:
            return {name: str(value if kind is Fraction else value.value)}
    for name, kind in _VALUES.items():
        if type(value) is kind:
            return {name: {k: _plain(v, strict) for k, v in _changed(value).items()}}
    if strict and isinstance(value, Mapping) and all(isinstance(v, Query) for v in value.values()):
        return {"queries": _plain_queries(value)}
    if isinstance(value, Mapping) and all(isinstance(key, tuple) for key in value):
        return {"cliques": [[list(clique), _plain(v, strict)] for clique, v in value.items()]}
    if not strict:
        return repr(value)
    raise TypeError(f"{value!r} cannot be written down")


def _plain_queries(queries: Mapping[str, Query]) -> dict[str, Any]:
    writer = QueryWriter()
    places = {a: writer.add(q) for a, q in queries.items()}
    arrays = {k: v.tolist() for k, v in writer.arrays.items()}
    return {"of": places, "records": writer.records, "arrays": arrays}


def _value(plain: Any) -> Any:
    if not isinstance(plain, dict):
        return plain
    ((name, content),) = plain.items()
    if name == "queries":
        arrays = {k: np.array(v) for k, v in content["arrays"].items()}
        reader = QueryReader(content["records"], arrays)
        return {a: reader[k] for a, k in content["of"].items()}
    if name == "cliques":
        return {tuple(clique): _value(v) for clique, v in content}
    if name in _VALUES:
        return _VALUES[name](**{k: _value(v) for k, v in content.items()})
    return _NUMBERS[name](Fraction(content))


TIME_LIMIT_OF_0_1 = 60.0


def record_of_0_1(schema: Schema, words: Mapping[str, Any]) -> dict[str, Any]:
    """Version 0.1 wrote down the words of its command."""
    workload = Workload(schema.domain, [tuple(c) for c in words["workload"]])
    settings = {key: words.get(key, usual) for key, usual in USUAL.items()}
    if settings["time_limit"] == TIME_LIMIT_OF_0_1:
        settings["time_limit"] = USUAL["time_limit"]  # nobody asked for it then
    if words.get("prior") is not None:
        settings["fit"] = "shrunk"
    amounts = {k: words[k] for k in ("epsilon", "delta", "rho", "neighbours", "accounting")}
    return {
        "budget": amounts,
        "mechanism": to_record(named(words["mechanism"], workload, words["own"], settings)),
        "tables": words["workload"],
        "errors": words["errors"],
    }
