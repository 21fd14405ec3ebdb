"""Work: what a solve costs in visits of cells. Foreseen from sizes and noise before it begins, counted when it has ended.

A visit is one cell of one table in one iteration; what a table or an iteration costs beyond its cells counts as so many of them.
No clock is read: a problem has the same price on every machine, and seconds are visits over a constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from consilience.domain import Clique, Cliques, dot
from consilience.errors import ConsilienceError
from consilience.measurements import Measurements, Query
from consilience.measurements.total import checked_total
from consilience.solvers.query_copy import way_of

PER_TABLE, PER_ITERATION = 60, 10_000
"""Visits that a table and an iteration cost beyond the cells."""
PER_SECOND = {"splitting": 1.3e8, "prox": 6.0e7}
"""Visits in a second of one thread."""
SET_UP = 3.0e-3, 2.0e-5
"""Seconds to compile a problem, and more for each of its tables."""
TYPICAL_NOISE = 3.0
PROX_TIMES = 5.0
"""Iterations of Prox-PGM for one of splitting; it varies more."""
MANY = 1000
"""Tables from which on the worst of them does not decide how long it takes (solvers/mending.py)."""
LARGEST = 10**15
"""Cells beyond which nothing is foreseen: forever."""


@dataclass(frozen=True)
class Load:
    """What the length of a solve depends on beside its tables.

    noise: standard deviation of a measured cell over the mean count of one, the mean over all cells. queries: visits for the
    linear systems of queries in one iteration. tolerance: the relative gap that it ends at.
    """

    noise: float = TYPICAL_NOISE
    queries: float = 0.0
    tolerance: float = 1e-6

    @staticmethod
    def of(measured: Measurements, total: float | None = None) -> Load:
        """The load of measurements that were made; a total that is not given is estimated if it can be."""
        of_queries: dict[Clique, list[Query]] = {}
        for i, query in measured.queries.items():
            if measured.cliques[i]:
                of_queries.setdefault(measured.cliques[i], []).append(query)
        systems = sum(way_of(queries)[1] for queries in of_queries.values())
        if total is None:
            try:
                total = checked_total(None, measured)
            except ConsilienceError:
                return Load(queries=systems)
        sizes = measured.cliques.sizes.astype(np.float64)
        noise = dot(np.square(sizes), measured.stddevs) / float(sizes.sum())
        return Load(noise / total, systems)


USUAL_LOAD = Load()
"""Before anything is measured."""


@dataclass(frozen=True)
class Tables:
    """The tables of a solve: how many, their cells, the size of the table that a cell lies in on average.

    decomposable: the measured tables form a junction tree, so consistency has no loops. unmeasured: some table is there for
    consistency alone.
    """

    count: int
    cells: int
    typical: float
    decomposable: bool
    unmeasured: bool

    @staticmethod
    def of(cliques: Cliques, decomposable: bool, unmeasured: bool) -> Tables:
        cells = cliques.cells
        typical = inf
        if cells <= LARGEST:
            sizes = cliques.sizes.astype(np.float64)
            typical = dot(sizes, sizes) / max(cells, 1)
        return Tables(len(cliques), cells, typical, decomposable, unmeasured)


def visits(cells: int, tables: int, queries: float = 0.0) -> float:
    """Of one iteration."""
    return cells + PER_TABLE * tables + PER_ITERATION + queries


def foreseen_iterations(tables: Tables, load: Load, solver: str) -> float:
    """How many iterations a solve takes as a rule: within a factor of three on nearly every problem tried.

    The exponents were fitted to some 400 solves of generated and real tables at all noise levels (benchmarks/prices.py). Noise
    makes more cells zero, and these must be found; large tables without data of their own are pulled only through their sums.
    """
    if tables.cells > LARGEST:
        return inf
    easier = (load.tolerance / 1e-6) ** -0.1
    many = 14.0 * tables.cells**0.144 * (1.0 + load.noise) ** 0.3
    if tables.count >= MANY:
        many *= 0.8 * min(1.0, MANY * tables.typical / tables.cells) ** 0.144
    if tables.decomposable:
        many *= 0.65
    if tables.unmeasured:
        many = max(many, max(6.0, 0.2 * tables.count**2) * tables.typical**0.44)
    if load.queries:
        many = max(many, 200.0)
    if solver == "prox":
        many *= PROX_TIMES
    return max(10.0, many * easier)


def foreseen(tables: Tables, load: Load, solver: str) -> float:
    """Visits of a whole solve."""
    many = foreseen_iterations(tables, load, solver)
    return many * visits(tables.cells, tables.count, load.queries) if many < inf else inf


def seconds(work: float, tables: int, solver: str) -> float:
    """About how long that takes."""
    return SET_UP[0] + SET_UP[1] * tables + work / PER_SECOND[solver]
