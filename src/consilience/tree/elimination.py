"""Variable elimination in logarithms: the exact marginal of any clique, with its price known before anything is allocated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector
from consilience.errors import DomainError, PotentialError
from consilience.memory import check_capacity

Members = tuple[int, ...]
"""Attribute positions, in the order of a table's axes."""
Factor = tuple[Members, Buffer]
"""A table of logarithms and what its axes are."""


def exact_marginal(
    theta: CliqueVector, attributes: Iterable[str], *, memory: int | None = None
) -> Buffer:
    """The marginal of p = exp(<theta, M p>) / Z on any clique, in the model or not; axes in domain order."""
    domain = theta.domain
    wanted = domain.clique(attributes)
    check_potentials(theta)
    factors = [(domain.axes(c), table) for c, table in theta.items()]
    log_table = eliminate(factors, domain.axes(wanted), domain.shape, memory)
    return distribution(log_table, wanted)


def eliminate(
    factors: Sequence[Factor], keep: Members, sizes: Sequence[int], memory: int | None = None
) -> Buffer:
    """log of the sum of exp(sum of factors) over every attribute but `keep`, up to attributes that no factor mentions."""
    order, widest = _order([m for m, _ in factors], keep, sizes)
    needed = 3 * 8 * max(prod(sizes[a] for a in m) for m in (keep, widest))
    check_capacity("eliminating variables", needed, memory)
    pool = list(factors)
    for variable in order:
        touched = [f for f in pool if variable in f[0]]
        pool = [f for f in pool if variable not in f[0]]
        members = _union(m for m, _ in touched)
        left = tuple(a for a in members if a != variable)
        pool.append((left, sum_out(_combine(touched, members, sizes), members, left)))
    return _combine(pool, keep, sizes)


def distribution(log_table: Buffer, clique: Clique) -> Buffer:
    """exp(log_table), normalised."""
    top = float(log_table.max())
    if top == -np.inf:
        raise PotentialError(
            f"potentials must leave at least one cell possible, got none for {clique}; remove a minus infinity"
        )
    table = np.exp(log_table - top)
    return table / table.sum()


# -- tables of logarithms ----------------------------------------------------------------------------


def align(table: Buffer, have: Members, want: Members) -> Buffer:
    """The table with its axes in the order of `want` and length one where it does not depend on an attribute."""
    place = {a: i for i, a in enumerate(have)}
    order = [place[a] for a in want if a in place]
    return table.transpose(order).reshape(
        [table.shape[place[a]] if a in place else 1 for a in want]
    )


def sum_out(table: Buffer, have: Members, keep: Members) -> Buffer:
    """log of the sum of exp(table) over the axes not kept; minus infinity is the logarithm of zero."""
    axes = tuple(i for i, a in enumerate(have) if a not in keep)
    if not axes:
        return table
    top = table.max(axis=axes, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return (np.log(np.exp(table - top).sum(axis=axes, keepdims=True)) + top).squeeze(axes)


def _combine(factors: Iterable[Factor], members: Members, sizes: Sequence[int]) -> Buffer:
    out = np.zeros([sizes[a] for a in members])
    for have, table in factors:
        out += align(table, have, members)
    return out


# -- prices ------------------------------------------------------------------------------------------


def _order(
    scopes: Iterable[Members], keep: Members, sizes: Sequence[int]
) -> tuple[list[int], Members]:
    """Greedy order of elimination (smallest table next, ties by position), and the widest table it makes."""
    near: dict[int, set[int]] = {}
    for members in map(set, scopes):
        for v in members:
            near.setdefault(v, {v}).update(members)
    cost = {v: prod(sizes[a] for a in near[v]) for v in near if v not in keep}
    order: list[int] = []
    widest: set[int] = set()
    most = 0
    while cost:
        variable = min(cost, key=lambda v: (cost[v], v))
        made = near.pop(variable)
        if cost.pop(variable) > most:
            most, widest = prod(sizes[a] for a in made), made
        for v in made - {variable}:
            near[v] = (near[v] | made) - {variable}
            if v in cost:
                cost[v] = prod(sizes[a] for a in near[v])
        order.append(variable)
    return order, tuple(sorted(widest))


def _union(scopes: Iterable[Members]) -> Members:
    return tuple(sorted(set().union(*scopes)))


def check_potentials(theta: CliqueVector) -> None:
    if np.isnan(theta.values).any() or np.isposinf(theta.values).any():
        raise PotentialError(
            "potentials must be finite or minus infinity (an impossible cell), got NaN or plus infinity"
        )


def check_domain(theta: CliqueVector, domain: object) -> None:
    if theta.domain != domain:
        raise DomainError("theta must be over the given domain, got a vector over another one")
