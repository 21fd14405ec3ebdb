"""What the plan foresees beside what it takes, on shapes of many kinds: work by count, and seconds of one processor.

`shapes()` are the problems; a test holds foreseen against counted work on every one of them (tests/solvers/test_work.py). None of
them was among the solves that the constants of `solvers/work.py` were fitted to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from time import process_time

import numpy as np
from problems import ADULT
from rows import Row, seconds
from scipy import sparse

import consilience as cs

FIRE = (42, 31, 13, 10, 2, 2, 5, 5, 20, 41, 6, 4, 13, 26, 21)


@dataclass(frozen=True)
class Shape:
    """One problem: noisy tables of generated people, and how they are fitted."""

    name: str
    domain: cs.Domain
    measured: list[cs.Measurement]
    total: float
    fit: cs.LeastSquares

    def solve(self) -> cs.Model:
        return cs.reconstruct(self.domain, self.measured, self.total, self.fit)


def people(sizes: Sequence[int], rows: int, seed: int, classes: int = 8) -> cs.Dataset:
    """Rows of a mixture of products with uneven, mostly small shares: as empty in places as real tables."""
    rng = np.random.default_rng(seed)
    one = rng.choice(classes, rows, p=rng.dirichlet(np.ones(classes)))
    codes = np.empty((rows, len(sizes)), np.int64)
    for i, n in enumerate(sizes):
        steps = rng.dirichlet(np.full(n, 0.3), classes).cumsum(axis=1)
        codes[:, i] = np.minimum((rng.random(rows)[:, None] > steps[one]).sum(axis=1), n - 1)
    return cs.Dataset(codes, cs.Domain({f"x{i:02d}": n for i, n in enumerate(sizes)}))


def shapes() -> Iterator[Shape]:
    """24 shapes: pairs, triples, single columns, trees, loops, one table, many small tables, sums; each at two noises."""
    adult, fire = people(ADULT, 20_000, 1), people(FIRE, 50_000, 2)
    small, fours = people((4,) * 9, 5_000, 3), people((4,) * 40, 20_000, 4)
    for stddev in (100.0, 5.0):
        for name, data in (("adult", adult), ("fire", fire), ("small", small)):
            names = data.domain.attributes
            pairs = list(combinations(names, 2))
            yield plain(f"pairs of {name}", data, pairs, stddev, "local")
            yield plain(f"a chain of {name}", data, list(pairwise(names)), stddev, "global")
        yield plain("columns of adult", adult, [(a,) for a in adult.domain], stddev, "local")
        few = list(cs.random_marginals(fire.domain, 3, 16, seed=7))
        yield plain("16 triples of fire", fire, few, stddev, "local", 1e-3)
        many = list(cs.random_marginals(fours.domain, 3, 2_000, seed=7))
        yield plain("2,000 small triples", fours, many, stddev, "local", 1e-3)
        names = small.domain.attributes
        ring = [*pairwise(names), (names[0], names[-1])]
        yield plain("a ring, exact", small, ring, stddev, "global")
        inside = list(combinations(names[:5], 2))
        yield plain("pairs in one table, exact", small, inside, stddev, "global", 1e-3)
        yield sums(stddev)


def plain(
    name: str,
    data: cs.Dataset,
    cliques: Sequence[tuple[str, ...]],
    stddev: float,
    consistency: str,
    tolerance: float = 1e-6,
) -> Shape:
    rng = np.random.default_rng(99)
    measured = [
        cs.Measurement(c, table + rng.normal(0.0, stddev, table.shape), stddev=stddev)
        for c, table in data.marginals(cliques).items()
    ]
    fit = cs.LeastSquares(consistency=consistency, tolerance=tolerance)
    return Shape(f"{name}, noise {stddev:g}", data.domain, measured, data.records, fit)


def sums(stddev: float, places: int = 60, kinds: int = 14) -> Shape:
    """One table seen through sums over groups of places, as sparse queries."""
    rng = np.random.default_rng(5)
    people_in = rng.gamma(0.4, 60.0, (places, 1)) * rng.dirichlet(np.full(kinds, 0.5), places)
    truth = rng.poisson(people_in).astype(np.float64).reshape(-1)
    measured = []
    for groups in (1, 6, 20, places):
        of = np.arange(places) * groups // places
        ones = (np.ones(places), (of, np.arange(places)))
        query = sparse.kron(
            sparse.csr_array(ones, shape=(groups, places)), sparse.eye_array(kinds), "csr"
        )
        noisy = query @ truth + rng.normal(0.0, stddev, query.shape[0])
        measured.append(cs.Measurement(("place", "kind"), noisy, stddev=stddev, query=query))
    domain = cs.Domain({"place": places, "kind": kinds})
    name = f"sums over places, noise {stddev:g}"
    return Shape(name, domain, measured, float(truth.sum()), cs.LeastSquares())


def rows(full: bool = False) -> Iterator[Row]:
    shape = next(shapes())
    shape.solve()  # kernels are loaded
    for shape in shapes():
        start = process_time()
        found = shape.solve().diagnostics
        taken = process_time() - start
        assert found.plan is not None
        yield Row(
            f"price: {shape.name}",
            f"{seconds(taken)} of one processor",
            f"foreseen {seconds(found.plan.seconds)}",
            found.plan.work / found.work,
            f"foreseen / counted work, bar: 1/3 to 3; {found.iterations:,} iterations, {found.work:.2g} visits of cells",
        )
