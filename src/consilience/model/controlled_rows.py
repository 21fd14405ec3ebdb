"""Rows that keep controls to the last digit.

Rows are near the model's tables already, so a few of them are a few records off. Controls are met one after the other: rows
leave cells that have too many for cells that have too few, those rows whose move harms the model's tables least. A control that
shares attributes with earlier ones moves rows only within what those fixed (county totals first, then tracts within counties), so
it undoes nothing. Controls that share attributes in a circle have no such order; their joint table is rounded as one
(solvers/rounding.py) and then met like a single control.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, CliqueVector, Domain
from consilience.errors import ConsilienceError
from consilience.kernels.rounding import LOOKED_AT, fill_slots
from consilience.measurements.controls import BoundControl
from consilience.records import Dataset
from consilience.solvers.rounding import cells_above, round_table
from consilience.tree.rows import RowCodes

Ints = NDArray[np.int64]
MOST_JOINT = 1 << 20
"""Cells of a joint table of controls that share attributes in a circle."""


@dataclass(frozen=True, eq=False)
class _Step:
    """A control to be met, and what earlier ones fixed of it: `within` names attributes at levels that rows must keep."""

    control: BoundControl
    within: Clique


def keep_controls(
    controls: Sequence[BoundControl],
    total: float,
    tau: CliqueVector,
    impossible: NDArray[np.bool_] | None,
    codes: RowCodes,
    rng: np.random.Generator,
) -> int:
    """Change codes in place until every control holds; how many rows were moved.

    tau: the distributions that rows are near. total: the number of records that the controls are about; other numbers of rows
    meet them in proportion, rounded.
    """
    domain, n = tau.domain, len(codes)
    if not n or not controls:
        return 0
    share = n / total
    deviation = Dataset(codes, domain).marginals(tau.cliques).values - n * tau.values
    if impossible is not None:
        deviation[impossible] = np.inf
    steps = _ordered(domain, [c for c in controls if c.named])
    if steps is None:
        steps = [_Step(_joint(domain, controls, share, codes), ())]
    moved = 0
    for step in steps:
        moved += _meet(domain, step, share, tau, deviation, codes, rng)
    return moved


def _ordered(domain: Domain, controls: Sequence[BoundControl]) -> list[_Step] | None:
    """The controls in an order in which each shares with one earlier control all that it shares with any; exact ones first."""
    left = sorted(controls, key=lambda c: (not c.exact, -domain.size(c.named)))
    steps: list[_Step] = []
    while left:
        found = next((s for c in left if (s := _next(domain, c, steps)) is not None), None)
        if found is None:
            return None
        steps.append(found)
        left.remove(found.control)
    return steps


def _next(domain: Domain, control: BoundControl, before: Sequence[_Step]) -> _Step | None:
    """The control with what rows must keep when it is met after others; None where they fix more than one of them says."""
    shared = [_shared(domain, control.named, s.control.named) for s in before]
    for within in sorted(shared, key=len, reverse=True) or [()]:
        if all(_undone_by_none(domain, control.named, within, s.control.named) for s in before):
            return _Step(control, within)
    return None


def _shared(domain: Domain, one: Clique, other: Clique) -> Clique:
    """Attribute by attribute the coarser of two readings."""
    own = {domain.clique(a)[0]: a for a in other}
    found = []
    for name in one:
        beside = own.get(domain.clique(name)[0])
        if beside is not None:
            finer = domain.named((name, beside))[0]
            if finer in (name, beside):
                found.append(beside if finer == name else name)
    return tuple(found)


def _undone_by_none(domain: Domain, moved: Clique, within: Clique, met: Clique) -> bool:
    """Whether rows that move in the cells of `moved`, within those of `within`, stay in their cells of `met`."""
    fixed = {domain.clique(a)[0]: a for a in within}
    of = {domain.clique(a)[0]: a for a in met}
    for name in moved:
        attribute = domain.clique(name)[0]
        kept = fixed.get(attribute)
        if kept == name or attribute not in of:
            continue
        if kept is None or domain.named((kept, of[attribute])) != (kept,):
            return False
    return True


def _joint(
    domain: Domain, controls: Sequence[BoundControl], share: float, codes: RowCodes
) -> BoundControl:
    """One whole table that meets every control, as near as can be to that of the rows."""
    clique = domain.clique([a for c in controls for a in c.named])
    if domain.size(clique) > MOST_JOINT:
        raise ConsilienceError(
            f"rows keep controls that share attributes in a circle, on {clique}, if their joint table has at most {MOST_JOINT:,} "
            f"cells, got {domain.size(clique):,}; leave out a control that others imply"
        )
    if share != 1.0:
        raise ConsilienceError(
            f"rows keep controls that share attributes in a circle, on {clique}, where there are as many as the controls say; "
            f"draw {len(codes) / share:,.0f}"
        )
    counts = Dataset(codes, domain).marginal(clique).astype(np.float64)
    near = counts + 1e-3 * len(codes) / counts.size  # a cell without rows can be given some
    whole = round_table(domain, clique, near, controls).table.astype(np.float64)
    return BoundControl(clique, whole, whole)


def _meet(
    domain: Domain,
    step: _Step,
    share: float,
    tau: CliqueVector,
    deviation: Buffer,
    codes: RowCodes,
    rng: np.random.Generator,
) -> int:
    named, within = step.control.named, step.within
    cell = _cells_of_rows(domain, named, codes)
    shape = domain.shape_of(named)
    counts = np.bincount(cell, minlength=int(np.prod(shape)))
    group = cells_above(domain, named, within, np.arange(counts.size))
    low, high = (end.reshape(-1) * share for end in (step.control.low, step.control.high))
    wanted = (
        _in_proportion(low, group, counts)
        if step.control.exact
        else _between(counts, np.floor(low + 1e-9), np.ceil(high - 1e-9), group)
    )
    if (
        wanted is None
        or (np.bincount(group, wanted) != np.bincount(group, counts)).any()
        or (share == 1.0 and not _admitted(step.control, wanted))
    ):
        raise ConsilienceError(
            f"controls must hold together, that of {named} does not agree with others on {within or 'the number of rows'}"
        )
    lacking = np.repeat(np.arange(counts.size), np.maximum(wanted - counts, 0))
    if not lacking.size:
        return 0
    excess = np.maximum(counts - wanted, 0)
    moving = [a for a in named if a not in within]
    slots = _slots(domain, named, moving, lacking, tau, rng)
    order = _candidates(cell, excess, rng)
    order = order[np.argsort(group[cell[order]], kind="stable")]
    start = np.searchsorted(group[cell[order]], np.arange(int(group.max()) + 2))
    left = fill_slots(
        group[lacking],
        slots,
        np.array([domain.position(a) for a in moving], np.int64),
        start,
        order,
        cell,
        excess,
        codes,
        *_tables(tau, [domain.clique(a)[0] for a in moving]),
        deviation,
    )
    if left:
        raise ConsilienceError(
            f"rows must keep the control of {named} without falling in impossible cells, {left} of {len(codes):,} cannot; draw "
            "as many rows as the controls say, or measure what ties the impossible cells to the controls"
        )
    return int(lacking.size)


def _admitted(control: BoundControl, wanted: Ints) -> bool:
    """Whether whole numbers are those of the control; one that is not whole admits its neighbours."""
    low, high = control.low.reshape(-1), control.high.reshape(-1)
    return bool(((wanted > low - 1) & (wanted < high + 1)).all())


def _candidates(cell: Ints, excess: Ints, rng: np.random.Generator) -> Ints:
    """Rows that may leave, in random order: of each cell as many as must, and enough to choose from."""
    order = rng.permutation(cell.size)
    order = order[excess[cell[order]] > 0]
    by_cell = np.argsort(cell[order], kind="stable")
    held = cell[order][by_cell]
    rank = np.empty(order.size, np.int64)
    rank[by_cell] = np.arange(order.size) - np.searchsorted(held, held)
    return order[rank < excess[cell[order]] + LOOKED_AT]


def _cells_of_rows(domain: Domain, named: Clique, codes: RowCodes) -> Ints:
    found = np.zeros(len(codes), np.int64)
    for name in named:
        column = codes[:, domain.position(name)]
        units = domain.levels[name].units[column] if name in domain.levels else column
        found = found * domain[name] + units
    return found


def _in_proportion(values: Buffer, group: Ints, counts: Ints) -> Ints:
    """Whole numbers in proportion to values, group by group as many as there are rows: largest remainders, ties by index."""
    there = np.bincount(group, counts)
    mass = np.bincount(group, values)
    scale = np.divide(there, mass, out=np.zeros_like(mass), where=mass > 0)[group]
    exact = values * scale
    floor = np.floor(exact + 1e-6).astype(np.int64)
    missing = (there - np.bincount(group, floor)).astype(np.int64)
    order = np.lexsort((np.arange(group.size), -(exact - floor), group))
    start = np.searchsorted(group[order], np.arange(missing.size))
    rank = np.arange(group.size) - start[group[order]]
    floor[order] += rank < missing[group[order]]
    return floor


def _between(counts: Ints, low: Buffer, high: Buffer, group: Ints) -> Ints | None:
    """The nearest numbers within limits, group by group as many as there are rows; None where there are none."""
    found = np.clip(counts, low, high)
    over = (np.bincount(group, found) - np.bincount(group, counts)).astype(np.int64)
    for g in np.flatnonzero(over).tolist():
        inside = np.flatnonzero(group == g)
        sign = 1 if over[g] > 0 else -1
        room = found[inside] - low[inside] if sign > 0 else high[inside] - found[inside]
        room = np.minimum(room, abs(over[g]))
        taken = np.diff(np.minimum(np.cumsum(room), abs(over[g])), prepend=0.0)
        if taken.sum() < abs(over[g]):
            return None
        found[inside] -= sign * taken
    return found.astype(np.int64)


def _slots(
    domain: Domain,
    named: Clique,
    moving: Sequence[str],
    lacking: Ints,
    tau: CliqueVector,
    rng: np.random.Generator,
) -> Ints:
    """For each missing row of a cell its codes in the moving attributes; at a level, one of the unit's values by the model."""
    units = dict(zip(named, np.unravel_index(lacking, domain.shape_of(named)), strict=True))
    found = np.empty((lacking.size, len(moving)), np.int64)
    for j, name in enumerate(moving):
        found[:, j] = units[name]
        if name not in domain.levels:
            continue
        level = domain.levels[name]
        home = tau.layout.home((level.attribute,))
        clique = tau.cliques[home] if home is not None else ()
        axes = tuple(i for i, a in enumerate(clique) if a != level.attribute)
        mass = tau[clique].sum(axis=axes) if clique else np.ones(domain[level.attribute])
        for u in np.unique(found[:, j]).tolist():
            values = np.flatnonzero(level.units == u)
            p = mass[values] + 1e-300
            some = units[name] == u
            found[some, j] = rng.choice(values, int(some.sum()), p=p / p.sum())
    return found


def _tables(tau: CliqueVector, moving: Sequence[str]) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """The tables that hold a moving attribute, as `fill_slots` reads them."""
    domain, layout = tau.domain, tau.layout
    ptr, other, stride, place, at = [0], [], [], [], []
    for i, clique in enumerate(layout.cliques):
        if not set(clique) & set(moving):
            continue
        shape = layout.shapes[i]
        for k, a in enumerate(clique):
            other.append(domain.position(a))
            stride.append(int(np.prod(shape[k + 1 :])))
            place.append(moving.index(a) if a in moving else -1)
        ptr.append(len(other))
        at.append(int(layout.offsets[i]))
    a, b, c, d, e = (np.array(x, np.int64) for x in (ptr, other, stride, place, at))
    return a, b, c, d, e
