"""Counting marginals: ours beside numpy.bincount clique by clique, and the memory it takes.

Speed: all two-way and three-way marginals of fire (305,119 x 15; generated people if fire is not
there), medians of runs in turns in one process, counts compared cell by cell. Memory: 10 million
rows x 15 columns; the growth of the peak resident size past the input array, in a process of its
own (`python benchmarks/counting.py` measures that).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from problems import FOLDER
from rows import Row, apart, interleaved, peak_bytes, seconds, size, timed

from consilience import Dataset, Domain, all_marginals, population


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


def rows(full: bool = False) -> Iterator[Row]:
    name, domain, codes = fire_or_people()
    columns = np.ascontiguousarray(codes.T)
    data = Dataset(codes, domain)
    for k in (2, 3):
        workload = all_marginals(domain, k)
        counted = np.concatenate(bincount_all(columns, domain, k))
        same = np.array_equal(data.marginals(workload).values, counted)
        ours, rival = interleaved(
            5,
            lambda w=workload: data.marginals(w),
            lambda k=k: bincount_all(columns, domain, k),
        )
        yield Row(
            f"counting: {len(workload)} {k}-way marginals of {name}",
            seconds(ours),
            f"bincount {seconds(rival)}",
            rival / ours,
            f"bincount / ours{', bar: 5' if k == 3 else ''}; counts {'identical' if same else 'DIFFERENT'}",
        )
    found = apart(__file__)
    yield Row(
        f"counting: {found['rows']:,} rows x 15, memory beyond the input",
        size(found["grown"]),
        f"input {size(found['input'])}",
        found["grown"] / 1e9,
        f"of the bar, 1 GB; built in {seconds(found['built'])}, 455 3-way in {seconds(found['counted'])}",
    )


def memory(records: int) -> dict[str, float]:
    domain = Domain({f"a{i:02d}": n for i, n in enumerate([2, 5, 10, 20, 40] * 3)})
    workload = all_marginals(domain, 3)
    rng = np.random.default_rng(0)
    codes = np.empty((records, len(domain)), dtype=np.int64)
    for j, n in enumerate(domain.shape):
        codes[:, j] = rng.integers(0, n, records, dtype=np.uint8)
    Dataset(codes[:1000], domain).marginals(workload)  # compile before measuring
    before = peak_bytes()
    built, data = timed(lambda: Dataset(codes, domain))
    counted, _ = timed(lambda: data.marginals(workload))
    return {
        "rows": records, "input": codes.nbytes, "built": built, "counted": counted,
        "grown": peak_bytes() - before,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(memory(10_000_000)))
