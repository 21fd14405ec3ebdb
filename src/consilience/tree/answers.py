"""Exact marginals of a calibrated junction tree, in a clique or out of it, for many attribute sets.

The asked attributes are passed through the tree as messages: P(r | S') = sum over the cells of a clique between S and S' of
P(r | S) P(cell | S'), where r are the asked attributes met so far. A separator lists only its possible cells. What a clique knows
about separators around it and attributes of its own is summed once, a `Joint`; it and the messages serve other questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, CliqueVector
from consilience.kernels.messages import add_up, meet, pairs, sorted_by
from consilience.memory import check_capacity
from consilience.regions.junction_tree import JunctionTree
from consilience.tree.fit import TreeFit
from consilience.tree.support import Members

Ints = NDArray[np.int64]
Groups = tuple[Ints, NDArray[np.int32]]
"""The cells of a clique by the cell of a separator that they belong to, as `sorted_by` gives them."""
Wanted = frozenset[int]
KEPT = 50_000_000
"""Numbers that are kept for the next question."""
CHUNK = 1 << 22
"""Numbers alive at a time where branches of the tree meet."""


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
    asked: TreeAnswers | None = None
    """What it was asked while it was made, so that it need not be summed again."""

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
        return self.asked or TreeAnswers(self.fit)

    def __repr__(self) -> str:
        part = "every clique" if self.whole else f"{len(self.cliques)} cliques"
        cells = f"{self.fit.support.size:,} of {self.tree.cells:,} cells possible"
        return f"Backbone({part}, {cells}, misfit {self.misfit:.1g})"


JointKey = tuple[int, int, Members, Members]
"""A clique, the neighbour that it faces, the branches that meet there, and the attributes that are its own."""


@dataclass(frozen=True, eq=False)
class JointShape:
    """Which cells of a clique are summed to which pair: all of a `Joint` but its numbers."""

    place: Ints
    count: int
    levels: tuple[tuple[Ints, Ints], ...]
    width: int

    @classmethod
    def of(cls, column: Ints, width: int, branches: Sequence[Groups]) -> JointShape:
        levels: list[tuple[Ints, Ints]] = []
        place, count = column, width
        for ptr, order in reversed(branches):
            place, group, own = pairs(ptr, order, place, count)
            levels.insert(0, (group, own))
            count = len(group)
        return cls(place, count, tuple(levels), width)

    def filled(self, values: Buffer) -> Joint:
        """With the numbers of the clique's cells."""
        return Joint(add_up(self.place, values, self.count), self.levels, self.width)


@dataclass(frozen=True, eq=False)
class Joint:
    """A clique's cells summed to columns and to the separators of some branches, as pairs within pairs.

    The first level's pairs are (cell of the first separator, pair of the second level), and so on; those of the last level are
    (cell of the last separator, column). `values` has an entry per pair of the first level.
    """

    values: Buffer
    levels: tuple[tuple[Ints, Ints], ...]
    width: int

    @property
    def size(self) -> int:
        return len(self.values) + 2 * sum(len(group) for group, _ in self.levels)

    def met(self, messages: Sequence[Buffer]) -> Buffer:
        """The sum over the cells of the product of the branches' messages: a row per column, an entry per combination of
        theirs. A message has a row per cell of its separator.
        """
        if not messages:
            return self.values[:, None]
        first, *others = messages
        rows = first.shape[1]
        wide = len(self.values) * prod(m.shape[1] for m in others[:-1])
        step = max(1, CHUNK // wide) if others else rows
        parts = [
            self._met([np.ascontiguousarray(first[:, lo : lo + step]), *others])
            for lo in range(0, rows, step)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _met(self, messages: Sequence[Buffer]) -> Buffer:
        made = self.values[:, None]
        widths = [*(len(group) for group, _ in self.levels[1:]), self.width]
        for (group, own), message, width in zip(self.levels, messages, widths, strict=True):
            made = meet(made, group, own, message, width)
        return made


class TreeAnswers:
    """Marginals of the distribution that a fitted tree stands for. What was summed is kept for later questions."""

    def __init__(self, fit: TreeFit, like: TreeAnswers | None = None) -> None:
        """like: answers of the same tree with other numbers, with which the index arrays are shared."""
        self.fit, self.support = fit, fit.support
        self.sizes = self.support.tree.domain.shape
        self.near = self.support.tree.rooted.neighbours
        self._messages: dict[tuple[int, int, Wanted], tuple[Buffer, Members]] = {}
        self._found: dict[Members, Buffer] = {}
        self._joints: dict[JointKey, Joint] = {}
        self._stored = 0
        self._behind: dict[tuple[int, int], Wanted] = {} if like is None else like._behind
        self._groups: dict[tuple[int, int], Groups] = {} if like is None else like._groups
        self._shapes: dict[JointKey, JointShape] = {} if like is None else like._shapes
        self._inverses: dict[tuple[int, int], Buffer] = {}

    def marginal(self, attributes: Iterable[str]) -> Buffer:
        """A distribution over these attributes, axes in domain order."""
        domain = self.support.tree.domain
        wanted = domain.axes(domain.clique(attributes))
        if wanted not in self._found:
            found = self._marginal(wanted)
            self._keep(found.size)
            self._found[wanted] = found
        return self._found[wanted].copy()

    def _marginal(self, wanted: Members) -> Buffer:
        home = self.support.home_if_any(wanted)
        if home is not None:
            return self.support.summed(home, self.fit.tables[home], wanted)
        root, needed = self._root(wanted)
        check_capacity(f"the exact marginal of {len(wanted)} attributes", 3 * 8 * needed, None)
        table, have = self._collect(root, -1, frozenset(wanted))
        found = table.reshape([self.sizes[a] for a in have])
        found = found.transpose([have.index(a) for a in wanted])
        return np.ascontiguousarray(found / found.sum())

    def price(self, attributes: Iterable[str]) -> int:
        """Numbers in the largest message that a question needs; nothing is allocated."""
        domain = self.support.tree.domain
        wanted = domain.axes(domain.clique(attributes))
        if self.support.holders.of(wanted):
            return prod(self.sizes[a] for a in wanted)
        return self._root(wanted)[1]

    def _price(self, c: int, toward: int, wanted: Wanted) -> int:
        here = prod(self.sizes[a] for a in wanted) * self._width(c, toward)
        below = (self._price(d, c, behind) for d, behind in self._branches(c, toward, wanted))
        return max(here, *below, 0)

    # -- messages ------------------------------------------------------------------------------------

    def _root(self, wanted: Members) -> tuple[int, int]:
        """Where branches meet, and the price: the smallest clique that holds the wanted attribute with the largest table of its
        own, whose messages serve many questions; where they are large, the clique where they are smallest.
        """
        last = max(wanted, key=lambda a: (self.sizes[a], a))
        asked, root = frozenset(wanted), self.support.home((last,))
        price = self._price(root, -1, asked)
        if price <= CHUNK:
            return root, price
        prices = [self._price(c, -1, asked) for c in range(len(self.near))]
        least = min(prices)
        return (root, price) if price == least else (prices.index(least), least)

    def _branches(self, c: int, toward: int, wanted: Wanted) -> list[tuple[int, Wanted]]:
        """Neighbours away from `toward` that wanted attributes hide behind, and which."""
        found = []
        left = wanted.difference(self.support.members[c])
        for d in self.near[c] if left else ():
            behind = left & self._beyond(c, d) if d != toward else None
            if behind:
                found.append((d, behind))
        return found

    def _beyond(self, c: int, d: int) -> Wanted:
        """All attributes of the part of the tree that lies behind d as seen from c."""
        key = (c, d)
        if key not in self._behind:
            parts = [self._beyond(d, e) for e in self.near[d] if e != c]
            self._behind[key] = frozenset(self.support.members[d]).union(*parts)
        return self._behind[key]

    def _own(self, c: int, toward: int, wanted: Wanted) -> Members:
        beyond = self.support.members[toward] if toward >= 0 else ()
        return tuple(a for a in self.support.members[c] if a in wanted and a not in beyond)

    def _collect(self, c: int, toward: int, wanted: Wanted) -> tuple[Buffer, Members]:
        """P(wanted | S), a row per cell of the separator to `toward`, an entry per cell of the wanted attributes behind c; and
        the order of these. At the root (toward = -1) there is one row: P(wanted).
        """
        key = (c, toward, wanted)
        if key in self._messages:
            return self._messages[key]
        parts = [(d, *self._collect(d, c, b)) for d, b in self._branches(c, toward, wanted)]
        parts.sort(key=lambda part: part[1].shape[1])
        own = self._own(c, toward, wanted)
        joint = self._joint(c, toward, tuple(d for d, _, _ in parts), own)
        found = joint.met([message for _, message, _ in parts])
        order = (*own, *(a for _, _, behind in parts for a in behind))
        if toward < 0:
            return found, order
        found = found.reshape(self._width(c, toward), -1) * self._inverse(c, toward)
        self._keep(found.size)
        self._messages[key] = found, order
        return found, order

    def _joint(self, c: int, toward: int, branches: Members, own: Members) -> Joint:
        """The clique's table by branches, separator to `toward` and own attributes; the latter two make the column."""
        key = (c, toward, branches, own)
        if key not in self._joints:
            if key not in self._shapes:
                self._shapes[key] = self._shape(c, toward, branches, own)
            made = self._shapes[key].filled(self.fit.tables[c])
            self._keep(made.size)
            self._joints[key] = made
        return self._joints[key]

    def _shape(self, c: int, toward: int, branches: Members, own: Members) -> JointShape:
        count = prod(self.sizes[a] for a in own)
        column = self._separator(c, toward) * count if toward >= 0 else 0
        column = self.support.located(c, own) + column
        groups = [self._grouped(c, d) for d in branches]
        return JointShape.of(column, self._width(c, toward) * count, groups)

    def _keep(self, size: int) -> None:
        """Make room for what other questions may use; past KEPT numbers the store starts anew."""
        if self._stored + size > KEPT:
            for kept in (self._found, self._messages, self._joints, self._shapes):
                kept.clear()
            self._stored = 0
        self._stored += size

    def _width(self, c: int, toward: int) -> int:
        """How many cells the separator to `toward` has."""
        if toward < 0:
            return 1
        return self.support.widths[c if self.support.tree.rooted.up[c] == toward else toward]

    def _separator(self, c: int, toward: int) -> Ints:
        """Which cell of the separator to `toward` each cell of c belongs to."""
        support = self.support
        up = support.tree.rooted.up[c] == toward
        return (support.own[c] if up else support.above[toward]).astype(np.int64)

    def _grouped(self, c: int, d: int) -> Groups:
        if (c, d) not in self._groups:
            self._groups[c, d] = sorted_by(self._separator(c, d), self._width(c, d))
        return self._groups[c, d]

    def _inverse(self, c: int, toward: int) -> Buffer:
        """One over the distribution of the separator to `toward`, as a column; zero where that is."""
        key = (c, toward)
        if key not in self._inverses:
            mass = add_up(self._separator(c, toward), self.fit.tables[c], self._width(c, toward))
            found = np.divide(1.0, mass, out=np.zeros_like(mass), where=mass > 0)
            self._inverses[key] = found[:, None]
        return self._inverses[key]
