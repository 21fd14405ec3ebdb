"""The table of mechanisms that the contract and the audits run over. A new mechanism joins by one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from consilience.domain import Domain, Workload
from consilience.mechanisms import Gaussian, Laplace, Mechanism
from consilience.privacy import Budget
from consilience.records import Dataset

DOMAIN = Domain({"age": 5, "sex": 2, "region": 3, "income": 4})
WORKLOAD = Workload(DOMAIN, [("age", "sex"), ("sex", "region"), ("region", "income"), ("age",)])
WEIGHTS = {("age", "sex"): 4, ("sex", "region"): 1, ("region", "income"): 2.5, ("age",): 0.5}


FIRE_TRIPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 455)
"""How many of fire's triples the paper's experiment measures."""


def fire_workload(k: int) -> Workload:
    """k triples of the fire data's attributes, drawn as the authors do; only the domain is read."""
    folder = Path(os.environ.get("CONSILIENCE_DATA", Path(__file__).parents[3] / "shared" / "data"))
    if not (folder / "fire-domain.json").exists():
        pytest.skip(f"needs the fire domain in {folder}; set CONSILIENCE_DATA")
    domain = Domain(json.loads((folder / "fire-domain.json").read_text()))
    triples = list(combinations(domain.attributes, 3))
    chosen = np.random.RandomState(0).choice(455, k, replace=False)
    return Workload(domain, [triples[i] for i in chosen])


@dataclass(frozen=True)
class Case:
    """A mechanism and the budgets that it must accept, under either relation."""

    build: Callable[[Workload], Mechanism]
    budgets: Callable[[str], list[Budget]]


def with_delta(neighbours: str) -> list[Budget]:
    return [
        Budget(epsilon=1, delta=1e-6, neighbours=neighbours),
        Budget(epsilon=1, delta=1e-6, neighbours=neighbours, accounting="gaussian"),
        Budget(rho=0.1, neighbours=neighbours),
    ]


def with_epsilon(neighbours: str) -> list[Budget]:
    return [
        Budget(epsilon=1, neighbours=neighbours),
        Budget(epsilon=1, delta=1e-6, neighbours=neighbours),
    ]


CASES = {
    "gaussian": Case(Gaussian, with_delta),
    "gaussian, weights": Case(lambda w: Gaussian(w, weights=WEIGHTS), with_delta),
    "gaussian, optimal": Case(lambda w: Gaussian(w, weights="optimal"), with_delta),
    "laplace": Case(Laplace, with_epsilon),
    "laplace, weights": Case(lambda w: Laplace(w, weights=WEIGHTS), with_epsilon),
    "laplace, optimal": Case(lambda w: Laplace(w, weights="optimal"), with_epsilon),
}
CALIBRATIONS = [
    (name, neighbours, i)
    for name, case in CASES.items()
    for neighbours in ("replace-one", "add-remove")
    for i in range(len(case.budgets(neighbours)))
]


def people(records: int, seed: int = 0) -> Dataset:
    """Dependent columns, so that tables are far from uniform."""
    rng = np.random.default_rng(seed)
    first = rng.random(records)
    columns = [
        np.minimum(
            (np.where(rng.random(records) < 0.6, first, rng.random(records)) ** 2) * n, n - 1
        )
        for n in DOMAIN.shape
    ]
    return Dataset(np.stack(columns, axis=1).astype(np.int64), DOMAIN)
