"""Measurements: many measurements as columns. Cliques are one integer array, values one buffer, standard deviations one array.

This is what reconstructions work on: a list of `Measurement` becomes one of these first, and nothing after that goes through it
clique by clique.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, SupportsIndex, get_args, overload

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Cliques, CliqueVector, Domain, Family
from consilience.domain.domain import names_of
from consilience.domain.moves import cells_of, move
from consilience.domain.rows import starts
from consilience.errors import DomainError, MeasurementError
from consilience.measurements.measurement import BoundMeasurement, Measurement, Noise
from consilience.measurements.queries import Identity, Query

NOISES: tuple[Noise, ...] = get_args(Noise)

MOST = 1e50
"""The largest value or standard deviation, and one over the least, that a fit can reckon with."""


@dataclass(frozen=True, eq=False, repr=False)
class Measurements(Sequence[BoundMeasurement]):
    """Noisy tables of many cliques over one domain, in counts; wherever a list of `Measurement` is taken, this is as well.

    cliques: an integer array with one row per clique, the positions of its attributes in the domain; a row that is shorter than
    the others is filled up with -1 at its end. Or cliques by name. values: one number per cell, table after table, the axes of
    each in the order of its row; or a `CliqueVector` over the same cliques. stddev: one number, or one per clique; noise the
    same. An array of values that is marked read-only is kept as it is, any other is copied.
    """

    domain: Domain
    cliques: Cliques
    """Of every measurement, in domain order; a clique that was measured twice is here twice."""
    values: Buffer
    """All values, in domain order."""
    at: NDArray[np.int64]
    """Measurement i has values at[i] to at[i + 1]."""
    stddevs: Buffer
    noises: NDArray[np.uint8]
    """Position in NOISES."""
    queries: Mapping[int, Query]
    """Of the measurements that are not of whole tables."""

    def __init__(
        self,
        domain: Domain,
        cliques: NDArray[Any] | Iterable[str | Iterable[str]],
        values: Any,
        *,
        stddev: Any,
        noise: Noise | Sequence[Noise] = "gaussian",
    ) -> None:
        given = _positions(domain, cliques)
        canonical = Cliques(domain, given.sorted())
        self._set(
            domain,
            canonical,
            _values(given, canonical, values),
            starts(canonical.sizes),
            _stddevs(canonical, stddev),
            _noises(len(given), noise),
            {},
        )

    def _set(self, *columns: Any) -> None:
        for name, column in zip(self.__dataclass_fields__, columns, strict=True):
            if isinstance(column, np.ndarray):
                column.flags.writeable = False
            object.__setattr__(self, name, column)

    @classmethod
    def made(
        cls,
        cliques: Cliques,
        values: Buffer,
        at: NDArray[np.int64],
        stddevs: Buffer,
        noises: NDArray[np.uint8],
        queries: Mapping[int, Query],
    ) -> Measurements:
        """From columns that are right already."""
        found = object.__new__(cls)
        found._set(cliques.domain, cliques, values, at, stddevs, noises, queries)
        return found

    @classmethod
    def of(
        cls,
        domain: Domain,
        given: Iterable[Measurement | BoundMeasurement] | Measurements,
        *,
        empty: bool = False,
    ) -> Measurements:
        """What was given as columns, bound to the domain; at least one measurement is needed unless none may be."""
        if not isinstance(domain, Domain):
            raise DomainError(
                f"the domain must be a Domain, such as Domain({{'age': 10, 'sex': 2}}), got {domain!r}"
            )
        if isinstance(given, Measurements):
            if given.domain != domain:
                raise DomainError(
                    f"the measurements must be over the domain {domain!r}, got {given.domain!r}"
                )
            found = given
        elif isinstance(given, Measurement):
            raise MeasurementError(
                "measurements must be a list of Measurement, got a single one; wrap it in a list"
            )
        elif not isinstance(given, Iterable):
            raise MeasurementError(
                f"measurements must be a list of Measurement, got {type(given).__name__}"
            )
        else:
            found = _columns(domain, list(given))
        if not len(found) and not empty:
            raise MeasurementError("at least one measurement must be given, got none")
        largest = max(float(np.abs(found.values).max(initial=0.0)), found.stddevs.max(initial=1.0))
        least = found.stddevs.min(initial=1.0)
        if largest > MOST or least < 1 / MOST:
            raise MeasurementError(
                f"values and standard deviations must be counts within {MOST:g}, of which squares can be taken, got "
                f"{largest if largest > MOST else least:g}; choose another unit"
            )
        return found

    def replaced(self, values: Buffer, stddevs: Buffer) -> Measurements:
        """The same cliques and queries with other values."""
        return self.made(self.cliques, values, self.at, stddevs, self.noises, self.queries)

    # -- reading ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.cliques)

    @overload
    def __getitem__(self, i: SupportsIndex) -> BoundMeasurement: ...
    @overload
    def __getitem__(self, i: slice) -> tuple[BoundMeasurement, ...]: ...
    def __getitem__(
        self, i: SupportsIndex | slice
    ) -> BoundMeasurement | tuple[BoundMeasurement, ...]:
        if isinstance(i, slice):
            return tuple(self[k] for k in range(*i.indices(len(self))))
        at = range(len(self))[i]
        clique = self.cliques[at]
        return BoundMeasurement(
            clique,
            self.values[self.at[at] : self.at[at + 1]],
            float(self.stddevs[at]),
            NOISES[self.noises[at]],
            self.queries.get(at) or Identity(self.domain.size(clique)),
        )

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Which are of whole tables."""
        found = np.ones(len(self), bool)
        found[list(self.queries)] = False
        return found

    @property
    def kinds(self) -> list[tuple[Noise, bool]]:
        """The combinations of noise and whether it is through a query that occur."""
        codes = np.unique(2 * self.noises + ~self.whole)
        return [(NOISES[k // 2], bool(k % 2)) for k in codes.tolist()]

    def sums(self, which: NDArray[np.int64]) -> Buffer:
        """The sum of the values of each of these measurements."""
        counts = np.diff(self.at)[which]
        if not len(which):
            return np.zeros(0)
        values = self.values if len(which) == len(self) else self.values[cells_of(self.at[which], counts)]  # fmt: skip
        return np.add.reduceat(values, starts(counts)[:-1])

    def __repr__(self) -> str:
        return f"Measurements({len(self):,} of {len(self.domain)} attributes, {self.values.size:,} values)"


def _columns(domain: Domain, given: list[Any]) -> Measurements:
    """A list of measurements as columns: whole tables together, those through queries one by one."""
    other = next((m for m in given if not isinstance(m, Measurement | BoundMeasurement)), None)
    if other is not None:
        raise MeasurementError(
            f"measurements must be a list of Measurement, got {type(other).__name__}"
        )
    asked = {i: m for i, m in enumerate(given) if not _is_whole(m, domain)}
    for i, m in asked.items():
        asked[i] = given[i] = m.bind(domain)
    place = domain.positions
    try:
        sets = Family.of([[place[a] for a in m.attributes] for m in given])
    except KeyError:
        sets = Family.of([domain.axes(m.bind(domain).clique) for m in given])  # it says which
    shapes = sets.renamed(np.array(domain.shape))
    for m, shape in zip(given, shapes, strict=True):
        if m.values.shape != shape and (m.values.ndim != 1 or m.values.size != prod(shape)):
            m.bind(domain)  # refuses what does not fit
    flat = np.concatenate([np.zeros(0), *(m.values.reshape(-1) for m in given)])
    at = starts([m.values.size for m in given])
    turned = np.flatnonzero(sets.descents())
    if len(turned):
        axes, source = sets.take(turned).argsort(), flat.copy()
        move(source, at[turned], flat, at[turned], shapes.take(turned), axes)
    return Measurements.made(
        Cliques(domain, sets.sorted()),
        flat,
        at,
        np.array([m.stddev for m in given], np.float64),
        np.array([NOISES.index(m.noise) for m in given], np.uint8),
        {i: m.query for i, m in asked.items()},
    )


def _is_whole(m: Measurement | BoundMeasurement, domain: Domain) -> bool:
    """Whether it is of the table of its attributes, and not through a query or at a level."""
    if domain.levels and any(a in domain.levels for a in m.attributes):
        return False
    if not isinstance(m.stddev, float):
        return False  # its answers are in units of their noise
    return m.query is None or isinstance(m.query, Identity)


# -- checks ------------------------------------------------------------------------------------------


def _positions(domain: Domain, cliques: Any) -> Family:
    """The cliques as they were given: sets of positions, the order within each kept."""
    if isinstance(cliques, Cliques) and cliques.domain == domain:
        return cliques.sets
    if not isinstance(cliques, np.ndarray):
        names = [names_of(c) for c in cliques]
        twice = next((c for c in names if len(set(c)) < len(c)), None)
        if twice is not None:
            raise MeasurementError(
                f"the attributes of a clique must be distinct, got {twice}; name each once"
            )
        coarse = next((a for c in names for a in c if a in domain.levels), None)
        if coarse is not None:
            raise MeasurementError(
                f"columns of measurements are of attributes, got level {coarse!r}; give a list of Measurement"
            )
        return Family.of([domain.position(a) for a in c] for c in names)
    if cliques.ndim != 2 or cliques.dtype.kind not in "iu":
        raise MeasurementError(
            f"cliques must be an integer array with a row for each, got type {cliques.dtype} and shape {cliques.shape}"
        )
    wrong = (cliques < -1) | (cliques >= len(domain))
    if wrong.any():
        i, j = (int(k) for k in np.argwhere(wrong)[0])
        raise MeasurementError(
            f"the attributes of a clique must be numbers from 0 to {len(domain) - 1} (-1 fills up a row), "
            f"got {cliques[i, j]} in row {i}"
        )
    kept = cliques >= 0
    late = np.flatnonzero((kept[:, 1:] & ~kept[:, :-1]).any(axis=1))
    if len(late):
        raise MeasurementError(
            f"a row of cliques is filled up with -1 at its end, got {cliques[late[0]].tolist()} in row {late[0]}"
        )
    ordered = np.sort(cliques, axis=1)
    again = np.flatnonzero(((np.diff(ordered, axis=1) == 0) & (ordered[:, 1:] >= 0)).any(axis=1))
    if len(again):
        raise MeasurementError(
            f"the attributes of a clique must be distinct, got {cliques[again[0]].tolist()} in row {again[0]}; name each once"
        )
    return Family(cliques[kept], starts(kept.sum(axis=1)))


def _values(given: Family, canonical: Cliques, values: Any) -> Buffer:
    """All values in domain order, not to be written to."""
    if isinstance(values, CliqueVector):
        if values.domain != canonical.domain or values.cliques != canonical:
            raise MeasurementError(
                f"a vector of values must be over the same {len(canonical)} cliques in the same order, got {values!r}"
            )
        given, values = canonical.sets, values.values
    numbers = np.asarray(values)
    if numbers.dtype.kind not in "iuf":
        raise MeasurementError(f"values must be real numbers, got type {numbers.dtype}")
    if numbers.size != canonical.cells:
        raise MeasurementError(
            f"the values of these {len(canonical):,} cliques must be {canonical.cells:,} numbers, one per cell, "
            f"got {numbers.size:,}"
        )
    flat = np.ascontiguousarray(numbers, np.float64).reshape(-1)
    finite = np.isfinite(flat)
    if not finite.all():
        bad = int(np.argmin(finite))
        i = int(np.searchsorted(starts(canonical.sizes), bad, side="right")) - 1
        raise MeasurementError(
            f"values must be finite, got {flat[bad]} for {canonical[i]}, measurement {i}"
        )
    if given != canonical.sets:
        return _in_domain_order(given, canonical, flat)
    return flat.copy() if flat.flags.writeable and np.may_share_memory(flat, numbers) else flat


def _in_domain_order(given: Family, canonical: Cliques, flat: Buffer) -> Buffer:
    shapes = given.renamed(np.array(canonical.domain.shape))
    out, at = np.empty(len(flat)), starts(canonical.sizes)[:-1]
    move(flat, at, out, at, shapes, given.argsort())
    return out


def _stddevs(cliques: Cliques, stddev: Any) -> Buffer:
    given = np.asarray(stddev)
    if given.dtype.kind not in "iuf" or given.shape not in ((), (len(cliques),)):
        raise MeasurementError(
            f"stddev must be a positive number, or one for each of the {len(cliques):,} cliques, "
            f"got type {given.dtype} and shape {given.shape}"
        )
    found = np.broadcast_to(given, len(cliques)).astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(found) & (found > 0)))
    if len(bad):
        raise MeasurementError(
            f"stddev must be positive and finite, got {found[bad[0]]} for {cliques[int(bad[0])]}, measurement {bad[0]}; "
            "give the standard deviation of the noise in counts"
        )
    return found


def _noises(count: int, noise: Any) -> NDArray[np.uint8]:
    names = [noise] if isinstance(noise, str) else list(noise)
    unknown = next((n for n in names if n not in NOISES), None)
    if unknown is not None:
        raise MeasurementError(f"noise must be 'gaussian' or 'laplace', got {unknown!r}")
    if len(names) not in (1, count):
        raise MeasurementError(
            f"noise must be one name, or one for each of the {count:,} cliques, got {len(names)}"
        )
    codes = np.array([NOISES.index(n) for n in names], np.uint8)
    return np.broadcast_to(codes, count).copy()
