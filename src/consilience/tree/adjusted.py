"""A backbone moved as tables that it was fitted to move, one clique of the tree at a time and only those that a question reads.

Maximum entropy with other targets is near the one with these: each table of the tree is scaled, one after the other, to its own
marginals on the cliques inside it plus what those moved by. Where targets do not move, nothing does, even if they were not met.
Cliques that touch agree on their separators as far as the targets decide them, and conditionals, which are what answers are
made of, need no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import overload

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique
from consilience.kernels.messages import add_up
from consilience.tree.answers import Backbone, TreeAnswers

KEPT = 20_000_000
"""Numbers of moved tables that are kept for the next question: 160 MB."""


class Adjusting:
    """Makes backbones that differ from one in their numbers alone; index arrays are found once and shared, and tables that were
    moved once are kept while there is room.
    """

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        support, domain = backbone.fit.support, backbone.tree.domain
        self._inside: list[list[Clique]] = [[] for _ in support.members]
        for clique in backbone.cliques:
            for bag in support.holders.of(domain.axes(clique)):
                self._inside[bag].append(clique)
        self._known: dict[tuple[int, Clique], tuple[NDArray[np.int64], Buffer]] = {}
        self._kept: dict[tuple[int, int], Buffer] = {}
        self._room = KEPT

    @property
    def work(self) -> int:
        """Cells that a replicate visits if a question reads the whole tree."""
        cells = self.backbone.fit.support.cells
        visits = (len(c) * (2 + 2 * len(i)) for c, i in zip(cells, self._inside, strict=True))
        return max(1, sum(visits))

    def by(self, number: int, moved: Callable[[Clique], Buffer]) -> Backbone:
        """The backbone where the table of a clique has moved by so much; the same number means the same moves."""
        fit = replace(self.backbone.fit, tables=_Tables(self, number, moved))
        return replace(self.backbone, fit=fit, asked=TreeAnswers(fit, like=self.backbone.answers))

    def scaled(self, number: int, bag: int, moved: Callable[[Clique], Buffer]) -> Buffer:
        if (number, bag) in self._kept:
            return self._kept[number, bag]
        made = self._scaled(bag, moved)
        if made.size <= self._room:
            self._room -= made.size
            self._kept[number, bag] = made
        return made

    def _scaled(self, bag: int, moved: Callable[[Clique], Buffer]) -> Buffer:
        found = self.backbone.fit.tables[bag].copy()
        for k, clique in enumerate(self._inside[bag]):
            place, own = self._own(bag, clique)
            target = np.maximum(own + moved(clique).reshape(-1), 0.0)
            have = own if k == 0 else add_up(place, found, len(target))
            ratio = np.divide(target, have, out=np.zeros_like(have), where=have > 0)
            found *= ratio[place]
        total = found.sum()
        return found / total if total > 0 else self.backbone.fit.tables[bag]

    def _own(self, bag: int, clique: Clique) -> tuple[NDArray[np.int64], Buffer]:
        """Which cell of the clique's table each cell of the tree's belongs to, and that table by the backbone."""
        key = (bag, clique)
        if key not in self._known:
            fit, axes = self.backbone.fit, self.backbone.tree.domain.axes(clique)
            place = fit.support.located(bag, axes)
            size = self.backbone.tree.domain.size(clique)
            self._known[key] = place, add_up(place, fit.tables[bag], size)
        return self._known[key]


class _Tables(Sequence[Buffer]):
    """The tables of the tree's cliques, each made when it is first read."""

    def __init__(
        self, adjusting: Adjusting, number: int, moved: Callable[[Clique], Buffer]
    ) -> None:
        self._adjusting, self._number, self._moved = adjusting, number, moved
        self._made: dict[int, Buffer] = {}

    def __len__(self) -> int:
        return len(self._adjusting.backbone.fit.tables)

    @overload
    def __getitem__(self, index: int) -> Buffer: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Buffer]: ...
    def __getitem__(self, index: int | slice) -> Buffer | Sequence[Buffer]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index not in self._made:
            self._made[index] = self._adjusting.scaled(self._number, index, self._moved)
        return self._made[index]
