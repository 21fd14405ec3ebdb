"""Which candidates may still be measured: those with which reconstruction stays inside its memory budget.

Local consistency has a price that adds up table by table, so it turns away single cliques that are too large and nothing
else; the junction tree of global consistency can explode with any clique that closes a cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from consilience.domain import Clique, Domain
from consilience.errors import CapacityError
from consilience.mechanisms.settings import Settings
from consilience.memory import parse_bytes
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.planner import Plan


@dataclass(frozen=True, eq=False)
class Room:
    """The planner's prices for one set of candidates; `settings` are those of the rounds."""

    domain: Domain
    candidates: tuple[Clique, ...]
    settings: Settings

    @cached_property
    def all_fit(self) -> bool:
        return isinstance(self.settings.consistency, RegionGraph) or self._fits(self.candidates)

    def plan(self, cliques: Sequence[Clique]) -> Plan:
        return self.settings.plan(self.domain, cliques)

    def left(self, measured: Sequence[Clique], among: Sequence[Clique]) -> tuple[Clique, ...]:
        """Those of `among` that can be added to what is measured."""
        if self.all_fit:
            return tuple(among)
        known = tuple(dict.fromkeys(measured))
        if self.settings.consistency == "global":
            return tuple(c for c in among if c in known or self._fits((*known, c)))
        spare = parse_bytes(self.settings.memory) - (self.plan(known).bytes if known else 0)
        return tuple(c for c in among if c in known or self._bytes.get(c, spare + 1) <= spare)

    def _fits(self, cliques: Sequence[Clique]) -> bool:
        try:
            self.plan(cliques)
        except CapacityError:
            return False
        return True

    @cached_property
    def _bytes(self) -> dict[Clique, int]:
        """The price of each candidate alone, an upper bound on what it adds; those that never fit are left out."""
        return {c: self.plan([c]).bytes for c in self.candidates if self._fits([c])}
