"""Controls: what is public about a table without noise. Exact marginals, and ranges that marginals lie in, in counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from consilience.domain import Buffer, Clique, Domain
from consilience.domain.domain import names_of
from consilience.errors import MeasurementError


@dataclass(frozen=True, eq=False, repr=False)
class Bounds:
    """Every cell of a marginal lies between `low` and `high`: a number for all cells, or a table of the marginal's shape.

    The axes of a table are in the order in which the attributes are given, as in a `Measurement`; levels may be named.
    """

    attributes: tuple[str, ...]
    low: Buffer
    high: Buffer

    def __init__(self, attributes: str | Iterable[str], low: Any = 0.0, high: Any = inf) -> None:
        names = names_of(attributes)
        ends = [_numbers(names, end) for end in (low, high)]
        if ends[0].ndim and ends[1].ndim and ends[0].shape != ends[1].shape:
            raise MeasurementError(
                f"both ends of the bounds of {names} must have one shape, got {ends[0].shape} and {ends[1].shape}"
            )
        _check_ends(names, *np.broadcast_arrays(*ends))
        object.__setattr__(self, "attributes", names)
        object.__setattr__(self, "low", ends[0])
        object.__setattr__(self, "high", ends[1])

    def bind(self, domain: Domain) -> BoundControl:
        """The same for the canonical clique, one number per cell in domain order."""
        named = domain.named(self.attributes)
        if len(named) < len(self.attributes):
            raise MeasurementError(
                f"the attributes of a control must be distinct, got {self.attributes}; name each once, of two levels the finer"
            )
        shape = domain.shape_of(self.attributes)
        axes = [self.attributes.index(a) for a in named]
        low, high = (self._table(end, shape).transpose(axes) for end in (self.low, self.high))
        return BoundControl(named, np.ascontiguousarray(low), np.ascontiguousarray(high))

    def _table(self, end: Buffer, shape: tuple[int, ...]) -> Buffer:
        if end.ndim == 0:
            return np.broadcast_to(end, shape)
        if end.shape != shape and end.shape != (int(np.prod(shape)),):
            raise MeasurementError(
                f"the control of {self.attributes} must have shape {shape} or be flat with as many numbers, got {end.shape}; "
                "give one number per cell, axes in the order of the attributes"
            )
        return end.reshape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.attributes}, {self.low.size} values)"


class Exact(Bounds):
    """A marginal that is public and exact: `Exact(("state",), populations)`. It holds in every table, answer and row."""

    def __init__(self, attributes: str | Iterable[str], values: Any) -> None:
        given = _numbers(names_of(attributes), values)
        if np.isinf(given).any():
            raise MeasurementError(
                f"the exact values of {names_of(attributes)} must be finite, got infinity"
            )
        super().__init__(attributes, given, given)

    @property
    def values(self) -> Buffer:
        return self.low


Control = Bounds
"""What `controls=` of a fit takes."""


@dataclass(frozen=True, eq=False)
class BoundControl:
    """A control of a canonical clique: `named` has levels under their own names, `low` and `high` are tables over it."""

    named: Clique
    low: Buffer
    high: Buffer

    @property
    def exact(self) -> bool:
        return bool(np.array_equal(self.low, self.high))


def bound_controls(domain: Domain, controls: Sequence[Control]) -> tuple[BoundControl, ...]:
    """All controls over a domain."""
    for control in controls:
        if not isinstance(control, Bounds):
            raise MeasurementError(
                f"controls must be Exact(...) or Bounds(...), got {type(control).__name__}"
            )
    return tuple(control.bind(domain) for control in controls)


def public_total(controls: Sequence[Control], total: float | None) -> float | None:
    """The number of records that exact controls add up to, or the given one; all must be the same."""
    for control in controls:
        if isinstance(control, Exact):
            own = float(control.values.sum())
            if total is not None and abs(own - total) > 1e-9 * max(1.0, abs(total)):
                raise MeasurementError(
                    f"exact controls must add up to one total, got {own:g} for {control.attributes} where {total:g} is known"
                )
            total = own if total is None else total
    return total


def _numbers(names: tuple[str, ...], given: Any) -> Buffer:
    found = np.array(given)
    if found.dtype.kind not in "iuf":
        raise MeasurementError(
            f"the control of {names} must be real numbers, got type {found.dtype}"
        )
    found = found.astype(np.float64)
    found.flags.writeable = False
    return found


def _check_ends(names: tuple[str, ...], low: Buffer, high: Buffer) -> None:
    wrong = ~((low <= high) & (high >= 0) & (low < np.inf))
    if wrong.any():
        place = tuple(map(int, np.argwhere(wrong)[0]))
        cell = f" at {place}" if place else ""
        raise MeasurementError(
            f"a control must be a range of counts, none negative, got {low[place]:g} to {high[place]:g} for {names}{cell}"
        )
