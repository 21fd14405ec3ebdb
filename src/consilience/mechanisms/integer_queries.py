"""Integer queries: what noise is added to. A count times an integer matrix is a whole number, so noise can be discrete.

A strategy's matrix has fractions. It is multiplied by a `unit` and rounded, and the rounded matrix is from then on the
strategy: noise, price and reconstruction all use it, so rounding costs a little accuracy and no privacy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from consilience.measurements import Centring, Dense, Identity, Kronecker, Query
from consilience.privacy import Neighbours, Sensitivity, marginals, products, residuals

Integers = NDArray[np.int64]


class IntegerQuery(ABC):
    """A linear map from a table of counts to whole numbers; divided by `unit` it is the query that is meant."""

    unit: int

    @abstractmethod
    def exact(self, table: Integers) -> Integers:
        """unit Q x, with the table's own shape or flat."""

    @abstractmethod
    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """Of unit Q x."""

    @property
    @abstractmethod
    def peak(self) -> int:
        """The largest entry of unit Q: no answer passes peak times the number of rows."""

    @property
    @abstractmethod
    def query(self) -> Query | None:
        """Q, for the measurement; None for the table itself."""


@dataclass(frozen=True)
class Cells(IntegerQuery):
    """Every cell of the table."""

    unit: int = 1

    def exact(self, table: Integers) -> Integers:
        return table

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        return marginals(neighbours)

    @property
    def peak(self) -> int:
        return 1

    @property
    def query(self) -> None:
        return None


CELLS = Cells()


@dataclass(frozen=True, eq=False)
class Product(IntegerQuery):
    """A Kronecker product of integer matrices, one per attribute; None stands for every value of that attribute."""

    sizes: tuple[int, ...]
    factors: tuple[Integers | None, ...]
    grids: tuple[int, ...]
    """What each factor was multiplied by."""

    @property
    def unit(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return prod(self.grids)

    def exact(self, table: Integers) -> Integers:
        x = table.reshape(self.sizes)
        for axis, factor in enumerate(self.factors):
            if factor is not None:
                x = np.moveaxis(np.tensordot(factor, x, axes=(1, axis)), 0, axis)
        return np.ascontiguousarray(x).reshape(-1)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        return products(neighbours, [f for f in self.factors if f is not None])

    @property
    def peak(self) -> int:
        return prod(int(np.abs(f).max()) for f in self.factors if f is not None)

    @property
    def query(self) -> Query:
        return Kronecker(
            Identity(n) if f is None else Dense(f / g)
            for n, f, g in zip(self.sizes, self.factors, self.grids, strict=True)
        )


@dataclass(frozen=True)
class Residual(IntegerQuery):
    """What a table says beyond its own lower-order marginals: the mean along every axis is subtracted.

    n I - 1 1^T along each axis is an integer matrix, so the unit is the number of cells. places: an axis that is left as it is,
    so that this is the residual of every place's table.
    """

    sizes: tuple[int, ...]
    places: int | None = None

    @property
    def centred(self) -> tuple[int, ...]:
        """Sizes of the axes whose mean is subtracted."""
        return tuple(n for axis, n in enumerate(self.sizes) if axis != self.places)

    @property
    def unit(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return prod(self.centred)

    def exact(self, table: Integers) -> Integers:
        x = table.reshape(self.sizes)
        for axis, n in enumerate(self.sizes):
            if axis != self.places:
                x = n * x - x.sum(axis=axis, keepdims=True)
        return x.reshape(-1)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        return residuals(neighbours, self.centred, placed=self.places is not None)

    @property
    def peak(self) -> int:
        return prod(n - 1 for n in self.centred)

    @property
    def query(self) -> Query:
        if self.places is None:
            return Centring(self.sizes)
        return Kronecker(
            Identity(n) if axis == self.places else Centring((n,))
            for axis, n in enumerate(self.sizes)
        )
