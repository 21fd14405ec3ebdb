"""Check: one look at an iterate of splitting, from which it is decided whether to go on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One look at the iterate: objective of the consistent point, of the feasible one, lower bound, residuals."""

    consistent: float
    objective: float
    bound: float
    primal: float
    dual: float
    shrink: float
    """How much of the uniform distribution must be mixed in to make the consistent point non-negative."""
    floor: float
    """An objective below this is as good as zero."""

    @property
    def gap(self) -> float:
        return max(0.0, self.objective - self.bound) / max(abs(self.objective), self.floor)
