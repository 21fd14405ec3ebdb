"""How far tables of regions are from agreeing: edges of equal shape are compared together, whatever their number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Clique, CliqueVector

AT_ONCE = 1 << 22
"""Cells of the larger tables that one comparison may copy."""


def negative_mass(tau: CliqueVector) -> float:
    """The largest sum of negative cells of one table."""
    return float(
        -np.add.reduceat(np.minimum(tau.values, 0), tau.layout.offsets[:-1]).min(initial=0.0)
    )


def mass_gap(tau: CliqueVector) -> float:
    """The largest |sum - 1| of one table."""
    return float(np.abs(np.add.reduceat(tau.values, tau.layout.offsets[:-1]) - 1).max(initial=0.0))


def edge_gap(tau: CliqueVector, regions: Sequence[Clique], edges: NDArray[np.int64]) -> float:
    """The largest L1 distance between a parent summed to its child and the child, over the edges."""
    worst = 0.0
    at = tau.layout.offsets
    for shape, axes, kept, pairs in _by_shape(tau, regions, edges):
        parents = at[pairs[:, 0], None] + np.arange(int(np.prod(shape)))
        children = at[pairs[:, 1], None] + np.arange(int(np.prod(kept)))
        summed = tau.values[parents].reshape(-1, *shape).sum(axis=axes).reshape(len(pairs), -1)
        worst = max(worst, float(np.abs(summed - tau.values[children]).sum(axis=1).max()))
    return worst


def _by_shape(
    tau: CliqueVector, regions: Sequence[Clique], edges: NDArray[np.int64]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], NDArray[np.int64]]]:
    """(shape of the parent, axes to sum over, shape of the child, the edges of this kind), at most AT_ONCE cells each."""
    size = tau.layout.domain
    groups: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    shapes = [tuple([size[a] for a in r]) for r in regions]
    for e, (p, c) in enumerate(edges.tolist()):
        held = set(regions[c])
        axes = tuple([i + 1 for i, a in enumerate(regions[p]) if a not in held])
        groups.setdefault((shapes[p], axes), []).append(e)
    for (shape, axes), members in groups.items():
        kept = tuple(n for i, n in enumerate(shape) if i + 1 not in axes)
        step = max(1, AT_ONCE // max(1, int(np.prod(shape))))
        for start in range(0, len(members), step):
            yield shape, axes, kept, edges[members[start : start + step]]
