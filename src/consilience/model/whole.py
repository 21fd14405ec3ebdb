"""Whole numbers: a model whose tables are integers that agree with each other, by one of two roads.

One measured table holds all others (or tables share no attribute): it is rounded with all its sums (solvers/rounding.py).
Tables overlap: rounding each alone would break their agreement, and whether integers that agree exist next to all of them is a
hard question; but the tables of rows agree, so as many rows as there are records are drawn, moved towards the tables as always
(sampling.py), and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector
from consilience.errors import ConsilienceError
from consilience.measurements.controls import BoundControl, bound_controls
from consilience.model.sampling import sample_rows
from consilience.progress import Progress, Step
from consilience.records import Dataset
from consilience.solvers.rounding import round_table, sums_over, whole_total

if TYPE_CHECKING:
    from consilience.model.model import Model

SWEEPS = 60
"""More than rows usually get: these are published, and come nearer by each (docs/whole-numbers.md)."""
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
    controls = bound_controls(model.domain, model.controls)
    return _rounded(model, controls) if _apart(model) else _of_rows(model, controls, progress)


def _apart(model: Model) -> bool:
    """Whether one measured table holds every other that it shares an attribute with."""
    roots = model.graph.root_cliques
    disjoint = sum(map(len, roots)) == len({a for r in roots for a in r})
    return disjoint and all(len(r) == 1 or model.known.holds(r) for r in roots)


def _rounded(model: Model, controls: Sequence[BoundControl]) -> Model:
    """Each table by itself: no two share an attribute."""
    domain, total = model.domain, whole_total(controls, model.total)
    measured = sorted(dict.fromkeys(_named(model)), key=lambda k: -domain.size(k))
    tau = CliqueVector(model.graph.layout)
    far: dict[Clique, tuple[float, float]] = {}
    least, nearest, outside = 0.0, True, set(range(len(controls)))
    records = np.array(float(total))
    every = [BoundControl((), records, records)] if controls else []
    for root in model.graph.root_cliques:
        inside = [i for i, c in enumerate(controls) if set(domain.clique(c.named)) <= set(root)]
        outside -= set(inside)
        table = model.total * model.tau[root]
        wanted = [k for k in measured if set(domain.clique(k)) <= set(root)]
        held = [*(controls[i] for i in inside), *every]
        found = round_table(domain, root, table, held, wanted[:MOST_WANTED])
        for r in model.graph.regions:
            if set(r) <= set(root):
                tau[r][...] = sums_over(domain, root, found.table, r) / total
        for k in dict.fromkeys((root, *found.sums, ())):
            fitted = sums_over(domain, root, table, k)
            far[k] = _distance(fitted, sums_over(domain, root, found.table, k))
            least += _to_whole(fitted)
        nearest = nearest and found.nearest
    if outside:
        raise ConsilienceError(
            f"whole numbers need every control inside a table of the model, got one on {controls[min(outside)].named}; fit the "
            "model with it"
        )
    return _with(model, tau, total, Rounding("controlled rounding", far, least, nearest))


def _of_rows(model: Model, controls: Sequence[BoundControl], progress: Progress) -> Model:
    total = whole_total(controls, model.total)
    # Rows of one distribution are moved too: it is the measured tables that shall be near, not every cell of their joint.
    rows = sample_rows(model, total, 0, sweeps=SWEEPS, progress=progress).data
    counts = rows.marginals(model.graph.regions)
    tau = CliqueVector(model.graph.layout, counts.values / total)
    tables = {c: model.total * model.known.table(c) for c in model.known.cliques}
    far = {c: _distance(t, np.asarray(rows.marginal(c))) for c, t in tables.items()}
    least = sum(map(_to_whole, tables.values()))
    return _with(model, tau, total, Rounding("rows", far, least, rows=rows))


def _with(model: Model, tau: CliqueVector, total: int, made: Rounding) -> Model:
    """The model with other tables. Replicates and the backbone stay: errors, and other numbers of rows, are the fit's."""
    return replace(model, tau=tau, total=float(total), rounding=made, state=None)


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
