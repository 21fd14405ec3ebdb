"""Controlled rounding: a table of counts as whole numbers, with its sums next to the sums that it had.

Sums that lie in each other make a *line*: blocks x cells in tracts x cells in counties x cells; or blocks in counties in all. Two
lines of sums over one table are a network: the table's cells are arcs from the first line to the second, every sum is an arc
towards a coarser one, and each number is what flows through its arc. A flow can be rounded so that every arc carries one of the
two whole numbers next to what it carried (Hoffman and Kruskal 1956; Cox 1987 for tables). Of these the one that is nearest in L1,
over the cells and all sums of both lines, is a linear program whose vertices are whole; large tables take the rounding of
`kernels/rounding.py` instead, which costs a few percent of distance.

Controls come first: their sums are in the lines and the table is scaled to meet them, so they hold exactly. Controls that fit no
two lines (three one-way totals of three attributes) are an integer program, for tables that are not large.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog, milp

from consilience.domain import Buffer, Clique, Domain
from consilience.errors import ConsilienceError
from consilience.kernels.rounding import WHOLE, round_flow
from consilience.measurements.controls import BoundControl

Ints = NDArray[np.int64]

PROGRAM = 20_000
"""Arcs that carry a fraction, up to which the nearest whole table is found by linear programming."""
INTEGER_PROGRAM = 20_000
"""Cells that carry a fraction, up to which controls that cross are met by integer programming."""
MET = 1e-7
"""A table meets a control that it misses by no more records than this, and the rounding of its sums."""
SCALINGS = 10_000
FORCED = 1e9
"""What it costs to move the total away from its whole number."""


@dataclass(frozen=True, eq=False)
class Rounded:
    """A whole table; `sums` are the sums that were kept next to what they were, `nearest` whether no such table is nearer."""

    table: Ints
    sums: tuple[Clique, ...]
    nearest: bool


def round_table(
    domain: Domain,
    clique: Clique,
    table: Buffer,
    controls: Sequence[BoundControl] = (),
    wanted: Iterable[Clique] = (),
) -> Rounded:
    """A table of counts over a clique in whole numbers.

    controls: hold exactly. wanted: further sums to be kept within one, the most wanted first, as far as two lines hold them.
    """
    table = np.ascontiguousarray(table, np.float64)
    limits = [whole_limits(c) for c in controls]
    total = whole_total(limits, float(table.sum()))
    if limits:
        limits.append(BoundControl((), np.array(float(total)), np.array(float(total))))
        table = _scaled(domain, clique, table, limits)
    held = [c.named for c in limits]
    lines = _lines(domain, clique, held, [*levels_of(domain, clique), *wanted])
    if lines is None:
        return _crossing(domain, clique, table, limits, levels_of(domain, clique))
    network = _Network.of(domain, clique, table, lines, total, held)
    floor = np.floor(table + WHOLE).astype(
        np.int64
    )  # what is whole but for its last digits is no arc
    nearest = network.tail.size <= PROGRAM
    carried = network.nearest() if nearest else network.rounded()
    floor.reshape(-1)[network.cells] += carried[: network.cells.size].astype(np.int64)
    _check_met(domain, clique, floor, limits)
    return Rounded(floor, tuple(dict.fromkeys(k for line in lines for k in line)), nearest)


def levels_of(domain: Domain, clique: Clique) -> list[Clique]:
    """Sums that a reader of the table looks at first: every level of its places with all else, then of places alone."""
    leveled = [v for v in domain.levels.values() if v.attribute in clique]
    if leveled:
        attribute = max((v.attribute for v in leveled), key=lambda a: domain[a])
        chain = [attribute]
        for v in sorted(leveled, key=lambda v: -v.size):
            if v.attribute == attribute and domain.named((chain[-1], v.name)) == (chain[-1],):
                chain.append(v.name)
    else:
        attribute = max(clique, key=lambda a: domain[a])
        chain = [attribute]
    at = clique.index(attribute)
    cells = [(*clique[:at], v, *clique[at + 1 :]) for v in chain[1:]]
    others = (*clique[:at], *clique[at + 1 :])
    return [*cells, others, *[(v,) for v in chain]]


def sums_over(domain: Domain, clique: Clique, table: NDArray[np.generic], named: Clique) -> Buffer:
    """The table of some of its attributes, at the levels that are named."""
    kept = domain.clique(named)
    axes = tuple(i for i, a in enumerate(clique) if a not in kept)
    return np.asarray(domain.coarsened(table.sum(axis=axes), named))


# -- controls --------------------------------------------------------------------------------------


def whole_limits(control: BoundControl) -> BoundControl:
    """The whole numbers between both ends."""
    low, high = np.ceil(control.low - 1e-9), np.floor(control.high + 1e-9)
    wrong = low > high
    if wrong.any():
        at = tuple(map(int, np.argwhere(wrong)[0]))
        raise ConsilienceError(
            f"whole numbers need controls that leave one, the control of {control.named} at {at} is from "
            f"{control.low[at]:g} to {control.high[at]:g}; give it in whole numbers"
        )
    return BoundControl(control.named, low, high)


def whole_total(controls: Sequence[BoundControl], total: float) -> int:
    """The number of records: what exact controls say, else the whole number next to the total."""
    exact = next((c for c in controls if c.exact), None)
    found = round(total) if exact is None else round(float(exact.low.sum()))
    if found < 1:
        raise ConsilienceError(f"whole numbers need a total of at least one record, got {total:g}")
    return found


def _scaled(
    domain: Domain, clique: Clique, table: Buffer, limits: Sequence[BoundControl]
) -> Buffer:
    """The table scaled, control after control, until its sums are within all limits: next to nothing for a fitted table."""
    table = np.array(table, np.float64)
    for _ in range(SCALINGS):
        off = 0.0
        for c in limits:
            sums = sums_over(domain, clique, table, c.named)
            target = np.clip(sums, c.low, c.high)
            worst = float(np.abs(target - sums).max())
            off = max(off, worst)
            if worst == 0.0:
                continue
            empty = (sums <= 0) & (target > 0)
            if empty.any():
                at = tuple(map(int, np.argwhere(empty)[0]))
                raise ConsilienceError(
                    f"the control of {c.named} at {at} asks for {target[at]:g} where the table has nothing to scale; "
                    "fit the model with the control"
                )
            factor = np.divide(target, sums, out=np.ones_like(sums), where=sums > 0)
            table *= _spread(domain, clique, factor, c.named)
        if off <= MET + 1e-14 * float(limits[-1].low):
            return table
    raise ConsilienceError(
        f"controls must hold together in whole numbers, these do not: {', '.join(str(c.named) for c in limits[:-1])}"
    )


def _spread(domain: Domain, clique: Clique, table: Buffer, named: Clique) -> Buffer:
    """A table over a named clique as one that multiplies the table of the whole clique."""
    for axis, name in enumerate(named):
        if name in domain.levels:
            table = domain.levels[name].spread(table, axis)
    kept = domain.clique(named)
    return table.reshape([domain[a] if a in kept else 1 for a in clique])


def _check_met(domain: Domain, clique: Clique, whole: Ints, limits: Sequence[BoundControl]) -> None:
    for c in limits:
        sums = sums_over(domain, clique, whole, c.named)
        if ((sums < c.low) | (sums > c.high)).any():
            raise ConsilienceError(
                f"whole numbers that keep the control of {c.named} were not found; give controls that hold together"
            )


# -- two lines of sums -----------------------------------------------------------------------------


def _lines(
    domain: Domain, clique: Clique, held: Sequence[Clique], wanted: Iterable[Clique]
) -> tuple[list[Clique], list[Clique]] | None:
    """Two lines of cliques, each from fine to coarse, with all that must be held and what of the rest they have room for."""
    inside = [k for k in dict.fromkeys(held) if k and k != clique]
    sides = _two_sides(domain, inside)
    if sides is None:
        return None
    for k in wanted:
        if not k or k == clique or k in inside:
            continue
        more = _two_sides(domain, [*inside, k])
        if more is not None:
            inside.append(k)
            sides = more
    made: tuple[list[Clique], list[Clique]] = ([], [])
    for k, side in zip(inside, sides, strict=True):
        made[side].append(k)
    for line in made:  # the finest is part of no other
        finer = {k: sum(domain.named((*k, *o)) == o for o in line) for k in line}
        line.sort(key=lambda k: finer[k])
    return made


def _two_sides(domain: Domain, cliques: Sequence[Clique]) -> list[int] | None:
    """A side for each clique so that those of one side lie in each other; None where there is no such division."""
    apart = [[j for j, o in enumerate(cliques) if not _nested(domain, k, o)] for k in cliques]
    sides = [-1] * len(cliques)
    for first in range(len(cliques)):
        if sides[first] >= 0:
            continue
        sides[first], queue = 0, [first]
        for i in queue:
            for j in apart[i]:
                if sides[j] < 0:
                    sides[j] = 1 - sides[i]
                    queue.append(j)
                elif sides[j] == sides[i]:
                    return None
    return sides


def _nested(domain: Domain, one: Clique, other: Clique) -> bool:
    """Whether one of two tables can be read off the other."""
    return domain.named((*one, *other)) in (one, other)


def cells_above(domain: Domain, fine: Clique, coarse: Clique, at: Ints) -> Ints:
    """The cells of the coarser table that these cells of the finer one are part of."""
    found = np.zeros(at.size, np.int64)
    codes = dict(zip(fine, np.unravel_index(at, domain.shape_of(fine)), strict=True))
    of = {domain.clique(a)[0]: a for a in fine}
    for name in coarse:
        own = of[domain.clique(name)[0]]
        held = codes[own]
        if name != own:
            level = domain.levels[name]
            units = level.units if own in domain.sizes else domain.levels[own].parents(level)
            assert units is not None
            held = units[held]
        found = found * domain[name] + held
    return found


# -- the network -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Network:
    """Arcs that carry a fraction: first those of `cells` of the table, at last the total's where it is not whole."""

    nodes: int
    tail: Ints
    head: Ints
    share: Buffer
    cells: Ints
    total_up: bool | None

    @classmethod
    def of(
        cls,
        domain: Domain,
        clique: Clique,
        table: Buffer,
        lines: tuple[list[Clique], list[Clique]],
        total: int,
        held: Collection[Clique],
    ) -> _Network:
        """held: controls, whose sums are whole as far as scaling went."""
        flat = table.reshape(-1)
        cells = np.flatnonzero((flat - np.floor(flat) > WHOLE) & (np.ceil(flat) - flat > WHOLE))
        arcs: list[tuple[Ints, Ints, Buffer]] = []
        nodes, ends = 2, []  # 0: where everything comes from and goes to; 1: all of it
        for side, line in enumerate(lines):
            bases, below = [], nodes
            for k in line:
                bases.append(nodes)
                nodes += prod(domain.shape_of(k))
            first = np.full(cells.size, side, np.int64)
            if line:
                first = below + cells_above(domain, clique, line[0], cells)
            ends.append(first)
            for i, k in enumerate(line):
                sums = sums_over(domain, clique, table, k).reshape(-1)
                share = sums - np.floor(sums)
                near = 1e-5 if k in held else WHOLE
                some = np.flatnonzero((share > near) & (share < 1.0 - near))
                above = np.full(some.size, side, np.int64)
                if i + 1 < len(line):
                    above = bases[i + 1] + cells_above(domain, k, line[i + 1], some)
                fine = bases[i] + some
                arcs.append((above, fine, share[some]) if side == 0 else (fine, above, share[some]))
        whole = float(table.sum())
        share = whole - np.floor(whole)
        up = None
        if WHOLE < share < 1.0 - WHOLE:
            up = total > whole
            arcs.append((np.ones(1, np.int64), np.zeros(1, np.int64), np.array([share])))
        leaves = (ends[0], ends[1], flat[cells] - np.floor(flat[cells]))
        tail, head, shares = (np.concatenate(part) for part in zip(leaves, *arcs, strict=True))
        return cls(nodes, tail, head, shares, cells, up)

    @property
    def slope(self) -> Buffer:
        """What rounding an arc up costs more than rounding it down."""
        slope = 1.0 - 2.0 * self.share
        if self.total_up is not None:
            slope[-1] = -FORCED if self.total_up else FORCED
        return slope

    def rounded(self) -> Buffer:
        carried = self.share.copy()
        round_flow(self.tail, self.head, carried, self.slope, self.nodes)
        return carried

    def nearest(self) -> Buffer:
        """The nearest rounding, by linear programming; the rounding of the kernel where the program has none to offer."""
        arcs = self.tail.size
        if not arcs:
            return self.share
        used, ends = np.unique(np.concatenate([self.tail, self.head]), return_inverse=True)
        signs = np.repeat([-1.0, 1.0], arcs)
        at = np.tile(np.arange(arcs), 2)
        matrix = sparse.csr_array((signs, (ends.reshape(-1), at)), (len(used), arcs))
        low, high, slope = np.zeros(arcs), np.ones(arcs), 1.0 - 2.0 * self.share
        if self.total_up is not None:
            low[-1] = high[-1] = float(self.total_up)
        balance = np.rint(matrix @ self.share)
        found = linprog(
            slope, A_eq=matrix, b_eq=balance, bounds=np.column_stack([low, high]), method="highs-ds"
        )
        if found.x is None or np.abs(found.x - np.rint(found.x)).max() > 1e-6:
            raise ConsilienceError(
                f"the nearest whole table was not found: {found.message}"
            )  # the network's matrix is totally unimodular, so this is a defect
        return np.rint(found.x)


# -- controls that cross ---------------------------------------------------------------------------


def _crossing(
    domain: Domain,
    clique: Clique,
    table: Buffer,
    limits: Sequence[BoundControl],
    wanted: Sequence[Clique],
) -> Rounded:
    """Every cell one of the whole numbers next to it, controls met, nearest in L1; sums within one where that is possible."""
    flat = table.reshape(-1)
    floor = np.floor(flat + WHOLE)
    share = np.maximum(flat - floor, 0.0)
    cells = np.flatnonzero(share > WHOLE)
    if cells.size > INTEGER_PROGRAM:
        raise ConsilienceError(
            f"controls that cross ({', '.join(str(c.named) for c in limits if c.named)}) are met in whole numbers for tables of "
            f"up to {INTEGER_PROGRAM:,} cells that are not whole, got {cells.size:,}; leave out a control that others imply"
        )
    whole = floor.reshape(table.shape)
    if not cells.size:
        return Rounded(whole.astype(np.int64), tuple(c.named for c in limits if c.named), True)
    must = [(c.named, c.low, c.high) for c in limits]
    sums = [(k, sums_over(domain, clique, table, k)) for k in wanted if k]
    near = [(k, np.floor(s + 1e-9), np.ceil(s - 1e-9)) for k, s in sums]
    for kept in ([*must, *near], must):
        rows = []
        for k, low, high in kept:
            there = sums_over(domain, clique, whole, k).reshape(-1)
            above = cells_above(domain, clique, k, cells)
            ones = sparse.csr_array(
                (np.ones(cells.size), (above, np.arange(cells.size))), (there.size, cells.size)
            )
            rows.append((ones, low.reshape(-1) - there, high.reshape(-1) - there))
        slope = 1.0 - 2.0 * share[cells]
        found = milp(slope, constraints=rows, integrality=np.ones(cells.size), bounds=(0, 1))
        if found.x is not None:
            floor[cells] += np.rint(found.x)
            made = floor.reshape(table.shape).astype(np.int64)
            _check_met(domain, clique, made, limits)
            sums = tuple(dict.fromkeys(k for k, _, _ in kept if k))
            return Rounded(made, sums, False)
    raise ConsilienceError(
        "no whole table within one of the fitted one meets the controls "
        f"{', '.join(str(c.named) for c in limits if c.named)}, which cross; leave out a control that others imply"
    )
