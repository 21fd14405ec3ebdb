"""Simulation: a mechanism run again as a whole, on rows drawn from the model that it released, whose tables are known.

    for each replicate: rows of the model; measure them with seeded noise, choices and all; reconstruct
    deviation = tables of the refit - exact tables of the rows

Refits to a model's own answers keep what was measured and with how much noise. Here what is chosen by noisy values, how far a
fit pulls and what that does to it are drawn anew. A simulation is given a result, all of which is public: it holds neither the
table nor a ledger, and its noise is seeded, which every ledger refuses. So it costs no privacy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.errors import ConsilienceError, MeasurementError
from consilience.model import Model
from consilience.model.replicates import LOOSEST, Collector
from consilience.privacy import SeededNoise
from consilience.progress import Progress, Step
from consilience.records import Dataset

if TYPE_CHECKING:
    from consilience.mechanisms.mechanism import Calibrated, Result

RUNS = 20
"""Replicates unless another number is asked for: each is a run of the mechanism and a fit."""


def simulated(
    ready: Calibrated[Any],
    result: Result,
    count: int,
    rng: np.random.Generator | int,
    progress: Progress,
) -> Model:
    """`Calibrated.simulated`."""
    model, neighbours = result.model, ready.budget.neighbours
    name = type(ready.mechanism).__name__
    if not model.measurements:
        raise MeasurementError(
            f"a simulation needs measurements with noise of a known width, {name} publishes choices instead; where errors are "
            "wanted, measure tables, with AIM or HDMM for example"
        )
    if model.domain != ready.domain or result.cost != ready.cost:
        raise ConsilienceError(
            f"the result must be of the mechanism that is simulated, {ready}, got one of another domain or cost; call simulated "
            "on the calibrated mechanism that made it"
        )
    unit = None if neighbours.unit is None else (neighbours.unit, neighbours.rows)
    number = max(1, round(model.total))
    fit = ready.fit.coarser(LOOSEST)
    collector = Collector(model, count)
    # Drawn at once, so that no replicate depends on how much the ones before it drew.
    seeds = np.random.default_rng(rng).integers(2**63, size=(count, 2)).tolist()
    for k, (of_rows, of_noise) in enumerate(seeds):
        drawn = model.sample(number, of_rows)
        rows = Dataset(drawn.codes, drawn.domain, unit_rows=unit)
        noisy = ready.measure(rows, noise=SeededNoise(seed=of_noise))
        total = None if noisy.total is None else float(noisy.total)
        refit = fit(noisy.domain, ready.evidence(noisy), total)
        exact = rows.marginals(collector.layout.cliques).values / number
        collector.take(refit, exact, model.total + refit.total - number)
        progress(Step("simulated runs", k + 1, count))
    return replace(model, replicates=collector.replicates(simulated=True).rounded())
