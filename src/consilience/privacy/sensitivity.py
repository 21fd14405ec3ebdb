"""How far one person can move a vector of counts: the single source of every sensitivity.

Two tables are neighbours under `replace-one` (the paper's relation) when one row of one is changed
to give the other, and under `add-remove` when one row is added or removed. A marginal places each
row in one cell with a one, so a neighbour changes two cells by one (one cell loses the old row, one
gains the new), or one cell:

    quantity                            add-remove          replace-one
    one marginal        L1 / L2 / L0    1 / 1 / 1           2 / sqrt 2 / 2
    k marginals         L1 / L2 / L0    k / sqrt k / k      2k / sqrt 2k / 2k
    weights w, w_i M_i  L1 / L2^2       sum w / sum w^2     2 sum w / 2 sum w^2
    score ||M x - m||_1, m fixed        1                   2
    scores w_r (||M_r x - m_r||_1 - a_r)  max w             2 max w
    score +-(count of a cell - m), m fixed  1               1
    number of rows                      1                   0 (public)
    integer matrix A x  L1 / L2^2       columns' largest    2 / 2 (A >= 0) or 4 times that
    n_t residual_t x    L2^2            prod n (n - 1)      2 m / (m - 1) times that, m = min n

No other module states a sensitivity.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from math import prod

import numpy as np
from numpy.typing import NDArray

from consilience.errors import BudgetError
from consilience.privacy.units import Real, positive


class Neighbours(Enum):
    """Which pairs of tables must be indistinguishable."""

    REPLACE_ONE = "replace-one"
    ADD_REMOVE = "add-remove"

    @classmethod
    def of(cls, value: Neighbours | str | None) -> Neighbours:
        """The relation by name; there is no default."""
        if isinstance(value, Neighbours):
            return value
        for relation in cls:
            if value == relation.value:
                return relation
        raise BudgetError(
            f"neighbours must be 'replace-one' or 'add-remove', got {value!r}; "
            "say which tables must be indistinguishable"
        )

    @property
    def changed_cells(self) -> int:
        """Cells of one marginal that differ between neighbours, each by one."""
        return 2 if self is Neighbours.REPLACE_ONE else 1


@dataclass(frozen=True)
class Sensitivity:
    """Largest change of a vector between neighbours: L1 norm, squared L2 norm and number of entries
    (exact).
    """

    neighbours: Neighbours
    l1: Fraction
    l2_squared: Fraction
    cells: int


def marginals(neighbours: Neighbours, count: int = 1) -> Sensitivity:
    """`count` marginals released together as one vector of integer counts."""
    k = operator.index(count)
    if k < 1:
        raise BudgetError(f"a workload must have at least one marginal, got {count}")
    cells = Neighbours.of(neighbours).changed_cells * k
    return Sensitivity(Neighbours.of(neighbours), Fraction(cells), Fraction(cells), cells)


def weighted_marginals(neighbours: Neighbours, weights: Iterable[Real]) -> Sensitivity:
    """The stacked vector (w_1 M_1 x, ..., w_k M_k x)."""
    w = checked_weights(weights)
    c = Neighbours.of(neighbours).changed_cells
    return Sensitivity(
        Neighbours.of(neighbours),
        c * sum(w, Fraction(0)),
        c * sum((x * x for x in w), Fraction(0)),
        c * len(w),
    )


def checked_weights(weights: Iterable[Real]) -> tuple[Fraction, ...]:
    """Positive, finite weights, at least one."""
    w = tuple(positive(x, "a weight") for x in weights)
    if not w:
        raise BudgetError("a workload must have at least one marginal, got no weights")
    return w


def l1_score(neighbours: Neighbours) -> Fraction:
    """||M x - m||_1 with m fixed: by the triangle inequality it moves by at most the L1 change of M
    x.
    """
    return marginals(neighbours).l1


def weighted_l1_score(neighbours: Neighbours, weights: Iterable[Real]) -> Fraction:
    """The scores w_r (||M_r x - m_r||_1 - a_r) of several candidates, m_r and a_r fixed: how far the
    one that moves most can move.
    """
    return max(checked_weights(weights)) * l1_score(neighbours)


def cell_score(neighbours: Neighbours) -> Fraction:
    """+-(count of one cell - m) with m fixed: a row leaves a cell, enters it, or does neither, so it moves by at most one."""
    Neighbours.of(neighbours)
    return Fraction(1)


def total(neighbours: Neighbours) -> Sensitivity:
    """The number of rows: it moves by one, or is public (zero) as a replacement keeps it."""
    rows = 0 if Neighbours.of(neighbours) is Neighbours.REPLACE_ONE else 1
    return Sensitivity(Neighbours.of(neighbours), Fraction(rows), Fraction(rows), rows)


def products(neighbours: Neighbours, factors: Iterable[NDArray[np.int64]]) -> Sensitivity:
    """A x for a Kronecker product A of integer matrices (rows x cells of one attribute each).

    Adding a row adds one column of A, and the norms of columns multiply. Replacing a row subtracts one
    column and adds another: L1 at most doubles; L2^2 at most doubles where no entry is negative, as then no two
    columns have a negative product, and at most quadruples otherwise.
    """
    relation = Neighbours.of(neighbours)
    l1, l2_squared, entries, signed = 1, 1, 1, False
    for factor in factors:
        columns = _whole(factor).T.tolist()  # Python's integers have no end
        l1 *= max(sum(abs(v) for v in column) for column in columns)
        l2_squared *= max(sum(v * v for v in column) for column in columns)
        entries *= max(sum(v != 0 for v in column) for column in columns)
        signed |= any(v < 0 for column in columns for v in column)
    c = relation.changed_cells
    squares = l2_squared * (c * c if signed else c)
    return Sensitivity(relation, Fraction(c * l1), Fraction(squares), c * entries)


def residuals(neighbours: Neighbours, sizes: Iterable[int]) -> Sensitivity:
    """A x for A the product of n I - 1 1^T over attributes of the given sizes: n_t times the residual of a
    marginal.

    A column has L2^2 = prod n (n - 1) and L1 = prod 2 (n - 1). Two columns that differ in the attributes D have the
    inner product n_t prod_{D} (-1) prod_{not D} (n - 1), least when D is the smallest attribute alone. No attributes: the
    number of rows.
    """
    relation = Neighbours.of(neighbours)
    n = [operator.index(size) for size in sizes]
    if not n:
        return total(relation)
    if min(n) < 2:
        raise BudgetError(f"a residual must have attributes of at least two values, got {n}")
    square, l1 = prod(k * (k - 1) for k in n), prod(2 * (k - 1) for k in n)
    c = relation.changed_cells
    if relation is Neighbours.REPLACE_ONE:
        square = 2 * square * min(n) // (min(n) - 1)
    return Sensitivity(relation, Fraction(c * l1), Fraction(square), prod(n))


def _whole(matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    if matrix.ndim != 2 or 0 in matrix.shape or matrix.dtype.kind != "i":
        raise BudgetError(
            "noise protects integer queries, rows x cells, "
            f"got shape {matrix.shape} of {matrix.dtype}; round the matrix and price what is rounded"
        )
    return matrix
