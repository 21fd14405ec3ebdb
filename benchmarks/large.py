"""Large reconstructions from start to end: seconds, peak memory, and how well the plan foresaw it.

10 million cells (100 attributes of size 10, 10,000 random triples) and, with --full, 84 million (200 attributes of size 4, all
1.3 million triples), to a relative gap of 1e-3; and three small ones that only check the plan's bytes. The noisy tables exist
before the clock starts; memory is what the reconstruction adds to them. `python benchmarks/large.py ten` measures one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from problems import adult, hundred
from rows import Row, apart, peak_bytes, seconds, size, timed

import consilience as cs

RECORDS = 1e6
KINDS = {"ten": "10 M cells", "most": "84 M cells", "pairs": "32 pairs of adult", "tree": "a tree"}
BARS = {"ten": 4e9, "most": 16e9}


def rows(full: bool = False) -> Iterator[Row]:
    for kind in ("pairs", "tree", "ten", *(["most"] if full else [])):
        found = apart(__file__, kind)
        bar = f"; bar: {size(BARS[kind])}" if kind in BARS else ""
        yield Row(
            f"large: {KINDS[kind]}, {found['cells']:,} cells, {found['consistency']}, peak memory",
            f"{size(found['peak'])} in {seconds(found['seconds'])}",
            f"planned {size(found['planned'])}",
            found["planned"] / found["peak"],
            f"planned / measured, bar: 0.7 to 1.3{bar}; {found['iterations']} iterations, gap {found['gap']:.1e}",
        )


def problem(kind: str) -> tuple[cs.Domain, list[tuple[str, ...]], float]:
    """(domain, cliques, noise in counts)."""
    if kind == "ten":
        domain = hundred()
        return domain, list(cs.random_marginals(domain, 3, 10_000, seed=0)), 3_000.0
    if kind == "most":
        domain = cs.Domain({f"x{i:03d}": 4 for i in range(200)})
        return domain, list(cs.all_marginals(domain, 3)), 20_000.0
    if kind == "tree":
        domain = cs.Domain({f"x{i:02d}": 100 for i in range(60)})
        return domain, list(pairwise(domain.attributes)), 3_000.0
    domain = adult()
    every = list(combinations(domain.attributes, 2))
    chosen = np.random.RandomState(0).choice(len(every), 32, replace=False)
    return domain, [every[i] for i in chosen], 3_000.0


def noisy(domain: cs.Domain, cliques: list[tuple[str, ...]], stddev: float) -> list[cs.Measurement]:
    """Marginals of a mixture of five products, with noise."""
    rng = np.random.default_rng(0)
    share = rng.dirichlet(np.ones(5))[:, None]
    ends = {a: rng.dirichlet(np.full(n, 0.5), size=5) for a, n in domain.sizes.items()}
    measured = []
    for clique in cliques:
        table = share * RECORDS
        for a in clique:
            table = (table[:, :, None] * ends[a][:, None, :]).reshape(5, -1)
        counts = table.sum(axis=0).reshape(domain.shape_of(clique))
        counts += stddev * rng.standard_normal(counts.shape)
        measured.append(cs.Measurement(clique, counts, stddev=stddev))
    return measured


def measure(kind: str) -> dict[str, Any]:
    domain, cliques, stddev = problem(kind)
    small = cs.Domain({"x": 3, "y": 3, "z": 3})
    for consistency in ("local", "global"):
        cs.reconstruct(
            small,
            noisy(small, [("x", "y"), ("y", "z")], 10.0),
            fit=cs.LeastSquares(consistency=consistency),
        )
    measured = noisy(domain, cliques, stddev)
    options: dict[str, Any] = {"memory": "16 GB", "consistency": "global" if kind == "tree" else "local"}  # fmt: skip
    planned = cs.plan(domain, measured, **options)
    before = peak_bytes()
    taken, model = timed(
        lambda: cs.reconstruct(
            domain, measured, total=RECORDS, fit=cs.LeastSquares(tolerance=1e-3), **options
        )
    )
    return {
        "cells": model.graph.cells, "consistency": planned.consistency, "planned": planned.bytes, "peak": peak_bytes() - before,
        "seconds": taken, "iterations": model.diagnostics.iterations, "gap": model.diagnostics.gap,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
