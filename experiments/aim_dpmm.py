# /// script
# requires-python = ">=3.10,<3.12"
# dependencies = ["dpmm==0.1.9"]
# ///
"""AIM of dpmm (PyPI), run in an environment of its own: its pins (NumPy 1, OpenDP 0.12) do not go with ours.

    python -m venv peers/dpmm && peers/dpmm/bin/pip install dpmm==0.1.9
    peers/dpmm/bin/python experiments/aim_dpmm.py NAME EPSILON SEED DELTA FOLDER

Prints one JSON line; rounds and seconds go to the standard error as they come. All settings are its own: cap of 80 MB on the
model, 1,000 iterations of mirror descent a round, warm-started.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from dpmm.models import aim
from dpmm.models.base.mbi import Dataset, Domain, FactoredInference, GraphicalModel


class Reported(FactoredInference):
    """The peer's own inference, which says how far it is."""

    def estimate(self, measurements: list, **given: object) -> GraphicalModel:
        began = time.perf_counter()
        model = super().estimate(measurements, **given)
        size = model.size * 8 / 2**20
        spent = time.perf_counter() - began
        print(f"{len(measurements)} tables, {size:.2f} MB, {spent:.1f} s", file=sys.stderr)
        return model


def main(name: str, epsilon: float, seed: int, delta: float, folder: Path) -> None:
    aim.FactoredInference = Reported
    sizes = json.loads((folder / f"{name}-domain.json").read_text())
    frame = pd.read_csv(folder / f"{name}.csv.gz")
    data = Dataset(frame, Domain(list(sizes), list(sizes.values())))
    triples = list(itertools.combinations(sizes, 3))
    exact = {c: data.project(c).datavector() for c in triples}
    began = time.perf_counter()
    np.random.seed(seed)  # noqa: NPY002  (the peer draws from it)
    mechanism = aim.AIM(epsilon, delta, prng=np.random.RandomState(seed), degree=3, n_jobs=1)
    _, measured = mechanism._fit(data, W=[(c, 1.0) for c in triples])
    model = mechanism.engine.model
    seconds = time.perf_counter() - began
    away = []
    for c in triples:
        answer = model.project(c).datavector()
        away.append(0.5 * np.abs(exact[c] / len(frame) - answer / answer.sum()).sum())
    row = {"total_variation": float(np.mean(away)), "seconds": seconds, "tables": len(measured)}
    print(json.dumps(row))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), Path(sys.argv[5]))
