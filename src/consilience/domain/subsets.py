"""Subsets: the subsets of a workload's cliques, who contains whom, and what noisy marginals tell about each.

The space of tables is the orthogonal sum of residual subspaces V_t, one per set t of attributes, of dimension
d_t = prod (n_i - 1). The marginal on a sees V_t iff t is a subset of a, and there M_a^T M_a is a multiple of the identity.
So if each marginal a is measured with precision u_a = 1 / sigma_a^2 in every cell,

    lambda_t = sum_{a >= t} u_a / n_a                          what is known about V_t
    total squared error of marginal c = sum_{t <= c} d_t / (n_c lambda_t)

(a common factor, the size of the whole domain, cancels). Only subsets of the workload's cliques matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from consilience.domain.clique_vector import Buffer
from consilience.domain.domain import Clique, Domain
from consilience.domain.workloads import Workload
from consilience.errors import CapacityError
from consilience.memory import show_bytes

Rows = NDArray[np.int64]

_BYTES_PER_PAIR = 60
_LARGEST = 2 * 2**30


@dataclass(frozen=True, eq=False, repr=False)
class Subsets:
    """All subsets of some cliques, smaller ones first, then in domain order; the empty one is the first.

    `cells[i]` is n_t and `dims[i]` is d_t of subset i; `pairs` has (below, above) for every subset t and
    superset a in the lattice, t = a included.
    """

    domain: Domain
    subsets: tuple[Clique, ...]
    index: Mapping[Clique, int]
    cells: Buffer
    dims: Buffer
    below: Rows
    above: Rows

    @classmethod
    def of(cls, domain: Domain, cliques: Iterable[Clique]) -> Subsets:
        given = list(cliques)
        _check_pairs(given)
        place = {a: i for i, a in enumerate(domain.attributes)}
        ranks = _Ranks(len(domain), [[place[a] for a in c] for c in given])
        names, shape = domain.attributes, np.array(domain.shape, float)
        subsets = tuple(
            tuple([names[i] for i in row]) for rows in ranks.rows for row in rows.tolist()
        )
        below, above = ranks.pairs()
        return cls(
            domain,
            subsets,
            {c: i for i, c in enumerate(subsets)},
            np.concatenate([shape[rows].prod(axis=1) for rows in ranks.rows]),
            np.concatenate([(shape[rows] - 1).prod(axis=1) for rows in ranks.rows]),
            below,
            above,
        )

    @cached_property
    def spread(self) -> sparse.csr_array:
        """B with lambda = B u: entry (t, a) is 1 / n_a where t is a subset of a."""
        return self._matrix(1 / self.cells[self.above])

    @cached_property
    def drops(self) -> sparse.csr_array:
        """Entry (t, a) is n_t / n_a, one over the number of cells of a that a cell of t sums."""
        return self._matrix(self.cells[self.below] / self.cells[self.above])

    def _matrix(self, entries: Buffer) -> sparse.csr_array:
        size = len(self.subsets)
        return sparse.csr_array((entries, (self.below, self.above)), (size, size))

    def places(self, cliques: Iterable[Clique]) -> Rows:
        """The position of each clique."""
        return np.array([self.index[c] for c in cliques], np.int64)

    def importance(self, workload: Workload) -> Buffer:
        """omega_t = sum over the workload's cliques c >= t of w_c^2 / n_c: how much V_t matters."""
        squares = np.zeros(len(self.subsets))
        squares[self.places(workload)] = np.square(list(workload.values()))
        return self.spread @ squares

    def squared_errors(self, known: Buffer, cliques: Sequence[Clique], total_known: bool) -> Buffer:
        """Expected squared error of each clique's whole table, given lambda_t of each subset."""
        with np.errstate(divide="ignore"):
            each = np.where(self.dims > 0, self.dims / known, 0.0)
        if total_known:
            each[0] = 0.0
        return (self.spread.T @ each)[self.places(cliques)]

    def __repr__(self) -> str:
        return f"Subsets({len(self.subsets):,} subsets, {len(self.below):,} pairs)"


class _Ranks:
    """Subsets by size as sorted rows of attribute positions.

    The key of a row is (rank of the row without its last entry) * d + last entry: small whole numbers,
    as every subset of a subset is here too, in lexicographic order.
    """

    def __init__(self, attributes: int, cliques: Sequence[list[int]]) -> None:
        self.attributes = attributes
        self.keys: list[Rows] = [np.zeros(1, np.int64)]
        self.rows: list[Rows] = [np.zeros((1, 0), np.int64)]
        orders = sorted({len(c) for c in cliques})
        stacked = {
            k: np.array([c for c in cliques if len(c) == k], np.int64).reshape(-1, k)
            for k in orders
        }
        for size in range(1, max(orders, default=0) + 1):
            found = np.concatenate([_flat(_choose(stacked[k], size)) for k in orders if k >= size])
            keys, first = np.unique(self._key(found), return_index=True)
            self.keys.append(keys)
            self.rows.append(found[first])
        self.starts = np.concatenate([[0], np.cumsum([len(k) for k in self.keys])])

    def _key(self, rows: Rows) -> Rows:
        return self._rank(rows[:, :-1]) * self.attributes + rows[:, -1]

    def _rank(self, rows: Rows) -> Rows:
        if rows.shape[1] == 0:
            return np.zeros(len(rows), np.int64)
        return np.searchsorted(self.keys[rows.shape[1]], self._key(rows))

    def pairs(self) -> tuple[Rows, Rows]:
        """Positions (subset, superset) of every pair of rows that contain one another."""
        below, above = [], []
        for size, rows in enumerate(self.rows):
            owner = self.starts[size] + np.arange(len(rows))
            for part in range(size + 1):
                chosen = _choose(rows, part)
                below.append(self.starts[part] + self._rank(_flat(chosen)))
                above.append(np.repeat(owner, chosen.shape[1]))
        return np.concatenate(below), np.concatenate(above)


def _choose(rows: Rows, size: int) -> Rows:
    """Every subset of so many entries of each row: (rows, subsets, size)."""
    columns = list(combinations(range(rows.shape[1]), size))
    return rows[:, np.array(columns, np.int64).reshape(len(columns), size)]


def _flat(chosen: Rows) -> Rows:
    return chosen.reshape(chosen.shape[0] * chosen.shape[1], chosen.shape[2])


def _check_pairs(cliques: Iterable[Clique]) -> None:
    need = _BYTES_PER_PAIR * sum(3 ** len(c) for c in cliques)
    if need > _LARGEST:
        raise CapacityError(
            f"the subsets of the workload's cliques must fit {show_bytes(_LARGEST)}, got cliques whose pairs of "
            f"subsets need up to {show_bytes(need)}; choose cliques of fewer attributes, or use Gaussian or Laplace",
            need,
            _LARGEST,
        )
