"""Mirror descent on marginals through any oracle, plain or accelerated (interior gradient), with a certified gap.

    y = (1 - a) x + a z,   z <- oracle step along grad L(y),   x <- (1 - a) x + a z

a = 1 is plain mirror descent (x = y = z). Accelerated, the weights follow c <- c (1 - a), a^2 = c l (1 - a), and the step along
the gradient is a / c (Auslender and Teboulle's interior gradient method): the gap falls with the square of the number of
iterations. Steps grow while L stays below its linearisation plus the divergence moved, else they are undone and halved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from consilience.domain import Buffer
from consilience.errors import LossError
from consilience.solvers.solution import Iteration
from consilience.status import CONVERGED, Status, as_asked, out_of_iterations, stalled, unbounded


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
        """A state whose marginals are these, or None where the oracle can not make one."""
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


GROWTH = 1.1


def mirror_descent(
    problem: MirrorProblem,
    *,
    accelerated: bool,
    limit: int,
    tolerance: float | None,
    step: float | None = None,
    state: Any = None,
    callback: Callable[[Iteration], None] | None = None,
) -> MirrorResult:
    """Minimise; `tolerance` None does exactly `limit` steps, `step` is honoured exactly if given."""
    if step is not None and not (np.isfinite(step) and step > 0):
        raise LossError(f"step must be positive and finite, got {step}")
    z = state.copy() if state is not None else problem.uniform()
    rate = step if step is not None else problem.first_rate()
    x = problem.values(z).copy()
    value, _ = problem.value_and_grad(x)
    first = value
    start, pull, weight, intercept, began = z.copy(), np.zeros_like(x), 0.0, 0.0, 0
    bound, done, failures, next_check = -np.inf, 0, 0, 16
    c = 1.0 / rate  # then no iterate depends on the unit of the loss
    backup = z.copy()
    while done < limit:
        a = 0.5 * (np.sqrt((c * rate) ** 2 + 4 * c * rate) - c * rate) if accelerated else 1.0
        backup.adopt(z)
        zv = problem.values(z)
        y = (1 - a) * x + a * zv if accelerated else zv
        at_y, gradient = problem.value_and_grad(y)
        along = a / (c * (1 - a)) if accelerated else rate
        old = zv.copy()
        problem.move(z, gradient, along)
        zv = problem.values(z)
        new = (1 - a) * x + a * zv if accelerated else zv.copy()
        after, _ = problem.value_and_grad(new)
        if after < min(-1e12, -1e6 * abs(first)):
            return MirrorResult(new, z, after, -np.inf, done, unbounded(after), rate)
        # The step was short enough if L lies below its linearisation plus what the entropy pays for the move.
        paid = problem.divergence(backup, z, gradient, along) * a / along
        linear = a * float(np.einsum("i,i", gradient, zv - old))
        if step is None and not after <= at_y + linear + paid + 1e-13 * abs(at_y):
            failures += 1
            z.adopt(backup)
            rate *= 0.5
            if failures > 60:
                gap = (value - bound) / max(abs(value), 1e-300)
                return MirrorResult(
                    x,
                    z,
                    value,
                    bound,
                    done,
                    stalled(done, gap, tolerance or 0.0, "the relative gap"),
                    rate,
                )
            continue
        failures = 0
        overshot = accelerated and after > value
        x, value = new, after
        c = c * (1 - a) if accelerated else 1.0
        pull += along * gradient
        weight += along
        intercept += along * (at_y - float(np.einsum("i,i", gradient, y)))
        done += 1
        if step is None:
            rate *= GROWTH
        fresh = problem.restart(x) if overshot else None
        if fresh is not None:  # momentum has overshot: go on from x with none, in a new window
            bound = max(bound, (intercept + problem.lowest(start, z, pull)) / weight)
            z, c = fresh, 1.0 / rate
            start.adopt(z)
            pull[:] = 0.0
            weight, intercept, began = 0.0, 0.0, done
            continue
        if done >= next_check or done == limit:
            next_check = int(1.2 * done) + 8
            bound = max(bound, (intercept + problem.lowest(start, z, pull)) / weight)
            gap = max(0.0, value - bound) / max(abs(value), 1e-300)
            if callback is not None:
                callback(Iteration(done, value, gap, 0.0))
            if tolerance is not None and gap <= tolerance:
                return MirrorResult(x, z, value, bound, done, CONVERGED, rate)
            if done >= 2 * began + 16:
                start.adopt(z)
                pull[:] = 0.0
                weight, intercept, began = 0.0, 0.0, done
    gap = max(0.0, value - bound) / max(abs(value), 1e-300)
    status = (
        as_asked(done)
        if tolerance is None
        else out_of_iterations(done, gap, tolerance, "the relative gap")
    )
    return MirrorResult(x, z, value, bound, done, status, rate)
