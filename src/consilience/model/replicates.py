"""Replicates: what the errors of a model's answers are made of. Refits to the model's own answers under fresh noise, or runs of
the whole mechanism on rows of the model (`mechanisms/simulation.py`).

A replicate is kept as its tables on the model's largest cliques, as deviations from the model's own in half precision (a
standard error needs three digits), and its total. It answers what the model answers: what is in the model is read off
its tables, and the rest goes through the backbone, whose tables are first fitted to the replicate's. So noise in links
that an answer was inferred through is in its error; that nothing else links the attributes is assumed by every replicate alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, CliqueVector, Layout
from consilience.domain.moves import cells_of
from consilience.errors import ConsilienceError
from consilience.measurements import Measurements
from consilience.measurements.measurements import NOISES
from consilience.model.assumed import NOTHING, Assumed, assumed_of
from consilience.model.excess import Excess
from consilience.model.out_of_model import inferred
from consilience.progress import Progress, Step
from consilience.regions.pseudo_marginals import PseudoMarginals
from consilience.tree.adjusted import Adjusting

if TYPE_CHECKING:
    from consilience.model.model import Model

USUAL, FEWEST = 50, 8
"""Refits unless fewer are asked for or fit the budget, and how few still give an error."""
BUDGET = 16 * 2**20
"""Bytes that a model's replicates take at most, before they are packed."""
LOOSEST = 1e-4
"""Refits stop at this relative gap: the fit is then within a hundredth of the noise."""
INFERRED_WORK = 2e8
"""Cells that the replicates of an inferred answer may visit: about half a second. A limit on work, so that errors repeat."""

Kept = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Replicates:
    """`deviations[k]` is replicate k minus the model on the tables of `layout`, each table divided by its entry of `scales`."""

    layout: Layout
    deviations: Kept
    scales: Buffer
    totals: Buffer
    assumed: Assumed = NOTHING
    """How far inferred tables may be from the truth beyond the noise."""
    simulated: bool = False
    """Whether they are runs of the whole mechanism on rows of the model: these may have people in cells where the model has none,
    so that a deviation may pass zero."""
    _adjusted: list[Adjusting] = field(default_factory=list, init=False)
    """The last backbone's, if there was one: what it makes of a replicate does not depend on the question."""

    def __len__(self) -> int:
        return len(self.totals)

    def rounded(self) -> Replicates:
        """In the precision that files keep."""
        return replace(self, deviations=self.deviations.astype(np.float16))

    # -- answers -------------------------------------------------------------------------------------

    def tables(self, model: Model, own: Mapping[Clique, Buffer]) -> dict[Clique, Buffer]:
        """{clique: counts of every replicate, replicate after replicate}; fewer replicates where inferring takes long.

        own: the model's counts of each clique, axes in domain order.
        """
        inside = {c: self._read(model, c) for c in own if model.in_model(c)}
        out = {c: table for c, table in own.items() if c not in inside}
        return inside | (self._inferred(model, out) if out else {})

    def _read(self, model: Model, clique: Clique) -> Buffer:
        """Off the smallest table that holds the clique. Nothing mentions an attribute that is in none: it is uniform."""
        totals = self.totals.reshape(-1, *[1] * len(clique))
        home = self.layout.home(clique) if clique else None
        if home is None:
            return totals * model.known.table(clique)
        region = self.layout.cliques[home]
        lo, hi = self.layout.offsets[home : home + 2]
        moved = self.deviations[:, lo:hi].astype(np.float64) * self.scales[home]
        found = moved + model.known.table(region).reshape(-1)
        if not self.simulated:  # where it is the precision of files alone
            found = np.maximum(found, 0.0)
        axes = tuple(i + 1 for i, a in enumerate(region) if a not in clique)
        return totals * found.reshape(len(self), *model.domain.shape_of(region)).sum(axis=axes)

    def _inferred(self, model: Model, own: Mapping[Clique, Buffer]) -> dict[Clique, Buffer]:
        """As the model infers them: by maximum entropy from each replicate's tables, or through its own backbone."""
        told = {
            c: t for c, t in own.items() if model.mixture is not None and model.known.holds_pairs(c)
        }
        rest = {c: t for c, t in own.items() if c not in told}
        found = self._moved(model, told, None) if told else {}
        found |= self._moved(model, rest, self._adjusting(model)) if rest else {}
        for c in filter(self.assumed.covers, found):
            axes = model.domain.axes(c)
            found[c] += self.assumed.drawn(c, own[c], len(found[c]), axes)
            np.maximum(found[c], 0.0, out=found[c])
        return found

    def _adjusting(self, model: Model) -> Adjusting:
        """Backbones of replicates, kept from question to question."""
        if not self._adjusted or self._adjusted[0].backbone is not model.backbone:
            self._adjusted[:] = [Adjusting(model.backbone)]
        return self._adjusted[0]

    def _moved(
        self, model: Model, own: Mapping[Clique, Buffer], adjusting: Adjusting | None
    ) -> dict[Clique, Buffer]:
        """The model's own tables, moved by what each replicate makes of a question less what the model itself makes of it."""
        count = len(self)
        if adjusting is not None:
            # Not fewer for more cliques at once: the same question has the same error in whatever company.
            count = min(count, max(int(INFERRED_WORK / adjusting.work), FEWEST))
        found: dict[Clique, list[Buffer]] = {c: [] for c in own}
        first, *others = [self._through(model, adjusting, own, k) for k in range(-1, count)]
        for k, tables in enumerate(others):
            for clique, counts in own.items():
                share = counts / model.total + tables[clique] - first[clique]
                found[clique].append(self.totals[k] * np.maximum(share, 0.0))
        return {c: np.array(tables) for c, tables in found.items()}

    def _through(
        self, model: Model, adjusting: Adjusting | None, own: Iterable[Clique], k: int
    ) -> dict[Clique, Buffer]:
        """Distributions by replicate k, with its backbone or by maximum entropy; by the model itself for -1."""
        tau = _on(model, self.layout)
        moved = np.zeros_like(tau)
        if k >= 0:
            sizes = np.diff(self.layout.offsets)
            moved = self.deviations[k].astype(np.float64) * np.repeat(self.scales, sizes)
        known, change = (
            PseudoMarginals(model.graph, CliqueVector(self.layout, values), model.known.cliques)
            for values in (np.maximum(tau + moved, 0.0), moved)
        )
        if adjusting is None:
            listed = list(own)
            tables, _ = inferred(
                known, listed, "local", lambda: model.backbone, masks=model.masks, rough=True
            )
            return dict(zip(listed, tables, strict=True))
        backbone = adjusting.by(k, change.table) if k >= 0 else adjusting.backbone
        return {
            c: inferred(known, [c], "backbone", lambda: backbone, masks=model.masks, rough=True)[0][
                0
            ]
            for c in own
        }


# -- making them -----------------------------------------------------------------------------------


def affordable(model: Model, budget: int = BUDGET) -> int:
    """How many replicates of a model fit the bytes, from FEWEST to USUAL."""
    return min(USUAL, max(FEWEST, budget // (2 * max(1, _layout(model).cells))))


class Collector:
    """Deviations from the truth on the largest tables of a model, replicate after replicate, whoever makes these."""

    def __init__(self, model: Model, count: int) -> None:
        if count < 2:
            raise ConsilienceError(f"replicates must be at least 2, got {count}")
        if model.fit is None:
            raise ConsilienceError(
                "a bootstrap needs the estimator of the model, which is not known; make the model with reconstruct"
            )
        self.model, self.layout = model, _layout(model)
        self.own = _on(model, self.layout)
        self.fit = model.fit.coarser(LOOSEST)
        """The estimator as refits call it."""
        self.deviations = np.empty((count, self.layout.cells), np.float64)
        self.totals = np.empty(count)
        self.taken = 0

    def take(self, refit: Model, truth: Buffer, total: float) -> Buffer:
        """The next replicate. truth: the tables that the refit ought to have found, as distributions; returns those it found."""
        found = _on(refit, self.layout)
        self.deviations[self.taken] = found - truth
        self.totals[self.taken] = total
        self.taken += 1
        return found

    def replicates(self, more: Buffer | None = None, *, simulated: bool = False) -> Replicates:
        """All of them. more: what is added to their deviations."""
        moved = self.deviations if more is None else self.deviations + more
        offsets = self.layout.offsets
        largest = np.abs(moved).max(axis=0)
        tops = np.maximum.reduceat(largest, offsets[:-1]) if self.layout.cells else np.ones(0)
        scales = np.where(tops > 0, tops, 1.0)
        moved = moved / np.repeat(scales, np.diff(offsets))
        assumed = assumed_of(self.model, self.fit)
        return Replicates(self.layout, moved, scales, self.totals, assumed, simulated)


def replicates_of(
    model: Model, count: int, rng: np.random.Generator, progress: Progress
) -> Replicates:
    """Refit to the model's own answers under fresh noise of the same kind and scale."""
    collector = Collector(model, count)
    exact, own = _expected(model), collector.own
    # Without its state, so that a model that was loaded gives the same errors as the one that was saved.
    warm = replace(model, state=None)
    excess = None if model.mixture is None else Excess(model, collector.layout, own)
    known = model.total if model.total_known else None
    for k in range(count):
        drawn = _redrawn(model.measurements, exact, rng)
        warm = collector.fit(model.domain, drawn, known, warm=warm)
        found = collector.take(warm, own, warm.total)
        if excess is not None:
            excess.take(warm.total * found, drawn)
        progress(Step("refits", k + 1, count))
    return collector.replicates(None if excess is None else excess.drawn(rng))


def _layout(model: Model) -> Layout:
    return Layout(model.domain, model.known.cliques)


def _on(model: Model, layout: Layout) -> Buffer:
    """Its tables, as distributions; what it does not hold is inferred, all of it at once."""
    cliques = layout.cliques
    out = [c for c in cliques if not model.known.holds(c)]
    inferred_ones = dict(zip(out, model.marginals(out), strict=True)) if out else {}
    tables = [
        inferred_ones[c] / model.total if c in inferred_ones else model.known.table(c)
        for c in cliques
    ]
    return np.concatenate([t.reshape(-1) for t in tables]) if tables else np.zeros(0)


def _expected(model: Model) -> Buffer:
    """What the model says where something was measured, in counts."""
    measured, tau = model.measurements, model.tau
    found = np.empty(len(measured.values))
    region = tau.cliques.find(measured.cliques)
    own = np.flatnonzero(measured.whole & (region >= 0))
    counts = measured.cliques.sizes[own]
    there = cells_of(tau.layout.offsets[region[own]], counts)
    found[cells_of(measured.at[own], counts)] = model.total * tau.values[there]
    for i in np.flatnonzero(~measured.whole | (region < 0)).tolist():
        m = measured[i]
        table = model.marginal(m.clique).reshape(-1)
        found[measured.at[i] : measured.at[i + 1]] = m.query.apply(table)
    return found


def _redrawn(measured: Measurements, exact: Buffer, rng: np.random.Generator) -> Measurements:
    """The exact answers under fresh noise: one draw for each run of measurements with the same kind of noise."""
    scale = np.repeat(measured.stddevs, np.diff(measured.at))
    drawn = np.empty_like(exact)
    cuts = np.flatnonzero(np.diff(measured.noises)) + 1
    for lo, hi in pairwise([0, *cuts.tolist(), len(measured)]):
        part = slice(int(measured.at[lo]), int(measured.at[hi]))
        if NOISES[measured.noises[lo]] == "laplace":
            drawn[part] = rng.laplace(scale=scale[part] / sqrt(2))
        else:
            drawn[part] = rng.normal(scale=scale[part])
    return measured.replaced(exact + drawn, measured.stddevs)
