"""What HDMM measures: plain marginals together by OPT_M, cliques with ordered attributes each by a product of p-Identities.

The budget is divided over these groups for the least total squared error. A group that gets the share s of the budget has error
e / s^2 (Laplace) or e / s (Gaussian), so shares are in proportion to e^(1/3) or e^(1/2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from consilience.domain import Buffer, Clique, Workload
from consilience.measurements import Identity, Kronecker, Query
from consilience.mechanisms.strategies import Lattice
from consilience.mechanisms.strategies_marginals import Law, optimal_marginals
from consilience.mechanisms.strategies_ordered import (
    GRID_BITS,
    Factor,
    on_grid,
    p_identity,
    squared_error,
)
from consilience.mechanisms.strategies_queries import CELLS, IntegerQuery, Product
from consilience.privacy import Neighbours

_LARGEST_GRID = 30


@dataclass(frozen=True, eq=False)
class Item:
    """A query to measure, and its share of the budget (of epsilon, or of rho)."""

    clique: Clique
    query: IntegerQuery
    share: float


@dataclass(frozen=True, eq=False)
class Strategy:
    """Everything that HDMM measures; `gains` has tr((A^T A)^-1 W^T W) of each clique that is measured by a product."""

    law: Law
    items: tuple[Item, ...]
    lattice: Lattice | None
    plain: tuple[Clique, ...]
    gains: Mapping[Clique, float]


def workload_query(workload: Workload, queries: Mapping[str, Query], clique: Clique) -> Query:
    """What is asked of a clique: the product of its attributes' queries, every value where none is named."""
    return Kronecker(queries.get(a) or Identity(workload.domain[a]) for a in clique)


def make_strategy(
    workload: Workload,
    queries: Mapping[str, Query],
    law: Law,
    neighbours: Neighbours,
    *,
    restarts: int,
    seed: int,
    slack: float,
) -> Strategy:
    """The strategy of least expected error found; the same for the same arguments."""
    plain = tuple(c for c in workload if not any(a in queries for a in c))
    ordered = [c for c in workload if any(a in queries for a in c)]
    groups: list[tuple[float, list[tuple[Clique, IntegerQuery, float]]]] = []
    lattice = None
    if plain:
        part = Workload(workload.domain, {c: workload[c] for c in plain})
        lattice = Lattice.of(workload.domain, plain)
        found = optimal_marginals(
            part,
            law,
            total_known=neighbours is Neighbours.REPLACE_ONE,
            restarts=restarts,
            seed=seed,
            slack=slack,
            lattice=lattice,
        )
        power = 1 if law == "laplace" else 2
        mass = sum(w**power for w in found.weights.values())
        change = _change(CELLS, law, neighbours)
        members: list[tuple[Clique, IntegerQuery, float]] = [
            (c, CELLS, w**power / mass) for c, w in found.weights.items()
        ]
        groups.append((found.error * change, members))
    grams = {
        a: queries[a].gram() for a in dict.fromkeys(a for c in ordered for a in c) if a in queries
    }
    best = {a: p_identity(g, law, rows=_rows(len(g), law), seed=seed) for a, g in grams.items()}
    gains: dict[Clique, float] = {}
    for clique in ordered:
        query, gains[clique] = _product(workload, best, grams, law, clique)
        error = gains[clique] * _change(query, law, neighbours) / query.unit**2
        groups.append((workload[clique] ** 2 * error, [(clique, query, 1.0)]))
    roots = [error ** (1 / 3 if law == "laplace" else 1 / 2) for error, _ in groups]
    items = tuple(
        Item(clique, query, root / sum(roots) * share)
        for root, (_, members) in zip(roots, groups, strict=True)
        for clique, query, share in members
    )
    return Strategy(law, items, lattice, plain, gains)


def _change(query: IntegerQuery, law: Law, neighbours: Neighbours) -> float:
    """The squared sensitivity that scales the variance of the noise."""
    s = query.sensitivity(neighbours)
    return float(s.l1) ** 2 if law == "laplace" else float(s.l2_squared)


def _rows(size: int, law: Law) -> int:
    """p, the number of sums beside the cells. L2 columns have room for more of them than L1 columns."""
    return max(1, size // 16) if law == "laplace" else max(1, size // 4)


def _product(
    workload: Workload,
    best: Mapping[str, Buffer],
    grams: Mapping[str, Buffer],
    law: Law,
    clique: Clique,
) -> tuple[Product, float]:
    """The integer query of a clique with ordered attributes, and its error at unit variance."""
    count = sum(a in best for a in clique)
    bits = min(GRID_BITS, _LARGEST_GRID // count)
    factors: list[Factor | None] = [
        on_grid(best[a], law, bits) if a in best else None for a in clique
    ]
    sizes = workload.domain.shape_of(clique)
    gain = prod(
        float(n) if f is None else squared_error(f, grams[a])
        for a, n, f in zip(clique, sizes, factors, strict=True)
    )
    matrices = tuple(None if f is None else f.matrix for f in factors)
    grids = tuple(1 if f is None else f.grid for f in factors)
    return Product(sizes, matrices, grids), gain


def squared_errors(
    strategy: Strategy, stddevs: Mapping[Clique, float], total_known: bool
) -> dict[Clique, float]:
    """Expected squared error of all answers on each clique of the workload, by least squares.

    `stddevs` is the noise of each item, in counts. A clique that is measured by a product is judged by that alone.
    """
    errors = {c: gain * stddevs[c] ** 2 for c, gain in strategy.gains.items()}
    if strategy.lattice is not None:
        precision = np.zeros(len(strategy.lattice.subsets))
        for item in strategy.items:
            if item.query is CELLS:
                precision[strategy.lattice.index[item.clique]] = stddevs[item.clique] ** -2.0
        known = strategy.lattice.spread @ precision
        each = strategy.lattice.squared_errors(known, strategy.plain, total_known)
        errors |= dict(zip(strategy.plain, each.tolist(), strict=True))
    return errors
