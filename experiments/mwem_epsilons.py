"""MWEM on fire at the two other budgets of the paper's appendix, 0.05 and 0.2 per round: L1 by round, local consistency.

    python experiments/mwem_epsilons.py [--epsilons 0.05 0.2] [--seeds 0 1 2 3 4] [--rounds 105] [--out rows.csv] [--quick]

The authors' noise and selection at a nominal epsilon per round, as in `mwem_fire.py`, which has 0.1. L1 is the mean over all 105
pairs, not halved, as in the paper's figure. A run is written when it ends; a stopped experiment goes on with the next run.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path

import numpy as np
from common import RESULTS, Rows, load
from reference import MWEM as AUTHORS

import consilience as cs
from consilience.mechanisms import MWEM
from consilience.privacy import Budget, SeededNoise

FIELDS = ["epsilon", "seed", "round", "l1", "seconds"]
SHOWN = (1, *AUTHORS["region graph", 0.1])
CHARGED = 3 / 2
"""Epsilon that replace-one neighbours cost in a round of nominal epsilon 1: half for the noise, twice its half for the choice."""


def one_run(data: cs.Dataset, epsilon: float, seed: int, rounds: int) -> list[dict[str, float]]:
    workload = cs.all_marginals(data.domain, 2)
    truth = data.marginals(workload)
    mechanism = MWEM.as_published(
        workload, epsilon, rounds, fit=cs.LeastSquares(consistency="local")
    )
    budget = Budget(epsilon=CHARGED * epsilon * len(workload), neighbours="replace-one")
    run = mechanism.calibrate(budget).start(data, noise=SeededNoise(seed=seed))
    rows, spent, began = [], 0.0, time.perf_counter()
    for made in run:
        spent += time.perf_counter() - began
        if made.number in SHOWN or made.number == rounds:
            answers = run.answers(workload.cliques)
            away = [np.abs(truth[c] - a).sum() for c, a in zip(workload, answers, strict=True)]
            l1 = float(np.mean(away)) / data.records
            rows.append({"round": made.number, "l1": l1, "seconds": spent})
            print(
                f"epsilon {epsilon:g} seed {seed} round {made.number}: L1 {l1:.4f}, {spent:.1f} s"
            )
        began = time.perf_counter()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.05, 0.2])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--rounds", type=int, default=105)
    parser.add_argument("--out", type=Path, default=RESULTS / "mwem_epsilons.csv")
    parser.add_argument("--quick", action="store_true", help="one seed, 20 rounds")
    given = parser.parse_args()
    if given.quick:
        given.seeds, given.rounds = [0], 20
    data = load("fire")
    with Rows(given.out, FIELDS, ["epsilon", "seed", "round"]) as rows:
        for seed, epsilon in itertools.product(given.seeds, given.epsilons):
            if (epsilon, seed, given.rounds) in rows:
                continue
            for row in one_run(data, epsilon, seed, given.rounds):
                rows.add(epsilon=epsilon, seed=seed, **row)


if __name__ == "__main__":
    main()
