"""Backbone: an exact model of the most informative part of a locally consistent one, kept for its global information.

It starts from the maximum-mutual-information spanning tree, which connects whatever the model connects, and takes in the
in-model cliques that it predicts worst for as long as its junction tree fits the budget. p_B is then the maximum-entropy
distribution with the pseudo-marginals of the chosen cliques. With nothing chosen this is the paper's local method, with
everything Private-PGM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, CliqueVector, maximal
from consilience.inference.exact_answers import TreeAnswers
from consilience.inference.known import Known
from consilience.inference.spanning import mutual_information, spanning_tree
from consilience.inference.support import Members, SupportTree, possible, possible_cells
from consilience.inference.tree_fit import TreeFit, fit_tree, tour_cells
from consilience.memory import parse_bytes
from consilience.regions.junction_tree import JunctionTree
from consilience.regions.region_graph import Kind

if TYPE_CHECKING:
    from consilience.inference.model import Model

DEFAULT_MEMORY = "64 MB"
"""For the possible cells of the tree and their index maps; its tables in full may take twice this."""
CELL_BYTES = 32
"""Of a possible cell: its probability, its codes, and a map entry per separator and target that it belongs to."""
FULL_CELLS = 8
"""Cells of the full tables per possible cell of the budget: sampling works on full tables."""
ROUNDS = 8
"""Cliques are chosen in at most this many rounds, with a rough fit between them."""
STALE = 0.5
"""A round ends at cliques that are predicted this much better than the worst one: they may look different by then."""
REFUSALS = 32
"""A round also ends after this many cliques in a row that do not fit."""
FINISH = 32
"""Steps that the last fit counts as, for those who watch."""
ROUGH_TOURS = 8
LEAST_TOURS, MOST_TOURS = 15, 200
MOST_CELLS = 2.5e8
"""Cells that the last fit may pass over: a second or two. A limit on work, not on time, so that results repeat."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False, repr=False)
class Backbone:
    """p_B, a distribution over the whole domain: the product of the tree's tables over those of its separators.

    `cliques` are the in-model cliques that it was fitted to. `whole` says whether those are all there are, so that p_B is
    the exact model. `missed` are the others, and how far p_B is from the model there in L1, the worst first.
    """

    cliques: tuple[Clique, ...]
    fit: TreeFit
    whole: bool
    missed: tuple[tuple[Clique, float], ...] = ()

    @property
    def tree(self) -> JunctionTree:
        return self.fit.support.tree

    @property
    def misfit(self) -> float:
        """The largest L1 distance between the model's table of a chosen clique and p_B's."""
        return self.fit.misfit

    @cached_property
    def beliefs(self) -> CliqueVector:
        """One calibrated table per clique of the tree, in full."""
        return self.fit.beliefs()

    def marginal(self, attributes: Iterable[str]) -> Buffer:
        """The exact marginal of p_B on any attributes, a distribution; axes in domain order."""
        return self.answers.marginal(attributes)

    @cached_property
    def answers(self) -> TreeAnswers:
        return TreeAnswers(self.fit)

    def __repr__(self) -> str:
        part = "every clique" if self.whole else f"{len(self.cliques)} cliques"
        cells = f"{self.fit.support.size:,} of {self.tree.cells:,} cells possible"
        return f"Backbone({part}, {cells}, misfit {self.misfit:.1g})"


def build_backbone(
    model: Model,
    memory: str | int | float = DEFAULT_MEMORY,
    progress: Progress | None = None,
    *,
    focus: Iterable[str] = (),
) -> Backbone:
    """The backbone of a model. `progress` sees (steps done, steps at most); focus: see `backbone_of`."""
    return backbone_of(model.known, memory, progress, focus=focus)


def backbone_of(
    known: Known,
    memory: str | int | float = DEFAULT_MEMORY,
    progress: Progress | None = None,
    *,
    focus: Iterable[str] = (),
    start: Backbone | None = None,
) -> Backbone:
    """The backbone of a model's tables.

    focus: attributes of a query that this backbone is for; cliques that touch them come first.
    start: a backbone of an earlier model, whose choice and potentials are kept as far as they still serve.
    """
    growth = _Growth(known, parse_bytes(memory) // CELL_BYTES, frozenset(focus))
    report = progress or (lambda done, most: None)

    def finishing(done: int, most: int) -> None:
        report(ROUNDS + FINISH * done // most, ROUNDS + FINISH)

    theta = None if start is None else start.fit.theta
    whole = growth.support(list(known.cliques), always=known.graph.kind is Kind.JUNCTION_TREE)
    if whole is not None:
        fit = growth.fit(whole, list(known.cliques), theta, last=True, progress=finishing)
        report(ROUNDS + FINISH, ROUNDS + FINISH)
        return Backbone(known.cliques, fit, True)
    chosen = growth.first(start)
    support = growth.support(chosen, always=True)
    assert support is not None
    for k in range(ROUNDS):
        report(k, ROUNDS + FINISH)
        fit = growth.fit(support, chosen, theta, last=False)
        theta = fit.theta
        more, support = growth.grown(chosen, fit, last=k == ROUNDS - 1)
        if len(more) == len(chosen):
            break
        chosen = more
    fit = growth.fit(support, chosen, theta, last=True, progress=finishing)
    report(ROUNDS + FINISH, ROUNDS + FINISH)
    return Backbone(tuple(chosen), fit, False, growth.missed(chosen, fit))


class _Growth:
    """What the choice of a backbone looks at: the model's tables and the budget in possible cells."""

    def __init__(self, known: Known, cells: int, focus: frozenset[str]) -> None:
        self.known, self.domain, self.cells, self.focus = known, known.domain, cells, focus
        self.refused: set[Clique] = set()
        self.tables: dict[Clique, Buffer] = {}
        self.masks: dict[Clique, NDArray[np.bool_]] = {}
        self.counts: dict[tuple[Members, tuple[Members, ...]], int | None] = {}
        self.zeros = True

    def table(self, clique: Clique) -> Buffer:
        if clique not in self.tables:
            self.tables[clique] = self.known.table(clique)
        return self.tables[clique]

    def targets(self, chosen: Sequence[Clique]) -> CliqueVector:
        return CliqueVector.from_tables(self.domain, {c: self.table(c) for c in chosen})

    def first(self, start: Backbone | None) -> list[Clique]:
        """The heaviest tree of pairs, or an earlier backbone's cliques where they connect as much."""
        pairs = self.known.pairs
        if start is not None:
            kept = [c for c in start.cliques if self.known.holds(c)]
            held = {p for c in kept for p in combinations(c, 2)}
            linked = [len(spanning_tree(self.domain, [(p, 1.0) for p in s])) for s in (held, pairs)]
            if linked[0] == linked[1]:
                return kept
        tree = spanning_tree(self.domain, [(p, mutual_information(self.table(p))) for p in pairs])
        return [*tree, *(c for c in self.known.cliques if len(c) == 1)]

    def support(self, chosen: list[Clique], *, always: bool = False) -> SupportTree | None:
        """The tree of the chosen cliques and its possible cells, if there are not too many."""
        tree = JunctionTree.of(self.domain, chosen)
        if tree.cells > FULL_CELLS * self.cells and not always:
            return None
        most = tree.cells if always else self.cells
        return SupportTree.of(tree, self.targets(chosen), most, zeros=self.zeros)

    def fits(self, chosen: list[Clique]) -> bool:
        """Whether the tree of the chosen cliques has few enough possible cells, counted clique by clique."""
        tree = JunctionTree.of(self.domain, chosen)
        if tree.cells > (FULL_CELLS if self.zeros else 1) * self.cells:
            return False
        left = self.cells
        for bag in tree.cliques if self.zeros else ():
            count = self._possible(bag, [c for c in chosen if set(c).issubset(bag)])
            if count is None or count > left:
                return False
            left -= count
        return True

    def _possible(self, bag: Clique, inside: list[Clique]) -> int | None:
        """How many cells of a clique of the tree are possible; None if more than the budget."""
        members = self.domain.axes(bag)
        key = (members, tuple(self.domain.axes(c) for c in inside))
        if key not in self.counts:
            for c in inside:
                if c not in self.masks:
                    self.masks[c] = possible(self.table(c))
            masks = list(zip(key[1], (self.masks[c] for c in inside), strict=True))
            cells = possible_cells(members, self.domain.shape, masks, self.cells)
            self.counts[key] = None if cells is None else len(cells)
        return self.counts[key]

    def grown(
        self, chosen: list[Clique], fit: TreeFit, last: bool
    ) -> tuple[list[Clique], SupportTree]:
        """The chosen cliques, those that the tree holds anyway, and those predicted worst that still fit; and their tree."""
        answers = TreeAnswers(fit)
        held = [frozenset(c) for c in fit.support.tree.cliques]
        known = set(chosen)
        out = [c for c in self.known.cliques if c not in known and c not in self.refused]
        free = {c for c in out if any(h.issuperset(c) for h in held)}
        score = {c: self._missed(c, answers) for c in out if c not in free}
        ranked = sorted(score, key=lambda c: (-score[c], self.domain.axes(c)))
        more, refusals = list(maximal(self.domain, [*chosen, *free])), 0
        for c in ranked:
            if (score[c] < STALE * score[ranked[0]] and not last) or refusals > REFUSALS:
                break
            if self.fits([*more, c]):
                more, refusals = [*more, c], 0
            else:
                self.refused.add(c)
                refusals += 1
        if len(more) == len(chosen):
            return chosen, fit.support
        support = self.support(more)
        if support is None and self.zeros:
            # The zeros of what was added contradict the rest: from here on every cell counts as possible.
            self.zeros = False
            self.refused.clear()
            return self.grown(chosen, fit, last)
        return (more, support) if support is not None else (chosen, fit.support)

    def missed(self, chosen: list[Clique], fit: TreeFit) -> tuple[tuple[Clique, float], ...]:
        """In-model cliques that were not chosen, and how far the backbone is from them; the worst first."""
        answers, known = TreeAnswers(fit), set(chosen)
        score = {c: self._missed(c, answers) for c in self.known.cliques if c not in known}
        return tuple(sorted(score.items(), key=lambda s: (-s[1], self.domain.axes(s[0]))))

    def _missed(self, clique: Clique, answers: TreeAnswers) -> float:
        """How far the backbone is from the model's table, in L1; cliques that touch the query in focus count more."""
        missed = float(np.abs(self.table(clique) - answers.marginal(clique)).sum())
        return missed * 4.0 ** len(self.focus.intersection(clique))

    def fit(
        self,
        support: SupportTree,
        chosen: Sequence[Clique],
        theta: CliqueVector | None,
        *,
        last: bool,
        progress: Progress | None = None,
    ) -> TreeFit:
        tours = ROUGH_TOURS
        if last:
            affordable = int(MOST_CELLS / tour_cells(support, len(chosen)))
            tours = min(max(affordable, LEAST_TOURS), MOST_TOURS)
        targets = self.targets(chosen)
        return fit_tree(support, targets, theta=theta, tours=tours, progress=progress)
