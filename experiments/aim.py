"""AIM on adult and fire, all three-way marginals: ours beside dpmm's (PyPI), same epsilon, delta and neighbours (add-remove).

    python experiments/aim.py [--data adult fire] [--epsilons 0.1 1 10] [--seeds 0 1 2 3 4] [--variants ours local prior peer]
                              [--peer-python peer/bin/python] [--timeout 3600] [--out rows.csv] [--quick]

ours: the default. local: local consistency alone. prior: prior="independence". peer: AIM of dpmm with its default cap of 80 MB
on the model, run by `aim_peer.py` in an environment of its own (that file says how to make it). Both price (epsilon, 1e-9) as
rho by the tight conversion. Rows are appended as they come, so that a stopped run goes on where it was; a peer that runs out
of time leaves a row without a figure. The figure is the mean total variation over all three-way marginals.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import time
from pathlib import Path

import numpy as np

import consilience as cs
from consilience.mechanisms import AIM
from consilience.privacy import Budget, SeededNoise

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(os.environ.get("CONSILIENCE_DATA", ROOT.parent / "shared" / "data"))
DELTA = 1e-9
FIELDS = ["data", "epsilon", "seed", "variant", "total_variation", "seconds", "tables"]
OPTIONS = {"ours": {}, "local": {"consistency": "local"}, "prior": {"prior": "independence"}}


def load(name: str) -> cs.Dataset:
    domain = cs.Domain(json.loads((FOLDER / f"{name}-domain.json").read_text()))
    codes = np.loadtxt(FOLDER / f"{name}.csv.gz", delimiter=",", skiprows=1, dtype=int)
    return cs.Dataset(codes, domain)


def ours(data: cs.Dataset, epsilon: float, seed: int, variant: str) -> dict[str, object]:
    workload = cs.all_marginals(data.domain, 3)
    budget = Budget(epsilon=epsilon, delta=DELTA, neighbours="add-remove")
    ready = AIM(workload, tolerance=1e-4, **OPTIONS[variant]).calibrate(budget)
    began = time.perf_counter()
    run = ready.start(data, noise=SeededNoise(seed=seed))
    for made in run:
        print(
            f"\r  {made.number} {made.measurement.attributes}"[:100].ljust(100), end="", flush=True
        )
    seconds = time.perf_counter() - began
    truth = data.marginals(workload)
    away = [
        0.5 * np.abs(truth[c] / data.records - a / a.sum()).sum()
        for c, a in zip(workload, run.answers(workload.cliques), strict=True)
    ]
    tables = len(run.release.measurements)
    return {"total_variation": float(np.mean(away)), "seconds": seconds, "tables": tables}


def peer(name: str, epsilon: float, seed: int, python: Path, timeout: float) -> dict[str, object]:
    script = ROOT / "experiments" / "aim_peer.py"
    arguments = [name, str(epsilon), str(seed), str(DELTA), str(FOLDER)]
    try:
        done = subprocess.run(
            [python, script, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=True,
        )
    except subprocess.TimeoutExpired:
        return {"total_variation": "", "seconds": f"more than {timeout:g}", "tables": ""}
    return json.loads(done.stdout.splitlines()[-1])


def table(rows: list[dict[str, str]]) -> None:
    print(
        "| data | epsilon | variant | seeds | mean total variation | seconds |\n|---|---|---|---|---|---|"
    )
    for key in dict.fromkeys((r["data"], r["epsilon"], r["variant"]) for r in rows):
        mine = [r for r in rows if (r["data"], r["epsilon"], r["variant"]) == key]
        found = [float(r["total_variation"]) for r in mine if r["total_variation"]]
        seconds = [float(r["seconds"]) for r in mine if r["total_variation"]]
        shown = f"none | {mine[0]['seconds']}"
        if found:
            shown = f"{np.mean(found):.4f} | {np.mean(seconds):.0f}"
        print(f"| {key[0]} | {key[1]} | {key[2]} | {len(found)} | {shown} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", nargs="+", default=["fire", "adult"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 1.0, 10.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--variants", nargs="+", default=["ours", "peer"])
    parser.add_argument("--peer-python", type=Path, default=ROOT / "peer" / "bin" / "python")
    parser.add_argument("--timeout", type=float, default=3600.0)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments/results/aim.csv")
    parser.add_argument("--quick", action="store_true", help="fire, epsilon 0.1, ours, no file")
    given = parser.parse_args()
    if given.quick:
        print("\n", ours(load("fire"), 0.1, 0, "local"))
        return
    done = list(csv.DictReader(given.out.open())) if given.out.exists() else []
    have = {(r["data"], float(r["epsilon"]), int(r["seed"]), r["variant"]) for r in done}
    for name in given.data:
        data = load(name)
        for seed in given.seeds:
            for epsilon in given.epsilons:
                for variant in given.variants:
                    if (name, epsilon, seed, variant) in have:
                        continue
                    if variant == "peer":
                        row = peer(name, epsilon, seed, given.peer_python, given.timeout)
                    else:
                        row = ours(data, epsilon, seed, variant)
                    row = {
                        "data": name,
                        "epsilon": epsilon,
                        "seed": seed,
                        "variant": variant,
                        **row,
                    }
                    print(f"\r{row}", flush=True)
                    given.out.parent.mkdir(exist_ok=True)
                    fresh = not given.out.exists()
                    with given.out.open("a", newline="") as file:
                        writer = csv.DictWriter(file, FIELDS)
                        if fresh:
                            writer.writeheader()
                        writer.writerow(row)
    table(list(csv.DictReader(given.out.open())))


if __name__ == "__main__":
    main()
