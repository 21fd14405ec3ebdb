"""Rows of a model: exact along a junction tree, or from the backbone and then moved towards every pseudo-marginal.

Rows move one code of one row at a time, only where the tables' total distance falls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from operator import index
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlog1py, xlogy

from consilience.domain import Buffer, Clique, CliqueVector, Layout
from consilience.errors import ConsilienceError
from consilience.kernels.rows import IMPOSSIBLE, accept, lay_back, lay_out, propose
from consilience.kernels.threads import spread
from consilience.measurements.controls import bound_controls
from consilience.model.controlled_rows import keep_controls
from consilience.model.impossible import held, mask_on
from consilience.progress import Progress, Step, quiet
from consilience.records import Dataset
from consilience.regions.junction_tree import JunctionTree
from consilience.regions.pseudo_marginals import PseudoMarginals
from consilience.solvers.feasible import masks_of
from consilience.tree.rows import RowCodes, fit_rows, tree_rows

if TYPE_CHECKING:
    from consilience.model.model import Model


BLOCK = 1 << 13
"""Rows looked at before the moves found for them are made."""
WHOLE = 2
"""Sweeps that visit all rows however many there are; most codes that move do so in these."""
VISITED = 1 << 18
"""Rows that a later sweep visits at least, in turn: little is left to be moved, and any rows can move it."""
WIDEST = 0.01
"""Where sweeps begin: deviations up to this share of the rows are told apart."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Phase:
    """The tables that hold one attribute, as index arrays; their meaning is in `kernels/rows.py`."""

    attribute: int
    size: int
    at: Ints
    left: Ints
    right: Ints
    to: Ints
    least_at: Ints
    ptr: Ints
    other: Ints
    stride: Ints

    @classmethod
    def of(cls, layout: Layout, attribute: int) -> Phase | None:
        """None where no table holds the attribute, or it has one value: nothing can move."""
        domain = layout.domain
        name, size = domain.attributes[attribute], domain.shape[attribute]
        holding = [i for i, c in enumerate(layout.cliques) if name in c]
        if not holding or size == 1:
            return None
        left, right, other, stride, ptr = [], [], [], [], [0]
        for i in holding:
            clique, shape = layout.cliques[i], layout.shapes[i]
            k = clique.index(name)
            left.append(prod(shape[:k]))
            right.append(prod(shape[k + 1 :]))
            rest = clique[:k] + clique[k + 1 :]
            sizes = shape[:k] + shape[k + 1 :]
            other += [domain.position(a) for a in rest]
            stride += [prod(sizes[j + 1 :]) for j in range(len(rest))]
            ptr.append(len(other))
        stretches = np.multiply(left, right)
        least_at = np.concatenate([[0], np.cumsum(stretches)])
        arrays = (
            layout.offsets[holding], left, right, least_at[:-1] * size, least_at, ptr, other, stride,
        )  # fmt: skip
        return cls(attribute, size, *(np.array(a, np.int64) for a in arrays))

    @property
    def cells(self) -> int:
        return int(self.least_at[-1]) * self.size


class RowMoves:
    """Sweeps over rows and attributes against fixed targets; owns its buffers, the rows are passed in and changed in place."""

    def __init__(self, tau: CliqueVector, allowed: CliqueVector | None) -> None:
        self.layout = tau.layout
        self.tau = tau
        self.impossible = None if allowed is None else allowed.values == 0
        domain = tau.domain
        found = [Phase.of(self.layout, a) for a in range(len(domain))]
        self.phases = [p for p in found if p is not None]
        most = max((p.cells for p in self.phases), default=0)
        stretches = max((int(p.least_at[-1]) for p in self.phases), default=0)
        self._laid, self._cost = np.empty((2, most), np.float32)
        self._least = np.empty(stretches, np.float32)
        self._found = np.empty(BLOCK, np.int32)

    def usual_sweeps(self, n: int) -> int:
        """Of so many rows, where nobody says how many: more where they are cheap."""
        each = n * sum(len(p.other) for p in self.phases)
        return int(np.clip(READ // max(each, 1), FEWEST, MOST))

    def counts(self, codes: RowCodes) -> Buffer:
        return Dataset(codes, self.layout.domain).marginals(self.layout.cliques).values

    def sweep(
        self, codes: RowCodes, width: float, step: Callable[[], None] = lambda: None, part: int = 0
    ) -> int:
        """One pass over every attribute of the rows, in sweep number `part`; how many codes were moved."""
        deviation = (self.counts(codes) - len(codes) * self.tau.values).astype(np.float32)
        if self.impossible is not None:
            deviation[self.impossible] = IMPOSSIBLE
        made = 0
        for phase in self.phases:
            made += self._move(phase, codes, deviation, np.float32(1.0 / width), part)
            step()
        return made

    def _move(
        self,
        p: Phase,
        codes: RowCodes,
        deviation: NDArray[np.float32],
        slope: np.float32,
        part: int,
    ) -> int:
        tables, cells = len(p.at), len(self._laid)
        spread(
            lay_out, tables, cells, deviation, p.at, p.left, p.right, p.size, slope, p.to, self._laid, self._cost,
            p.least_at, self._least,
        )  # fmt: skip
        made = 0
        for low, high in _blocks(len(codes), part):
            arguments = (
                low, codes, p.attribute, p.size, slope, p.ptr, p.other, p.stride, p.to,
                self._laid, self._cost, p.least_at, self._least, self._found,
            )  # fmt: skip
            visited = (high - low) * len(p.other)
            spread(propose, high - low, visited, *arguments, start=low)
            made += accept(low, high, *arguments)
        spread(lay_back, tables, cells, deviation, p.at, p.left, p.right, p.size, p.to, self._laid)
        return made


def impossible_rows(allowed: CliqueVector, codes: RowCodes) -> NDArray[np.bool_]:
    """Which rows fall in a cell that may hold none."""
    bad = np.zeros(len(codes), np.bool_)
    for clique, table in allowed.items():
        if not table.all():
            at = tuple(codes[:, allowed.domain.position(a)] for a in clique)
            bad |= table[at] == 0
    return bad


def widths(n: int, sweeps: int) -> list[float]:
    """Of each sweep: from a share of the rows down to one record, so that the last sweeps count single records."""
    return np.geomspace(max(1.0, WIDEST * n), 1.0, sweeps).tolist() if sweeps else []


def _blocks(n: int, part: int) -> Iterator[tuple[int, int]]:
    """Blocks of rows that sweep number `part` visits: all, or every k-th of many, in turn."""
    turns = 1 if part < WHOLE else max(1, n // VISITED)
    starts = range(part % turns * BLOCK, n, BLOCK * turns)
    return ((low, min(low + BLOCK, n)) for low in starts)


FEWEST, MOST, READ = 8, 32, 100_000_000
"""Passes over rows and attributes when rows are moved and the caller does not say how many: as many as read so many numbers of
tables, a few seconds' worth, within these."""
AGREE = 1e-6
"""Tables that differ by less than this (L1) on their separator are one distribution."""
FITTED = 1e-4
"""A backbone that meets every table of the model to this (L1) is the model."""

Rng = np.random.Generator | int | None


@dataclass(frozen=True, eq=False)
class SampledRows:
    """Rows and how far their tables are from the model's: mean total variation over its cliques.

    `exact`: each row is distributed as the model, and none was moved. `distance` is what was reached, `before` what it was
    before rows were moved, `independent` what as many independent rows would have on average. `moved` is the share of
    codes that were changed; `replaced` counts rows that no move could make possible, each now a copy of a possible one.
    """

    data: Dataset
    exact: bool
    distance: float
    worst: float
    worst_clique: Clique
    before: float
    independent: float
    moved: float
    sweeps: int
    replaced: int
    source: str = "backbone"
    controlled: int = 0
    """Rows that were moved at the end so that controls hold to the last digit."""

    def __str__(self) -> str:
        how = "exactly from the model" if self.exact else f"from the {self.source}"
        lines = [
            f"{len(self.data):,} rows drawn {how}",
            f"mean total variation to the model's tables {self.distance:.2g} "
            f"(independent rows: {self.independent:.2g}), worst {self.worst:.2g} at {self.worst_clique}",
        ]
        if self.sweeps:
            lines.append(
                f"{self.sweeps} sweeps moved {self.moved:.1%} of the codes; the distance was {self.before:.2g} before"
            )
        if self.replaced:
            lines.append(f"{self.replaced:,} impossible rows replaced by copies of possible ones")
        if self.controlled:
            lines.append(f"{self.controlled:,} rows moved so that every control holds exactly")
        return "\n".join(lines)


def sample_rows(
    model: Model,
    n: int,
    rng: Rng = None,
    *,
    sweeps: int | None = None,
    progress: Progress = quiet,
) -> SampledRows:
    """n rows of a model, and the distance that is left. `Model.sample` says what the arguments mean."""
    n = _count("n, the number of rows,", n)
    asked = None if sweeps is None else _count("sweeps", sweeps)
    generator = np.random.default_rng(rng)
    kept = model.rounding is not None and n == model.total
    if kept and model.rounding is not None and model.rounding.rows is not None:
        return _as_kept(model, model.rounding.rows, generator)
    draw, cliques, exact = _distribution(model, progress)
    apart = [model.domain.clique(c) for c in model.masks if not model.in_model(c)]
    inferred = model.marginals(apart) if apart else []
    beside = {c: t / model.total for c, t in zip(apart, inferred, strict=True)}
    tau = _targets(model.known, beside)
    allowed = _allowed(model, apart)
    moves = RowMoves(tau, None if allowed is None else _down_to(tau, allowed, model.known))
    if asked is None or kept:
        asked = 0 if (exact and not apart) or kept else moves.usual_sweeps(n)
    steps = _Steps(cliques + asked * len(moves.phases), progress)
    drawn = draw(n, generator, lambda step: steps())
    if kept:
        _lay_cells(model, drawn, generator)
    controls = bound_controls(model.domain, model.controls)
    codes = drawn.copy() if asked or controls else drawn
    for k, width in enumerate(widths(n, asked)):
        moves.sweep(codes, width, steps, part=k)
    replaced = 0 if allowed is None else _replace_impossible(allowed, codes, generator)
    total = next((float(c.low.sum()) for c in controls if c.exact), model.total)
    controlled = keep_controls(controls, total, tau, moves.impossible, codes, generator)
    moved = float((codes != drawn).mean()) if asked and n else 0.0
    before = moves.counts(drawn) if asked else moves.counts(codes)
    if asked:
        # Rows that come first were moved first; a shuffle makes any part of the rows a sample like any other.
        codes = codes[generator.permutation(n)]
    left = _Distances.of(tau, moves.counts(codes), n, model.known.cliques)
    return SampledRows(
        Dataset(codes, model.domain),
        exact and not asked and not replaced and not controlled,
        left.mean,
        left.worst,
        left.worst_clique,
        _Distances.of(tau, before, n, model.known.cliques).mean,
        _Distances.of(tau, None, n, model.known.cliques).mean,
        moved,
        asked,
        replaced,
        "backbone" if model.mixture is None or model.masks else "latent classes",
        controlled,
    )


def _as_kept(model: Model, rows: Dataset, rng: np.random.Generator) -> SampledRows:
    """The rows that a whole model is, in another order."""
    codes = rows.to_array()[rng.permutation(len(rows))]
    first = model.known.cliques[0] if len(model.known.cliques) else ()
    usual = _Distances.of(_targets(model.known, {}), None, len(rows), model.known.cliques)
    return SampledRows(
        Dataset(codes, model.domain), True, 0.0, 0.0, first, 0.0, usual.mean, 0.0, 0, 0
    )


def _lay_cells(model: Model, codes: RowCodes, rng: np.random.Generator) -> None:
    """Give rows the cells of whole tables that share nothing, each as often as its table says."""
    for region in model.graph.root_cliques:
        counts = np.rint(model.total * model.tau[region]).astype(np.int64)
        cells = rng.permutation(np.repeat(np.arange(counts.size), counts.reshape(-1)))
        for a, values in zip(region, np.unravel_index(cells, counts.shape), strict=True):
            codes[:, model.domain.position(a)] = values


@dataclass(frozen=True)
class _Distances:
    """Total variation between the rows' tables and the model's, over the model's cliques; of independent rows without counts."""

    mean: float
    worst: float
    worst_clique: Clique

    @classmethod
    def of(
        cls, tau: CliqueVector, counts: Buffer | None, n: int, cliques: Sequence[Clique]
    ) -> _Distances:
        if n == 0:
            return cls(float("nan"), float("nan"), ())
        p = tau.values
        cells = independent_deviation(n, p) if counts is None else np.abs(counts - n * p)
        places = [tau.layout.index[c] for c in cliques]
        found = np.add.reduceat(cells, tau.layout.offsets[:-1])[places] / (2 * n)
        worst = int(found.argmax())
        return cls(float(found.mean()), float(found[worst]), cliques[worst])


def independent_deviation(n: int, p: Buffer) -> Buffer:
    """E|X - n p| of a binomial X: 2 (m + 1) C(n, m + 1) p^(m + 1) (1 - p)^(n - m) with m = floor(n p) (De Moivre)."""
    q = np.clip(p, 0.0, 1.0)
    m = np.minimum(np.floor(n * q), n - 1)
    ways = gammaln(n + 1) - gammaln(m + 1) - gammaln(n - m)
    return 2.0 * np.exp(ways + xlogy(m + 1, q) + xlog1py(n - m, -q))


Draw = Callable[[int, np.random.Generator, Progress], RowCodes]
"""Draws rows of one distribution."""


def _distribution(model: Model, progress: Progress) -> tuple[Draw, int, bool]:
    """How to draw, in how many steps, and whether rows then follow the model: its own tree, its own tables where they make one,
    else its latent classes, else the backbone.
    """
    own = _own_tree(model.known) if model.tree is None else None
    if own is not None:
        tree, beliefs = own
        return partial(tree_rows, tree, beliefs), len(tree.cliques), True
    if model.mixture is not None and not model.masks:  # classes know nothing of what cannot occur
        mixture = model.mixture
        return lambda n, rng, _: mixture.rows(n, rng), 1, False
    backbone = model.prepare(progress)
    exact = backbone.whole and (model.tree is not None or backbone.misfit <= FITTED)
    return partial(fit_rows, backbone.fit), len(backbone.tree.cliques), exact


def _own_tree(known: PseudoMarginals) -> tuple[JunctionTree, CliqueVector] | None:
    """The model's tables as one distribution along a junction tree, where they are one: every clique in model, all agreeing."""
    tree = JunctionTree.of(known.domain, known.cliques)
    if any(len(c) > 1 and not known.holds(c) for c in tree.cliques):
        return None
    tables = {c: known.table(c) for c in tree.cliques}
    for (i, j), separator in zip(tree.edges, tree.separators, strict=True):
        one, other = (_down(tables[tree.cliques[k]], tree.cliques[k], separator) for k in (i, j))
        if np.abs(one - other).sum() > AGREE:
            return None
    return tree, CliqueVector.from_tables(known.domain, tables)


def _targets(known: PseudoMarginals, beside: Mapping[Clique, Buffer]) -> CliqueVector:
    """The tables that rows are moved towards: all that the model is trusted on, the smaller ones as well, and some others."""
    inside = [r for r in known.graph.regions if r and known.holds(r)]
    cliques = dict.fromkeys([*known.cliques, *inside])
    tables = {c: known.table(c) for c in cliques}
    return CliqueVector.from_tables(known.domain, {**tables, **beside})


def _allowed(model: Model, apart: Iterable[Clique]) -> CliqueVector | None:
    """Positive where a cell may hold mass, on every region and on the masked cliques that are not in the model."""
    if not model.masks:
        return None
    inside = held(model.graph, model.masks)
    tables = dict(masks_of(model.graph, inside).items())
    for clique in apart:
        mask = mask_on(model.domain, model.masks, clique)
        assert mask is not None
        tables[clique] = mask.astype(np.float64)
    return CliqueVector.from_tables(model.domain, tables)


def _down_to(tau: CliqueVector, allowed: CliqueVector, known: PseudoMarginals) -> CliqueVector:
    """Positive where some possible cell of the clique's region lies."""
    regions = {c: c if c in allowed.layout.index else known.region_of(c) or c for c in tau.cliques}
    tables = {c: _down(allowed[r], r, c) for c, r in regions.items()}
    return CliqueVector.from_tables(tau.domain, tables)


def _replace_impossible(allowed: CliqueVector, codes: RowCodes, rng: np.random.Generator) -> int:
    """Rows in an impossible cell become copies of possible rows; how many there were."""
    bad = impossible_rows(allowed, codes)
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


def _count(what: str, given: int) -> int:
    try:
        value = -1 if isinstance(given, bool) else index(given)
    except TypeError:
        value = -1
    if value < 0:
        raise ConsilienceError(f"{what} must be a whole number from 0 on, got {given!r}")
    return value


class _Steps:
    """Counts the cliques that rows are drawn from and the attributes that they are moved in, as one stage."""

    def __init__(self, steps: int, progress: Progress) -> None:
        self.done, self.steps, self.progress = 0, steps, progress

    def __call__(self) -> None:
        self.done += 1
        self.progress(Step("rows", self.done, self.steps))
