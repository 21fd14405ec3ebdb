"""The loops of tables on a tree of places: operators on components, the pass up, the pass down, and one iteration of splitting.

Tables are rows of `n` cells. An operator is a row of coefficients: of the average over each listed subset of attributes, and of
the table itself, last (solvers/place_components.py). The children of place p are first[p] to first[p + 1] of the level below.
Work items are places, each written by one thread, so that the order of every sum is fixed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from consilience.kernels.options import LOOP
from consilience.kernels.place_sharing import Ranges, share_out

STATS = 8
"""Numbers taken per parent of leaves: |x - z|^2, |z' - z|^2, <g, x - a>, its term of the lower bound, the lowest g where that
decides the bound, the sum of x, twice the objective's part of the feasible tables, and how far they leave their ranges."""


class Averages(NamedTuple):
    """Averages of a table of `cells` over subsets t: table t lies at[t] to at[t + 1], made from table source[t] (-1: the whole).

    The source is rows[t] rows of inner[t] cells; row i goes to the row maps[map_at[t] + i] // inner (kind 1), or its sum to
    that cell (kind 0); factor[t] makes sums averages.
    """

    cells: Any
    at: Any
    source: Any
    kind: Any
    rows: Any
    inner: Any
    maps: Any
    map_at: Any
    factor: Any


class Leaves(NamedTuple):
    """The leaves' tables: state v, least squares a, mask (one row for all, or one per leaf), feasible tables out.

    Leaves below a place with the same precision are a run: those of place p are runs[p] to runs[p + 1], run r is the leaves
    begin[r] to begin[r + 1], and kind[r] is the row of `own` (what a leaf makes of its information) and of `precision`.
    Rows of `share` say what a leaf of the run takes of what its parent still has to give. Cells are pulled by `pull` towards
    `to`, both without rows where nothing is.
    """

    v: Any
    a: Any
    mask: Any
    out: Any
    runs: Any
    begin: Any
    kind: Any
    own: Any
    precision: Any
    share: Any
    pull: Any
    to: Any


@njit(**LOOP)
def _cells(v: Any, mask: Any, rho: float, pull: Any, to: Any, i: int, z: Any) -> None:
    """z: the z >= 0 with the least pull/2 (z - to)^2 + rho/2 (z - v)^2 in each cell of leaf i; zero where it cannot occur."""
    if pull.shape[0] > 0:
        strength, target = pull[i], to[i]
        for c in range(v.size):
            mean = (rho * v[c] + strength[c] * target[c]) / (rho + strength[c])
            z[c] = max(mean, 0.0) if mask[c] else 0.0
    else:
        for c in range(v.size):
            z[c] = max(v[c], 0.0) if mask[c] else 0.0


@njit(**LOOP)
def _average(x: Any, averages: Averages, work: Any) -> None:
    """Every average of the table x, in `work`."""
    for t in range(averages.source.size):
        lo, hi = averages.at[t], averages.at[t + 1]
        out = work[lo:hi]
        out[:] = 0.0
        s, inner, rows, m = (
            averages.source[t],
            averages.inner[t],
            averages.rows[t],
            averages.map_at[t],
        )
        given = x if s < 0 else work[averages.at[s] : averages.at[s + 1]]
        if averages.kind[t] == 1:
            for i in range(rows):
                row, to = given[i * inner : (i + 1) * inner], averages.maps[m + i]
                target = out[to : to + inner]
                for j in range(inner):
                    target[j] += row[j]
        else:
            for i in range(rows):
                row, total = given[i * inner : (i + 1) * inner], 0.0
                for j in range(inner):
                    total += row[j]
                out[averages.maps[m + i]] += total
        factor = averages.factor[t]
        for j in range(out.size):
            out[j] *= factor


@njit(**LOOP)
def _add_along(out: Any, message: Any, t: int, averages: Averages) -> None:
    """out += table t, spread over the cells of its source."""
    inner, rows, m = averages.inner[t], averages.rows[t], averages.map_at[t]
    if averages.kind[t] == 1:
        for i in range(rows):
            row, at = out[i * inner : (i + 1) * inner], averages.maps[m + i]
            given = message[at : at + inner]
            for j in range(inner):
                row[j] += given[j]
    else:
        for i in range(rows):
            row, term = out[i * inner : (i + 1) * inner], message[averages.maps[m + i]]
            for j in range(inner):
                row[j] += term


@njit(**LOOP)
def operate(x: Any, row: Any, averages: Averages, work: Any, out: Any) -> None:
    """out = (sum over subsets t of row[t] E_t + row[-1]) x; `out` must not be x."""
    _average(x, averages, work)
    last = averages.source.size
    for t in range(last):
        g = row[t]
        for j in range(averages.at[t], averages.at[t + 1]):
            work[j] *= g
    g = row[last]
    for c in range(x.size):
        out[c] = g * x[c]
    for t in range(last - 1, -1, -1):
        message, s = work[averages.at[t] : averages.at[t + 1]], averages.source[t]
        if s < 0:
            _add_along(out, message, t, averages)
        else:
            _add_along(work[averages.at[s] : averages.at[s + 1]], message, t, averages)


@njit(**LOOP)
def operate_rows(first: int, last: int, x: Any, which: Any, rows: Any, averages: Averages) -> None:
    """Each table of x by its operator rows[which[i]], in place."""
    work, out = np.empty(averages.at[-1]), np.empty(averages.cells)
    for i in range(first, last):
        operate(x[i], rows[which[i]], averages, work, out)
        x[i] = out


@njit(**LOOP)
def energies(first: int, last: int, x: Any, a: Any, which: Any, rows: Any, averages: Averages, out: Any) -> None:  # fmt: skip
    """out[i] = <x - a, operator (x - a)> of each table."""
    work, off, got = np.empty(averages.at[-1]), np.empty(averages.cells), np.empty(averages.cells)
    for i in range(first, last):
        out[i] = _energy(x[i], a[i], rows[which[i]], averages, work, off, got)


@njit(**LOOP)
def _energy(x: Any, a: Any, row: Any, averages: Averages, work: Any, off: Any, got: Any) -> float:
    for c in range(x.size):
        off[c] = x[c] - a[c]
    operate(off, row, averages, work, got)
    total = 0.0
    for c in range(x.size):
        total += off[c] * got[c]
    return total


@njit(**LOOP)
def add_children(begin: int, end: int, first: Any, below: Any, out: Any) -> None:
    """out[p] = the sum of the children's tables."""
    for p in range(begin, end):
        total = out[p]
        total[:] = 0.0
        for c in range(first[p], first[p + 1]):
            row = below[c]
            for j in range(total.size):
                total[j] += row[j]


@njit(**LOOP)
def up(
    begin: int, end: int, sums: Any, rows: Any, extra: Any, averages: Averages, est: Any
) -> None:
    """est[p] = what the places below p and its own measurements say: operator times the children's sum, and `extra`."""
    work = np.empty(averages.at[-1])
    for p in range(begin, end):
        operate(sums[p], rows[p], averages, work, est[p])
        if extra.shape[0] > 0:
            out, more = est[p], extra[p]
            for c in range(out.size):
                out[c] += more[c]


@njit(**LOOP)
def down(
    begin: int, end: int, parent: Any, left: Any, share: Any, averages: Averages, est: Any
) -> None:
    """est[c] += its share of what its parent still has to give, left[parent]."""
    work, move = np.empty(averages.at[-1]), np.empty(averages.cells)
    for c in range(begin, end):
        operate(left[parent[c]], share[c], averages, work, move)
        out = est[c]
        for j in range(out.size):
            out[j] += move[j]


# -- one iteration ------------------------------------------------------------------------------------------


@njit(**LOOP)
def sweep(
    begin: int,
    end: int,
    rho: float,
    relax: float,
    leaves: Leaves,
    left: Any,
    sums: Any,
    averages: Averages,
) -> None:
    """The down pass of one iteration at the leaves and the up pass of the next, in one visit of each leaf.

    With z as `_cells` has it and information rho (2z - v - a) at each leaf: x = a + own(information) + share(left[parent]),
    v += relax (x - z), and sums[parent] = the sum over leaves of own(new information). relax = 0 makes the sums only.
    """
    n = averages.cells
    work, move, info = np.empty(averages.at[-1]), np.empty(n), np.empty(n)
    d, total, z = np.empty(n), np.empty(n), np.empty(n)
    for p in range(begin, end):
        sums[p] = 0.0
        for r in range(leaves.runs[p], leaves.runs[p + 1]):
            own = leaves.own[leaves.kind[r]]
            if relax != 0.0:
                operate(left[p], leaves.share[r], averages, work, move)
            total[:] = 0.0
            for i in range(leaves.begin[r], leaves.begin[r + 1]):
                v, a = leaves.v[i], leaves.a[i]
                mask = leaves.mask[min(i, leaves.mask.shape[0] - 1)]
                if relax != 0.0:
                    _cells(v, mask, rho, leaves.pull, leaves.to, i, z)
                    for c in range(n):
                        info[c] = rho * (2.0 * z[c] - v[c] - a[c])
                    operate(info, own, averages, work, d)
                    for c in range(n):
                        v[c] += relax * (a[c] + d[c] + move[c] - z[c])
                _cells(v, mask, rho, leaves.pull, leaves.to, i, z)
                for c in range(n):
                    total[c] += rho * (2.0 * z[c] - v[c] - a[c])
            operate(total, own, averages, work, d)
            for c in range(n):
                sums[p, c] += d[c]


@njit(**LOOP)
def rescale(
    begin: int, end: int, factor: float, rho: float, v: Any, mask: Any, pull: Any, to: Any
) -> None:
    """v as it is for another penalty: the multiplier rho (z - v) stays when rho is divided by `factor`."""
    z = np.empty(v.shape[1])
    for i in range(begin, end):
        row = v[i]
        _cells(row, mask[min(i, mask.shape[0] - 1)], rho, pull, to, i, z)
        for c in range(row.size):
            row[c] = z[c] + factor * (row[c] - z[c])


# -- the certificate and the feasible point -----------------------------------------------------------------


@njit(**LOOP)
def certify(
    begin: int, end: int, rho: float, relax: float, leaves: Leaves, left: Any, push: Any, target: Any, ranges: Ranges,
    rakes: int, averages: Averages, stats: Any,
) -> None:  # fmt: skip
    """STATS of each parent of leaves, and its leaves' feasible tables: not negative, with the sum target[p].

    x minimises the loss f plus penalties, so f >= f(x) + <g, x' - x> + w/2 |x' - x|^2 with g = rho (2z - v - x) (and `push`,
    what other terms leave on all leaves below p) and w the least precision of a leaf. The right side, with what pulls cells, is
    bounded below over x' >= 0 cell by cell.
    """
    n = averages.cells
    work, move, info, d, got = (
        np.empty(averages.at[-1]),
        np.empty(n),
        np.empty(n),
        np.empty(n),
        np.empty(n),
    )
    pushed, zs, news, next_z = np.zeros(n), np.empty(n), np.empty(n), np.empty(n)
    for p in range(begin, end):
        gap, moved, slope, term, lowest, mass = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        if push.shape[0] > 0:
            pushed = push[p]
        for r in range(leaves.runs[p], leaves.runs[p + 1]):
            k = leaves.kind[r]
            own, w = leaves.own[k], leaves.precision[k, -1]
            operate(left[p], leaves.share[r], averages, work, move)
            for i in range(leaves.begin[r], leaves.begin[r + 1]):
                v, a, out = leaves.v[i], leaves.a[i], leaves.out[i]
                mask = leaves.mask[min(i, leaves.mask.shape[0] - 1)]
                _cells(v, mask, rho, leaves.pull, leaves.to, i, zs)
                for c in range(n):
                    info[c] = rho * (2.0 * zs[c] - v[c] - a[c])
                operate(info, own, averages, work, d)
                for c in range(n):
                    news[c] = v[c] + relax * (a[c] + d[c] + move[c] - zs[c])
                _cells(news, mask, rho, leaves.pull, leaves.to, i, next_z)
                for c in range(n):
                    z, x = zs[c], a[c] + d[c] + move[c]
                    g = rho * (2.0 * z - v[c] - x)
                    slope += g * (x - a[c])
                    g += pushed[c]
                    gap += (x - z) * (x - z)
                    e = next_z[c] - z
                    moved += e * e
                    mass += x
                    p_c = leaves.pull[i, c] if leaves.pull.shape[0] > 0 else 0.0
                    to_c = leaves.to[i, c] if leaves.pull.shape[0] > 0 else 0.0
                    if w + p_c > 0.0:
                        to = max((w * x - g + p_c * to_c) / (w + p_c), 0.0) if mask[c] else 0.0
                        term += (g + 0.5 * w * (to - x)) * (to - x)
                        term += 0.5 * p_c * (to - to_c) * (to - to_c)
                    else:
                        term -= g * x
                        lowest = min(lowest, g) if mask[c] else lowest
                    out[c] = max(x, 0.0) if mask[c] else 0.0
        lo, hi = leaves.begin[leaves.runs[p]], leaves.begin[leaves.runs[p + 1]]
        bad = share_out(leaves.out, leaves.mask, lo, hi, target[p], ranges, rakes, move, info)
        energy = 0.0
        for r in range(leaves.runs[p], leaves.runs[p + 1]):
            row = leaves.precision[leaves.kind[r]]
            for i in range(leaves.begin[r], leaves.begin[r + 1]):
                energy += _energy(leaves.out[i], leaves.a[i], row[:-1], averages, work, d, got)
                if leaves.pull.shape[0] > 0:
                    for c in range(n):
                        off = leaves.out[i, c] - leaves.to[i, c]
                        energy += leaves.pull[i, c] * off * off
        out = stats[p]
        out[0], out[1], out[2], out[3], out[4] = gap, moved, slope, term, lowest
        out[5], out[6], out[7] = mass, energy, bad
