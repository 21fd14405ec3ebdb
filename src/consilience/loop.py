"""One loop for every iterative method: iterations, tolerance, progress and how it ended are decided here and nowhere else.

A method brings three things (as optimistix's solvers do): `start` makes its state, `step` changes the state, `check` says how
good it is by now. Nothing is caught: an interrupt from the keyboard, or an exception that `progress` raises, ends the work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, inf, log
from typing import Generic, Protocol, TypeVar

from consilience.progress import Iteration, Progress
from consilience.status import CONVERGED, Status, as_asked, out_of_iterations

State = TypeVar("State")


class Goal(StrEnum):
    """What the tolerance is compared with."""

    GAP = "the relative gap"
    VIOLATION = "the consistency violation"


@dataclass(frozen=True)
class Check:
    """What a method says of its state: objective, relative gap (inf if unknown) and consistency violation.

    `ready` is False where the method would not end here even if the numbers are small enough.
    """

    objective: float = inf
    gap: float = inf
    violation: float = 0.0
    ready: bool = True

    def distance(self, goal: Goal) -> float:
        return self.gap if goal is Goal.GAP else self.violation


class Stop(Exception):
    """Raised by a method's `step` that can go no further: the loop ends with this status."""

    def __init__(self, status: Status) -> None:
        super().__init__(str(status))
        self.status = status


class Method(Protocol[State]):
    """An iterative method. Its settings and data are its own; whatever changes is in the state."""

    def start(self) -> State: ...

    def step(self, state: State, most: int) -> int:
        """Iterate, at most `most` times; how many iterations were done, 0 if they had to be undone."""
        ...

    def check(self, state: State, done: int) -> Check | None:
        """How good the state is after `done` iterations; None where that cannot be said now."""
        ...


@dataclass(frozen=True)
class Outcome(Generic[State]):
    """A method that has ended: its last state, iterations done, how it ended, and its last check."""

    state: State
    iterations: int
    status: Status
    last: Check | None


def next_one(done: int) -> int:
    """Check after every step."""
    return done + 1


def iterate(
    method: Method[State],
    *,
    limit: int,
    tolerance: float | None,
    goal: Goal = Goal.GAP,
    when: Callable[[int], int] = next_one,
    stage: str = "reconstructing",
    progress: Progress | None = None,
) -> Outcome[State]:
    """Step until a check meets the tolerance, or `limit` times in all; `tolerance` None does exactly `limit` iterations.

    `when(done)` is the number of iterations at which to check next. There is always a check at the end.
    """
    state = method.start()
    done, due = 0, when(0)
    last = method.check(state, 0) if limit <= 0 else None
    while done < limit:
        try:
            done += method.step(state, limit - done)
        except Stop as stop:
            return Outcome(state, done, stop.status, last)
        found = method.check(state, done) if done >= min(due, limit) else None
        if found is None:
            continue
        last, due = found, when(done)
        if progress is not None:
            progress(_report(stage, done, limit, tolerance, found))
        if tolerance is not None and found.ready and found.distance(goal) <= tolerance:
            return Outcome(state, done, CONVERGED, found)
    if tolerance is None:
        return Outcome(state, done, as_asked(done), last)
    reached = inf if last is None else last.distance(goal)
    return Outcome(state, done, out_of_iterations(done, reached, tolerance, str(goal)), last)


def expected(done: int, gap: float, tolerance: float | None) -> int | None:
    """Iterations in all if the gap goes on falling by the factor that it fell by so far; None where that says nothing."""
    if tolerance is None or not 0 < gap < 1 or not 0 < tolerance < 1:
        return None
    return max(done, ceil(done * log(tolerance) / log(gap)))


def _report(stage: str, done: int, limit: int, tolerance: float | None, found: Check) -> Iteration:
    total = limit if tolerance is None else expected(done, found.gap, tolerance)
    return Iteration(stage, done, total, None, found.objective, found.gap, found.violation)
