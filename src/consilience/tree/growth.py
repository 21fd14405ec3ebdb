"""The two ways in which an exact model grows: out of a model's tables, and along with a growing list of noisy tables.

A backbone is an exact model of the most informative part of a locally consistent one, kept for its global information. It starts
from the maximum-mutual-information spanning tree, which connects whatever the model connects, and takes in the in-model cliques
that it predicts worst for as long as its junction tree fits the budget. p_B is then the maximum-entropy distribution with the
pseudo-marginals of the chosen cliques. With nothing chosen this is the paper's local method, with everything Private-PGM.

A growing model is the exact model of noisy tables that come one after another. What the model so far expects decides which cells
are possible: those where it expects more than a part of the noise, and those that were measured far above it. A table is taken in
as long as the possible cells of the tree with it stay within a limit. The others are read next to the model: each starts from the
model's own marginal and takes the same proximal steps towards its data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import wrightomega

from consilience.domain import Buffer, Clique, CliqueVector, Domain, maximal
from consilience.memory import parse_bytes
from consilience.progress import Progress, Step, quiet
from consilience.regions.junction_tree import JunctionTree
from consilience.regions.pseudo_marginals import PseudoMarginals
from consilience.regions.region_graph import Kind
from consilience.tree.answers import Backbone, TreeAnswers
from consilience.tree.fit import NoisyTables, TreeFit, fit_noisy, fit_tree, pass_cells
from consilience.tree.support import Members, SupportTree, possible, possible_cells

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
ROUGH_PASSES = 8
LEAST_PASSES, MOST_PASSES = 15, 200
FIT_CELLS = 2.5e8
"""Cells that the last fit may pass over: a second or two. A limit on work, not on time, so that results repeat."""

MOST_CELLS = 500_000
"""Possible cells of a growing tree: a refit passes over them some hundred times."""
SMALL = 30_000
"""A growing tree of no more cells than this is taken in full."""
LEVELS, ROUGH_LEVEL = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0), 2
"""Parts of the noise below which an expected cell is left out; the next one where the last leaves too many cells. Models that
grow round by round begin at the third."""
SEEN = 4.0
"""Standard deviations above zero that make a measured cell possible whatever was expected."""
LOST = 0.1
"""Mass of a table that may be left out at most."""
TABLE_REFUSALS = 3
"""After this many noisy tables in a row that do not fit, no more are tried."""
AGAIN = 1.25
"""The number of proximal steps is found anew when there are this many times as many tables."""
SPREAD = 1e-3
"""Part of a table read beside the model that is spread evenly first, so that cells can come back."""


# -- out of a model's tables -------------------------------------------------------------------------


def backbone_of(
    known: PseudoMarginals,
    memory: str | int | float = DEFAULT_MEMORY,
    progress: Progress = quiet,
    *,
    start: Backbone | None = None,
    work: float = FIT_CELLS,
) -> Backbone:
    """The backbone of a model's tables; `start` is that of an earlier model, whose choice and potentials are kept as far as
    they still serve. work: how many cells the last fit may pass over.
    """
    growth = _Growth(known, parse_bytes(memory) // CELL_BYTES, work)

    def report(done: int) -> None:
        progress(Step("backbone", done, ROUNDS + FINISH))

    def finishing(step: Step) -> None:
        report(ROUNDS + FINISH * step.done // (step.total or 1))

    theta = None if start is None else start.fit.theta
    whole = growth.support(list(known.cliques), always=known.graph.kind is Kind.JUNCTION_TREE)
    if whole is not None:
        fit = growth.fit(whole, list(known.cliques), theta, finishing)
        report(ROUNDS + FINISH)
        return Backbone(tuple(known.cliques), fit, True)
    chosen = growth.first(start)
    support = growth.support(chosen, always=True)
    assert support is not None
    for k in range(ROUNDS):
        report(k)
        fit = growth.rough_fit(support, chosen, theta)
        theta = fit.theta
        more, support = growth.grown(chosen, fit, last=k == ROUNDS - 1)
        if len(more) == len(chosen):
            break
        chosen = more
    fit = growth.fit(support, chosen, theta, finishing)
    report(ROUNDS + FINISH)
    answers = TreeAnswers(fit)
    return Backbone(tuple(chosen), fit, False, growth.missed(chosen, answers), answers)


class _Growth:
    """What the choice of a backbone looks at: the model's tables and the budget in possible cells."""

    def __init__(self, known: PseudoMarginals, cells: int, work: float) -> None:
        self.known, self.domain, self.cells, self.work = known, known.domain, cells, work
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
            inside = {p for c in kept for p in combinations(c, 2)}
            linked = [
                len(spanning_tree(self.domain, [(p, 1.0) for p in s])) for s in (inside, pairs)
            ]
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
        answers, taken = TreeAnswers(fit), set(chosen)
        out = [c for c in self.known.cliques if c not in taken and c not in self.refused]
        free = [c for c in out if fit.support.holders.of(self.domain.axes(c))]
        # A set that is asked, never walked through: its order changes from process to process.
        held = set(free)
        score = {c: self._distance(c, answers) for c in out if c not in held}
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

    def missed(
        self, chosen: list[Clique], answers: TreeAnswers
    ) -> tuple[tuple[Clique, float], ...]:
        """In-model cliques that were not chosen, and how far the backbone is from them; the worst first."""
        taken = set(chosen)
        score = {c: self._distance(c, answers) for c in self.known.cliques if c not in taken}
        return tuple(sorted(score.items(), key=lambda s: (-s[1], self.domain.axes(s[0]))))

    def _distance(self, clique: Clique, answers: TreeAnswers) -> float:
        """How far the backbone is from the model's table, in L1; to nine digits, so that a last bit decides no tie."""
        return round(float(np.abs(self.table(clique) - answers.marginal(clique)).sum()), 9)

    def rough_fit(
        self, support: SupportTree, chosen: Sequence[Clique], theta: CliqueVector | None
    ) -> TreeFit:
        return fit_tree(support, self.targets(chosen), theta=theta, passes=ROUGH_PASSES)

    def fit(
        self,
        support: SupportTree,
        chosen: Sequence[Clique],
        theta: CliqueVector | None,
        progress: Progress,
    ) -> TreeFit:
        """As close as the work allows."""
        affordable = int(self.work / pass_cells(support, len(chosen)))
        passes = min(max(affordable, LEAST_PASSES), MOST_PASSES)
        return fit_tree(
            support, self.targets(chosen), theta=theta, passes=passes, progress=progress
        )


def mutual_information(table: Buffer) -> float:
    """I(a; b) in nats of a distribution over two attributes."""
    independent = np.outer(table.sum(axis=1), table.sum(axis=0))
    live = table > 0
    return max(0.0, float((table[live] * np.log(table[live] / independent[live])).sum()))


def spanning_tree(domain: Domain, weights: Iterable[tuple[Clique, float]]) -> tuple[Clique, ...]:
    """Kruskal: the heaviest pairs that close no circle. Connects whatever the pairs connect; ties go to domain order."""
    leader = {a: a for a in domain}

    def find(a: str) -> str:
        while leader[a] != a:
            leader[a] = leader[leader[a]]
            a = leader[a]
        return a

    kept = []
    for pair, _ in sorted(weights, key=lambda w: (-w[1], domain.axes(w[0]))):
        ends = find(pair[0]), find(pair[1])
        if ends[0] != ends[1]:
            leader[ends[0]] = ends[1]
            kept.append(pair)
    return tuple(sorted(kept, key=domain.axes))


# -- along with noisy tables -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GrowingModel:
    """`backbone` is the exact model of the tables in `inside` (None before the first); `outside` are tables that did not fit.

    `steps` is the number of proximal steps of the last fit, chosen when there were `chosen_at` tables. `level` is the entry of
    LEVELS in use, `refused` the number of tables in a row that did not fit; `fixed` steps are not chosen at all.
    """

    domain: Domain
    cells: int = MOST_CELLS
    inside: tuple[Clique, ...] = ()
    outside: tuple[Clique, ...] = ()
    backbone: Backbone | None = None
    steps: int = 0
    chosen_at: int = 0
    level: int = 0
    refused: int = 0
    fixed: int | None = None

    def take(
        self, cliques: Sequence[Clique], noisy: NoisyTables, progress: Progress = quiet
    ) -> GrowingModel:
        """The model of the tables of these cliques, those taken before among them. This one stays as it is."""
        seen = {*self.inside, *self.outside}
        new = [c for c in dict.fromkeys(cliques) if c not in seen]

        def report(model: GrowingModel) -> None:
            placed = len(model.inside) + len(model.outside) - len(seen)
            progress(Step("growing the exact model", placed, len(new)))

        return self._grown(new, noisy, report)

    @classmethod
    def refitted(cls, backbone: Backbone, noisy: NoisyTables) -> GrowingModel:
        """The tree, the cells and the number of steps of a backbone, fitted to other values of the same tables."""
        inside = backbone.cliques
        fit = fit_noisy(backbone.fit.support, noisy.only(inside), backbone.fit.iterations)
        outside = tuple(c for c in noisy.values.cliques if c not in set(inside))
        again = Backbone(inside, fit, not outside)
        steps, taken = fit.iterations, len(inside)
        return cls(noisy.values.domain, MOST_CELLS, inside, outside, again, steps, taken)

    def _grown(
        self, group: list[Clique], noisy: NoisyTables, report: Callable[[GrowingModel], None]
    ) -> GrowingModel:
        """With all of a group at once if that fits, else with its halves one after the other."""
        if not group:
            return self
        closed = self.refused >= TABLE_REFUSALS
        found = None if closed else self._support([*self.inside, *group], noisy)
        if found is None and len(group) > 1 and not closed:
            half = len(group) // 2
            first = self._grown(group[:half], noisy, report)
            return first._grown(group[half:], noisy, report)
        if found is None:
            outside = (*self.outside, *group)
            grown = replace(self, outside=outside, refused=self.refused + 1)._partial()
        else:
            support, level = found
            taken = replace(self, inside=(*self.inside, *group), level=level, refused=0)
            grown = taken._fitted(support, noisy)
        report(grown)
        return grown

    def _partial(self) -> GrowingModel:
        """The backbone no longer says that it is the whole model; it keeps what it was asked where it said so already."""
        if self.backbone is None or not self.backbone.whole:
            return self
        return replace(self, backbone=replace(self.backbone, whole=False))

    def _fitted(self, support: SupportTree, noisy: NoisyTables) -> GrowingModel:
        anew = len(self.inside) >= AGAIN * self.chosen_at
        steps = None if anew else self.steps
        fit = fit_noisy(support, noisy.only(self.inside), self.fixed or steps)
        backbone = Backbone(self.inside, fit, not self.outside)
        if not anew:
            return replace(self, backbone=backbone)
        return replace(self, backbone=backbone, steps=fit.iterations, chosen_at=len(self.inside))

    def _support(self, cliques: list[Clique], noisy: NoisyTables) -> tuple[SupportTree, int] | None:
        """The tree of these cliques with its possible cells, and the level that keeps them few enough; None if none does."""
        tree = JunctionTree.of(self.domain, cliques)
        if tree.cells <= SMALL or self.backbone is None:
            full = SupportTree.confined(tree, [], self.cells) if tree.cells <= self.cells else None
            return None if full is None else (full, self.level)
        expected = {c: self.backbone.marginal(c) for c in cliques}
        for level in range(self.level, len(LEVELS)):
            masks = []
            for c, q in expected.items():
                noise = 1 / np.sqrt(noisy.weight(c))
                kept = (q >= LEVELS[level] * noise) | (noisy.values[c] >= SEEN * noise)
                masks.append((self.domain.axes(c), kept))
            found = SupportTree.confined(tree, masks, self.cells)
            if found is not None:
                lost = found.uncovered(CliqueVector.from_tables(self.domain, expected))
                return (found, level) if lost <= LOST else None
        return None

    def tables(self, cliques: Sequence[Clique], noisy: NoisyTables) -> dict[Clique, Buffer]:
        """One distribution per clique: the model's own, or one that starts there and takes the same steps towards its data."""
        assert self.backbone is not None
        inside = set(self.inside)
        found = {}
        for c in cliques:
            expected = self.backbone.marginal(c)
            if c not in inside and c in noisy.values.layout.index:
                stiffness = noisy.weight(c) / noisy.strength
                expected = proximal_steps(expected, noisy.values[c], stiffness, self.steps)
            found[c] = expected
        return found


def proximal_steps(start: Buffer, wanted: Buffer, stiffness: float, steps: int) -> Buffer:
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
