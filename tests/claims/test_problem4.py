"""Problem 4: least violation of the overlaps, then maximum entropy (or least divergence from a start). Judge: Clarabel, twice."""

from __future__ import annotations

from itertools import combinations

import clarabel
import numpy as np
import pytest
from scipy import sparse

from consilience.domain import CliqueVector, Domain
from consilience.model.out_of_model import project, uniform_start
from consilience.regions import RegionGraph
from consilience.regions.pseudo_marginals import PseudoMarginals
from model.cases import known_of, random_joint, unrealisable

D = Domain({"a": 2, "b": 3, "c": 2, "d": 3, "e": 2})
EVERY = ("a", "b", "c")


def settings() -> clarabel.DefaultSettings:
    made = clarabel.DefaultSettings()
    made.verbose = False
    made.tol_gap_abs = made.tol_gap_rel = made.tol_feas = 1e-12
    made.max_threads = 1
    return made


def overlaps(known: PseudoMarginals, clique) -> tuple[np.ndarray, np.ndarray]:
    """(A, t): the rows of the maximal overlaps, cell by cell, and what the model says there."""
    shape = known.domain.shape_of(clique)
    inside = {tuple(a for a in c if a in clique) for c in known.cliques} - {()}
    largest = [s for s in sorted(inside) if not any(set(s) < set(o) for o in inside)]
    rows, right = [], []
    for part in largest:
        table = known.table(part)
        for cell in np.ndindex(*table.shape):
            row = np.zeros(shape)
            row[tuple(cell[part.index(a)] if a in part else slice(None) for a in clique)] = 1
            rows.append(row.reshape(-1))
            right.append(table[cell])
    return np.array(rows), np.array(right)


def least_violation(a: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The marginals of the minimisers of |A x - t|^2 over the simplex; they are unique."""
    n = a.shape[1]
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix(np.triu(2 * a.T @ a)),
        -2 * a.T @ t,
        sparse.csc_matrix(np.vstack([np.ones((1, n)), -np.eye(n)])),
        np.concatenate([[1.0], np.zeros(n)]),
        [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(n)],
        settings(),
    )
    return a @ np.maximum(np.array(solver.solve().x), 0)


def closest(a: np.ndarray, m: np.ndarray, q: np.ndarray) -> np.ndarray:
    """argmin KL(x || q) with A x = m by the exponential cone; a little slack because m is a solver's answer."""
    n, k = a.shape[1], len(m)
    eye, none = np.eye(n), np.zeros((n, n))
    slack = 1e-9
    rows = [np.hstack([np.ones((1, n)), np.zeros((1, n))]), np.hstack([a, np.zeros((k, n))])]
    rows += [-rows[1], np.hstack([-eye, none])]
    cone, right = np.zeros((3 * n, 2 * n)), np.zeros(3 * n)
    for j in range(n):  # (-t, x, 1): t >= x log x
        cone[3 * j, n + j], cone[3 * j + 1, j], right[3 * j + 2] = 1.0, -1.0, 1.0
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix((2 * n, 2 * n)),
        np.concatenate([-np.log(q), np.ones(n)]),
        sparse.csc_matrix(np.vstack([*rows, cone])),
        np.concatenate([[1.0], m + slack, slack - m, np.zeros(n), right]),
        [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * k + n)]
        + [clarabel.ExponentialConeT()] * n,
        settings(),
    )
    return np.maximum(np.array(solver.solve().x)[:n], 0)


def starts(known: PseudoMarginals, clique, seed: int) -> dict[str, np.ndarray]:
    shape = known.domain.shape_of(clique)
    made = np.random.default_rng(seed).dirichlet(np.full(int(np.prod(shape)), 1.0)).reshape(shape)
    return {"uniform": np.full(shape, 1 / made.size), "informed": made}


@pytest.mark.parametrize("start", ["uniform", "informed"])
@pytest.mark.parametrize("words", ["ab bc cd de", "ab ac ad bc bd", "abc bcd de", "ab bc ac d e"])
def test_where_the_overlaps_can_be_met(words: str, start: str) -> None:
    known = known_of(D, random_joint(D, 4), words)
    asked = [c for k in (2, 3) for c in combinations(D.attributes, k) if not known.holds(c)]
    found, violation = project(known, asked, lambda c: starts(known, c, 7)[start])
    assert violation.max() <= 1e-10
    for clique, table in zip(asked, found, strict=True):
        a, t = overlaps(known, clique)
        np.testing.assert_allclose(a @ table.reshape(-1), t, atol=1e-10)
        q = starts(known, clique, 7)[start].reshape(-1)
        np.testing.assert_allclose(table.reshape(-1), closest(a, t, q), atol=1e-5)


@pytest.mark.parametrize("start", ["uniform", "informed"])
@pytest.mark.parametrize("strength", [0.8, 0.95, 1.0])
def test_where_they_can_not(strength: float, start: str) -> None:
    """Pairs that no joint has: the violation is the least there is, and the table the closest of those that reach it."""
    known = unrealisable(strength)
    q = starts(known, EVERY, 3)[start]
    (table,), violation = project(known, [EVERY], lambda _: q)
    a, t = overlaps(known, EVERY)
    m = least_violation(a, t)
    reached, least = np.square(a @ table.reshape(-1) - t).sum(), np.square(m - t).sum()
    assert least > 1e-3
    assert reached <= least * (1 + 1e-5)
    np.testing.assert_allclose(table.reshape(-1), closest(a, m, q.reshape(-1)), atol=1e-5)
    worst = max(np.abs((a @ table.reshape(-1) - t)[i : i + 4]).sum() for i in (0, 4, 8))
    assert violation[0] == pytest.approx(worst)


def test_many_at_once_are_each_alone() -> None:
    """Thousands of tables in one call; every one has the bits that it has by itself."""
    domain = Domain({f"x{i}": 2 + i % 3 for i in range(30)})
    rng = np.random.default_rng(0)
    names = domain.attributes
    cliques = [(names[i], names[i + 1]) for i in range(29)]
    graph = RegionGraph.factor_graph(domain, cliques)
    ones = {a: rng.dirichlet(np.ones(domain[a])) for a in names}
    tables = {
        r: np.outer(*(ones[a] for a in r)) if len(r) == 2 else ones[r[0]] for r in graph.regions
    }
    known = PseudoMarginals.of(graph, CliqueVector.from_tables(domain, tables), cliques)
    asked = [c for c in combinations(names, 3) if not known.holds(c)]
    assert len(asked) > 4000
    seen: list[tuple[int, int]] = []
    found, violation = project(
        known, asked, uniform_start(known), lambda s: seen.append((s.done, s.total))
    )
    assert violation.max() <= 1e-10
    assert seen[-1] == (len(asked), len(asked))
    for k in range(0, len(asked), 500):
        (alone,), _ = project(known, [asked[k]], uniform_start(known))
        np.testing.assert_array_equal(found[k], alone)
        product = np.einsum("i,j,k->ijk", *(ones[a] for a in asked[k]))
        np.testing.assert_allclose(found[k], product, atol=1e-9)


def test_nothing_known_leaves_the_start() -> None:
    known = known_of(D, random_joint(D, 4), "ab")
    (table,), violation = project(known, [("d", "e")], uniform_start(known))
    np.testing.assert_allclose(table, 1 / 6)
    assert violation[0] == 0.0
