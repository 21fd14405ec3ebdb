"""A fixed list of noisy queries, each on one counted table: what every mechanism that does not adapt shares.

A `Part` is one of them: y = (A x + z) / unit with A an integer matrix, x the counts of a clique and z discrete
noise of the part's width. `Gaussian` and `Laplace` have one part per clique of the workload, the table itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Clique, Domain, Workload
from consilience.errors import CapacityError, ConsilienceError, DataError
from consilience.measurements import Measurement
from consilience.mechanisms.laws import mean_absolute, stddev
from consilience.mechanisms.mechanism import (
    Calibrated,
    Mechanism,
    Release,
    Result,
    Step,
    StepCallback,
    check_call,
)
from consilience.mechanisms.settings import Settings
from consilience.mechanisms.source import Source, check_source, exact_counts
from consilience.mechanisms.strategies_queries import CELLS, IntegerQuery
from consilience.memory import parse_bytes, show_bytes
from consilience.privacy import Cost, Ledger, Neighbours, NoiseSource, Progress, Scale, Sigma
from consilience.progress import Step as Seen

Width = Sigma | Scale

_LONG_DRAW = 50_000
"""Cells from which a draw reports its own progress; it starts with a pilot that costs a little."""
_BYTES_PER_VALUE = 40
_LARGEST = 2**62


@dataclass(frozen=True, eq=False)
class Part:
    """One noisy query: the clique whose table is counted, the integer query on it, and the width of the noise."""

    clique: Clique
    width: Width
    query: IntegerQuery = CELLS

    @property
    def stddev(self) -> float:
        """Standard deviation of each answer, in counts."""
        return stddev(self.width) / self.query.unit

    def cost(self, neighbours: Neighbours) -> Cost:
        change = self.query.sensitivity(neighbours)
        if isinstance(self.width, Sigma):
            return Cost.gaussian(change, self.width)
        return Cost.laplace(change, self.width)

    def measurement(self, noisy: NDArray[np.int64]) -> Measurement:
        law: Literal["gaussian", "laplace"] = (
            "gaussian" if isinstance(self.width, Sigma) else "laplace"
        )
        values = noisy / self.query.unit
        return Measurement(
            self.clique, values, stddev=self.stddev, noise=law, query=self.query.query
        )


class Tables(Mechanism):
    """Settings of a mechanism that measures fixed queries for a fixed workload."""

    workload: Workload

    @property
    @abstractmethod
    def settings(self) -> Settings:
        """How the measurements are reconstructed."""


class CalibratedParts(Calibrated):
    """Parts with their noise fixed, and the order of a call around them."""

    mechanism: Tables
    parts: Sequence[Part]
    """What is measured."""

    @property
    def workload(self) -> Workload:
        return self.mechanism.workload

    def measure(
        self,
        data: Source,
        *,
        noise: NoiseSource | None = None,
        ledger: Ledger | None = None,
        progress: StepCallback | None = None,
    ) -> Release:
        """y = (A x + z) / unit for every part, z discrete noise of its width."""
        check_source(data, self.workload.domain, self.budget.neighbours)
        source = check_call(self.cost, noise, ledger)
        parts = self.parts
        _check_range(parts, data.records)
        counts = exact_counts(data, dict.fromkeys(part.clique for part in parts))
        exact = [part.query.exact(counts[part.clique].astype(np.int64)) for part in parts]
        if ledger is not None:
            ledger.reserve(self.cost, str(self))
        noisy = add_noise(source, exact, [part.width for part in parts], progress)
        measurements = tuple(
            part.measurement(values) for part, values in zip(parts, noisy, strict=True)
        )
        public = self.budget.neighbours is Neighbours.REPLACE_ONE
        total = data.records if public else None
        return Release(self.workload.domain, measurements, total, self.cost, source.private)

    def reconstruct(self, release: Release, *, progress: StepCallback | None = None) -> Result:
        def report(seen: Seen) -> None:
            assert progress is not None
            progress(Step("reconstructing", seen.done, seen.total))

        model = self.mechanism.settings.reconstruct(
            release.domain,
            self.evidence(release),
            None if release.total is None else float(release.total),
            None if progress is None else report,
        )
        return Result(model, release)

    def evidence(self, release: Release) -> Iterable[Measurement]:
        """The measurements as the reconstruction takes them."""
        return release.measurements


class CalibratedTables(CalibratedParts):
    """One noise width per clique of a fixed workload."""

    @property
    @abstractmethod
    def widths(self) -> Mapping[Clique, Width]:
        """The parameter of the noise in each table."""

    @property
    def parts(self) -> list[Part]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return [Part(clique, width) for clique, width in self.widths.items()]

    @property
    def expected_rmse(self) -> dict[Clique, float]:
        """Root mean squared difference per cell of each noisy table from the truth: its stddev."""
        return {clique: stddev(width) for clique, width in self.widths.items()}

    @property
    def expected_l1(self) -> dict[Clique, float]:
        """Expected L1 distance, in counts, of each noisy table from the truth."""
        size = self.workload.domain.size
        return {c: size(c) * mean_absolute(width) for c, width in self.widths.items()}

    def expected_total_variation(self, records: float) -> dict[Clique, float]:
        """Half the expected L1 distance of each noisy table, as a share of so many records."""
        if not 0 < records < float("inf"):
            raise ConsilienceError(f"records must be positive and finite, got {records!r}")
        return {c: l1 / (2 * records) for c, l1 in self.expected_l1.items()}

    def __str__(self) -> str:
        values = sorted({width.value for width in self.widths.values()})
        symbol = next(iter(self.widths.values())).symbol
        noise = " to ".join(f"{v:.6g}" for v in (values[0], values[-1])[: len(values)])
        plural = "s" if len(self.workload) > 1 else ""
        tables = f"{len(self.workload)} table{plural}, {self.workload.cells:,} cells"
        return f"{type(self).__name__.removeprefix('Calibrated')}: {tables}, {symbol} {noise}"


# -- what is refused before anything is spent ------------------------------------------------------


def check_parts_fit(
    domain: Domain, cliques: Iterable[Clique], memory: str | int | float, what: str
) -> None:
    """The tables that are counted, and the noise in them, must fit the memory allowed."""
    cells = sum(domain.size(c) for c in cliques)
    need, budget = _BYTES_PER_VALUE * cells, parse_bytes(memory)
    if need > budget:
        raise CapacityError(
            f"{what} must fit the memory budget of {show_bytes(budget)}, {cells:,} cells need about "
            f"{show_bytes(need)}; choose smaller cliques or raise memory=",
            need,
            budget,
        )


def _check_range(parts: Iterable[Part], records: int) -> None:
    peak = max(part.query.peak for part in parts)
    if peak * records > _LARGEST:
        raise DataError(
            f"answers must fit 64-bit integers: entries up to {peak:,} allow {_LARGEST // peak:,} rows, got "
            f"{records:,}; ask for fewer ordered attributes together; nothing was spent"
        )


# -- drawing ---------------------------------------------------------------------------------------


def add_noise(
    source: NoiseSource,
    exact: Sequence[NDArray[np.int64]],
    widths: Sequence[Width],
    progress: StepCallback | None,
) -> list[NDArray[np.int64]]:
    """Each array plus noise of its width. Arrays of equal width are drawn together: fewer, longer draws."""
    noisy: list[NDArray[np.int64]] = list(exact)
    total = sum(x.size for x in exact)
    groups: dict[Width, list[int]] = {}
    for i, width in enumerate(widths):
        groups.setdefault(width, []).append(i)
    done = 0
    for width, members in groups.items():
        together = np.concatenate([exact[i].ravel() for i in members])
        values = _draw(source, together, width, done, total, progress)
        done += values.size
        cuts = np.cumsum([exact[i].size for i in members])[:-1]
        for i, part in zip(members, np.split(values, cuts), strict=True):
            noisy[i] = part.reshape(exact[i].shape)
    return noisy


def _draw(
    source: NoiseSource,
    exact: NDArray[np.int64],
    width: Width,
    done: int,
    total: int,
    progress: StepCallback | None,
) -> NDArray[np.int64]:
    """One group of cells plus noise; `done` of `total` cells came before."""

    def report(p: Progress) -> None:
        assert progress is not None
        pace = p.seconds_left / max(1, p.total - p.done)
        left = pace * (total - done - p.done)
        progress(Step("drawing noise", done + p.done, total, left))

    heard: Callable[[Progress], None] | None = (
        report if progress is not None and exact.size >= _LONG_DRAW else None
    )
    if isinstance(width, Sigma):
        values = source.discrete_gaussian(exact, width, heard).values
    else:
        values = source.discrete_laplace(exact, width, heard).values
    if progress is not None and heard is None:
        progress(Step("drawing noise", done + exact.size, total))
    return values
