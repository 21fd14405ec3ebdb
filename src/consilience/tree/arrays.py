"""TreeArrays: a rooted junction tree with its tables, separators and measured cliques as index arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, CliqueVector, Layout
from consilience.errors import PotentialError
from consilience.kernels.hugin import Plan
from consilience.regions.junction_tree import JunctionTree
from consilience.regions.wiring import (
    EngineTables,
    Ints,
    engine_members,
    engine_order,
    group,
    row_map,
)
from consilience.tree.elimination import align, sum_out

SPLIT_CELLS = 1 << 15
MOST_ITEMS = 16
"""A clique is cut into work items of at least SPLIT_CELLS cells, at most MOST_ITEMS of them."""


@dataclass(frozen=True)
class TreeArrays:
    """Cliques are numbered as `tree.rooted` orders them, so that every clique comes after its parent `up[c]`.

    Separator c - 1 lies between clique c and its parent. `below` are the separators, then the measured cliques; measured
    clique m is summed from the clique `home[m]`. Axes are in engine order (regions/wiring.py).
    """

    tree: JunctionTree
    layout: Layout
    order: tuple[int, ...]
    up: tuple[int, ...]
    level: Ints
    cliques: EngineTables
    below: EngineTables
    home: tuple[int, ...]

    @classmethod
    def of(cls, tree: JunctionTree, measured: Iterable[Iterable[str]]) -> TreeArrays:
        domain, rooted = tree.domain, tree.rooted
        layout = Layout(domain, measured)
        order = engine_order(domain)
        sizes = np.array(domain.shape, np.int64)
        number = {c: k for k, c in enumerate(rooted.order)}
        return cls(
            tree,
            layout,
            order,
            tuple(number.get(rooted.up[c], -1) for c in rooted.order),
            np.array(rooted.level, np.int64),
            EngineTables.of(
                engine_members(domain, order, [tree.cliques[c] for c in rooted.order]), sizes
            ),
            EngineTables.of(
                [
                    *engine_members(domain, order, [rooted.separator[c] for c in rooted.below]),
                    *engine_members(domain, order, layout.cliques),
                ],
                sizes,
            ),
            tuple(number[tree.home(c)] for c in layout.cliques),
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
        made: dict[tuple[tuple[int, ...], tuple[bool, ...]], tuple[int, int, int]] = {}
        sizes = self.cliques.sizes.tolist()
        used = 0
        for e, (c, k) in enumerate(pairs):
            inside = set(self.below.members[k])
            shape = tuple([sizes[a] for a in self.cliques.members[c]])
            kept = tuple([a in inside for a in self.cliques.members[c]])
            key = (shape, kept)
            if key not in made:
                split = len(kept)
                while split and kept[split - 1] == kept[-1]:
                    split -= 1
                length = prod(shape[split:])
                pool.append(row_map((*shape[:split], length), (*kept[:split], kept[-1])))
                made[key] = (int(kept[-1]), length, used)
                used += len(pool[-1])
            kind[e], run[e], at[e] = made[key]
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

    def add_potentials(self, logs: list[Buffer], theta: CliqueVector) -> None:
        """Add each table of theta to the cliques' log-tables, in the smallest clique that holds it."""
        number = {c: k for k, c in enumerate(self.tree.rooted.order)}
        for clique, table in theta.items():
            home = number[self.tree.home(clique)]
            logs[home] += align(table, self.tree.domain.axes(clique), self.cliques.members[home])

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
            message = sum_out(logs[p], members[p], keep)
            finite = np.isfinite(messages[c])
            change = np.where(finite, message - np.where(finite, messages[c], 0.0), 0.0)
            logs[c] += align(change, keep, members[c])
        return log_partition


def _views(values: Buffer, tables: EngineTables) -> list[Buffer]:
    ends = tables.at + tables.cells
    return [
        values[tables.at[i] : ends[i]].reshape([int(tables.sizes[a]) for a in m])
        for i, m in enumerate(tables.members)
    ]
