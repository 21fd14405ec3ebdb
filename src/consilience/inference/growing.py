"""The exact model of a growing list of noisy tables, kept on the cells that can occur, so that it outlives its junction tree.

What the model so far expects decides which cells are possible: those where it expects more than a part of the noise, and those
that were measured far above it. A table is taken in as long as the possible cells of the tree with it stay within a limit. The
others are read next to the model: each starts from what the model says about it and takes the same steps towards its data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy

import numpy as np
from scipy.special import wrightomega

from consilience.domain import Buffer, Clique, CliqueVector, Domain
from consilience.inference.backbone import Backbone
from consilience.inference.noisy_fit import NoisyTables, fit_noisy
from consilience.inference.support import SupportTree
from consilience.regions.junction_tree import JunctionTree

MOST_CELLS = 500_000
"""Possible cells of the tree: a refit passes over them some hundred times."""
SMALL = 30_000
"""A tree of no more cells than this is taken in full."""
LEVELS = (1 / 4, 1 / 2, 1.0)
"""Parts of the noise below which an expected cell is left out; the next one where the last leaves too many cells."""
SEEN = 4.0
"""Standard deviations above zero that make a measured cell possible whatever was expected."""
LOST = 0.1
"""Mass of a table that may be left out at most."""
REFUSALS = 3
"""After this many tables in a row that do not fit, no more are tried."""
AGAIN = 1.25
"""The number of steps is found anew when there are this many times as many tables."""
SPREAD = 1e-3
"""Part of a table read beside the model that is spread evenly first, so that cells can come back."""


class GrowingModel:
    """Mutable: `backbone` is the exact model of the tables in `inside`; `outside` are the others."""

    def __init__(self, domain: Domain, cells: int = MOST_CELLS) -> None:
        self.domain, self.cells = domain, cells
        self.inside: list[Clique] = []
        self.outside: list[Clique] = []
        self.backbone: Backbone | None = None
        self.steps = 0
        self._chosen_at, self._level, self._refused = 0, 0, 0

    def take(
        self,
        cliques: Sequence[Clique],
        noisy: NoisyTables,
        progress: Callable[[int, int], None] | None = None,
    ) -> GrowingModel:
        """The model of the tables of these cliques, those of this one and more. This one stays as it is.

        progress sees (new tables placed, new tables).
        """
        grown = copy(self)
        grown.inside, grown.outside = list(self.inside), list(self.outside)
        grown._take(cliques, noisy, progress)
        return grown

    @classmethod
    def of(cls, domain: Domain, backbone: Backbone, noisy: NoisyTables) -> GrowingModel:
        """The tree, cells and number of steps of a backbone, fitted to other values of the same tables."""
        found = cls(domain)
        found.inside = list(backbone.cliques)
        found.outside = [c for c in noisy.values.cliques if c not in set(found.inside)]
        found.steps = backbone.fit.tours
        fit = fit_noisy(backbone.fit.support, noisy.only(found.inside), found.steps)
        found.backbone = Backbone(backbone.cliques, fit, backbone.whole)
        found._chosen_at = len(found.inside)
        return found

    def _take(
        self,
        cliques: Sequence[Clique],
        noisy: NoisyTables,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        seen = {*self.inside, *self.outside}
        new = [c for c in dict.fromkeys(cliques) if c not in seen]
        report = progress or (lambda done, of: None)
        self._grow(
            new, noisy, lambda: report(len(self.inside) + len(self.outside) - len(seen), len(new))
        )

    def _grow(self, group: list[Clique], noisy: NoisyTables, report: Callable[[], None]) -> None:
        """All of a group at once if that fits, else its halves one after the other."""
        if not group:
            return
        support = self._support([*self.inside, *group], noisy) if self._refused < REFUSALS else None
        if support is not None:
            self.inside += group
            self._refused = 0
            self._fit(support, noisy)
            report()
        elif len(group) == 1 or self._refused >= REFUSALS:
            self.outside += group
            self._refused += 1
            report()
        else:
            half = len(group) // 2
            self._grow(group[:half], noisy, report)
            self._grow(group[half:], noisy, report)

    def _fit(self, support: SupportTree, noisy: NoisyTables) -> None:
        mine = noisy.only(self.inside)
        anew = len(self.inside) >= AGAIN * self._chosen_at
        fit = fit_noisy(support, mine, None if anew else self.steps)
        if anew:
            self.steps, self._chosen_at = fit.tours, len(self.inside)
        self.backbone = Backbone(tuple(self.inside), fit, not self.outside)

    def _support(self, cliques: list[Clique], noisy: NoisyTables) -> SupportTree | None:
        """The tree of these cliques and its possible cells, if there are not too many."""
        tree = JunctionTree.of(self.domain, cliques)
        if tree.cells <= SMALL or self.backbone is None:
            return SupportTree.confined(tree, [], self.cells) if tree.cells <= self.cells else None
        expected = {c: self.backbone.marginal(c) for c in cliques}
        for level in range(self._level, len(LEVELS)):
            masks = []
            for c, q in expected.items():
                noise = 1 / np.sqrt(noisy.weight(c))
                kept = (q >= LEVELS[level] * noise) | (noisy.values[c] >= SEEN * noise)
                masks.append((self.domain.axes(c), kept))
            found = SupportTree.confined(tree, masks, self.cells)
            if found is not None:
                lost = found.uncovered(CliqueVector.from_tables(self.domain, expected))
                self._level = level if lost <= LOST else self._level
                return found if lost <= LOST else None
        return None

    def tables(self, cliques: Sequence[Clique], noisy: NoisyTables) -> dict[Clique, Buffer]:
        """One distribution per clique: the model's own, or the model's moved towards its data."""
        assert self.backbone is not None
        inside = set(self.inside)
        found = {}
        for c in cliques:
            expected = self.backbone.marginal(c)
            if c not in inside and c in noisy.values.layout.index:
                stiffness = noisy.weight(c) / noisy.strength
                expected = _moved(expected, noisy.values[c], stiffness, self.steps)
            found[c] = expected
        return found


def _moved(start: Buffer, wanted: Buffer, stiffness: float, steps: int) -> Buffer:
    """Steps argmin over q of stiffness / 2 ||q - wanted||^2 + KL(q || the q before), a single table's Prox-PGM.

    log q + stiffness q = log (q before) + stiffness wanted - zeta, solved by Wright's omega; zeta makes q sum to one.
    """
    q = (1 - SPREAD) * start + SPREAD / start.size
    for _ in range(steps):
        a = np.log(q) + stiffness * wanted + np.log(stiffness)
        zeta = 0.0
        for _ in range(50):
            q = np.maximum(wrightomega(a - zeta) / stiffness, 1e-300)
            excess = float(q.sum()) - 1.0
            if abs(excess) < 1e-12:
                break
            zeta += min(max(excess / float((q / (1 + stiffness * q)).sum()), -1.0), 1.0)
        q /= q.sum()
    return q
