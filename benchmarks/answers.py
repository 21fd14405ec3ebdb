"""Answers nobody measured: all 105 pairs of fire after 50 rounds, beside the reconstruction that they come from.

`python benchmarks/answers.py` measures in a process of its own. The data are fire where it is (CONSILIENCE_DATA, else
../shared/data) with the first 50 pairs of noise-free MWEM, else tables of fire's sizes with 50 pairs drawn at random.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from reconstruction import FIRE, RECORDS, mixture
from rows import Row, apart, seconds

import consilience as cs

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(os.environ.get("CONSILIENCE_DATA", ROOT.parent / "shared" / "data"))
ORDER = ROOT / "experiments" / "results" / "noise_free_mwem.csv"
ROUNDS, BAR = 50, 2.0
SCALE = 40.0
"""Laplace noise of the paper's MWEM at epsilon 0.1 a round."""


def rows(full: bool = False) -> Iterator[Row]:
    found = apart(__file__)
    yield Row(
        f"answer: all 105 pairs of {found['data']}, {ROUNDS} of them measured",
        seconds(found["answers"]),
        f"{BAR:g} s",
        found["answers"] / BAR,
        f"ours / bar, compute of one process; with the backbone, {seconds(found['backbone'])} of it, "
        f"{found['answers'] / found['reconstruction']:.2g} times one reconstruction ({seconds(found['reconstruction'])})",
    )
    yield Row(
        "answer: the same pairs again, backbone at hand",
        seconds(found["again"]),
        "",
        found["again"] / BAR,
        "ours / bar",
    )


def problem() -> tuple[str, cs.Domain, list[cs.Measurement], float]:
    rng = np.random.default_rng(0)
    if (FOLDER / "fire.csv.gz").exists() and ORDER.exists():
        domain = cs.Domain(json.loads((FOLDER / "fire-domain.json").read_text()))
        codes = np.loadtxt(FOLDER / "fire.csv.gz", delimiter=",", skiprows=1, dtype=int)
        told = [r["pair"] for r in csv.DictReader(ORDER.open()) if r["data"] == "fire"]
        cliques = [tuple(pair.split(" x ")) for pair in told[1 : ROUNDS + 1]]
        counts = cs.Dataset(codes, domain).marginals(cliques)
        noisy = [
            cs.Measurement(
                c, t + rng.laplace(0, SCALE, t.shape), stddev=SCALE * 2**0.5, noise="laplace"
            )
            for c, t in counts.items()
        ]
        return "fire", domain, noisy, float(len(codes))
    names = [f"a{i}" for i in range(len(FIRE))]
    pairs = list(combinations(names, 2))
    chosen = [pairs[i] for i in rng.choice(len(pairs), ROUNDS, replace=False)]
    domain, noisy = mixture(FIRE, chosen, SCALE * 2**0.5)
    return "fire's sizes", domain, noisy, RECORDS


def measure() -> dict[str, Any]:
    data, domain, noisy, total = problem()
    for _ in range(2):  # the second time nothing is compiled or loaded
        began = process_time()
        model = cs.reconstruct(domain, noisy, total=total, fit=cs.LeastSquares(consistency="local"))
        fitted = process_time()
        model.prepare()
        ready = process_time()
        model.marginals(combinations(domain.attributes, 2))
        answered = process_time()
    model.marginals(combinations(domain.attributes, 2))
    return {
        "data": data,
        "reconstruction": fitted - began,
        "backbone": ready - fitted,
        "answers": answered - fitted,
        "again": process_time() - answered,
    }


if __name__ == "__main__":
    print(json.dumps(measure()))
