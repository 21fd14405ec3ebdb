"""MWEM on fire, all 105 pairs, with the noise of the paper's experiments (nominal epsilon 0.1 a round): L1 and seconds by round.

    python experiments/mwem_fire.py [--variants local default prior prior-local] [--seeds 0 1 2 3 4] [--rounds 105]
                                    [--out rows.csv] [--quick]

local: the paper's region graph and Problem 4. default: with global information about what is not measured. prior and
prior-local: the same two with Shrunk, for which noise is Gaussian with the standard deviation of the others'
Laplace noise. Seconds are CPU-seconds of the rounds alone, without the evaluation (in rows of local and prior-local, seconds by
the clock). Rows are appended as they come: a stopped run goes
on where it was, run by run. L1 is the mean over all pairs, not halved, as in the paper's figure.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import time
from fractions import Fraction
from pathlib import Path

import numpy as np

import consilience as cs
from consilience.mechanisms import MWEM, CalibratedMWEM
from consilience.privacy import Budget, Rho, SeededNoise

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(os.environ.get("CONSILIENCE_DATA", ROOT.parent / "shared" / "data"))
FIELDS = ["variant", "seed", "round", "l1", "seconds"]
SHOWN = (1, 5, 10, 15, 20, 25, 30, 35, 40, 50, 60, 70, 80, 90, 105)
AUTHORS = {
    "exact": {5: 0.705, 10: 0.178, 15: 0.0738, 20: 0.0404, 25: 0.0294, 30: 0.025, 35: 0.0194},
    "region graph": {
        5: 0.740,
        10: 0.6188,
        15: 0.364,
        20: 0.147,
        25: 0.1118,
        30: 0.0882,
        35: 0.0718,
        50: 0.044,
        70: 0.0262,
        105: 0.0156,
    },
}
AUTHORS_SECONDS = 53_700


def fire() -> cs.Dataset:
    domain = cs.Domain(json.loads((FOLDER / "fire-domain.json").read_text()))
    codes = np.loadtxt(FOLDER / "fire.csv.gz", delimiter=",", skiprows=1, dtype=int)
    return cs.Dataset(codes, domain)


def calibrated(variant: str, workload: cs.Workload, rounds: int) -> CalibratedMWEM:
    local = variant.endswith("local")
    if not variant.startswith("prior"):
        fit = cs.LeastSquares(consistency="local") if local else cs.PossibleCells()
        mechanism = MWEM.as_published(workload, 0.1, rounds, fit)
        return mechanism.calibrate(Budget(epsilon=15.75, neighbours="replace-one"))
    # choosing with epsilon 0.1 costs 0.1^2 / 8; sigma^2 = 2 * 40^2, that of Laplace noise of scale 40, costs 1 / 3200
    choose, measure = Fraction(1, 800), Fraction(1, 3200)
    mechanism = MWEM(
        workload,
        rounds,
        Rho(choose + measure),
        "gaussian",
        choose / (choose + measure),
        "cells",
        fit=cs.Shrunk(consistency="local" if local else "auto"),
    )
    return mechanism.calibrate(Budget(rho=105 * (choose + measure), neighbours="replace-one"))


def one_run(data: cs.Dataset, variant: str, seed: int, rounds: int) -> list[dict[str, object]]:
    workload = cs.all_marginals(data.domain, 2)
    truth = data.marginals(workload)
    ready = calibrated(variant, workload, rounds)
    began = time.process_time()
    run = ready.start(data, noise=SeededNoise(seed=seed))
    rows, away = [], 0.0
    for made in run:
        if made.number not in SHOWN and made.number != rounds:
            continue
        paused = time.process_time()
        answers = run.answers(workload.cliques)
        l1 = [np.abs(truth[c] - a).sum() for c, a in zip(workload, answers, strict=True)]
        seconds = paused - began - away
        row = {"variant": variant, "seed": seed, "round": made.number}
        rows.append({**row, "l1": float(np.mean(l1)) / data.records, "seconds": seconds})
        print(
            f"{variant:12} seed {seed} round {made.number:3} L1 {rows[-1]['l1']:.4f} {seconds:8.1f} s",
            flush=True,
        )
        away += time.process_time() - paused
    return rows


def table(rows: list[dict[str, str]]) -> None:
    """Means over seeds, beside the authors'."""
    shown = sorted({int(r["round"]) for r in rows})
    print("| | " + " | ".join(map(str, shown)) + " | seconds |")
    print("|---|" + "---|" * (len(shown) + 1))
    for name, given in AUTHORS.items():
        cells = [f"{given[r]:.4g}" if r in given else "" for r in shown]
        seconds = AUTHORS_SECONDS if name == "region graph" else ""
        print(f"| authors' {name} | " + " | ".join(cells) + f" | {seconds} |")
    for variant in dict.fromkeys(r["variant"] for r in rows):
        mine = [r for r in rows if r["variant"] == variant]
        seeds = sorted({r["seed"] for r in mine})
        cells = []
        for k in shown:
            found = [float(r["l1"]) for r in mine if int(r["round"]) == k]
            cells.append(f"{np.mean(found):.4f}" if found else "")
        last = [max(float(r["seconds"]) for r in mine if r["seed"] == s) for s in seeds]
        print(
            f"| {variant}, {len(seeds)} seeds | " + " | ".join(cells) + f" | {np.mean(last):.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--variants", nargs="+", default=["local", "default", "prior-local"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--rounds", type=int, default=105)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments/results/mwem_fire.csv")
    parser.add_argument("--quick", action="store_true", help="local, one seed, 20 rounds, no file")
    given = parser.parse_args()
    data = fire()
    if given.quick:
        table([{k: str(v) for k, v in r.items()} for r in one_run(data, "local", 0, 20)])
        return
    done = list(csv.DictReader(given.out.open())) if given.out.exists() else []
    have = {(r["variant"], int(r["seed"])) for r in done if int(r["round"]) >= given.rounds}
    for variant in given.variants:
        for seed in given.seeds:
            if (variant, seed) in have:
                continue
            rows = one_run(data, variant, seed, given.rounds)
            given.out.parent.mkdir(exist_ok=True)
            fresh = not given.out.exists()
            with given.out.open("a", newline="") as file:
                writer = csv.DictWriter(file, FIELDS)
                if fresh:
                    writer.writeheader()
                writer.writerows(rows)
    table(list(csv.DictReader(given.out.open())))


if __name__ == "__main__":
    main()
