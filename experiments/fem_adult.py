"""FEM on adult, 64 random 3-way marginals, the authors' seeds: its own records beside the reconstruction from its choices.

    python experiments/fem_adult.py [--quick] [--variants published whole] [--out rows.csv]

Variants: "published" is the authors' number of rounds less the one that overspends, and their epsilon per round; "whole" is
the same number of rounds with the budget spent in full, which the exact price of a selection (epsilon^2 / 8 of rho) allows.
delta = 1 / rows^2, replace-one neighbours. Rows are appended as they come, so the run can be stopped and resumed. Columns: mean
total variation over the 64 tables and the largest difference of any cell's share, of FEM's records and of the model.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import pathlib
import time

import numpy as np
from common import Rows, load

import consilience as cs
from consilience.privacy import SeededNoise

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIELDS = [
    "variant", "epsilon", "seed", "rounds", "fem_tv", "model_tv", "fem_max", "model_max", "fem_seconds", "model_seconds",
]  # fmt: skip
SEEDS = [2457026461, 2643031147, 2094276510, 2378741324, 1961979125]
AUTHORS = {  # epsilon: FEM and FEM + region graph, total variation; the same, largest difference
    0.1: (0.5758, 0.5407, 0.1732, 0.1501),
    0.15: (0.5320, 0.4919, 0.1345, 0.1217),
    0.2: (0.5159, 0.4806, 0.1208, 0.1077),
    0.25: (0.5039, 0.4716, 0.1121, 0.1107),
    0.5: (0.4718, 0.4379, 0.0870, 0.0840),
    1.0: (0.4391, 0.4101, 0.0744, 0.1075),
}


def workload(data: cs.Dataset, seed: int) -> cs.Workload:
    every = [
        c
        for c in itertools.combinations(data.domain.attributes, 3)
        if data.domain.size(c) <= data.records
    ]
    chosen = np.random.RandomState(seed).choice(len(every), 64, replace=False)
    return cs.Workload(data.domain, [every[i] for i in chosen])


def distance(tables: dict, truth: cs.CliqueVector) -> tuple[float, float]:
    """Mean total variation, and the largest difference of a share."""
    apart = [tables[c] / tables[c].sum() - truth[c] / truth[c].sum() for c in truth]
    return float(np.mean([np.abs(a).sum() / 2 for a in apart])), float(
        max(np.abs(a).max() for a in apart)
    )


def one_run(
    data: cs.Dataset, variant: str, epsilon: float, seed: int, blend: float, iterations: int
) -> dict:
    work = workload(data, seed)
    fit = cs.SelectionLikelihood(blend=blend, iterations=iterations)
    fem = cs.mechanisms.FEM(work, published=variant == "published", seed=seed, fit=fit)
    budget = cs.Budget(epsilon=epsilon, delta=1 / data.records**2, neighbours="replace-one")
    ready = fem.calibrate(budget)
    began = time.perf_counter()
    release = ready.measure(data, noise=SeededNoise(seed=seed + round(1000 * epsilon)))
    middle = time.perf_counter()
    model = ready.reconstruct(release).model
    seconds = time.perf_counter() - middle
    truth = data.marginals(work.cliques)
    rows = release.rows.marginals(work.cliques)
    own = distance({c: rows[c] for c in truth}, truth)
    fitted = distance({c: model.marginal(c) for c in truth}, truth)
    return {
        "rounds": ready.rounds,
        "fem_tv": own[0],
        "model_tv": fitted[0],
        "fem_max": own[1],
        "model_max": fitted[1],
        "fem_seconds": middle - began,
        "model_seconds": seconds,
    }


def summary(path: pathlib.Path) -> str:
    found: dict[tuple[str, float], list[list[float]]] = {}
    with path.open() as rows:
        for r in csv.DictReader(rows):
            found.setdefault((r["variant"], float(r["epsilon"])), []).append(
                [float(r[f]) for f in ("fem_tv", "model_tv", "fem_max", "model_max")]
            )
    lines = [
        "variant, epsilon, seeds: total variation of FEM and of the model, largest difference of both; the authors'"
    ]
    for (variant, epsilon), values in sorted(found.items()):
        own = "  ".join(f"{v:.4f}" for v in np.mean(values, axis=0))
        theirs = "  ".join(f"{v:.4f}" for v in AUTHORS[epsilon])
        lines.append(f"{variant:10s} {epsilon:5.2f} {len(values)}   {own}   ({theirs})")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one seed, epsilon 0.1, published")
    parser.add_argument("--variants", nargs="+", default=["published", "whole"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(AUTHORS))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--blend", type=float, default=0.5)
    parser.add_argument("--iterations", type=int, default=80)
    parser.add_argument(
        "--out", type=pathlib.Path, default=ROOT / "experiments" / "results" / "fem_adult.csv"
    )
    args = parser.parse_args()
    if args.quick:
        args.seeds, args.epsilons, args.variants = SEEDS[:1], [0.1], ["published"]
    data = load("adult")
    with Rows(args.out, FIELDS, FIELDS[:3]) as rows:
        for variant, seed, epsilon in itertools.product(args.variants, args.seeds, args.epsilons):
            if (variant, epsilon, seed) in rows:
                continue
            row = one_run(data, variant, epsilon, seed, args.blend, args.iterations)
            shown = {k: str(round(v, 6)) if isinstance(v, float) else v for k, v in row.items()}
            rows.add(variant=variant, epsilon=str(epsilon), seed=seed, **shown)
            print(
                f"{variant} epsilon {epsilon:g} seed {seed}: total variation {row['fem_tv']:.4f} -> {row['model_tv']:.4f}, "
                f"largest {row['fem_max']:.4f} -> {row['model_max']:.4f}, "
                f"{row['fem_seconds']:.0f} + {row['model_seconds']:.0f} s",
                flush=True,
            )
    print(summary(args.out))


if __name__ == "__main__":
    main()
