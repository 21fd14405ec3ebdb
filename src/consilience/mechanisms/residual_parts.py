"""Residuals as parts of a mechanism: noise in given proportions, as narrow as an amount of budget allows, and its price."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import prod
from typing import NamedTuple

import numpy as np

from consilience.domain import Buffer, Clique, Domain
from consilience.errors import BudgetError
from consilience.mechanisms.fixed import Part
from consilience.mechanisms.integer_queries import Residual
from consilience.mechanisms.level_shares import LevelDesign
from consilience.privacy import (
    Cost,
    Epsilon,
    MuSquared,
    Neighbours,
    Rho,
    Sigma,
    gaussian_sigma,
    residual_sigmas,
    residuals,
)
from consilience.privacy.noise import checked_width
from consilience.privacy.sensitivity import MOST_JOINT


def prices(domain: Domain, cliques: Sequence[Clique], neighbours: Neighbours) -> Buffer:
    """c_t: squared L2 sensitivity of each residual, of which there are as many as different tuples of sizes."""
    known: dict[tuple[int, ...], float] = {}
    found: list[float] = []
    for clique in cliques:
        shape = tuple(sorted(domain.shape_of(clique)))
        if shape not in known:
            query = Residual(shape)
            known[shape] = float(residuals(neighbours, shape).l2_squared) / query.unit**2
        found.append(known[shape])
    return np.array(found)


def residual_parts(
    domain: Domain,
    cliques: Sequence[Clique],
    variances: Buffer,
    capacity: Rho | MuSquared | Epsilon,
    neighbours: Neighbours,
) -> tuple[list[Part], Cost]:
    """The residuals of these cliques with noise whose variances are in these proportions, and their cost, within `capacity`."""
    if isinstance(capacity, Epsilon):
        raise BudgetError(f"Gaussian noise cannot keep a pure epsilon, got {capacity!r}")
    shares = prices(domain, cliques, neighbours) / variances
    if neighbours.value == "replace-one" and sum(n > 1 for n in domain.shape) <= MOST_JOINT:
        asked = [
            Wanted(c, Residual(domain.shape_of(c)), tuple(map(domain.position, c))) for c in cliques
        ]
        return _priced_together(domain.shape, asked, variances, shares, capacity, neighbours)
    parts = _priced_apart(domain, cliques, shares, capacity, neighbours)
    return parts, Cost.sum(neighbours, _costs(parts, neighbours))


def _priced_apart(
    domain: Domain,
    cliques: Sequence[Clique],
    shares: Buffer,
    capacity: Rho | MuSquared,
    neighbours: Neighbours,
) -> list[Part]:
    """The least sigma for each residual's share; equal residuals are calibrated once."""
    known: dict[tuple[tuple[int, ...], float], int] = {}
    kinds: list[int] = []
    shapes = [domain.shape_of(clique) for clique in cliques]
    for shape, share in zip(shapes, shares.tolist(), strict=True):
        kinds.append(known.setdefault((tuple(sorted(shape)), share), len(known)))
    times = np.bincount(kinds)
    amounts = capacity.split([share * int(n) for (_, share), n in zip(known, times, strict=True)])
    widths = []
    for (shape, _), amount, n in zip(known, amounts, times, strict=True):
        each = amount * Fraction(1, int(n))
        widths.append(gaussian_sigma(Residual(shape).sensitivity(neighbours), each))
        checked_width(widths[-1])
    return [
        Part(clique, widths[kind], Residual(shape))
        for clique, shape, kind in zip(cliques, shapes, kinds, strict=True)
    ]


def level_parts(
    domain: Domain,
    design: LevelDesign,
    precisions: Buffer,
    capacity: Rho | MuSquared | Epsilon,
    neighbours: Neighbours,
) -> tuple[list[Part], Cost]:
    """The residuals of the table of every place, level by level, with precisions in these proportions (a row per level, a
    column per component), and their cost, within `capacity`."""
    if isinstance(capacity, Epsilon):
        raise BudgetError(f"Gaussian noise cannot keep a pure epsilon, got {capacity!r}")
    shape = design.parts.shape
    subsets = [*design.parts.subsets, design.parts.whole]
    asked: list[Wanted] = []
    levels, components = np.nonzero(precisions)
    for level, component in zip(levels.tolist(), components.tolist(), strict=True):
        s, name = subsets[component], design.names[level]
        clique = domain.named([*(design.others[i] for i in s), *([name] if name else [])])
        axis = clique.index(name) if name else None
        asked.append(Wanted(clique, Residual(domain.shape_of(clique), axis), s))
    found = precisions[levels, components]
    price = [prod((n - 1) / n for n in a.query.centred) for a in asked]
    return _priced_together(shape, asked, 1.0 / found, price * found, capacity, neighbours)


class Wanted(NamedTuple):
    """A residual to be measured: of which clique, what exactly, and the positions of its attributes among those of all."""

    clique: Clique
    query: Residual
    positions: tuple[int, ...]

    @property
    def places(self) -> int:
        """How many places' tables it is the residual of."""
        return 1 if self.query.places is None else self.query.sizes[self.query.places]

    @property
    def is_total(self) -> bool:
        """Whether it only says how many rows there are."""
        return not self.query.centred and self.places == 1


def _priced_together(
    sizes: tuple[int, ...],
    asked: Sequence[Wanted],
    variances: Buffer,
    shares: Buffer,
    capacity: Rho | MuSquared,
    neighbours: Neighbours,
) -> tuple[list[Part], Cost]:
    """The widths wanted, all as much narrower as the price of all residuals together allows.

    The number of rows, where it is not public, is no residual: it has its share of the budget to itself.
    """
    alone = [i for i, a in enumerate(asked) if a.is_total]
    members = [i for i, a in enumerate(asked) if not a.is_total]
    widths: dict[int, Sigma] = {}
    costs: list[Cost] = []
    for i in alone:
        rest = float(shares.sum()) - float(sum(shares[j] for j in alone if j <= i))
        own, capacity = capacity.split([float(shares[i]), max(rest, 1e-300)])
        widths[i] = gaussian_sigma(asked[i].query.sensitivity(neighbours), own)
        costs.append(Cost.gaussian(asked[i].query.sensitivity(neighbours), widths[i]))
    if members:
        family = [asked[i].positions for i in members]
        places = [asked[i].places for i in members]
        wanted = [float(variances[i]) ** 0.5 * asked[i].query.unit for i in members]
        found = residual_sigmas(neighbours, sizes, family, wanted, capacity, places)
        widths |= zip(members, found, strict=True)
        costs.append(Cost.residuals(neighbours, sizes, family, found, places))
    for width in widths.values():
        checked_width(width)
    parts = [Part(a.clique, widths[i], a.query) for i, a in enumerate(asked)]
    return parts, Cost.sum(neighbours, costs)


def _costs(parts: Sequence[Part], neighbours: Neighbours) -> Iterator[Cost]:
    """Equal parts are priced once."""
    groups: dict[tuple[tuple[int, ...], float], list[Part]] = {}
    for part in parts:
        assert isinstance(part.query, Residual)
        key = tuple(sorted(part.query.sizes)), part.width.value
        groups.setdefault(key, []).append(part)
    for members in groups.values():
        yield members[0].cost(neighbours) * len(members)
