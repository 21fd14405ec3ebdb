"""Answers: what every reconstruction gives, whatever made it. `Model` is one; the baselines are others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from consilience.domain import Buffer, CliqueVector, Domain
from consilience.domain.domain import names_of
from consilience.errors import DomainError


@runtime_checkable
class Answers(Protocol):
    """Marginals of one table of people, in counts; no claim that they agree or are non-negative."""

    @property
    def domain(self) -> Domain:
        """The attributes and their sizes."""
        ...

    @property
    def total(self) -> float:
        """The number of records, known or estimated."""
        ...

    def marginal(self, attributes: str | Iterable[str], /) -> Buffer:
        """Counts over these attributes, axes in the order asked for."""
        ...

    def in_model(self, attributes: str | Iterable[str], /) -> bool:
        """Whether the answer was fitted, not inferred from less."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Tables:
    """One table of counts per clique, as a method without a joint distribution leaves them."""

    tables: CliqueVector
    total: float
    method: str
    rounds: int
    """Passes that were made."""
    violation: float
    """The largest L1 distance between two tables on what they share, as a share of the total."""

    @property
    def domain(self) -> Domain:
        return self.tables.domain

    def in_model(self, attributes: str | Iterable[str]) -> bool:
        """Whether some table contains these attributes."""
        return self.tables.layout.home(self.domain.clique(names_of(attributes))) is not None

    def marginal(self, attributes: str | Iterable[str]) -> Buffer:
        """Counts over these attributes, from the smallest table that contains them, axes in the order asked for."""
        order = names_of(attributes)
        clique = self.domain.clique(order)
        if len(clique) != len(order):
            raise DomainError(f"attributes must be distinct, got {order}")
        if not self.in_model(order):
            raise DomainError(
                f"some measured table must contain {clique}, none does; {self.method} answers measured tables only, "
                "use reconstruct for others"
            )
        table = self.tables.project(clique)
        return table.transpose([clique.index(a) for a in order]).copy()

    def __repr__(self) -> str:
        return (
            f"Tables({self.method}: {len(self.tables)} tables, total {self.total:,.6g}, {self.rounds} rounds, "
            f"violation {self.violation:.2g})"
        )
