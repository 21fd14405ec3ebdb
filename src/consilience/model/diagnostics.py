"""Diagnostics: how a model was made and how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import TYPE_CHECKING

from consilience.markup import html_table
from consilience.progress import Iteration, Progress, Step, quiet
from consilience.solvers.planner import Plan

if TYPE_CHECKING:
    from consilience.model.model import Model


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
    prior_strength: float | None = None
    """How strongly the fit was pulled towards its prior; None for a fit without one."""
    towards: str = "independence"
    """What a prior is."""
    work: float = 0.0
    """Visits of cells that the fit took, counted (solvers/work.py): what a refit costs, on every machine the same."""
    trace: tuple[Iteration, ...] = field(default=(), repr=False)
    """The fit on its way, some hundred looks at most; empty where nobody looked."""

    @property
    def prior(self) -> str | None:
        """What the answers are pulled towards, on purpose; None for a fit without a prior."""
        return None if self.prior_strength is None else self.towards

    @property
    def gap(self) -> float:
        """(objective - lower bound) / |objective|, rigorous; inf where no bound is known."""
        distance = max(0.0, self.objective - self.bound)
        return distance / max(abs(self.objective), 1e-300) if distance > 0.0 else 0.0

    @property
    def short_gap(self) -> str:
        return f"relative gap {self.gap:.1g}" if isfinite(self.gap) else "no bound"

    def __str__(self) -> str:
        lines = [
            f"{self.method}: {self.status}" + (f" ({self.advice})" if self.advice else ""),
            f"objective {self.objective:.6g}, {self._certainty}",
            f"consistency violation {self.violation:.2g}; {self.iterations} iterations, {self.seconds:.2f} s",
        ]
        if self.prior is not None:
            lines.append(
                f"prior: {self.prior} (biased towards it), strength {self.prior_strength:.3g}"
            )
        return "\n".join(lines)

    @property
    def _certainty(self) -> str:
        if self.gap == inf:
            return "no bound on the distance to the optimum"
        return f"at most {self.gap:.2g} (relative) above the optimum"

    def _repr_html_(self) -> str:
        rows = [
            ("method", self.method),
            ("status", self.status + (f" ({self.advice})" if self.advice else "")),
            ("objective", f"{self.objective:.6g}"),
            ("relative gap, at most", f"{self.gap:.2g}"),
            ("consistency violation", f"{self.violation:.2g}"),
            ("iterations", f"{self.iterations:,}"),
            ("seconds", f"{self.seconds:.2f}"),
        ]
        if self.prior is not None:
            rows.append(("prior", f"{self.prior} (biased towards it)"))
        return html_table("How the model was made", rows)


def model_card(model: Model) -> str:
    """A model in a notebook."""
    d = model.diagnostics
    rows = [
        ("attributes", ", ".join(f"{a} ({n})" for a, n in model.domain.sizes.items())),
        ("total", f"{model.total:,.6g}"),
        ("measured cliques", f"{len(model.cliques):,}"),
        ("consistency", f"{model.graph.kind}, {len(model.graph.regions):,} regions"),
        ("fit", f"{d.status}, {d.short_gap}, violation {d.violation:.1g}"),
        ("prior", "none" if d.prior is None else f"{d.prior} (biased towards it)"),
    ]
    return html_table("Model", rows)


MOST_LOOKS = 200


class Trace:
    """Keeps at most `MOST_LOOKS` iterations of the last solve, evenly spread, and passes each on to `progress`.

    A solve that starts again (a prior tries several strengths) starts the trace again.
    """

    def __init__(self, progress: Progress = quiet) -> None:
        self.progress = progress
        self.kept: list[Iteration] = []
        self.seen, self.every = 0, 1
        self.last: Iteration | None = None

    def __call__(self, step: Step) -> None:
        if isinstance(step, Iteration):
            self._keep(replace(step, stage="reconstructing", total=None, seconds_left=None))
        self.progress(step)

    def _keep(self, iteration: Iteration) -> None:
        if self.last is not None and iteration.done <= self.last.done:
            self.kept, self.seen, self.every = [], 0, 1
        self.last = iteration
        if self.seen % self.every == 0:
            self.kept.append(iteration)
        self.seen += 1
        if len(self.kept) >= MOST_LOOKS:
            self.kept, self.every = self.kept[::2], 2 * self.every

    @property
    def iterations(self) -> tuple[Iteration, ...]:
        """What was kept, the last look included."""
        end = [self.last] if self.last is not None and self.last not in self.kept[-1:] else []
        return (*self.kept, *end)
