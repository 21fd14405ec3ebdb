"""Facts as JSON and as words: budgets, costs, ledgers, versions."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from consilience.data.schema import Schema
from consilience.data.schema_file import read_schema
from consilience.privacy import Account, Budget, Cost

LIBRARIES = (
    "consilience",
    "numpy",
    "scipy",
    "numba",
    "opendp",
    "dp-accounting",
    "duckdb",
    "pyarrow",
)


def schema_file(path: Path) -> Schema:
    return read_schema(path)


def budget_facts(budget: Budget) -> dict[str, Any]:
    amounts = {
        "epsilon": budget.epsilon and budget.epsilon.value,
        "delta": budget.delta,
        "rho": budget.rho and budget.rho.value,
    }
    given = {k: v for k, v in amounts.items() if v is not None}
    return {
        **{k: float(v) for k, v in given.items()},
        "exact": {k: str(v) for k, v in given.items()},
        "neighbours": budget.neighbours.value,
        "accounting": budget.accounting,
        "text": ", ".join(f"{k} {float(v):g}" for k, v in given.items()),
    }


def cost_facts(budget: Budget, cost: Cost) -> dict[str, Any]:
    """The cost in the unit that the budget adds up, and in every other that it has."""
    amounts = {"epsilon": cost.epsilon, "rho": cost.rho, "mu_squared": cost.mu_squared}
    spent, whole = budget.spent(cost), budget.capacity
    if cost.epsilon is not None and budget.epsilon is not None and (spent is None or spent > whole):
        spent, whole = cost.epsilon, budget.epsilon  # admitted as a sum of pure epsilons
    assert spent is not None
    assert whole is not None
    return {
        **{k: float(v.value) for k, v in amounts.items() if v is not None},
        "exact": {k: str(v.value) for k, v in amounts.items() if v is not None},
        "share": float(spent.value / whole.value),
        "text": f"{spent.symbol} {float(spent.value):.6g}",
    }


def account_facts(account: Account) -> dict[str, Any]:
    spent = account.total.spent(account.spent)
    entries = [
        {
            "number": e.number,
            "time": e.time,
            "description": e.description,
            "cost": cost_facts(account.total, e.cost),
        }
        for e in account.entries
    ]
    share = 0.0 if spent is None else float(spent.value / account.total.capacity.value)
    return {
        "table": account.table,
        "total": budget_facts(account.total),
        "spent": None if spent is None else f"{spent.symbol} {float(spent.value):.6g}",
        "share": share,
        "releases": entries,
    }


def versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}}
