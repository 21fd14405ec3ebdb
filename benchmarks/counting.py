"""Counting marginals: ours beside numpy.bincount clique by clique, and the memory it takes.

    python benchmarks/counting.py            # fire (or generated people), then 10 million rows
    python benchmarks/counting.py --quick    # without the 10 million rows

Speed: all three-way marginals of fire (305,119 x 15), best of several runs in one process, counts
compared cell by cell. Memory: 10 million rows x 15 columns; the growth of the peak resident size
past the input array, in a process of its own.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from time import perf_counter

import numpy as np

from consilience.data import Dataset, population
from consilience.domain import Domain, all_marginals

FOLDER = Path(os.environ.get("CONSILIENCE_DATA", Path(__file__).parents[2] / "shared" / "data"))


def fire_or_people() -> tuple[str, Domain, np.ndarray]:
    if (FOLDER / "fire.csv.gz").exists():
        domain = Domain(json.loads((FOLDER / "fire-domain.json").read_text()))
        codes = np.loadtxt(FOLDER / "fire.csv.gz", delimiter=",", skiprows=1, dtype=np.int64)
        return "fire", domain, codes
    data = population(300_000, np.random.default_rng(0))
    return "generated people", data.domain, data.to_array().astype(np.int64)


def bincount_all(columns: np.ndarray, domain: Domain, k: int) -> list[np.ndarray]:
    """The rival: one ravel and one bincount per clique, on contiguous columns (its best case)."""
    tables = []
    for axes in combinations(range(len(domain)), k):
        shape = tuple(domain.shape[a] for a in axes)
        cells = np.ravel_multi_index([columns[a] for a in axes], shape)
        tables.append(np.bincount(cells, minlength=int(np.prod(shape))))
    return tables


def best(work, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return min(times)


def speed() -> None:
    name, domain, codes = fire_or_people()
    columns = np.ascontiguousarray(codes.T)
    narrow = columns.astype(np.uint8)
    start = perf_counter()
    data = Dataset(codes, domain)
    built = perf_counter() - start
    print(f"{name}: {data.records:,} records x {len(domain)}, dataset built in {built:.3f} s")
    for k in (2, 3):
        workload = all_marginals(domain, k)
        same = np.array_equal(
            data.marginals(workload).values, np.concatenate(bincount_all(columns, domain, k))
        )
        ours = best(lambda w=workload: data.marginals(w), 7)
        wide = best(lambda k=k: bincount_all(columns, domain, k), 3)
        thin = best(lambda k=k: bincount_all(narrow, domain, k), 3)
        print(
            f"  {len(workload):4d} {k}-way: ours {ours:.3f} s, "
            f"bincount {wide:.3f} s on int64 codes ({wide / ours:.1f}x), "
            f"{thin:.3f} s on uint8 codes ({thin / ours:.1f}x), "
            f"counts {'identical' if same else 'DIFFERENT'}"
        )


def memory(rows: int) -> None:
    """Run in a process of its own, so that the peak is this work's."""
    domain = Domain({f"a{i:02d}": size for i, size in enumerate([2, 5, 10, 20, 40] * 3)})
    rng = np.random.default_rng(0)
    codes = np.empty((rows, len(domain)), dtype=np.int64)
    for j, size in enumerate(domain.shape):
        codes[:, j] = rng.integers(0, size, rows, dtype=np.uint8)
    Dataset(codes[:1000], domain).marginals(all_marginals(domain, 3))  # compile before measuring
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = perf_counter()
    data = Dataset(codes, domain)
    built = perf_counter() - start
    start = perf_counter()
    tables = data.marginals(all_marginals(domain, 3))
    counted = perf_counter() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(
        f"{rows:,} records x {len(domain)}: input {codes.nbytes / 1e9:.2f} GB, "
        f"dataset built in {built:.1f} s, {len(tables)} 3-way marginals in {counted:.1f} s, "
        f"peak beyond the input {grown / 1e9:.2f} GB"
    )


if __name__ == "__main__":
    if "--memory" in sys.argv:
        memory(10_000_000)
    else:
        speed()
        if "--quick" not in sys.argv:
            subprocess.run([sys.executable, __file__, "--memory"], check=True)
