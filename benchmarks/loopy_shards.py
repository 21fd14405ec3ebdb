"""What an iteration of splitting costs when the cliques of a loopy graph lie in several processes, beside one process.

    python benchmarks/loopy_shards.py [--attributes 120] [--iterations 10] [--out rows.csv]

All triples of so many attributes of size 4 (200: 84 million cells). Each of 1, 2 and 4 processes has its share of the triples
and one thread. An iteration is the solver's own on those tables; then the separators (all pairs, 16 numbers each) go to shared
memory, and every process adds up all of them in the order of the processes: the one exchange that an iteration needs. The sums
are thrown away, so what comes out is that of separate graphs; the work is that of the whole. CPU-seconds are of all processes.
"""

from __future__ import annotations

import argparse
import csv
from itertools import combinations
from multiprocessing import get_context
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from large import RECORDS, noisy
from rows import peak_bytes

import consilience as cs
from consilience.kernels.threads import threads
from consilience.solvers.planner import build_graph
from consilience.solvers.split_iteration import SplitIteration
from consilience.solvers.split_problem import SplitProblem

FIELDS = (
    "attributes", "cells", "separators", "processes", "iteration_seconds", "iteration_cpu", "exchange_cpu", "exchange_bytes",
    "peak",
)  # fmt: skip


def shard(
    own: int, processes: int, attributes: int, iterations: int, name: str, barrier: Any, out: Any
) -> None:
    domain = cs.Domain({f"x{i:03d}": 4 for i in range(attributes)})
    triples = np.array(list(combinations(range(attributes), 3)), np.int32)[own::processes]
    separators = attributes * (attributes - 1) // 2 * 16
    memory = SharedMemory(name)
    shared = np.ndarray((processes, separators), np.float64, memory.buf)
    measured = noisy(domain, triples, 20_000.0)
    loss = cs.SquaredLoss(domain, measured, RECORDS)
    iteration = SplitIteration(
        SplitProblem(build_graph(domain, loss.cliques, "local"), loss, None, False, None, ())
    )
    partial, exchange, began, cpu = np.ones(separators), 0.0, 0.0, 0.0
    with threads(1):
        for i in range(iterations + 1):
            if i == 1:  # the first compiles
                exchange, began, cpu = 0.0, perf_counter(), process_time()
            iteration.step()
            before = process_time()
            if processes > 1:
                shared[own] = partial
                barrier.wait()
                partial = shared.sum(axis=0) / processes
                barrier.wait()
            exchange += process_time() - before
    took, used = perf_counter() - began, process_time() - cpu
    out.put((took / iterations, used / iterations, exchange / iterations, peak_bytes()))
    del shared
    memory.close()


def measured_with(processes: int, attributes: int, iterations: int) -> list[Any]:
    separators, context = attributes * (attributes - 1) // 2 * 16, get_context("spawn")
    memory = SharedMemory(create=True, size=separators * processes * 8)
    barrier, out = context.Barrier(processes), context.Queue()
    running = [
        context.Process(target=shard, args=(s, processes, attributes, iterations, memory.name, barrier, out))
        for s in range(processes)
    ]  # fmt: skip
    for p in running:
        p.start()
    found = np.array([out.get(timeout=600) for _ in running])
    for p in running:
        p.join()
    memory.close()
    memory.unlink()
    cells = attributes * (attributes - 1) * (attributes - 2) // 6 * 64
    moved = separators * 8 * (processes + 1) * processes if processes > 1 else 0
    took, (cpu, exchange, peak) = found[:, 0].max(), found[:, 1:].sum(axis=0)
    times = f"{took:.3f}", f"{cpu:.3f}", f"{exchange:.4f}"
    return [attributes, cells, separators, processes, *times, moved, int(peak)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--attributes", type=int, default=120)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = [measured_with(n, given.attributes, given.iterations) for n in (1, 2, 4)]
    for row in rows:
        print(dict(zip(FIELDS, row, strict=True)), flush=True)
    if given.out is not None:
        new = not given.out.exists()
        with given.out.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([FIELDS, *rows] if new else rows)


if __name__ == "__main__":
    main()
