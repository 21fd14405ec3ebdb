"""Excess: how much farther from the truth a fit with latent classes is than its refits are from it.

Refits start from the model's own answers, which its classes can say; the truth need not be such. Let a cell that is expected to
hold b counts leave that by a variance f = rate (b + PERSON), and least squares know it with variance s. Then its squared error
after the pull is about f s / (f + s). The squared distance of a fit from the truth is estimated without bias by
(fit - y)^2 - s + 2 cov(fit, y), y the least squares table, s and the covariance taken from the refits (Efron 2004). The rate is
the one that makes the first most like the second, over all cells of tables of as many attributes (decisions 035 and 053). What
passes a cell's own squared deviation in refits is added to replicates: single attributes first, then what each larger table adds.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, Layout
from consilience.domain.moves import cells_of
from consilience.domain.subsets import Subsets
from consilience.measurements import Exact, Measurements, SquaredLoss
from consilience.measurements.evidence import Evidence
from consilience.model.impossible import mask_on

if TYPE_CHECKING:
    from consilience.model.model import Model

RATES = np.geomspace(1.0, 100.0, 17)
"""Variances of a cell over its count that classes may leave open: people are a sample of whatever law they follow, so 1 at
least."""
PERSON = 0.4
"""Counts that a cell is expected to hold beyond its own, so that one that is held at zero is uncertain too."""
SMALL = 1e-3
"""Counts that every cell has a share in what smaller tables move, so that empty ones can follow them."""
BALANCED = 3
"""Turns over the axes of a table until it moves as its smaller tables do."""


class Excess:
    """Collects what the refits of a model say, then draws what they leave out. Counts throughout."""

    def __init__(self, model: Model, layout: Layout, own: Buffer) -> None:
        """own: the model's tables of the layout, as distributions."""
        self.model, self.largest = model, layout
        every = Subsets.of(model.domain, layout.cliques).subsets[1:]
        self.layout = Layout(model.domain, every)
        sizes, found = np.diff(layout.offsets), self.layout.cliques.find(layout.cliques)
        self.given = cells_of(self.layout.offsets[found], sizes)
        self.smaller = list(_sums(self.layout, layout.index))
        self.own = self._every(model.total * own)
        self.open = np.concatenate([_open(model, c).reshape(-1) for c in self.layout.cliques])
        self.misfit = np.square(self._least_squares(model.measurements) - self.own)
        self.noise, self.covariance, self.moved = np.zeros((3, self.layout.cells))
        self.count = 0

    def take(self, refit: Buffer, drawn: Measurements) -> None:
        """refit: its tables of the largest cliques."""
        moved, noise = self._every(refit) - self.own, self._least_squares(drawn) - self.own
        self.noise += np.square(noise)
        self.covariance += moved * noise
        self.moved += np.square(moved)
        self.count += 1

    def _every(self, largest: Buffer) -> Buffer:
        """The tables of all subsets, from those of the largest cliques."""
        out = np.empty(self.layout.cells)
        out[self.given] = largest
        for part, whole, shape, axis in self.smaller:
            out[part] = out[whole].reshape(shape).sum(axis=axis).reshape(-1)
        return out

    def _least_squares(self, measured: Measurements) -> Buffer:
        """Tables without non-negativity."""
        loss = SquaredLoss(self.model.domain, measured, self.model.total)
        found = Evidence.of(loss, self.largest.cliques).tables
        cells = cells_of(
            found.layout.offsets[found.cliques.find(self.layout.cliques)],
            np.diff(self.layout.offsets),
        )
        return found.values[cells]

    def variances(self) -> Buffer:
        """What is added to each cell's."""
        sizes = np.diff(self.layout.offsets)
        each = np.add.reduceat(self.noise, self.layout.offsets[:-1]) / sizes / self.count
        noise = np.repeat(np.maximum(each, 1e-300), sizes)
        held = PERSON + np.maximum(self.own, 0.0)
        found = self.misfit - noise + 2 * self.covariance / self.count
        orders = np.repeat([len(c) for c in self.layout.cliques], sizes)
        error = np.empty(self.layout.cells)
        for order in np.unique(orders):
            at = orders == order
            scores = [
                np.square((found[at] - _error(r * held[at], noise[at])) / noise[at]).sum()
                for r in RATES
            ]
            error[at] = _error(RATES[int(np.argmin(scores))] * held[at], noise[at])
        return np.where(self.open, np.maximum(error - self.moved / self.count, 0.0), 0.0)

    def drawn(self, rng: np.random.Generator) -> Buffer:
        """Deviations of as many replicates on the largest tables, as distributions. Tables agree on what they share."""
        added = self.variances()
        moves: dict[Clique, Buffer] = {(): np.zeros(self.count)}
        for i, clique in enumerate(self.layout.cliques):  # smaller ones come first
            cells = slice(*self.layout.offsets[i : i + 2])
            shape = self.model.domain.shape_of(clique)
            variances = added[cells].reshape(shape)
            held = self.open[cells] * (np.maximum(self.own[cells], 0.0) + SMALL)
            fresh = np.sqrt(variances) * rng.standard_normal((self.count, *shape))
            without = [moves[(*clique[:k], *clique[k + 1 :])] for k in range(len(shape))]
            sums = [np.expand_dims(table, k + 1) for k, table in enumerate(without)]
            moved = _turned(fresh, variances, [0 * table for table in sums])
            carried = _turned(0 * fresh, held.reshape(shape), sums)
            moves[clique] = moved + carried
        parts = [moves[c].reshape(self.count, -1) for c in self.largest.cliques]
        return np.concatenate(parts, axis=1) / self.model.total


def _open(model: Model, clique: Clique) -> NDArray[np.bool_]:
    """The cells of a table that may hold something, none where the table is public."""
    controls = () if model.fit is None else model.fit.controls
    public = any(isinstance(c, Exact) and set(clique) <= set(c.attributes) for c in controls)
    allowed = mask_on(model.domain, model.masks, clique)
    shape = model.domain.shape_of(clique)
    return np.full(shape, not public) & (True if allowed is None else allowed)


def _turned(tables: Buffer, weights: Buffer, sums: Sequence[Buffer]) -> Buffer:
    """Tables, one after the other, moved in proportion to the weights until these are their sums over each axis."""
    for _, axis in product(range(BALANCED), range(weights.ndim)):
        whole = np.maximum(weights.sum(axis=axis, keepdims=True), 1e-300)
        tables = tables - weights / whole * (tables.sum(axis=axis + 1, keepdims=True) - sums[axis])
    return tables


def _error(free: Buffer, noise: Buffer) -> Buffer:
    """The squared error of a number that may leave what is expected by one variance and is measured with another."""
    return free * noise / (free + noise)


def _sums(
    every: Layout, known: Container[Clique]
) -> Iterator[tuple[slice, slice, tuple[int, ...], int]]:
    """How each table that is not known is summed from one of an attribute more: its cells, those, their shape, the axis."""
    cells = [slice(*ends) for ends in pairwise(every.offsets.tolist())]
    made = set()
    for clique in reversed(list(every.cliques)):  # larger ones first
        for axis in range(len(clique)):
            part = (*clique[:axis], *clique[axis + 1 :])
            if part and part not in known and part not in made:
                made.add(part)
                where, of = every.index[part], every.index[clique]
                yield cells[where], cells[of], every.domain.shape_of(clique), axis
