"""How often 90 % intervals hold the truth: mechanisms, fits, three epsilons, three data sets.

    python experiments/intervals.py [--data adult titanic fire] [--epsilons 0.1 1 10] [--fits least-squares ...] [--seeds 0 1 2]
                                    [--tuned] [--out rows.csv] [--quick]
    python experiments/intervals.py --errors simulated [...]   refits and simulated runs beside each other, 20 of each
    python experiments/intervals.py --table [--errors simulated]   the tables of docs/uncertainty.md from the rows

Each row is one release of all pairs of a few columns: how many cells there were, how many intervals held the true count, the
same for true counts above 200 and for true zeros, and the total variation that was expected and achieved, over the tables
that were measured, over those that an adaptive mechanism left to be inferred, and over single attributes (those of fits with
latent classes are committed). --tuned takes the columns and
the seed on which the rule of the intervals was chosen; the committed rows are of other seeds and mostly other columns.
--errors simulated takes mechanisms that choose by noisy values, each with the fit that it has unless told otherwise, and writes
two rows for each release: its errors by as many refits as runs, and by runs of the whole mechanism. They are in a file of their
own, because refits that are fewer are another thing than those of the first tables.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path

import numpy as np
from common import RESULTS, Rows, load, read_rows

import consilience as cs
from consilience import mechanisms
from consilience.privacy import Budget, SeededNoise

COLUMNS = {
    "adult": ("age", "workclass", "marital-status", "relationship", "race", "income>50K"),
    "titanic": ("Pclass", "Sex", "Parch", "Fare", "Survived"),
    "fire": ("Battalion", "Call Type Group", "Neighborhooods - Analysis Boundaries", "Priority", "Unit Type"),
}  # fmt: skip
TUNED = {
    "adult": ("workclass", "education-num", "marital-status", "occupation", "race", "income>50K"),
    "titanic": ("Pclass", "Sex", "Age", "SibSp", "Embarked"),
    "fire": ("Battalion", "Call Final Disposition", "Call Type", "City", "Original Priority", "Unit Type"),
}  # fmt: skip
MECHANISMS = {
    "gaussian": mechanisms.Gaussian,
    "hdmm": mechanisms.HDMM,
    "residual-planner": mechanisms.ResidualPlanner,
    "mwem": mechanisms.MWEM,
    "aim": mechanisms.AIM,
    "pilot": mechanisms.Pilot,
}
FITS = {
    "least-squares": cs.LeastSquares(consistency="local"),
    "shrunk": cs.Shrunk(),
    "latent-classes": cs.LatentClasses(),
    "last": mechanisms.AIM.fit,
}
TAKES = {"latent-classes": ("gaussian", "pilot"), "last": ("aim",)}
"""What was measured with a fit, where that is not the five others. `Auto` takes pilot with latent classes for these tables;
"last" is what AIM ends with unless told otherwise."""
OWN = {"pilot": "latent-classes", "aim": "last", "mwem": "possible-cells"}
"""What these mechanisms end with unless told otherwise: the fits of --errors simulated."""
REPLICATES = 20
"""Runs of the whole mechanism, and as many refits beside them."""
LARGE = 200
KEYS = ["data", "epsilon", "mechanism", "fit", "seed", "basis"]
COUNTS = ["cells", "held", "large", "large_held", "zeros", "zeros_held"]
FOUND = [*COUNTS, "width", "expected", "achieved", "replicates", "seconds"]
FIELDS = [*KEYS, *FOUND]
SIMULATED = [*KEYS, "errors"]
"""The keys of the rows that --errors simulated writes."""
LOWEST, HIGHEST = 0.88, 0.94
"""The goal for a share of intervals that hold the truth, at a level of 0.9."""
NEAREST, FURTHEST = 0.8, 1.3
"""The goal for the expected total variation over the achieved one."""


def columns_of(name: str, chosen: tuple[str, ...]) -> cs.Dataset:
    data = load(name)
    return cs.Dataset(
        np.column_stack([data.column(c) for c in chosen]).astype(np.int64),
        cs.Domain({c: data.domain[c] for c in chosen}),
    )


Found = Iterator[tuple[str, dict[str, float]]]


def calibrated(data: cs.Dataset, epsilon: float, mechanism: str, fit: cs.Fit):
    pairs = list(combinations(data.domain.attributes, 2))
    return MECHANISMS[mechanism](cs.Workload(data.domain, pairs), fit=fit).calibrate(
        Budget(epsilon=epsilon, delta=1e-6, neighbours="replace-one")
    )


def release(data: cs.Dataset, epsilon: float, mechanism: str, fit: str, seed: int) -> Found:
    """(basis, row) of the measured tables, of the inferred ones, and of single attributes."""
    began = time.process_time()
    ready = calibrated(data, epsilon, mechanism, FITS[fit])
    model = ready(data, noise=SeededNoise(seed=seed)).model
    asked = [*ready.mechanism.workload.cliques, *((a,) for a in data.domain.attributes)]
    errors = dict(zip(asked, model.uncertainties(asked), strict=True))
    yield from held(data, model, errors, time.process_time() - began)


def both(
    data: cs.Dataset, epsilon: float, mechanism: str, seed: int
) -> Iterator[tuple[str, str, dict[str, float]]]:
    """(basis, errors, row) of one release by as many refits as runs of the whole mechanism, then by these."""
    own = MECHANISMS[mechanism].fit
    ready = calibrated(data, epsilon, mechanism, own)
    result = ready(data, noise=SeededNoise(seed=seed))
    pairs = ready.mechanism.workload.cliques
    ways = {
        "refits": lambda: result.model.lasting(REPLICATES),
        "simulated": lambda: ready.simulated(result, REPLICATES),
    }
    for kind, made in ways.items():
        began = time.process_time()
        model = made()
        found = model.uncertainties(pairs, method="bootstrap")
        errors = dict(zip(pairs, found, strict=True))
        for basis, row in held(data, model, errors, time.process_time() - began):
            yield basis, kind, row


def held(
    data: cs.Dataset, model: cs.Model, errors: dict[tuple[str, ...], cs.Uncertainty], seconds: float
) -> Found:
    """How many intervals hold the truth: of pairs that were measured, of those that were not, and of single attributes."""
    pairs = [c for c in errors if len(c) > 1]
    bases = {
        "measured": [c for c in pairs if model.in_model(c)],
        "inferred": [c for c in pairs if not model.in_model(c)],
        "single": [c for c in errors if len(c) == 1],
    }
    for basis, some in bases.items():
        if not some:
            continue
        truth = np.concatenate([data.marginal(c).reshape(-1) for c in some]).astype(float)
        ends = [errors[c].interval(0.9) for c in some]
        low, high = (np.concatenate([e[i].reshape(-1) for e in ends]) for i in (0, 1))
        inside_it = (low <= truth + 1e-6) & (truth <= high + 1e-6)
        kinds = {"cells": truth >= 0, "large": truth > LARGE, "zeros": truth == 0}
        row = {k: int(v.sum()) for k, v in kinds.items()}
        names = {"cells": "held", "large": "large_held", "zeros": "zeros_held"}
        row |= {names[k]: int(inside_it[v].sum()) for k, v in kinds.items()}
        said = [float(errors[c].distance.sum()) for c in some]
        far = [float(np.abs(errors[c].answer - data.marginal(c)).sum()) for c in some]
        yield (
            basis,
            {
                **row,
                "width": float((high - low).mean()),
                "expected": float(np.mean(said)) / 2 / model.total,
                "achieved": float(np.mean(far)) / 2 / model.total,
                "replicates": errors[some[0]].replicates,
                "seconds": seconds,
            },
        )


def run(rows: Rows, chosen: dict[str, tuple[str, ...]], given: argparse.Namespace) -> None:
    for name in given.data:
        data = columns_of(name, chosen[name])
        for epsilon in given.epsilons:
            for mechanism in given.mechanisms:
                for fit in given.fits:
                    if mechanism not in TAKES.get(fit, [m for m in MECHANISMS if m != "pilot"]):
                        continue
                    for seed in given.seeds:
                        key = (name, epsilon, mechanism, fit, seed)
                        if (*key, "measured") in rows:
                            continue
                        for basis, row in release(data, epsilon, mechanism, fit, seed):
                            rows.add(**dict(zip(KEYS, (*key, basis), strict=True)), **row)
                            print(*key, basis, f"{row['held'] / row['cells']:.3f}", flush=True)


def run_simulated(
    rows: Rows, chosen: dict[str, tuple[str, ...]], given: argparse.Namespace
) -> None:
    for name in given.data:
        data = columns_of(name, chosen[name])
        for epsilon, mechanism, seed in product(given.epsilons, given.mechanisms, given.seeds):
            if mechanism not in OWN:
                continue
            key = (name, epsilon, mechanism, OWN[mechanism], seed)
            if any((*key, basis, "simulated") in rows for basis in ("measured", "inferred")):
                continue
            for basis, kind, row in list(both(data, epsilon, mechanism, seed)):
                rows.add(**dict(zip(SIMULATED, (*key, basis, kind), strict=True)), **row)
                print(*key, basis, kind, f"{row['held'] / row['cells']:.3f}", flush=True)


# -- the tables of the docs ----------------------------------------------------------------------------


def pooled(rows: list[dict[str, str]], by: tuple[str, ...]) -> dict[tuple[str, ...], dict]:
    """{key: shares that held the truth, and the mean expected over the mean achieved total variation}."""
    found: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in rows:
        found.setdefault(tuple(row[b] for b in by), []).append(row)
    out = {}
    for key, group in found.items():
        total = {c: sum(int(r[c]) for r in group) for c in COUNTS}
        share = {
            of: total[held] / total[of] if total[of] else float("nan")
            for of, held in (("cells", "held"), ("large", "large_held"), ("zeros", "zeros_held"))
        }
        sums = [sum(float(r[c]) for r in group) for c in ("expected", "achieved")]
        out[key] = share | {"variation": sums[0] / sums[1], "numbers": total}
    return out


def marked(value: float, low: float, high: float, count: int) -> str:
    """A share, in bold where it misses the goal by more than its own standard error explains."""
    if not count:
        return "-"
    text = f"{value:.3f}"
    return text if low <= value <= high else f"**{text}**"


def table(rows: list[dict[str, str]], by: tuple[str, ...]) -> str:
    lines = [
        f"| {' | '.join(by)} | all cells | above {LARGE} | true zeros | expected / achieved |",
        "|" + "---|" * (len(by) + 4),
    ]
    for key, found in pooled(rows, by).items():
        parts = [
            marked(found[k], LOWEST, HIGHEST, found["numbers"][k])
            for k in ("cells", "large", "zeros")
        ]
        parts.append(marked(found["variation"], NEAREST, FURTHEST, 1))
        lines.append(f"| {' | '.join(key)} | {' | '.join(parts)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=list(COLUMNS), choices=list(COLUMNS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 1.0, 10.0])
    parser.add_argument(
        "--mechanisms", nargs="+", default=list(MECHANISMS), choices=list(MECHANISMS)
    )
    parser.add_argument("--fits", nargs="+", default=list(FITS), choices=list(FITS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--errors", choices=["refits", "simulated"], default="refits")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    simulated = given.errors == "simulated"
    if given.out is None:
        given.out = RESULTS / ("intervals-simulated.csv" if simulated else "intervals.csv")
    if given.table and simulated:
        rows = read_rows(given.out)
        for basis in ("measured", "inferred"):
            some = [r for r in rows if r["basis"] == basis]
            print(table(some, ("mechanism", "epsilon", "errors")), end="\n\n")
            print(table(some, ("data", "mechanism", "errors")), end="\n\n")
        return
    if given.table:
        rows = read_rows(given.out)
        measured = [r for r in rows if r["basis"] == "measured"]
        for some in (
            [r for r in measured if (r["fit"] in TAKES) is apart] for apart in (False, True)
        ):
            print(table(some, ("mechanism", "fit", "epsilon")), end="\n\n")
            print(table(some, ("data", "epsilon")), end="\n\n")
        for basis in ("inferred", "single"):
            some = [r for r in rows if r["basis"] == basis]
            print(table(some, ("data", "epsilon")), end="\n\n")
        return
    if given.quick:
        given.data, given.epsilons, given.seeds = ["titanic"], [1.0], [0]
        given.mechanisms = ["gaussian", "aim"]
    if given.tuned:
        given.seeds = [100]
    chosen = TUNED if given.tuned else COLUMNS
    if simulated:
        with Rows(given.out, [*SIMULATED, *FOUND], SIMULATED) as rows:
            run_simulated(rows, chosen, given)
        return
    with Rows(given.out, FIELDS, KEYS) as rows:
        run(rows, chosen, given)


if __name__ == "__main__":
    main()
