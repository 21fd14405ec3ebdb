"""Solution: what every solver returns, with a certificate of how good it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from consilience.domain import CliqueVector
from consilience.status import Status


@dataclass(frozen=True, repr=False)
class Solution:
    """tau minimises the loss over the polytope to within `objective - bound`, which is rigorous.

    `violation` is the largest L1 inconsistency or negative mass left in tau; `state` continues the solve (a warm start).
    """

    tau: CliqueVector
    objective: float
    bound: float
    violation: float
    iterations: int
    seconds: float
    status: Status
    method: str
    state: Any = field(default=None, repr=False)
    prior_strength: float | None = None
    """How strongly the fit was pulled towards its prior (solvers/prior.py); None without one."""
    towards: str = "independence"
    """What the prior is."""
    floor: float = 1e-300
    """An objective below this is as good as zero: noise-free data can be met exactly."""
    work: float = 0.0
    """Visits of cells that it took, counted (solvers/work.py)."""

    @property
    def gap(self) -> float:
        """Relative distance to the optimum: (objective - bound) / |objective|, at most (of `floor` where that is larger)."""
        distance = max(0.0, self.objective - self.bound)
        if distance == 0.0:
            return 0.0
        return distance / max(abs(self.objective), self.floor)

    def __repr__(self) -> str:
        return (
            f"Solution({self.method}: {self.status.name}, objective {self.objective:.6g}, relative gap {self.gap:.2g}, "
            f"violation {self.violation:.2g}, {self.iterations} iterations, {self.seconds:.2f} s)"
        )
