"""Whether controls can hold together, and if not, a smallest set of their rows that cannot: a linear program over few cells.

Only what controls speak of matters: the tables of their cliques, agreeing where they overlap, with values that no control tells
apart taken together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from consilience.domain import Buffer, Clique, Cliques, Domain
from consilience.domain.levels import Level
from consilience.errors import MeasurementError
from consilience.measurements import BoundControl

MOST_CELLS = 100_000
"""Beyond this the program is left out: a solve then says that controls were not met, and not why."""
MOST_ROWS = 200
"""Rows among which a smallest set is looked for."""
SLACK = 1e-7
SHOWN = 8


@dataclass(frozen=True)
class _Row:
    """One cell of a control."""

    names: Clique
    codes: tuple[int, ...]
    low: float
    high: float

    def __str__(self) -> str:
        where = ", ".join(f"{a}={k}" for a, k in zip(self.names, self.codes, strict=True)) or "all"
        if self.low == self.high:
            return f"{where} is {self.low:g}"
        if np.isinf(self.high):
            return f"{where} is at least {self.low:g}"
        return f"{where} is at most {self.high:g}" if self.low <= 0 else f"{where} is {self.low:g} to {self.high:g}"  # fmt: skip


def check_controls(
    domain: Domain,
    controls: Sequence[BoundControl],
    total: float | None,
    masks: Mapping[Clique, Buffer],
) -> None:
    """Refuse controls that no tables keep, and name a smallest set of rows that contradict each other.

    total: the number of records, None where it is not known yet.
    """
    if not controls:
        return
    known = [] if total is None else [BoundControl((), np.array(total), np.array(total))]
    program = _Program(domain, [*controls, *known], masks)
    if program.cells > MOST_CELLS:
        return
    rows = np.arange(len(program.rows))
    broken = program.broken(rows)
    if broken is None:
        return
    few = rows[broken]
    if len(few) <= MOST_ROWS:
        few = program.smallest(few)
    shown = "; ".join(str(program.rows[i]) for i in few[:SHOWN])
    more = f"; and {len(few) - SHOWN} more" if len(few) > SHOWN else ""
    raise MeasurementError(f"controls must not contradict each other, these do: {shown}{more}")


class _Program:
    """Tables of the largest cliques that controls name, and every cell of every control as a row of sums over them."""

    def __init__(
        self, domain: Domain, controls: Sequence[BoundControl], masks: Mapping[Clique, Buffer]
    ) -> None:
        self.domain = domain
        named = [c.named for c in controls]
        self.parts = {a: _part(domain, a, named) for a in domain.clique({a for n in named for a in n})}  # fmt: skip
        cliques = Cliques.of(domain, [domain.clique(n) for n in named]).distinct(empty=False)
        self.tables: list[Clique] = list(cliques.maximal()) or [()]
        sizes = [prod(self._size(a) for a in t) for t in self.tables]
        self.at = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
        self.cells = int(self.at[-1])
        if self.cells > MOST_CELLS:
            return
        self.rows = [
            _Row(c.named, tuple(map(int, at)), float(c.low[tuple(at)]), float(c.high[tuple(at)]))
            for c in controls
            for at in np.ndindex(c.low.shape)
        ]
        self.sums = _csr(sparse.vstack([self._sums_of(c.named) for c in controls]))
        self.low = np.array([r.low for r in self.rows])
        self.high = np.array([r.high for r in self.rows])
        self.unit = max(1.0, float(np.abs(self.low).max()))
        ties = [
            self._reading(s, i) - self._reading(s, j)
            for i, j in combinations(range(len(self.tables)), 2)
            for s in [tuple(a for a in self.tables[i] if a in self.tables[j])]
        ]
        self.ties = _csr(sparse.vstack(ties)) if ties else _csr((0, self.cells))  # fmt: skip
        self.open = np.ones(self.cells, bool)
        for given, mask in masks.items():
            self._close(given, mask)

    def _size(self, attribute: str) -> int:
        part = self.parts[attribute]
        return self.domain[attribute] if part is None else part.size

    def _home(self, clique: Clique) -> int | None:
        return next((i for i, t in enumerate(self.tables) if set(clique) <= set(t)), None)

    def _reading(self, named: Clique, table: int) -> Any:
        """The sums of one table to a clique, levels by name."""
        own = {self._attribute(a): a for a in named}
        found: Any = _csr(np.ones((1, 1)))
        for a in self.tables[table]:
            found = _csr(sparse.kron(found, self._along(a, own.get(a))))
        before = _csr((found.shape[0], self.at[table]))
        after = _csr((found.shape[0], self.cells - self.at[table + 1]))
        return _csr(sparse.hstack([before, found, after]))

    def _sums_of(self, named: Clique) -> Any:
        home = self._home(self.domain.clique(named))
        assert home is not None
        return self._reading(named, home)

    def _attribute(self, name: str) -> str:
        return self.domain.levels[name].attribute if name in self.domain.levels else name

    def _along(self, attribute: str, name: str | None) -> Any:
        """One axis: summed out, kept, or read at a level."""
        size = self._size(attribute)
        if name is None:
            return _csr(np.ones((1, size)))
        part = self.parts[attribute]
        if name == attribute or part is None:
            if name not in self.domain.levels:
                return _csr(sparse.eye_array(size))
            units = self.domain.levels[name].units
        else:
            units = np.zeros(size, np.int64)
            units[part.units] = self.domain.levels[name].units
        where = (units, np.arange(size))
        return _csr(sparse.coo_array((np.ones(size), where), (int(units.max()) + 1, size)))

    def _close(self, given: Clique, mask: Buffer) -> None:
        """Cells that a mask leaves nothing of."""
        clique = self.domain.clique(given)
        table = np.asarray(mask).transpose([given.index(a) for a in clique])
        for i, t in enumerate(self.tables):
            if set(clique) <= set(t):
                for axis, a in enumerate(clique):
                    part = self.parts[a]
                    table = table if part is None else part.summed(table.astype(int), axis) > 0
                shape = [self._size(a) if a in clique else 1 for a in t]
                whole = np.broadcast_to(table.reshape(shape), [self._size(a) for a in t])
                self.open[self.at[i] : self.at[i + 1]] &= whole.reshape(-1)
                return

    def broken(self, rows: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Which of the rows a proof that they cannot hold together uses; None if they can."""
        sums, low, high = self.sums[rows], self.low[rows] / self.unit, self.high[rows] / self.unit
        many, finite = len(rows), np.isfinite(high)
        one, nothing = _csr(sparse.eye_array(many)), _csr((many, many))
        found: Any = linprog(
            np.concatenate([np.zeros(self.cells), np.ones(2 * many)]),
            A_ub=sparse.vstack(
                [
                    sparse.hstack([-sums, -one, nothing]),
                    _csr(sparse.hstack([sums, nothing, -one]))[np.flatnonzero(finite)],
                ],
                format="csr",
            ),
            b_ub=np.concatenate([-low, high[finite]]),
            A_eq=sparse.hstack([self.ties, _csr((self.ties.shape[0], 2 * many))]) if self.ties.shape[0] else None,
            b_eq=np.zeros(self.ties.shape[0]) if self.ties.shape[0] else None,
            bounds=np.stack(
                [
                    np.zeros(self.cells + 2 * many),
                    np.concatenate([np.where(self.open, np.inf, 0.0), np.full(2 * many, np.inf)]),
                ],
                axis=1,
            ),
            method="highs",
        )  # fmt: skip
        if found.status != 0 or found.fun <= SLACK:
            return None
        prices = np.abs(found.ineqlin.marginals)
        used = prices[:many].copy()
        used[finite] += prices[many:]
        return used > 1e-9

    def smallest(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows left out one by one as long as the rest still cannot hold together."""
        kept = rows
        for row in rows.tolist():
            if row in kept:
                fewer = kept[kept != row]
                broken = self.broken(fewer) if len(fewer) else None
                kept = kept if broken is None else fewer[broken]
        return kept


def _csr(given: Any) -> Any:
    """A sparse array; what scipy's stubs know of its shape and items is less than it has."""
    return sparse.csr_array(given)


def _part(domain: Domain, attribute: str, named: Sequence[Clique]) -> Level | None:
    """The values of an attribute that no control tells apart taken together; None where its own values are named."""
    used = {a for n in named for a in n}
    if attribute in used:
        return None
    units = np.stack([v.units for n, v in domain.levels.items() if n in used and v.attribute == attribute])  # fmt: skip
    _, together = np.unique(units, axis=1, return_inverse=True)
    together = together.reshape(-1).astype(np.int64)
    return Level(attribute, attribute, together, int(together.max()) + 1)
