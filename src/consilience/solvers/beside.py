"""Values beside a value: noisy single attributes, pulled towards what neighbouring codes say where that is closer.

Ages, incomes and dates are coded in order, and a code of theirs holds about as many people as those beside it. So each count y_i
is pulled towards b_i, a mean of the counts around it that leaves out its own; in units of the noise

    v_i = argmin (v - y_i)^2 / 2 + KL(v || b_i) / g.

A count that really stands out resists, because the pull grows with the logarithm of its distance only. Because b_i does not
depend on y_i, Stein's estimate of the risk is unbiased for every width of the mean and every g: the least one is taken, unless
leaving the counts as they are, but non-negative, is estimated to be as close. So codes without an order are left alone by the
estimate, and nobody has to declare which have one. Where the order shows, latent classes know that neighbouring codes are alike
(`solvers/mixture.py`). Only noisy values are used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import wrightomega

from consilience.domain import Buffer
from consilience.measurements.evidence import Evidence

WIDTHS = (0.7, 1.5, 3.0, 6.0, 12.0)
"""Of the means, in codes: standard deviations of a bell."""
FEWEST = 6
"""Codes of an attribute for each unit of width, at least."""
SMALLEST = 12
"""Codes of the smallest attribute that is pulled: below, there is little to gain, and the estimate is mostly chance."""
REACH = 4
"""A mean ends so many widths away."""
FREEDOMS = np.geomspace(1e-2, 1e3, 16)
TOLL = 0.2
"""Price of distance from the mean, in units of the noise: so that chance does not pay."""
ORDERS = 8
"""Other orders that an order is compared with: even counts without any are closer to a mean than to their noise."""
LEAST = 0.05
"""A mean is at least this part of the noise, so that a count can leave it."""


def beside(evidence: Evidence) -> Evidence:
    """The same evidence with what neighbouring codes say about single attributes."""
    layout = evidence.tables.layout
    tables, gains, widths = {}, {}, {}
    for i, clique in enumerate(layout.cliques):
        unit = float(np.sqrt(evidence.precision[1 + i]))
        if len(clique) != 1 or unit == 0 or evidence.domain.size(clique) < SMALLEST:
            continue
        y = evidence.tables.table(i) * unit
        found = _pulled_together(y)
        if found.gain > 1:
            tables[i], gains[i] = found.table / unit, found.gain
            if _shows_order(y, found):
                widths[i] = found.width
    return evidence.sharper(tables, gains, widths) if tables else evidence


def pulled(y: Buffer, base: Buffer, g: Buffer | float) -> Buffer:
    """argmin (v - y)^2 / 2 + KL(v || base) / g, in units of the noise."""
    return np.real(wrightomega(g * y + np.log(np.maximum(g * base, 1e-300)))) / g


@dataclass(frozen=True, eq=False)
class _Pulled:
    """Counts in units of the noise, pulled: how many times as precise they are by that, and the width of the mean."""

    table: Buffer
    risk: float
    """Estimated, with the toll."""
    gain: float = 1.0
    width: float = 0.0


def _pulled_together(y: Buffer) -> _Pulled:
    """The pull of least estimated risk; the counts themselves where that is leaving them."""
    cells, g = len(y), FREEDOMS[:, None]
    best = _Pulled(y, _risk_of_clipping(y))
    for width in WIDTHS:
        if cells < FEWEST * width:
            break
        mean = np.maximum(_mean_beside(y, width), LEAST)
        v = pulled(y, mean, g)
        bend = g * v / (1 + g * v)  # dv / dy
        risk = np.square(v - y).sum(axis=1) - cells + 2 * bend.sum(axis=1)
        tolled = risk + TOLL * np.sqrt(np.square(v - mean).sum(axis=1))
        k = int(tolled.argmin())
        if tolled[k] < best.risk:
            # A mean of so many codes cannot be known better than their number allows.
            most = 1 + 2 * np.sqrt(np.pi) * width
            gain = float(np.clip(cells / max(risk[k], 1e-300), 1.0, most))
            best = _Pulled(v[k], float(tolled[k]), gain, width)
    return best


def _shows_order(y: Buffer, found: _Pulled) -> bool:
    """Whether counts are pulled together better in their order than in any of a few other ones."""
    rng = np.random.default_rng(0)
    return all(found.risk < _pulled_together(rng.permutation(y)).risk for _ in range(ORDERS))


def _mean_beside(y: Buffer, width: float) -> Buffer:
    """The mean of the counts around each one, without itself, nearer ones weighing more."""
    far = min(int(np.ceil(REACH * width)), len(y) - 1)
    bell = np.exp(-0.5 * np.square(np.arange(-far, far + 1) / width))
    bell[far] = 0.0
    return (
        np.convolve(y, bell)[far : far + len(y)]
        / np.convolve(np.ones(len(y)), bell)[far : far + len(y)]
    )


def _risk_of_clipping(y: Buffer) -> float:
    """Stein's estimate for the nearest counts that are not negative and have the same sum."""
    total, falling = max(float(y.sum()), 0.0), np.sort(y)[::-1]
    level = (np.cumsum(falling) - total) / np.arange(1, len(y) + 1)
    kept = max(int((falling > level).sum()), 1)
    v = np.maximum(y - level[kept - 1], 0.0)
    return float(np.square(v - y).sum()) - len(y) + 2 * kept
