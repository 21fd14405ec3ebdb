"""The one place where noise is drawn.

`SecureNoise` hands integer counts to OpenDP's measurements, which add exact discrete noise from a
cryptographic generator seeded by the operating system: no noise is ever added in floating point.
`SeededNoise` is for experiments, repeats itself, and marks all that it touches as not private.
"""

from __future__ import annotations

import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian, make_laplace, make_noisy_max
from opendp.measures import zero_concentrated_divergence
from opendp.metrics import l1_distance, l2_distance, linf_distance
from opendp.mod import OpenDPException, enable_features

from consilience.errors import NoiseError
from consilience.privacy.calibration import selection_scale
from consilience.privacy.units import Epsilon, Noise, Scale, Sigma, require
from consilience.progress import Progress, Step

enable_features("contrib")  # OpenDP's word for constructors whose proofs are still in review

Counts = NDArray[np.int64]
WIDEST = 2.0**50
"""Noise beyond this would meet the ends of 64-bit integers."""

DRAWING = "drawing noise"
"""The stage that a long draw reports; the first report, at zero, is the estimate of the whole."""

_CHUNK = 16_384
_PILOT = 4_096
_GRID_BITS = 16
_GRID_SLACK = 3
_LARGEST_SCORE = 2**50


@dataclass(frozen=True, eq=False)
class Noisy:
    """Counts plus noise, how the noise was drawn, and whether it protects anyone."""

    values: Counts
    width: Sigma | Scale
    private: bool

    @property
    def mark(self) -> str:
        return "private" if self.private else "not private"


class NoiseSource(ABC):
    """Adds noise to integer counts and selects by noisy scores."""

    private: ClassVar[bool]
    """Whether what is drawn protects anyone."""

    @abstractmethod
    def discrete_gaussian(
        self, counts: ArrayLike, sigma: Sigma, progress: Progress | None = None
    ) -> Noisy:
        """counts + Z, Z independent with P(z) in proportion to exp(-z^2 / (2 sigma^2))."""

    @abstractmethod
    def discrete_laplace(
        self, counts: ArrayLike, scale: Scale, progress: Progress | None = None
    ) -> Noisy:
        """counts + Z, Z independent with P(z) in proportion to exp(-|z| / scale)."""

    @abstractmethod
    def select(self, scores: ArrayLike, sensitivity: Fraction, epsilon: Epsilon) -> int:
        """An index with P(i) in proportion to exp(epsilon score_i / (2 sensitivity))."""


class SecureNoise(NoiseSource):
    """OpenDP's exact samplers; all cores for large tables.

    OpenDP lets go of Python's lock while it samples, so threads fill the machine without copies.
    """

    private = True

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise NoiseError(f"workers must be at least one, got {workers}")
        self._workers = workers or os.cpu_count() or 1

    def discrete_gaussian(
        self, counts: ArrayLike, sigma: Sigma, progress: Progress | None = None
    ) -> Noisy:
        width = checked_width(require(sigma, Sigma, "Gaussian noise"))
        values = self._add(checked_counts(counts), lambda: _gaussian(width), progress)
        return Noisy(values, sigma, private=True)

    def discrete_laplace(
        self, counts: ArrayLike, scale: Scale, progress: Progress | None = None
    ) -> Noisy:
        width = checked_width(require(scale, Scale, "Laplace noise"))
        values = self._add(checked_counts(counts), lambda: _laplace(width), progress)
        return Noisy(values, scale, private=True)

    def select(self, scores: ArrayLike, sensitivity: Fraction, epsilon: Epsilon) -> int:
        """OpenDP's noisy max with Gumbel noise, on integer scores.

        Floats are put on a grid of sensitivity / 2^16 first. That moves a difference between neighbours
        by at most three grid steps: rounding (one), the division (a quarter), and an error of half a
        step in each score as given (one). Clipping never widens a difference.
        """
        values = checked_scores(scores)
        selection_scale(sensitivity, epsilon)  # refuses what cannot be calibrated
        if values.dtype.kind == "f":
            unit = float(sensitivity) / 2**_GRID_BITS
            values = np.clip(np.rint(values / unit), -_LARGEST_SCORE, _LARGEST_SCORE)
            sensitivity = Fraction(2**_GRID_BITS + _GRID_SLACK)
        width = checked_width(selection_scale(sensitivity, epsilon))
        selector = _selector(width, math.floor(sensitivity), float(epsilon.value))
        return int(_invoke(selector, values.astype(np.int64)))

    def _pilot(self, make: Callable[[], Any]) -> float:
        """Seconds per value with every worker busy."""
        zeros = np.zeros(_PILOT, dtype=np.int64)
        with ThreadPoolExecutor(self._workers) as pool:
            list(pool.map(lambda _: _invoke(make(), zeros[:8]), range(self._workers)))  # warm up
            start = time.perf_counter()
            list(pool.map(lambda _: _invoke(make(), zeros), range(self._workers)))
            return (time.perf_counter() - start) / (self._workers * _PILOT)

    def _add(self, counts: Counts, make: Callable[[], Any], progress: Progress | None) -> Counts:
        """Chunk by chunk into one output, so that memory is the input's size and a little."""
        flat = counts.reshape(-1)
        out = np.empty_like(flat)

        def fill(start: int) -> int:
            chunk = flat[start : start + _CHUNK]
            out[start : start + _CHUNK] = _invoke(make(), chunk)
            return chunk.size

        if progress is not None:
            progress(Step(DRAWING, 0, flat.size, self._pilot(make) * flat.size))
        began, done = time.perf_counter(), 0
        with ThreadPoolExecutor(self._workers) as pool:
            tasks = [pool.submit(fill, start) for start in range(0, flat.size, _CHUNK)]
            try:
                for task in as_completed(tasks):
                    done += task.result()
                    if progress is not None:
                        each = (time.perf_counter() - began) / done
                        progress(Step(DRAWING, done, flat.size, each * (flat.size - done)))
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        return out.reshape(counts.shape)


class SeededNoise(NoiseSource):
    """The same distributions from NumPy with a known seed: for experiments, never for a release."""

    private = False

    def __init__(self, *, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def discrete_gaussian(
        self, counts: ArrayLike, sigma: Sigma, progress: Progress | None = None
    ) -> Noisy:
        """Canonne, Kamath, Steinke (2020), Algorithm 3, in floating point and all cells at once."""
        exact = checked_counts(counts)
        s = checked_width(require(sigma, Sigma, "Gaussian noise"))
        t = math.floor(s) + 1
        noise = np.zeros(exact.size, dtype=np.int64)
        open_cells = np.arange(exact.size)
        while open_cells.size:
            y = self._two_sided(t, open_cells.size)
            keep = self._rng.random(y.size) < np.exp(-((np.abs(y) - s * s / t) ** 2) / (2 * s * s))
            noise[open_cells[keep]] = y[keep]
            open_cells = open_cells[~keep]
        return Noisy(exact + noise.reshape(exact.shape), sigma, private=False)

    def discrete_laplace(
        self, counts: ArrayLike, scale: Scale, progress: Progress | None = None
    ) -> Noisy:
        exact = checked_counts(counts)
        width = checked_width(require(scale, Scale, "Laplace noise"))
        noise = self._two_sided(width, exact.size).reshape(exact.shape)
        return Noisy(exact + noise, scale, private=False)

    def select(self, scores: ArrayLike, sensitivity: Fraction, epsilon: Epsilon) -> int:
        values = checked_scores(scores).astype(float)
        width = selection_scale(sensitivity, epsilon).value
        return int(np.argmax(values + self._rng.gumbel(scale=width, size=values.size)))

    def _two_sided(self, scale: float, size: int) -> Counts:
        """Discrete Laplace as the difference of two geometrics."""
        p = -math.expm1(-1 / scale)
        return self._rng.geometric(p, size) - self._rng.geometric(p, size)


# -- what may be given ---------------------------------------------------------------------------


def checked_counts(counts: ArrayLike) -> Counts:
    """Integer counts as int64; floating point is refused rather than rounded."""
    array = np.asarray(counts)
    if array.dtype.kind not in "iu" or array.dtype == np.uint64:
        raise NoiseError(
            f"noise is added to integer counts (up to int64), got {array.dtype}; "
            "count first, add noise, scale afterwards"
        )
    return np.ascontiguousarray(array, dtype=np.int64)


def checked_scores(scores: ArrayLike) -> NDArray[Any]:
    """A non-empty vector of finite scores, integers or floats."""
    array = np.asarray(scores)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iuf":
        raise NoiseError(
            "scores must be a vector of at least one number, "
            f"got shape {array.shape} of {array.dtype}"
        )
    if not np.isfinite(array).all():
        raise NoiseError("scores must be finite; leave out candidates that may not be selected")
    if array.dtype.kind == "u" and array.max() > np.iinfo(np.int64).max:
        raise NoiseError(
            f"integer scores must fit 64 bits with a sign, got {array.max()}; was a larger number taken from an unsigned one?"
        )
    return array


def checked_width(width: Noise) -> float:
    if width.value > WIDEST:
        raise NoiseError(
            f"{width.symbol} must be at most 2^50 for 64-bit counts, got {width.value:.6g}; "
            "spend more of the budget on this release"
        )
    return width.value


# -- OpenDP --------------------------------------------------------------------------------------


def _gaussian(sigma: float) -> Any:
    space = vector_domain(atom_domain(T="i64")), l2_distance(T="i64")
    made = make_gaussian(*space, scale=sigma)
    return _agreed(made, 1, 1 / (2 * sigma * sigma))


def _laplace(scale: float) -> Any:
    space = vector_domain(atom_domain(T="i64")), l1_distance(T="i64")
    return _agreed(make_laplace(*space, scale=scale), 1, 1 / scale)


@lru_cache(maxsize=64)
def _selector(width: float, change: int, epsilon: float) -> Any:
    """OpenDP draws Gumbel noise when asked for zCDP."""
    space = vector_domain(atom_domain(T="i64")), linf_distance(T="i64")
    made = make_noisy_max(*space, zero_concentrated_divergence(), scale=width)
    return _agreed(made, change, epsilon**2 / 8)


def _agreed(measurement: Any, change: int, bound: float) -> Any:
    """The measurement, once OpenDP's own privacy map agrees with the cost that is charged."""
    stated = measurement.map(change)
    if not stated <= bound * (1 + 1e-9):
        raise NoiseError(
            f"OpenDP states a privacy loss of {stated:.6g}, the charge is {bound:.6g}; "
            "this version of OpenDP cannot be used"
        )
    return measurement


def _invoke(measurement: Any, values: Counts) -> Any:
    try:
        return measurement(values)
    except OpenDPException as error:
        raise NoiseError(f"the noise sampler failed, nothing was released: {error}") from error
