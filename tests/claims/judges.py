"""Independent judges, slow and plain on purpose: the enumerated joint, the explicit local polytope, a generic conic solver."""

from __future__ import annotations

import clarabel
import numpy as np
from scipy import sparse

from consilience.domain import CliqueVector, Domain, Layout
from consilience.regions import RegionGraph


def random_vector(
    domain: Domain, cliques, rng: np.random.Generator, scale: float = 1.0
) -> CliqueVector:
    layout = Layout(domain, cliques)
    return CliqueVector(layout, scale * rng.normal(size=layout.cells))


# -- the joint ----------------------------------------------------------------------------------------


def joint(theta: CliqueVector) -> tuple[np.ndarray, float]:
    """The whole distribution p proportional to exp(sum of theta), and the log partition function."""
    domain = theta.domain
    log_p = np.zeros(domain.shape)
    for clique, table in theta.items():
        log_p = log_p + table.reshape([domain[a] if a in clique else 1 for a in domain])
    top = log_p.max()
    p = np.exp(log_p - top)
    return p / p.sum(), float(top + np.log(p.sum()))


def marginal(domain: Domain, p: np.ndarray, clique) -> np.ndarray:
    return p.sum(axis=tuple(i for i, a in enumerate(domain) if a not in clique))


def marginals(domain: Domain, p: np.ndarray, cliques) -> CliqueVector:
    return CliqueVector.from_tables(
        domain, {domain.clique(c): marginal(domain, p, c) for c in cliques}
    )


# -- the local polytope -------------------------------------------------------------------------------


def constraints(graph: RegionGraph) -> tuple[np.ndarray, np.ndarray]:
    """(A, b) such that L(G) = {tau >= 0, A tau = b}, one row per constraint, written cell by cell."""
    offsets = graph.layout.offsets
    rows, right = [], []
    for i in range(len(graph.regions)):
        row = np.zeros(graph.layout.cells)
        row[offsets[i] : offsets[i + 1]] = 1
        rows.append(row)
        right.append(1.0)
    for parent, child in graph.edges:
        p, c = graph.regions.index(parent), graph.regions.index(child)
        axes = [parent.index(a) for a in child]
        shape = graph.domain.shape_of(child)
        block = np.zeros((int(np.prod(shape)), graph.layout.cells))
        for k, cell in enumerate(np.ndindex(*graph.domain.shape_of(parent))):
            at = np.ravel_multi_index([cell[x] for x in axes], shape)
            block[at, offsets[p] + k] = 1
        for j in range(len(block)):
            block[j, offsets[c] + j] = -1
        rows.extend(block)
        right.extend([0.0] * len(block))
    return np.array(rows), np.array(right)


def free_energy(graph: RegionGraph, theta: CliqueVector, tau: CliqueVector) -> float:
    """Problem 3's objective, -<theta, tau> - sum kappa H(tau), with 0 log 0 = 0 and 0 * (-inf) = 0."""
    t, th = tau.values, theta.expand(graph.regions).values
    kappa = np.repeat(graph.counting_numbers, np.diff(graph.layout.offsets))
    live = t > 0
    return float(-(th[live] @ t[live]) + (kappa[live] * t[live]) @ np.log(t[live]))


def solve_free_energy_generically(graph: RegionGraph, theta: CliqueVector) -> CliqueVector:
    """Problem 3 on the explicit constraints by Clarabel's exponential cone. Minus infinity fixes a cell to zero."""
    potentials = theta.expand(graph.regions).values
    kappa = np.repeat(graph.counting_numbers, np.diff(graph.layout.offsets))
    live = np.flatnonzero(potentials > -np.inf)
    a, b = constraints(graph)
    a = a[:, live]
    curved = np.flatnonzero(kappa[live] > 0)
    n, m = len(live), len(curved)
    # Variables (tau, t) with t >= tau log tau, which is (-t, tau, 1) in the exponential cone.
    equal = sparse.hstack([sparse.csc_matrix(a), sparse.csc_matrix((len(a), m))])
    positive = sparse.hstack([-sparse.eye(n), sparse.csc_matrix((n, m))])
    cone_rows = sparse.lil_matrix((3 * m, n + m))
    cone_right = np.zeros(3 * m)
    for k, j in enumerate(curved):
        cone_rows[3 * k, n + k] = 1.0
        cone_rows[3 * k + 1, j] = -1.0
        cone_right[3 * k + 2] = 1.0
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    settings.max_threads = 1
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix((n + m, n + m)),
        np.concatenate([-potentials[live], kappa[live][curved]]),
        sparse.csc_matrix(sparse.vstack([equal, positive, cone_rows.tocsc()])),
        np.concatenate([b, np.zeros(n), cone_right]),
        [clarabel.ZeroConeT(len(a)), clarabel.NonnegativeConeT(n)]
        + [clarabel.ExponentialConeT()] * m,
        settings,
    )
    found = np.zeros(graph.layout.cells)
    found[live] = np.maximum(np.array(solver.solve().x)[:n], 0)
    return CliqueVector(graph.layout, found)
