"""MWEM without noise: measure the worst-predicted pair exactly, round by round, and compare with the authors' traces.

python experiments/noise_free_mwem.py [NAME ...]     fire adult msnbc titanic loans; rows to experiments/results
python experiments/noise_free_mwem.py floor          what sampling alone leaves at some rounds; rows to noise_free_floor.csv
python experiments/noise_free_mwem.py plot           the curves, from those rows (needs the extra `experiments`)

The score of a pair is the authors': its L1 distance in counts less its number of cells. Nothing is random: the measured
tables are the pseudo-marginals, and the mean L1 distance over all pairs of attributes is that of out-of-model inference alone.
The backbone of a round starts from that of the round before. While every clique fits the budget there is a new one each
round; from then on one whenever the number of measured pairs has grown by 3 % (loans: 8 %), and in between measured pairs are
replaced by their true tables.

The floor: as many records as the data has are drawn, independently, from the backbone of a round; the same pairs of these are
measured and the rest is inferred in the same way. The law is then of the model's own kind, so what is left is sampling.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from time import perf_counter, process_time

import numpy as np

import consilience as cs
from consilience.model.out_of_model import inferred
from consilience.regions.pseudo_marginals import PseudoMarginals
from consilience.tree.answers import Backbone
from consilience.tree.growth import DEFAULT_MEMORY, backbone_of

FOLDER = Path(os.environ.get("CONSILIENCE_DATA", Path(__file__).parents[2] / "shared" / "data"))
RESULTS = Path(__file__).parent / "results"
NAMES = ("fire", "adult", "msnbc", "titanic", "loans")
REFIT = {"loans": 1.08}
LATER = {"loans": "32 MB"}
"""Growth of the measured pairs from one backbone to the next, and its budget, once not all fits; else 1.03, the default."""
FLOORS = {"adult": (34, 45, 60), "loans": (100, 400)}


@dataclass
class Truth:
    """Every pair of a data set, counted once."""

    domain: cs.Domain
    records: int
    pairs: dict[tuple[str, ...], np.ndarray]

    @classmethod
    def of(cls, name: str) -> Truth:
        domain = cs.Domain(json.loads((FOLDER / f"{name}-domain.json").read_text()))
        codes = np.loadtxt(
            FOLDER / f"{name}.csv.gz", delimiter=",", skiprows=1, dtype=np.int64, ndmin=2
        )
        return cls.counted(domain, codes)

    @classmethod
    def counted(cls, domain: cs.Domain, codes: np.ndarray) -> Truth:
        counts = cs.Dataset(codes, domain).marginals(list(combinations(domain.attributes, 2)))
        return cls(domain, len(codes), {c: t / len(codes) for c, t in counts.items()})

    def known(self, measured: list[tuple[str, ...]]) -> PseudoMarginals:
        graph = cs.RegionGraph.saturated(self.domain, measured)
        tables = {}
        for region in graph.regions:
            holder = next(c for c in measured if set(region).issubset(c))
            axes = tuple(i for i, a in enumerate(holder) if a not in region)
            tables[region] = self.pairs[holder].sum(axis=axes)
        return PseudoMarginals.of(graph, cs.CliqueVector.from_tables(self.domain, tables), measured)


def run(
    name: str, rounds: int | None = None, memory: str = DEFAULT_MEMORY, report=print
) -> list[dict]:
    """One row per round: the pair measured, the mean L1 over all pairs, cells of the backbone, seconds of compute."""
    truth = Truth.of(name)
    pairs = list(truth.pairs)
    estimate = {c: np.full(t.shape, 1 / t.size) for c, t in truth.pairs.items()}
    lost = {c: float(np.abs(estimate[c] - truth.pairs[c]).sum()) for c in pairs}
    measured: list[tuple[str, ...]] = []
    rows = [
        {
            "data": name,
            "round": 0,
            "pair": "",
            "mean_l1": np.mean(list(lost.values())),
            "whole": True,
            "cells": 0,
            "seconds": 0.0,
        }
    ]
    backbone: Backbone | None = None
    fitted = 0
    for k in range(1, (rounds or len(pairs)) + 1):
        began = process_time()
        worst = max(
            (c for c in pairs if c not in set(measured)),
            key=lambda c: lost[c] - truth.domain.size(c) / truth.records,
        )
        measured.append(worst)
        lost[worst] = 0.0
        if (
            backbone is None
            or backbone.whole
            or k >= REFIT.get(name, 1.03) * fitted
            or k == len(pairs)
        ):
            known = truth.known(measured)
            # Every attribute's own table is part of what a pair measures; one that no pair holds is uniform.
            wide = backbone is None or backbone.whole
            budget = memory if wide else LATER.get(name, memory)
            backbone, fitted = backbone_of(known, budget, start=backbone), k
            out = [c for c in pairs if not known.holds(c)]
            tables, _ = inferred(known, out, "auto", lambda made=backbone: made)
            for c, table in zip(out, tables, strict=True):
                lost[c] = float(np.abs(table - truth.pairs[c]).sum())
        rows.append(
            {
                "data": name, "round": k, "pair": " x ".join(worst), "mean_l1": np.mean(list(lost.values())),
                "whole": backbone.whole, "cells": backbone.fit.support.size, "seconds": process_time() - began,
            }
        )  # fmt: skip
        report(f"{name} {k} {rows[-1]['mean_l1']:.5f} {backbone!r} {rows[-1]['seconds']:.2f} s")
    return rows


def trace(name: str, kind: str) -> list[float]:
    """The authors' mean L1 per round, `kind` exact or approx (their region graph)."""
    path = FOLDER / "reference-results" / f"mwem-no-noise-{name}_{kind}.out"
    return [float(line.split(",")[-1]) for line in path.read_text().splitlines()]


def verdict(name: str, ours: list[float]) -> str:
    """The two bars: at most 2 % above their exact trace, then at most half of their region graph's."""
    exact, local = trace(name, "exact"), trace(name, "approx")
    first = max(o / e for o, e in zip(ours, exact, strict=False))
    later = [
        (o / l, k)
        for k, (o, l) in enumerate(zip(ours, local, strict=False))
        if k >= len(exact) and l > 1e-9
    ]
    half = sum(r <= 0.5 for r, _ in later)
    tail = (
        f"; then {min(later)[0]:.2f} to {max(later)[0]:.2f} of their region graph, at most half in {half} of {len(later)}"
        if later
        else ""
    )
    return f"{name}: {len(ours) - 1} rounds; at most {first:.3f} of the authors' exact trace (rounds 0 to {len(exact) - 1}){tail}"


def save(rows: list[dict], path: Path = RESULTS / "noise_free_mwem.csv") -> None:
    RESULTS.mkdir(exist_ok=True)
    old = list(csv.DictReader(path.open())) if path.exists() else []
    kept = [r for r in old if r["data"] != rows[0]["data"]]
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, list(rows[0]))
        out.writeheader()
        out.writerows([*kept, *rows])


def independent_rows(backbone: Backbone, n: int, rng: np.random.Generator) -> np.ndarray:
    """n independent records of the backbone's distribution, clique by clique from the root of its tree."""
    support, tables = backbone.fit.support, backbone.fit.tables
    drawn = np.zeros((n, len(support.tree.domain)), np.int64)
    at: dict[int, np.ndarray] = {}
    for c in support.order:
        up = support.up[c]
        own = support.own[c] if up >= 0 else np.zeros(len(support.cells[c]), np.int64)
        group = support.above[c][at[up]] if up >= 0 else np.zeros(n, np.int64)
        order = np.argsort(own, kind="stable")
        upto = np.concatenate([[0.0], np.cumsum(tables[c][order])])
        ends = np.searchsorted(own[order], np.arange(own.max() + 2))
        low, high = upto[ends[group]], upto[ends[group + 1]]
        place = np.searchsorted(upto, low + rng.random(n) * (high - low), side="right") - 1
        at[c] = order[np.clip(place, ends[group], ends[group + 1] - 1)]
        drawn[:, list(support.members[c])] = support.cells[c][at[c]]
    return drawn


def answered(truth: Truth, measured: list[tuple[str, ...]], memory: str) -> tuple[float, Backbone]:
    """Mean L1 over all pairs with these measured exactly, and the backbone that answered the others."""
    known = truth.known(measured)
    backbone = backbone_of(known, memory)
    out = [c for c in truth.pairs if not known.holds(c)]
    tables, _ = inferred(known, out, "auto", lambda: backbone)
    lost = [float(np.abs(t - truth.pairs[c]).sum()) for c, t in zip(out, tables, strict=True)]
    return sum(lost) / len(truth.pairs), backbone


def floors() -> list[dict]:
    rows = list(csv.DictReader((RESULTS / "noise_free_mwem.csv").open()))
    found = []
    for name, rounds in FLOORS.items():
        truth, local = Truth.of(name), trace(name, "approx")
        order = [tuple(r["pair"].split(" x ")) for r in rows if r["data"] == name and r["pair"]]
        for k in rounds:
            memory = LATER.get(name, DEFAULT_MEMORY)
            ours, backbone = answered(truth, order[:k], memory)
            drawn = independent_rows(backbone, truth.records, np.random.default_rng(k))
            floor, _ = answered(Truth.counted(truth.domain, drawn), order[:k], memory)
            found.append(
                {
                    "data": name,
                    "round": k,
                    "ours": ours,
                    "authors_region_graph": local[k],
                    "floor": floor,
                }
            )
            print(
                f"{name} {k}: ours {ours:.4f}, their region graph {local[k]:.4f}, floor {floor:.4f}",
                flush=True,
            )
    return found


def plot() -> None:
    import matplotlib.pyplot as plt

    rows = list(csv.DictReader((RESULTS / "noise_free_mwem.csv").open()))
    names = [n for n in NAMES if any(r["data"] == n for r in rows)]
    figure, axes = plt.subplots(
        1, len(names), figsize=(3.6 * len(names), 3.2), layout="constrained"
    )
    for axis, name in zip(np.atleast_1d(axes), names, strict=True):
        for kind, label, style in (
            ("approx", "paper, region graph", ":"),
            ("exact", "paper, exact", "--"),
        ):
            axis.plot(
                trace(name, kind), style, label=label, color="0.4" if kind == "approx" else "black"
            )
        axis.plot(
            [float(r["mean_l1"]) for r in rows if r["data"] == name],
            label="backbone (ours)",
            color="tab:blue",
        )
        axis.set(title=name, xlabel="measured pairs", yscale="log", ylim=(1e-3, 2))
    np.atleast_1d(axes)[0].set_ylabel("mean L1 over all pairs")
    np.atleast_1d(axes)[0].legend(fontsize=8)
    figure.savefig(RESULTS / "noise_free_mwem.png", dpi=110)


if __name__ == "__main__":
    if sys.argv[1:] == ["plot"]:
        plot()
    elif sys.argv[1:] == ["floor"]:
        made = floors()
        for data in FLOORS:
            save([r for r in made if r["data"] == data], RESULTS / "noise_free_floor.csv")
    else:
        for wanted in sys.argv[1:] or NAMES:
            began = perf_counter()
            made = run(wanted)
            save(made)
            print(
                verdict(wanted, [r["mean_l1"] for r in made]), f"({perf_counter() - began:.0f} s)"
            )
