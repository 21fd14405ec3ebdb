"""Filters: conditions on attributes by name, in codes. A conjunction of conditions selects a block of a marginal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Clique, Domain
from consilience.domain.domain import name_of, whole_number
from consilience.errors import DomainError

Condition = int | range | slice | Iterable[int]
"""One code, a range or slice of codes, or a collection of them."""
Where = Mapping[str, Condition]
"""Every condition must hold."""


def selection(domain: Domain, where: Where) -> tuple[Clique, list[NDArray[np.int64]]]:
    """The attributes in domain order, and for each the codes that its condition lets through, each once and in order."""
    allowed: dict[str, NDArray[np.int64]] = {}
    for given, condition in where.items():
        name = name_of(given)
        codes = _codes(domain, name, condition)
        level = domain.levels.get(name)
        if level is not None:
            name, codes = level.attribute, np.flatnonzero(np.isin(level.units, codes))
        allowed[name] = np.intersect1d(allowed[name], codes) if name in allowed else codes
    clique = domain.clique(allowed)
    return clique, [allowed[a] for a in clique]


def _codes(domain: Domain, name: str, condition: Condition) -> NDArray[np.int64]:
    size = domain[name]
    if isinstance(condition, str):
        raise DomainError(
            f"a condition on {name!r} must be given in codes 0 to {size - 1}, got the text {condition!r}; "
            "map labels to codes with the schema"
        )
    if isinstance(condition, slice):
        condition = range(*condition.indices(size))
    one = whole_number(condition)
    listed = [one] if one is not None else _listed(name, condition)
    codes = [whole_number(c) for c in listed]
    bad = next(
        (g for g, c in zip(listed, codes, strict=True) if c is None or not 0 <= c < size), None
    )
    if bad is not None:
        raise DomainError(
            f"a condition on {name!r} must name codes 0 to {size - 1}, got {bad!r}; "
            "use a code, a range, a slice or a list of codes"
        )
    return np.array(sorted({c for c in codes if c is not None}), np.int64)


def _listed(name: str, condition: object) -> list[object]:
    if isinstance(condition, bool) or not isinstance(condition, Iterable):
        raise DomainError(
            f"a condition on {name!r} must be a code, a range, a slice or a list of codes, got {condition!r}"
        )
    return list(condition)
