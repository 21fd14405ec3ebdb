"""Random reconstruction problems and an independent judge: Problem 2 as an explicit quadratic programme."""

from __future__ import annotations

from dataclasses import dataclass

import clarabel
import numpy as np
import scipy.linalg
from scipy import sparse

from claims.judges import constraints
from consilience.domain import CliqueVector, Domain
from consilience.measurements import Measurement, SquaredLoss
from consilience.regions import RegionGraph

D = Domain({"a": 2, "b": 3, "c": 4, "d": 2, "e": 3})
RECORDS = 1000.0
BUILDERS = {
    "saturated": RegionGraph.saturated,
    "factor": RegionGraph.factor_graph,
    "junction tree": RegionGraph.junction_tree,
}


def cliques_of(words: str) -> list[tuple[str, ...]]:
    """'ab bcd' means the cliques (a, b) and (b, c, d)."""
    return [tuple(word) for word in words.split()]


def true_counts(domain: Domain, seed: int) -> np.ndarray:
    """A skewed joint table of RECORDS records."""
    p = np.random.default_rng(seed).dirichlet(np.full(domain.size(), 0.3))
    return RECORDS * p.reshape(domain.shape)


def marginal_of(domain: Domain, table: np.ndarray, clique) -> np.ndarray:
    return table.sum(axis=tuple(i for i, a in enumerate(domain) if a not in clique))


def noisy(
    domain: Domain,
    words: str,
    seed: int,
    sigmas: tuple[float, ...] = (20.0,),
    queries: dict[str, object] | None = None,
    noise: str = "gaussian",
) -> list[Measurement]:
    """Measurements of a random table, noise levels taken in turn, queries given per clique."""
    rng = np.random.default_rng(seed)
    table = true_counts(domain, seed)
    found = []
    for k, word in enumerate(words.split()):
        clique, sigma = tuple(word), sigmas[k % len(sigmas)]
        x = marginal_of(domain, table, clique)
        query = (queries or {}).get(word)
        y = x if query is None else query.apply(x.reshape(-1))
        draw, scale = (rng.laplace, sigma / 2**0.5) if noise == "laplace" else (rng.normal, sigma)
        found.append(
            Measurement(
                clique, y + draw(scale=scale, size=y.shape), stddev=sigma, noise=noise, query=query
            )
        )
    return found


@dataclass(frozen=True)
class Judged:
    tau: CliqueVector
    objective: float


def rows_of(graph: RegionGraph, clique) -> np.ndarray:
    """P: the clique's marginal from the first smallest region that holds it, as a matrix."""
    holders = [r for r in graph.regions if set(clique) <= set(r)]
    home = min(holders, key=graph.domain.size)
    at = graph.layout.offsets[graph.regions.index(home)]
    shape = graph.domain.shape_of(clique)
    rows = np.zeros((int(np.prod(shape)), graph.layout.cells))
    for k, cell in enumerate(np.ndindex(*graph.domain.shape_of(home))):
        kept = [cell[home.index(a)] for a in clique]
        rows[np.ravel_multi_index(kept, shape), at + k] = 1.0
    return rows


def squared_loss_rows(graph: RegionGraph, loss: SquaredLoss) -> tuple[np.ndarray, np.ndarray]:
    """(R, y) with L(tau) = 1/2 ||R tau - y||^2."""
    blocks, right = [], []
    for m in loss.measurements:
        if m.clique:
            q = m.query.apply(np.eye(m.query.cells))
            blocks.append(loss.total / m.stddev * (q @ rows_of(graph, m.clique)))
            right.append(m.values / m.stddev)
    return np.concatenate(blocks), np.concatenate(right)


def solve_generically(
    graph: RegionGraph, loss: SquaredLoss, possible: dict | None = None, controls: tuple = ()
) -> Judged:
    """Problem 2 with squared loss on the explicit constraints, by Clarabel's interior point method."""
    rows, y = squared_loss_rows(graph, loss)
    scale = float(np.square(rows).sum(axis=0).max())
    a, b = constraints(graph)
    n = rows.shape[1]
    impossible = np.flatnonzero(_forbidden(graph, possible or {}))
    fixed = np.eye(n)[impossible]
    a, b = np.vstack([a, fixed]), np.concatenate([b, np.zeros(len(fixed))])
    less, most = [-np.eye(n)], [np.zeros(n)]
    for c in controls:
        sums = sums_at(graph.domain, c.named) @ rows_of(graph, graph.domain.clique(c.named))
        low, high = c.low.reshape(-1) / loss.total, c.high.reshape(-1) / loss.total
        if c.exact:
            a, b = np.vstack([a, sums]), np.concatenate([b, low])
        else:
            top = np.isfinite(high)
            less += [-sums, sums[top]]
            most += [-low, high[top]]
    a, b = independent(a, b)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-13
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix(np.triu(rows.T @ rows / scale)),
        -rows.T @ y / scale,
        sparse.csc_matrix(np.vstack([a, *less])),
        np.concatenate([b, *most]),
        [clarabel.ZeroConeT(len(a)), clarabel.NonnegativeConeT(sum(len(m) for m in most))],
        settings,
    )
    x = np.array(solver.solve().x)
    return Judged(
        CliqueVector(graph.layout, x),
        0.5 * float(np.square(rows @ x - y).sum()) + _on_total(loss),
    )


def sums_at(domain: Domain, named) -> np.ndarray:
    """The values of a clique's attributes summed to its levels, as a matrix."""
    found = np.ones((1, 1))
    for name in named:
        level = domain.levels.get(name)
        axis = np.eye(domain[name])
        if level is not None:
            axis = np.zeros((level.size, len(level.units)))
            axis[level.units, np.arange(len(level.units))] = 1.0
        found = np.kron(found, axis)
    return found


def independent(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equations without those that follow from others, which interior points do not like."""
    _, r, order = scipy.linalg.qr(a.T, mode="economic", pivoting=True)
    kept = order[: int((np.abs(np.diag(r)) > 1e-9).sum())]
    return a[kept], b[kept]


def _on_total(loss: SquaredLoss) -> float:
    return sum(
        0.5 * float(np.square((loss.total - m.values) / m.stddev).sum())
        for m in loss.measurements
        if not m.clique
    )


def _forbidden(graph: RegionGraph, possible: dict) -> np.ndarray:
    bad = CliqueVector(graph.layout)
    for clique, mask in possible.items():
        for region in graph.regions:
            if set(clique) <= set(region):
                shape = [graph.domain[a] if a in clique else 1 for a in region]
                bad[region][...] += 1.0 - np.asarray(mask, float).reshape(shape)
    return bad.values > 0
