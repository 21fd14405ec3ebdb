"""Rows of a junction tree's distribution: ancestral sampling with systematic rounding in place of independent draws.

The root clique's cells are drawn for all rows at once; then, clique by clique away from the root, the rows that agree on a
separator share out its conditional distribution. Rows of a group take their values in random order, so every single row
is distributed as the model; the counts are nearer to their expectations than those of independent rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, CliqueVector, Domain
from consilience.errors import ConsilienceError
from consilience.kernels.rows import draw_cells, fill_groups, group_rows
from consilience.regions.junction_tree import JunctionTree

RowCodes = NDArray[np.int32]
"""Rows of codes, rows x attributes, in domain order."""
RUN = 16
"""Neighbouring separator cells whose offsets are spread evenly over the unit interval."""


def tree_rows(
    tree: JunctionTree,
    beliefs: CliqueVector,
    n: int,
    rng: np.random.Generator,
    step: Callable[[], None] = lambda: None,
) -> RowCodes:
    """n rows of p(x) = product of clique beliefs over the product of separator beliefs.

    For every cell of a clique of the tree the expected count is n times its belief. `step` is called once per clique.
    """
    domain = tree.domain
    visit = _visit(tree)
    tables = _reachable(domain, visit, {c: beliefs[c] for c, _ in visit})
    columns = np.zeros((len(domain), n), np.int32)
    for clique, known in visit:
        if n:
            _extend(domain, columns, clique, known, tables[clique], rng)
        step()
    return np.ascontiguousarray(columns.T)


def _extend(
    domain: Domain,
    columns: RowCodes,
    clique: Clique,
    known: Clique,
    table: Buffer,
    rng: np.random.Generator,
) -> None:
    """Draw the attributes of a clique that the rows do not have yet, given those that they have."""
    new = tuple(a for a in clique if a not in known)
    n = columns.shape[1]
    order = rng.permutation(n)
    values = np.empty(n, np.int64)
    if not known:
        drawn = np.empty(n, np.int64)
        draw_cells(table.reshape(-1), float(rng.random()), drawn)
        values[order] = drawn
    else:
        axes = [clique.index(a) for a in (*known, *new)]
        groups = np.ascontiguousarray(table.transpose(axes)).reshape(domain.size(known), -1)
        keys = np.ravel_multi_index(
            [columns[domain.position(a)] for a in known], domain.shape_of(known)
        )
        start, rows = np.zeros(len(groups) + 1, np.int64), np.empty(n, np.int64)
        group_rows(keys, order, start, rows)
        occupied = np.flatnonzero(np.diff(start))
        fill_groups(groups, occupied, _offsets(len(occupied), rng), start, rows, values)
    for a, codes in zip(new, np.unravel_index(values, domain.shape_of(new)), strict=True):
        columns[domain.position(a)] = codes


def _offsets(count: int, rng: np.random.Generator) -> Buffer:
    """Uniform offsets, spread evenly over each run of neighbours: small groups then share their rounding out."""
    runs = -(-count // RUN)
    place = rng.permuted(np.tile(np.arange(RUN), (runs, 1)), axis=1)
    return ((place + rng.random((runs, RUN))) / RUN).reshape(-1)[:count]


def _visit(tree: JunctionTree) -> list[tuple[Clique, Clique]]:
    """(clique, separator to the one it is reached from), the largest first and each after its neighbour."""
    near: list[list[tuple[int, Clique]]] = [[] for _ in tree.cliques]
    for (i, j), separator in zip(tree.edges, tree.separators, strict=True):
        near[i].append((j, separator))
        near[j].append((i, separator))
    root = tree.cliques.index(tree.largest)
    found: dict[int, Clique] = {root: ()}
    queue = [root]
    for i in queue:
        for j, separator in near[i]:
            if j not in found:
                found[j] = separator
                queue.append(j)
    return [(tree.cliques[i], s) for i, s in found.items()]


def _reachable(
    domain: Domain, visit: list[tuple[Clique, Clique]], tables: dict[Clique, Buffer]
) -> dict[Clique, Buffer]:
    """Tables without cells from which some later clique could not go on.

    Beliefs agree on separators up to rounding only, so a cell of nearly no mass may have none on the other side.
    """
    live = dict(tables)
    for k in range(len(visit) - 1, 0, -1):
        clique, separator = visit[k]
        alive = live[clique].sum(axis=_others(clique, separator)) > 0
        if alive.all():
            continue
        parent = next(c for c, _ in visit[:k] if set(separator) <= set(c))
        shape = [domain[a] if a in separator else 1 for a in parent]
        live[parent] = live[parent] * alive.reshape(shape)
    if not live[visit[0][0]].sum() > 0:
        raise ConsilienceError(
            "the tables to draw rows from must leave some row possible, they leave none; "
            "fit the model more finely (tolerance=)"
        )
    return live


def _others(clique: Clique, kept: Clique) -> tuple[int, ...]:
    return tuple(i for i, a in enumerate(clique) if a not in kept)
