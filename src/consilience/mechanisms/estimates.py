"""What the model of a round says about candidates, and which of them may still be measured. Free of privacy cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from consilience.domain import Buffer, Clique, Domain
from consilience.errors import CapacityError
from consilience.memory import parse_bytes
from consilience.model import Fit, Model
from consilience.model.impossible import emptied
from consilience.model.out_of_model import inferred
from consilience.progress import quiet
from consilience.solvers.planner import Plan
from consilience.tree.answers import Backbone
from consilience.tree.growth import FIT_CELLS, backbone_of

BACKBONE_MEMORY = "32 MB"
"""For the backbone of a round. With a quarter of it AIM on fire at epsilon 1 ended 13 and 23 % further off (two seeds)."""
ROUGH_WORK = 3e7
"""Cells that the fit of a round's backbone passes over: it starts from that of the round before, and only ranks candidates."""
_BATCH_CELLS = 2_000_000
"""Estimates alive at a time while candidates are scored."""


@dataclass
class Estimates:
    """Expected counts of any cliques, measured or not. Mutable: each backbone grows out of the one before it.

    `total` is the number of rows where that is public. method: "backbone" keeps global information, "local" lets only overlaps
    with measured cliques count, as in the paper's Problem 4. `rough` is close enough to rank candidates.
    """

    domain: Domain
    total: float | None
    method: str
    rough: bool = True
    _latest: list[tuple[Model | None, Backbone]] = field(default_factory=list)

    def __call__(self, model: Model | None, cliques: Sequence[Clique]) -> Iterator[Buffer]:
        """One table per clique, in the order asked for. Before the first measurement a table is uniform, or empty where even its
        number of rows is not known.
        """
        for batch in _batches(self.domain, cliques):
            if model is None:
                rows = self.total or 0.0
                yield from (
                    np.full(self.domain.shape_of(c), rows / self.domain.size(c)) for c in batch
                )
            else:
                yield from self._of(model, batch)

    def finer(self, model: Model | None) -> Estimates:
        """The same as close as they get, from a backbone that grows out of the rough one of this model."""
        latest: list[tuple[Model | None, Backbone]] = []
        if model is not None and model.tree is None and self.method == "backbone":
            latest = [(None, self._backbone(model))]
        return replace(self, rough=False, _latest=latest)

    def _of(self, model: Model, cliques: Sequence[Clique]) -> list[Buffer]:
        """In the model: its own tables. Else pairs and, without a backbone, all others are moved to agree with it on overlaps.

        Larger tables are the backbone's as they are: agreement takes many steps where its zeros contradict the model's tables,
        and for ranking candidates it hardly matters.
        """
        known, masks = model.known, model.masks
        out = [c for c in cliques if not known.holds(c)]
        direct = [c for c in out if self.method == "backbone" and len(c) > 2]
        moved = [c for c in out if c not in set(direct)]
        found, _ = inferred(
            known, moved, self.method, lambda: self._backbone(model), quiet, masks, rough=self.rough
        )
        tables = dict(zip(moved, found, strict=True))
        for c in direct:
            tables[c] = emptied(known.domain, masks, c, self._backbone(model).marginal(c))
        return [model.total * (tables[c] if c in tables else known.table(c)) for c in cliques]

    def _backbone(self, model: Model) -> Backbone:
        for seen, found in self._latest:
            if seen is model:
                return found
        start = self._latest[-1][1] if self._latest else None
        found = model.tree or self._made(model, start)
        self._latest = [*self._latest[-1:], (model, found)]
        return found

    def _made(self, model: Model, start: Backbone | None) -> Backbone:
        work = ROUGH_WORK if self.rough else FIT_CELLS
        return backbone_of(model.known, BACKBONE_MEMORY, start=start, work=work)


def _batches(domain: Domain, cliques: Sequence[Clique]) -> Iterator[Sequence[Clique]]:
    """Consecutive cliques, so many that their tables have about _BATCH_CELLS."""
    first, cells = 0, 0
    for i, clique in enumerate(cliques, 1):
        cells += domain.size(clique)
        if cells >= _BATCH_CELLS or i == len(cliques):
            yield cliques[first:i]
            first, cells = i, 0


@dataclass(frozen=True, eq=False)
class Room:
    """Which candidates may still be measured: those with which the fit stays inside its memory budget.

    Local consistency has a price that adds up table by table, so it turns away single cliques that are too large and nothing
    else; the junction tree of global consistency can explode with any clique that closes a cycle.
    """

    domain: Domain
    candidates: tuple[Clique, ...]
    fit: Fit

    def left(self, measured: Sequence[Clique], among: Sequence[Clique]) -> tuple[Clique, ...]:
        """Those of `among` that can be added to what is measured."""
        if self.all_fit:
            return tuple(among)
        known = tuple(dict.fromkeys(measured))
        if not self.fit.additive:
            return tuple(c for c in among if c in known or self._fits((*known, c)))
        spare = parse_bytes(self.fit.memory) - (self.plan(known).bytes if known else 0)
        return tuple(c for c in among if c in known or self._bytes.get(c, spare + 1) <= spare)

    @cached_property
    def all_fit(self) -> bool:
        return self._fits(self.candidates)

    def plan(self, cliques: Sequence[Clique]) -> Plan:
        return self.fit.plan(self.domain, cliques)

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
