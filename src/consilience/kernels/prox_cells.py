"""z = prox(v), cell by cell: what the splitting solver asks of single cells."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

from consilience.kernels.elementary import exp, log
from consilience.kernels.options import LOOP, PARALLEL

NONNEGATIVE, MASKED, ENTROPIC, ABSOLUTE, GIVEN = 0, 1, 2, 3, 4
"""What a root's prox is: clip at zero; clip and keep impossible cells at zero; pull towards a prior in KL; soft threshold
around the data (and clip); given from outside."""

BLOCK = 256
"""Cells treated at once where several passes over them are needed."""


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
def prox_cells(mode: int, v: Any, extra: Any, pull: float, z: Any) -> None:
    """z = prox(v), cell by cell. `pull` is the weight of the extra term over the penalty."""
    if mode == NONNEGATIVE:
        for c in range(v.size):
            z[c] = max(v[c], 0.0)
    elif mode == MASKED:
        for c in range(v.size):
            z[c] = max(v[c], 0.0) if extra[c] > 0.0 else 0.0
    elif mode == ENTROPIC:
        _entropic(v, extra, pull, z)
    elif mode == ABSOLUTE:
        for c in range(v.size):
            gap = v[c] - extra[c]
            moved = extra[c] + max(gap - pull, 0.0) + min(gap + pull, 0.0)
            z[c] = max(moved, 0.0)
    else:
        for c in range(v.size):
            z[c] = extra[c]


@njit(**PARALLEL)
def prox_all(
    v: Any, extra: Any, mode: Any, pull: Any, z: Any, at: Any, rows: Any, inner: Any,
) -> None:  # fmt: skip
    """z = prox(v) for every root."""
    for r in prange(at.size):
        lo, hi = at[r], at[r] + rows[r] * inner[r]
        prox_cells(mode[r], v[lo:hi], extra[lo:hi], pull[r], z[lo:hi])
