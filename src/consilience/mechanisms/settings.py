"""Settings: how a mechanism turns its measurements into a model. Free of privacy cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields

from consilience.domain import Clique, Domain
from consilience.errors import ConsilienceError
from consilience.inference import Model, reconstruct
from consilience.inference.impossible import Masks, check_masks
from consilience.measurements import Measurement
from consilience.progress import Progress
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.planner import (
    TIME_LIMIT,
    Plan,
    build_graph,
    make_plan,
    plan_for_graph,
)


@dataclass(frozen=True)
class Settings:
    """The arguments of `reconstruct` that a mechanism passes on."""

    consistency: str | RegionGraph = "auto"
    solver: str = "auto"
    prior: str | None = None
    memory: str | int | float = "2 GB"
    tolerance: float = 1e-6
    possible: Masks = field(default_factory=dict, compare=False)
    time_limit: float = TIME_LIMIT

    def plan(self, domain: Domain, cliques: Sequence[Clique]) -> Plan:
        """What reconstruction will need; refuses here what would fail after the budget was spent."""
        if self.prior not in (None, "independence"):
            raise ConsilienceError(f"prior must be None or 'independence', got {self.prior!r}")
        if self.prior is not None:
            self._check_prior(cliques)
        if not 0 < self.tolerance < float("inf"):
            raise ConsilienceError(f"tolerance must be positive and finite, got {self.tolerance!r}")
        if isinstance(self.consistency, RegionGraph):
            _check_graph(self.consistency, domain, cliques)
            self._check_possible(self.consistency)
            return plan_for_graph(
                self.consistency, len(cliques), self.solver, self.memory, squared=True
            )
        plan = make_plan(
            domain,
            cliques,
            consistency="local" if self.prior and self.consistency == "auto" else self.consistency,
            solver=self.solver,
            memory=self.memory,
            squared=True,
            time_limit=self.time_limit,
        )
        if self.possible:
            self._check_possible(build_graph(domain, cliques, plan.consistency))
        return plan

    def _check_prior(self, cliques: Sequence[Clique]) -> None:
        """What `reconstruct` would refuse about a prior, refused before anything is spent."""
        if self.solver == "prox":
            raise ConsilienceError(
                "prior='independence' works with the splitting solver; leave solver='auto'"
            )
        graph = self.consistency
        if isinstance(graph, RegionGraph):
            bare = {graph.regions[i] for i in graph.roots} - set(cliques)
            if bare:
                raise ConsilienceError(
                    f"prior='independence' needs every region without parents measured, got {min(bare)} "
                    "unmeasured; leave consistency='auto'"
                )
        elif graph == "global":
            raise ConsilienceError(
                "prior='independence' works with local consistency; leave consistency='auto'"
            )

    def _check_possible(self, graph: RegionGraph) -> None:
        """The same for combinations that can not occur."""
        if not self.possible:
            return
        if self.prior is not None or self.solver == "prox":
            raise ConsilienceError(
                "combinations that can not occur need prior=None and the splitting solver; leave out "
                f"{'prior' if self.prior is not None else 'solver'}= or possible="
            )
        check_masks(graph, self.possible)

    def reconstruct(
        self,
        domain: Domain,
        measurements: Iterable[Measurement],
        total: float | None,
        progress: Progress | None,
    ) -> Model:
        return reconstruct(
            domain,
            measurements,
            total=total,
            consistency=self.consistency,
            solver=self.solver,
            memory=self.memory,
            prior=self.prior,
            tolerance=self.tolerance,
            possible=self.possible,
            time_limit=self.time_limit,
            progress=progress,
        )


class Reconstructing:
    """A mechanism that has the options of `Settings` as its own, under the same names."""

    @property
    def settings(self) -> Settings:
        return Settings(**{f.name: getattr(self, f.name) for f in fields(Settings)})


def _check_graph(graph: RegionGraph, domain: Domain, cliques: Iterable[Clique]) -> None:
    """Every measured clique must have a region that holds it."""
    if graph.domain != domain:
        raise ConsilienceError(
            f"the region graph must have the domain of the workload, got {graph.domain!r}"
        )
    regions = [frozenset(r) for r in graph.regions]
    for clique in cliques:
        if not any(region.issuperset(clique) for region in regions):
            raise ConsilienceError(
                f"some region of the graph must contain {clique}, none does; add it, "
                "or leave consistency='auto'"
            )
