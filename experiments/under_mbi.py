"""The same noisy tables, chosen by AIM, estimated by mbi and by ours under mbi (`consilience.adapters.mbi`).

    python experiments/under_mbi.py [--data titanic adult] [--ways 2 3] [--epsilons 1 10] [--seeds 100] [--cap 1200]
                                    [--estimators mbi least-squares possible-cells aim ...] [--out rows.csv] [--quick]

Tables and noise come from our AIM with the seed, and are the same for every estimator. aim: its own last fit.
mbi: mirror descent of mbi 2.0 (`make
bench`), 1,000 steps, which is what its AIM takes, in float64. The figure is the mean total variation over all marginals of so
many columns, measured or not; CPU-seconds are those of the estimate, and of the estimate and all answers. Add-remove, delta 1e-9.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any

import kmarginal
import numpy as np
from common import RESULTS, Rows, load, total_variation

import consilience as cs
from consilience import mechanisms
from consilience.privacy import Budget, SeededNoise

KEYS = ["data", "ways", "epsilon", "seed", "estimator"]
FIELDS = [*KEYS, "tables", "total_variation", "fit_seconds", "cpu_seconds", "status"]
FITS: dict[str, cs.Fit] = {
    "least-squares": cs.LeastSquares(),
    "possible-cells": cs.PossibleCells(),
    "latent-classes": cs.LatentClasses(),
    "aim": mechanisms.AIM.fit,
}


def release(name: str, ways: int, epsilon: float, seed: int, estimator: str) -> dict[str, Any]:
    data = load(name)
    workload = cs.all_marginals(data.domain, ways)
    budget = Budget(epsilon=epsilon, delta=1e-9, neighbours="add-remove")
    ready = mechanisms.AIM(workload).calibrate(budget)
    noisy = ready.measure(data, noise=SeededNoise(seed=seed)).measurements
    if estimator == "mbi":
        os.environ["JAX_ENABLE_X64"] = "1"
        import mbi

        domain = mbi.Domain(data.domain.attributes, data.domain.shape)
        given = [
            mbi.LinearMeasurement(np.asarray(m.values).reshape(-1), m.attributes, m.stddev)
            for m in noisy
        ]
        began = time.process_time()
        theirs = mbi.estimation.MirrorDescent().estimate(domain, given, iters=1000)
        fitted = time.process_time()
        answers = {c: np.asarray(theirs.project(c).datavector(flatten=False)) for c in workload}
    else:
        began = time.process_time()
        model = cs.reconstruct(data.domain, noisy, fit=FITS[estimator])
        fitted = time.process_time()
        answers = dict(zip(workload, model.marginals(workload), strict=True))
    ended = time.process_time()
    return {
        "tables": len(noisy),
        "total_variation": total_variation({c: data.marginal(c) for c in workload}, answers),
        "fit_seconds": fitted - began,
        "cpu_seconds": ended - began,
        "status": "done",
    }


def _child(cap: int, pipe: Any, *words: Any) -> None:
    warnings.simplefilter("ignore")
    kmarginal.limit(cap)
    kmarginal.answer(pipe, release, *words)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["titanic", "adult"])
    parser.add_argument("--ways", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 10.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[100])
    parser.add_argument("--estimators", nargs="+", default=["mbi", *FITS], choices=["mbi", *FITS])
    parser.add_argument("--cap", type=int, default=1200)
    parser.add_argument("--out", type=Path, default=RESULTS / "under_mbi.csv")
    parser.add_argument("--quick", action="store_true", help="titanic, pairs, ours alone")
    given = parser.parse_args()
    if given.quick:
        given.data, given.ways, given.epsilons = ["titanic"], [2], [1.0]
        given.estimators = ["least-squares"]
    with Rows(given.out, FIELDS, KEYS) as rows:
        for seed in given.seeds:
            for name in given.data:
                for ways in given.ways:
                    for epsilon in given.epsilons:
                        for estimator in given.estimators:
                            key = (name, ways, epsilon, seed, estimator)
                            if key in rows:
                                continue
                            found = kmarginal.capped(given.cap, *key, work=_child)
                            rows.add(**dict(zip(KEYS, key, strict=True)), **found)
                            print(*key, found, flush=True)


if __name__ == "__main__":
    main()
