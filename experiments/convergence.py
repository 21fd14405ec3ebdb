"""How fast splitting and Prox-PGM reach one optimum: certified gaps after so many iterations, on generated people.

    python experiments/convergence.py [--quick] [--out rows.csv]

All pairs of the fourteen columns of 20,000 generated people, Gaussian noise of epsilon 1, squared loss, the saturated graph. Each
row is a solve from the start with that number of iterations, on one thread, as processor time; the kernels were compiled before.
"""

from __future__ import annotations

import argparse
import pathlib
import time
from collections.abc import Callable

import numpy as np
from common import RESULTS, Rows, paper_sigma

import consilience as cs

FIELDS = ["method", "iterations", "cpu_seconds", "objective", "bound", "gap", "violation"]
SPLITTING = (10, 20, 40, 80, 160, 320, 640)
PROX = (10, 30, 100, 300, 1000)


def problem() -> tuple[cs.SquaredLoss, cs.RegionGraph]:
    data = cs.population(20_000, np.random.default_rng(0))
    pairs = list(cs.all_marginals(data.domain, 2))
    width, rng = paper_sigma(1.0, len(pairs)), np.random.default_rng(1)
    noisy = [
        cs.Measurement(p, t + rng.normal(scale=width, size=t.shape), stddev=width)
        for p in pairs
        for t in (data.marginal(p),)
    ]
    loss = cs.SquaredLoss(data.domain, noisy, 20_000.0)
    return loss, cs.RegionGraph.saturated(data.domain, loss.cliques)


METHODS: dict[str, Callable[[cs.SquaredLoss, cs.RegionGraph, int], cs.Solution]] = {
    "splitting": lambda loss, graph, n: cs.splitting(loss, graph, iterations=n),
    "prox": lambda loss, graph, n: cs.prox_pgm(loss, graph, iterations=n),
    "prox-accelerated": lambda loss, graph, n: cs.prox_pgm(
        loss, graph, iterations=n, accelerated=True
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS / "convergence.csv")
    given = parser.parse_args()
    loss, graph = problem()
    with Rows(given.out, FIELDS, ["method", "iterations"]) as rows:
        for method, solve in METHODS.items():
            counts = SPLITTING if method == "splitting" else PROX
            solve(loss, graph, 3)
            for n in counts[:2] if given.quick else counts:
                if (method, n) in rows:
                    continue
                began = time.process_time()
                found = solve(loss, graph, n)
                rows.add(
                    method=method,
                    iterations=n,
                    cpu_seconds=f"{time.process_time() - began:.4g}",
                    objective=f"{found.objective:.8g}",
                    bound=f"{found.bound:.8g}",
                    gap=f"{found.gap:.4g}",
                    violation=f"{found.violation:.3g}",
                )


if __name__ == "__main__":
    main()
