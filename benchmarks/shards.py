"""A generated tree of places in shards: seconds, bytes and memory of an iteration, in this process, by workers and by Spark.

    python benchmarks/shards.py --blocks 5000000 --workers 2 [--iterations 20] [--cells 2016] [--spark] [--out rows.csv]

The tree has 1, 50, 3,000, 84,000 and 240,000 places above 5 million blocks, or that in proportion. Every place measures its
total, some marginals and the table, with standard deviations 2 4 4 5 6 6; values are files that are mapped.
A row is one run of `fit_places`; a `step` is one iteration of all shards. CPU-seconds are of all processes (of Spark, of the
driver alone). Peak memory is the largest resident set of each process (VmHWM), added up: pages of mapped files that a process
touched are counted, in each that did; pages that the system keeps of written files are not: it drops them when memory is short.
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from consilience.progress import Step
from consilience.solvers import place_splitting
from consilience.solvers.place_engines import Shards, Workers, shards_of
from consilience.solvers.place_shards import SHARD
from consilience.solvers.places import PlaceQuery, PlaceRange, Places

LEVELS = 1, 50, 3_000, 84_000, 240_000, 5_000_000
STDDEV = 2.0, 4.0, 4.0, 5.0, 6.0, 6.0
Subset = tuple[int, ...]
SHAPES: dict[int, tuple[tuple[int, ...], tuple[Subset, ...]]] = {
    16: ((2, 8), ((), (0,), (1,), (0, 1))),
    # The redistricting queries but for hhinstlevels: quarters, age, origin, race.
    2016: (
        (8, 2, 2, 63),
        ((), (0,), (1,), (2,), (3,), (1, 2), (1, 3), (2, 3), (1, 2, 3), (0, 1, 2, 3)),
    ),
}
FIELDS = (
    "blocks", "cells", "engine", "workers", "shards", "iterations", "gap", "step_seconds", "step_cpu", "step_moved",
    "step_written", "check_seconds", "whole_seconds", "driver_peak", "workers_peak",
)  # fmt: skip
TICK = os.sysconf("SC_CLK_TCK")


def tree(blocks: int) -> Places:
    counts = [max(1, round(n * blocks / LEVELS[-1])) for n in LEVELS]
    counts[0] = 1
    parents = [np.arange(n) * above // n for above, n in pairwise(counts)]
    return Places(1, parents)


def generated(places: Places, cells: int, folder: Path) -> list[PlaceQuery]:
    """Noisy marginals of every level in files, a portion of the leaves after the other."""
    shape, subsets = SHAPES[cells]
    last, rng = places.last, np.random.default_rng(0)
    sums = [np.zeros((places.count(l), cells)) for l in range(last)]
    above = [places.ancestors(l) for l in range(last)]
    files = {s: _file(folder, places.leaves, s, shape) for s in subsets}
    step = max(1, (1 << 21) // cells)
    for lo in range(0, places.leaves, step):
        rows = slice(lo, min(lo + step, places.leaves))
        size = rng.gamma(0.5, 30.0, (rows.stop - lo, 1))
        kinds = rng.dirichlet(np.full(cells, 5.0 / cells), rows.stop - lo)
        counts = rng.poisson(size * kinds).astype(float)
        for s, file in files.items():
            exact = _marginal(counts, s, shape)
            file[rows] = exact + rng.normal(0.0, STDDEV[-1], exact.shape)
        for l in range(last):
            first, units = above[l][lo], above[l][rows]
            starts = np.searchsorted(units, np.arange(first, units[-1] + 1))
            sums[l][first : units[-1] + 1] += np.add.reduceat(counts, starts, axis=0)
    found = [PlaceQuery(last, s, np.load(_path(folder, s), mmap_mode="r"), STDDEV[-1]) for s in files]  # fmt: skip
    for l in range(last):
        for s in subsets:
            exact = _marginal(sums[l], s, shape)
            noise = rng.normal(0.0, STDDEV[l], exact.shape)
            found.append(PlaceQuery(l, s, exact + noise, STDDEV[l]))
    return found


def _path(folder: Path, subset: Subset) -> Path:
    return folder / f"values{''.join(map(str, subset))}.npy"


def _file(folder: Path, leaves: int, subset: Subset, shape: tuple[int, ...]) -> np.ndarray:
    width = prod(shape[i] for i in subset)
    return np.lib.format.open_memmap(_path(folder, subset), "w+", np.float64, (leaves, width))


def _marginal(tables: np.ndarray, subset: Subset, shape: tuple[int, ...]) -> np.ndarray:
    away = tuple(i + 1 for i in range(len(shape)) if i not in subset)
    return tables.reshape(len(tables), *shape).sum(axis=away).reshape(len(tables), -1)


class Measured(Shards):
    """Shards whose jobs are timed: seconds, CPU-seconds of all processes, bytes of messages, bytes of state written."""

    def __init__(self, inner: Shards) -> None:
        self.inner = inner
        self.jobs: dict[str, list[list[float]]] = defaultdict(list)
        self.count = 0

    def compile(self, cut: Any, tiny: float) -> Iterator[Any]:
        self.count = len(cut)
        yield from self._timed("compile", self.inner.compile(cut, tiny))

    def run(self, job: str, messages: Iterable[Any]) -> Iterator[Any]:
        yield from self._timed(job, self.inner.run(job, messages))

    def _timed(self, job: str, answers: Iterator[Any]) -> Iterator[Any]:
        before = self._now()
        yield from answers
        self.jobs[job].append([b - a for a, b in zip(before, self._now(), strict=True)])

    def _now(self) -> list[float]:
        pids = self.pids
        moved = [getattr(self.inner, n, 0) for n in ("moved", "written")]
        return [perf_counter(), sum(_cpu(p) for p in pids), *moved]

    @property
    def pids(self) -> list[int]:
        return [os.getpid(), *(self.inner.processes if isinstance(self.inner, Workers) else [])]

    def mean(self, job: str) -> list[float]:
        return np.mean(self.jobs[job] or [[0.0] * 4], axis=0).tolist()


def _cpu(pid: int) -> float:
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / TICK


def _peak(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def session(cores: int) -> Any:
    from pyspark.sql import SparkSession  # pyright: ignore[reportMissingImports]

    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.driver.memory", "3g")
    return builder.config("spark.ui.enabled", "false").getOrCreate()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=50_000)
    parser.add_argument("--cells", type=int, choices=list(SHAPES), default=16)
    parser.add_argument("--workers", type=int, default=0, help="0: this process")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--shard", type=int, default=SHARD)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    peaks = {}

    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as inside:
        folder, places = Path(inside), tree(given.blocks)
        queries = generated(places, given.cells, folder)
        seen: list[Measured] = []

        @contextmanager
        def measured(workers: Any, where: Path | None) -> Iterator[Shards]:
            with shards_of(workers, where) as inner:
                seen.append(Measured(inner))
                yield seen[-1]
                peaks.update({p: _peak(p) for p in seen[-1].pids})

        def told(step: Step) -> None:
            if step.total in (None, step.done) or step.done % 10 == 0:
                print(f"{perf_counter() - began:7.0f} s  {step}", flush=True)

        place_splitting.shards_of = measured
        workers: Any = session(2) if given.spark else (given.workers or None)
        began = perf_counter()
        total = PlaceRange.exact(0, (), queries[-1].values[:1, :1] * 0 + _total(queries))
        found = place_splitting.fit_places(
            places, SHAPES[given.cells][0], queries, [total], workers=workers, folder=folder, iterations=given.iterations,
            tolerance=given.tolerance, shard_cells=given.shard, progress=told,
        )  # fmt: skip
        whole = perf_counter() - began
        print(found)
        assert found.tables.min() >= 0.0
        own, shards = peaks.pop(os.getpid()), seen[0]
        step = shards.mean("step")
        engine = "spark" if given.spark else type(shards.inner).__name__.lower()
        check = shards.mean("certify")[0]
        values = [
            given.blocks, given.cells, engine, given.workers or 2, shards.count, found.iterations, f"{found.gap:.2e}",
            f"{step[0]:.3f}", f"{step[1]:.3f}", round(step[2]), round(step[3]), f"{check:.3f}", f"{whole:.1f}", own,
            sum(peaks.values()),
        ]  # fmt: skip
        for name, value in zip(FIELDS, values, strict=True):
            print(f"{name:>16} {value}")
        for job in shards.jobs:
            print(job, len(shards.jobs[job]), [f"{x:.4g}" for x in shards.mean(job)])
        if given.out is not None:
            new = not given.out.exists()
            with given.out.open("a", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                if new:
                    writer.writerow(FIELDS)
                writer.writerow(values)


def _total(queries: list[PlaceQuery]) -> float:
    """Of the root, rounded: as good as known."""
    return float(next(q.values.sum() for q in queries if q.level == 0 and q.attributes == ()))


if __name__ == "__main__":
    main()
