"""Large reconstructions from start to end: CPU seconds, peak memory, and how well the plan foresaw it.

10 million cells (100 attributes of size 10, 10,000 random triples) and all triples of 60 and, with --full, of 200 attributes of
size 4 (34,220 tables of 2.2 million cells, 1.3 million of 84 million cells), to a relative gap of 1e-3; and two small ones that
only check the plan's bytes. The noisy tables exist before the clock starts; memory is what the reconstruction adds to them.
`python benchmarks/large.py ten` measures one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import combinations, pairwise
from time import process_time
from typing import Any

import numpy as np
from problems import adult, hundred
from rows import Row, apart, peak_bytes, seconds, size, timed

import consilience as cs

RECORDS = 1e6
KINDS = {
    "ten": "10 M cells",
    "many": "34,220 triples",
    "most": "1.3 M triples",
    "pairs": "32 pairs of adult",
    "tree": "a tree",
}
BARS = {"ten": "4 GB", "many": "1.5 s of CPU", "most": "200 s, 8 GB"}


def rows(full: bool = False) -> Iterator[Row]:
    for kind in ("pairs", "tree", "ten", "many", *(["most"] if full else [])):
        found = apart(__file__, kind)
        bar = f"; bar: {BARS[kind]}" if kind in BARS else ""
        yield Row(
            f"large: {KINDS[kind]}, {found['cells']:,} cells, {found['consistency']}, peak memory",
            f"{size(found['peak'])} in {seconds(found['seconds'])}, {seconds(found['cpu'])} of CPU",
            f"planned {size(found['planned'])}, {seconds(found['foreseen'])}",
            found["planned"] / found["peak"],
            f"planned / measured, bar: 0.7 to 1.3{bar}; {found['iterations']} iterations, gap {found['gap']:.1e}",
        )


def problem(kind: str) -> tuple[cs.Domain, np.ndarray, float]:
    """(domain, cliques as rows of positions, noise in counts)."""
    if kind == "ten":
        domain = hundred()
        return domain, _positions(domain, cs.random_marginals(domain, 3, 10_000, seed=0)), 3_000.0
    if kind in ("many", "most"):
        attributes = 60 if kind == "many" else 200
        domain = cs.Domain({f"x{i:03d}": 4 for i in range(attributes)})
        triples = np.array(list(combinations(range(attributes), 3)), np.int32)
        return domain, triples, 3_000.0 if kind == "many" else 20_000.0
    if kind == "tree":
        domain = cs.Domain({f"x{i:02d}": 100 for i in range(60)})
        return domain, _positions(domain, pairwise(domain.attributes)), 3_000.0
    domain = adult()
    every = list(combinations(domain.attributes, 2))
    chosen = np.random.RandomState(0).choice(len(every), 32, replace=False)
    return domain, _positions(domain, [every[i] for i in chosen]), 3_000.0


def _positions(domain: cs.Domain, cliques: Any) -> np.ndarray:
    return np.array([domain.axes(domain.clique(c)) for c in cliques], np.int32)


def noisy(domain: cs.Domain, cliques: np.ndarray, stddev: float) -> cs.Measurements:
    """Marginals of a mixture of five products, with noise; tables of one shape are made together."""
    rng = np.random.default_rng(0)
    share = rng.dirichlet(np.ones(5))
    ends = [rng.dirichlet(np.full(n, 0.5), size=5) for n in domain.shape]
    most = max(domain.shape)
    padded = np.array([np.pad(e, ((0, 0), (0, most - e.shape[1]))) for e in ends])
    shapes = np.array(domain.shape)[cliques]
    at = np.concatenate([[0], np.cumsum(shapes.prod(axis=1))])
    values = np.empty(at[-1])
    for shape in np.unique(shapes, axis=0):
        same = np.flatnonzero((shapes == shape).all(axis=1))
        for some in np.array_split(same, max(1, len(same) * int(shape.prod()) // 2**14)):
            tables = np.broadcast_to(share[:, None] * RECORDS, (len(some), 5, 1))
            for column, n in zip(cliques[some].T, shape, strict=True):
                one = padded[column][:, :, :n]
                tables = (tables[..., None] * one[:, :, None, :]).reshape(len(some), 5, -1)
            cells = at[some][:, None] + np.arange(int(shape.prod()))
            values[cells] = tables.sum(axis=1)
    for part in np.array_split(values, max(1, values.size // 2**16)):
        part += stddev * rng.standard_normal(part.size)
    values.flags.writeable = False
    return cs.Measurements(domain, cliques, values, stddev=stddev)


def measure(kind: str) -> dict[str, Any]:
    small = cs.Domain({"x": 3, "y": 3, "z": 3})
    for consistency in ("local", "global"):
        chain = noisy(small, np.array([[0, 1], [1, 2]]), 10.0)
        cs.reconstruct(small, chain, fit=cs.LeastSquares(consistency=consistency))
    domain, cliques, stddev = problem(kind)
    measured = noisy(domain, cliques, stddev)
    fit = cs.LeastSquares(
        tolerance=1e-3, memory="16 GB", consistency="global" if kind == "tree" else "local"
    )
    planned = cs.plan(domain, measured, fit=fit, total=RECORDS)
    before, began = peak_bytes(), process_time()
    taken, model = timed(lambda: cs.reconstruct(domain, measured, total=RECORDS, fit=fit))
    return {
        "cells": model.graph.cells, "consistency": planned.consistency, "planned": planned.bytes, "peak": peak_bytes() - before,
        "seconds": taken, "cpu": process_time() - began, "foreseen": planned.seconds, "iterations": model.diagnostics.iterations,
        "gap": model.diagnostics.gap,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
