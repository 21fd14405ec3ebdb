"""Compile every kernel ahead: small jobs of every kind, so that no first run has to wait. `python -m consilience.kernels`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import process_time

import click
import numpy as np

from consilience.baselines import priview, relaxed_projection
from consilience.domain import CliqueVector, Domain, all_marginals
from consilience.fits import (
    LaplaceLikelihood,
    LatentClasses,
    LeastSquares,
    NormCut,
    PossibleCells,
    Shrunk,
    reconstruct,
)
from consilience.kernels import counting
from consilience.kernels.compiling import listening
from consilience.kernels.rounding import round_flow
from consilience.measurements import AbsoluteLoss, Measurement, SquaredLoss
from consilience.measurements.controls import Exact, bound_controls
from consilience.mechanisms import AIM, FEM, MWEM, DualQuery, Pilot
from consilience.model import Model
from consilience.model.controlled_rows import keep_controls
from consilience.privacy import Budget
from consilience.privacy.noise import SeededNoise
from consilience.records import Dataset
from consilience.regions import RegionGraph
from consilience.solvers.convex_gbp import convex_gbp
from consilience.solvers.private_pgm import private_pgm
from consilience.solvers.prox import prox_pgm

DOMAIN = Domain({"a": 2, "b": 3, "c": 4, "d": 3, "e": 300})
CYCLE = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("a", "b", "c"), ("b", "c", "d")]
FAR = ("a", "c", "d")
POSSIBLE = {("a", "b"): np.array([[True, True, False], [True, True, True]])}


def people(weighted: bool = False) -> Dataset:
    rng = np.random.default_rng(0)
    codes = np.column_stack([rng.integers(0, n, 200) for n in DOMAIN.shape])
    return Dataset(codes, DOMAIN, rng.random(200) if weighted else None)


def noisy(cliques: list[tuple[str, ...]], stddev: float = 20.0) -> list[Measurement]:
    rng, exact = np.random.default_rng(1), people().marginals(cliques)
    return [
        Measurement(c, table + rng.normal(0.0, stddev, table.shape), stddev=stddev)
        for c, table in exact.items()
    ]


def count() -> None:
    for weighted in (False, True):
        people(weighted).marginals(all_marginals(DOMAIN, 2))


def release() -> Model:
    return reconstruct(DOMAIN, noisy(CYCLE), fit=LeastSquares(consistency="local"))


def answer() -> None:
    model = release()
    model.marginal(FAR)
    model.uncertainty(FAR, method="bootstrap", replicates=2, rng=1)


def sample() -> None:
    release().sample(50, rng=1)
    reconstruct(DOMAIN, noisy(CYCLE[:2]), fit=LeastSquares(consistency="global")).sample(50, rng=1)


def whole() -> None:
    release().whole()
    held = bound_controls(DOMAIN, [Exact("a", [100, 100])])
    codes = people().to_array().astype(np.int32)
    tau = people().marginals([("a", "b")])
    keep_controls(held, 200.0, tau, None, codes, np.random.default_rng(0))
    flat = np.zeros((2, 1), np.int64)
    round_flow(flat[0], flat[1], np.zeros(1), np.zeros(1), 1)


def other_estimators() -> None:
    query = Measurement(("c", "d"), [1.0], stddev=2.0, query=np.ones((1, 12)))
    for fit in (
        LeastSquares(consistency="local", possible=POSSIBLE),
        Shrunk(),
        LatentClasses(),
        LaplaceLikelihood(),
        NormCut(),
        PossibleCells(),
    ):
        law = "laplace" if isinstance(fit, LaplaceLikelihood) else "gaussian"
        given = [
            Measurement(m.attributes, m.values, stddev=m.stddev, noise=law)
            for m in noisy(CYCLE[:4])
        ]
        reconstruct(DOMAIN, given, fit=fit)
    reconstruct(DOMAIN, [*noisy(CYCLE[:4]), query])


def other_solvers() -> None:
    given = noisy(CYCLE)
    graph = RegionGraph.saturated(DOMAIN, CYCLE)
    for loss in (SquaredLoss(DOMAIN, given), AbsoluteLoss(DOMAIN, given)):
        prox_pgm(loss, graph, iterations=20)
    prox_pgm(SquaredLoss(DOMAIN, given), graph, iterations=2, accelerated=True)
    private_pgm(SquaredLoss(DOMAIN, given), iterations=2)
    convex_gbp(graph, CliqueVector(graph.layout))


def adaptive() -> None:
    budget = Budget(epsilon=2.0, delta=1e-6, neighbours="replace-one")
    data = people().project(("a", "b", "c", "d"))
    pairs = all_marginals(data.domain, 2)
    for mechanism in (
        MWEM(pairs, rounds=3),
        AIM(pairs, rounds_per_attribute=2),
        FEM(pairs, rounds=2, samples=5),
        DualQuery(pairs, rounds=2, samples=5),
        Pilot(pairs),
    ):
        mechanism.calibrate(budget)(data, noise=SeededNoise(seed=1))


def baselines() -> None:
    priview(DOMAIN, noisy(CYCLE), rounds=2)
    priview(DOMAIN, noisy(CYCLE), rounds=2, nonnegativity="norm-sub")
    relaxed_projection(DOMAIN, noisy(CYCLE), iterations=2)


JOBS: dict[str, Callable[[], object]] = {
    "counts": count,
    "release": release,
    "answers": answer,
    "rows": sample,
    "whole numbers": whole,
    "other estimators": other_estimators,
    "other solvers": other_solvers,
    "adaptive mechanisms": adaptive,
    "baselines": baselines,
}


def place() -> str:
    """Where compiled kernels are kept, and why not beside the package if they are not."""
    kept = Path(counting._count.stats.cache_path or "")
    beside = Path(counting.__file__).parent
    if "NUMBA_CACHE_DIR" in os.environ:
        return f"{kept} (NUMBA_CACHE_DIR)"
    if kept.is_relative_to(beside):
        return str(kept)
    return f"{kept}, because {beside} cannot be written to; set NUMBA_CACHE_DIR for another place"


@click.command("python -m consilience.kernels")
@click.argument("jobs", nargs=-1, type=click.Choice(list(JOBS)))
def main(jobs: tuple[str, ...]) -> None:
    """Compile what these JOBS need (all of them if none is named) ahead, and say where it is kept."""
    compiled: list[str] = []
    began, whole = process_time(), 0
    for name in jobs or JOBS:
        compiled.clear()
        with listening(lambda kernel, begins: compiled.append(kernel) if begins else None):
            JOBS[name]()
        ours = [k for k in compiled if k.startswith("consilience")]
        whole += len(ours)
        click.echo(f"{name}: {len(ours)} kernels compiled" + (f", {ours[0]} first" if ours else ""))
    click.echo(
        f"{whole} kernels in {process_time() - began:.0f} s of processor time, kept in {place()}"
    )


if __name__ == "__main__":
    main()
