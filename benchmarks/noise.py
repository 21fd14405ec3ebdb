"""Discrete noise: many values through `SecureNoise` on all cores, beside OpenDP called once on one.

The exact sampler is OpenDP's in both, so per core nobody can be faster; what is shown is that all cores are busy, and the memory.
`python benchmarks/noise.py` measures in a process of its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from time import perf_counter, process_time

import numpy as np
import opendp.prelude as dp
from rows import Row, apart, peak_bytes, seconds, size, timed

from consilience.privacy import SecureNoise, Sigma

VALUES = 500_000
SIGMA = 20.0


def rows(full: bool = False) -> Iterator[Row]:
    found = apart(__file__, *(["full"] if full else []))
    yield Row(
        f"noise: {found['values']:,} discrete Gaussian values",
        f"{found['ours'] / found['values'] * 1e6:.2f} µs each",
        f"OpenDP, one core {found['rival'] / VALUES * 1e6:.2f} µs each",
        found["rival"] / VALUES / (found["ours"] / found["values"]),
        f"OpenDP / ours on {os.cpu_count()} cores; {found['busy']:.2f} cores busy, {size(found['memory'])} more, "
        f"{seconds(found['ours'])} in all, first said {seconds(found['foreseen'])}",
    )


def measure(values: int) -> dict[str, float]:
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    alone = dp.m.make_gaussian(*domain, SIGMA)
    rival, _ = timed(lambda: alone([0] * VALUES))
    foreseen: list[float] = []
    counts = np.zeros(values, np.int64)
    before, began, busy = peak_bytes(), perf_counter(), process_time()
    SecureNoise().discrete_gaussian(
        counts, Sigma(SIGMA), lambda p: foreseen.append(p.seconds_left) if not foreseen else None
    )
    ours = perf_counter() - began
    return {
        "values": values, "ours": ours, "rival": rival, "busy": (process_time() - busy) / ours,
        "memory": peak_bytes() - before, "foreseen": foreseen[0],
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(measure(10_000_000 if sys.argv[1:] == ["full"] else VALUES)))
