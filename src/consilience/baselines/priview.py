"""PriView: make noisy tables agree in closed form, remove negative cells table by table, and repeat.

Qardaji, Yang, Li (2014) for the consistency, team DPSyn (2018) for the loop with norm-cut, which the paper compares with. Not the
minimiser of any loss, and tables may disagree slightly in the end; it is quick, and norm-cut does well on sparse tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np

from consilience.baselines.answers import Tables
from consilience.baselines.views import Views
from consilience.domain import Buffer, Domain
from consilience.errors import ConsilienceError, MeasurementError
from consilience.kernels import views as kernels
from consilience.kernels.threads import threads_for
from consilience.measurements import Measurement, SquaredLoss
from consilience.progress import Iteration, Progress

Nonnegativity = Literal["norm-cut", "norm-sub"]
SMALLEST = 1e-9
"""Negative cells above minus this share of the total are rounding."""


def priview(
    domain: Domain,
    measurements: Iterable[Measurement],
    total: float | None = None,
    *,
    nonnegativity: Nonnegativity = "norm-cut",
    rounds: int = 100,
    progress: Progress | None = None,
) -> Tables:
    """Measured tables made consistent and non-negative in turn, at most `rounds` times; the last step is non-negativity.

    nonnegativity: "norm-cut" (the smallest cells pay for the negative ones) or "norm-sub" (Euclidean projection).
    total: number of records if public; None estimates it. progress sees each round as an `Iteration`, its violation the
    negative mass as a share of the total.
    """
    if nonnegativity not in ("norm-cut", "norm-sub"):
        raise ConsilienceError(
            f"nonnegativity must be 'norm-cut' or 'norm-sub', got {nonnegativity!r}"
        )
    if rounds < 1:
        raise ConsilienceError(f"rounds must be at least 1, got {rounds}")
    loss = SquaredLoss(domain, measurements, total)
    part = loss.separable()
    if part.rest:
        raise MeasurementError(
            f"PriView takes measurements of whole tables, got a query on {part.rest[0].clique}; use reconstruct"
        )
    views = Views(domain, part.targets.cliques, part.weights)
    values = views.enter(part.targets) * loss.total
    done, left = 0, np.inf
    while done < rounds:
        views.agree(values, loss.total)
        negative = -float(np.minimum(values, 0.0).sum()) / loss.total
        if progress is not None:
            progress(Iteration("PriView", done, rounds, violation=negative))
        left = float(values.min())
        if left >= -SMALLEST * loss.total:
            break
        _remove_negatives(views, values, nonnegativity)
        done += 1
    np.maximum(values, 0.0, out=values)
    return Tables(
        views.leave(values),
        loss.total,
        f"PriView with {nonnegativity}",
        done,
        views.disagreement(values, loss.total),
    )


def norm_cut(table: Buffer) -> Buffer:
    """The table without negative cells and with the same sum: its smallest positive cells pay, each in full but the last."""
    return _one(table, kernels.norm_cut_one)


def norm_sub(table: Buffer) -> Buffer:
    """The closest table (Euclidean) without negative cells and with the same sum."""
    return _one(table, kernels.norm_sub_one)


def _one(table: Buffer, kernel: Callable[[Buffer], None]) -> Buffer:
    given = np.asarray(table, np.float64)
    if not np.all(np.isfinite(given)):
        raise ConsilienceError(
            "a table must be finite to be made non-negative, got NaN or infinity"
        )
    flat = given.reshape(-1).copy()
    kernel(flat)
    return flat.reshape(given.shape)


def _remove_negatives(views: Views, values: Buffer, how: Nonnegativity) -> None:
    tables = views.ties.roots
    kernel = kernels.norm_cut_all if how == "norm-cut" else kernels.norm_sub_all
    with threads_for(len(values)):
        kernel(values, tables.at, tables.cells)
