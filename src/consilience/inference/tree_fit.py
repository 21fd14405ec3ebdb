"""The maximum-entropy distribution with given marginals on a junction tree, by iterative proportional fitting.

Where no distribution has all the given marginals (they need only be locally consistent), plain fitting would go round in
circles; the pace is then halved until the circles are points, a compromise between the targets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, CliqueVector
from consilience.inference.support import SupportTree
from consilience.kernels import proportional
from consilience.kernels.proportional import add_up

TOLERANCE = 1e-6
"""Tours end when no target is missed by more than this, in L1."""
PATIENCE = 5
SLOWEST = 1 / 32
"""The pace is halved after PATIENCE tours without progress, down to SLOWEST."""


@dataclass(frozen=True, eq=False)
class TreeFit:
    """p proportional to exp(sum of theta) on possible cells; one vector of their probabilities per clique of the tree."""

    support: SupportTree
    tables: tuple[Buffer, ...]
    theta: CliqueVector
    misfit: float
    tours: int

    def beliefs(self) -> CliqueVector:
        """The tables in full, zero where nothing is possible."""
        tree = self.support.tree
        found = CliqueVector.zeros(tree.domain, tree.cliques)
        for c, (clique, members) in enumerate(zip(tree.cliques, self.support.members, strict=True)):
            found[clique].reshape(-1)[self.support.located(c, members)] = self.tables[c]
        return found


def fit_tree(
    support: SupportTree,
    targets: CliqueVector,
    *,
    theta: CliqueVector | None = None,
    tours: int = 100,
    tolerance: float = TOLERANCE,
    progress: Callable[[int, int], None] | None = None,
) -> TreeFit:
    """Walk around the tree until every target is met; `theta` (on cliques inside the tree) is a warm start.

    progress sees (tours done, tours at most).
    """
    path = TreePath(support, targets)
    walk, last = path.walk(fitting=True), path.walk(fitting=False)
    potentials = path.potentials(theta)
    x, below = path.calibrated(potentials)
    factor = np.ones(len(below))
    sums = np.empty((proportional.MOST_BLOCKS, max(path.widths)))
    distance = np.zeros(len(walk.clique))
    args = (x, below, targets.values, potentials, factor, sums)
    to_meet = np.full(len(targets.cliques), np.inf)
    best, misfit, pace, idle, done = np.inf, np.inf, 1.0, 0, 0
    while done < tours and misfit > tolerance:
        proportional.walk(walk, *args, distance, pace, to_meet)
        misfit = float(distance.max(initial=0.0))
        done += 1
        if progress is not None:
            progress(done, tours)
        idle = 0 if misfit < (1 - 1e-4) * best else idle + 1
        best = min(best, misfit)
        if idle >= PATIENCE and pace > SLOWEST:
            pace, idle = pace / 2, 0
    proportional.walk(last, *args, np.zeros(len(last.clique)), 1.0, to_meet)
    tables = tuple(t / t.sum() for t in np.split(x, path.at[1:-1]))
    return TreeFit(support, tables, CliqueVector(targets.layout, potentials), misfit, done)


class TreePath:
    """The tree and its targets as index arrays: cliques in walking order, separators, targets, and maps between them."""

    def __init__(self, support: SupportTree, targets: CliqueVector) -> None:
        self.support, self.targets = support, targets
        n = len(support.members)
        self.at = np.concatenate([[0], np.cumsum([len(c) for c in support.cells])]).astype(np.int64)
        self.separators = list(support.order[1:])
        self.sep = {c: k for k, c in enumerate(self.separators)}
        shapes = np.diff(targets.layout.offsets).tolist()
        self.widths = [*(support.widths[c] for c in self.separators), *shapes]
        self.below = np.concatenate([[0], np.cumsum(self.widths)]).astype(np.int64)
        self.children: list[list[int]] = [[] for _ in range(n)]
        for c in self.separators:
            self.children[support.up[c]].append(c)
        self.held: list[list[int]] = [[] for _ in range(n)]
        pool: list[NDArray[np.int32]] = []
        self.map_at: dict[tuple[int, int], int] = {}
        used = 0
        for c in self.separators:
            for i, found in ((c, support.own[c]), (support.up[c], support.above[c])):
                self.map_at[i, self.sep[c]] = used
                pool.append(found)
                used += len(found)
        for t, clique in enumerate(targets.cliques):
            wanted = support.tree.domain.axes(clique)
            home = support.home(wanted)
            k = len(self.separators) + t
            self.held[home].append(k)
            self.map_at[home, k] = used
            pool.append(support.located(home, wanted).astype(np.int32))
            used += len(pool[-1])
        self.maps = np.concatenate(pool) if pool else np.zeros(0, np.int32)

    def potentials(self, theta: CliqueVector | None) -> Buffer:
        """theta on the targets; what lies in no target is left behind."""
        found = CliqueVector(self.targets.layout)
        for clique, table in theta.items() if theta is not None else ():
            homes = [c for c in self.targets.cliques if set(clique).issubset(c)]
            if homes:
                shape = [len_ if a in clique else 1 for a, len_ in _sized(self.targets, homes[0])]
                found[homes[0]][...] += table.reshape(shape)
        return found.values

    def map_of(self, clique: int, child: int) -> NDArray[np.int32]:
        lo = self.map_at[clique, child]
        return self.maps[lo : lo + self.at[clique + 1] - self.at[clique]]

    def calibrated(self, potentials: Buffer) -> tuple[Buffer, Buffer]:
        """Tables and separator sums of exp(potentials) on the possible cells, summed up the tree and told back down."""
        first = self.below[len(self.separators)]
        tables = []
        for c, held in enumerate(self.held):
            log = np.zeros(self.at[c + 1] - self.at[c])
            for k in held:
                table = potentials[self.below[k] - first : self.below[k + 1] - first]
                log += table[self.map_of(c, k)]
            tables.append(np.exp(log - log.max(initial=0.0)))
        below = np.zeros(self.below[-1])
        up = self.support.up
        for c in reversed(self.separators):
            k = self.sep[c]
            told = add_up(self.map_of(c, k), tables[c], self.widths[k])
            told /= told.max()
            below[self.below[k] : self.below[k + 1]] = told
            tables[c] /= add_up(self.map_of(c, k), tables[c], self.widths[k]).max()
            tables[up[c]] *= told[self.map_of(up[c], k)]
            tables[up[c]] /= tables[up[c]].max()
        root = self.support.order[0]
        tables[root] /= tables[root].sum()
        for c in self.separators:
            k = self.sep[c]
            heard = add_up(self.map_of(up[c], k), tables[up[c]], self.widths[k])
            mine = below[self.below[k] : self.below[k + 1]]
            tables[c] *= np.divide(heard, mine, out=np.zeros_like(heard), where=mine > 0)[
                self.map_of(c, k)
            ]
            mine[:] = heard
        return np.maximum(np.concatenate(tables), proportional.FLOOR), below

    def walk(self, *, fitting: bool) -> proportional.Walk:
        """Once around the tree with every target on the way, or without, to tell everyone what became of the rest."""
        root = self.support.order[0]
        # What the root hears last is multiplied in when the next walk starts: its table is passed over once less.
        pending = self.sep[self.children[root][-1]] if self.children[root] else self.held[root][-1]
        rows: list[tuple[int, int, int, bool]] = []

        def enter(c: int, heard: int) -> int:
            for k in self.held[c] if fitting else ():
                rows.append((c, heard, k, True))
                heard = k
            return heard

        stack = [(root, iter(self.children[root]), enter(root, pending))]
        while stack:
            c, rest, heard = stack.pop()
            d = next(rest, None)
            if d is not None:
                rows.append((c, heard, self.sep[d], False))
                stack.append((c, rest, self.sep[d]))
                stack.append((d, iter(self.children[d]), enter(d, self.sep[d])))
            elif c != root:
                rows.append((c, heard, self.sep[c], False))
        if not rows:  # one clique, nobody to tell
            rows.append((root, pending, -1, False))
        place = [[self.map_at.get((r[0], r[side]), 0) for r in rows] for side in (1, 2)]
        clique, heard, told = (np.array([r[i] for r in rows], np.int64) for i in range(3))
        return proportional.Walk(
            at=self.at,
            below=self.below,
            measured=len(self.separators),
            maps=self.maps,
            clique=clique,
            heard=heard,
            heard_map=np.array(place[0], np.int64),
            told=told,
            told_map=np.array(place[1], np.int64),
            fits=np.array([r[3] for r in rows], np.bool_),
        )


def _sized(vector: CliqueVector, clique: tuple[str, ...]) -> list[tuple[str, int]]:
    return [(a, vector.domain[a]) for a in clique]


def tour_cells(support: SupportTree, targets: int) -> int:
    """Roughly how many cells one walk passes over."""
    return int((2 + targets / max(1, len(support.cells))) * support.size)
