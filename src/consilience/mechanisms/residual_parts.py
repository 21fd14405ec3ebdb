"""Residuals as parts of a mechanism: noise in given proportions, as narrow as an amount of budget allows, and its price."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from consilience.domain import Buffer, Clique, Domain
from consilience.errors import BudgetError
from consilience.mechanisms.fixed import Part
from consilience.mechanisms.integer_queries import Residual
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
        return _priced_together(domain, cliques, variances, shares, capacity, neighbours)
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


def _priced_together(
    domain: Domain,
    cliques: Sequence[Clique],
    variances: Buffer,
    shares: Buffer,
    capacity: Rho | MuSquared,
    neighbours: Neighbours,
) -> tuple[list[Part], Cost]:
    """The widths wanted, all as much narrower as the price of all residuals together allows.

    The number of rows, where it is not public, is no residual: it has its share of the budget to itself.
    """
    members = [i for i, clique in enumerate(cliques) if clique]
    widths: dict[Clique, Sigma] = {}
    costs: list[Cost] = []
    if len(members) < len(cliques):
        whole, alone = float(shares.sum()), float(shares[[not c for c in cliques]].sum())
        own, capacity = capacity.split([alone, max(whole - alone, 1e-300)])
        widths[()] = gaussian_sigma(Residual(()).sensitivity(neighbours), own)
        costs.append(Cost.gaussian(Residual(()).sensitivity(neighbours), widths[()]))
    if members:
        family = [tuple(domain.position(a) for a in cliques[i]) for i in members]
        wanted = [float(variances[i]) ** 0.5 * domain.size(cliques[i]) for i in members]
        found = residual_sigmas(neighbours, domain.shape, family, wanted, capacity)
        widths |= zip((cliques[i] for i in members), found, strict=True)
        costs.append(Cost.residuals(neighbours, domain.shape, family, found))
    for width in widths.values():
        checked_width(width)
    parts = [Part(c, widths[c], Residual(domain.shape_of(c))) for c in cliques]
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
