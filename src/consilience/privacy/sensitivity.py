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
    number of rows                      1                   0 (public)

No other module states a sensitivity.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

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


def total(neighbours: Neighbours) -> Sensitivity:
    """The number of rows: it moves by one, or is public (zero) as a replacement keeps it."""
    rows = 0 if Neighbours.of(neighbours) is Neighbours.REPLACE_ONE else 1
    return Sensitivity(Neighbours.of(neighbours), Fraction(rows), Fraction(rows), rows)
