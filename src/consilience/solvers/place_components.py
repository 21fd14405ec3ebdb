"""The components of a table of several attributes that marginals tell apart, and operators that are one number on each.

A marginal over the attributes q asks M'M = (n / n_q) E_q, where E_q averages a table over all attributes but q, and E_q is the
sum of the residual projectors P_s over s inside q. So what marginals say about a table is one number per component s. Subsets
that no measured marginal holds, but for the whole table, are never told apart: they are one component together, `rest`, the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer
from consilience.kernels.places import Averages

Subset = tuple[int, ...]


class Components:
    """Components of tables of `shape` that the marginals over `subsets` (positions of attributes) tell apart.

    `subsets` holds what has a component of its own, larger ones first, and not the whole table.
    """

    def __init__(self, shape: tuple[int, ...], subsets: Iterable[Subset]) -> None:
        self.shape = shape
        self.cells = prod(shape)
        self.whole: Subset = tuple(range(len(shape)))
        closed = {s for q in subsets for k in range(len(q) + 1) for s in combinations(q, k)}
        self.subsets = sorted(closed - {self.whole}, key=lambda s: (-len(s), s))

    def __len__(self) -> int:
        return len(self.subsets) + 1

    def inside(self, subset: Subset) -> NDArray[np.bool_]:
        """Which components a marginal over the subset sees."""
        if subset == self.whole:
            return np.ones(len(self), bool)
        return np.array([set(s) <= set(subset) for s in self.subsets] + [False])

    def only(self, subset: Subset) -> NDArray[np.bool_]:
        """The component that a marginal has beyond its own marginals; `rest` where that is the whole table's."""
        return np.array([s == subset for s in self.subsets] + [subset == self.whole])

    def copies(self, subset: Subset) -> float:
        """Cells of the table for each cell of the marginal."""
        return self.cells / prod(self.shape[i] for i in subset)

    @cached_property
    def dimensions(self) -> Buffer:
        """Degrees of freedom of each component."""
        each = [float(prod(self.shape[i] - 1 for i in s)) for s in self.subsets]
        return np.array([*each, self.cells - sum(each)])

    def as_averages(self, numbers: Buffer) -> Buffer:
        """sum_s f_s P_s written as sum_t g_t E_t: from rows of f to rows of g, the coefficient of the table itself last."""
        last = numbers[..., -1:]
        return np.concatenate(
            [np.einsum("...s,st->...t", numbers[..., :-1] - last, self._moebius), last], axis=-1
        )

    @cached_property
    def _moebius(self) -> Buffer:
        sets = [set(s) for s in self.subsets]
        signs = [[(-1.0) ** len(s - t) if t <= s else 0.0 for t in sets] for s in sets]
        return np.array(signs).reshape(len(sets), len(sets))

    # -- cells ------------------------------------------------------------------------------------------

    def map_to(self, subset: Subset) -> NDArray[np.int32]:
        """For each cell of the table its cell of the marginal."""
        return _cell_map(self.shape, self.whole, subset)

    def sums(self, tables: Buffer, subset: Subset) -> Buffer:
        """Rows of tables summed to the marginal, a row each."""
        axes = tuple(i + 1 for i in self.whole if i not in subset)
        return tables.reshape(-1, *self.shape).sum(axis=axes).reshape(len(tables), -1)

    def spread(self, marginals: Buffer, subset: Subset) -> Buffer:
        """Rows of marginals written into every cell that they sum: a view where it can be one."""
        wide = [n if i in subset else 1 for i, n in enumerate(self.shape)]
        return np.broadcast_to(
            marginals.reshape(len(marginals), *wide), (len(marginals), *self.shape)
        )

    @cached_property
    def averages(self) -> Averages:
        """How kernels average: each table from the smallest one that holds it, row by row of that one."""
        sets = [*self.subsets]
        size = [prod(self.shape[i] for i in s) for s in sets]
        at = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
        source, kind, rows, inner, maps, map_at, factor = [], [], [], [], [], [0], []
        for j, s in enumerate(sets):
            above = [i for i in range(j) if set(s) < set(sets[i])]
            best = min(above, key=lambda i: size[i], default=-1)
            owner = self.whole if best < 0 else sets[best]
            wide = self.cells if best < 0 else size[best]
            last = self.shape[owner[-1]] if owner else 1
            keeps = bool(owner) and owner[-1] in s
            cells = _cell_map(self.shape, owner, s).reshape(-1, last)
            source.append(best)
            kind.append(1 if keeps else 0)
            rows.append(wide // last)
            inner.append(last)
            maps.append(cells[:, 0])
            map_at.append(map_at[-1] + len(cells))
            factor.append(size[j] / wide)
        whole = np.array(source, np.int64)
        return Averages(
            np.int64(self.cells), at, whole, np.array(kind, np.int64), np.array(rows, np.int64),
            np.array(inner, np.int64), np.concatenate([*maps, np.zeros(0, np.int64)]).astype(np.int64),
            np.array(map_at, np.int64), np.array(factor, np.float64),
        )  # fmt: skip


def _cell_map(shape: tuple[int, ...], owner: Subset, subset: Subset) -> NDArray[np.int32]:
    """For each cell of the marginal over `owner` its cell of the marginal over `subset`."""
    sizes = [shape[i] for i in owner]
    index = np.zeros(sizes, np.int64)
    step = 1
    for i in reversed(subset):
        axis = owner.index(i)
        view = [1] * len(owner)
        view[axis] = shape[i]
        index = index + step * np.arange(shape[i]).reshape(view)
        step *= shape[i]
    return index.reshape(-1).astype(np.int32)
