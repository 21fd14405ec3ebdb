"""HDMM on fire: k random 3-way marginals, epsilon 1, expected and observed RMSE in counts, as in the paper.

    python experiments/hdmm_fire.py [--quick] [--k 1 2 ... 455] [--methods squared even residuals ...]
                                    [--seeds 5] [--out rows.csv]

The cliques are the paper's, RandomState(0).choice(455, k). Neighbours are add-remove; the number of rows is taken as known.
squared: HDMM with Laplace noise (epsilon 1), local consistency, least squares. even: the same with slack 0.1, noise of more
equal width. optimum: with slack 0. likelihood: the measurements of squared, the exact likelihood of Laplace noise. exact: those
with global consistency (k up to 16, where the junction tree has 8 million cells). gaussian,
residuals: HDMM with Gaussian noise and ResidualPlanner at 2 rho = 1, that is at unit sigma; "unbiased" is least squares without
non-negativity (residuals only). Rows are appended as they come, so the run can be stopped and resumed. --quick: k up to
16, one seed.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import itertools
import json
import os
import pathlib
import time

import numpy as np

import consilience as cs
from consilience.mechanisms import HDMM, CalibratedResidualPlanner, ResidualPlanner
from consilience.privacy import SeededNoise

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = pathlib.Path(os.environ.get("CONSILIENCE_DATA", ROOT.parent / "shared" / "data"))
ALL = [1, 2, 4, 8, 16, 32, 64, 128, 256, 455]
REGION_GRAPH = [0.832, 1.294, 2.562, 5.210, 10.060, 15.081, 25.492, 49.584, 90.783, 141.94]
PAPER = dict(zip(ALL, REGION_GRAPH, strict=True))
"""Observed RMSE of HDMM with the paper's region graph."""
FIELDS = ["k", "method", "seed", "expected", "unbiased", "observed", "plan_seconds", "seconds"]
PURE = cs.Budget(epsilon=1, neighbours="add-remove")
UNIT = cs.Budget(rho=0.5, neighbours="add-remove")


def fire() -> cs.Dataset:
    domain = cs.Domain(json.loads((FOLDER / "fire-domain.json").read_text()))
    with gzip.open(FOLDER / "fire.csv.gz", "rt") as lines:
        header = lines.readline().strip().split(",")
        codes = np.loadtxt(lines, delimiter=",", dtype=np.int64)
    return cs.Dataset(codes[:, [header.index(a) for a in domain.attributes]], domain)


def workload(domain: cs.Domain, k: int) -> cs.Workload:
    triples = list(itertools.combinations(domain.attributes, 3))
    chosen = np.random.RandomState(0).choice(len(triples), k, replace=False)
    return cs.Workload(domain, [triples[i] for i in chosen])


def rmse(exact: cs.CliqueVector, answer) -> float:
    squares = sum(float(np.square(answer(c) - table).sum()) for c, table in exact.items())
    return float(np.sqrt(squares / exact.values.size))


def run(data: cs.Dataset, k: int, method: str, seed: int, tolerance: float) -> dict:
    """One row: plan, measure with seeded noise, reconstruct."""
    asked = workload(data.domain, k)
    start = time.perf_counter()
    if method == "residuals":
        ready = ResidualPlanner(asked, fit=cs.LeastSquares(consistency="local")).calibrate(UNIT)
    else:
        noise, budget = ("gaussian", UNIT) if method == "gaussian" else ("laplace", PURE)
        slack = {"even": 0.1, "optimum": 0.0}.get(method, 0.004)
        ready = HDMM(
            asked, noise=noise, slack=slack, fit=cs.LeastSquares(consistency="local")
        ).calibrate(budget)
    planned = time.perf_counter()
    release = ready.measure(data, noise=SeededNoise(seed=seed))
    exact = data.marginals(asked)
    unbiased = ""
    if isinstance(ready, CalibratedResidualPlanner):
        straight = ready.unbiased(release)
        unbiased = f"{rmse(exact, lambda c: straight[c]):.6g}"
    consistency = "global" if method == "exact" else "local"
    estimator = cs.LaplaceLikelihood if method == "likelihood" else cs.LeastSquares
    fit = estimator(consistency=consistency, memory="8 GB", tolerance=tolerance)
    model = cs.reconstruct(data.domain, ready.evidence(release), float(data.records), fit)
    return {
        "k": k,
        "method": method,
        "seed": seed,
        "expected": f"{ready.expected_overall_rmse:.6g}",
        "unbiased": unbiased,
        "observed": f"{rmse(exact, model.marginal):.6g}",
        "plan_seconds": f"{planned - start:.3f}",
        "seconds": f"{time.perf_counter() - start:.2f}",
    }


def show(rows: list[dict]) -> None:
    """Means over seeds, beside the paper's region graph."""
    print("| k | method | expected | observed (mean) | seeds | paper's region graph |")
    print("|---|---|---|---|---|---|")
    groups: dict[tuple[int, str], list[dict]] = {}
    for row in rows:
        groups.setdefault((int(row["k"]), row["method"]), []).append(row)
    for (k, method), members in sorted(groups.items()):
        mean = np.mean([float(r["observed"]) for r in members])
        paper = PAPER[k] if method not in ("gaussian", "residuals") and k in PAPER else ""
        print(
            f"| {k} | {method} | {members[0]['expected']} | {mean:.4g} | {len(members)} | {paper} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="HDMM on fire: expected and observed RMSE")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--k", type=int, nargs="+")
    parser.add_argument("--methods", nargs="+", default=["squared", "residuals"])
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("hdmm_fire.csv"))
    given = parser.parse_args()
    ks = given.k or ([k for k in ALL if k <= 16] if given.quick else ALL)
    seeds = given.seeds or (1 if given.quick else 5)
    rows: list[dict] = []
    if given.out.exists():
        with given.out.open(newline="") as file:
            rows = list(csv.DictReader(file))
    done = {(int(r["k"]), r["method"], int(r["seed"])) for r in rows}
    data = fire()
    with given.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not rows:
            writer.writeheader()
        wanted = (
            (k, method, seed) for k in ks for method in given.methods for seed in range(seeds)
        )
        for k, method, seed in wanted:
            if (k, method, seed) in done:
                continue
            row = run(data, k, method, seed, given.tolerance)
            writer.writerow(row)
            file.flush()
            rows.append(row)
            print(row, flush=True)
    show(rows)


if __name__ == "__main__":
    main()
