"""Rows of a model: exact along a junction tree, or from the backbone and then moved towards every pseudo-marginal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlog1py, xlogy

from consilience.domain import Buffer, Clique, CliqueVector
from consilience.errors import ConsilienceError
from consilience.inference.backbone import DEFAULT_MEMORY, build_backbone
from consilience.inference.sampling_moves import RowMoves, widths
from consilience.inference.sampling_tree import RowCodes, tree_rows
from consilience.records import Dataset
from consilience.regions.junction_tree import JunctionTree
from consilience.solvers.structural_zeros import masks_of

if TYPE_CHECKING:
    from consilience.inference.model import Model

SWEEPS = 8
"""Passes over rows and attributes when rows are moved and the caller does not say how many."""
AGREE = 1e-6
"""Tables that differ by less than this (L1) on their separator are one distribution."""

Progress = Callable[[int, int], None]
Rng = np.random.Generator | int | None


@dataclass(frozen=True, eq=False)
class SampledRows:
    """Rows and how far their tables are from the model's: mean total variation over its maximal regions.

    `exact`: each row is distributed as the model, and none was moved. `distance` is what was reached, `before` what it was
    before rows were moved, `independent` what as many independent rows would have on average. `moved` is the share of
    codes that were changed; `replaced` counts rows that no move could make possible, each now a copy of a possible one.
    """

    data: Dataset
    exact: bool
    distance: float
    worst: float
    worst_region: Clique
    before: float
    independent: float
    moved: float
    sweeps: int
    replaced: int

    def __str__(self) -> str:
        how = "exactly from the model" if self.exact else "from the backbone"
        lines = [
            f"{len(self.data):,} rows drawn {how}",
            f"mean total variation to the model's tables {self.distance:.2g} "
            f"(independent rows: {self.independent:.2g}), worst {self.worst:.2g} at {self.worst_region}",
        ]
        if self.sweeps:
            lines.append(
                f"{self.sweeps} sweeps moved {self.moved:.1%} of the codes; the distance was {self.before:.2g} before"
            )
        if self.replaced:
            lines.append(f"{self.replaced:,} impossible rows replaced by copies of possible ones")
        return "\n".join(lines)


def sample_rows(
    model: Model,
    n: int,
    rng: Rng = None,
    *,
    sweeps: int | None = None,
    memory: str | int | float = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> SampledRows:
    """n rows of a model, and the distance that is left. `Model.sample` says what the arguments mean."""
    n = _count("n, the number of rows,", n)
    generator = np.random.default_rng(rng)
    own = _own_tree(model)
    if own is None:
        backbone = build_backbone(model, memory)
        tree, beliefs = backbone.tree, backbone.beliefs
    else:
        tree, beliefs = own
    default = SWEEPS if own is None else 0
    asked = default if sweeps is None else _count("sweeps", sweeps)
    possible = model.settings.possible if model.settings is not None else {}
    moves = RowMoves(model.tau, masks_of(model.graph, possible) if possible else None)
    step = _Steps(len(tree.cliques) + asked * len(moves.phases), progress)
    codes = tree_rows(tree, beliefs, n, generator, step)
    drawn = codes.copy() if asked else codes
    before = moves.counts(codes)
    for k, width in enumerate(widths(n, asked)):
        moves.sweep(codes, width, step, part=k)
    replaced = _replace_impossible(moves, codes, generator)
    moved = float((codes != drawn).mean()) if asked and n else 0.0
    if asked:
        # Rows that come first were moved first; a shuffle makes any part of the rows a sample like any other.
        codes = codes[generator.permutation(n)]
    data = Dataset(codes, model.domain)
    return _report(model, data, own is not None and not asked, before, moved, asked, replaced)


def _report(
    model: Model,
    data: Dataset,
    exact: bool,
    before: Buffer,
    moved: float,
    sweeps: int,
    replaced: int,
) -> SampledRows:
    roots, n = model.graph.roots, len(data)
    regions = [model.graph.regions[i] for i in roots]
    after = data.marginals(model.graph.regions).values
    layout, p = model.tau.layout, model.tau.values
    if n == 0:
        nan = float("nan")
        return SampledRows(data, exact, nan, nan, (), nan, nan, 0.0, sweeps, 0)
    lost, had = (_by_region(layout.offsets, np.abs(c / n - p))[roots] / 2 for c in (after, before))
    floor = _by_region(layout.offsets, independent_deviation(n, p))[roots] / (2 * n)
    worst = int(lost.argmax())
    return SampledRows(
        data, exact, float(lost.mean()), float(lost[worst]), regions[worst], float(had.mean()),
        float(floor.mean()), moved, sweeps, replaced,
    )  # fmt: skip


def independent_deviation(n: int, p: Buffer) -> Buffer:
    """E|X - n p| of a binomial X: 2 (m + 1) C(n, m + 1) p^(m + 1) (1 - p)^(n - m) with m = floor(n p) (De Moivre)."""
    q = np.clip(p, 0.0, 1.0)
    m = np.minimum(np.floor(n * q), n - 1)
    ways = gammaln(n + 1) - gammaln(m + 1) - gammaln(n - m)
    return 2.0 * np.exp(ways + xlogy(m + 1, q) + xlog1py(n - m, -q))


def _own_tree(model: Model) -> tuple[JunctionTree, CliqueVector] | None:
    """The model's tables as one distribution along a junction tree, where they are one: every clique in model, all agreeing."""
    domain, graph = model.domain, model.graph
    tree = JunctionTree.of(domain, [graph.regions[i] for i in graph.roots])
    if any(len(c) > 1 and not model.in_model(c) for c in tree.cliques):
        return None
    tables = {
        c: model.tau.project(c)
        if model.in_model(c)
        else np.full(domain.shape_of(c), 1.0 / domain.size(c))
        for c in tree.cliques
    }
    for (i, j), separator in zip(tree.edges, tree.separators, strict=True):
        one, other = (_down(tables[tree.cliques[k]], tree.cliques[k], separator) for k in (i, j))
        if np.abs(one - other).sum() > AGREE:
            return None
    return tree, CliqueVector.from_tables(domain, tables)


def _replace_impossible(moves: RowMoves, codes: RowCodes, rng: np.random.Generator) -> int:
    """Rows in an impossible cell become copies of possible rows; how many there were."""
    bad = moves.impossible_rows(codes)
    if not bad.any():
        return 0
    good = np.flatnonzero(~bad)
    if not good.size:
        raise ConsilienceError(
            f"some drawn row must be possible, none of {len(codes)} is; "
            "draw more rows, or measure cliques that tie the impossible cells together"
        )
    codes[bad] = codes[rng.choice(good, int(bad.sum()))]
    return int(bad.sum())


def _down(table: Buffer, clique: Clique, kept: Clique) -> Buffer:
    return table.sum(axis=tuple(i for i, a in enumerate(clique) if a not in kept))


def _by_region(offsets: NDArray[np.int64], cells: Buffer) -> Buffer:
    return np.add.reduceat(cells, offsets[:-1])


def _count(what: str, given: int) -> int:
    try:
        value = -1 if isinstance(given, bool) else index(given)
    except TypeError:
        value = -1
    if value < 0:
        raise ConsilienceError(f"{what} must be a whole number from 0 on, got {given!r}")
    return value


class _Steps:
    """Counts steps for a progress callback that sees (done, all)."""

    def __init__(self, steps: int, progress: Progress | None) -> None:
        self.done, self.steps, self.progress = 0, steps, progress

    def __call__(self) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.steps)
