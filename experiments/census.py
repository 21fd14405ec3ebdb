"""The census's noisy measurement files: three ways to make tables of them, and the error of each at every level.

    python experiments/census.py [--place 15 | 15007] [--files 10] [--out rows.csv] [--quick] [--held]

Truth: Hawaii's 14,732 blocks (census-hi.csv.gz in the data folder), spread to 224 cells as `census simulate` does. Place: the
state, or one of its counties, whose files are then those of a state with one county. Each file is simulated with the production
allocation and a seed from 3000 on. A row is one file, one method, one level and one query: the mean absolute error of a number,
and the CPU-seconds of the method. quick: the county 15007, one file. held: how often 90 % intervals of
ours, from 20 refits, hold the truth, for people by age, origin and race in every place, by level and size of the true count.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time

import numpy as np
from common import RESULTS, Rows, data_folder

from consilience import census
from consilience.census.layout import AXES, NAMES
from consilience.census.rivals import tree_of, truth_of
from consilience.privacy.noise import SeededNoise

FIRST = 3000
FIELDS = ["place", "seed", "method", "level", "query", "error", "cpu_seconds"]
COUNTY = "15007"


def simulated(truth: census.Truth, seed: int) -> census.State:
    with tempfile.TemporaryDirectory() as folder:
        census.simulate(truth, Path(folder) / "files", SeededNoise(seed=seed))
        return census.read_state(Path(folder) / "files")


def ours(state: census.State) -> np.ndarray:
    model = census.state_model(state)
    if not model.diagnostics.converged:
        raise SystemExit(f"the fit must converge, got {model.diagnostics}")
    return model.marginal(("block", *AXES)).reshape(len(state.levels[-1].codes), -1)


METHODS: dict[str, Callable[[census.State], np.ndarray]] = {
    "ours": ours,
    "two-pass least squares": census.two_pass,
    "top-down": census.top_down,
}


HELD = ("votingage", "hispanic", "cenrace")
SIZES = {"zero": (-1, 0), "1 to 20": (0, 20), "20 to 200": (20, 200), "above 200": (200, np.inf)}
REFITS = 20


def held(state: census.State, exact: np.ndarray) -> list[dict]:
    """Cells, and how many of them lie in their interval."""
    model, places, out = census.state_model(state), tree_of(state), []
    found = model.uncertainties([(level, *HELD) for level in NAMES], replicates=REFITS, rng=0)
    for l, (level, errors) in enumerate(zip(NAMES, found, strict=True)):
        true = places.sums(exact, l + 1).reshape(-1, *state.sizes).sum(axis=1)
        low, high = errors.interval(0.9)
        inside = (low <= true + 1e-6) & (true <= high + 1e-6)
        for size, (least, most) in SIZES.items():
            here = (true > least) & (true <= most)
            if here.any():
                out.append({"level": level, "size": size, "cells": int(here.sum()), "held": int(inside[here].sum())})  # fmt: skip
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--place", default="15")
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS / "census.csv")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--held", action="store_true")
    given = parser.parse_args()
    truth = census.read_truth(data_folder() / "census-hi.csv.gz")
    place = COUNTY if given.quick else given.place
    here = [i for i, b in enumerate(truth.blocks) if b.startswith(place)]
    truth = census.Truth(tuple(truth.blocks[i] for i in here), truth.tables[here])
    if given.held:
        key = ["place", "seed", "level", "size"]
        with Rows(RESULTS / "census_held.csv", [*key, "cells", "held"], key) as rows:
            for seed in range(FIRST, FIRST + given.files):
                if (place, seed, "block", "zero") in rows:
                    continue
                state = simulated(truth, seed)
                for row in held(state, truth_of(state, truth)):
                    rows.add(place=place, seed=seed, **row)
                print(place, seed, flush=True)
        return
    with Rows(given.out, FIELDS, ["place", "seed", "method", "level", "query"]) as rows:
        for seed in range(FIRST, FIRST + (1 if given.quick else given.files)):
            if all((place, seed, m, "block", "detailed") in rows for m in METHODS):
                continue
            state = simulated(truth, seed)
            exact = truth_of(state, truth)
            for name, method in METHODS.items():
                if (place, seed, name, "block", "detailed") in rows:
                    continue
                began = process_time()
                tables = method(state)
                took = round(process_time() - began, 1)
                for row in census.errors_by_level(state, exact, {name: tables}):
                    rows.add(place=place, seed=seed, cpu_seconds=took, **row)
                print(place, seed, name, took, flush=True)


if __name__ == "__main__":
    main()
