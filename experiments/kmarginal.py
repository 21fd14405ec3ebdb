"""NIST's k-marginal score on the ACS excerpts: ours by default, AIM, MST, samples.

    python experiments/kmarginal.py [--excerpts massachusetts national] [--columns all demographic] [--epsilons 1 5 10]
                                    [--designs auto auto-puma auto-known aim aim-own mst sample resample]
                                    [--seeds 100 101 ...] [--cap 1200] [--out rows.csv] [--quick]

massachusetts: 7,634 people of 2019. national: 27,253 people of 20 PUMAs, 2019, which nothing was tuned on; it is NIST's
national2019.csv (sha256 b49ba83e...), to be laid beside the paper's data.

The score is SDNist 2.5's, written anew from its definition: every pair of columns within every PUMA (the group), shares of all
rows, 1000 (1 - mean total variation); columns with wide bounds in about twenty bins of equal frequency of the target, missing
values apart. 1000 is the target itself. Add-remove neighbours per row, delta 1e-5. --columns demographic: the ten without a
PUMA for which SDNist publishes reports; then there is no group.

The schema is the public dictionary's. Decided by hand, without the data: PUMA is one of the excerpt's own; ages in steps of
five years (among the ten columns also at the ends of school, 3, 18 and 22, and the year within its step has a column of its
own, asked for with the step alone); incomes by the brackets of the Census Bureau's own tables. Left out: weights, the industry
in 271 codes (its 19 categories stay) and the density, which is a fact about the PUMA.

auto: `mechanisms.Auto` for all pairs. auto-puma: the same, asked for every pair within a PUMA. auto-known: and told what the
dictionary says cannot occur (an income below the age of 15, a rented home in group quarters). aim: OpenDP's, with our
estimator under it (`consilience.adapters.opendp`); aim-own: with mbi's. mst: the script of mbi's repository, with our estimator
under it. Each needs an environment of its own; the noise of OpenDP cannot be seeded. OpenDP's MST is not here: with 20 columns
version 0.16 refused its own budget, over its last digit, at every epsilon tried; with four columns it runs (tests/adapters).

    make adapters && JAX_ENABLE_X64=1 .venv-opendp/bin/python experiments/kmarginal.py --designs aim
    git clone https://github.com/ryan112358/mbi peers/mbi && pip install jax matplotlib optax chex networkx
    JAX_ENABLE_X64=1 PYTHONPATH=peers/mbi/src:peers/mbi/mechanisms python experiments/kmarginal.py --designs mst

sample: the score of so many percent of the real rows (epsilon stands for percent), NIST's own yardstick. resample: of as many
rows as there are, drawn with replacement: about what whoever knew the population, and not the sample, could reach.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import multiprocessing
import resource
import signal
import time
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, Rows, data_folder

import consilience as cs
from consilience import mechanisms
from consilience.privacy import Budget, Rho, SeededNoise

DELTA = 1e-5
GROUP = "PUMA"
LEFT_OUT = ("PWGTP", "WGTP", "INDP", "DENSITY")
DEMOGRAPHIC = ("AGEP", "SEX", "MSP", "RAC1P", "HOUSING_TYPE", "OWN_RENT", "EDU", "PINCP_DECILE", "DVET", "DEYE")  # fmt: skip
EXCERPTS = {"massachusetts": "acs-ma2019-raw.csv.gz", "national": "national2019.csv"}
STATES = {"massachusetts": "25-", "texas": "48-"}
"""How PUMAs of an excerpt of one state begin; all others are the national excerpt's."""
AGES, STEP, YEAR = [*range(0, 100, 5), 100], 5, "AGEP.year"
SCHOOL = [0, 3, 5, 10, 15, 18, 20, 22, *range(25, 100, 5), 100]
"""Steps of ages among the ten columns: nobody is at school before 3; most leave it at 18 or 22."""
INCOMES = [-9000, 0, 1, 2500, 5000, 7500, 10_000, 12_500, 15_000, 20_000, 25_000, 30_000, 35_000, 40_000, 45_000, 50_000, 60_000,
           75_000, 100_000, 125_000, 150_000, 200_000, 300_000, 500_000, 1_341_000]  # fmt: skip
"""Brackets of the tables that the Census Bureau publishes, finer at the ends."""
UNDER = {"MSP": 15, "PINCP": 15, "PINCP_DECILE": 15, "INDP_CAT": 16, "EDU": 3, "DREM": 5, "DPHY": 5}
"""The dictionary: not applicable (N) to people younger than this; for INDP_CAT also to others, who have not worked."""
KEYS = ["excerpt", "columns", "epsilon", "seed", "design"]
FIELDS = [*KEYS, "score", "cpu_seconds", "status"]
DESIGNS = ("auto", "auto-puma", "auto-known", "aim", "aim-own", "mst", "sample", "resample")
QUANTILES, WIDE = 20, 20


# -- the table -------------------------------------------------------------------------------------


def dictionary() -> dict[str, Any]:
    return json.loads((data_folder() / "acs-data-dictionary.json").read_text())


def columns(excerpt: str = "massachusetts", kept: str = "all") -> dict[str, np.ndarray]:
    """The excerpt as text, without what is left out."""
    path = data_folder() / EXCERPTS[excerpt]
    if not path.exists():
        raise SystemExit(
            f"{path} must exist, got nothing there; set CONSILIENCE_DATA to its folder"
        )
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", newline="") as lines:
        header, *rows = csv.reader(lines)
    table = np.array(rows, dtype=object)
    return {a: table[:, i] for i, a in enumerate(header) if is_kept(a, kept)}


def is_kept(name: str, kept: str) -> bool:
    return name in DEMOGRAPHIC if kept == "demographic" else name not in LEFT_OUT


class Coding:
    """Codes of every column from the dictionary alone, and back: each is a list of words, or of bins with edges."""

    def __init__(self, excerpt: str = "massachusetts", kept: str = "all") -> None:
        self.ages = SCHOOL if kept == "demographic" else AGES
        self.words: dict[str, list[str]] = {}
        self.edges: dict[str, list[float]] = {}
        for name, about in dictionary().items():
            if not is_kept(name, kept):
                continue
            said = {k: v for k, v in about["values"].items() if k not in ("min", "max")}
            low, high = about["values"].get("min"), about["values"].get("max")
            if name == GROUP:
                said = {k: v for k, v in said.items() if self._is_of(excerpt, k)}
            if low is not None and high - low <= WIDE:
                said |= {str(v): "" for v in range(low, high + 1)}
            elif low is not None:
                steps = [low + (high - low) * k // QUANTILES for k in range(QUANTILES)] + [high + 1]
                self.edges[name] = {"AGEP": self.ages, "PINCP": INCOMES}.get(name, steps)
            self.words[name] = list(said)
        if kept == "demographic":
            self.words[YEAR] = [str(y) for y in range(STEP)]

    @staticmethod
    def _is_of(excerpt: str, puma: str) -> bool:
        if excerpt in STATES:
            return puma.startswith(STATES[excerpt])
        return not puma.startswith(tuple(STATES.values()))

    @property
    def domain(self) -> cs.Domain:
        bins = {a: len(e) - 1 for a, e in self.edges.items()}
        return cs.Domain({a: bins.get(a, 0) + len(w) for a, w in self.words.items()})

    def encode(self, table: dict[str, np.ndarray]) -> cs.Dataset:
        codes = {}
        ages = table["AGEP"].astype(int)
        within = ages - np.array(self.ages)[self._step(ages)]
        table = {**table, YEAR: within.astype(str).astype(object)}
        for name, words in self.words.items():
            place = {w: i for i, w in enumerate(words)}
            found = np.array([place.get(v, -1) for v in table[name]])
            if name in self.edges:
                edges = np.array(self.edges[name][1:-1], float)
                rest = np.flatnonzero(found < 0)
                numbers = table[name][rest].astype(float)
                found[rest] = len(words) + np.searchsorted(edges, numbers, side="right")
            assert found.min() >= 0, name
            codes[name] = found
        return cs.Dataset(codes, self.domain)

    def _step(self, ages: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.ages[1:-1], ages, side="right")

    def possible(self) -> dict[tuple[str, ...], np.ndarray]:
        """What can occur, by the dictionary: N below and above an age, homes and group quarters, an income and its decile."""
        low, high = (
            np.array(x)[:, None] for x in (self.edges["AGEP"][:-1], self.edges["AGEP"][1:])
        )
        masks = {}
        for name, age in UNDER.items():
            if name not in self.words:
                continue
            none = np.arange(self.domain[name]) == self.words[name].index("N")
            old = ~none | (name == "INDP_CAT")
            masks["AGEP", name] = (none & (low < age)) | (old & (high > age))
        quarters = np.array([w != "1" for w in self.words["HOUSING_TYPE"]])
        masks["HOUSING_TYPE", "OWN_RENT"] = quarters[:, None] == np.array(
            [w == "0" for w in self.words["OWN_RENT"]]
        )
        if "PINCP" in self.words:
            income, decile = (
                np.arange(self.domain[a]) == self.words[a].index("N")
                for a in ("PINCP", "PINCP_DECILE")
            )
            masks["PINCP", "PINCP_DECILE"] = income[:, None] == decile
        return masks

    def decode(self, data: cs.Dataset, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Words, and whole numbers drawn evenly within their bin."""
        table = {}
        for name, words in self.words.items():
            codes = data.column(name).astype(np.int64)
            if name in self.edges:
                e = np.array(self.edges[name], np.int64)
                k = np.clip(codes - len(words), 0, len(e) - 2)
                drawn = rng.integers(e[k], np.maximum(e[k + 1], e[k] + 1)).astype(object)
                said = np.array([*words, ""], dtype=object)[np.minimum(codes, len(words))]
                table[name] = np.where(codes < len(words), said, drawn)
            else:
                table[name] = np.array(words, dtype=object)[codes]
        if (years := table.pop(YEAR, None)) is not None:
            edges, step = np.array(self.ages), data.column("AGEP").astype(np.int64)
            last = edges[step + 1] - edges[step] - 1
            table["AGEP"] = (edges[step] + np.minimum(years.astype(int), last)).astype(object)
        return table


# -- the score -------------------------------------------------------------------------------------


def binned(name: str, target: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both columns as numbered cells; those with wide bounds in about twenty bins of equal frequency of the target."""
    about = dictionary()[name]["values"]
    if "max" not in about or about["max"] - about["min"] <= WIDE:
        both = np.concatenate([target, other]).astype(str)
        cells = np.unique(both, return_inverse=True)[1]
        return cells[: len(target)], cells[len(target) :]
    nulls = [k for k in about if k not in ("min", "max")]

    def numbers(column: np.ndarray) -> np.ndarray:
        return np.array([np.nan if str(v) in nulls else float(v) for v in column])

    t, s = numbers(target), numbers(other)
    over, under = np.nanmax(s) > np.nanmax(t), np.nanmin(s) < np.nanmin(t)
    count = QUANTILES - len(nulls) - int(over) - int(under)
    edges = np.unique(np.nanpercentile(t, np.linspace(0, 100, count + 1)))

    def cells(column: np.ndarray, x: np.ndarray) -> np.ndarray:
        found = np.clip(
            np.searchsorted(edges, x, side="left"), 1, None
        )  # right-closed, the lowest included
        found = np.where(x < edges[0], 0, found)
        missing = np.array([nulls.index(str(v)) if str(v) in nulls else -1 for v in column])
        return np.where(missing >= 0, len(edges) + 1 + missing, found)

    return cells(target, t), cells(other, s)


def score(target: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """SDNist's k-marginal: mean over pairs of columns of the L1 distance of the (group, pair) tables of shares, as 0 to 1000."""
    n, m = (len(next(iter(t.values()))) for t in (target, other))
    cells = {a: binned(a, target[a], other[a]) for a in target}
    group = cells.pop(GROUP, (np.zeros(n, np.int64), np.zeros(m, np.int64)))
    away = []
    for a, b in combinations(sorted(cells), 2):
        keys = [
            (g * 1000 + x) * 1000 + y for g, x, y in zip(group, cells[a], cells[b], strict=True)
        ]
        _, place = np.unique(np.concatenate(keys), return_inverse=True)
        t = np.bincount(place[:n], minlength=place.max() + 1) / n
        s = np.bincount(place[n:], minlength=place.max() + 1) / m
        away.append(np.abs(t - s).sum())
    return float((2 - np.mean(away)) * 500)


# -- designs ---------------------------------------------------------------------------------------


def budget_of(epsilon: float) -> Budget:
    return Budget(epsilon=epsilon, delta=DELTA, neighbours="add-remove")


def asked(domain: cs.Domain, within: bool) -> list[tuple[str, ...]]:
    """Every pair of columns, within a PUMA if so asked."""
    rest = [a for a in domain if a != GROUP]
    pairs = [(GROUP, *p) for p in combinations(rest, 2)] if within else combinations(domain, 2)
    return [c for c in pairs if YEAR not in c or "AGEP" in c]


def ours(
    data: cs.Dataset, epsilon: float, seed: int, within: bool, possible: dict | None = None
) -> cs.Dataset:
    workload = cs.Workload(data.domain, asked(data.domain, within))
    fit = cs.LatentClasses(possible=possible or {})
    ready = mechanisms.Auto(workload, fit).calibrate(budget_of(epsilon))
    model = ready(data, noise=SeededNoise(seed=seed)).model
    return model.sample(round(model.total), rng=seed)


def aim(data: cs.Dataset, epsilon: float, own: bool) -> cs.Dataset:
    """OpenDP's AIM of the codes. Beside an attribute's values it keeps a null: the last value plays it here."""
    import opendp.prelude as dp
    import polars as pl

    from consilience.adapters import opendp as adapter

    dp.enable_features("contrib", "honest-but-curious")
    sizes = data.domain.sizes
    table = {
        a: pl.Series(data.column(a).astype(np.int64)).replace(n - 1, None) for a, n in sizes.items()
    }
    values = dp.option_domain(dp.atom_domain(T="i64"))
    options: dict[str, Any] = {} if own else {"estimator": adapter.estimator()}
    rho = budget_of(epsilon).capacity  # the same as ours: the tight conversion
    assert isinstance(rho, Rho)
    mechanism, _, _ = dp.mbi.make_contingency_table(
        dp.lazyframe_domain([dp.series_domain(a, values) for a in sizes]),
        dp.frame_distance(dp.symmetric_distance()),
        dp.zero_concentrated_divergence(),
        d_in=[dp.polars.Bound(by=[], per_group=1)],
        d_out=float(rho.value),
        keys={a: [*range(n - 1), None] for a, n in sizes.items()},
        algorithm=dp.mbi.AIM(queries=2, **options),
    )
    found = mechanism(pl.DataFrame(table).lazy()).model.synthetic_data(data.records)
    rows = found.to_dict() if hasattr(found, "to_dict") else found.df
    return cs.Dataset({a: np.asarray(rows[a]) for a in sizes}, data.domain)


def mst(data: cs.Dataset, epsilon: float, seed: int) -> cs.Dataset:
    """MST as mbi publishes it, with our estimator in the place of mirror descent."""
    import mbi

    from consilience.adapters.mbi import replacing

    theirs = mbi.Domain(data.domain.attributes, data.domain.shape)
    columns = {a: data.column(a).astype(np.int64) for a in data.domain}
    np.random.seed(seed)  # noqa: NPY002
    with replacing():
        from mst import MST  # pyright: ignore[reportMissingImports]

        rows = MST(mbi.Dataset(columns, theirs), epsilon, DELTA).to_dict()
    return cs.Dataset({a: np.asarray(rows[a]) for a in data.domain}, data.domain)


def release(excerpt: str, kept: str, epsilon: float, seed: int, design: str) -> dict[str, Any]:
    target, coding = columns(excerpt, kept), Coding(excerpt, kept)
    data, rng = coding.encode(target), np.random.default_rng(seed)
    began = time.process_time()
    if design.endswith("sample"):
        count = round(data.records * epsilon / 100)
        again = design == "resample"
        kept = rng.integers(0, count, count) if again else rng.permutation(data.records)[:count]
        made = {a: v[kept] for a, v in target.items()}
    else:
        if design.startswith("auto"):
            told = coding.possible() if design == "auto-known" else None
            rows = ours(data, epsilon, seed, design != "auto" and GROUP in data.domain, told)
        elif design == "mst":
            rows = mst(data, epsilon, seed)
        else:
            rows = aim(data, epsilon, design == "aim-own")
        made = coding.decode(rows, rng)
    seconds = time.process_time() - began
    return {"score": score(target, made), "cpu_seconds": seconds, "status": "done"}


def limit(cap: int) -> None:
    """This process ends at so many CPU-seconds."""
    resource.setrlimit(resource.RLIMIT_CPU, (cap, cap + 5))  # by SIGXCPU, which nothing else sends


def answer(pipe: Any, work: Any, *words: Any) -> None:
    """Send what the work returns; what it raised is a row of its own kind, never one that ran out of time."""
    began = time.process_time()
    try:
        found = work(*words)
    except Exception as error:
        words_of = " ".join(str(error).split())
        print(words_of, flush=True)
        seconds = time.process_time() - began
        found = {"cpu_seconds": seconds, "status": f"failed: {type(error).__name__}"}
    pipe.send(found)


def _child(cap: int, pipe: Any, *words: Any) -> None:
    limit(cap)
    answer(pipe, release, *words)


def capped(cap: int, *words: Any, work: Any = _child) -> dict[str, Any]:
    """In a process of its own, which ends at `cap` CPU-seconds; what ended it otherwise is said by its status."""
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=work, args=(cap, there, *words))
    child.start()
    there.close()
    try:
        found = here.recv()
    except EOFError:
        child.join()
        if child.exitcode == -signal.SIGXCPU:
            found = {"cpu_seconds": cap, "status": "no end"}
        else:
            found = {"cpu_seconds": "", "status": f"failed: exit code {child.exitcode}"}
    child.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--excerpts", nargs="+", choices=EXCERPTS, default=["massachusetts"])
    parser.add_argument("--columns", nargs="+", choices=("all", "demographic"), default=["all"])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 5.0, 10.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(100, 105)))
    parser.add_argument("--designs", nargs="+", choices=DESIGNS, default=["auto", "sample"])
    parser.add_argument("--cap", type=int, default=1200)
    parser.add_argument("--out", type=Path, default=RESULTS / "kmarginal.csv")
    parser.add_argument("--quick", action="store_true", help="samples alone")
    given = parser.parse_args()
    if given.quick:
        given.designs, given.seeds, given.epsilons = ["sample"], [100], []
    parts = {"sample": [1.0, 5.0, 10.0, 20.0, 40.0, 60.0, 80.0], "resample": [100.0]}
    with Rows(given.out, FIELDS, KEYS) as rows:
        for seed, excerpt, kept, design in product(
            given.seeds, given.excerpts, given.columns, given.designs
        ):
            for epsilon in parts.get(design, given.epsilons):
                key = (excerpt, kept, epsilon, seed, design)
                if key in rows:
                    continue
                row = capped(given.cap, *key)
                rows.add(**dict(zip(KEYS, key, strict=True)), **row)
                print(*key, row, flush=True)


if __name__ == "__main__":
    main()
