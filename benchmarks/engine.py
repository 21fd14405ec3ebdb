"""The engine: seconds to build, to wire and per Prox-PGM iteration, and memory, as the number of triples grows.

An iteration is one mirror step with the gradient formed inside it and one sweep of Convex-GBP, as `prox_pgm` runs it: in blocks
of eight. It is compared to copying the buffer of pseudo-marginals once, in turns in the same process. Every size runs in a
process of its own with the JIT cache warm. `python benchmarks/engine.py random 1000` measures one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from problems import RECORDS, STDDEV, Cliques, adult, hundred, loss, triples
from rows import Row, apart, interleaved, peak_bytes, seconds, size, timed

import consilience as cs
from consilience.kernels.threads import threads
from consilience.regions.wiring import Wiring
from consilience.solvers.local import LocalProblem
from consilience.solvers.prox import BLOCK
from consilience.solvers.sweeper import Sweeper

RATE = 0.5 * (STDDEV / RECORDS) ** 2
"""Half of what smoothness allows: the steps of a long solve are small too, and no cell underflows here."""


def rows(full: bool = False) -> Iterator[Row]:
    counts = [1, 10, 100, 1_000, 10_000, *([100_000] if full else [])]
    for kind in ("random", "greedy"):
        for k in counts:
            yield from _scale_rows(kind, k)
    found = apart(__file__, "shapes")
    yield Row(
        f"engine: all 364 triples of adult, {found['adult_cells'] / 1e6:.1f} M cells, iteration",
        f"{found['adult']:.2f} ns per cell",
        f"equal sizes {found['equal']:.2f} ns per cell",
        found["adult"] / found["equal"],
        "adult / equal sizes, bar: 2",
    )


def _scale_rows(kind: str, k: int) -> Iterator[Row]:
    found = apart(__file__, kind, str(k))
    start = found["build"] + found["wire"]
    name = f"engine: {k:,} {kind} triples"
    bars = k == 10_000
    bar = {10: ", bar: 40 us", 100: ", bar: 8", 10_000: ", bar: 4, goal: 2.5"}.get(k, "")
    yield Row(
        f"{name}, build and wire",
        seconds(start),
        "",
        None,
        f"{seconds(found['build'])} + {seconds(found['wire'])}" + ("; bar: 5 s" if bars else ""),
    )
    yield Row(
        f"{name}, iteration",
        seconds(found["iteration"]),
        f"copy of tau {seconds(found['copy'])}",
        found["iteration"] / found["copy"],
        f"ours / copy{bar}; one thread {seconds(found['alone'])}; {found['cells'] / 1e6:.3g} M cells, "
        f"peak {size(found['memory'])}",
    )


def stepper(domain: cs.Domain, cliques: Cliques) -> tuple[LocalProblem, Callable[[], Any]]:
    """A problem and one iteration of it."""
    problem = LocalProblem(
        loss(domain, cliques), cs.RegionGraph.saturated(domain, cliques), "parallel"
    )
    state = problem.uniform()
    return problem, lambda: problem.steps_fused(state, RATE, BLOCK)


def measure(kind: str, k: int) -> dict[str, float]:
    domain = hundred()
    _, warm = stepper(domain, triples(domain, "greedy", 3))
    warm()
    before = peak_bytes()
    cliques = triples(domain, kind, k)
    build, graph = timed(lambda: cs.RegionGraph.saturated(domain, cliques))
    wire, _ = timed(lambda: Sweeper(Wiring.of(graph), "parallel"))
    problem = LocalProblem(loss(domain, cliques), graph, "parallel")
    state = problem.uniform()
    # Copied is another buffer of the same size: reading the state's would apply what an iteration leaves for the next.
    buffer, twin = np.ones(graph.layout.cells), np.zeros(graph.layout.cells)
    rounds = max(9, min(200, 5_000_000 // len(buffer)))

    def block() -> None:
        problem.steps_fused(state, RATE, BLOCK)

    def block_alone() -> None:
        with threads(1):
            block()

    block()
    block_time, alone, copy = interleaved(
        rounds, block, block_alone, lambda: np.copyto(twin, buffer)
    )
    return {
        "build": build, "wire": wire, "iteration": block_time / BLOCK, "alone": alone / BLOCK, "copy": copy,
        "cells": len(buffer), "memory": peak_bytes() - before,
    }  # fmt: skip


def shapes() -> dict[str, float]:
    """Nanoseconds per cell of an iteration: adult's sizes, and equal sizes with about as many cells."""
    uneven, even = adult(), hundred()
    first, step_first = stepper(uneven, list(cs.all_marginals(uneven, 3)))
    cells = first.graph.layout.cells
    second, step_second = stepper(even, triples(even, "random", cells // 1050))
    for step in (step_first, step_second):
        step()
    times = interleaved(15, step_first, step_second)
    per_cell = [
        1e9 * t / BLOCK / p.graph.layout.cells for t, p in zip(times, (first, second), strict=True)
    ]
    return {"adult": per_cell[0], "equal": per_cell[1], "adult_cells": cells}


if __name__ == "__main__":
    given = sys.argv[1:]
    print(json.dumps(shapes() if given == ["shapes"] else measure(given[0], int(given[1]))))
