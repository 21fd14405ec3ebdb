"""Where does the prior help? Total variation of maximum likelihood and of Shrunk on the paper's data.

    python experiments/prior_and_path.py [--data adult fire ...] [--ways 2 3] [--epsilons 0.1 1 10] [--seeds 1 2] [--out rows.csv]

For each data set, 32 random cliques (RandomState(0)), Gaussian noise by the paper's formula (delta 1e-6, add-remove), total
known. Rows are appended as they come, so the run can be stopped and resumed. Three-way cliques larger than the number of
records are left out.
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
from scipy.optimize import brentq

import consilience as cs

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIELDS = [
    "data",
    "way",
    "epsilon",
    "seed",
    "cliques",
    "plain",
    "prior",
    "strength",
    "plain_seconds",
    "prior_seconds",
]


def data_folder() -> pathlib.Path:
    return pathlib.Path(os.environ.get("CONSILIENCE_DATA", ROOT.parent / "shared" / "data"))


def load(name: str) -> cs.Dataset:
    folder = data_folder()
    domain = cs.Domain(json.loads((folder / f"{name}-domain.json").read_text()))
    with gzip.open(folder / f"{name}.csv.gz", "rt") as lines:
        header = lines.readline().strip().split(",")
        codes = np.loadtxt(lines, delimiter=",", dtype=np.int64)
    return cs.Dataset(codes[:, [header.index(a) for a in domain.attributes]], domain)


def sigma(epsilon: float, tables: int, delta: float = 1e-6) -> float:
    """The paper's noise: zCDP by the standard formula, all tables at once, add-remove neighbours."""
    rho = brentq(lambda r: r + 2 * np.sqrt(r * np.log(1 / delta)) - epsilon, 1e-14, 1e4)
    return float(np.sqrt(tables / (2 * rho)))


def cliques_of(data: cs.Dataset, way: int, count: int = 32) -> list[tuple[str, ...]]:
    every = [
        c
        for c in itertools.combinations(data.domain.attributes, way)
        if way == 2 or data.domain.size(c) <= data.records
    ]
    chosen = np.random.RandomState(0).choice(len(every), min(count, len(every)), replace=False)
    return [every[i] for i in chosen]


def one_run(data: cs.Dataset, way: int, epsilon: float, seed: int) -> dict[str, float]:
    cliques = cliques_of(data, way)
    truth = data.marginals(cliques)
    noise = sigma(epsilon, len(cliques))
    rng = np.random.default_rng(seed)
    measured = [
        cs.Measurement(c, truth[c] + noise * rng.standard_normal(truth[c].shape), stddev=noise)
        for c in cliques
    ]

    def distance(model: cs.Model) -> float:
        return (
            float(np.mean([np.abs(model.marginal(c) - truth[c]).sum() for c in cliques]))
            / 2
            / data.records
        )

    began = time.perf_counter()
    plain = cs.reconstruct(
        data.domain,
        measured,
        total=data.records,
        fit=cs.LeastSquares(consistency="local", tolerance=1e-5),
    )
    middle = time.perf_counter()
    pulled = cs.reconstruct(data.domain, measured, total=data.records, fit=cs.Shrunk())
    return {
        "cliques": len(cliques),
        "plain": distance(plain),
        "prior": distance(pulled),
        "strength": pulled.diagnostics.prior_strength or 0.0,
        "plain_seconds": middle - began,
        "prior_seconds": time.perf_counter() - middle,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["titanic", "adult", "fire", "msnbc", "loans"])
    parser.add_argument("--ways", nargs="+", type=int, default=[2, 3])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.01, 0.1, 1.0, 10.0, 100.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument(
        "--out", type=pathlib.Path, default=ROOT / "experiments" / "results" / "prior_and_path.csv"
    )
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    done = set()
    if args.out.exists():
        with args.out.open() as rows:
            done = {
                (r["data"], int(r["way"]), float(r["epsilon"]), int(r["seed"]))
                for r in csv.DictReader(rows)
            }
    with args.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if not done:
            writer.writeheader()
        for name in args.data:
            data = load(name)
            for seed, way, epsilon in itertools.product(args.seeds, args.ways, args.epsilons):
                if (name, way, epsilon, seed) in done:
                    continue
                row = {
                    "data": name,
                    "way": way,
                    "epsilon": epsilon,
                    "seed": seed,
                    **one_run(data, way, epsilon, seed),
                }
                writer.writerow(
                    {k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()}
                )
                file.flush()
                print(
                    f"{name} {way}-way epsilon {epsilon:g} seed {seed}: {row['plain']:.4f} -> {row['prior']:.4f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
