"""Figure 2c: seconds per iteration of Prox-PGM against the number of measured triples, exact and saturated.

    python experiments/figure2_speed.py [--quick] [--mbi] [--out rows.csv]

100 attributes of size 10; triples at random, or greedily those that span the fewest attributes in order. An iteration is a
gradient, a mirror step and the marginals of the new point (one sweep of Convex-GBP, or one calibration of the junction tree).
Each size runs in a process of its own on one thread; `cpu_seconds` is processor time per iteration, which other work on the
machine hardly stretches, and `seconds` is the median on the wall clock. Exact is priced first and refused beyond a budget:
the row then has cells and no time. --mbi adds Convex-GBP of mbi 2.0.0 (extra `bench`) as far as it can be run: it compiles for
minutes at a few hundred triples. benchmarks/ has the same engine on all cores, with memory and start-up.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from common import RESULTS, ROOT, Rows
from reference import FIGURE_2C

sys.path.insert(0, str(ROOT / "benchmarks"))  # the engine's own problems and one iteration of each

import engine as bench_engine  # pyright: ignore[reportMissingImports]
import problems  # pyright: ignore[reportMissingImports]
import rival_mbi  # pyright: ignore[reportMissingImports]
import rows as bench_rows  # pyright: ignore[reportMissingImports]

import consilience as cs
from consilience.regions import JunctionTree

FIELDS = [
    "engine", "selection", "k", "regions", "cells", "seconds", "cpu_seconds", "rounds", "peak_mb", "load"
]  # fmt: skip
SATURATED = [1, 3, 10, 32, 109, 330, 1048, 3237, 10_000]
EXACT = {"random": [1, 10, 20, 29, 35, 42, 51, 62], "greedy": [10, 109, 494, 1048, 1264, 2222]}
MBI = [10, 32, 64]
QUICK = {"saturated": [109, 1048], "exact": [20, 62]}
MOST_CELLS = 60_000_000
"""Junction trees above this are refused here: three buffers of 0.5 GB each. reconstruct's own limit is its memory budget."""


def sizes(kind: str, k: int, engine: str) -> tuple[int, int]:
    """Regions and cells of the structure an iteration works on, without building any table."""

    domain = problems.hundred()
    cliques = problems.triples(domain, kind, k)
    if engine == "exact":
        tree = JunctionTree.of(domain, cliques)
        return len(tree.cliques), tree.cells
    graph = cs.RegionGraph.saturated(domain, cliques)
    return len(graph.regions), graph.cells


def measure(engine: str, kind: str, k: int) -> dict[str, Any]:
    """One row, in this process."""
    regions, cells = sizes(kind, k, engine)
    row = {"regions": regions, "cells": cells, "load": round(os.getloadavg()[0], 1)}
    if engine == "exact" and cells > MOST_CELLS:
        return row

    cliques = problems.triples(problems.hundred(), kind, k)
    if engine == "mbi":
        return row | _mbi(cliques)
    step = _stepper(engine, cliques)
    step()
    taken, cpu = [], []
    budget = time.perf_counter() + 8.0
    while len(taken) < 3 or (time.perf_counter() < budget and len(taken) < 200):
        wall, busy = time.perf_counter(), time.process_time()
        step()
        taken.append(time.perf_counter() - wall)
        cpu.append(time.process_time() - busy)
    return row | {
        "seconds": median(taken), "cpu_seconds": median(cpu), "rounds": len(taken),
        "peak_mb": round(bench_rows.peak_bytes() / 1e6),
    }  # fmt: skip


def _stepper(engine: str, cliques: list[tuple[str, ...]]) -> Callable[[], Any]:

    domain = problems.hundred()
    if engine == "exact":
        return rival_mbi.exact_start(problems.loss(domain, cliques), cliques)
    return bench_engine.stepper(domain, cliques)[1]


def _mbi(cliques: list[tuple[str, ...]]) -> dict[str, Any]:

    clock = rival_mbi.run_local_rival(problems.noisy(problems.hundred(), cliques), 12)
    return {"seconds": clock.each(), "rounds": 11}


def apart(engine: str, kind: str, k: int) -> dict[str, Any]:
    """`measure` in a process of its own, on one thread."""
    environment = os.environ | {"NUMBA_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(
        [sys.executable, __file__, "--one", engine, kind, str(k)],
        check=True, text=True, stdout=subprocess.PIPE, env=environment,
    )  # fmt: skip
    return json.loads(done.stdout.strip().splitlines()[-1])


def wanted(quick: bool, mbi: bool) -> list[tuple[str, str, int]]:
    saturated = QUICK["saturated"] if quick else SATURATED
    asked = [("saturated", kind, k) for kind in ("random", "greedy") for k in saturated]
    asked += [
        ("exact", kind, k)
        for kind in (["random"] if quick else EXACT)
        for k in (QUICK["exact"] if quick else EXACT[kind])
    ]
    return asked + [("mbi", "random", k) for k in (MBI[:1] if quick else MBI) if mbi]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="up to 1,048 triples")
    parser.add_argument("--mbi", action="store_true", help="mbi 2.0.0 too, as far as it runs")
    parser.add_argument("--one", nargs=3, metavar=("ENGINE", "SELECTION", "K"))
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS / "figure2_speed.csv")
    asked = parser.parse_args()
    if asked.one:
        engine, kind, k = asked.one
        print(json.dumps(measure(engine, kind, int(k))))
        return
    with Rows(asked.out, FIELDS, ["engine", "selection", "k"]) as rows:
        for engine, kind, k in wanted(asked.quick, asked.mbi):
            if (engine, kind, k) in rows:
                continue
            found = apart(engine, kind, k)
            rows.add(engine=engine, selection=kind, k=k, **found)
            theirs = FIGURE_2C.get((engine, kind), {}).get(k)
            shown = f"{found['seconds']:.3g} s" if "seconds" in found else "refused: too many cells"
            beside = f" (authors {theirs} s)" if theirs else ""
            print(f"{engine} {kind} {k}: {found['cells']:,} cells, {shown}{beside}", flush=True)


if __name__ == "__main__":
    main()
