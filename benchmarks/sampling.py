"""Synthetic rows: a million from a model of fire's sizes, 105 pairs, and how near they are to it.

`python benchmarks/sampling.py` measures in a process of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from time import perf_counter
from typing import Any

from reconstruction import FIRE, RECORDS, mixture
from rows import Row, apart, seconds

import consilience as cs

STDDEV = 55.0
ROWS = 1_000_000


def rows(full: bool = False) -> Iterator[Row]:
    found = apart(__file__)
    yield Row(
        "sample: a million rows, 105 pairs of fire's sizes",
        seconds(found["sample"]),
        "a minute",
        found["sample"] / 60,
        f"ours / bar; backbone {seconds(found['backbone'])} once per model",
    )
    yield Row(
        "sample: mean total variation of those rows to the model",
        f"{found['distance']:.2g}",
        f"independent rows {found['independent']:.2g}",
        found["distance"] / 0.01,
        f"ours / bar of 0.01; as drawn {found['before']:.2g}, {found['moved']:.0%} of codes moved",
    )


def measure() -> dict[str, Any]:
    names = [f"a{i}" for i in range(len(FIRE))]
    domain, measured = mixture(FIRE, list(combinations(names, 2)), STDDEV)
    model = cs.reconstruct(
        domain, measured, total=RECORDS, fit=cs.LeastSquares(consistency="local", tolerance=1e-4)
    )
    began = perf_counter()
    model.sample(1000, 0)  # makes the backbone, reads the JIT cache
    middle = perf_counter()
    report = model.sample_with_report(ROWS, 0)
    return {
        "backbone": middle - began,
        "sample": perf_counter() - middle,
        "distance": report.distance,
        "independent": report.independent,
        "before": report.before,
        "moved": report.moved,
    }


if __name__ == "__main__":
    print(json.dumps(measure()))
