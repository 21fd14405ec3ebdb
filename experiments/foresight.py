"""What tables came out like, by the noise in them: the experience that `expect` and `consilience plan` speak from.

    python experiments/foresight.py [--data adult ...] [--designs pilot ...] [--seed 0] [--cap 60] [--out rows.csv] [--quick]
    python experiments/foresight.py --write          src/consilience/mechanisms/experience.py from the rows
    python experiments/foresight.py --check          how often achieved total variation lay in the stated range

Each row is the tables of one release whose foreseen noise is within half a decade: their number, the mean foreseen noise, and the
mean and the 10 %, 50 % and 90 % quantiles of the total variation of their reconstruction. `told` is the share of cells whose
true count is above twice the standard deviation of that noise. Known tables: adult, fire, titanic, and the generated population,
whole and in part. Kept apart for --check: msnbc, loans, and the American Community Survey.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import multiprocessing
import resource
from itertools import combinations
from pathlib import Path

import numpy as np
from common import RESULTS, ROOT, Rows, data_folder, load, read_rows

import consilience as cs
from consilience import mechanisms
from consilience.mechanisms.experience import CURVES
from consilience.mechanisms.foresight import Expectation, even_noise
from consilience.privacy import Budget, SeededNoise

LOCAL, SHRUNK = cs.LeastSquares(consistency="local"), cs.Shrunk()
DESIGNS = {
    "pilot": lambda w: mechanisms.Pilot(w),
    "gaussian": lambda w: mechanisms.Gaussian(w, fit=LOCAL),
    "gaussian-shrunk": lambda w: mechanisms.Gaussian(w, fit=SHRUNK),
    "gaussian-latent": lambda w: mechanisms.Gaussian(w, fit=cs.LatentClasses()),
    "residual-planner": lambda w: mechanisms.ResidualPlanner(w, fit=LOCAL),
    "residual-planner-shrunk": lambda w: mechanisms.ResidualPlanner(w, fit=SHRUNK),
    "laplace": lambda w: mechanisms.Laplace(w, fit=LOCAL),
    "hdmm-laplace": lambda w: mechanisms.HDMM(w, fit=LOCAL),
    "aim": lambda w: mechanisms.AIM(w),
    "mwem": lambda w: mechanisms.MWEM(w),
}
PURE = ("laplace", "hdmm-laplace")
KNOWN, APART = ("titanic", "fire", "adult", "people"), ("acs", "msnbc", "loans")
MOST = 150
"""Tables of a release."""
LARGEST = 20_000
"""Cells of a table of three attributes."""
EPSILONS = (0.01, 0.1, 1.0, 10.0)
KEYS = ["data", "columns", "ways", "rows", "epsilon", "design", "band"]
FIELDS = [*KEYS, "tables", "noise", "mean", "low", "middle", "high", "told"]


def table_of(name: str) -> cs.Dataset:
    if name == "people":
        return cs.population(30_000, np.random.default_rng(1))
    if name != "acs":
        return load(name)
    with gzip.open(data_folder() / "acs-ma2019-raw.csv.gz", "rt") as lines:
        rows = list(csv.reader(lines))
    columns = list(zip(*rows[1:], strict=True))
    codes = [np.unique(c, return_inverse=True) for c in columns]
    some = [i for i, (values, _) in enumerate(codes) if 1 < len(values) <= 100]
    domain = cs.Domain({rows[0][i]: len(codes[i][0]) for i in some})
    return cs.Dataset(np.column_stack([codes[i][1] for i in some]), domain)


def parts_of(name: str) -> list[tuple[str, int, int, cs.Dataset]]:
    """(columns, ways, rows) and the table: whole, and with some columns and a tenth of the rows."""
    data = table_of(name)
    rng = np.random.default_rng(sum(map(ord, name)))
    codes, sizes = data.to_array(), data.domain.sizes
    names = list(data.domain.attributes)
    few = sorted(rng.choice(len(names), min(7, len(names)), replace=False).tolist())
    tenth = rng.choice(len(codes), max(500, len(codes) // 10), replace=False)

    def part(columns: list[int], rows=slice(None)) -> cs.Dataset:
        domain = cs.Domain({names[i]: sizes[names[i]] for i in columns})
        return cs.Dataset(codes[rows][:, columns].astype(np.int64), domain)

    every = list(range(len(names)))
    out = [
        ("all", 2, part(every)),
        ("few", 2, part(few)),
        ("few", 3, part(few)),
        ("few", 1, part(few)),
    ]
    out += [("few", 2, part(few, tenth)), ("few", 3, part(few, tenth))]
    return [(columns, ways, len(d.to_array()), d) for columns, ways, d in out]


def workload_of(domain: cs.Domain, ways: int) -> cs.Workload:
    found = [
        c for c in combinations(domain.attributes, ways) if ways < 3 or domain.size(c) <= LARGEST
    ]
    places = np.random.RandomState(0).permutation(len(found))[:MOST]
    return cs.Workload(domain, [found[i] for i in sorted(places)])


def release(data: cs.Dataset, ways: int, epsilon: float, design: str, seed: int) -> list[dict]:
    workload = workload_of(data.domain, ways)
    delta = None if design in PURE else 1e-9
    budget = Budget(epsilon=epsilon, delta=delta, neighbours="add-remove")
    model = DESIGNS[design](workload).calibrate(budget)(data, noise=SeededNoise(seed=seed)).model
    n = float(data.records)
    noise = even_noise(workload, budget, n)
    truth = [data.marginal(c) for c in workload]
    found = model.marginals(workload)
    far = np.array([np.abs(a - t).sum() / (2 * n) for a, t in zip(found, truth, strict=True)])
    root = (np.pi / 2) ** 0.5
    told = np.array(
        [np.mean(t > 2 * root * 2 * n * x / t.size) for t, x in zip(truth, noise, strict=True)]
    )
    bands = np.floor(2 * np.log10(noise)).astype(int)
    out = []
    for band in np.unique(bands):
        here = bands == band
        low, middle, high = np.quantile(far[here], [0.1, 0.5, 0.9])
        out.append({
            "band": int(band), "tables": int(here.sum()), "noise": float(np.exp(np.log(noise[here]).mean())),
            "mean": float(far[here].mean()), "low": float(low), "middle": float(middle), "high": float(high),
            "told": float(told[here].mean()),
        })  # fmt: skip
    return out


def _child(cap: int, pipe, *words) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (cap, cap))
    pipe.send(release(*words))


def capped(cap: int, *words) -> list[dict]:
    """The same in a process of its own, which ends at `cap` CPU-seconds: then one row without a distance."""
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_child, args=(cap, theirs, *words))
    child.start()
    theirs.close()
    try:
        found = ours.recv()
    except EOFError:
        found = [{"tables": 0}]
    child.join()
    return found


def run(rows: Rows, given: argparse.Namespace) -> None:
    done = {tuple(r[k] for k in KEYS[:-1]) for r in rows.rows}
    for name in given.data:
        for columns, ways, count, data in parts_of(name):
            for design in given.designs:
                for epsilon in given.epsilons:
                    key = (name, columns, ways, count, epsilon, design)
                    if tuple(f"{k:.6g}" if isinstance(k, float) else str(k) for k in key) in done:
                        continue
                    for row in capped(given.cap, data, ways, epsilon, design, given.seed):
                        rows.add(**dict(zip(KEYS, key, strict=False)), **row)
                    print(*key, flush=True)


# -- from rows to the module ---------------------------------------------------------------------------

GRID = np.arange(-4, 3.01, 0.5)
WIDTH = 0.4
"""Of the kernel, in decades of noise."""
LOW, HIGH, MARGIN = 0.1, 0.9, 0.08
"""Quantiles over known tables, and what is added at either end, in decades, because those that we know are few."""


def _weighted(values: np.ndarray, weights: np.ndarray, q: float) -> float:
    order = np.argsort(values)
    mass = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(mass, q).clip(0, len(values) - 1)])


def curves(rows: list[dict[str, str]]) -> list[np.ndarray]:
    """Low, middle and high of the mean over tables, low and high of a table: total variation at each noise of the grid."""
    x = np.log10([float(r["noise"]) for r in rows])
    y = {k: np.log10([float(r[k]) for r in rows]) for k in ("mean", "low", "middle", "high")}
    names = [r["data"] for r in rows]
    even = np.array([1 / names.count(n) for n in names])
    middle, out = [], []
    for at in GRID:
        w = even * (np.exp(-0.5 * ((x - at) / WIDTH) ** 2) + 1e-12)
        slope = np.polyfit(x - at, y["mean"], 1, w=np.sqrt(w))
        middle.append(slope[1])
    middle = np.maximum.accumulate(middle)
    here = np.interp(x, GRID, middle)
    tables = np.concatenate([y[k] - here for k in ("low", "middle", "high")])
    for at, m in zip(GRID, middle, strict=True):
        w = even * (np.exp(-0.5 * ((x - at) / WIDTH) ** 2) + 1e-12)
        ends = [_weighted(y["mean"] - here, w, q) for q in (LOW, HIGH)]
        each = np.concatenate([0.3 * w, 0.4 * w, 0.3 * w])
        wide = [_weighted(tables, each, q) for q in (LOW, HIGH)]
        out.append([
            m + min(ends[0], 0) - MARGIN, m, m + max(ends[1], 0) + MARGIN,
            m + min(wide[0], 0) - MARGIN, m + max(wide[1], 0) + MARGIN,
        ])  # fmt: skip
    return [np.minimum(10 ** np.maximum.accumulate(c), 1.0) for c in np.array(out).T]


def told(rows: list[dict[str, str]]) -> list[np.ndarray]:
    x, y = (np.array([float(r[k]) for r in rows]) for k in ("noise", "told"))
    out = []
    for at in GRID:
        w = np.exp(-0.5 * ((np.log10(x) - at) / WIDTH) ** 2) + 1e-12
        out.append([_weighted(y, w, q) for q in (LOW, 0.5, HIGH)])
    return [np.minimum.accumulate(c) for c in np.array(out).T]


def known(rows: list[dict[str, str]], design: str | None, ways: int) -> list[dict[str, str]]:
    return [
        r for r in rows
        if r["data"] in KNOWN and r["ways"] == str(ways) and r["tables"] != "0" and design in (None, r["design"])
    ]  # fmt: skip


def write(rows: list[dict[str, str]]) -> None:
    """The module that the library reads."""

    def listed(values: list[np.ndarray]) -> str:
        return "".join(f"            ({', '.join(f'{v:.2g}' for v in c)}),\n" for c in values)

    lines = [
        '"""How close designs came on tables that we know, by the noise in them. Written by experiments/foresight.py."""\n',
        "# fmt: off\n",
        f"GRID = ({', '.join(f'{v:g}' for v in GRID)})",
        '"""log10 of the total variation of the noise in a table, measured once and alike."""',
        "CURVES = {",
    ]
    designs = [d for d in DESIGNS if all(known(rows, d, k) for k in (1, 2, 3))]
    for design in designs:
        lines.append(f'    "{design}": {{')
        for ways in (1, 2, 3):
            lines.append(
                f"        {ways}: (\n{listed(curves(known(rows, design, ways)))}        ),"
            )
        lines.append("    },")
    lines += [
        "}",
        '"""Design, attributes of a table: low, middle and high of the mean over tables, low and high of one table."""',
        "TOLD = {",
    ]
    for ways in (1, 2, 3):
        lines.append(
            f"    {ways}: (\n{listed(told(known(rows, 'gaussian', ways)))}    ),".replace(
                "            (", "        ("
            )
        )
    lines += [
        "}",
        '"""The share of cells whose count is above twice the standard deviation of the noise: low, middle, high."""\n',
    ]
    path = ROOT / "src" / "consilience" / "mechanisms" / "experience.py"
    path.write_text("\n".join(lines))


def check(rows: list[dict[str, str]]) -> dict[str, tuple[int, int]]:
    """{design: (releases whose mean lay in the stated range, releases)} of the data kept apart."""
    groups: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for r in rows:
        if r["data"] in APART and r["tables"] != "0":
            groups.setdefault(tuple(r[k] for k in KEYS[:-1]), []).append(r)
    found: dict[str, tuple[int, int]] = {}
    for key, members in groups.items():
        ways, design = int(key[2]), key[5]
        if design not in CURVES:
            continue
        counts = np.array([int(r["tables"]) for r in members])
        noise = np.repeat([float(r["noise"]) for r in members], counts)
        domain = cs.Domain({f"a{i}": 2 for i in range(30)})
        workload = cs.Workload(domain, list(combinations(domain.attributes, ways))[: len(noise)])
        stated = Expectation(design, workload, float(key[3]), noise[: len(workload)]).mean
        achieved = float(counts @ [float(r["mean"]) for r in members] / counts.sum())
        inside, of = found.get(design, (0, 0))
        found[design] = (inside + (stated.low <= achieved <= stated.high), of + 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=[*KNOWN, *APART], choices=[*KNOWN, *APART])
    parser.add_argument("--designs", nargs="+", default=list(DESIGNS), choices=list(DESIGNS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cap", type=int, default=60)
    parser.add_argument("--out", type=Path, default=RESULTS / "foresight.csv")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.write:
        write(read_rows(given.out))
        return
    if given.check:
        for design, (inside, of) in check(read_rows(given.out)).items():
            print(f"{design:<24} {inside} of {of}")
        return
    if given.quick:
        given.data, given.designs, given.epsilons = ["titanic"], ["gaussian"], [1.0]
    with Rows(given.out, FIELDS, KEYS) as rows:
        run(rows, given)


if __name__ == "__main__":
    main()
