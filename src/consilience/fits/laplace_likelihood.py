"""LaplaceLikelihood: the exact likelihood of Laplace noise in place of least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consilience.fits.graph_fit import (
    SplittingFit,
    check_iterations,
    check_tolerance,
)
from consilience.regions.region_graph import RegionGraph


@dataclass(frozen=True, eq=False, repr=False)
class LaplaceLikelihood(SplittingFit):
    """Minimise sqrt(2) |table - measurement| / stddev over consistent tables: soft thresholds instead of squares.

    The arguments mean what they mean for `LeastSquares`; "auto" is local consistency. A table inside another, or measured again,
    counts as one more term.
    """

    absolute: ClassVar[bool] = True
    queries: ClassVar[bool] = False
    why: ClassVar[str] = "its thresholds are those of measured cells"

    consistency: str | RegionGraph = "auto"
    memory: str | int | float = "2 GB"
    tolerance: float = 1e-6
    iterations: int | None = None

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)
        check_iterations(self.iterations)
