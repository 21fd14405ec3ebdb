"""The table as a mechanism sees it: a domain, a number of rows, exact counts; what is refused before anything is spent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from consilience.domain import CliqueVector, Domain
from consilience.errors import DataError
from consilience.privacy import Neighbours


@runtime_checkable
class Source(Protocol):
    """Anything that counts marginals exactly: a `Dataset`, or an engine that sends only counts."""

    @property
    def domain(self) -> Domain: ...

    @property
    def records(self) -> int:
        """Number of rows, which is what every marginal must sum to."""
        ...

    def marginals(self, cliques: Iterable[Iterable[str]]) -> CliqueVector:
        """Exact counts of many marginals, axes in domain order."""
        ...


@runtime_checkable
class _Weighted(Protocol):
    @property
    def weights(self) -> NDArray[np.float64] | None: ...


@runtime_checkable
class _OfUnits(Protocol):
    @property
    def unit_rows(self) -> tuple[str, int] | None: ...


def check_source(data: Source, domain: Domain, neighbours: Neighbours) -> None:
    """Refuse what cannot be counted with the sensitivity that noise is calibrated to."""
    if not isinstance(data, Source):
        raise DataError(
            "a mechanism is called on a table with domain, records and marginals "
            f"(a Dataset), got {type(data).__name__}; nothing was spent"
        )
    if data.domain != domain:
        raise DataError(
            f"the table must have the domain of the workload, {domain!r}, got {data.domain!r}; "
            "nothing was spent"
        )
    if isinstance(data, _Weighted) and data.weights is not None and (data.weights != 1).any():
        raise DataError(
            "every row must count once, got row weights other than 1; one person of weight w moves "
            "a count by w, which the noise does not cover: drop the weights or repeat the rows; "
            "nothing was spent"
        )
    counted = data.unit_rows if isinstance(data, _OfUnits) else None
    promised = None if neighbours.unit is None else (neighbours.unit, neighbours.rows)
    if counted != promised:
        raise DataError(
            f"the table must be counted for whom the budget protects: it keeps {_said(counted)}, and the budget is stated for "
            f"{_said(promised)}; give Budget(..., unit=, rows_per_unit=) as the schema declares it; nothing was spent"
        )
    # Under add-remove an empty table has neighbours that are not, so it is no error there.
    if neighbours.value == "replace-one" and data.records < 1:
        raise DataError("a table under replace-one must have at least one row, got none")


def _said(unit_rows: tuple[str, int] | None) -> str:
    if unit_rows is None:
        return "every row for itself"
    return f"at most {unit_rows[1]} rows of each {unit_rows[0]!r}"


def exact_counts(data: Source, cliques: Iterable[Iterable[str]]) -> CliqueVector:
    """Every table counted in one pass, as whole numbers that sum to the number of rows."""
    counts = data.marginals(cliques)
    if not np.array_equal(counts.values, np.rint(counts.values)):
        raise DataError(
            "marginals must be whole numbers, got fractions; count each row once, without weights; "
            "nothing was spent"
        )
    for clique, table in counts.items():
        if table.sum() != data.records:
            raise DataError(
                f"every marginal must sum to the {data.records:,} rows, got {table.sum():,.6g} for "
                f"{clique}; count each row once; nothing was spent"
            )
    return counts
