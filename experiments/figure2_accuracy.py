"""Figures 2a and 2b: total variation on measured and on unmeasured 3-way marginals as more of them are measured.

    python experiments/figure2_accuracy.py [--quick] [--k 1 5 ...] [--methods exact saturated ...] [--seeds 5] [--out rows.csv]

Eight attributes of size 4, 10,000 records from a random tree (temperature 3), k random 3-way marginals, Laplace noise of
scale k (epsilon 1, add-remove neighbours), total estimated, the authors' five seeds. The trees, cliques and noise are the
authors' own draws, so that every cell can be compared with theirs; only the rounding of expected counts to records
differs (theirs was not seeded). Methods:

    noisy           the measurements as they are
    exact           global consistency
    saturated       the saturated region graph; unmeasured marginals by the paper's Problem 4
    over-saturated  all 56 triples in the region graph. Only the measured tables are determined by the loss
    over-saturated-prox  the same by 1,000 steps of Prox-PGM, where the rest is what is closest to uniform (on request, slow)
    factor          the factor graph; unmeasured marginals as if attributes were independent
    backbone        saturated; unmeasured marginals from the backbone (ours)
    likelihood      saturated with the exact likelihood of Laplace noise, and the backbone (ours)

There is no prior: Shrunk chooses its strength by splitting Gaussian noise and refuses Laplace measurements.
"""

from __future__ import annotations

import argparse
import itertools
import pathlib
import time
from dataclasses import dataclass

import numpy as np
from common import RESULTS, SEEDS, Cliques, Rows, means, total_variation
from reference import FIGURE_2AB
from scipy.sparse.csgraph import minimum_spanning_tree

import consilience as cs

FIELDS = ["k", "method", "seed", "in_model", "out_of_model", "objective", "gap", "seconds"]
ATTRIBUTES, SIZE, RECORDS, TEMPERATURE = 8, 4, 10_000, 3.0
DOMAIN = cs.Domain({str(i): SIZE for i in range(ATTRIBUTES)})
TRIPLES = list(itertools.combinations(DOMAIN.attributes, 3))
KS = [*range(1, 16), *range(20, 56, 5), 56]
METHODS = ("noisy", "saturated", "backbone", "factor", "over-saturated", "exact")
ON_REQUEST = ("likelihood", "over-saturated-prox")
TOLERANCE = {"exact": 1e-3}
"""Relative gap. Exact near k = 56 is one table of 65,536 cells under 56 measurements; there 1e-4 takes minutes."""


@dataclass(frozen=True)
class Draw:
    """One problem: exact counts of every triple, and measurements of k of them."""

    truth: dict[tuple[str, ...], np.ndarray]
    measurements: list[cs.Measurement]

    @property
    def measured(self) -> Cliques:
        return [m.attributes for m in self.measurements]


def draw(seed: int, k: int) -> Draw:
    """The authors' problem for this seed and k: potentials, then cliques, then noise from one stream."""
    rng = np.random.RandomState(seed)
    counts = rounded(tree_distribution(rng))
    axes = {c: tuple(i for i, a in enumerate(DOMAIN.attributes) if a not in c) for c in TRIPLES}
    truth = {c: counts.sum(axis=axes[c]) for c in TRIPLES}
    chosen = [TRIPLES[i] for i in rng.choice(len(TRIPLES), k, replace=False)]
    given = [
        cs.Measurement(
            c, truth[c] + rng.laplace(0.0, k, SIZE**3).reshape(truth[c].shape), stddev=k * 2**0.5, noise="laplace"
        )
        for c in chosen
    ]  # fmt: skip
    return Draw(truth, given)


def tree_distribution(rng: np.random.RandomState) -> np.ndarray:
    """A Markov random tree: uniform edge weights, their least spanning tree, normal potentials times the temperature."""
    weights = rng.rand(ATTRIBUTES, ATTRIBUTES)
    found = np.argwhere(minimum_spanning_tree(weights).toarray())
    log_p = np.zeros((SIZE,) * ATTRIBUTES)
    for a, b in walk(sorted((int(min(e)), int(max(e))) for e in found)):
        shape = [SIZE if i in (a, b) else 1 for i in range(ATTRIBUTES)]
        log_p = log_p + TEMPERATURE * rng.normal(size=SIZE**2).reshape(shape)
    p = np.exp(log_p - log_p.max())
    return p / p.sum()


def walk(edges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The edges in the order in which the authors draw their potentials: depth first over a junction tree of them."""
    group = {e: {e} for e in edges}
    near: dict[tuple[int, int], list[tuple[int, int]]] = {e: [] for e in edges}
    for e, f in itertools.combinations(edges, 2):
        if set(e) & set(f) and f not in group[e]:
            near[e].append(f)
            near[f].append(e)
            joined = group[e] | group[f]
            group |= dict.fromkeys(joined, joined)
    order: list[tuple[int, int]] = []
    waiting = [edges[0]]
    while waiting:
        e = waiting.pop()
        if e not in order:
            order.append(e)
            waiting += reversed(near[e])
    return order


def rounded(p: np.ndarray) -> np.ndarray:
    """10,000 records whose counts are expected counts rounded up or down, so that every sum is nearly as expected."""
    reached = np.floor(RECORDS * np.cumsum(p.ravel()) + 0.5)
    return np.diff(np.concatenate([[0.0], reached])).reshape(p.shape)


def fit(given: Draw, method: str) -> cs.Model:
    consistency: str | cs.RegionGraph = {"exact": "global", "factor": "factor"}.get(method, "local")
    if method.startswith("over-saturated"):
        consistency = cs.RegionGraph.saturated(DOMAIN, given.measured, extra=TRIPLES)
    tolerance = TOLERANCE.get(method, 1e-4)
    estimator: cs.Fit = cs.LeastSquares(consistency, tolerance=tolerance)
    if method == "likelihood":
        estimator = cs.LaplaceLikelihood(consistency, tolerance=tolerance)
    elif method == "over-saturated-prox":
        estimator = cs.LeastSquares(consistency, solver="prox", iterations=1_000)
    return cs.reconstruct(DOMAIN, given.measurements, fit=estimator)


OUT_OF_MODEL = {"saturated": "local", "factor": "product"}
"""How a method answers what was not measured; the others by what they hold, or by the backbone."""


def run(seed: int, k: int, method: str) -> dict[str, object]:
    given = draw(seed, k)
    inside = {c: given.truth[c] for c in given.measured}
    outside = {c: x for c, x in given.truth.items() if c not in inside}
    row: dict[str, object] = {"k": k, "method": method, "seed": seed}
    if method == "noisy":
        noisy = {m.attributes: m.values.reshape(inside[m.attributes].shape) for m in given.measurements}  # fmt: skip
        return row | {"in_model": total_variation(inside, noisy), "seconds": 0.0}
    began = time.perf_counter()
    model = fit(given, method)
    how = OUT_OF_MODEL.get(method, "auto")
    answers = dict(zip([*inside, *outside], model.marginals([*inside, *outside], how), strict=True))
    found = model.diagnostics
    return row | {
        "in_model": total_variation(inside, answers),
        "out_of_model": total_variation(outside, answers) if outside else "",
        "objective": found.objective,
        "gap": (found.objective - found.bound) / max(abs(found.objective), 1e-300),
        "seconds": round(time.perf_counter() - began, 3),
    }


def summary(rows: list[dict[str, str]]) -> str:
    """Means over seeds, and the authors' in brackets."""
    lines = []
    for what in ("in_model", "out_of_model"):
        lines.append(
            f"{what.replace('_', ' ')}: k, then mean total variation by method (authors' in brackets)"
        )
        found = means(rows, ["k", "method"], what)
        for k in sorted({int(key[0]) for key in found}):
            cells = []
            for (kk, method), (mean, _, seeds) in found.items():
                if int(kk) == k:
                    theirs = FIGURE_2AB.get(what, {}).get(method, {}).get(k)
                    cells.append(f"{method} {mean:.4f}" + (f" ({theirs:.4f})" if theirs else "") + f" x{seeds}")  # fmt: skip
            lines.append(f"  {k:3d}  " + "  ".join(sorted(cells)))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="k 15 and two seeds")
    parser.add_argument("--k", type=int, nargs="+")
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS + ON_REQUEST)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS / "figure2_accuracy.csv")
    asked = parser.parse_args()
    ks = asked.k or ([15] if asked.quick else KS)
    seeds = SEEDS[: asked.seeds or (2 if asked.quick else 5)]
    with Rows(asked.out, FIELDS, ["k", "method", "seed"]) as rows:
        for method, k, seed in itertools.product(asked.methods, ks, seeds):
            if (k, method, seed) in rows:
                continue
            row = run(seed, k, method)
            rows.add(**row)
            print(f"{method} k {k} seed {seed}: {row['in_model']:.4f} {row.get('out_of_model', '')}", flush=True)  # fmt: skip
    print(summary(rows.rows))


if __name__ == "__main__":
    main()
