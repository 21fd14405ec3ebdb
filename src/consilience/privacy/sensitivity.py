"""How far one unit can move a vector of counts: the single source of every sensitivity.

A unit is what is protected: a row, or everything a person (household, firm) has in the table, of which at most `m` rows are
counted; which of them is decided unit by unit, so nobody's rows depend on another's. Two tables are neighbours under
`replace-one` (the paper's relation, m = 1) when the 1 to m counted rows of one unit are replaced by 1 to m others, and under
`add-remove` when they are added or removed. A marginal places each row in one cell with a one. All m rows may lie in one cell,
so a change has the L1 norm of m rows and the L2 norm of one row m times; convexity makes that the worst case:

    quantity                            add-remove          replace-one
    one marginal        L1 / L2^2 / L0  m / m^2 / m         2m / 2 m^2 / 2m
    k marginals         L1 / L2^2 / L0  mk / m^2 k / mk     2mk / 2 m^2 k / 2mk
    weights w, w_i M_i  L1 / L2^2       m sum w / m^2 sum w^2     twice that
    score ||M x - m||_1, m fixed        m                   2m
    scores w_r (||M_r x - m_r||_1 - a_r)  m max w           2m max w
    score +-(count of a cell - m), m fixed  m               m
    number of rows                      m                   m - 1 (public for m = 1)
    integer matrix A x  L1 / L2^2       m / m^2 times the columns' largest   2 / 2 (A >= 0) or 4 times that
    n_t residual_t x    L2^2            m^2 prod n (n - 1)  2 k / (k - 1) times that, k = min n
    the same, each place's              the same            the same
    all of them, each over its width    their sum           the largest sum over who differs where (`residual_family`)

No other module states a sensitivity.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from consilience.errors import BudgetError
from consilience.privacy.units import Real, positive

KINDS = ("replace-one", "add-remove")


@dataclass(frozen=True)
class Neighbours:
    """Which pairs of tables must be indistinguishable: those that differ in one unit.

    unit: the column that says whose a row is; None where every row stands for itself. rows: how many rows of a unit count at
    most.
    """

    value: str
    unit: str | None = None
    rows: int = 1

    REPLACE_ONE: ClassVar[Neighbours]
    ADD_REMOVE: ClassVar[Neighbours]

    def __post_init__(self) -> None:
        if self.value not in KINDS:
            raise BudgetError(
                f"neighbours must be 'replace-one' or 'add-remove', got {self.value!r}; "
                "say which tables must be indistinguishable"
            )
        if self.unit is not None and (not isinstance(self.unit, str) or not self.unit):
            raise BudgetError(f"a unit must be the name of a column, got {self.unit!r}")
        whole = isinstance(self.rows, int | np.integer) and not isinstance(self.rows, bool)
        if not whole or self.rows < 1:
            raise BudgetError(
                f"rows_per_unit must be a whole number from 1 on, got {self.rows!r}; it is how many rows of a unit count at most"
            )
        if self.unit is None and self.rows != 1:
            raise BudgetError(
                f"rows_per_unit is for a table with a unit, got {self.rows} rows and no unit; name the column that says whose a "
                "row is"
            )

    @classmethod
    def of(
        cls, value: Neighbours | str | None, unit: str | None = None, rows: int = 1
    ) -> Neighbours:
        """The relation by name; there is no default."""
        if not isinstance(value, Neighbours):
            return cls(value, unit, rows)  # pyright: ignore[reportArgumentType] (None is refused)
        if unit is None and rows == 1:
            return value
        return cls(value.value, unit, rows)

    @property
    def total_public(self) -> bool:
        """Whether neighbours have equally many rows, so that their number may be told."""
        return self.value == "replace-one" and self.rows == 1

    @property
    def changed_cells(self) -> int:
        """Cells of one marginal that one row of each neighbour touches."""
        return 2 if self.value == "replace-one" else 1

    @property
    def noun(self) -> str:
        """What is protected, in a word: person for a column person_id."""
        if self.unit is None:
            return "row"
        for ending in ("_id", " id", "-id", "_ID", " ID", "ID", "Id"):
            if self.unit.endswith(ending) and self.unit != ending:
                return self.unit[: -len(ending)]
        return self.unit

    @property
    def per(self) -> str:
        """Whose privacy it is: 'per row', or 'per person, at most 3 rows'."""
        if self.unit is None:
            return "per row"
        return f"per {self.noun}, at most {self.rows} row{'s' if self.rows > 1 else ''}"

    def __str__(self) -> str:
        return f"{self.value} neighbours {self.per}"


Neighbours.REPLACE_ONE = Neighbours("replace-one")
Neighbours.ADD_REMOVE = Neighbours("add-remove")


@dataclass(frozen=True)
class Sensitivity:
    """Largest change of a vector between neighbours: L1 norm, squared L2 norm and number of entries
    (exact).
    """

    neighbours: Neighbours
    l1: Fraction
    l2_squared: Fraction
    cells: int


def _of_unit(neighbours: Neighbours, l1: Real, l2_squared: Real, cells: int) -> Sensitivity:
    """What all rows of a unit can change together, from what one row of each neighbour can."""
    m = neighbours.rows
    return Sensitivity(neighbours, m * Fraction(l1), m * m * Fraction(l2_squared), m * cells)


def marginals(neighbours: Neighbours, count: int = 1) -> Sensitivity:
    """`count` marginals released together as one vector of integer counts."""
    k = operator.index(count)
    if k < 1:
        raise BudgetError(f"a workload must have at least one marginal, got {count}")
    relation = Neighbours.of(neighbours)
    cells = relation.changed_cells * k
    return _of_unit(relation, cells, cells, cells)


def weighted_marginals(neighbours: Neighbours, weights: Iterable[Real]) -> Sensitivity:
    """The stacked vector (w_1 M_1 x, ..., w_k M_k x)."""
    w = checked_weights(weights)
    relation = Neighbours.of(neighbours)
    c = relation.changed_cells
    l2_squared = sum((x * x for x in w), Fraction(0))
    return _of_unit(relation, c * sum(w, Fraction(0)), c * l2_squared, c * len(w))


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
    """+-(count of one cell - m) with m fixed: the rows of a unit leave a cell, enter it, or do neither."""
    return Fraction(Neighbours.of(neighbours).rows)


def total(neighbours: Neighbours) -> Sensitivity:
    """The number of rows: a unit has at least one, so replacing it moves that by one less than adding it can."""
    relation = Neighbours.of(neighbours)
    rows = relation.rows - (relation.value == "replace-one")
    return Sensitivity(relation, Fraction(rows), Fraction(rows * rows), min(rows, 1))


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
    return _of_unit(relation, c * l1, squares, c * entries)


def residuals(neighbours: Neighbours, sizes: Iterable[int], *, placed: bool = False) -> Sensitivity:
    """A x for A the product of n I - 1 1^T over attributes of the given sizes: n_t times the residual of a
    marginal.

    A column has L2^2 = prod n (n - 1) and L1 = prod 2 (n - 1). Two columns that differ in the attributes D have the
    inner product n_t prod_{D} (-1) prod_{not D} (n - 1), least when D is the smallest attribute alone. No attributes: the
    number of rows. placed: of the table of every place. Rows in two places have the inner product zero, so the worst are
    two rows in one place; without attributes it is the marginal of the places.
    """
    relation = Neighbours.of(neighbours)
    n = [operator.index(size) for size in sizes]
    if not n:
        return marginals(relation) if placed else total(relation)
    if min(n) < 2:
        raise BudgetError(f"a residual must have attributes of at least two values, got {n}")
    square, l1 = prod(k * (k - 1) for k in n), prod(2 * (k - 1) for k in n)
    c = relation.changed_cells
    if c == 2:
        square = 2 * square * min(n) // (min(n) - 1)
    whole = _of_unit(relation, c * l1, square, 0)
    cells = prod(n) * (c * relation.rows if placed else 1)
    return Sensitivity(relation, whole.l1, whole.l2_squared, cells)


MOST_JOINT = 18
"""Attributes up to which every way in which two rows can differ is looked at, 2^18 of them."""
_FLOATS = Fraction(1, 10**12)
"""More than floating point loses of the sum of all terms in so many additions and products of numbers up to one."""


def residual_family(
    neighbours: Neighbours,
    sizes: Sequence[int],
    family: Sequence[tuple[int, ...]],
    variances: Sequence[Fraction],
    places: Sequence[int] | None = None,
) -> Fraction:
    """L2^2 of the stack of A_t x / w_t, A_t as in `residuals`: family lists the positions t in `sizes`, variances the w_t^2.

    places: for each member the number of places whose tables it is the residual of, at levels that lie in each other; 1 for none.

    A row that is added brings a column of every A_t, of the same norm whatever the row: L2^2 adds up. Two rows that differ in
    the attributes D are apart, in A_t, by

        ||a - a'||^2 = 2 n_t (d_t - <a, a'> / n_t) = 2 n_t d_t (1 - prod_{i in t and D} h_i),    h_i = -1 / (n_i - 1),

    so that the whole stack is apart by S - sum_t c_t prod_{i in t and D} h_i, where c_t = 2 n_t d_t / w_t^2 and S is their sum.
    No D is the worst for every t: of a 2 x 2 table, both attributes together differ most if only one of them does, and each alone
    most if it does. So all D are looked at, by one pass over the sums per attribute; beyond `MOST_JOINT` attributes the
    largest of each residual are added up, which is never less. Replacing p rows of a unit by q others is, for q <= p, q
    replacements and p - q removals. A removal moves the stack by less than a replacement can (on average over all rows a'
    the products vanish, so the largest is at least S, which is twice what a removal moves, squared): the worst is m replacements
    alike. How many rows there are is `total`, and not part of the family.

    Rows in different places of a level have the inner product zero there, and are then in different places of every finer level:
    so for each level in turn, rows are together down to it and apart below; the sum is over the members where they are together.
    """
    relation = Neighbours.of(neighbours)
    shapes = [tuple(operator.index(sizes[i]) for i in t) for t in family]
    counts = [1] * len(family) if places is None else [operator.index(n) for n in places]
    members = list(zip(family, shapes, counts, variances, strict=True))
    apart = sum(
        (residuals(relation, n, placed=p > 1).l2_squared / v for _, n, p, v in members), Fraction(0)
    )
    used = sorted({i for t in family for i in t})
    if relation.value == "add-remove" or len(used) > MOST_JOINT:
        return apart
    terms = [2 * prod(k * (k - 1) for k in n) / v for _, n, _, v in members]
    sums, least = np.zeros((2,) * len(used)), 0.0 if min(counts) > 1 else np.inf
    for level in sorted(set(counts)):
        for (t, _, count, _), term in zip(members, terms, strict=True):
            if count == level:
                sums[tuple(int(i in t) for i in used)] += float(term)
        least = min(least, _least_sum(sums, [sizes[i] for i in used]))
    joint = sum(terms, Fraction(0)) * (1 + _FLOATS) - Fraction(least)
    return min(apart, relation.rows**2 * joint)


def _least_sum(sums: NDArray[np.float64], sizes: Sequence[int]) -> float:
    """The least over D of sum_t c_t prod_{i in t and D} h_i, from the c_t by who is in t, one pass for each attribute."""
    for axis, n in enumerate(sizes):
        without, within = np.take(sums, 0, axis), np.take(sums, 1, axis)
        sums = np.stack([without + within, without - within / (n - 1)], axis)
    return float(sums.min())


def _whole(matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    if matrix.ndim != 2 or 0 in matrix.shape or matrix.dtype.kind != "i":
        raise BudgetError(
            "noise protects integer queries, rows x cells, "
            f"got shape {matrix.shape} of {matrix.dtype}; round the matrix and price what is rounded"
        )
    return matrix
