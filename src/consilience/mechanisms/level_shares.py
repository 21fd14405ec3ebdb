"""How a budget is divided between tables at levels of one attribute: by the errors that least squares leaves on the tree.

A coarse table is cheap to know well and helps every place below it; read off finer ones it is a sum of many noisy numbers. With
every level's places divided evenly (as many children for each), the tree solve of docs/method.md gives the variance of every
answer in closed form, one number per level and component, and shares follow by descent. Where residuals are measured instead of
tables, the best precisions have a closed form too (`LevelDesign.residual_precisions`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod

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
TURNS = 30
"""Of weights and precisions; the sum of errors is then within 1e-9 of its least."""
LEAST_SHARE = 1e-4
"""Of an equal share: no table that was asked for is measured with less."""


@dataclass(frozen=True, eq=False)
class LevelDesign:
    """Tables at levels of one attribute: for each its level (0: the attribute is summed out) and its other attributes."""

    names: tuple[str | None, ...]
    """Of the levels, from the root (None) to the attribute itself."""
    others: Clique
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
            tuple(ladder),
            tuple(others),
            (1, *(v.size for v in chain), domain[attribute]),
            np.array([ladder.index(a) for a in on_ladder]),
            subsets,
            np.array([workload[c] for c in workload], np.float64),
            Components(shape, subsets),
        )

    def variances(self, shares: Buffer) -> Buffer:
        """Per table the mean variance of a cell by least squares, where a share of one is noise of variance one."""
        parts = self.parts
        own = np.zeros((len(self.counts), len(parts)))
        for l, s, share in zip(self.levels, self.subsets, shares, strict=True):
            own[l] += share * parts.copies(s) * parts.inside(s)
        return self.variances_given(own)

    def variances_given(self, own: Buffer) -> Buffer:
        """The same where `own` is what is measured about each component of a place's table, level by level."""
        parts, last = self.parts, len(self.counts) - 1
        tiny = 1e-12 * own[np.isfinite(own)].max()
        up = np.empty_like(own)
        up[last] = 1.0 / np.maximum(own[last], tiny)
        for l in range(last - 1, -1, -1):
            below = self.counts[l + 1] / self.counts[l] * up[l + 1]
            with np.errstate(divide="ignore"):
                up[l] = 1.0 / (1.0 / below + own[l])
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

    def residual_precisions(self, total_public: bool) -> Buffer:
        """1 / sigma^2 for the residual of every level (rows) and component (columns), with the least sum of root mean squared
        errors at a cost of one; 0 where nothing is measured.

        A component s is known, in the part of it that tells places of level j of one parent apart, with precision
        pi_j = sum_{i >= j} (n_j / n_i) own_i, which costs p_s / m_s times the part's share of freedom: p_s = d_s / n_s the price
        of a residual, m_s the cells summed. Weighted squared errors add up to sum_j b_j / pi_j, and the least is at
        pi_j in proportion to sqrt(b_j m_s / p_s). It falls so that own_j = pi_j - (n_j / n_{j+1}) pi_{j+1} is never negative:
        measuring every place by itself loses nothing. Root mean squared errors are weighted squared errors with the weights that
        they themselves give, so weights and precisions take turns; each turn is closer.
        """
        parts, counts = self.parts, np.array(self.counts, float)
        sizes = np.array([prod(parts.shape[i] for i in s) for s in [*parts.subsets, parts.whole]])
        price = np.divide(
            parts.dimensions, sizes
        )  # of `rest`: that of the whole table, the only other that is measured
        copies = parts.cells / sizes
        matters = np.zeros((len(self.subsets), len(counts), len(parts)))
        for c, (l, s) in enumerate(zip(self.levels, self.subsets, strict=True)):
            matters[c, l] = parts.inside(s) * parts.dimensions * parts.copies(s) ** 2 / parts.cells
        if total_public:
            matters[:, counts == 1.0, int(parts.inside(()).argmax())] = 0.0
        weights, own = self.weights / self.weights.sum(), np.zeros(0)
        for _ in range(TURNS):
            at = np.einsum("c,cls->ls", weights, matters) / counts[:, None] ** 2
            root = np.sqrt(at[::-1].cumsum(axis=0)[::-1] * copies / np.maximum(price, 1e-300))
            own = counts[:, None] * np.diff(-root, axis=0, append=0.0)
            own[own < 1e-9 * own.max()] = 0.0
            own /= (own * price / copies).sum()
            given = own.copy()
            if total_public:
                given[counts == 1.0, int(parts.inside(()).argmax())] = np.inf
            errors = np.sqrt(self.variances_given(given))
            weights = np.divide(self.weights, errors, out=np.zeros_like(errors), where=errors > 0)
        return own / copies

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
