"""Refits: the model of a growing list of measurements, each fit started from the one before it.

Free of privacy cost: what comes in is noisy already. One more clique adds one table to the problem; every other
table keeps its place in the splitting solver's state, so a round costs a few iterations. Exact fits grow with the
list as well: the model of the round before says which cells can occur.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector, Domain
from consilience.inference import Model
from consilience.inference import Settings as ModelSettings
from consilience.inference.backbone import CELL_BYTES, Backbone, backbone_of
from consilience.inference.growing import MOST_CELLS, GrowingModel
from consilience.inference.impossible import emptied, held
from consilience.inference.noisy_fit import NoisyTables
from consilience.inference.out_of_model import inferred
from consilience.inference.reconstruct import model_of
from consilience.measurements import Measurement, SquaredLoss
from consilience.mechanisms.settings import Settings
from consilience.memory import parse_bytes
from consilience.regions.region_graph import RegionGraph
from consilience.solvers.feasible import polish_tables
from consilience.solvers.planner import build_graph
from consilience.solvers.solution import Solution
from consilience.solvers.splitting import SplittingState, splitting
from consilience.status import STOPPED_EARLY

ROUND_TOLERANCE = 1e-4
"""Relative gap of the fits between rounds, which only rank candidates; the last fit takes the caller's."""

BACKBONE_MEMORY = "32 MB"
"""For the backbone of a round, which is made as often as there are rounds."""

_BATCH_CELLS = 2_000_000
"""Answers alive at a time while candidates are scored."""


def local_where_auto(settings: Settings) -> Settings:
    """Rounds fit local tables; "auto" adds a backbone to what they say about other cliques (global where all of it fits)."""
    return replace(settings, consistency="local") if settings.consistency == "auto" else settings


@dataclass
class Refit:
    """Fits to more and more measurements of one table. Mutable: keeps the solver's state between calls.

    `exact` fits a distribution over the whole domain (inference/growing.py) instead of tables that agree locally, as long as
    every measurement is of a table itself; progress then sees (tables placed, tables) of a call.
    """

    domain: Domain
    total: float | None
    settings: Settings
    exact: bool = False
    progress: Callable[[int, int], None] | None = None
    _growing: GrowingModel | None = None
    _made: list[tuple[Model, Backbone]] = field(default_factory=list)
    _state: SplittingState | None = None

    def __call__(self, measurements: Sequence[Measurement], tolerance: float) -> Model:
        settings = replace(local_where_auto(self.settings), tolerance=tolerance)
        warm = settings.prior is None and settings.solver in ("auto", "splitting")
        if not warm or isinstance(settings.consistency, RegionGraph):
            return settings.reconstruct(self.domain, measurements, self.total, None)
        began = perf_counter()
        loss = SquaredLoss(self.domain, measurements, self.total)
        graph = build_graph(self.domain, loss.cliques, str(settings.consistency))
        asked = ModelSettings(
            "splitting", self.total is not None, None, tolerance, possible=settings.possible
        )
        grown = self._grown(loss, graph, began) if self.exact else None
        if grown is not None:
            solution, backbone = grown
            model = model_of(self.domain, loss, graph, solution, None, asked)
            self._made = [*self._made[-1:], (model, backbone)]
            return model
        possible = held(graph, settings.possible)
        solution = splitting(loss, graph, tolerance=tolerance, state=self._state, possible=possible)
        self._state = solution.state
        return model_of(self.domain, loss, graph, solution, None, asked)

    def backbone_of(self, model: Model) -> Backbone | None:
        """The exact model that a model of the last two calls was read off; None for one that was fitted locally."""
        return next((b for m, b in self._made if m is model), None)

    def _grown(
        self, loss: SquaredLoss, graph: RegionGraph, began: float
    ) -> tuple[Solution, Backbone] | None:
        """Tables of the exact model, or beside it, and that model; None where there is none."""
        part = loss.separable()
        if part.rest:
            return None
        if self._growing is None:
            cells = parse_bytes(self.settings.memory) // CELL_BYTES
            self._growing = GrowingModel(self.domain, min(cells, MOST_CELLS))
        grown, noisy = self._growing, NoisyTables(part.targets, part.weights)
        backbone = grown.take(
            [m.clique for m in loss.measurements if m.clique], noisy, self.progress
        )
        if backbone is None:
            return None
        roots = [graph.regions[i] for i in graph.roots]
        tables = CliqueVector.from_tables(self.domain, grown.tables(roots, noisy))
        tau, violation = polish_tables(graph, tables)
        value, _ = loss.bind(tau.layout).value_and_grad(tau.values)
        method = f"exact model of {len(grown.inside)} tables on possible cells"
        seconds = perf_counter() - began
        solution = Solution(tau, value, 0.0, violation, grown.steps, seconds, STOPPED_EARLY, method)
        return solution, backbone


# -- answers ---------------------------------------------------------------------------------------


@dataclass
class Answers:
    """What models say about any cliques, measured or not. Mutable: each backbone grows out of the one before it.

    `total` is the number of rows where that is public. With `backbone` False only overlaps with measured cliques count, as in
    the paper's Problem 4. `made` gives the backbone of a model that came with one.
    """

    domain: Domain
    total: float | None
    backbone: bool
    made: Callable[[Model], Backbone | None] = lambda model: None
    _latest: list[tuple[Model, Backbone]] = field(default_factory=list)

    def __call__(self, model: Model | None, cliques: Sequence[Clique]) -> Iterator[Buffer]:
        """Expected counts, in the order asked for. Before the first measurement a table is uniform, or empty where even its
        number of rows is not known.
        """
        for batch in _batches(self.domain, cliques):
            if model is None:
                rows = self.total or 0.0
                yield from (
                    np.full(self.domain.shape_of(c), rows / self.domain.size(c)) for c in batch
                )
            else:
                yield from self._of(model, batch)

    def _of(self, model: Model, cliques: Sequence[Clique]) -> list[Buffer]:
        """In the model: its own tables. Else pairs and, without a backbone, all others are moved to agree with it on overlaps.

        Larger tables are the backbone's as they are: agreement takes many steps where its zeros contradict the model's tables,
        and for ranking candidates it hardly matters.
        """
        known = model.known
        out = [c for c in cliques if not known.holds(c)]
        direct = [c for c in out if self.backbone and len(c) > 2]
        moved = [c for c in out if not (self.backbone and len(c) > 2)]
        method = "backbone" if self.backbone else "local"
        masks = model.masks
        found, _ = inferred(known, moved, method, lambda: self._backbone_of(model), None, masks)
        tables = dict(zip(moved, found, strict=True))
        for c in direct:
            tables[c] = emptied(known.domain, masks, c, self._backbone_of(model).marginal(c))
        return [model.total * (tables[c] if c in tables else known.table(c)) for c in cliques]

    def _backbone_of(self, model: Model) -> Backbone:
        for seen, found in self._latest:
            if seen is model:
                return found
        start = self._latest[-1][1] if self._latest else None
        found = self.made(model) or backbone_of(model.known, BACKBONE_MEMORY, start=start)
        self._latest = [*self._latest[-1:], (model, found)]
        return found


def _batches(domain: Domain, cliques: Sequence[Clique]) -> Iterator[Sequence[Clique]]:
    """Consecutive cliques, so many that their tables have about _BATCH_CELLS."""
    first, cells = 0, 0
    for i, clique in enumerate(cliques, 1):
        cells += domain.size(clique)
        if cells >= _BATCH_CELLS or i == len(cliques):
            yield cliques[first:i]
            first, cells = i, 0
