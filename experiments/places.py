"""Places within places: the error of every level beside least squares, and how often 90 % intervals hold the truth.

    python experiments/places.py [--known total tract] [--fit plain clear pulled] [--releases 200] [--out rows.csv] [--quick]

Truth: the blocks of one county of Hawaii (census-hi.csv.gz in the data folder, 1,344 blocks of 16 cells). Every release draws
Gaussian noise of 4, 4, 5 and 6 on four tables at each of four levels, from seed 1000 on. known: what is exact, the total or
the number of people of each tract. fit: plain is `LeastSquares`, clear is `LeastSquares(clear=4.0)`, pulled is `Shrunk`, and
the latter two in whole numbers as well. A row is ten releases, one level, one size of true count: cells, how many the interval
holds, and the mean absolute error of the model and of least squares on the tree.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from itertools import product
from pathlib import Path

import numpy as np
from common import RESULTS, Rows, data_folder

import consilience as cs
from consilience.fits.least_squares import CLEAR
from consilience.measurements import Measurements, bound_controls
from consilience.solvers.place_reading import read_tree
from consilience.solvers.place_splitting import fit_places
from consilience.solvers.places import PlaceQuery, PlaceRange

COUNTY = "15007"
LEVELS = {"county": 4.0, "tract": 4.0, "group": 5.0, "block": 6.0}
DIGITS = {"group": 12, "tract": 11, "county": 5}
SIZES = {"zero": (-1, 0), "1 to 20": (0, 20), "20 to 200": (20, 200), "above 200": (200, np.inf)}
TABLES = [(), ("age",), ("race",), ("age", "race")]
FITS = ("plain", "clear", "pulled")
FIELDS = ["known", "fit", "first", "level", "size", "cells", "held", "error", "least_squares"]
TOGETHER = 10


def truth() -> tuple[cs.Domain, np.ndarray]:
    with gzip.open(data_folder() / "census-hi.csv.gz", "rt") as lines:
        rows = [r for r in csv.reader(lines) if r[0].startswith(COUNTY)]
    codes = [r[0] for r in rows]
    levels, below, finer = {}, "block", codes
    for name, digits in DIGITS.items():
        units = sorted({c[:digits] for c in finer})
        levels[name] = (below, [units.index(c[:digits]) for c in finer])
        below, finer = name, units
    domain = cs.Domain({"block": len(codes), "age": 2, "race": 8}, levels=levels)
    return domain, np.array([[int(v) for v in r[1:]] for r in rows], float).reshape(-1, 2, 8)


def at(domain: cs.Domain, table: np.ndarray, level: str) -> np.ndarray:
    return domain.levels[level].summed(table, 0) if level in domain.levels else table


def noisy(domain: cs.Domain, counts: np.ndarray, seed: int) -> list[cs.Measurement]:
    rng, out = np.random.default_rng(seed), []
    for level, sigma in LEVELS.items():
        table = at(domain, counts, level)
        for names in TABLES:
            away = tuple(i for i, a in ((1, "age"), (2, "race")) if a not in names)
            exact = table.sum(axis=away)
            values = exact + sigma * rng.normal(size=exact.shape)
            out.append(cs.Measurement((level, *names), values, stddev=sigma))
    return out


def least_squares(domain: cs.Domain, measured: list[cs.Measurement], controls, total: float) -> np.ndarray:  # type: ignore[no-untyped-def]  # fmt: skip
    """The two-pass estimate, negative cells and all."""
    bound = bound_controls(domain, controls)
    tree = read_tree(domain, Measurements.of(domain, measured), bound)
    assert tree is not None
    queries = [
        PlaceQuery(
            tree.places.last if m.attributes[0] == "block" else tree.levels.index(domain.levels[m.attributes[0]]),
            tuple(("age", "race").index(a) for a in m.attributes[1:]), m.values, m.stddev,
        )
        for m in measured
    ]  # fmt: skip
    known = [PlaceRange.exact(0, (), np.array([total]))]
    known += [
        PlaceRange.exact(tree.levels.index(domain.levels[c.named[0]]), (), c.low) for c in bound
    ]
    return fit_places(tree.places, (2, 8), queries, known, nonnegative=False).tables.reshape(-1, 2, 8)  # fmt: skip


def run(known: str, kind: str, first: int, count: int, refits: int | None = None) -> list[dict]:
    domain, counts = truth()
    total = float(counts.sum())
    exact = at(domain, counts, "tract").sum(axis=(1, 2))
    controls = [cs.Exact("tract", exact)] if known == "tract" else []
    tally: dict[tuple[str, str, str], np.ndarray] = {}
    for seed in range(first, first + count):
        measured = noisy(domain, counts, seed)
        fit: cs.Fit = cs.LeastSquares(
            tolerance=1e-4, controls=controls, clear=CLEAR if kind == "clear" else None
        )
        if kind == "pulled":
            fit = cs.Shrunk(controls=controls)
        model = cs.reconstruct(domain, measured, total, fit)
        plain = least_squares(domain, measured, controls, total)
        asked = [(level, "age", "race") for level in LEVELS]
        found = {kind: model.uncertainties(asked, replicates=refits)}
        if kind != "plain":
            found[f"{kind}, whole"] = model.whole().uncertainties(asked, replicates=refits)
        for name, level, errors in ((n, l, e) for n, f in found.items() for l, e in zip(LEVELS, f, strict=True)):  # fmt: skip
            true = at(domain, counts, level)
            low, high = errors.interval(0.9)
            held = (low <= true + 1e-9) & (true <= high + 1e-9)
            ours, theirs = np.abs(errors.answer - true), np.abs(at(domain, plain, level) - true)
            for size, (least, most) in SIZES.items():
                here = (true > least) & (true <= most)
                sums = [here.sum(), held[here].sum(), ours[here].sum(), theirs[here].sum()]
                tally.setdefault((name, level, size), np.zeros(4))[:] += sums
    return [
        {
            "fit": name,
            "level": level,
            "size": size,
            "cells": int(n),
            "held": int(held),
            "error": ours / n,
            "least_squares": theirs / n,
        }
        for (name, level, size), (n, held, ours, theirs) in tally.items()
        if n
    ]


def table(path: Path) -> str:
    """How often intervals hold, by fit, level and size, and the mean absolute errors, as docs/hierarchies.md has them."""
    sums: dict[tuple[str, str, str, str], np.ndarray] = {}
    releases: dict[tuple[str, str], set[str]] = {}
    with path.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            n = float(row["cells"])
            new = [n, float(row["held"]), n * float(row["error"]), n * float(row["least_squares"])]
            releases.setdefault((row["known"], row["fit"]), set()).add(row["first"])
            for size in ("all", row["size"]):
                key = row["known"], row["fit"], row["level"], size
                sums[key] = sums.get(key, np.zeros(4)) + new
    head = "| known | fit | releases | level | all cells | zero | 1 to 20 | 20 to 200 | above 200 | error | least squares |"
    lines = [head, "|" + "---|" * 11]
    for (known, fit), first in releases.items():
        for level in LEVELS:
            held = [sums.get((known, fit, level, s)) for s in ("all", *SIZES)]
            shown = ["-" if x is None else f"{x[1] / x[0]:.3f}".lstrip("0") for x in held]
            whole = sums[known, fit, level, "all"]
            errors = [f"{whole[k] / whole[0]:.2f}" for k in (2, 3)]
            lines.append("| " + " | ".join([known, fit, str(TOGETHER * len(first)), level, *shown, *errors]) + " |")  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--known", nargs="*", default=["total", "tract"])
    parser.add_argument("--fit", nargs="*", default=list(FITS), choices=list(FITS))
    parser.add_argument("--releases", type=int, default=200)
    parser.add_argument("--out", type=Path, default=RESULTS / "places.csv")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--table", action="store_true", help="print the table of the rows")
    given = parser.parse_args()
    if given.table:
        print(table(given.out))
        return
    releases = TOGETHER if given.quick else given.releases
    with Rows(given.out, FIELDS, ["known", "fit", "first", "level", "size"]) as rows:
        for first in range(1000, 1000 + releases, TOGETHER):
            for known, kind in product(given.known[: 1 if given.quick else None], given.fit):
                if (known, kind, first, "block", "zero") in rows:
                    continue
                for row in run(known, kind, first, *((1, 4) if given.quick else (TOGETHER,))):
                    rows.add(known=known, first=first, **row)
                print(known, kind, first, flush=True)


if __name__ == "__main__":
    main()
