"""RootedTree: a junction tree with a root, its tables, separators and measured cliques as index arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, Layout
from consilience.errors import PotentialError, RegionGraphError
from consilience.kernels.hugin import Plan
from consilience.oracles.elimination import align, sum_out
from consilience.regions.junction_tree import JunctionTree
from consilience.regions.wiring import Ints, Tables, engine_members, engine_order, group, row_map

SPLIT_CELLS = 1 << 15
MOST_ITEMS = 16
"""A clique is cut into work items of at least SPLIT_CELLS cells, at most MOST_ITEMS of them."""


@dataclass(frozen=True)
class RootedTree:
    """Cliques numbered by level from the root, which is the largest: its table is passed over once per step, others twice.

    Separator c - 1 lies between clique c and its parent `up[c]`. `below` are the separators, then the measured cliques,
    each inside the clique `home`.
    """

    tree: JunctionTree
    layout: Layout
    order: tuple[int, ...]
    up: tuple[int, ...]
    level: Ints
    cliques: Tables
    below: Tables
    home: tuple[int, ...]

    @classmethod
    def of(cls, tree: JunctionTree, measured: Iterable[Iterable[str]]) -> RootedTree:
        domain = tree.domain
        layout = Layout(domain, measured)
        order = engine_order(domain)
        sizes = np.array(domain.shape, np.int64)
        visit, up, level = _levels(tree)
        names = [tree.cliques[i] for i in visit]
        members = engine_members(domain, order, names)
        held = [frozenset(m) for m in members]
        separators = [
            tuple(a for a in members[c] if a in held[up[c]]) for c in range(1, len(members))
        ]
        inside = engine_members(domain, order, layout.cliques)
        return cls(
            tree,
            layout,
            order,
            up,
            level,
            Tables.of(members, sizes),
            Tables.of([*separators, *inside], sizes),
            homes(tree, names, layout.cliques),
        )

    @property
    def separators(self) -> int:
        return len(self.up) - 1

    def plan(self) -> tuple[Plan, int]:
        """The index arrays of `kernels/hugin.py`, and how long its scratch buffer for sums must be."""
        n, cells, widths = len(self.up), self.cliques.cells, self.below.cells
        pairs = [(c, c - 1) for c in range(1, n)]
        pairs += [(self.up[c], c - 1) for c in range(1, n)]
        pairs += [(h, self.separators + a) for a, h in enumerate(self.home)]
        parent, child = np.array(pairs, np.int64).reshape(-1, 2).T
        down = np.arange(n - 1, len(pairs))
        ptr, place = group(parent[down], n)
        share = np.zeros(len(widths), np.int64)
        share[: n - 1] = cells[1:] // widths[: n - 1]
        room = np.concatenate([[0], widths[: n - 1]])
        room = np.maximum(room, np.bincount(parent[down], widths[child[down]], n).astype(np.int64))
        items, scratch = self._items(room)
        plan = Plan(
            at=np.append(self.cliques.at, self.cliques.length),
            below=np.append(self.below.at, self.below.length),
            share=share,
            measured=self.separators,
            child=np.ascontiguousarray(child),
            **self._maps(pairs),
            own=np.concatenate([[0], np.arange(n - 1)]).astype(np.int64),
            down_ptr=ptr,
            down_edge=down[place].astype(np.int64),
            **items,
            level=self.level,
        )
        return plan, scratch

    def _maps(self, pairs: list[tuple[int, int]]) -> dict[str, NDArray]:
        """Per edge: the longest run of last axes that the child keeps, or drops, as a whole, and where each run lands."""
        kind, run, at = np.zeros((3, len(pairs)), np.int64)
        pool: list[NDArray[np.int32]] = []
        known: dict[tuple[tuple[int, ...], tuple[bool, ...]], tuple[int, int, int]] = {}
        sizes = self.cliques.sizes.tolist()
        used = 0
        for e, (c, k) in enumerate(pairs):
            held = set(self.below.members[k])
            shape = tuple([sizes[a] for a in self.cliques.members[c]])
            kept = tuple([a in held for a in self.cliques.members[c]])
            key = (shape, kept)
            if key not in known:
                split = len(kept)
                while split and kept[split - 1] == kept[-1]:
                    split -= 1
                length = prod(shape[split:])
                pool.append(row_map((*shape[:split], length), (*kept[:split], kept[-1])))
                known[key] = (int(kept[-1]), length, used)
                used += len(pool[-1])
            kind[e], run[e], at[e] = known[key]
        maps = np.concatenate(pool) if pool else np.zeros(0, np.int32)
        return {"kind": kind, "run": run, "map_at": at, "maps": maps}

    def _items(self, room: Ints) -> tuple[dict[str, Ints], int]:
        """Work items; every item but a clique's first has `room` cells for its sums after the child layout."""
        cells = self.cliques.cells
        worth = np.minimum(cells // SPLIT_CELLS, np.maximum(2, cells // np.maximum(room, 1)))
        count = np.clip(worth, 1, MOST_ITEMS)
        item = np.concatenate([[0], np.cumsum(count)])
        of = np.repeat(np.arange(len(count)), count)
        number = np.arange(len(of)) - item[of]
        taken = np.where(number > 0, room[of], 0)
        end = self.below.length + np.cumsum(taken)
        parts = {
            "of": of,
            "first": cells[of] * number // count[of],
            "last": cells[of] * (number + 1) // count[of],
            "spill": np.where(number > 0, end - taken, -1),
            "item": item,
        }
        return {k: v.astype(np.int64) for k, v in parts.items()}, int(end[-1])

    # -- the same in logarithms ----------------------------------------------------------------------

    def views(self, values: Buffer) -> list[Buffer]:
        """The cliques' tables in a buffer."""
        return _views(values, self.cliques)

    def views_below(self, values: Buffer) -> list[Buffer]:
        """The tables of separators and measured cliques in a buffer."""
        return _views(values, self.below)

    def calibrate(self, logs: list[Buffer]) -> float:
        """Log-potentials become log-marginals, in place; the log partition function comes back."""
        members = self.cliques.members
        messages: list[Buffer] = [np.zeros(())] * len(members)
        for c in range(len(members) - 1, 0, -1):
            keep, p = self.below.members[c - 1], self.up[c]
            messages[c] = sum_out(logs[c], members[c], keep)
            logs[p] += align(messages[c], keep, members[p])
        log_partition = float(sum_out(logs[0], members[0], ()))
        if log_partition == -np.inf:
            raise PotentialError(
                "potentials must leave at least one cell possible, got none; remove a minus infinity"
            )
        logs[0] -= log_partition
        for c in range(1, len(members)):
            keep, p = self.below.members[c - 1], self.up[c]
            told = sum_out(logs[p], members[p], keep)
            known = np.isfinite(messages[c])
            change = np.where(known, told - np.where(known, messages[c], 0.0), 0.0)
            logs[c] += align(change, keep, members[c])
        return log_partition


def _views(values: Buffer, tables: Tables) -> list[Buffer]:
    ends = tables.at + tables.cells
    return [
        values[tables.at[i] : ends[i]].reshape([int(tables.sizes[a]) for a in m])
        for i, m in enumerate(tables.members)
    ]


def _levels(tree: JunctionTree) -> tuple[list[int], tuple[int, ...], Ints]:
    """Cliques breadth first from the root; the number of each one's parent; where each level starts.

    The root is the largest clique; among equals the one nearest to the middle of the tree, for few levels.
    """
    near: list[list[int]] = [[] for _ in tree.cliques]
    for i, j in tree.edges:
        near[i].append(j)
        near[j].append(i)
    one_end = _distances(near, max(_distances(near, 0).items(), key=_far)[0])
    last = max(one_end.items(), key=_far)[0]
    other_end = _distances(near, last)
    most = tree.domain.size(tree.largest)
    largest = [i for i, c in enumerate(tree.cliques) if tree.domain.size(c) == most]
    root = min(largest, key=lambda i: (max(one_end[i], other_end[i]), i))
    depth = _distances(near, root)
    visit = list(depth)
    number = {i: c for c, i in enumerate(visit)}
    up = [-1] + [number[next(j for j in near[i] if depth[j] < depth[i])] for i in visit[1:]]
    starts = np.flatnonzero(np.diff([depth[i] for i in visit], prepend=-1))
    return visit, tuple(up), np.append(starts, len(visit)).astype(np.int64)


def _distances(near: list[list[int]], start: int) -> dict[int, int]:
    """Steps from one clique to every other, nearest first."""
    found = {start: 0}
    queue = [start]
    for i in queue:
        for j in near[i]:
            if j not in found:
                found[j] = found[i] + 1
                queue.append(j)
    return found


def _far(pair: tuple[int, int]) -> tuple[int, int]:
    return pair[1], -pair[0]


def homes(
    tree: JunctionTree, cliques: Sequence[Clique], measured: tuple[Clique, ...]
) -> tuple[int, ...]:
    """The first smallest clique of the tree that holds each measured one."""
    holders: dict[str, set[int]] = {}
    for c, clique in enumerate(cliques):
        for a in clique:
            holders.setdefault(a, set()).add(c)
    cells = [tree.domain.size(c) for c in cliques]
    found_in = []
    for clique in measured:
        found = set.intersection(*(holders[a] for a in clique)) if clique else {0}
        if not found:
            raise RegionGraphError(
                f"every clique must lie inside a clique of the junction tree, got {clique}; "
                "build the tree from these cliques (JunctionTree.of)"
            )
        found_in.append(min(found, key=lambda c: (cells[c], c)))
    return tuple(found_in)
