"""A fixed set of tables, each counted once and given noise of its own width.

What `Gaussian` and `Laplace` share: all but the law of the noise.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Clique, CliqueVector, Workload
from consilience.errors import ConsilienceError
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
from consilience.privacy import Ledger, Neighbours, NoiseSource, Progress, Scale, Sigma
from consilience.solvers.solution import Iteration

Width = Sigma | Scale

_LONG_DRAW = 50_000
"""Cells from which a draw reports its own progress; it starts with a pilot that costs a little."""


class Tables(Mechanism):
    """Settings of a mechanism that measures a fixed workload."""

    workload: Workload

    @property
    @abstractmethod
    def settings(self) -> Settings:
        """How the measurements are reconstructed."""


class CalibratedTables(Calibrated):
    """One noise width per clique of a fixed workload."""

    mechanism: Tables

    @property
    def workload(self) -> Workload:
        return self.mechanism.workload

    @property
    @abstractmethod
    def widths(self) -> Mapping[Clique, Width]:
        """The parameter of the noise in each table."""

    # -- known beforehand ------------------------------------------------------------------------

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

    # -- a call ----------------------------------------------------------------------------------

    def measure(
        self,
        data: Source,
        *,
        noise: NoiseSource | None = None,
        ledger: Ledger | None = None,
        progress: StepCallback | None = None,
    ) -> Release:
        """y_c = M_c x + z_c for every clique c, z_c discrete noise of its width."""
        check_source(data, self.workload.domain, self.budget.neighbours)
        source = check_call(self.cost, noise, ledger)
        counts = exact_counts(data, self.workload)
        if ledger is not None:
            ledger.reserve(self.cost, str(self))
        noisy = add_noise(source, counts, self.widths, progress)
        measurements = tuple(
            Measurement(clique, table, stddev=stddev(width), noise=_law(width))
            for (clique, table), width in zip(noisy.items(), self.widths.values(), strict=True)
        )
        public = self.budget.neighbours is Neighbours.REPLACE_ONE
        total = data.records if public else None
        return Release(self.workload.domain, measurements, total, self.cost, source.private)

    def reconstruct(self, release: Release, *, progress: StepCallback | None = None) -> Result:
        def report(iteration: Iteration) -> None:
            assert progress is not None
            progress(Step("reconstructing", iteration.number))

        model = self.mechanism.settings.reconstruct(
            release.domain,
            release.measurements,
            None if release.total is None else float(release.total),
            None if progress is None else report,
        )
        return Result(model, release)

    def __str__(self) -> str:
        values = sorted({width.value for width in self.widths.values()})
        symbol = next(iter(self.widths.values())).symbol
        noise = " to ".join(f"{v:.6g}" for v in (values[0], values[-1])[: len(values)])
        plural = "s" if len(self.workload) > 1 else ""
        tables = f"{len(self.workload)} table{plural}, {self.workload.cells:,} cells"
        return f"{type(self).__name__.removeprefix('Calibrated')}: {tables}, {symbol} {noise}"


def add_noise(
    source: NoiseSource,
    counts: CliqueVector,
    widths: Mapping[Clique, Width],
    progress: StepCallback | None,
) -> CliqueVector:
    """counts + noise. Tables of equal width are drawn together: fewer, longer draws."""
    exact = counts.values.astype(np.int64)
    noisy = np.empty_like(exact)
    offsets = counts.layout.offsets
    groups: dict[Width, list[slice]] = {}
    for i, clique in enumerate(counts.cliques):
        groups.setdefault(widths[clique], []).append(slice(offsets[i], offsets[i + 1]))
    done = 0
    for width, slices in groups.items():
        values = _draw(
            source, np.concatenate([exact[s] for s in slices]), width, done, exact.size, progress
        )
        done += values.size
        start = 0
        for s in slices:
            length = s.stop - s.start
            noisy[s] = values[start : start + length]
            start += length
    return CliqueVector(counts.layout, noisy.astype(np.float64))


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


def _law(width: Width) -> Literal["gaussian", "laplace"]:
    return "gaussian" if isinstance(width, Sigma) else "laplace"
