"""A toy estimator, written by CONTRIBUTING.md alone: least squares, mixed with the uniform table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar

import consilience as cs
from consilience.fits import GraphFit
from consilience.status import not_certified


@dataclass(frozen=True, eq=False, repr=False)
class Flattened(GraphFit):
    """(1 - share) * least squares + share * the uniform distribution: consistent, as both are."""

    queries: ClassVar[bool] = False
    why: ClassVar[str] = "it is a toy"

    share: float = 0.1
    consistency: str | cs.RegionGraph = "local"
    memory: str | int | float = "2 GB"
    tolerance: float = 1e-6

    def coarser(self, tolerance: float) -> Flattened:
        return replace(self, tolerance=max(self.tolerance, tolerance))

    def solve(self, loss, graph, warm, progress) -> cs.Solution:
        found = cs.splitting(loss, graph, tolerance=self.tolerance, progress=progress)
        uniform = cs.CliqueVector.uniform(loss.domain, found.tau.cliques)
        tau = found.tau * (1 - self.share) + uniform * self.share
        objective, _ = loss.bind(tau.layout).value_and_grad(tau.values)
        return replace(
            found,
            tau=tau,
            objective=objective,
            bound=-inf,
            status=not_certified("a mixture"),
            method="flattened least squares",
            state=None,
        )
