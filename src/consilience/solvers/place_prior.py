"""A pull on the smallest places: towards the shape of the place that they lie in, as far as their noise warrants.

A block is measured with as much noise as a whole county, and its neighbours say more about it than that measurement: m, its total
times its parent's shape. How far true tables lie from m is read off all blocks together. By least squares each cell is a with the
variance s^2 of its noise, so the mean of (a - m)^2 - s^2 is that of the true distances, and it is taken to be
phi_1 m + phi_2 m^2: people come by ones, and neighbours differ. Then

    minimise  L(x) + sum over cells (x - m)^2 / (2 (phi_1 m + phi_2 m^2))

over the leaves' tables, whose sums are those of the fit without a pull: nothing changes above the leaves. Biased towards m, and
on the average over places closer (docs/hierarchies.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer
from consilience.progress import Progress
from consilience.solvers.place_problem import PlaceProblem
from consilience.solvers.place_splitting import PlaceSolution, fit_places
from consilience.solvers.places import Asked, PlaceQuery, PlaceRange, Places, Pull

LEAST_VARIANCE = 0.02
"""Of a cell: where a parent has nobody of a kind, a child seldom has, and the parent's zero is an estimate too."""
LEAST_PHI = 1.0
"""Of people who come by ones, independently; noise may make the estimate anything."""


def towards_parents(
    places: Places,
    shape: Sequence[int],
    queries: Sequence[PlaceQuery],
    controls: Sequence[PlaceRange],
    fitted: PlaceSolution,
    *,
    possible: NDArray[np.bool_] | None = None,
    tolerance: float = 1e-4,
    workers: Any = None,
    progress: Progress | None = None,
) -> tuple[PlaceSolution, float]:
    """The fitted tables with the leaves pulled, and the mean share that the pull has in a cell; sums above the leaves stay."""
    tables = fitted.tables.reshape(places.leaves, -1)
    plain = [q for q in queries if q.groups is None]
    exact = [c for c in controls if c.is_exact]
    pull, noise = _pull(PlaceProblem(Asked.of(places, shape, plain, exact)), places, tables)
    whole, above = tuple(range(len(shape))), places.last - 1
    held = [PlaceRange.exact(above, whole, places.sums(tables, above))]
    held += [c for c in controls if c.level == places.last]
    found = fit_places(
        places,
        shape,
        queries,
        held,
        possible=possible,
        pull=pull,
        tolerance=tolerance,
        workers=workers,
        progress=progress,
    )
    both = replace(found, iterations=fitted.iterations + found.iterations, state=fitted.state)
    return both, float(_share(pull, noise).mean())


def pulled_variances(asked: Asked, tables: Buffer) -> Buffer:
    """Of every cell of the leaves, given what was measured and where its place lies; what it is pulled to has an error too, that
    of the leaf's total."""
    places, problem = asked.places, PlaceProblem(asked)
    if asked.deeper:
        places = Places(places.roots, places.parents[:-1])
    pull, noise = _pull(problem, places, tables)
    share, totals = _share(pull, noise), problem.cell_stderr(places.last, ())[:, None]
    shape = pull.to / np.maximum(pull.to.sum(axis=1, keepdims=True), 1e-300)
    return noise * (1.0 - share) + np.square(share * shape * totals)


def _share(pull: Pull, noise: Buffer) -> Buffer:
    """What part of a cell the pull decides, and not its noise."""
    return pull.weight * noise / (1.0 + pull.weight * noise)


def _pull(problem: PlaceProblem, places: Places, tables: Buffer) -> tuple[Pull, Buffer]:
    """The pull on every cell, and the variances of least squares."""
    sums = places.sums(tables, places.last - 1)
    shape = sums / np.maximum(sums.sum(axis=1, keepdims=True), 1e-300)
    to = tables.sum(axis=1, keepdims=True) * shape[places.parents[-1]]
    least = problem.order.back(problem.a[problem.last], problem.last)
    stderr = problem.cell_stderr(places.last, problem.components.whole)[:, None]
    noise = np.maximum(np.square(stderr), 1e-12)
    variance = _distances(np.square(least - to) - noise, to, noise)
    return Pull(to, 1.0 / variance), np.broadcast_to(noise, to.shape)


def _distances(squares: Buffer, to: Buffer, noise: Buffer) -> Buffer:
    """phi_1 m + phi_2 m^2 of every cell, from unbiased estimates of the squared distances, the noisier ones counted less."""
    reliance = 1.0 / (noise + 2.0 * to)
    terms = np.stack([(to * reliance).reshape(-1), (np.square(to) * reliance).reshape(-1)], axis=1)
    first, second = np.linalg.lstsq(terms, (squares * reliance).reshape(-1), rcond=None)[0]
    return max(first, LEAST_PHI) * to + max(second, 0.0) * np.square(to) + LEAST_VARIANCE
