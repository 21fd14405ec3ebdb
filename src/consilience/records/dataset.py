"""Dataset: the records of a table as codes, and the exact counts of its marginals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consilience.domain import CliqueVector, Domain, Layout
from consilience.errors import DataError, DomainError
from consilience.kernels.counting import count_marginals
from consilience.records.codes import Codes, pack
from consilience.records.frames import Frame, Table, named_columns


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Records over a domain, as codes from 0 to size - 1, with an optional weight each.

    `codes` is an integer array (records x attributes, in the order of the domain), or named
    columns: a pandas or polars frame or a mapping. Named columns are matched by name in any order,
    and columns that the domain does not know are ignored. The codes are checked first and copied,
    so a dataset does not change when its source does.
    """

    domain: Domain
    codes: Codes
    weights: NDArray[np.float64] | None

    def __init__(
        self, codes: ArrayLike | Table | Codes, domain: Domain, weights: ArrayLike | None = None
    ) -> None:
        packed = codes if isinstance(codes, Codes) else pack(domain, _columns(codes, domain))
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "codes", packed)
        object.__setattr__(self, "weights", _checked_weights(weights, packed.records))

    # -- reading ---------------------------------------------------------------------------------

    @property
    def records(self) -> int:
        """Number of rows, whatever their weights."""
        return self.codes.records

    @property
    def total(self) -> float:
        """What every marginal sums to: the number of records, or the sum of their weights."""
        return float(self.records if self.weights is None else self.weights.sum())

    def __len__(self) -> int:
        return self.records

    def column(self, attribute: str) -> NDArray[np.unsignedinteger]:
        """The codes of one attribute, a read-only view."""
        return self.codes.column(self.domain.position(attribute))

    def to_array(self) -> NDArray[np.unsignedinteger]:
        """All codes, records x attributes, in the narrowest type that holds every column."""
        return np.stack([self.column(a) for a in self.domain], axis=1)

    def __repr__(self) -> str:
        names = list(self.domain)
        shown = ", ".join(names if len(names) <= 8 else [*names[:6], "...", names[-1]])
        weighted = "" if self.weights is None else f", weights summing to {self.total:,.6g}"
        return f"Dataset({self.records:,} records{weighted}; {len(names)} attributes: {shown})"

    # -- other datasets --------------------------------------------------------------------------

    def project(self, attributes: str | Iterable[str]) -> Dataset:
        """The same records with some of the attributes, in domain order; no codes are copied."""
        clique = self.domain.clique(attributes)
        columns = self.codes.select(self.domain.axes(clique))
        return Dataset(columns, self.domain.project(clique), self.weights)

    # -- counting --------------------------------------------------------------------------------

    def marginal(self, attributes: str | Iterable[str]) -> NDArray[Any]:
        """Exact counts of one marginal: one axis per attribute, in the order asked for.

        int64, or float64 sums of weights. `data.marginal(())` is the total.
        """
        order = (attributes,) if isinstance(attributes, str) else tuple(attributes)
        clique = self.domain.clique(order)
        if len(clique) != len(order):
            raise DomainError(
                f"the attributes of a marginal must be distinct, got {order}; ask for each once"
            )
        table = self.marginals([clique])[clique].transpose([clique.index(a) for a in order])
        return table.astype(np.int64 if self.weights is None else np.float64, order="C")

    def marginals(self, cliques: Iterable[Iterable[str]]) -> CliqueVector:
        """Exact counts of many marginals in one pass over the records; axes in domain order.

        Memory beyond the result is a few hundred kilobytes per thread, whatever the number of
        records.
        """
        layout = Layout(self.domain, cliques)
        counts = np.zeros(layout.cells)
        members = [self.domain.axes(c) for c in layout.cliques]
        count_marginals(
            self.codes.arrays,
            self.codes.columns,
            np.array(self.domain.shape, dtype=np.int64),
            np.array([a for clique in members for a in clique], dtype=np.int64),
            np.array([0, *accumulate(map(len, members))], dtype=np.int64),
            layout.offsets,
            self.weights,
            counts,
        )
        return CliqueVector(layout, counts)


def _columns(codes: ArrayLike | Table, domain: Domain) -> list[NDArray[Any]]:
    """One array per attribute, in the order of the domain."""
    if isinstance(codes, Mapping | Frame):
        return named_columns(codes, domain.attributes)
    try:
        array = np.asarray(codes)
    except ValueError:
        raise DataError("codes must be a table, got rows of different lengths") from None
    if array.ndim != 2 or array.shape[1] != len(domain):
        raise DataError(
            f"codes must have shape (records, {len(domain)}), one column per attribute, "
            f"got {array.shape}; give rows of codes in the order of the domain"
        )
    return list(array.T)


def _checked_weights(weights: ArrayLike | None, records: int) -> NDArray[np.float64] | None:
    if weights is None:
        return None
    try:
        checked = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("weights must be numbers, one per record, got something else") from None
    if checked.shape != (records,):
        raise DataError(
            f"weights must be one number per record, shape ({records},), got shape {checked.shape}"
        )
    bad = ~(np.isfinite(checked) & (checked >= 0))
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"weights must be finite and not negative, got {checked[row]} at row {row}; "
            "correct or drop the record"
        )
    checked.setflags(write=False)
    return checked
