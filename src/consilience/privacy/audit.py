"""A statistical lower bound on what a mechanism really leaks, from runs on two neighbouring inputs.

For any event S, (epsilon, delta) privacy says P(S) <= exp(epsilon) Q(S) + delta, with P and Q the
output laws on the two inputs. Half of the runs choose an event {statistic <= t} or {>= t}; the
other half count it, and Clopper-Pearson intervals bound P(S) from below and Q(S) from above. If
even these break a promise, then the promise is broken, except with probability `1 - confidence`. An
audit can refute a promise; it cannot prove one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from consilience.errors import AuditError
from consilience.privacy.composition import delta_at
from consilience.privacy.cost import Cost
from consilience.privacy.units import Epsilon

Sampler = Callable[[Any, int], ArrayLike]
"""(input, runs) to `runs` independent values of a real statistic of the mechanism's output."""

Promise = Callable[[float], float]
"""epsilon to the delta that is promised at it: the privacy profile."""

_EPSILONS = np.concatenate([[0.0], np.geomspace(1e-3, 50, 100)])
_THRESHOLDS = 200


@dataclass(frozen=True)
class Audit:
    """What was found. If `excess` > 0, P(S) - exp(epsilon) Q(S) passes the promised delta."""

    event: str
    p_low: float
    q_high: float
    excess: float
    epsilon: float
    """Where the excess is largest."""
    runs: int
    confidence: float

    @property
    def passed(self) -> bool:
        return self.excess <= 0

    def epsilon_low(self, delta: float = 0.0) -> float:
        """With `confidence`, the mechanism is not (epsilon, delta) private for any less epsilon."""
        if self.p_low <= delta:
            return 0.0
        return max(0.0, math.log((self.p_low - delta) / self.q_high))


def run_audit(
    sampler: Sampler,
    inputs: tuple[Any, Any],
    promise: Cost | Promise,
    *,
    runs: int = 20_000,
    confidence: float = 0.999,
) -> Audit:
    """Try to refute `promise` for the mechanism behind `sampler`, in both directions and both
    tails.

    `promise` is a Cost, or a function from epsilon to delta, such as `pure(1.0)`.
    """
    if runs < 100:
        raise AuditError(f"an audit needs at least 100 runs, got {runs}")
    if not 0 < confidence < 1:
        raise AuditError(f"confidence must be between zero and one, got {confidence!r}")
    profile = _profile(promise)
    half = runs // 2
    train = [_statistics(sampler, x, half) for x in inputs]
    order, sign, threshold = _chosen_event(train, profile)
    test = [sign * _statistics(sampler, x, runs - half) for x in inputs]
    first, second = test[order], test[1 - order]
    tail = (1 - confidence) / 2
    p_low = lower_bound(int((first <= threshold).sum()), first.size, tail)
    q_high = upper_bound(int((second <= threshold).sum()), second.size, tail)
    gaps = p_low - np.exp(_EPSILONS) * q_high - profile
    worst = int(np.argmax(gaps))
    event = f"statistic {'<=' if sign > 0 else '>='} {sign * threshold:.6g} on input {order + 1}"
    return Audit(
        event, p_low, q_high, float(gaps[worst]), float(_EPSILONS[worst]), runs, confidence
    )


def pure(epsilon: float) -> Promise:
    """The promise of pure epsilon: delta is zero from epsilon on, and what it implies below."""

    def delta(at: float) -> float:
        p = 1 / (1 + math.exp(-epsilon))  # randomised response is the worst case
        return 0.0 if at >= epsilon else p - math.exp(at) * (1 - p)

    return delta


def approximate(epsilon: float, delta: float) -> Promise:
    """The promise of (epsilon, delta), judged at that epsilon alone."""
    return lambda at: delta if at >= epsilon else 1.0


def repeated(run: Callable[[Any], float]) -> Sampler:
    """A sampler from a function that runs the mechanism once and returns the statistic."""
    return lambda x, runs: np.array([run(x) for _ in range(runs)], dtype=float)


def lower_bound(hits: int, runs: int, tail: float) -> float:
    """Clopper-Pearson: the chance is above it, except with probability `tail`."""
    return 0.0 if hits == 0 else float(betaincinv(hits, runs - hits + 1, tail))


def upper_bound(hits: int, runs: int, tail: float) -> float:
    """Clopper-Pearson: the chance is below it, except with probability `tail`."""
    return 1.0 if hits == runs else float(betaincinv(hits + 1, runs - hits, 1 - tail))


def _profile(promise: Cost | Promise) -> NDArray[np.float64]:
    if isinstance(promise, Cost):
        return np.array([delta_at(promise, Epsilon(float(e))) for e in _EPSILONS])
    return np.array([promise(float(e)) for e in _EPSILONS])


def _statistics(sampler: Sampler, x: Any, runs: int) -> NDArray[np.float64]:
    values = np.asarray(sampler(x, runs), dtype=float)
    if values.shape != (runs,) or np.isnan(values).any():
        raise AuditError(
            f"a sampler must return one number per run ({runs}), got shape {values.shape}"
        )
    return values


def _chosen_event(
    train: list[NDArray[np.float64]], profile: NDArray[np.float64]
) -> tuple[int, int, float]:
    """(which input first, sign, threshold) whose bounds, on the training half, come out worst."""
    best = (-math.inf, 0, 1, 0.0)
    for sign in (1, -1):
        samples = [np.sort(sign * values) for values in train]
        candidates = np.quantile(
            np.concatenate(samples), np.linspace(0, 1, _THRESHOLDS), method="inverted_cdf"
        )
        for order in (0, 1):
            for threshold in np.unique(candidates):
                n = samples[0].size
                p = np.searchsorted(samples[order], threshold, side="right") / n
                q = np.searchsorted(samples[1 - order], threshold, side="right") / n
                p -= 3 * math.sqrt(p * (1 - p) / n)
                q += 3 * math.sqrt(max(q * (1 - q), 1 / n) / n) + 4 / n
                gap = float(np.max(p - np.exp(_EPSILONS) * q - profile))
                if gap > best[0]:
                    best = (gap, order, sign, float(threshold))
    return best[1:]
