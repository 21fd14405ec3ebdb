"""Mending: the few tables in which a consistent point is still negative, changed each by itself until they are not.

Mixing every table with the uniform one makes a consistent point non-negative at the price of its worst cell, and among a million
tables there is always a bad one: the point is the optimum to five digits when its mixture is not to two. So only as much is mixed
in as the tolerance has room for. The nodes' tables then stay as they are, and each table with a negative cell is moved to its
closest non-negative one with the same sums, by Douglas-Rachford between the two conditions; nobody else's table changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer
from consilience.domain.moves import cells_of
from consilience.kernels import cells as kernels
from consilience.kernels.splitting import Roots
from consilience.regions.ties import Projection
from consilience.solvers.split_iteration import SplitIteration

MOST_ROUNDS = 100
LOOK = 10
MOST_SHARE = 0.2
"""Where more of the tables are negative, the iteration has work left to do."""


def mended(iteration: SplitIteration, share: float) -> tuple[Buffer, Buffer] | None:
    """(tables, nodes' tables) of a non-negative consistent point next to iteration.x; None where there is none nearby.

    `share` of the uniform table is mixed into all, and then at most a tenth of that again.
    """
    problem = iteration.problem
    ties = problem.ties
    x = problem.mixed(iteration.x, share)
    nodes = _mixed_nodes(iteration.projection.target, ties.nodes.cells, share)
    low = np.minimum.reduceat(x, ties.roots.at)[: problem.count]
    which = np.flatnonzero(low < 0.0)
    if len(which) > MOST_SHARE * problem.count:
        return None
    if len(which):
        cells = cells_of(ties.roots.at[which], ties.roots.cells[which])
        found, left, rounds = _moved(Projection(ties.of_roots(which)), x[cells], nodes)
        iteration.steps += rounds * len(cells) / problem.cells
        if left > 0.1 * share:
            return None
        x[cells] = found
        if left > 0.0:
            x, nodes = problem.mixed(x, left), _mixed_nodes(nodes, ties.nodes.cells, left)
    return x, nodes


def _moved(projection: Projection, v: Buffer, nodes: Buffer) -> tuple[Buffer, float, int]:
    """Tables with the given sums next to v, how much of the uniform table would make them non-negative, and rounds made."""
    tables = projection.ties.roots
    ones = np.ones(len(tables.at))
    x, mode = np.empty_like(v), np.full(len(tables.at), kernels.NONNEGATIVE, np.int64)
    roots = Roots(v, np.zeros(0), v, x, mode, ones)
    projection.weigh(ones)
    projection.target[...] = nodes
    left, rounds = np.inf, 0
    while left > 0.0 and rounds < MOST_ROUNDS:
        for i in range(LOOK):
            projection.project(roots, 1.0 if i < LOOK - 1 else 0.0)
        rounds += LOOK
        below = np.maximum(-np.minimum.reduceat(x, tables.at), 0.0)
        left = float((below / (below + 1.0 / tables.cells)).max())
    return x, left, rounds


def _mixed_nodes(nodes: Buffer, cells: NDArray[np.int64], share: float) -> Buffer:
    return (1.0 - share) * nodes + share * np.repeat(1.0 / cells, cells)
