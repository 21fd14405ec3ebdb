"""Measurement: y = Q x + noise for the table x of one clique, in counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isfinite, prod, sqrt
from typing import Any, Literal, get_args

import numpy as np
from scipy.sparse.linalg import LinearOperator

from consilience.domain import Buffer, Clique, Domain
from consilience.domain.domain import names_of
from consilience.errors import DomainError, MeasurementError
from consilience.measurements.queries import Identity, Query, as_query, of_function, weighted
from consilience.measurements.structured import Coarsened, Kronecker, Permuted

Noise = Literal["gaussian", "laplace"]


@dataclass(frozen=True, eq=False, repr=False)
class Measurement:
    """Noisy answers about one clique, in counts.

    `query=None` means the table itself: `values` has the table's shape, its axes in the order in
    which the attributes are given, or is that table flattened. With a query, the query's columns
    are the cells in that same order and `values` has one entry per row; it may also be a linear
    function of the table. The noise is independent with standard deviation `stddev` in every entry,
    one number or one per entry; for Laplace noise of scale b that is b * sqrt(2), so `scale` gives b
    = stddev / sqrt(2). A measurement of no attributes, `Measurement((), [n], stddev=...)`, is one of
    the total.
    """

    attributes: tuple[str, ...]
    values: Buffer
    stddev: float | Buffer
    noise: Noise
    query: Query | Callable[[Buffer], Any] | None

    def __init__(
        self,
        attributes: str | Iterable[str],
        values: Any,
        *,
        stddev: Any,
        noise: Noise = "gaussian",
        query: Any = None,
    ) -> None:
        names = names_of(attributes)
        if len(set(names)) != len(names):
            raise MeasurementError(
                f"the attributes of a measurement must be distinct, got {names}; name each once"
            )
        if noise not in get_args(Noise):
            raise MeasurementError(f"noise must be 'gaussian' or 'laplace', got {noise!r}")
        object.__setattr__(self, "attributes", names)
        object.__setattr__(self, "values", _checked_values(names, values))
        object.__setattr__(self, "stddev", _checked_stddev(stddev, self.values.shape))
        object.__setattr__(self, "noise", noise)
        chosen = query if query is None or _is_function(query) else as_query(query)
        object.__setattr__(self, "query", None if isinstance(chosen, Identity) else chosen)
        if isinstance(self.query, Query):
            self._check_rows(self.query)

    def _check_rows(self, query: Query) -> None:
        if self.values.shape != (query.rows,):
            raise MeasurementError(
                f"the values of the query on {self.attributes} must have shape {(query.rows,)}, "
                f"one per row, got {self.values.shape}"
            )

    @property
    def scale(self) -> float | Buffer:
        """b of Laplace noise with this standard deviation."""
        return self.stddev / sqrt(2)

    def bind(self, domain: Domain) -> BoundMeasurement:
        """The same measurement of the canonical clique: flat values and query in domain order."""
        unknown = [a for a in self.attributes if a not in domain]
        if unknown:
            raise DomainError(
                f"the clique of a measurement must be in the domain, got {self.attributes} "
                f"with unknown attribute {unknown[0]!r}; the domain is {domain!r}"
            )
        named = domain.named(self.attributes)
        if len(named) < len(self.attributes):
            raise MeasurementError(
                f"the attributes of a measurement must be distinct, got two levels of one in {self.attributes}; name the finer"
            )
        clique = domain.clique(named)
        if clique != named:
            return self._at_levels(domain, named)
        shape = domain.shape_of(self.attributes)
        axes = [self.attributes.index(a) for a in clique]
        if self.query is None:
            flat = self._table(self.values, shape).transpose(axes).reshape(-1)
            query: Query = Identity(prod(shape))
        else:
            flat, query = self.values, self._ordered(self.query, domain, clique)
        if isinstance(self.stddev, float):
            return BoundMeasurement(clique, flat, self.stddev, self.noise, query)
        # Answers in units of their noise: the same information, with one standard deviation for all.
        each = np.asarray(self.stddev)
        if self.query is None:
            each = self._table(each, shape).transpose(axes).reshape(-1)
        least = float(each.min())
        query = weighted(query, least / each)
        return BoundMeasurement(clique, flat * (least / each), least, self.noise, query)

    def _at_levels(self, domain: Domain, named: Clique) -> BoundMeasurement:
        """What a measurement at levels says about the attributes themselves."""
        coarse = Domain([(a, domain[a]) for a in named])
        bound = self.bind(coarse)
        query = Coarsened(
            domain.shape_of(domain.clique(named)),
            tuple(domain.levels.get(a) for a in named),
            bound.query,
        )
        return BoundMeasurement(domain.clique(named), bound.values, bound.stddev, self.noise, query)

    def _table(self, given: Buffer, shape: tuple[int, ...]) -> Buffer:
        if given.shape not in (shape, (prod(shape),)):
            raise MeasurementError(
                f"the values of {self.attributes} must have shape {shape} or be flat with "
                f"{prod(shape)} entries, got {given.shape}; give one value per cell, "
                "axes in the order of the attributes"
            )
        return given.reshape(shape)

    def _ordered(self, asked: Query | Callable[..., Any], domain: Domain, clique: Clique) -> Query:
        shape = domain.shape_of(self.attributes)
        if isinstance(asked, Query):
            query = asked
        else:
            query = of_function(asked, shape)
            self._check_rows(query)
        checked = as_query(query, prod(shape))
        if isinstance(checked, Kronecker) and not checked.fits(shape):
            raise MeasurementError(
                f"the factors of a Kronecker query on {self.attributes} must match the sizes "
                f"{shape} in that order, got {tuple(f.cells for f in checked.factors)}"
            )
        if clique == self.attributes:
            return checked
        axes = tuple(clique.index(a) for a in self.attributes)
        return Permuted(checked, domain.shape_of(clique), axes)

    def __repr__(self) -> str:
        what = "" if self.query is None else f", query={self.query!r}"
        low, high = np.min(self.stddev), np.max(self.stddev)
        wide = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        return (
            f"Measurement({self.attributes}, {self.values.size} values, "
            f"stddev={wide}, noise={self.noise!r}{what})"
        )


@dataclass(frozen=True, eq=False)
class BoundMeasurement:
    """A measurement of a canonical clique: flat `values`, `query` on the flat table."""

    clique: Clique
    values: Buffer
    stddev: float
    noise: Noise
    query: Query

    @property
    def attributes(self) -> Clique:
        """What was measured, under the name that a Measurement has for it."""
        return self.clique

    def bind(self, domain: Domain) -> BoundMeasurement:
        """Itself, if it is of this domain."""
        if (
            domain.clique(self.clique) != self.clique
            or domain.size(self.clique) != self.query.cells
        ):
            raise DomainError(
                f"a measurement must be over the domain {domain!r}, got one of {self.clique} of another"
            )
        return self

    @property
    def scale(self) -> float:
        """b of Laplace noise with this standard deviation."""
        return self.stddev / sqrt(2)

    @property
    def is_identity(self) -> bool:
        return isinstance(self.query, Identity)


def _checked_values(names: tuple[str, ...], values: Any) -> Buffer:
    given = np.asarray(values)
    if given.dtype.kind not in "iuf":
        raise MeasurementError(
            f"the values of {names} must be real numbers, got type {given.dtype}"
        )
    kept = np.array(given, dtype=np.float64, order="C")
    finite = np.isfinite(kept)
    if not finite.all():
        place = np.unravel_index(int(np.argmin(finite)), kept.shape)
        raise MeasurementError(
            f"the values of {names} must be finite, got {kept[place]} at {tuple(map(int, place))}"
        )
    kept.flags.writeable = False
    return kept


def _is_function(query: Any) -> bool:
    """Whether a query is given as code: queries and operators of SciPy can be called too, and are more than that."""
    return callable(query) and not isinstance(query, Query | LinearOperator)


def _checked_stddev(stddev: object, shape: tuple[int, ...]) -> float | Buffer:
    if isinstance(stddev, np.ndarray | list | tuple) and np.ndim(stddev) > 0:
        return _checked_stddevs(np.asarray(stddev), shape)
    if isinstance(stddev, bool) or not isinstance(stddev, int | float | np.integer | np.floating):
        raise MeasurementError(
            f"stddev must be a positive number, got {stddev!r}; give the standard deviation of "
            "the noise in counts"
        )
    value = float(stddev)
    if not (isfinite(value) and value > 0):
        raise MeasurementError(
            f"stddev must be positive and finite, got {value}; give the standard deviation of "
            "the noise in counts"
        )
    return value


def _checked_stddevs(given: Any, shape: tuple[int, ...]) -> float | Buffer:
    """One for each value; one number where all are the same."""
    if given.dtype.kind not in "iuf" or given.shape != shape:
        raise MeasurementError(
            f"stddev must be a positive number, or one for each value in the same shape {shape}, got type {given.dtype} and "
            f"shape {given.shape}"
        )
    each = np.array(given, np.float64)
    bad = ~(np.isfinite(each) & (each > 0))
    if bad.any():
        raise MeasurementError(
            f"every stddev must be positive and finite, got {each[bad][0]}; of what is known exactly there is no noise to "
            "give: cells that cannot occur are possible= of a fit"
        )
    if np.ptp(each) == 0:
        return float(each.flat[0])
    each.flags.writeable = False
    return each
