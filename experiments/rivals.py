"""Beyond the paper: later methods beside ours, on the same tables and the same budget.

    python experiments/rivals.py [--quick] [--data fire-3 msnbc-3 loans-2] [--epsilons 0.1 1 10] [--seeds 1] [--out rows.csv]

32 random marginals (RandomState(0)), Gaussian noise by the paper's formula (delta 1e-6, add-remove neighbours), total known.
The measurements are those of prior_and_path.py for the same seed, so its columns plain and prior stand beside these. Methods:

    noisy               the measurements as they are
    least squares       consistent, negative cells allowed (what GReM calls MLE)
    grem-lnn            the same with non-negative tables: GReM-LNN's programme, which is the paper's Problem 2, by dual
                        ascent as its authors solve it, with true variances, at most 1,000 rounds
    local               ours: the same programme, certified
    planner             ResidualPlanner with the same rho: other measurements, least squares
    planner local       the same measurements, non-negative

From the mathematics only (no code of theirs was used). `negative` is the mass below zero as a share of the records.
"""

from __future__ import annotations

import argparse
import itertools
import pathlib
import time
from collections.abc import Callable, Mapping

import numpy as np
from common import RESULTS, Cliques, Rows, load, paper_sigma, total_variation

import consilience as cs
from consilience.mechanisms import ResidualPlanner
from consilience.privacy import SeededNoise

FIELDS = ["data", "epsilon", "seed", "method", "total_variation", "negative", "rounds", "seconds"]
METHODS = ("noisy", "least squares", "grem-lnn", "local", "planner", "planner local")
Tables = dict[tuple[str, ...], np.ndarray]
MOST_ROUNDS = 1_000


def cliques_of(data: cs.Dataset, way: int, count: int = 32) -> Cliques:
    """As in prior_and_path.py: 3-way tables with more cells than there are records are left out."""
    every = [
        c
        for c in itertools.combinations(data.domain.attributes, way)
        if way == 2 or data.domain.size(c) <= data.records
    ]
    chosen = np.random.RandomState(0).choice(len(every), min(count, len(every)), replace=False)
    return [every[i] for i in chosen]


class Residuals:
    """Consistent tables as one residual per subset of a clique: alpha_t sums to zero along every axis of t.

    tau_r = sum over t in r of alpha_t / n_(r without t). `combine` is the inverse-variance mean of what each table says of
    alpha_t; `tables(combine(y))` is the orthogonal projection onto consistent tables.
    """

    def __init__(self, domain: cs.Domain, cliques: Cliques) -> None:
        self.domain, self.cliques = domain, cliques
        self.holders: dict[tuple[str, ...], Cliques] = {}
        for c in cliques:
            for size in range(len(c) + 1):
                for t in itertools.combinations(c, size):
                    self.holders.setdefault(t, []).append(c)

    def component(
        self, table: np.ndarray, clique: tuple[str, ...], t: tuple[str, ...]
    ) -> np.ndarray:
        found = table.sum(axis=tuple(i for i, a in enumerate(clique) if a not in t))
        for axis in range(len(t)):
            found = found - found.mean(axis=axis, keepdims=True)
        return found

    def width(self, clique: tuple[str, ...], t: tuple[str, ...]) -> float:
        return self.domain.size(clique) / self.domain.size(t) if t else self.domain.size(clique)

    def combine(self, tables: Mapping[tuple[str, ...], np.ndarray]) -> Tables:
        """alpha_t by weights 1 / n_(r without t): equal noise in every cell of every table."""
        out = {}
        for t, holders in self.holders.items():
            weights = [1.0 / self.width(c, t) for c in holders]
            parts = [w * self.component(tables[c], c, t) for w, c in zip(weights, holders, strict=True)]  # fmt: skip
            out[t] = sum(parts[1:], parts[0]) / sum(weights)
        return out

    def tables(self, alpha: Tables) -> Tables:
        out = {c: np.zeros(self.domain.shape_of(c)) for c in self.cliques}
        for t, holders in self.holders.items():
            for c in holders:
                shape = [self.domain[a] if a in t else 1 for a in c]
                out[c] += alpha[t].reshape(shape) / self.width(c, t)
        return out


def least_squares(basis: Residuals, given: Tables, total: float) -> Tables:
    alpha = basis.combine(given)
    alpha[()] = np.array(total)
    return alpha


def dual_ascent(basis: Residuals, given: Tables, total: float) -> tuple[Tables, int]:
    """GReM-LNN: maximise the dual of least squares with non-negative tables; multipliers of the cells, plain ascent.

    The least-squares tables of (given + multipliers) minimise the Lagrangian, because both live in the same metric: equal
    noise in every cell. So a round is one projection; its step 1 is safe, the projection being no expansion.
    """
    push = {c: np.zeros_like(x) for c, x in given.items()}
    tables = basis.tables(least_squares(basis, given, total))
    for k in range(1, MOST_ROUNDS + 1):
        # Theirs stops at less than one record below zero, which takes most of their 4,000 rounds.
        below = -sum(float(np.minimum(x, 0).sum()) for x in tables.values())
        if below < 1e-3 * total:
            return tables, k
        for c, x in tables.items():
            np.maximum(push[c] - x, 0.0, out=push[c])
        moved = {c: given[c] + push[c] for c in given}
        tables = basis.tables(least_squares(basis, moved, total))
    return tables, MOST_ROUNDS


def rho_of(epsilon: float) -> float:
    return 1.0 / (2.0 * paper_sigma(epsilon, 1) ** 2)


def planner(data: cs.Dataset, cliques: Cliques, epsilon: float, seed: int, fit: bool) -> Tables:
    ready = ResidualPlanner(
        cs.Workload(data.domain, cliques), fit=cs.LeastSquares(consistency="local")
    ).calibrate(cs.Budget(rho=rho_of(epsilon), neighbours="add-remove"))
    release = ready.measure(data, noise=SeededNoise(seed=seed))
    if not fit:
        straight = ready.unbiased(release)
        return {c: np.asarray(straight[c]) for c in cliques}
    rough = cs.LeastSquares(consistency="local", tolerance=1e-4)
    model = cs.reconstruct(data.domain, ready.evidence(release), float(data.records), rough)
    return dict(zip(cliques, model.marginals(cliques), strict=True))


def measured(truth: Tables, epsilon: float, seed: int) -> tuple[Tables, float]:
    width = paper_sigma(epsilon, len(truth))
    rng = np.random.default_rng(seed)
    return {c: x + width * rng.standard_normal(x.shape) for c, x in truth.items()}, width


def run(data: cs.Dataset, way: int, epsilon: float, seed: int, method: str) -> dict[str, object]:
    cliques = cliques_of(data, way)
    truth = {c: x.astype(float) for c, x in data.marginals(cliques).items()}
    given, width = measured(truth, epsilon, seed)
    total = float(data.records)
    basis = Residuals(data.domain, cliques)
    rounds: list[int] = []

    def lnn() -> Tables:
        tables, needed = dual_ascent(basis, given, total)
        rounds.append(needed)
        return tables

    def local() -> Tables:
        values = [cs.Measurement(c, y, stddev=width) for c, y in given.items()]
        model = cs.reconstruct(
            data.domain,
            values,
            total=total,
            fit=cs.LeastSquares(consistency="local", tolerance=1e-5),
        )
        rounds.append(model.diagnostics.iterations)
        return dict(zip(cliques, model.marginals(cliques), strict=True))

    ways: dict[str, Callable[[], Tables]] = {
        "noisy": lambda: given,
        "least squares": lambda: basis.tables(least_squares(basis, given, total)),
        "grem-lnn": lnn,
        "local": local,
        "planner": lambda: planner(data, cliques, epsilon, seed, fit=False),
        "planner local": lambda: planner(data, cliques, epsilon, seed, fit=True),
    }
    began = time.process_time()
    tables = ways[method]()
    seconds = time.process_time() - began
    below = -np.mean([np.minimum(x, 0).sum() for x in tables.values()]) / total
    return {
        "epsilon": epsilon, "seed": seed, "method": method, "total_variation": total_variation(truth, tables),
        "negative": float(below), "rounds": rounds[0] if rounds else "", "seconds": round(seconds, 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="titanic pairs, epsilon 1")
    parser.add_argument("--data", nargs="+", default=["fire-3", "msnbc-3", "loans-2"])
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 1.0, 10.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS / "rivals.csv")
    asked = parser.parse_args()
    names, epsilons = (["titanic-2"], [1.0]) if asked.quick else (asked.data, asked.epsilons)
    with Rows(asked.out, FIELDS, ["data", "epsilon", "seed", "method"]) as rows:
        for name in names:
            base, _, way = name.partition("-")
            data = load(base)
            for seed, epsilon, method in itertools.product(asked.seeds, epsilons, asked.methods):
                if (name, epsilon, seed, method) in rows:
                    continue
                row = run(data, int(way), epsilon, seed, method)
                rows.add(data=name, **row)
                print(f"{name} epsilon {epsilon:g} seed {seed} {method}: {row['total_variation']:.4f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
