"""AIM on adult and fire, all three-way marginals: ours beside two from PyPI; same epsilon, delta and neighbours (add-remove).

    python experiments/aim.py [--data adult fire] [--epsilons 0.1 1 10] [--seeds 0 1 2 3 4] [--variants ours ... opendp]
                              [--peers folder] [--timeout 3600] [--out rows.csv] [--quick]

ours: the default. local: local consistency alone. prior: Shrunk. dpmm and opendp: those packages' AIM with their
own settings, among them a cap of 80 MB on the model, run by `aim_dpmm.py` and `aim_opendp.py` in environments of their own
(these files say how to make them, in the folder --peers). All price (epsilon, 1e-9) as rho by the tight conversion. A peer that
runs out of time leaves a row without a figure, which says so. The figure is the mean total variation over all three-way
marginals; seconds are those of the run without it: CPU-seconds of ours, seconds of the peers by the clock.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from common import RESULTS, ROOT, Rows, data_folder, load, means

import consilience as cs
from consilience.mechanisms import AIM
from consilience.privacy import Budget, SeededNoise

DELTA = 1e-9
FIELDS = ["data", "epsilon", "seed", "variant", "total_variation", "seconds", "tables", "note"]
FITS = {
    "ours": cs.LeastSquares(tolerance=1e-4),
    "local": cs.LeastSquares(consistency="local", tolerance=1e-4),
    "prior": cs.Shrunk(),
}
PEERS = ("dpmm", "opendp")


def budget(epsilon: float) -> Budget:
    return Budget(epsilon=epsilon, delta=DELTA, neighbours="add-remove")


def ours(data: cs.Dataset, epsilon: float, seed: int, variant: str) -> dict[str, object]:
    workload = cs.all_marginals(data.domain, 3)
    ready = AIM(workload, fit=FITS[variant]).calibrate(budget(epsilon))
    began = time.process_time()
    run = ready.start(data, noise=SeededNoise(seed=seed))
    for made in run:
        words = ", ".join(made.measurement.attributes)
        print(f"  {made.number}: {words}, {time.process_time() - began:.1f} s", flush=True)
    seconds = time.process_time() - began
    truth = data.marginals(workload)
    away = [
        0.5 * np.abs(truth[c] / data.records - a / a.sum()).sum()
        for c, a in zip(workload, run.answers(workload.cliques), strict=True)
    ]
    tables = len(run.release.measurements)
    return {"total_variation": float(np.mean(away)), "seconds": seconds, "tables": tables}


def peer(name: str, epsilon: float, seed: int, variant: str, folder: Path, timeout: float) -> dict:
    """One run of a peer in its own environment; its progress goes to the screen."""
    rho = float(budget(epsilon).capacity.value)
    words = {
        "dpmm": [name, str(epsilon), str(seed), str(DELTA), str(data_folder())],
        "opendp": [name, repr(rho), str(data_folder())],
    }[variant]
    script = ROOT / "experiments" / f"aim_{variant}.py"
    began = time.perf_counter()
    try:
        done = subprocess.run(
            [folder / variant / "bin" / "python", script, *words],
            stdout=subprocess.PIPE, text=True, timeout=timeout, check=True, env=os.environ | {"JAX_ENABLE_X64": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"seconds": time.perf_counter() - began, "note": "stopped, had not ended"}
    return json.loads(done.stdout.splitlines()[-1])


def table(rows: list[dict[str, str]]) -> str:
    found = means(rows, ["data", "epsilon", "variant"], "total_variation")
    spent = means(rows, ["data", "epsilon", "variant"], "seconds")
    lines = ["data, epsilon, variant: runs, mean total variation, seconds"]
    lines += [
        f"{' '.join(k)}: {v[2]}, {v[0]:.4f}, {spent[k][0]:.0f}" for k, v in sorted(found.items())
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["adult", "fire"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 1.0, 10.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--variants", nargs="+", default=["ours"], choices=[*FITS, *PEERS])
    parser.add_argument("--peers", type=Path, default=ROOT / "peers")
    parser.add_argument("--timeout", type=float, default=3600.0)
    parser.add_argument("--out", type=Path, default=RESULTS / "aim.csv")
    parser.add_argument("--quick", action="store_true", help="titanic, epsilon 1, one seed")
    given = parser.parse_args()
    if given.quick:
        given.data, given.epsilons, given.seeds = ["titanic"], [1.0], [0]
    with Rows(given.out, FIELDS, ["data", "epsilon", "seed", "variant"]) as rows:
        for name in given.data:
            data = load(name)
            for seed, epsilon, variant in itertools.product(
                given.seeds, given.epsilons, given.variants
            ):
                if (name, epsilon, seed, variant) in rows:
                    continue
                if variant in PEERS:
                    row = peer(name, epsilon, seed, variant, given.peers, given.timeout)
                else:
                    row = ours(data, epsilon, seed, variant)
                rows.add(data=name, epsilon=epsilon, seed=seed, variant=variant, **row)
                print(name, epsilon, seed, variant, row, flush=True)
    print(table(rows.rows))


if __name__ == "__main__":
    sys.exit(main())
