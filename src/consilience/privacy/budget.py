"""Budget: the most that may be learnt about one person, and which tables count as neighbours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from consilience.errors import BudgetError
from consilience.privacy.accounting import checked_delta, gaussian_mu_squared, zcdp_rho
from consilience.privacy.cost import Cost
from consilience.privacy.sensitivity import Neighbours
from consilience.privacy.units import Amount, Epsilon, MuSquared, Real, Rho, positive

ACCOUNTINGS = ("pure", "zcdp", "gaussian")

_LEAST = Fraction(1, 10**40)
"""Of epsilon and rho."""
_RESERVE = Fraction(1, 2**20)
"""Share of epsilon and of delta kept back under Gaussian accounting for the slack of lemma 1."""


@dataclass(frozen=True, init=False)
class Budget:
    """A promise: pure `epsilon`, (`epsilon`, `delta`), or zCDP `rho`, under `neighbours` (always to
    be named).

    `accounting` says how releases add up. Pure budgets add epsilons and rho budgets add rhos. An
    (epsilon, delta) budget becomes the largest rho that proves it ("zcdp", the default: every
    primitive may be used), or the largest mu of Gaussian DP that proves it ("gaussian": only
    Gaussian noise may be used, and less of it is needed). A rho budget may name a delta; it is only
    used to report an epsilon.

    `unit` names the column that says whose a row is, and at most `rows_per_unit` rows of each are counted; without it the
    promise is per row.
    """

    neighbours: Neighbours
    epsilon: Epsilon | None
    delta: Fraction | None
    rho: Rho | None
    accounting: str

    def __init__(
        self,
        *,
        epsilon: Real | None = None,
        delta: Real | None = None,
        rho: Real | None = None,
        neighbours: Neighbours | str | None = None,
        unit: str | None = None,
        rows_per_unit: int = 1,
        accounting: str | None = None,
    ) -> None:
        if (epsilon is None) == (rho is None):
            raise BudgetError(
                "a budget must have either epsilon or rho, "
                f"got epsilon={epsilon!r} and rho={rho!r}; give exactly one"
            )
        allowed = ("zcdp",) if rho is not None else ("pure",) if delta is None else ACCOUNTINGS[1:]
        if accounting is not None and accounting not in allowed:
            raise BudgetError(
                f"the accounting of this budget must be {' or '.join(map(repr, allowed))}, "
                f"got {accounting!r}"
            )
        values = {
            "epsilon": None if epsilon is None else Epsilon(_sensible(epsilon, "epsilon")),
            "delta": None if delta is None else checked_delta(delta),
            "rho": None if rho is None else Rho(_sensible(rho, "rho")),
            "neighbours": Neighbours.of(neighbours, unit, rows_per_unit),
            "accounting": accounting or allowed[0],
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @cached_property
    def capacity(self) -> Epsilon | Rho | MuSquared:
        """The whole budget in the unit that its accounting adds up, rounded down."""
        if self.rho is not None:
            return self.rho
        assert self.epsilon is not None
        if self.delta is None:
            return self.epsilon
        if self.accounting == "zcdp":
            return zcdp_rho(self.epsilon, self.delta)
        keep = 1 - _RESERVE
        return gaussian_mu_squared(self.epsilon * keep, self.delta * keep)

    def split(self, weights: Iterable[Real]) -> tuple[Amount, ...]:
        """Shares of the capacity in proportion to `weights`; exact, so they sum to the whole."""
        return self.capacity.split(weights)

    def admits(self, cost: Cost) -> bool:
        """Whether a cost (of all releases together) keeps the promise.

        The rule holds however later releases depend on earlier ones (docs/privacy.md, "Adding up"):
        the accounting is fixed beforehand, and under "zcdp" an all-pure sum of epsilons is the one
        alternative, as it has no delta.
        """
        if cost.neighbours != self.neighbours:
            raise BudgetError(
                f"the budget is stated for {self.neighbours}, the release for {cost.neighbours}; calibrate it for the budget's"
            )
        spent = self.spent(cost)
        if spent is not None and spent <= self.capacity:
            return self.accounting != "gaussian" or cost.slack <= self._reserve
        if self.accounting == "zcdp" and self.epsilon is not None and cost.epsilon is not None:
            return cost.epsilon <= self.epsilon
        return False

    @property
    def _reserve(self) -> Fraction:
        """Slack that fits both kept-back shares: of epsilon, and of ln(delta)."""
        return min(self.epsilon.value, Fraction(1)) * _RESERVE if self.epsilon else Fraction(0)

    def to_record(self) -> dict[str, str | int | None]:
        """The promise as JSON, every amount exact."""
        unit, rows = self.neighbours.unit, self.neighbours.rows
        whose: dict[str, str | int | None] = (
            {} if unit is None else {"unit": unit, "rows_per_unit": rows}
        )
        return whose | {
            "epsilon": str(self.epsilon.value) if self.epsilon else None,
            "delta": str(self.delta) if self.delta else None,
            "rho": str(self.rho.value) if self.rho else None,
            "neighbours": self.neighbours.value,
            "accounting": self.accounting,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Budget:
        """The promise that `to_record` wrote down."""
        amounts = {
            k: Fraction(v) if (v := record[k]) else None for k in ("epsilon", "delta", "rho")
        }
        return cls(
            **amounts,
            neighbours=record["neighbours"],
            unit=record.get("unit"),
            rows_per_unit=record.get("rows_per_unit", 1),
            accounting=record["accounting"],
        )

    def spent(self, cost: Cost) -> Amount | None:
        """The cost in the unit of `capacity`; None where it cannot be expressed."""
        return {"pure": cost.epsilon, "zcdp": cost.rho, "gaussian": cost.mu_squared}[
            self.accounting
        ]

    def __repr__(self) -> str:
        kinds = {"epsilon": self.epsilon and self.epsilon.value, "delta": self.delta}
        kinds["rho"] = self.rho and self.rho.value
        parts = [f"{name}={float(value):g}" for name, value in kinds.items() if value is not None]
        whose = self.neighbours
        unit = "" if whose.unit is None else f"unit={whose.unit!r}, rows_per_unit={whose.rows}, "
        return (
            f"Budget({', '.join(parts)}, neighbours={whose.value!r}, {unit}"
            f"accounting={self.accounting!r})"
        )


def _sensible(value: Real, name: str) -> Fraction:
    number = positive(value, name)
    if number > 10**6:
        raise BudgetError(f"{name} must be at most a million, got {value!r}; this protects no one")
    if number < _LEAST:
        raise BudgetError(
            f"{name} must be at least {float(_LEAST):g}, got {value!r}; nothing can be told from noise then"
        )
    return number
