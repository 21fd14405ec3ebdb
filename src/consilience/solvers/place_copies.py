"""What splitting on a tree asks of whole marginals of a level: ranges that they lie in, and queries on sums of their cells.

Neither is one number per component, so each has a copy of its marginal above the leaves, which takes turns with the solve as
cells do: z = prox(v), and v += 1.6 (M x - z).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from consilience.domain import Buffer
from consilience.solvers.place_problem import PlaceProblem
from consilience.solvers.places import Asked, PlaceQuery, PlaceRange

OWN = 0.1
"""The first penalty of a query on sums over its own precision, where that of cells is 1: the latter begins at 10
leaves' precisions, so both begin together. Far more than its precision, and a query that says little holds everything up.
"""


class PlaceCopy(ABC):
    """The copy v of the marginals of one level, places in the order of the tree, and what it tells the solve."""

    def __init__(
        self, problem: PlaceProblem, given: PlaceRange | PlaceQuery, ratio: float, v: Buffer | None
    ) -> None:
        self.level, self.subset = given.level, given.attributes
        self.parts = problem.components
        self.base = self.parts.sums(problem.a[self.level], self.subset)
        self.ratio = ratio
        self.v = self.base.copy() if v is None else v.copy()

    @abstractmethod
    def z(self, rho: float) -> Buffer:
        """prox(v): what the term would have, pulled towards v."""

    def value(self, sums: Buffer) -> float:
        """The term of the objective."""
        return 0.0

    def penalty(self, rho: float) -> Any:
        """Precision that the copy adds to its level, component by component."""
        return rho * self.ratio * self.parts.copies(self.subset) * self.parts.inside(self.subset)

    def information(self, rho: float) -> Any:
        """M' rho (2z - v - M a), spread over the cells of each place's table."""
        told = rho * self.ratio * (2.0 * self.z(rho) - self.v - self.base)
        return self.spread(told)

    def sums(self, est: Buffer) -> Buffer:
        """The marginals of x, from x - a."""
        return self.base + self.parts.sums(est, self.subset)

    def spread(self, marginals: Buffer) -> Any:
        return self.parts.spread(marginals, self.subset).reshape(len(marginals), -1)

    def step(self, est: Buffer, rho: float, relax: float) -> None:
        self.v += relax * (self.sums(est) - self.z(rho))

    def rescale(self, rho: float, factor: float) -> None:
        """v as it is for a penalty that is so many times as large: the multiplier stays."""
        z = self.z(rho)
        self.v = z + (self.v - z) / factor

    def bound(self, est: Buffer, rho: float) -> tuple[Any, float, float]:
        """Its part of the lower bound at x: e = rho (z - M x) on the cells, <g, M (x - a)> with g = rho (2z - v - M x), and
        the rest, from term(u) >= term(z) + rho <v - z, u - z>.
        """
        x, z, own = self.sums(est), self.z(rho), rho * self.ratio
        along = own * float(((2.0 * z - self.v - x) * (x - self.base)).sum())
        held = self.value(z) + own * float(((self.v - z) * (x - z)).sum())
        return self.spread(own * (z - x)), along, held


class RangeCopy(PlaceCopy):
    """Marginals that must lie between two ends."""

    def __init__(
        self, problem: PlaceProblem, given: PlaceRange, ratio: float, v: Buffer | None
    ) -> None:
        super().__init__(problem, given, ratio, v)
        self.low, self.high = (
            problem.order.take(end, given.level) for end in (given.low, given.high)
        )

    def z(self, rho: float) -> Buffer:
        return np.clip(self.v, self.low, self.high)


class GroupCopy(PlaceCopy):
    """A query on sums of a marginal's cells: w/2 |G u - y|^2, groups of cells by label."""

    def __init__(
        self, problem: PlaceProblem, given: PlaceQuery, ratio: float, v: Buffer | None
    ) -> None:
        super().__init__(problem, given, ratio, v)
        assert given.groups is not None
        self.groups = given.groups
        count = int(self.groups.max()) + 1
        self.members = np.bincount(self.groups, minlength=count).astype(float)
        self.indicator = np.zeros((len(self.groups), count))
        self.indicator[np.arange(len(self.groups)), self.groups] = 1.0
        self.y = problem.order.take(given.values, given.level)
        self.weight = problem.order.take(given.stddev, given.level)[:, None] ** -2.0

    def z(self, rho: float) -> Buffer:
        off = self.v @ self.indicator - self.y
        step = self.weight * off / (rho * self.ratio + self.weight * self.members)
        return self.v - step[:, self.groups]

    def value(self, sums: Buffer) -> float:
        return 0.5 * float((self.weight * np.square(sums @ self.indicator - self.y)).sum())


def copies_of(
    problem: PlaceProblem, ratios: Sequence[float], kept: Sequence[Buffer] | None
) -> list[PlaceCopy]:
    """One for each range and each query on sums; `kept` are the buffers of an earlier solve."""
    found: list[PlaceCopy] = []
    begun = (None,) * len(ratios) if kept is None else kept
    given = (*problem.free, *problem.grouped)
    for c, ratio, v in zip(given, ratios, begun, strict=True):
        if isinstance(c, PlaceRange):
            found.append(RangeCopy(problem, c, ratio, v))
        else:
            found.append(GroupCopy(problem, c, ratio, v))
    return found


def first_ratio(given: PlaceRange | PlaceQuery, asked: Asked, means: Sequence[Buffer]) -> float:
    """The penalty of a copy over that of cells, from the mean precisions of each level: as its level's precision is to a leaf's,
    and no less than one leaf's; of a query on sums by its own precision.
    """
    leaf = max(float(means[-1].mean()), 1e-300)
    if isinstance(given, PlaceQuery):
        return OWN * float(np.mean(np.asarray(given.stddev) ** -2.0)) / leaf
    seen = asked.components.inside(given.attributes)
    copies = asked.components.copies(given.attributes)
    level = float(means[given.level][seen].mean()) / copies
    share = asked.places.count(given.level) / asked.places.leaves
    return max(level, leaf * share / copies) / leaf
