"""How a budget is divided between tables at levels of one attribute: by the errors that least squares leaves on the tree.

A coarse table is cheap to know well and helps every place below it; read off finer ones it is a sum of many noisy numbers. With
every level's places divided evenly (as many children for each), the tree solve of docs/method.md gives the variance of every
answer in closed form, one number per level and component, and shares follow by descent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from consilience.domain import Buffer, Clique, Workload
from consilience.errors import BudgetError
from consilience.solvers.place_components import Components, Subset

CENSUS = {
    6: (104.0, 1440.0, 447.0, 687.0, 1256.0, 165.0),
    5: (1440.0, 447.0, 687.0, 1256.0, 165.0),
}
"""Shares of rho by level in the 2020 census's redistricting persons: nation, state, county, tract, block group, block."""
LEAST_SHARE = 1e-4
"""Of an equal share: no table that was asked for is measured with less."""


@dataclass(frozen=True, eq=False)
class LevelDesign:
    """Tables at levels of one attribute: for each its level (0: the attribute is summed out) and its other attributes."""

    counts: tuple[int, ...]
    """Places at each level, from one at the root."""
    levels: NDArray[np.int64]
    subsets: tuple[Subset, ...]
    weights: Buffer
    parts: Components

    @classmethod
    def of(cls, workload: Workload) -> LevelDesign | None:
        """None where no attribute is asked for at levels, or several are, or levels do not lie in each other."""
        domain = workload.domain
        used = {a: domain.levels[a] for c in workload for a in c if a in domain.levels}
        if not used or len({v.attribute for v in used.values()}) > 1:
            return None
        chain = sorted(used.values(), key=lambda v: v.size)
        if any(b.parents(a) is None for a, b in pairwise(chain)):
            return None
        attribute = chain[0].attribute
        ladder: list[str | None] = [None, *(v.name for v in chain), attribute]
        others = [a for a in domain if a != attribute and any(a in c for c in workload)]
        shape = tuple(domain[a] for a in others)
        on_ladder = [next((a for a in c if a in ladder), None) for c in workload]
        subsets = tuple(tuple(others.index(a) for a in c if a in others) for c in workload)
        return cls(
            (1, *(v.size for v in chain), domain[attribute]),
            np.array([ladder.index(a) for a in on_ladder]),
            subsets,
            np.array([workload[c] for c in workload], np.float64),
            Components(shape, subsets),
        )

    def variances(self, shares: Buffer) -> Buffer:
        """Per table the mean variance of a cell by least squares, where a share of one is noise of variance one."""
        parts, last = self.parts, len(self.counts) - 1
        own = np.zeros((last + 1, len(parts)))
        for l, s, share in zip(self.levels, self.subsets, shares, strict=True):
            own[l] += share * parts.copies(s) * parts.inside(s)
        tiny = 1e-12 * own.max()
        up = np.empty_like(own)
        up[last] = 1.0 / np.maximum(own[last], tiny)
        for l in range(last - 1, -1, -1):
            below = self.counts[l + 1] / self.counts[l] * up[l + 1]
            up[l] = below / (1.0 + own[l] * below)
        found = up.copy()
        for l in range(1, last + 1):
            each = self.counts[l - 1] / self.counts[l]
            found[l] = up[l] * (1.0 - each) + each**2 * found[l - 1]
        inner = parts.dimensions
        return np.array(
            [
                float((parts.inside(s) * inner * found[l]).sum()) * (parts.copies(s) / parts.cells) * parts.copies(s)
                for l, s in zip(self.levels, self.subsets, strict=True)
            ]
        )  # fmt: skip

    def best(self, power: float = 0.5) -> Buffer:
        """Shares with the least sum of root mean squared errors, tables weighted as the workload does.

        power: a table's standard deviation is in proportion to its share to the power of minus this.
        """
        many = len(self.levels)

        def cost(logs: Buffer) -> float:
            shares = np.exp(logs - logs.max())
            shares /= shares.sum()
            return float(self.weights @ np.sqrt(self.variances(shares ** (2.0 * power))))

        start = np.log(np.maximum(self.weights, 1e-12))
        if many == 1:
            return np.ones(1)
        low = np.log(LEAST_SHARE / many)
        found = minimize(cost, start - start.max(), method="L-BFGS-B", bounds=[(low, 0.0)] * many)
        shares = np.exp(found.x)
        return shares / shares.sum()

    def of_the_census(self) -> Buffer:
        """The 2020 census's shares by level, equal between the tables of a level."""
        asked = np.unique(self.levels)
        if len(asked) not in CENSUS:
            raise BudgetError(
                f"the census's shares are for tables at five levels (state to block) or six (nation to block), got {len(asked)}; "
                "leave out weights= for optimised ones"
            )
        by_level = dict(zip(asked.tolist(), CENSUS[len(asked)], strict=True))
        many = np.bincount(self.levels)
        return np.array([by_level[int(l)] / many[l] for l in self.levels])


def expected_after_fit(
    workload: Workload, stddevs: Mapping[Clique, float]
) -> dict[Clique, float] | None:
    """Root mean squared error of a cell of each table by least squares on the tree; None where there is no tree."""
    design = LevelDesign.of(workload)
    if design is None:
        return None
    shares = np.array([stddevs[c] ** -2.0 for c in workload])
    return dict(zip(workload, np.sqrt(design.variances(shares)).tolist(), strict=True))
