"""Progress: what long work tells those who watch it. One type for the whole package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class Step:
    """Work has come so far: `done` of `total` in this stage, `total` None where it is not known."""

    stage: str
    done: int
    total: int | None = None
    seconds_left: float | None = None


@dataclass(frozen=True)
class Iteration(Step):
    """A step of an iterative method: the objective, the relative gap so far (inf if unknown) and the violation."""

    objective: float = inf
    gap: float = inf
    violation: float = 0.0


Progress = Callable[[Step], None]
"""Called now and then from the thread that works. An exception raised in it ends the work."""


def quiet(step: Step) -> None:
    """The progress of those who do not watch."""
