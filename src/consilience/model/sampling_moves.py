"""Rows moved towards given tables: one code of one row at a time, only where the tables' total distance falls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, CliqueVector, Layout
from consilience.kernels.row_moves import IMPOSSIBLE, accept, lay_back, lay_out, propose
from consilience.records import Dataset
from consilience.tree.rows import RowCodes

BLOCK = 1 << 13
"""Rows looked at before the moves found for them are made."""
WHOLE = 2
"""Sweeps that visit all rows however many there are; most codes that move do so in these."""
VISITED = 1 << 18
"""Rows that a later sweep visits at least, in turn: little is left to be moved, and any rows can move it."""
WIDEST = 0.01
"""Where sweeps begin: deviations up to this share of the rows are told apart."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Phase:
    """The tables that hold one attribute, as index arrays; their meaning is in `kernels/row_moves.py`."""

    attribute: int
    size: int
    at: Ints
    left: Ints
    right: Ints
    to: Ints
    least_at: Ints
    ptr: Ints
    other: Ints
    stride: Ints

    @classmethod
    def of(cls, layout: Layout, attribute: int) -> Phase | None:
        """None where no table holds the attribute, or it has one value: nothing can move."""
        domain = layout.domain
        name, size = domain.attributes[attribute], domain.shape[attribute]
        holding = [i for i, c in enumerate(layout.cliques) if name in c]
        if not holding or size == 1:
            return None
        left, right, other, stride, ptr = [], [], [], [], [0]
        for i in holding:
            clique, shape = layout.cliques[i], layout.shapes[i]
            k = clique.index(name)
            left.append(prod(shape[:k]))
            right.append(prod(shape[k + 1 :]))
            rest = clique[:k] + clique[k + 1 :]
            sizes = shape[:k] + shape[k + 1 :]
            other += [domain.position(a) for a in rest]
            stride += [prod(sizes[j + 1 :]) for j in range(len(rest))]
            ptr.append(len(other))
        stretches = np.multiply(left, right)
        least_at = np.concatenate([[0], np.cumsum(stretches)])
        arrays = (
            layout.offsets[holding], left, right, least_at[:-1] * size, least_at, ptr, other, stride,
        )  # fmt: skip
        return cls(attribute, size, *(np.array(a, np.int64) for a in arrays))

    @property
    def cells(self) -> int:
        return int(self.least_at[-1]) * self.size


class RowMoves:
    """Sweeps over rows and attributes against fixed targets; owns its buffers, the rows are passed in and changed in place."""

    def __init__(self, tau: CliqueVector, allowed: CliqueVector | None) -> None:
        self.layout = tau.layout
        self.tau = tau
        self.impossible = None if allowed is None else allowed.values == 0
        domain = tau.domain
        found = [Phase.of(self.layout, a) for a in range(len(domain))]
        self.phases = [p for p in found if p is not None]
        most = max((p.cells for p in self.phases), default=0)
        stretches = max((int(p.least_at[-1]) for p in self.phases), default=0)
        self._laid, self._cost = np.empty((2, most), np.float32)
        self._least = np.empty(stretches, np.float32)
        self._found = np.empty(BLOCK, np.int32)

    def counts(self, codes: RowCodes) -> Buffer:
        return Dataset(codes, self.layout.domain).marginals(self.layout.cliques).values

    def sweep(
        self, codes: RowCodes, width: float, step: Callable[[], None] = lambda: None, part: int = 0
    ) -> int:
        """One pass over every attribute of the rows, in sweep number `part`; how many codes were moved."""
        deviation = (self.counts(codes) - len(codes) * self.tau.values).astype(np.float32)
        if self.impossible is not None:
            deviation[self.impossible] = IMPOSSIBLE
        made = 0
        for phase in self.phases:
            made += self._move(phase, codes, deviation, np.float32(1.0 / width), part)
            step()
        return made

    def _move(
        self,
        p: Phase,
        codes: RowCodes,
        deviation: NDArray[np.float32],
        slope: np.float32,
        part: int,
    ) -> int:
        lay_out(
            deviation, p.at, p.left, p.right, p.size, slope, p.to, self._laid, self._cost,
            p.least_at, self._least,
        )  # fmt: skip
        made = 0
        for low, high in _blocks(len(codes), part):
            arguments = (
                codes, low, high, p.attribute, p.size, slope, p.ptr, p.other, p.stride, p.to,
                self._laid, self._cost, p.least_at, self._least, self._found,
            )  # fmt: skip
            propose(*arguments)
            made += accept(*arguments)
        lay_back(deviation, p.at, p.left, p.right, p.size, p.to, self._laid)
        return made


def impossible_rows(allowed: CliqueVector, codes: RowCodes) -> NDArray[np.bool_]:
    """Which rows fall in a cell that may hold none."""
    bad = np.zeros(len(codes), np.bool_)
    for clique, table in allowed.items():
        if not table.all():
            at = tuple(codes[:, allowed.domain.position(a)] for a in clique)
            bad |= table[at] == 0
    return bad


def widths(n: int, sweeps: int) -> list[float]:
    """Of each sweep: from a share of the rows down to one record, so that the last sweeps count single records."""
    return np.geomspace(max(1.0, WIDEST * n), 1.0, sweeps).tolist() if sweeps else []


def _blocks(n: int, part: int) -> Iterator[tuple[int, int]]:
    """Blocks of rows that sweep number `part` visits: all, or every k-th of many, in turn."""
    turns = 1 if part < WHOLE else max(1, n // VISITED)
    starts = range(part % turns * BLOCK, n, BLOCK * turns)
    return ((low, min(low + BLOCK, n)) for low in starts)
