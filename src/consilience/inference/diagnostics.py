"""Diagnostics: how a model was made and how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass

from consilience.solvers.planner import Plan


@dataclass(frozen=True)
class Diagnostics:
    """How the model was made and how far it can be trusted."""

    plan: Plan | None
    method: str
    status: str
    advice: str
    converged: bool
    objective: float
    bound: float
    violation: float
    iterations: int
    seconds: float
    prior: str | None = None
    prior_strength: float | None = None

    @property
    def gap(self) -> float:
        """(objective - lower bound) / |objective|, rigorous."""
        distance = max(0.0, self.objective - self.bound)
        return distance / max(abs(self.objective), 1e-300) if distance > 0.0 else 0.0

    def __str__(self) -> str:
        lines = [
            f"{self.method}: {self.status}" + (f" ({self.advice})" if self.advice else ""),
            f"objective {self.objective:.6g}, at most {self.gap:.2g} (relative) above the optimum",
            f"consistency violation {self.violation:.2g}; {self.iterations} iterations, {self.seconds:.2f} s",
        ]
        if self.prior is not None:
            strength = (
                "" if self.prior_strength is None else f", strength {self.prior_strength:.3g}"
            )
            lines.append(f"prior: {self.prior} (biased towards it){strength}")
        return "\n".join(lines)
