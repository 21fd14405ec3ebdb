"""Model: the fitted thing. Any marginal in the model, linear queries on it, how good it is, and a file that keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector, Domain
from consilience.errors import DomainError
from consilience.inference.diagnostics import Diagnostics
from consilience.inference.settings import Settings
from consilience.measurements import BoundMeasurement, Query, as_query
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.planner import show_bytes


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """Consistent, non-negative pseudo-marginals of a table and what is known about them.

    `tau` holds one distribution per region of `graph`; answers are counts that sum to `total`.
    """

    domain: Domain
    total: float
    graph: RegionGraph
    tau: CliqueVector
    measurements: tuple[BoundMeasurement, ...]
    diagnostics: Diagnostics
    settings: Settings | None = None

    def marginal(self, attributes: str | Iterable[str]) -> Buffer:
        """Expected counts over these attributes, axes in the order asked for."""
        order = self._asked(attributes)
        clique = self.domain.clique(order)
        table = self._in_model(clique)
        if table is None:
            raise DomainError(
                f"some measured region must contain {clique}, none does; measure it, or a clique that holds it"
            )
        counts = table * self.total
        return counts.transpose([clique.index(a) for a in order]) if clique else counts

    def answer(self, attributes: str | Iterable[str], query: Query | Buffer) -> Buffer:
        """A linear query on the marginal of these attributes, its columns following the order asked for."""
        table = self.marginal(attributes)
        return as_query(query, table.size).apply(np.ascontiguousarray(table).reshape(-1))

    def in_model(self, attributes: str | Iterable[str]) -> bool:
        """Whether some region contains these attributes, so that the answer was fitted and not inferred."""
        return self._cover(self.domain.clique(self._asked(attributes))) is not None

    @property
    def cliques(self) -> tuple[Clique, ...]:
        """The measured cliques."""
        return tuple(dict.fromkeys(m.clique for m in self.measurements if m.clique))

    def __repr__(self) -> str:
        d = self.diagnostics
        return (
            f"Model({len(self.domain)} attributes, total {self.total:,.6g}, {len(self.cliques)} measured cliques, "
            f"{self.graph.kind} consistency, {show_bytes(self.tau.values.nbytes)}; {d.status}, relative gap {d.gap:.1g})"
        )

    # -- helpers ---------------------------------------------------------------------------------

    def _asked(self, attributes: str | Iterable[str]) -> Clique:
        order = (attributes,) if isinstance(attributes, str) else tuple(attributes)
        if len(set(order)) != len(order):
            raise DomainError(f"attributes must be distinct, got {order}")
        self.domain.clique(order)
        return order

    def _in_model(self, clique: Clique) -> Buffer | None:
        if not clique:
            return np.array(1.0)
        region = self._cover(clique)
        if region is None:
            return None
        axes = tuple(i for i, a in enumerate(region) if a not in clique)
        table = self.tau[region]
        return table.sum(axis=axes) if axes else table.copy()

    def _cover(self, clique: Clique) -> Clique | None:
        """The smallest region that contains the clique, the first one among equals."""
        if clique in self.tau.layout.index:
            return clique
        sets = [self._holders.get(a, frozenset()) for a in clique]
        found = frozenset.intersection(*sets) if sets else frozenset()
        if not found:
            return None
        return self.graph.regions[
            min(found, key=lambda i: (self.domain.size(self.graph.regions[i]), i))
        ]

    @cached_property
    def _holders(self) -> dict[str, frozenset[int]]:
        holders: dict[str, set[int]] = {}
        for i, region in enumerate(self.graph.regions):
            for a in region:
                holders.setdefault(a, set()).add(i)
        return {a: frozenset(s) for a, s in holders.items()}
