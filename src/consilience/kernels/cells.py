"""Loops over the cells of whole tables: what the splitting solver asks of single cells, priors of pairs, and the two ways to
remove negative cells without changing a table's sum."""

from __future__ import annotations

from math import log as scalar_log
from typing import Any

import numpy as np
from numba import njit

from consilience.kernels.elementary import exp, log
from consilience.kernels.options import LOOP
from consilience.kernels.tables import Shapes

NONNEGATIVE, MASKED, ENTROPIC, ABSOLUTE, GIVEN = 0, 1, 2, 3, 4
"""What a root's prox is: clip at zero; clip and keep impossible cells at zero; pull towards a prior in KL; soft threshold
around the data (and clip); given from outside."""

BLOCK = 256
"""Cells treated at once where several passes over them are needed."""
LARGEST_FACTOR = 1e3
"""Largest factor by which one step changes an entry of a prior's one-way marginal."""


@njit(**LOOP)
def wright_omega(q: Any, w: Any) -> None:
    """w > 0 with w + log w = q, cell by cell: a start good to a few percent, then two steps of fourth order.

    Each pass is a short loop of its own, because one long one would not vectorise.
    """
    for c in range(q.size):
        e = exp(min(q[c], 1.0))
        w[c] = e / (1.0 + 0.6 * e)
    for c in range(q.size):
        far = q[c] - log(max(q[c], 1.0))
        w[c] = far if q[c] > 1.0 else w[c]
    for _ in range(2):
        for c in range(q.size):
            rest = q[c] - w[c] - log(w[c])
            up = 1.0 + w[c]
            two = 2.0 * up * (up + 2.0 / 3.0 * rest)
            w[c] *= 1.0 + rest / up * (two - rest) / (two - 2.0 * rest)


@njit(**LOOP)
def _entropic(v: Any, prior: Any, pull: float, z: Any) -> None:
    """min pull (z log(z / prior) - z) + (z - v)^2 / 2 asks z + pull log z = v + pull log prior.

    In w = z / pull that is w + log w = v / pull + log(prior / pull).
    """
    q, w = np.empty(BLOCK), np.empty(BLOCK)
    for lo in range(0, v.size, BLOCK):
        hi = min(lo + BLOCK, v.size)
        values, base, out, ask = v[lo:hi], prior[lo:hi], z[lo:hi], q[: hi - lo]
        for c in range(ask.size):
            ask[c] = max(values[c] / pull + log(max(base[c], 1e-300) / pull), -600.0)
        wright_omega(ask, w[: hi - lo])
        for c in range(ask.size):
            out[c] = pull * w[c] if base[c] > 0.0 else 0.0


@njit(**LOOP)
def prox_entropic(
    first: int, last: int, v: Any, extra: Any, mode: Any, pull: Any, z: Any, tables: Shapes
) -> None:
    """z = prox(v) of the ENTROPIC tables. `pull` is the weight of the extra term over the penalty."""
    for r in range(first, last):
        if mode[r] == ENTROPIC:
            lo, hi = tables.at[r], tables.at[r] + tables.rows[r] * tables.inner[r]
            _entropic(v[lo:hi], extra[lo:hi], pull[r], z[lo:hi])


@njit(**LOOP)
def pull_risks(
    first: int, last: int, y: Any, base: Any, unit: Any, freedom: Any, price: Any, at: Any, risk: Any, far: Any
) -> None:  # fmt: skip
    """Stein's estimate of the squared distance of each pulled table from the truth, for every freedom g in a list.

    In units of the noise the pulled table is v = argmin (v - y)^2 / 2 + KL(v || base) / g, so that w = g v has
    w + log w = g y + log(g base) and dv / dy = w / (1 + w); `price` is the share of the cells' noise that a table has. far is
    the squared distance from the base.
    """
    q, w = np.empty(BLOCK), np.empty(BLOCK)
    for r in range(first, last):
        for j in range(freedom.size):
            g, s = freedom[j], unit[r]
            off, bend, away = 0.0, 0.0, 0.0
            for lo in range(at[r], at[r + 1], BLOCK):
                hi = min(lo + BLOCK, at[r + 1])
                values, prior, ask = y[lo:hi], base[lo:hi], q[: hi - lo]
                for c in range(ask.size):
                    ask[c] = max(g * s * values[c] + log(max(g * s * prior[c], 1e-300)), -600.0)
                wright_omega(ask, w[: hi - lo])
                for c in range(ask.size):
                    v = w[c] / g
                    off += (v - s * values[c]) ** 2
                    bend += 2.0 * w[c] / (1.0 + w[c]) - 1.0
                    away += (v - s * prior[c]) ** 2
            risk[r, j] = off + price[r] * bend
            far[r, j] = away


@njit(**LOOP)
def _prox(mode: int, v: Any, extra: Any, pull: float, z: Any) -> None:
    if mode == MASKED:
        for c in range(v.size):
            z[c] = max(v[c], 0.0) if extra[c] > 0.0 else 0.0
    elif mode == ABSOLUTE:
        for c in range(v.size):
            gap = v[c] - extra[c]
            moved = extra[c] + max(gap - pull, 0.0) + min(gap + pull, 0.0)
            z[c] = max(moved, 0.0)
    elif mode == GIVEN:
        for c in range(v.size):
            z[c] = extra[c]


@njit(**LOOP)
def prox_tables(
    first: int, last: int, v: Any, extra: Any, mode: Any, pull: Any, z: Any, tables: Shapes
) -> None:
    """z = prox(v) of the MASKED, ABSOLUTE and GIVEN tables."""
    for r in range(first, last):
        lo, hi = tables.at[r], tables.at[r] + tables.rows[r] * tables.inner[r]
        _prox(mode[r], v[lo:hi], extra[lo:hi], pull[r], z[lo:hi])


# -- the prior of pairs that follows the fit ------------------------------------------------------------


@njit(**LOOP)
def _moved(old: Any, fit: Any, beyond: float, least: float) -> Any:
    """old (fit / old)^beyond, normalised: at 1 the fit's own marginal, above 1 a step past it."""
    whole = 0.0
    for c in range(old.size):
        before = max(old[c], least)
        ratio = min(max(fit[c] / before, 1.0 / LARGEST_FACTOR), LARGEST_FACTOR)
        old[c] = before * np.exp(beyond * scalar_log(ratio))
        whole += old[c]
    return old / whole


@njit(**LOOP)
def follow_pairs(
    first: int, last: int, fit: Any, prior: Any, pairs: Any, tables: Shapes, beyond: float, least: float
) -> None:  # fmt: skip
    """Move the one-way marginals of each listed pair's prior to the fit's, and the prior to their product."""
    for k in range(first, last):
        i = pairs[k]
        lo, n, m = tables.at[i], tables.rows[i], tables.inner[i]
        found, kept = fit[lo : lo + n * m].reshape(n, m), prior[lo : lo + n * m].reshape(n, m)
        down = _moved(kept.sum(axis=1), found.sum(axis=1), beyond, least)
        across = _moved(kept.sum(axis=0), found.sum(axis=0), beyond, least)
        for r in range(n):
            for c in range(m):
                kept[r, c] = max(down[r] * across[c], least * least)


# -- non-negativity with the same sum ----------------------------------------------------------------


@njit(**LOOP)
def norm_cut_one(x: Any) -> None:
    """Negative cells become 0, and so do the smallest positive ones until as much mass is gone; the last only in part."""
    owed, positive = 0.0, 0
    for c in range(x.size):
        if x[c] < 0.0:
            owed -= x[c]
            x[c] = 0.0
        elif x[c] > 0.0:
            positive += 1
    if owed == 0.0:
        return
    place = np.empty(positive, np.int64)
    kept = np.empty(positive)
    i = 0
    for c in range(x.size):
        if x[c] > 0.0:
            place[i] = c
            kept[i] = x[c]
            i += 1
    order = np.argsort(kept, kind="mergesort")  # stable: equal cells go in table order
    for i in range(positive):
        taken = min(owed, kept[order[i]])
        x[place[order[i]]] = kept[order[i]] - taken
        owed -= taken
        if owed <= 0.0:
            return


@njit(**LOOP)
def norm_sub_one(x: Any) -> None:
    """The closest table (Euclidean) without negative cells and with the same sum: max(x - s, 0) for one number s."""
    total, lowest = 0.0, 0.0
    for c in range(x.size):
        total += x[c]
        lowest = min(lowest, x[c])
    if lowest >= 0.0:
        return
    if total <= 0.0:
        x[:] = 0.0
        return
    ordered = np.sort(x)
    above, shift = 0.0, 0.0
    for i in range(x.size):
        largest = ordered[x.size - 1 - i]
        above += largest
        s = (above - total) / (i + 1)
        if largest <= s:
            break
        shift = s
    for c in range(x.size):
        x[c] = max(x[c] - shift, 0.0)


@njit(**LOOP)
def norm_cut_all(first: int, last: int, x: Any, at: Any, cells: Any) -> None:
    """`norm_cut_one` of each table."""
    for r in range(first, last):
        norm_cut_one(x[at[r] : at[r] + cells[r]])


@njit(**LOOP)
def norm_sub_all(first: int, last: int, x: Any, at: Any, cells: Any) -> None:
    """`norm_sub_one` of each table."""
    for r in range(first, last):
        norm_sub_one(x[at[r] : at[r] + cells[r]])
