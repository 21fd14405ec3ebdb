"""Small releases for the report's tests, and what must be true of their pages."""

from __future__ import annotations

import numpy as np

import consilience as cs
from consilience.mechanisms import Gaussian
from consilience.mechanisms.mechanism import Result
from consilience.privacy import Budget, SeededNoise

BUDGET = Budget(epsilon=1, delta=1e-6, neighbours="replace-one")
HOSTILE = "</script><script>window.broken = 1</script>\"'& <b>"
DOMAIN = cs.Domain({"age": 5, "sex": 2, "income": 4, "many": 45})
LABELS = {
    "age": ("0-17", "18-34", "35-49", "50-64", "65+"),
    "sex": ("female", "male"),
    "income": (HOSTILE, "low", "high", "(missing)"),
}


def people(rows: int, domain: cs.Domain, seed: int = 0) -> cs.Dataset:
    """Correlated codes: neighbours in the domain depend on each other."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=rows)
    columns = [
        np.clip((hidden + rng.normal(size=rows)) * n / 5 + n / 2, 0, n - 1) for n in domain.shape
    ]
    return cs.Dataset(np.column_stack(columns).astype(np.int64), domain)


def result(domain: cs.Domain = DOMAIN, order: int = 2, budget: Budget = BUDGET) -> Result:
    """Seeded, so that tests repeat themselves: such a release says that it protects nobody."""
    data = people(4000, domain)
    ready = Gaussian(cs.all_marginals(domain, order)).calibrate(budget)
    return ready(data, noise=SeededNoise(seed=1))
