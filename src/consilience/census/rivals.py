"""What else is made of such files, from the mathematics: a two-pass and a top-down estimate; errors by level.

Two-pass: generalised least squares on the tree, negative cells and all, the state's total known. Top-down: from the state down,
non-negative least squares of each parent's children given its whole-number table and their own measurements, then rounding that
keeps the parent's cells exactly and the children's totals within one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from consilience.census import layout
from consilience.census.files import State
from consilience.census.layout import NAMES, QUESTIONS
from consilience.census.simulate import Truth
from consilience.domain import Buffer, Domain
from consilience.errors import DataError, MeasurementError
from consilience.measurements.controls import BoundControl
from consilience.solvers.place_splitting import fit_places
from consilience.solvers.places import PlaceQuery, PlaceRange, Places
from consilience.solvers.rounding import round_table

SHOWN = ("total", "hispanic * cenrace", "detailed")


def tree_of(state: State) -> Places:
    """Root: the state; then its branches, counties, tracts, block groups, blocks."""
    parents = [np.zeros(len(state.levels[0].codes), np.int64)]
    for above, below in zip(state.levels, state.levels[1:], strict=False):
        width = len(above.codes[0])
        parents.append(np.searchsorted(above.codes, below.codes.astype(f"<U{width}")))
    return Places(1, parents)


def queries_of(state: State, level: int, at: int, *, grouped: bool) -> list[PlaceQuery]:
    """What the files say about the units of a level, as queries at level `at` of a tree."""
    found = []
    for q in QUESTIONS:
        asked = state.levels[level].answers.get(q.name)
        if asked is not None and (grouped or not q.grouped):
            groups = layout.GROUPS if q.grouped else None
            found.append(PlaceQuery(at, q.axes, asked.values, np.sqrt(asked.variance), groups))
    return found


def two_pass(state: State) -> Buffer:
    """Blocks' tables. Here: without hhinstlevels, whose variance is hundreds of times that of detailed, and without bounds."""
    places = tree_of(state)
    queries = [q for l in range(len(NAMES)) for q in queries_of(state, l, l + 1, grouped=False)]
    return fit_places(places, state.sizes, queries, _total(state), nonnegative=False).tables


def _total(state: State) -> list[PlaceRange]:
    if state.total is None:
        return []
    return [PlaceRange.exact(0, (), np.array([[float(state.total)]]))]


def top_down(state: State, tolerance: float = 1e-5) -> Buffer:
    """Blocks' tables in whole numbers. Kinds of quarters that no block below a unit has are empty in it, at every level."""
    places = tree_of(state)
    room = _possible(state)
    rooms = [np.maximum.reduceat(room, _starts(places, l + 1), axis=0) for l in range(len(NAMES))]
    # The root first: the branches of a state given its total, then level by level.
    above = None
    for l in range(len(NAMES)):
        parents = places.parents[l]
        forest = Places(int(parents.max()) + 1, [parents])
        own = queries_of(state, l, 1, grouped=False)
        if above is not None and not own:  # nobody was measured: only children
            above = above[parents]
            continue
        controls = _total(state) if above is None else [PlaceRange.exact(0, (0, 1, 2, 3), above)]
        found = fit_places(
            forest, state.sizes, own, controls, possible=rooms[l].astype(bool), tolerance=tolerance
        ).tables
        above = _rounded(found, parents, above, state)
    assert above is not None
    return above


def _possible(state: State) -> Buffer:
    units = state.levels[-1]
    open_kinds = (units.high > 0).astype(float)
    cells = np.repeat(open_kinds, prod(state.sizes[1:]), axis=1).reshape(len(units.codes), *state.sizes)  # fmt: skip
    if all(u.nobody for u in state.levels):
        cells[:, layout.NURSING, layout.CHILD] = 0.0
    return cells.reshape(len(units.codes), -1)


def _starts(places: Places, level: int) -> np.ndarray:
    """Where the leaves of each place begin; places are sorted by code."""
    at = places.ancestors(level)
    return np.searchsorted(at, np.arange(places.count(level)))


def _rounded(found: Buffer, parents: np.ndarray, above: Buffer | None, state: State) -> Buffer:
    """Whole numbers, parent by parent: its cells are met exactly, the children's totals stay within one of what they were."""
    out = np.rint(found)
    for parent in range(int(parents.max()) + 1):
        rows = np.flatnonzero(parents == parent)
        table = found[rows]
        if above is not None and len(rows) == 1:
            out[rows] = above[parent]
            continue
        used = np.flatnonzero(table.max(axis=0) > 0 if above is None else above[parent] > 0)
        if not used.size:
            out[rows] = 0.0
            continue
        domain = Domain({"unit": len(rows), "cell": len(used)})
        limits = []
        if above is not None:
            limits = [BoundControl(("cell",), above[parent, used], above[parent, used])]
        elif state.total is not None:
            total = np.array(float(state.total))
            limits = [BoundControl((), total, total)]
        whole = round_table(domain, ("unit", "cell"), table[:, used], limits, [("unit",)])
        out[rows] = 0.0
        out[np.ix_(rows, used)] = whole.table
    return out


# -- errors --------------------------------------------------------------------------------------------


def truth_of(state: State, truth: Truth) -> Buffer:
    """The true tables of the state's blocks, in its order."""
    if truth.sizes != state.sizes:
        raise DataError(f"the truth must have the files' table {state.sizes}, it has {truth.sizes}")
    at = {b: i for i, b in enumerate(truth.blocks)}
    ends = [c[-layout.LAST :] for c in state.levels[-1].codes.tolist()]
    blocks = [e[:11] + e[12:] for e in ends]
    missing = next((b for b in blocks if b not in at), None)
    if missing is not None:
        raise MeasurementError(
            f"the truth must have every block of the files, {missing!r} is not in it"
        )
    return truth.tables[[at[b] for b in blocks]].reshape(len(blocks), -1).astype(np.float64)


def errors_by_level(
    state: State, truth: Buffer, blocks: Mapping[str, Buffer], names: Sequence[str] = SHOWN
) -> list[dict[str, Any]]:  # fmt: skip
    """Mean absolute error of a number, for each method, level and question, with the units' tables added up from the blocks'."""
    places, rows = tree_of(state), []
    questions = [q for q in QUESTIONS if q.name in names]
    for method, tables in blocks.items():
        for l, level in enumerate(NAMES):
            off = places.sums(tables, l + 1) - places.sums(truth, l + 1)
            shaped = off.reshape(-1, *state.sizes)
            for q in questions:
                away = tuple(i + 1 for i in range(4) if i not in q.axes)
                mean = float(np.abs(shaped.sum(axis=away)).mean())
                rows.append({"method": method, "level": level, "query": q.name, "error": mean})
    return rows
