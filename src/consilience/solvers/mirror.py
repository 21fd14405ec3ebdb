"""Mirror descent on marginals through any oracle, plain or accelerated (interior gradient), with a certified gap.

    y = (1 - a) x + a z,   z <- oracle step along grad L(y),   x <- (1 - a) x + a z

a = 1 is plain mirror descent (x = y = z). Accelerated, the weights follow c <- c (1 - a), a^2 = c l (1 - a), and the step along
the gradient is a / c (Auslender and Teboulle's interior gradient method): the gap falls with the square of the number of
iterations. Steps grow while L stays below its linearisation plus the divergence moved, else they are undone and halved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from consilience.domain import Buffer
from consilience.errors import LossError
from consilience.loop import Check, Goal, Stop, iterate
from consilience.progress import Progress
from consilience.status import Status, stalled, unbounded

GROWTH = 1.1
MOST_FAILURES = 60


class MirrorProblem(Protocol):
    """A loss over a polytope of marginals, reached through an oracle that takes mirror steps."""

    def uniform(self) -> Any: ...

    def first_rate(self) -> float:
        """A step that smoothness guarantees, or a cautious guess."""
        ...

    def value_and_grad(self, values: Buffer) -> tuple[float, Buffer]: ...

    def move(self, state: Any, gradient: Buffer, rate: float) -> None:
        """One mirror step, the oracle solved to the accuracy that the progress so far deserves."""
        ...

    def values(self, state: Any) -> Buffer: ...

    def restart(self, values: Buffer) -> Any | None:
        """A state whose marginals are these, or None where the oracle cannot make one."""
        ...

    def divergence(self, before: Any, after: Any, gradient: Buffer, rate: float) -> float:
        """D(after, before) of the entropy that the oracle uses, the move having been along `gradient` by `rate`."""
        ...

    def lowest(self, start: Any, now: Any, pull: Buffer) -> float:
        """A lower bound of <pull, s> over the polytope, pull being what moved the state from start to now."""
        ...


@dataclass
class MirrorResult:
    """x and the state z behind it, its value, the best lower bound, steps done, how it ended, and the last rate."""

    values: Buffer
    state: Any
    objective: float
    bound: float
    iterations: int
    status: Status
    rate: float


def mirror_descent(
    problem: MirrorProblem,
    *,
    accelerated: bool,
    limit: int,
    tolerance: float | None,
    step: float | None = None,
    state: Any = None,
    progress: Progress | None = None,
) -> MirrorResult:
    """Minimise; `tolerance` None does exactly `limit` steps, `step` is honoured exactly if given."""
    if step is not None and not (np.isfinite(step) and step > 0):
        raise LossError(f"step must be positive and finite, got {step}")
    method = _MirrorDescent(problem, accelerated, step, state, tolerance or 0.0)
    run = iterate(
        method, limit=limit, tolerance=tolerance, when=_next_bound, progress=progress
    )  # fmt: skip
    end = run.state
    return MirrorResult(end.x, end.z, end.value, end.bound, run.iterations, run.status, end.rate)


def _next_bound(done: int) -> int:
    return max(16, int(1.2 * done) + 8)


@dataclass
class _Window:
    """The lower bound since a start: what the steps pulled along, their summed rates and intercepts, and when it began."""

    start: Any
    pull: Buffer
    began: int = 0
    weight: float = 0.0
    intercept: float = 0.0

    def renew(self, state: Any, done: int) -> None:
        self.start.adopt(state)
        self.pull[:] = 0.0
        self.weight, self.intercept, self.began = 0.0, 0.0, done


@dataclass
class _Working:
    """x and its value, the oracle's state z and room to undo a step of it; c is the accelerated weight."""

    x: Buffer
    value: float
    z: Any
    backup: Any
    rate: float
    c: float
    first: float
    window: _Window
    bound: float = -np.inf
    done: int = 0
    failures: int = 0


@dataclass(frozen=True)
class _MirrorDescent:
    """Mirror descent as a method of the loop."""

    problem: MirrorProblem
    accelerated: bool
    fixed: float | None
    warm: Any
    tolerance: float

    def start(self) -> _Working:
        problem = self.problem
        z = self.warm.copy() if self.warm is not None else problem.uniform()
        rate = self.fixed if self.fixed is not None else problem.first_rate()
        x = problem.values(z).copy()
        value, _ = problem.value_and_grad(x)
        window = _Window(z.copy(), np.zeros_like(x))
        # With c = 1 / rate no iterate depends on the unit of the loss.
        return _Working(x, value, z, z.copy(), rate, 1.0 / rate, value, window)

    def step(self, state: _Working, most: int) -> int:
        problem, x, z, c, rate = self.problem, state.x, state.z, state.c, state.rate
        a = 1.0
        if self.accelerated:
            a = 0.5 * (np.sqrt((c * rate) ** 2 + 4 * c * rate) - c * rate)
        state.backup.adopt(z)
        zv = problem.values(z)
        y = (1 - a) * x + a * zv if self.accelerated else zv
        at_y, gradient = problem.value_and_grad(y)
        along = a / (c * (1 - a)) if self.accelerated else rate
        old = zv.copy()
        if not self.accelerated:
            y = old
        problem.move(z, gradient, along)
        zv = problem.values(z)
        new = (1 - a) * x + a * zv if self.accelerated else zv.copy()
        after, _ = problem.value_and_grad(new)
        if after < min(-1e12, -1e6 * abs(state.first)):
            state.x, state.value, state.bound = new, after, -np.inf
            raise Stop(unbounded(after))
        # The step was short enough if L lies below its linearisation plus what the entropy pays for the move.
        paid = problem.divergence(state.backup, z, gradient, along) * a / along
        linear = a * float(np.einsum("i,i", gradient, zv - old))
        if self.fixed is None and not after <= at_y + linear + paid + 1e-13 * abs(at_y):
            self._undo(state)
            return 0
        window = state.window
        window.pull += along * gradient
        window.weight += along
        window.intercept += along * (at_y - float(np.einsum("i,i", gradient, y)))
        overshot = self.accelerated and after > state.value
        state.x, state.value, state.failures = new, after, 0
        state.c = c * (1 - a) if self.accelerated else 1.0
        state.done += 1
        if self.fixed is None:
            state.rate *= GROWTH
        if overshot:
            self._restart(state)
        return 1

    def check(self, state: _Working, done: int) -> Check | None:
        """The gap by a new lower bound; None right after a restart, which has taken no step yet."""
        window = state.window
        if window.weight == 0.0:
            return Check(state.value) if done == 0 else None
        self._note_bound(state)
        if done >= 2 * window.began + 16:
            window.renew(state.z, done)
        return Check(state.value, max(0.0, state.value - state.bound) / _size(state.value))

    def _undo(self, state: _Working) -> None:
        """Take the step back and go on with half of its rate."""
        state.failures += 1
        state.z.adopt(state.backup)
        state.rate *= 0.5
        if state.failures > MOST_FAILURES:
            gap = (state.value - state.bound) / _size(state.value)
            raise Stop(stalled(state.done, gap, self.tolerance, Goal.GAP))

    def _restart(self, state: _Working) -> None:
        """Momentum has overshot: go on from x with none, in a new window, where the oracle can."""
        fresh = self.problem.restart(state.x)
        if fresh is not None:
            self._note_bound(state)
            state.z, state.c = fresh, 1.0 / state.rate
            state.window.renew(state.z, state.done)

    def _note_bound(self, state: _Working) -> None:
        window = state.window
        lowest = self.problem.lowest(window.start, state.z, window.pull)
        state.bound = max(state.bound, (window.intercept + lowest) / window.weight)


def _size(value: float) -> float:
    return max(abs(value), 1e-300)
