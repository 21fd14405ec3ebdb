"""p-Identity: a strategy for sums over ranges of one attribute, such as prefixes.

    A = [I; B] D,   B >= 0 with p rows,   D = diag(1 / s),   s_j the norm of column j of [I; B]

so that every column has norm one (L1 for Laplace noise, L2 for Gaussian noise) and A has full rank: every cell is measured a
little, and p weighted sums besides. The expected squared error of the answers W x by least squares is tr((A^T A)^-1 W^T W)
times the variance of the noise. With S = D^-1, K = (I + B^T B)^-1 = I - B^T R B, R = (I + B B^T)^-1 and U = S W^T W S it is

    f(B) = tr(K U),   df/dB = -2 B K U K + (ds/dB) 2 diag(K S W^T W),   B K = R B

at a cost of n^2 p.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from consilience.domain import Buffer
from consilience.mechanisms.strategies_marginals import Law

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
