"""The prior of pairs that follows the fit: each becomes the product of one-way marginals."""

from __future__ import annotations

from math import log as scalar_log
from typing import Any

import numpy as np
from numba import njit, prange

from consilience.kernels.options import LOOP, PARALLEL

MOST = 1e3
"""Largest factor by which one step changes an entry of a one-way marginal."""


@njit(**LOOP)
def _moved(old: Any, fit: Any, beyond: float, least: float) -> Any:
    """old (fit / old)^beyond, normalised: at 1 the fit's own marginal, above 1 a step past it."""
    whole = 0.0
    for c in range(old.size):
        before = max(old[c], least)
        ratio = min(max(fit[c] / before, 1.0 / MOST), MOST)
        old[c] = before * np.exp(beyond * scalar_log(ratio))
        whole += old[c]
    return old / whole


@njit(**PARALLEL)
def follow_pairs(
    fit: Any, prior: Any, pairs: Any, at: Any, rows: Any, inner: Any, beyond: float, least: float
) -> None:
    """Move the one-way marginals of each listed pair's prior to the fit's, and the prior to their product."""
    for k in prange(pairs.size):
        i = pairs[k]
        lo, n, m = at[i], rows[i], inner[i]
        found, kept = fit[lo : lo + n * m].reshape(n, m), prior[lo : lo + n * m].reshape(n, m)
        down = _moved(kept.sum(axis=1), found.sum(axis=1), beyond, least)
        across = _moved(kept.sum(axis=0), found.sum(axis=0), beyond, least)
        for r in range(n):
            for c in range(m):
                kept[r, c] = max(down[r] * across[c], least * least)
