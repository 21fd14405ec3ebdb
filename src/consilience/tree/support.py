"""Support: the cells of a junction tree's tables that can occur, given the zeros of the marginals that it is fitted to.

Real tables are mostly empty, and so are tables fitted under non-negativity: of the cells of a tree over pairs often one in
twenty is possible. Cliques are joined attribute by attribute from the possible cells of what they contain, then cells that no
neighbouring clique can complete are dropped (semi-joins up the tree and down again), so that every cell left belongs to some
possible record as far as the tree can see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, CliqueVector, Holders
from consilience.kernels.messages import add_up, locate, numbered
from consilience.regions.junction_tree import JunctionTree

Cells = NDArray[np.int16]
"""One possible cell per row: the codes of a clique's attributes, each attribute's together in memory."""
Members = tuple[int, ...]
Masks = Sequence[tuple[Members, NDArray[np.bool_]]]
NEGLIGIBLE = 1e-6
"""Mass of a table's smallest cells that counts as zero. Solvers that keep tables positive leave that much on cells at zero."""
UNCOVERED = 0.02
"""Mass of a target that may lie on cells which its neighbours' zeros rule out."""


def possible(table: Buffer) -> NDArray[np.bool_]:
    """The cells that are more than a rounded zero: all but the smallest ones that together hold NEGLIGIBLE."""
    ranked = np.sort(table, axis=None)
    last = int(np.searchsorted(np.cumsum(ranked), NEGLIGIBLE, side="right"))
    return table >= ranked[min(last, len(ranked) - 1)]  # equal cells stay together


def possible_cells(members: Members, sizes: Sequence[int], masks: Masks, most: int) -> Cells | None:
    """Every cell of the clique that no mask forbids; None if there are more than `most`.

    Masks lie inside the clique. The attributes are taken in an order in which masks bite early.
    """
    if not masks:
        shape = [sizes[a] for a in members]
        total = int(np.prod(shape, dtype=np.int64))
        if total > most:
            return None
        every = np.unravel_index(np.arange(total), shape) if shape else ()
        return np.array(every, np.int16).reshape(len(shape), total).T
    order = _order(members, sizes, masks)
    cells = np.zeros((1, 0), np.int16)
    done: list[int] = []
    for a in order:
        done.append(a)
        active = [(m, mask) for m, mask in masks if a in m and set(m) <= set(done)]
        if len(cells) * sizes[a] > 64 * most:
            return None
        alive = np.ones((len(cells), sizes[a]), np.bool_)
        for m, mask in active:
            # The mask with its last axis the new attribute, one row per value of the others.
            others = [b for b in m if b != a]
            rows = mask.transpose([m.index(b) for b in (*others, a)]).reshape(-1, sizes[a])
            at = np.zeros(len(cells), np.int64)
            for b in others:
                at = at * sizes[b] + cells[:, done.index(b)]
            alive &= rows[at]
        row, value = np.nonzero(alive)
        if len(row) > most:
            return None
        cells = np.concatenate([cells[row], value[:, None].astype(np.int16)], axis=1)
    return np.asfortranarray(cells[:, [order.index(a) for a in members]])


def _order(members: Members, sizes: Sequence[int], masks: Masks) -> list[int]:
    """Start in the emptiest mask, then always the attribute that the most masks tie to what is there."""
    density = sorted((float(mask.mean()), m) for m, mask in masks if len(m) > 1)
    order: list[int] = list(density[0][1]) if density else []
    left = [a for a in members if a not in order]
    while left:
        ties = {a: sum(a in m and not set(order).isdisjoint(m) for m, _ in masks) for a in left}
        a = max(left, key=lambda a: (ties[a], -sizes[a], -a))
        order.append(a)
        left.remove(a)
    return order


def strides_of(members: Members, sizes: Sequence[int]) -> NDArray[np.int64]:
    shape = [sizes[a] for a in members]
    return np.array(
        [int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape))], np.int64
    )


@dataclass(frozen=True, eq=False)
class SupportTree:
    """A rooted junction tree, each clique with its possible cells.

    For the separator above clique c, `own[c]` says which of its cells each cell of c belongs to, `above[c]` the same for the
    cells of the parent, and `widths[c]` how many of its cells are possible.
    """

    tree: JunctionTree
    members: tuple[Members, ...]
    cells: tuple[Cells, ...]
    own: dict[int, NDArray[np.int32]]
    above: dict[int, NDArray[np.int32]]
    widths: dict[int, int]

    @classmethod
    def of(
        cls, tree: JunctionTree, targets: CliqueVector, most: int, *, zeros: bool = True
    ) -> SupportTree | None:
        """None if there are more than `most` possible cells. `zeros` False counts every cell as possible."""
        domain = tree.domain
        if zeros:
            masks = [(domain.axes(c), possible(table)) for c, table in targets.items()]
            found = cls._joined(tree, masks, most)
            if found is None or found._covers(targets):
                return found
        # The zeros contradict each other, as they may where tables are only locally consistent: go without them.
        return cls._joined(tree, [], most) if tree.cells <= most else None

    @classmethod
    def confined(cls, tree: JunctionTree, masks: Masks, most: int) -> SupportTree | None:
        """The tree with the cells that no mask forbids; None if there are more than `most`, or none at all."""
        found = cls._joined(tree, masks, most)
        return found if found is not None and all(map(len, found.cells)) else None

    @classmethod
    def _joined(cls, tree: JunctionTree, masks: Masks, most: int) -> SupportTree | None:
        members = tuple(tree.domain.axes(c) for c in tree.cliques)
        cells: list[Cells] = []
        left = most
        for m in members:
            inside = [(k, mask) for k, mask in masks if set(m).issuperset(k)]
            found = possible_cells(m, tree.domain.shape, inside, left)
            if found is None:
                return None
            cells.append(found)
            left -= len(found)
        return cls.on(tree, cells)

    @classmethod
    def on(cls, tree: JunctionTree, cells: Sequence[Cells]) -> SupportTree:
        """The tree on these cells, clique by clique, less those that no neighbouring clique can complete."""
        members = tuple(tree.domain.axes(c) for c in tree.cliques)
        below, up = tree.rooted.below, tree.rooted.up
        at = {c: _places(tree, members, cells, c) for c in below}
        alive = [np.ones(len(c), np.bool_) for c in cells]
        for c in reversed(below):
            mine, parents, count = at[c]
            alive[up[c]] &= _marked(mine[alive[c]], count)[parents]
        for c in below:
            mine, parents, count = at[c]
            alive[c] &= _marked(parents[alive[up[c]]], count)[mine]
        own, above, widths = {}, {}, {}
        for c in below:
            mine, parents, count = at[c]
            left = _marked(mine[alive[c]], count)
            place = np.cumsum(left, dtype=np.int32) - 1
            own[c], above[c] = place[mine[alive[c]]], place[parents[alive[up[c]]]]
            widths[c] = int(np.count_nonzero(left))
        kept = tuple(np.asfortranarray(x[a]) for x, a in zip(cells, alive, strict=True))
        return cls(tree, members, kept, own, above, widths)

    def _covers(self, targets: CliqueVector) -> bool:
        """Whether nearly all of every target's mass lies on possible cells."""
        return all(map(len, self.cells)) and self.uncovered(targets) <= UNCOVERED

    def uncovered(self, targets: CliqueVector) -> float:
        """The largest part of a target's mass that lies on no possible cell."""
        worst = 0.0
        for clique, table in targets.items():
            wanted = self.tree.domain.axes(clique)
            seen = np.zeros(table.size, np.bool_)
            seen[self.located(self.home(wanted), wanted)] = True
            worst = max(worst, float(table.reshape(-1)[~seen].sum()))
        return worst

    def home(self, wanted: Members) -> int:
        """The clique with the fewest possible cells that holds these attributes, the first of equals."""
        found = self.home_if_any(wanted)
        assert found is not None
        return found

    def home_if_any(self, wanted: Members) -> int | None:
        """The same where it is not known that some clique of the tree holds the attributes."""
        return self.holders.smallest(wanted, self._counts)

    @cached_property
    def holders(self) -> Holders:
        return Holders(self.members)

    @cached_property
    def _counts(self) -> list[int]:
        return [len(c) for c in self.cells]

    @property
    def size(self) -> int:
        return sum(map(len, self.cells))

    def located(self, clique: int, keep: Members) -> NDArray[np.int64]:
        """Which cell of the table over `keep` each cell of a clique belongs to."""
        sizes = self.tree.domain.shape
        kept = np.array([self.members[clique].index(a) for a in keep], np.int64)
        return locate(self.cells[clique].T, kept, strides_of(keep, sizes))

    def summed(self, clique: int, values: Buffer, keep: Members) -> Buffer:
        """Values of a clique's cells added up over the attributes not kept."""
        shape = [self.tree.domain.shape[a] for a in keep]
        total = int(np.prod(shape, dtype=np.int64))
        return add_up(self.located(clique, keep), values, total).reshape(shape)


def _places(
    tree: JunctionTree, members: tuple[Members, ...], cells: Sequence[Cells], c: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], int]:
    """Which cell of the separator above clique c each cell of c belongs to, the same for the cells of its parent, and how
    many such cells there are.
    """
    sizes = tree.domain.shape
    separator = tree.domain.axes(tree.rooted.separator[c])
    strides = strides_of(separator, sizes)
    keys = [
        locate(cells[i].T, np.array([members[i].index(a) for a in separator], np.int64), strides)
        for i in (c, tree.rooted.up[c])
    ]
    place, count = numbered(np.concatenate(keys))
    return place[: len(keys[0])], place[len(keys[0]) :], count


def _marked(numbers: NDArray[np.int32], count: int) -> NDArray[np.bool_]:
    """Which of the numbers below `count` appear."""
    found = np.zeros(count, np.bool_)
    found[numbers] = True
    return found
