"""Functions of counts in bins: ratios, means and quantiles, what the bins leave open, and what a reader must know of them.

Counts have the bins along their last axis; whatever comes before it, groups or replicates, is answered at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.data.within import Values
from consilience.errors import ConsilienceError
from consilience.release.questions import Measure

Numbers = NDArray[np.float64]
Pair = tuple[Numbers, Numbers]


def over(top: Numbers, bottom: Numbers) -> Numbers:
    """A ratio; of nobody there is none."""
    top, bottom = np.broadcast_arrays(top, bottom)
    return np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0)


def aligned(one: Numbers | None, two: Numbers | None) -> tuple[Numbers | None, Numbers | None]:
    """The replicates that both have: an inferred table may have fewer of the same ones."""
    if one is None or two is None:
        return None, None
    count = min(len(one), len(two))
    return one[:count], two[:count]


def quantile(values: Values, counts: Numbers, level: float) -> Numbers:
    bins, share = bin_of_quantile(counts, level)
    slopes = np.take_along_axis(values.slopes(counts), bins[..., None], axis=-1)[..., 0]
    found = np.clip(values.at(slopes, bins, share), values.first[bins], values.last[bins])
    return np.where(counts.sum(axis=-1) > 0, found, np.nan)


def bin_of_quantile(counts: Numbers, level: float) -> tuple[NDArray[np.intp], Numbers]:
    """The bin that a quantile lies in, and the share of the bin below it."""
    sums = np.cumsum(counts, axis=-1)
    wanted = level * sums[..., -1:]
    bins = np.minimum((sums < wanted).sum(axis=-1), counts.shape[-1] - 1)
    inside = np.take_along_axis(counts, bins[..., None], axis=-1)[..., 0]
    below = np.take_along_axis(sums, bins[..., None], axis=-1)[..., 0] - inside
    return bins, np.divide(
        wanted[..., 0] - below, inside, out=np.full(inside.shape, 0.5), where=inside > 0
    )


def bounds_of(values: Values, counts: Numbers, measure: Measure) -> Pair:
    """What the number is at least and at most, wherever in their bins the values are."""
    if measure.kind in ("median", "quantile"):
        bins, _ = bin_of_quantile(counts, measure.level)
        return values.first[bins], values.last[bins]
    sums = [(counts * end).sum(axis=-1) for end in (values.first, values.last)]
    if measure.kind == "mean":
        sums = [over(s, counts.sum(axis=-1)) for s in sums]
    return sums[0], sums[1]


def compared_bounds(first: Pair, second: Pair, ratio: bool) -> Pair:
    """Of a difference or a ratio of numbers that are only known to lie between bounds."""
    (a, b), (c, d) = first, second
    if not ratio:
        return a - d, b - c
    corners = np.array([over(x, y) for x in (a, b) for y in (c, d)])
    corners = np.where((c > 0) & (d > 0), corners, np.nan)
    return corners.min(axis=0), corners.max(axis=0)


def notes_on(
    values: Values, counts: Numbers, kept: tuple[int, ...] | None, left_out: float
) -> tuple[str, ...]:
    """What a reader must know about the numbers behind a mean: open ends, the widest bin's share, who has none."""
    notes = []
    used = list(values.codes) if kept is None else [c for c in values.codes if c in kept]
    if not used:
        raise ConsilienceError(
            f"the conditions must leave numbers of {values.name!r}, they leave none"
        )
    top = values.codes.index(used[-1])
    total = counts.sum()
    if values.last[top] > values.first[top] and total > 0:
        share = counts[..., top].sum() / total
        ends = f"{values.first[top]:,.6g} to {values.last[top]:,.6g}"
        beyond = (
            ", and values above, which count as in it"
            if values.open_above and top == len(values.codes) - 1
            else ""
        )
        notes.append(
            f"the top bin of {values.name} is {ends}{beyond}: {100 * share:.2g} % of the people"
        )
    if left_out > 5e-4:
        notes.append(f"{100 * left_out:.2g} % of the people have no number there and are left out")
    return tuple(notes)
