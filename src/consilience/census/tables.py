"""Consistent tables of a state: its files as measurements at levels, its invariants as controls, and the release folder."""

from __future__ import annotations

from math import inf, prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from consilience.census import layout
from consilience.census.files import State
from consilience.census.layout import AXES, NAMES, QUESTIONS
from consilience.data.columns import Categorical
from consilience.data.schema import Grouping, Schema
from consilience.fits import Shrunk, reconstruct
from consilience.measurements import Bounds, Control, Identity, Kronecker, Measurement
from consilience.model import Model
from consilience.progress import Progress, quiet
from consilience.release import write_release
from consilience.release.facts import common_facts
from consilience.release.standard_errors import chosen_method, errors_of

TOLERANCE = 1e-4
"""Relative gap: errors of every level move by less than 1 % from here on."""
INST = "hhinstlevels"
README = """Tables of state {fips}, made by Consilience {version} from noisy measurement files in the layout of the 2020 census.
What protects the people in them is the noise that was in those files; this adds none and takes none away.
"""


def schema_of(state: State) -> Schema:
    """Columns block, hhgq, votingage, hispanic and cenrace; the levels above the block by the beginnings of its code."""
    labels = (layout.QUARTERS, layout.AGES, layout.ORIGINS, layout.race_labels(state.sizes[3]))
    columns = [("block", tuple(state.levels[-1].codes.tolist())), *zip(AXES, labels, strict=True)]
    places = [
        Grouping(name, "block", {}, prefix=len(state.levels[l].codes[0]))
        for l, name in enumerate(NAMES[:-1])
    ]
    kinds = Grouping(INST, AXES[0], dict(layout.LEVELS_OF_QUARTERS))
    return Schema(
        [Categorical(n, v, v[0]) for n, v in columns],
        impossible=[{"hhgq": (layout.QUARTERS[layout.NURSING],), "votingage": (layout.AGES[layout.CHILD],)}]
        if all(u.nobody for u in state.levels)
        else (),
        groupings=[*places, kinds],
        name=f"persons of state {state.fips}",
    )  # fmt: skip


def measurements_of(state: State) -> list[Measurement]:
    """Every answer. Units of a level may have different noise, or were not measured: each noise is a measurement."""
    found = []
    for units, name in zip(state.levels, NAMES, strict=True):
        for q in QUESTIONS:
            asked = units.answers.get(q.name)
            if asked is None:
                continue
            attributes = (name, *((INST,) if q.grouped else tuple(AXES[i] for i in q.axes)))
            shape = tuple(n for n in q.shape(state.sizes) if n > 1)
            for variance in np.unique(asked.variance[np.isfinite(asked.variance)]).tolist():
                at = np.flatnonzero(asked.variance == variance)
                values, query = asked.values[at], None
                if len(at) < len(units.codes):
                    query = _only(at, len(units.codes), shape)
                shown = values.reshape(-1) if query is not None else values.reshape(len(at), *shape)
                found.append(Measurement(attributes, shown, stddev=variance**0.5, query=query))
    return found


def _only(at: NDArray[np.intp], units: int, shape: tuple[int, ...]) -> Kronecker:
    """The tables of these units."""
    ones = csr_array((np.ones(len(at)), (np.arange(len(at)), at)), shape=(len(at), units))
    return Kronecker([ones, *(Identity(n) for n in shape)])


def controls_of(state: State) -> list[Control]:
    """Quarters of each kind in every block: nobody where there is none, somebody in each facility. Bounds of higher levels follow
    from these and the total.
    """
    units = state.levels[-1]
    low, high = units.low, np.where(units.high == 0, 0.0, inf)
    return [Bounds(("block", "hhgq"), low, high)] if low.any() or (high == 0).any() else []


def masks_of(state: State) -> dict[tuple[str, ...], Any]:
    found = {}
    if all(u.nobody for u in state.levels):
        found["hhgq", "votingage"] = np.ones((8, 2), bool)
        found["hhgq", "votingage"][layout.NURSING, layout.CHILD] = False
    return found


def state_model(
    state: State,
    *,
    tolerance: float = TOLERANCE,
    workers: Any = None,
    progress: Progress = quiet,
) -> Model:
    """The closest tables that add up, are not negative and keep the invariants, blocks pulled towards the shape of their group:
    their own measurements have the most noise of all. workers: a number of processes, or a Spark
    session, that share the work; None for this process.
    """
    fit = Shrunk(
        consistency="global",
        memory=64.0 * 8 * len(state.levels[-1].codes) * prod(state.sizes) + 1e9,
        tolerance=tolerance,
        possible=masks_of(state),
        controls=controls_of(state),
        workers=workers,
    )
    return reconstruct(schema_of(state).domain, measurements_of(state), state.total, fit, progress)


def published(state: State) -> list[tuple[str, ...]]:
    """The tables that a folder lists: at each level the total, quarters, races by origin and age; others are asked for."""
    by = ((), ("hhgq",), ("votingage", "hispanic", "cenrace"))
    return [(name, *others) for name in NAMES for others in by]


def write_state(
    state: State,
    model: Model,
    out: Path,
    *,
    errors: str = "auto",
    whole: bool = False,
    progress: Progress = quiet,
) -> dict[str, Any]:
    """The release folder of a fitted state; what it says about itself."""
    schema = schema_of(state)
    errors, refits, why = chosen_method(model, errors)
    if errors == "closed-form":  # which on trees has none for answers that are not whole tables
        errors, why = "none", f"no standard errors: {why.partition(': ')[2]}"
    model = model.lasting(refits, progress)
    if whole:
        model = model.whole(progress)
    tables = errors_of(model, published(state), errors, progress)
    d = model.diagnostics
    facts = {
        "private": None,
        "mark": "as private as the files that it was made from",
        **common_facts(model, public=state.total is not None),
        "mechanism": {"name": "noisy measurement files", "options": {}, "calibrated": ""},
        "diagnostics": {"method": d.method, "status": d.status, "relative_gap": d.gap},
        "standard_errors": errors,
        "replicates": refits,
    }
    write_release(
        out,
        model=model,
        schema=schema,
        measurements=measurements_of(state),
        tables=tables,
        facts=facts,
        ledger=None,
        readme=README.format(fips=state.fips, version=facts["versions"]["consilience"]),
    )
    return {**facts, "why": why}
