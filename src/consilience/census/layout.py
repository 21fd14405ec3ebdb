"""Everything that is assumed about the bureau's files of redistricting persons, in one place.

No real file was at hand: the layout rests on what published readers of the files do (docs/census.md).

    US_Person_PL_PROD/<Level>.parquet/<DPQuery|Constraint>/State=<branch digit, FIPS>/<one file>.parquet
    state_totals.csv                                                        geocode,name,value

A row is one query of one unit. Codes of units are those of the bureau's spine: a parent's is the beginning of its child's.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction as F
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

PRODUCT = "US_Person_PL_PROD"
TOTALS = "state_totals.csv"
MEASURED, CONSTRAINED = "DPQuery", "Constraint"
COLUMNS = ("geocode", "query_name", "query_shape", "value", "variance")
"""Needed in every file; `sign` in constraints too. Integer widths differ from file to file; other columns are left alone."""

LEVELS = ("State", "County", "Tract", "Block_Group", "Block")
"""Files of these levels; that of the nation is left out, as a state is fitted by itself with its total known."""
NAMES = ("state", "county", "tract", "group", "block")
"""The same as columns of a schema."""
WIDTHS = {"State": 3, "County": 9, "Tract": 13, "Block_Group": 15, "Block": 31}
"""Characters of a code in 2020; a folder whose codes have others is read by its own."""
LAST = 16
"""The last characters of a block's code: state 2, county 3, tract 6, block group 1, block 4."""

AXES = ("hhgq", "votingage", "hispanic", "cenrace")
SIZES = (8, 2, 2, 63)
"""Cells of the bureau's table, last axis fastest. Simulated files may have seven races instead (RACES_7)."""
QUARTERS = ("household", "correctional", "juvenile", "nursing", "institution", "college", "military", "shelter")  # fmt: skip
LEVELS_OF_QUARTERS = {"household": QUARTERS[:1], "institutional": QUARTERS[1:5], "noninstitutional": QUARTERS[5:]}  # fmt: skip
"""hhinstlevels: the one query on sums of values."""
AGES, ORIGINS = ("under 18", "18 and over"), ("not Hispanic", "Hispanic")
RACES = ("white", "black", "aian", "asian", "nhopi", "sor")
RACES_7 = (*RACES, "two or more")
NURSING, CHILD = 3, 0
"""nurse_nva_0: nobody under 18 lives in a nursing home."""

RHO = F(293764, 114921)
LEVEL_SHARES = {
    "US": F(104, 4099),
    "State": F(1440, 4099),
    "County": F(447, 4099),
    "Tract": F(687, 4099),
    "Block_Group": F(1256, 4099),
    "Block": F(165, 4099),
}
"""Of rho, by level, in the production run of June 2021."""


@dataclass(frozen=True)
class Question:
    """A query of the files: the axes that it keeps, whether by levels of quarters, and its share of rho at each of LEVELS."""

    name: str
    axes: tuple[int, ...]
    shares: tuple[F, ...]
    grouped: bool = False

    @property
    def in_file(self) -> str:
        return f"{self.name}_dpq"

    def shape(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        full = tuple(n if i in self.axes else 1 for i, n in enumerate(sizes))
        return (len(LEVELS_OF_QUARTERS), *full[1:]) if self.grouped else full

    def words(self) -> tuple[str, ...]:
        """How the columns hhgq, votingage, hispanic and cenrace say it."""
        if self.name == "detailed":
            return ("detailed",) * 4
        own = ("hhinstlevels" if self.grouped else AXES[0], *AXES[1:])
        return tuple(own[i] if i in self.axes else "*" for i in range(4))

    def answers(self, tables: NDArray[np.int64]) -> NDArray[np.int64]:
        """The exact answers of units, whose tables are (units, *sizes)."""
        away = tuple(i + 1 for i in range(4) if i not in self.axes)
        found = tables.sum(axis=away, dtype=np.int64).reshape(len(tables), -1)
        return np.add.reduceat(found, STARTS, axis=1) if self.grouped else found


STARTS = np.cumsum([0, *(len(q) for q in LEVELS_OF_QUARTERS.values())])[:-1]
GROUPS = np.repeat(np.arange(3), [len(q) for q in LEVELS_OF_QUARTERS.values()])


_ONE = (F(6, 4097), F(10, 4097), F(5, 4102), F(3, 4099), F(5, 4097))
QUESTIONS = (
    Question("total", (), (F(3773, 4097), F(3126, 4097), F(1567, 4102), F(1705, 4099), F(5, 4097))),
    Question("cenrace", (3,), (F(6, 4097), F(10, 4097), F(4, 2051), F(3, 4099), F(9, 4097))),
    Question("hispanic", (2,), _ONE),
    Question("votingage", (1,), _ONE),
    Question("hhinstlevels", (0,), _ONE, grouped=True),
    Question("hhgq", (0,), _ONE),
    Question("hispanic * cenrace", (2, 3), (F(12, 4097), F(28, 4097), F(1933, 4102), F(1055, 4099), F(21, 4097))),
    Question("votingage * cenrace", (1, 3), (F(12, 4097), F(28, 4097), F(10, 2051), F(9, 4099), F(21, 4097))),
    Question("votingage * hispanic", (1, 2), _ONE),
    Question("votingage * hispanic * cenrace", (1, 2, 3), (F(2, 241), F(101, 4097), F(67, 4102), F(24, 4099), F(71, 4097))),
    Question("detailed", (0, 1, 2, 3), (F(230, 4097), F(754, 4097), F(241, 2051), F(1288, 4099), F(3945, 4097))),
)  # fmt: skip
BY_NAME = {q.in_file: q for q in QUESTIONS}

LOW, HIGH, NOBODY, TOTAL = "hhgq_total_lb_con", "hhgq_total_ub_con", "nurse_nva_0_con", "total_con"
SIGNS = {LOW: ">=", HIGH: "<=", NOBODY: "=", TOTAL: "="}
MOST_PER_UNIT = 99_999
"""People that one housing unit or facility may hold: the upper bound of a kind is this times the units of it."""


def sigma_squared(level_share: F, query_share: F) -> F:
    """Of the discrete Gaussian: a replaced person changes two cells by one, so rho = 2 / (2 sigma^2)."""
    return 1 / (RHO * level_share * query_share)


def discrete_variance(sigma_squared: float) -> float:
    """What the files state: the variance of the discrete Gaussian, which from 100 on is sigma^2."""
    if sigma_squared >= 100:
        return sigma_squared
    z = np.arange(-500, 501, dtype=np.float64)
    p = np.exp(-(z**2) / (2 * sigma_squared))
    return float((z**2 * p).sum() / p.sum())


def race_labels(count: int) -> tuple[str, ...]:
    """Sets of races by size, then in the order of combinations; or the seven of a simulated file."""
    if count == len(RACES_7):
        return RACES_7
    return tuple("+".join(c) for k in range(1, 7) for c in combinations(RACES, k))


def is_table(sizes: tuple[int, ...]) -> bool:
    return sizes[:3] == SIZES[:3] and sizes[3:] in ((SIZES[3],), (len(RACES_7),))
