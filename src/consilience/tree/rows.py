"""Rows of a junction tree's distribution: ancestral sampling with systematic rounding in place of independent draws.

The root clique's cells are drawn for all rows at once; then, clique by clique away from the root, the rows that agree on a
separator share out its conditional distribution. Rows of a group take their values in random order, so every single row
is distributed as the model; the counts are nearer to their expectations than those of independent rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, CliqueVector, Domain
from consilience.errors import ConsilienceError
from consilience.kernels.rows import draw_cells, fill_groups, group_rows
from consilience.kernels.threads import spread
from consilience.progress import Progress, Step, quiet
from consilience.regions.junction_tree import JunctionTree
from consilience.tree.fit import TreeFit

RowCodes = NDArray[np.int32]
"""Rows of codes, rows x attributes, in domain order."""
Ints = NDArray[np.int64]
FULL_CELLS = 1 << 22
"""Full tables of no more cells than this are drawn from as they are."""
RUN = 16
"""Neighbouring separator cells whose offsets are spread evenly over the unit interval."""


def tree_rows(
    tree: JunctionTree,
    beliefs: CliqueVector,
    n: int,
    rng: np.random.Generator,
    progress: Progress = quiet,
) -> RowCodes:
    """n rows of p(x) = product of clique beliefs over the product of separator beliefs.

    For every cell of a clique of the tree the expected count is n times its belief.
    """
    domain, rooted = tree.domain, tree.rooted
    tables = _reachable(tree, beliefs)
    columns = np.zeros((len(domain), n), np.int32)
    for done, c in enumerate(rooted.order, 1):
        if n:
            _extend(domain, columns, tree.cliques[c], rooted.separator[c], tables[c], rng)
        progress(Step("drawing rows", done, len(rooted.order)))
    return np.ascontiguousarray(columns.T)


def fit_rows(
    fit: TreeFit, n: int, rng: np.random.Generator, progress: Progress = quiet
) -> RowCodes:
    """n rows of a fitted tree: on its full tables where those are small, else on its possible cells."""
    support = fit.support
    if support.tree.cells <= max(FULL_CELLS, 8 * support.size):
        return tree_rows(support.tree, fit.beliefs(), n, rng, progress)
    rooted = support.tree.rooted
    codes = np.zeros((n, len(support.tree.domain)), np.int32)
    drawn: dict[int, NDArray[np.int64]] = {}
    for done, c in enumerate(rooted.order, 1):
        if c == rooted.root:
            of_rows, of_cells, width = (
                np.zeros(n, np.int64),
                np.zeros_like(fit.tables[c], np.int64),
                1,
            )
        else:
            of_rows = support.above[c][drawn[rooted.up[c]]].astype(np.int64)
            of_cells, width = support.own[c].astype(np.int64), support.widths[c]
        drawn[c] = _drawn_cells(fit.tables[c], of_cells, width, of_rows, rng)
        codes[:, support.members[c]] = support.cells[c][drawn[c]]
        progress(Step("drawing rows", done, len(rooted.order)))
    return codes


def _drawn_cells(
    p: Buffer, of_cells: Ints, width: int, of_rows: Ints, rng: np.random.Generator
) -> Ints:
    """A cell for each row, in proportion to p among the cells of the row's group; systematic within a group.

    Group g owns the interval from g to g + 1, divided among its cells; its rows, in random order, are evenly spaced in it.
    """
    by_group = np.argsort(of_cells, kind="stable")
    mass = np.bincount(of_cells, p, width)
    first = np.concatenate([[0.0], np.cumsum(mass)])[:-1]
    group = of_cells[by_group]
    ends = group + (np.cumsum(p[by_group]) - first[group]) / np.where(mass > 0, mass, 1.0)[group]
    last = np.flatnonzero(np.diff(group, append=width))
    ends[last] = group[last] + 1.0
    order = rng.permutation(len(of_rows))
    rows = order[np.argsort(of_rows[order], kind="stable")]
    count = np.bincount(of_rows, minlength=width)
    start = np.concatenate([[0], np.cumsum(count)])[:-1]
    mine = of_rows[rows]
    place = (np.arange(len(rows)) - start[mine] + _offsets(width, rng)[mine]) / count[mine]
    found = np.empty(len(rows), np.int64)
    found[rows] = by_group[np.searchsorted(np.maximum.accumulate(ends), mine + place, side="right")]
    return found


def _extend(
    domain: Domain,
    columns: RowCodes,
    clique: Clique,
    drawn_before: Clique,
    table: Buffer,
    rng: np.random.Generator,
) -> None:
    """Draw the attributes of a clique that the rows do not have yet, given the separator that they have."""
    new = tuple(a for a in clique if a not in drawn_before)
    n = columns.shape[1]
    order = rng.permutation(n)
    values = np.empty(n, np.int64)
    if not drawn_before:
        drawn = np.empty(n, np.int64)
        draw_cells(table.reshape(-1), float(rng.random()), drawn)
        values[order] = drawn
    else:
        axes = [clique.index(a) for a in (*drawn_before, *new)]
        given = np.ascontiguousarray(table.transpose(axes)).reshape(domain.size(drawn_before), -1)
        keys = np.ravel_multi_index(
            [columns[domain.position(a)] for a in drawn_before], domain.shape_of(drawn_before)
        )
        groups = group_rows(keys, order, len(given))
        occupied = np.flatnonzero(np.diff(groups.start))
        offsets = _offsets(len(occupied), rng)
        spread(fill_groups, len(occupied), n + given.size, given, groups, occupied, offsets, values)
    for a, codes in zip(new, np.unravel_index(values, domain.shape_of(new)), strict=True):
        columns[domain.position(a)] = codes


def _offsets(count: int, rng: np.random.Generator) -> Buffer:
    """Uniform offsets, spread evenly over each run of neighbours: small groups then share their rounding out."""
    runs = -(-count // RUN)
    place = rng.permuted(np.tile(np.arange(RUN), (runs, 1)), axis=1)
    return ((place + rng.random((runs, RUN))) / RUN).reshape(-1)[:count]


def _reachable(tree: JunctionTree, beliefs: CliqueVector) -> list[Buffer]:
    """The cliques' tables without cells from which some clique beneath could not go on.

    Beliefs agree on separators up to rounding only, so a cell of nearly no mass may have none on the other side.
    """
    domain, rooted = tree.domain, tree.rooted
    live = [beliefs[c] for c in tree.cliques]
    for c in reversed(rooted.below):
        separator, parent = rooted.separator[c], rooted.up[c]
        others = tuple(i for i, a in enumerate(tree.cliques[c]) if a not in separator)
        alive = live[c].sum(axis=others) > 0
        if not alive.all():
            shape = [domain[a] if a in separator else 1 for a in tree.cliques[parent]]
            live[parent] = live[parent] * alive.reshape(shape)
    if not live[rooted.root].sum() > 0:
        raise ConsilienceError(
            "the tables to draw rows from must leave some row possible, they leave none; "
            "fit the model more finely (tolerance=)"
        )
    return live
