"""Facts as JSON and as words: what a release folder says about itself, about budgets, costs and ledgers."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from consilience.measurements import Exact
from consilience.mechanisms import Calibrated, Mechanism, Release
from consilience.model import Model, Rounding
from consilience.privacy import Account, Budget, Cost
from consilience.release.registry import name_of, own_settings

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

README = """This folder holds tables about {rows} that were made private and consistent by Consilience {version}.

{promise}
tables/         consistent tables with standard errors and 90 % intervals, as CSV and Parquet: equal where they overlap
measurements/   the noisy tables that all of it was made from, with the standard deviation of their noise
model.npz       the model and what errors are found from, for other questions:  consilience answer THIS-FOLDER age,sex
release.json    the promise, what it cost, how it was made, and what is in which file
manifest.json   checksums of every file
"""


WHOLE = """
Counts are whole numbers that agree with each other. Standard errors and intervals are those of the numbers before rounding.
"""

READ_OFF = "NOT PRIVATE: labels and bounds were read off the data, by a draft schema that was accepted unchecked"


def release_facts(
    mechanism: Mechanism,
    ready: Calibrated,
    noisy: Release,
    model: Model,
    errors: str,
    draft: Sequence[str] = (),
) -> dict[str, Any]:
    """What release.json says, apart from the list of its tables. draft: what of the schema nobody has checked."""
    d = model.diagnostics
    return {
        "private": noisy.private and not draft,
        "mark": noisy.mark if not draft or not noisy.private else READ_OFF,
        **({"read_off_the_data": list(draft)} if draft else {}),
        **common_facts(model, public=noisy.total is not None or bool(exact_controls(model))),
        "mechanism": {
            "name": name_of(mechanism) or type(mechanism).__name__,
            "options": own_settings(mechanism),
            "calibrated": str(ready),
        },
        "budget": budget_facts(ready.budget),
        "neighbours": ready.budget.neighbours.value,
        "cost": cost_facts(ready.budget, noisy.cost),
        "diagnostics": {
            "method": d.method,
            "status": d.status,
            "converged": d.converged,
            "relative_gap": d.gap,
            "violation": d.violation,
            "iterations": d.iterations,
            "prior": d.prior,
        },
        "standard_errors": errors,
        "replicates": 0 if model.replicates is None else len(model.replicates),
    }


def common_facts(model: Model, public: bool) -> dict[str, Any]:
    """What every folder says: when it was made, by which versions, and how many people it is about."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "total": {"value": model.total, "public": public},
        **({} if model.rounding is None else {"whole": whole_facts(model.rounding)}),
        **({"given": given} if (given := given_facts(model)) else {}),
        "versions": versions(),
    }


def given_facts(model: Model) -> list[dict[str, Any]]:
    """The marginals that were taken as public, which nothing protects."""
    controls = () if model.fit is None else model.fit.controls
    return [{"attributes": list(c.attributes), "exact": isinstance(c, Exact)} for c in controls]


def exact_controls(model: Model) -> list[dict[str, Any]]:
    return [given for given in given_facts(model) if given["exact"]]


def whole_facts(made: Rounding) -> dict[str, Any]:
    """How the numbers became whole, in counts. Standard errors and intervals stay those of the numbers before."""
    return {
        "method": made.method,
        "distance": made.distance,
        "bound": made.distance if made.nearest else made.bound,
        "largest": made.largest,
    }


def readme(facts: dict[str, Any]) -> str:
    """README.txt of a release folder."""
    budget = facts["budget"]
    promise = f"Promise: {budget['text']} under {facts['neighbours']} neighbours, {budget['per']} ({facts['mark']}).\n"
    if not facts["private"]:
        promise = f"{facts['mark']}.\n"
    total = facts["total"]
    rows = f"{total['value']:,.0f} {'people' if budget['unit'] is None else 'rows'}" + (
        "" if total["public"] else " (estimated)"
    )
    said = README.format(rows=rows, version=facts["versions"]["consilience"], promise=promise)
    given = ", ".join(" by ".join(g["attributes"]) for g in facts.get("given", ()))
    public = f"\nTaken as public, kept as given and not protected: {given}.\n" if given else ""
    return said + (WHOLE if "whole" in facts else "") + public


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
        "unit": budget.neighbours.unit,
        "rows_per_unit": budget.neighbours.rows,
        "per": budget.neighbours.per,
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
