"""What HDMM measures: plain marginals together by OPT_M, cliques with ordered attributes each by a product of p-Identities.

The budget is divided over these groups for the least total squared error. A group that gets the share s of the budget has error
e / s^2 (Laplace) or e / s (Gaussian), so shares are in proportion to e^(1/3) or e^(1/2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from consilience.domain import Buffer, Clique, Workload
from consilience.domain.subsets import Subsets
from consilience.measurements import Identity, Kronecker, Query
from consilience.mechanisms.integer_queries import CELLS, IntegerQuery, Product
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
    lattice: Subsets | None
    plain: tuple[Clique, ...]
    gains: Mapping[Clique, float]


def workload_query(workload: Workload, queries: Mapping[str, Query], clique: Clique) -> Query:
    """What is asked of a clique: the product of its attributes' queries, every value where none is named."""
    return Kronecker(queries.get(a) or Identity(workload.domain[a]) for a in clique)


@threadpool_limits.wrap(limits=1, user_api="blas")
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
    """The strategy of least expected error found; the same for the same arguments.

    BLAS is kept to one thread: its vectors are short, so more would only wait for each other, and sums would depend on them.
    """
    plain = tuple(c for c in workload if not any(a in queries for a in c))
    ordered = [c for c in workload if any(a in queries for a in c)]
    groups: list[tuple[float, list[tuple[Clique, IntegerQuery, float]]]] = []
    lattice = None
    if plain:
        part = Workload(workload.domain, {c: workload[c] for c in plain})
        lattice = Subsets.of(workload.domain, plain)
        found = optimal_marginals(
            part,
            law,
            total_known=neighbours.total_public,
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


# -- OPT_M: which marginals to measure, and how precisely, for the least expected squared error of a workload ---
#
# With weights theta_a (noise in marginal a of width proportional to 1 / theta_a) and lambda_t as in `subsets`,
#
#     Laplace    error = 2 / epsilon^2 (sum theta)^2  sum_t d_t omega_t / lambda_t
#     Gaussian   error = 1 / (2 rho)    sum theta^2   sum_t d_t omega_t / lambda_t        (add-remove)
#
# Both are minimised over log theta by L-BFGS. For Gaussian noise the problem is convex in theta^2, so a stationary point is
# the optimum, and `gap` bounds the distance to it.
# # Paper: HDMM optimises 2^d weights with triangular solves of that size. Here: the diagonal form, on the workload's closure.

Law = Literal["laplace", "gaussian"]

_NEGLIGIBLE = (1e-2, 1e-3, 1e-4, 1e-6)
"""Weights below these shares of the largest are tried as zeros, the coarsest first."""
_WORTH = 1e-7
"""A relative loss that is not worth a marginal."""


@dataclass(frozen=True, eq=False)
class MarginalStrategy:
    """Weights theta of the marginals to measure; those that are not worth measuring are left out.

    `error` is (sum theta^p)^(2/p) sum_t d_t omega_t / lambda_t, p = 1 for Laplace and 2 for Gaussian noise. `gap` bounds
    how far the error (without slack) is above the least of any weights, as a share of it (Gaussian only, else None).
    """

    law: Law
    weights: dict[Clique, float]
    error: float
    gap: float | None


@dataclass(frozen=True, eq=False)
class _Objective:
    """log error over x = log theta, restricted to the marginals `live`."""

    lattice: Subsets
    gain: Buffer
    """d_t omega_t."""
    power: int
    live: np.ndarray

    def __call__(self, x: Buffer) -> tuple[float, Buffer]:
        theta = np.exp(x - x.max())
        squares, mass = theta**2, theta**self.power
        full = np.zeros(len(self.gain))
        full[self.live] = squares
        known = self.lattice.spread @ full
        share = np.divide(self.gain, known, out=np.zeros_like(known), where=self.gain > 0)
        error, length = share.sum(), mass.sum()
        pull = np.divide(share, known, out=np.zeros_like(known), where=self.gain > 0)
        slope = (self.lattice.spread.T @ pull)[self.live]
        value = 2 / self.power * np.log(length) + np.log(error)
        return value, 2 * (mass / length - squares * slope / error)

    def gap(self, x: Buffer) -> float:
        """For u = theta^2 with sum 1 the error f is convex: f - f* <= <grad f, u> - min_a grad_a f, and <grad f, u> = -f."""
        squares = np.exp(2 * (x - x.max()))
        full = np.zeros(len(self.gain))
        full[self.live] = squares / squares.sum()
        known = self.lattice.spread @ full
        share = np.divide(self.gain, known, out=np.zeros_like(known), where=self.gain > 0)
        pull = np.divide(share, known, out=np.zeros_like(known), where=self.gain > 0)
        return float((self.lattice.spread.T @ pull).max() / share.sum() - 1)


def optimal_marginals(
    workload: Workload,
    law: Law,
    *,
    total_known: bool = False,
    restarts: int = 3,
    seed: int = 0,
    slack: float = 0.0,
    lattice: Subsets | None = None,
) -> MarginalStrategy:
    """The best of several descents; deterministic. `total_known`: the number of rows need not be measured.

    With `slack` the weights are made as equal as a rise of the expected RMSE by that share allows.
    """
    lattice = lattice or Subsets.of(workload.domain, workload)
    gain = lattice.dims * lattice.importance(workload)
    if total_known:
        gain[0] = 0.0
    everything = np.arange(len(gain))
    objective = _Objective(lattice, gain, 1 if law == "laplace" else 2, everything)
    wanted = np.zeros(len(gain), bool)
    wanted[lattice.places(workload)] = True
    rng = np.random.default_rng(seed)
    starts = [np.where(wanted, 0.0, -3.0), np.zeros(len(gain))]
    starts += [rng.normal(-1.0, 1.0, len(gain)) for _ in range(restarts - len(starts))]
    x, value = min(
        (_descend(objective, start) for start in starts[: max(1, restarts)]), key=lambda f: f[1]
    )
    objective, x, value = _prune(objective, x, value)
    gap = objective.gap(x) if law == "gaussian" else None
    if slack > 0:
        x, value = _even(objective, x, value + 2 * np.log1p(slack))
    theta = np.exp(x - x.max())
    weights = {lattice.subsets[i]: float(w) for i, w in zip(objective.live, theta, strict=True)}
    return MarginalStrategy(law, weights, float(np.exp(value)), gap)


def _descend(objective: _Objective, start: Buffer) -> tuple[Buffer, float]:
    options = {"maxiter": 2_000, "maxfun": 3_000, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-8}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    return found.x, float(found.fun)


def _prune(objective: _Objective, x: Buffer, value: float) -> tuple[_Objective, Buffer, float]:
    """Without the marginals that hardly matter: fewer tables to count, to draw and to reconstruct."""
    for threshold in _NEGLIGIBLE:
        keep = x - x.max() > np.log(threshold)
        if () in (objective.lattice.subsets[i] for i in objective.live[keep]):
            keep &= objective.live > 0  # the total alone is not a table; others tell it
        if keep.all():
            continue
        smaller = _Objective(
            objective.lattice, objective.gain, objective.power, objective.live[keep]
        )
        if not _covers(smaller):
            continue
        candidate, reached = _descend(smaller, x[keep])
        if reached - value <= _WORTH:
            return smaller, candidate, reached
    return objective, x, value


def _even(objective: _Objective, x: Buffer, allowed: float) -> tuple[Buffer, float]:
    """theta^alpha for the least alpha in [0, 1] that the allowance permits, by bisection."""
    low, high = 0.0, 1.0
    if objective(low * x)[0] <= allowed:
        return low * x, objective(low * x)[0]
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if objective(middle * x)[0] <= allowed else (middle, high)
    return high * x, objective(high * x)[0]


def _covers(objective: _Objective) -> bool:
    full = np.zeros(len(objective.gain))
    full[objective.live] = 1.0
    known = objective.lattice.spread @ full
    return bool((known[objective.gain > 0] > 0).all())


# -- p-Identity: a strategy for sums over ranges of one attribute, such as prefixes --------------
#
# A = [I; B] D,   B >= 0 with p rows,   D = diag(1 / s),   s_j the norm of column j of [I; B]
#
# so that every column has norm one (L1 for Laplace noise, L2 for Gaussian noise) and A has full rank: every cell is measured a
# little, and p weighted sums besides. The expected squared error of the answers W x by least squares is tr((A^T A)^-1 W^T W)
# times the variance of the noise. With S = D^-1, K = (I + B^T B)^-1 = I - B^T R B, R = (I + B B^T)^-1 and U = S W^T W S it is
#
#     f(B) = tr(K U),   df/dB = -2 B K U K + (ds/dB) 2 diag(K S W^T W),   B K = R B
#
# at a cost of n^2 p.

GRID_BITS = 10
"""Entries of a strategy are multiples of 1 / 2^10 (coarser when several attributes are multiplied)."""


@dataclass(frozen=True, eq=False)
class Factor:
    """An integer matrix for one attribute, `grid` times the strategy that is meant."""

    matrix: NDArray[np.int64]
    grid: int


def error_and_slope(
    b: Buffer, gram: Buffer, law: Law, slope: bool = True
) -> tuple[float, Buffer | None]:
    """f(B) and df/dB for W^T W = gram."""
    s = 1 + b.sum(axis=0) if law == "laplace" else np.sqrt(1 + np.square(b).sum(axis=0))
    r_b = np.linalg.solve(np.eye(len(b)) + b @ b.T, b)
    scaled = gram * s
    u = scaled * s[:, None]
    r_b_u = r_b @ u
    value = float(np.trace(u)) - float((b * r_b_u).sum())
    if not slope:
        return value, None
    # diag(K S W^T W S) / s = diag(K S W^T W), as S is diagonal.
    along = 2 * (np.diag(u) - (b * r_b_u).sum(axis=0)) / s
    through = -2 * (r_b_u - (r_b_u @ b.T) @ r_b)
    return value, through + (along if law == "laplace" else b * (along / s))


def p_identity(
    gram: Buffer, law: Law, *, rows: int | None = None, restarts: int = 5, seed: int = 0
) -> Buffer:
    """B of the best of several descents (L-BFGS-B, B >= 0); none of its rows where the cells alone are as good."""
    n = len(gram)
    p = max(1, n // 16) if rows is None else rows
    rng = np.random.default_rng(seed)
    best, least = np.zeros((0, n)), float(np.trace(gram))

    def flat(x: Buffer) -> tuple[float, Buffer]:
        value, slope = error_and_slope(x.reshape(p, n), gram, law)
        assert slope is not None
        return value / least0, slope.ravel() / least0

    least0 = least
    for _ in range(restarts):
        found = minimize(
            flat,
            rng.random(p * n),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, None)] * (p * n),
            options={"maxiter": 1_000, "maxfun": 1_500, "ftol": 1e-10},
        )
        if found.fun * least0 < least * (1 - 1e-6):
            best, least = found.x.reshape(p, n), float(found.fun * least0)
    return best


def on_grid(b: Buffer, law: Law, bits: int = GRID_BITS) -> Factor:
    """[I; B] D in whole numbers. No cell is lost: its own entry is at least one grid step."""
    s = 1 + b.sum(axis=0) if law == "laplace" else np.sqrt(1 + np.square(b).sum(axis=0))
    if not len(b):
        return Factor(np.eye(len(s), dtype=np.int64), 1)
    grid = 2**bits
    cells = np.maximum(1, np.rint(grid / s)).astype(np.int64)
    sums = np.rint(grid * b / s).astype(np.int64)
    return Factor(np.concatenate([np.diag(cells), sums[sums.any(axis=1)]]), grid)


def squared_error(factor: Factor, gram: Buffer) -> float:
    """tr((A^T A)^-1 W^T W) of the strategy on its grid."""
    a = factor.matrix / factor.grid
    return float(np.trace(np.linalg.solve(a.T @ a, gram)))
