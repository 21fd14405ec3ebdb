"""How often do 90 % intervals hold the truth? Fits to many noise draws, by how large the true count is against the noise.

python experiments/coverage.py [fits]          small generated tables
python experiments/coverage.py adult [fits]    adult, the paper's 32 pairs (needs the data)
"""

from __future__ import annotations

import json
import os
import sys
from itertools import combinations
from pathlib import Path

import numpy as np

import consilience as cs
from consilience.fits import reconstruct
from consilience.model import Model

FOLDER = Path(os.environ.get("CONSILIENCE_DATA", Path(__file__).parents[2] / "shared" / "data"))
SMALL = cs.Domain({"a": 2, "b": 3, "c": 4, "d": 2, "e": 3})
EDGES = (0.0, 0.5, 1.0, 2.0, 4.0, np.inf)
"""True count over the noise's standard deviation: the bins of the table."""


def marginal(domain: cs.Domain, table: np.ndarray, clique) -> np.ndarray:
    return table.sum(axis=tuple(i for i, a in enumerate(domain) if a not in clique))


class Tally:
    """Hits and trials per bin, and the mean width in noise units."""

    def __init__(self) -> None:
        self.hits, self.trials, self.width = np.zeros(6), np.zeros(6), np.zeros(6)

    def add(self, low, high, truth, sigma: float) -> None:
        ratio = truth / sigma
        place = np.where(truth == 0, 0, 1 + np.digitize(ratio, EDGES[1:-1]))
        inside = (low <= truth) & (truth <= high)
        np.add.at(self.hits, place, inside)
        np.add.at(self.trials, place, 1)
        np.add.at(self.width, place, (high - low) / sigma)

    def row(self) -> str:
        cells = [
            f"{h / n:.3f} ({w / n:.1f})" if n else "-"
            for h, n, w in zip(self.hits, self.trials, self.width, strict=True)
        ]
        return " | ".join([*cells, f"{self.hits.sum() / self.trials.sum():.3f}"])


def examine(
    model: Model, tables: dict, sigma: float, tallies: dict, seed: int, replicates: int
) -> None:
    """All three methods from one bootstrap: "auto" away from full tables is the larger of the two."""
    refits = model.uncertainties(list(tables), rng=seed, method="bootstrap", replicates=replicates)
    for (clique, truth), u in zip(tables.items(), refits, strict=True):
        spreads = {"bootstrap": u.stderr}
        if "closed-form" in tallies:
            spreads["closed-form"] = model.stderr(clique, method="closed-form")
            spreads["larger"] = np.maximum(*spreads.values())
        estimate = model.marginal(clique)
        for method, spread in spreads.items():
            reach = 1.6448536269514722 * spread
            low = np.maximum(estimate - reach, 0)
            tallies[method].add(low, estimate + reach, truth, sigma)


def show(name: str, tallies: dict) -> None:
    for method, tally in tallies.items():
        print(f"| {name}, {method} | {tally.row()} |", flush=True)


METHODS = ("closed-form", "bootstrap", "larger")


def measure(tables: dict, sigma: float, noise: str, rng) -> list[cs.Measurement]:
    draw, scale = (rng.normal, sigma) if noise == "gaussian" else (rng.laplace, sigma / 2**0.5)
    return [
        cs.Measurement(c, x + draw(0, scale, x.shape), stddev=sigma, noise=noise)
        for c, x in tables.items()
    ]


HEAD = "| case | empty | to 0.5 | to 1 | to 2 | to 4 | above | all |\n|---|---|---|---|---|---|---|---|"


def small(fits: int) -> None:
    cases = {
        "full cells": (40.0, {}),
        "skewed cells": (0.3, {}),
        "skewed, total estimated": (0.3, {"total": None}),
        "skewed, Laplace noise": (0.3, {"noise": "laplace"}),
        "sparse cells": (0.05, {}),
        "sparse cells, prior": (0.05, {"prior": "independence"}),
    }
    print(HEAD)
    sigma = 20.0
    for name, (skew, given) in cases.items():
        tallies = {m: Tally() for m in METHODS if "prior" not in given or m == "bootstrap"}
        given = {"total": 5000.0, **given}
        noise = given.pop("noise", "gaussian")
        for seed in range(fits):
            rng = np.random.default_rng(seed)
            table = np.round(5000 * rng.dirichlet(np.full(SMALL.size(), skew)).reshape(SMALL.shape))
            if given["total"] is not None:
                given["total"] = float(table.sum())
            tables = {tuple(w): marginal(SMALL, table, w) for w in ("abc", "bcd", "cde", "ae")}
            made = measure(tables, sigma, noise, rng)
            model = reconstruct(
                SMALL, made, fit=cs.LeastSquares(consistency="local", tolerance=1e-4), **given
            )
            examine(model, tables, sigma, tallies, seed, 50 if "prior" not in given else 15)
        show(name, tallies)


def adult(fits: int) -> None:
    domain = cs.Domain(json.loads((FOLDER / "adult-domain.json").read_text()))
    codes = np.loadtxt(FOLDER / "adult.csv.gz", delimiter=",", skiprows=1, dtype=int)
    data = cs.Dataset(codes, domain)
    pairs = list(combinations(domain.attributes, 2))
    chosen = [pairs[i] for i in np.random.RandomState(0).choice(91, 32, replace=False)]
    tables = {c: np.asarray(data.marginal(c), float) for c in chosen}
    print(HEAD)
    for epsilon, sigma in ((0.1, 301.0), (1.0, 30.27), (10.0, 3.32)):
        tallies = {m: Tally() for m in METHODS}
        for seed in range(fits):
            made = measure(tables, sigma, "gaussian", np.random.default_rng(seed))
            model = reconstruct(
                domain,
                made,
                total=float(len(codes)),
                fit=cs.LeastSquares(consistency="local", tolerance=1e-4),
            )
            examine(model, tables, sigma, tallies, seed, 50)
        show(f"epsilon {epsilon:g}", tallies)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["adult"]:
        adult(int(arguments[1]) if len(arguments) > 1 else 5)
    else:
        small(int(arguments[0]) if arguments else 60)
