"""Rows from a release train a classifier, which is tried on real rows: who earns more than 50,000 (adult), whose income is in the
upper half of the state's (ACS excerpt). Beside rows from MST and AIM, and the real rows themselves.

    python experiments/ml_use.py [--data adult acs] [--epsilons 1] [--seeds 100] [--designs real auto mst aim] [--cap 1200]
                                 [--out rows.csv]

It needs scikit-learn; mst and aim are those of `kmarginal.py`, which says what they need. A fifth of the rows, drawn by the
seed, is kept for the test and never released. The classifier is a logistic regression on one column per code. Add-remove
neighbours per row, delta 1e-5. auto is `mechanisms.Auto` for all pairs. Figures: area under the ROC curve, and accuracy.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import kmarginal
import numpy as np
from common import RESULTS, Rows, load

import consilience as cs

KEYS = ["data", "epsilon", "seed", "design"]
FIELDS = [*KEYS, "auc", "accuracy", "cpu_seconds", "status"]
DESIGNS = ("real", "auto", "mst", "aim")
TARGETS = {"adult": "income>50K", "acs": "PINCP_DECILE"}


def loaded(name: str) -> tuple[cs.Dataset, str]:
    """The rows, without what the target is a function of; and the target."""
    if name == "adult":
        data = load("adult")
        return data, next(a for a in data.domain if a.startswith("income"))
    data = kmarginal.Coding().encode(kmarginal.columns())
    return data.project([a for a in data.domain if a not in ("PINCP", "POVPIP")]), "PINCP_DECILE"


def positive(data: cs.Dataset, name: str, target: str) -> np.ndarray:
    codes = data.column(target)
    if name == "adult":
        return codes == 1
    words = kmarginal.Coding().words[target]
    return np.array([w.isdigit() and int(w) >= 5 for w in words])[codes]


def release(name: str, epsilon: float, seed: int, design: str) -> dict[str, Any]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score, roc_auc_score
    from sklearn.preprocessing import OneHotEncoder

    data, target = loaded(name)
    order = np.random.default_rng(seed).permutation(data.records)
    test, train = np.split(order, [data.records // 5])
    codes = data.to_array()
    known, rest = (cs.Dataset(codes[part], data.domain) for part in (train, test))
    began = time.process_time()
    rows = known
    if design == "auto":
        rows = kmarginal.ours(known, epsilon, seed, False)
    elif design == "mst":
        rows = kmarginal.mst(known, epsilon, seed)
    elif design == "aim":
        rows = kmarginal.aim(known, epsilon, False)
    seconds = time.process_time() - began
    inputs = [i for i, a in enumerate(data.domain) if a != target]
    columns = OneHotEncoder(
        categories=[np.arange(data.domain.shape[i]) for i in inputs], handle_unknown="ignore"
    )
    learnt = LogisticRegression(max_iter=1000).fit(
        columns.fit_transform(rows.to_array()[:, inputs]), positive(rows, name, target)
    )
    told = learnt.predict_proba(columns.transform(rest.to_array()[:, inputs]))[:, 1]
    truth = positive(rest, name, target)
    return {
        "auc": float(roc_auc_score(truth, told)),
        "accuracy": float(accuracy_score(truth, told > 0.5)),
        "cpu_seconds": seconds,
        "status": "done",
    }


def _child(cap: int, pipe: Any, *words: Any) -> None:
    kmarginal.limit(cap)
    kmarginal.answer(pipe, release, *words)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[100])
    parser.add_argument("--designs", nargs="+", choices=DESIGNS, default=list(DESIGNS))
    parser.add_argument("--cap", type=int, default=1200)
    parser.add_argument("--out", type=Path, default=RESULTS / "ml_use.csv")
    given = parser.parse_args()
    with Rows(given.out, FIELDS, KEYS) as rows:
        for seed in given.seeds:
            for name in given.data:
                for epsilon in given.epsilons:
                    for design in given.designs:
                        key = (name, epsilon, seed, design)
                        if key in rows:
                            continue
                        found = kmarginal.capped(given.cap, *key, work=_child)
                        rows.add(**dict(zip(KEYS, key, strict=True)), **found)
                        print(*key, found, flush=True)


if __name__ == "__main__":
    main()
