"""Exact marginals of a calibrated junction tree, in a clique or out of it, for many attribute sets.

The asked attributes are passed through the tree as messages: P(r | S') = sum over the cells of a clique between S and S' of
P(r | S) P(cell | S'), where r are the asked attributes met so far. A separator lists only its possible cells, so that a step
is a product with a sparse matrix, and the messages of one question serve the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from consilience.domain import Buffer, Clique, CliqueVector
from consilience.kernels.proportional import add_up
from consilience.memory import check_capacity
from consilience.regions.junction_tree import JunctionTree
from consilience.tree.fit import TreeFit
from consilience.tree.support import Members

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


class TreeAnswers:
    """Marginals of the distribution that a fitted tree stands for. Its messages are kept for later questions."""

    def __init__(self, fit: TreeFit) -> None:
        self.fit, self.support = fit, fit.support
        self.sizes = self.support.tree.domain.shape
        self.near = self.support.tree.rooted.neighbours
        self._messages: dict[tuple[int, int, Members], Buffer] = {}
        self._stored = 0
        self._behind: dict[tuple[int, int], frozenset[int]] = {}
        self._summed: dict[tuple[int, Members], Buffer] = {}

    def marginal(self, attributes: Iterable[str]) -> Buffer:
        """A distribution over these attributes, axes in domain order."""
        domain = self.support.tree.domain
        wanted = domain.axes(domain.clique(attributes))
        home = self.support.home_if_any(wanted)
        if home is not None:
            return self._sum(home, wanted).copy()
        needed = self.price(attributes)
        check_capacity(f"the exact marginal of {len(wanted)} attributes", 3 * 8 * needed, None)
        root = self._root(wanted)
        table = self._collect(root, -1, frozenset(wanted))
        have = self._order_at(root, -1, frozenset(wanted))
        shape = [self.sizes[a] for a in have]
        found = table.reshape(shape).transpose([have.index(a) for a in wanted])
        return np.ascontiguousarray(found / found.sum())

    def price(self, attributes: Iterable[str]) -> int:
        """Numbers in the largest message that a question needs; nothing is allocated."""
        domain = self.support.tree.domain
        wanted = domain.axes(domain.clique(attributes))
        if self.support.holders.of(wanted):
            return prod(self.sizes[a] for a in wanted)
        return self._price(self._root(wanted), -1, frozenset(wanted))

    def _price(self, c: int, toward: int, wanted: frozenset[int]) -> int:
        here = prod(self.sizes[a] for a in wanted) * self._columns(c, toward)[0]
        below = (self._price(d, c, behind) for d, behind in self._branches(c, toward, wanted))
        return max(here, *below, 0)

    def _sum(self, clique: int, keep: Members) -> Buffer:
        key = (clique, keep)
        if key not in self._summed:
            self._summed[key] = self.support.summed(clique, self.fit.tables[clique], keep)
        return self._summed[key]

    # -- messages ------------------------------------------------------------------------------------

    def _root(self, wanted: Members) -> int:
        """Where branches meet: the smallest clique that holds the wanted attribute with the largest table of its own."""
        last = max(wanted, key=lambda a: (self.sizes[a], a))
        return self.support.home((last,))

    def _branches(
        self, c: int, toward: int, wanted: frozenset[int]
    ) -> list[tuple[int, frozenset[int]]]:
        """Neighbours away from `toward` that wanted attributes hide behind, and which."""
        mine = set(self.support.members[c])
        found = []
        for d in self.near[c]:
            behind = (wanted & self._beyond(c, d)) - mine if d != toward else frozenset()
            if behind:
                found.append((d, behind))
        return found

    def _beyond(self, c: int, d: int) -> frozenset[int]:
        """All attributes of the part of the tree that lies behind d as seen from c."""
        key = (c, d)
        if key not in self._behind:
            parts = [self._beyond(d, e) for e in self.near[d] if e != c]
            self._behind[key] = frozenset(self.support.members[d]).union(*parts)
        return self._behind[key]

    def _order_at(self, c: int, toward: int, wanted: frozenset[int]) -> Members:
        """The order of the axes that `_collect` gives: branches first, then the clique's own."""
        order: list[int] = []
        for d, behind in self._branches(c, toward, wanted):
            order += self._order_at(d, c, behind)
        mine = self._own(c, toward, wanted)
        return (*order, *mine)

    def _own(self, c: int, toward: int, wanted: frozenset[int]) -> Members:
        beyond = set(self.support.members[toward]) if toward >= 0 else set()
        return tuple(a for a in self.support.members[c] if a in wanted and a not in beyond)

    def _collect(self, c: int, toward: int, wanted: frozenset[int]) -> Buffer:
        """P(wanted | S): a row per cell of the wanted attributes behind c, a column per cell of the separator to `toward`.

        At the root (toward = -1) there is one column: P(wanted).
        """
        key = (c, toward, tuple(sorted(wanted)))
        if toward >= 0 and key in self._messages:
            return self._messages[key]
        branches = self._branches(c, toward, wanted)
        own = self._own(c, toward, wanted)
        width, to = self._columns(c, toward)
        n_own = prod(self.sizes[a] for a in own)
        column = self.support.located(c, own) * width + to
        parts = [(self._collect(d, c, behind), self._columns(c, d)[1]) for d, behind in branches]
        values = self.fit.tables[c]
        made = (
            _meeting(parts, values, column, n_own * width)
            if parts
            else add_up(column, values, n_own * width)[None]
        )
        found = made.reshape(-1, width)
        if toward >= 0:
            mass = add_up(to, values, width)
            found = np.divide(found, mass, out=np.zeros_like(found), where=mass > 0)
            self._keep(key, found)
        return found

    def _keep(self, key: tuple[int, int, Members], found: Buffer) -> None:
        """Keep a message for other questions; past KEPT numbers the store starts anew."""
        if self._stored + found.size > KEPT:
            self._messages.clear()
            self._stored = 0
        self._messages[key] = found
        self._stored += found.size

    def _columns(self, c: int, toward: int) -> tuple[int, NDArray[np.int64]]:
        """How many cells the separator has, and which one each cell of c belongs to."""
        support = self.support
        if toward < 0:
            return 1, np.zeros(len(support.cells[c]), np.int64)
        if support.tree.rooted.up[c] == toward:
            return support.widths[c], support.own[c].astype(np.int64)
        return support.widths[toward], support.above[toward].astype(np.int64)


Branch = tuple[Buffer, NDArray[np.int64]]
"""A message from a neighbour, a column per cell of the separator; and the column of each cell of the clique."""


def _meeting(
    branches: list[Branch], values: Buffer, column: NDArray[np.int64], width: int
) -> Buffer:
    """Branches meet in a clique: sum over its cells of the product of the branches' messages."""
    order = sorted(range(len(branches)), key=lambda k: len(branches[k][0]))
    (short, at), *others = (branches[k] for k in order)
    wide = len(values) * prod(len(message) for message, _ in others[:-1])
    step = max(1, CHUNK // wide) if others else len(short)
    parts = [
        _contracted([(short[lo : lo + step], at), *others], values, column, width)
        for lo in range(0, len(short), step)
    ]
    found = np.concatenate(parts).reshape(*(len(branches[k][0]) for k in order), width)
    back = [order.index(k) for k in range(len(order))]
    return found.transpose(*back, len(order)).reshape(-1, width)


def _contracted(
    branches: list[Branch], values: Buffer, column: NDArray[np.int64], width: int
) -> Buffer:
    """The same in the order given. Cells that differ only in what is summed over are joined before the last branch, the
    longest, is multiplied in: block by block, a block per column.
    """
    *before, (message, at) = branches
    seps = message.shape[1]
    if not before:
        step = sparse.csr_array((values, (at, column)), shape=(seps, width))
        return np.asarray(message @ step)
    keys, place = np.unique(column * seps + at, return_inverse=True)
    made = _contracted(before, values, place, len(keys))
    found = np.empty((width, len(made), len(message)))
    ends = np.searchsorted(keys, seps * np.arange(width + 1))
    for c in range(width):
        block = slice(ends[c], ends[c + 1])
        np.matmul(made[:, block], message[:, keys[block] % seps].T, out=found[c])
    return np.moveaxis(found, 0, -1).reshape(-1, width)
