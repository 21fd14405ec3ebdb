"""The privacy statement: what a release promises, in numbers and in plain words, and what it does not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import exp
from pathlib import Path
from typing import Any

from consilience.domain import Clique
from consilience.errors import ReleaseError
from consilience.mechanisms.mechanism import NOT_PRIVATE
from consilience.model import Uncertainty
from consilience.privacy import Account, Budget, Cost, Neighbours, Rho, epsilon_at
from consilience.release import Published

USUAL_DELTA = 1e-6
"""At which a cost without a named delta is stated."""


@dataclass(frozen=True)
class Spending:
    """One line of a ledger: when, what for, and its share of the whole budget."""

    time: str
    what: str
    share: float


@dataclass(frozen=True)
class Promise:
    """(epsilon, delta) for neighbours of a kind. `share`: of the budget, spent by this release, where a budget is known."""

    neighbours: Neighbours
    epsilon: float
    delta: float
    rho: float | None = None
    share: float | None = None
    private: bool = True
    mark: str = NOT_PRIVATE
    """Why it is not private, where it is not."""
    ledger: Sequence[Spending] | None = None
    """Every release that the table's ledger knows; None if there was none."""

    @classmethod
    def of(
        cls,
        cost: Cost,
        private: bool,
        budget: Budget | None = None,
        account: Account | None = None,
    ) -> Promise:
        """The promise of a cost. `budget`: what it was calibrated to; `account`: what the table's ledger holds."""
        total = account.total if account is not None else budget
        named = budget if budget is not None else total
        delta = USUAL_DELTA if named is None or named.delta is None else float(named.delta)
        if budget is not None and budget.epsilon is not None:
            epsilon, delta = float(budget.epsilon.value), float(budget.delta or 0)
        elif cost.epsilon is not None:
            epsilon, delta = float(cost.epsilon.value), 0.0
        else:
            epsilon = epsilon_at(cost, delta)
        lines = None
        if account is not None:
            lines = [
                Spending(e.time, e.description, share_of(account.total, e.cost))
                for e in account.entries
            ]
        share = None if total is None else share_of(total, cost)
        rho = float(cost.rho.value)
        return cls(cost.neighbours, epsilon, delta, rho, share, private, ledger=lines)

    @classmethod
    def of_release(cls, facts: Mapping[str, Any], ledger: Mapping[str, Any] | None) -> Promise:
        """The promise that the files of a release folder state (`release.json`, `ledger.json`)."""
        budget, cost = facts["budget"], facts["cost"]
        neighbours = Neighbours.of(
            facts["neighbours"], budget.get("unit"), budget.get("rows_per_unit", 1)
        )
        epsilon, delta = budget.get("epsilon"), budget.get("delta", 0.0)
        if epsilon is None:
            delta = delta or USUAL_DELTA
            spent = Cost.adaptive(neighbours, Rho(Fraction(cost["exact"]["rho"])))
            epsilon = epsilon_at(spent, delta)
        lines, share = None, cost["share"]
        if ledger is not None:
            lines = [
                Spending(e["time"], e["description"], e["cost"]["share"])
                for e in ledger["releases"]
            ]
            share = lines[-1].share if lines else share
        private, mark = facts["private"], facts.get("mark", NOT_PRIVATE)
        return cls(neighbours, epsilon, delta, cost.get("rho"), share, private, mark, lines)

    @property
    def factor(self) -> float:
        """e^epsilon: how much likelier one person can make anything that is published."""
        return exp(min(self.epsilon, 700.0))

    @property
    def certainty(self) -> float:
        """The most that somebody who wavered evenly between two possibilities can become sure of one."""
        return 1 / (1 + exp(-min(self.epsilon, 700.0)))

    @property
    def line(self) -> str:
        """In one line."""
        return f"epsilon {short(self.epsilon)}, delta {short(self.delta)}, {self.neighbours}"


def short(value: float) -> str:
    """Four digits, and 1e-6 rather than 1e-06."""
    return f"{value:.4g}".replace("e-0", "e-")


def share_of(total: Budget, cost: Cost) -> float:
    """A cost as a share of a budget, in the unit that the budget adds up; by epsilon where that is how it was admitted."""
    spent = total.spent(cost)
    if spent is None or spent.value > total.capacity.value:
        if cost.epsilon is None or total.epsilon is None:
            return float("nan")
        return float(cost.epsilon.value / total.epsilon.value)
    return float(spent.value / total.capacity.value)


def in_words(promise: Promise) -> list[str]:
    """The statement, a paragraph each."""
    whose = promise.neighbours
    change = {
        ("replace-one", True): "one person's row had been exchanged for any other row",
        ("add-remove", True): "one person's row had been left out, or one had been added",
        ("replace-one", False): f"all rows of one {whose.noun} had been exchanged for any others",
        (
            "add-remove",
            False,
        ): f"all rows of one {whose.noun} had been left out, or somebody's had been added",
    }[whose.value, whose.unit is None]
    public = (
        "The number of rows itself is public."
        if whose.total_public
        else "The number of rows is protected as well; the total given here is an estimate."
    )
    exception = (
        ""
        if promise.delta == 0
        else f" There is an exception of probability at most {short(promise.delta)} (delta), about one in "
        f"{1 / promise.delta:,.0f}, in which this need not hold."
    )
    paragraphs = [
        f"Suppose that {change}. Everything on this page, and everything else in this release, would have come out with "
        f"nearly the same probability: no result becomes more than {_times(promise.factor)} as likely or as unlikely "
        f"(e to the power of epsilon, epsilon = {short(promise.epsilon)}).{exception}",
        f"Put differently: somebody who knows everybody else in the table, and wavers evenly between two possibilities "
        f"for one person, can become at most {100 * promise.certainty:.0f} % sure of one of them by reading this release, "
        f"however clever and whatever else they know. {public}",
    ]
    if not promise.private:
        paragraphs.insert(
            0,
            f"{promise.mark}. None of what follows holds; do not publish this.",
        )
    return paragraphs


def not_promised(neighbours: Neighbours) -> tuple[str, ...]:
    """What a reader might take for promised and is not."""
    if neighbours.unit is None:
        several = (
            "Protection of a person with several rows. The promise is per row; for k rows of one person epsilon counts k times, "
            "and delta grows faster still."
        )
    else:
        several = (
            f"Protection beyond one {neighbours.noun}. At most {neighbours.rows} rows of each are counted, and the promise holds "
            "for all of them together; what several of them have in common, as a household has, is protected less."
        )
    return (NOT_PROMISED[0], several, *NOT_PROMISED[1:])


NOT_PROMISED = (
    "That nothing can be learnt about groups. The tables are published so that one can learn about groups, also about groups "
    "that you belong to, whether or not you are in the table.",
    "Protection of what was declared. Names of columns, categories and limits come from the declared schema; they are safe to "
    "publish only if nobody read them off the data.",
    "Anything about later releases. If the same people are released again, costs add up; the ledger is there to count them.",
    "Protection from somebody who could time the computation exactly or read its memory, or who has the table anyway.",
)


def _times(factor: float) -> str:
    return f"{factor:.3g} times" if factor < 1e4 else f"{factor:.1e} times"


def promise_of(published: Published) -> Promise | None:
    """What release.json and ledger.json state; None where a folder was made from somebody's noisy tables and promises nothing."""
    if published.facts["private"] is None:
        return None
    file = published.path / "ledger.json"
    ledger = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    try:
        return Promise.of_release(published.facts, ledger)
    except KeyError as missing:
        raise ReleaseError(
            f"the release {str(published.path)!r} must state its {missing}, it does not; make it anew"
        ) from missing


def standard_errors(published: Published) -> dict[Clique, Uncertainty | None]:
    """{clique: errors, None where the folder states none} of every table in the folder."""
    domain = published.model.domain
    cliques = [domain.named(entry["attributes"]) for entry in published.facts.get("tables", ())]
    return published.errors(cliques)


def default_path(folder: Path) -> Path:
    """Where the report of a release is, unless said otherwise."""
    return folder / "report.html"
