"""Problem 4 from any start: the table that violates its overlaps with the model least, and among those the closest in KL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique
from consilience.kernels import projection
from consilience.progress import Progress, Step, quiet
from consilience.regions.pseudo_marginals import PseudoMarginals

TOLERANCE = 1e-10
"""Overlaps that can be met are met to this, in L1."""
ROUGH, ROUGH_CYCLES = 1e-3, 30
CHUNK_CELLS = 1 << 23
"""Cells that are worked on at a time."""

Start = Callable[[Clique], Buffer]


def uniform_start(known: PseudoMarginals) -> Start:
    """The start that gives maximum entropy: the paper's Problem 4."""
    domain = known.domain
    return lambda clique: np.full(domain.shape_of(clique), 1.0 / domain.size(clique))


def project(
    known: PseudoMarginals,
    cliques: Sequence[Clique],
    start: Start,
    progress: Progress = quiet,
    *,
    rough: bool = False,
) -> tuple[list[Buffer], Buffer]:
    """One distribution per clique, projected from its start onto agreement with the model; and what violation is left.

    The violation of a clique is the largest L1 distance to one of its maximal overlaps. `rough` stops at an agreement of
    ROUGH, or after ROUGH_CYCLES cycles.
    """
    tables: list[Buffer] = []
    violations = np.zeros(len(cliques))
    lo = 0
    while lo < len(cliques):
        hi, cells = lo, 0
        while hi < len(cliques) and (
            hi == lo or cells + known.domain.size(cliques[hi]) <= CHUNK_CELLS
        ):
            cells += known.domain.size(cliques[hi])
            hi += 1
        tables += _batch(known, cliques[lo:hi], start, violations[lo:hi], rough)
        lo = hi
        progress(Step("inferring marginals", lo, len(cliques)))
    return tables, violations


def _batch(
    known: PseudoMarginals,
    cliques: Sequence[Clique],
    start: Start,
    violations: Buffer,
    rough: bool,
) -> list[Buffer]:
    domain = known.domain
    x = [np.ascontiguousarray(start(c), np.float64).reshape(-1) for c in cliques]
    at = np.concatenate([[0], np.cumsum([len(t) for t in x])]).astype(np.int64)
    ptr, map_at, pool, targets = [0], [], [np.zeros(0, np.int32)], [np.zeros(0)]
    places: dict[tuple[tuple[int, ...], tuple[bool, ...]], int] = {}
    used = 0
    for clique in cliques:
        for part in known.overlaps(clique):
            key = (domain.shape_of(clique), tuple([a in part for a in clique]))
            if key not in places:
                places[key] = used
                pool.append(_map(*key))
                used += len(pool[-1])
            map_at.append(places[key])
            targets.append(known.table(part).reshape(-1))
        ptr.append(len(map_at))
    problem = projection.Problem(
        at=at,
        ptr=np.array(ptr, np.int64),
        map_at=np.array(map_at, np.int64),
        maps=np.concatenate(pool),
        target_at=np.cumsum([len(t) for t in targets]).astype(np.int64),
        target=np.concatenate(targets),
    )
    flat = np.concatenate(x)
    limits = (ROUGH, ROUGH_CYCLES) if rough else (TOLERANCE, projection.CYCLES)
    projection.project(problem, flat, violations, *limits)
    return [flat[at[i] : at[i + 1]].reshape(domain.shape_of(c)) for i, c in enumerate(cliques)]


def _map(shape: tuple[int, ...], kept: tuple[bool, ...]) -> NDArray[np.int32]:
    """Which cell of the table over the kept axes each cell belongs to."""
    small = [n if k else 1 for n, k in zip(shape, kept, strict=True)]
    cells = np.arange(int(np.prod(small)), dtype=np.int32).reshape(small)
    return np.ascontiguousarray(np.broadcast_to(cells, shape)).reshape(-1)
