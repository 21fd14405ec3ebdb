"""Whole numbers: a model whose tables are integers that agree with each other, by one of two roads.

One table holds everything: it is rounded with its sums (solvers/rounding.py). Several tables that overlap: rounding each alone
would break their agreement, and whether integers that agree exist next to them is a hard question; but the tables of rows agree,
so as many rows as there are records are drawn, moved towards the tables as always (sampling.py), and counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector
from consilience.errors import ConsilienceError
from consilience.measurements.controls import bound_controls
from consilience.model.sampling import sample_rows
from consilience.progress import Progress, Step
from consilience.records import Dataset
from consilience.solvers.rounding import round_table, sums_over

if TYPE_CHECKING:
    from consilience.model.model import Model

MOST_WANTED = 32
"""Measured tables whose sums are tried for a place beside the levels'."""


@dataclass(frozen=True, eq=False)
class Rounding:
    """How far whole tables are from the fitted ones, in counts.

    tables: {table: (L1 distance, largest difference of a cell)}, of the rounded table and the sums that were kept beside it,
    or of the model's tables. bound: no whole numbers are nearer than this in L1 over all of them; `nearest` where the distance
    itself is the least. rows: the records that the tables were counted from, where they were.
    """

    method: str
    tables: Mapping[Clique, tuple[float, float]]
    bound: float
    nearest: bool = False
    rows: Dataset | None = None

    @property
    def distance(self) -> float:
        """L1 over all tables."""
        return sum(d for d, _ in self.tables.values())

    @property
    def largest(self) -> float:
        """The largest difference of a cell."""
        return max((m for _, m in self.tables.values()), default=0.0)

    def __str__(self) -> str:
        known = "the least there is" if self.nearest else f"none is nearer than {self.bound:,.6g}"
        lines = [
            f"whole numbers by {self.method}: L1 distance {self.distance:,.6g} over {len(self.tables):,} tables ({known}), "
            f"largest difference of a cell {self.largest:.3g}"
        ]
        if len(self.tables) <= 20:
            lines += [
                f"  {' x '.join(c) or 'total'}: {d:,.6g}, largest {m:.3g}"
                for c, (d, m) in self.tables.items()
            ]
        return "\n".join(lines)


def whole(model: Model, progress: Progress) -> Model:
    """`Model.whole`."""
    progress(Step("whole numbers", 0))
    if len(model.graph.root_cliques) == 1:
        return _rounded(model)
    return _of_rows(model, progress)


def _rounded(model: Model) -> Model:
    domain, region = model.domain, model.graph.root_cliques[0]
    controls = bound_controls(domain, model.controls)
    outside = next(
        (c.named for c in controls if not set(domain.clique(c.named)) <= set(region)), None
    )
    if outside is not None:
        raise ConsilienceError(
            f"whole numbers need every control in the model's table over {region}, got one on {outside}; fit the model with it"
        )
    table = model.total * model.tau[region]
    measured = sorted(dict.fromkeys(_named(model)), key=lambda k: -domain.size(k))
    found = round_table(domain, region, table, controls, measured[:MOST_WANTED])
    kept = (region, *found.sums, ())
    total = int(found.table.sum())
    tau = CliqueVector(model.graph.layout)
    for r in model.graph.regions:
        tau[r][...] = sums_over(domain, region, found.table, r) / total
    far = {
        k: _distance(sums_over(domain, region, table, k), sums_over(domain, region, found.table, k))
        for k in dict.fromkeys(kept)
    }
    least = sum(_to_whole(sums_over(domain, region, table, k)) for k in far)
    made = Rounding("controlled rounding", far, least, found.nearest)
    return _with(model, tau, total, made)


def _of_rows(model: Model, progress: Progress) -> Model:
    total = round(_total(model))
    if total < 1:
        raise ConsilienceError(
            f"whole numbers need a total of at least one record, got {model.total:g}"
        )
    rows = sample_rows(model, total, 0, progress=progress).data
    counts = rows.marginals(model.graph.regions)
    tau = CliqueVector(model.graph.layout, counts.values / total)
    tables = {c: model.total * model.known.table(c) for c in model.known.cliques}
    far = {c: _distance(t, np.asarray(rows.marginal(c))) for c, t in tables.items()}
    least = sum(map(_to_whole, tables.values()))
    return _with(model, tau, total, Rounding("rows", far, least, rows=rows))


def _total(model: Model) -> float:
    controls = bound_controls(model.domain, model.controls)
    return next((float(c.low.sum()) for c in controls if c.exact), model.total)


def _with(model: Model, tau: CliqueVector, total: int, made: Rounding) -> Model:
    """The model with other tables; what was fitted to the old ones for later answers is made again when it is needed."""
    return replace(
        model, tau=tau, total=float(total), rounding=made, tree=None, kept=None, state=None
    )


def _named(model: Model) -> list[Clique]:
    """What was measured, levels under their own names."""
    found = []
    for i, clique in enumerate(model.measurements.cliques):
        levels = getattr(model.measurements.queries.get(i), "levels", (None,) * len(clique))
        found.append(tuple(a if v is None else v.name for a, v in zip(clique, levels, strict=True)))
    return found


def _distance(fitted: Buffer, made: Buffer) -> tuple[float, float]:
    off = np.abs(fitted - made)
    return float(off.sum()), float(off.max())


def _to_whole(table: Buffer) -> float:
    return float(np.abs(table - np.rint(table)).sum())
