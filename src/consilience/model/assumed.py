"""Assumed: how far tables that nobody measured may be from what the model infers, learnt from tables that were measured.

An inferred table assumes that nothing links its attributes but what was measured. How wrong that is, tables tell that were
measured: the model without the last of them infers these, and they are looked up. A cell that is inferred to hold b counts is
taken to leave that by a variance of
    rate (b + 1) + (part b)^2,
rate and part the most likely ones given the noise. AIM and MWEM measured what they predicted worst: what they never measured they
mostly predicted better (decision 046). It says nothing about tables of more attributes than were looked up.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np

from consilience.domain import Buffer, Clique
from consilience.measurements import Measurement

if TYPE_CHECKING:
    from consilience.model.fit import Fit
    from consilience.model.model import Model

HELD = 4
"""One of so many measured tables is looked up."""
RATES = np.array([0.0, *np.geomspace(0.25, 4096.0, 15)])
PARTS = np.array([0.0, *np.geomspace(0.005, 1.0, 16)])
BALANCED = 3
"""Turns over the axes of a table until what is added leaves its single attributes as they are."""


@dataclass(frozen=True)
class Assumed:
    """`order`: the most attributes of a table that was looked up; 0 where none could be."""

    rate: float = 0.0
    part: float = 0.0
    order: int = 0

    def covers(self, clique: Clique) -> bool:
        return 1 < len(clique) <= self.order

    def drawn(self, clique: Clique, table: Buffer, count: int, axes: tuple[int, ...]) -> Buffer:
        """Departures from a table of counts, as many; the same for the same question. They keep the sums of each attribute."""
        variances = self.rate * (table + 1.0) + np.square(self.part * table)
        rng = np.random.default_rng([0, *axes])
        found = np.sqrt(variances) * rng.standard_normal((count, *table.shape))
        for _, axis in product(range(BALANCED), range(len(clique))):
            others = tuple(i for i in range(table.ndim) if i != axis)
            whole = np.maximum(variances.sum(axis=others, keepdims=True), 1e-300)
            sums = found.sum(axis=tuple(i + 1 for i in others), keepdims=True)
            found -= variances / whole * sums
        return found


NOTHING = Assumed()


def assumed_of(model: Model, fit: Fit) -> Assumed:
    """What the last tables tell that the model would not have known."""
    pairs = combinations(model.domain.attributes, 2)
    if all(model.known.holds(p) for p in pairs):
        return NOTHING
    kept, held = _apart(model)
    if not held:
        return NOTHING
    less = fit.of_fewer()(model.domain, kept, model.total if model.total_known else None)
    cliques = [model.domain.clique(m.attributes) for m in held]
    misses, noises, counts = [], [], []
    for measured, table in zip(held, less.marginals(cliques), strict=True):
        misses.append((measured.values.reshape(-1) - table.reshape(-1)) ** 2)
        noises.append(np.full(table.size, float(measured.stddev) ** 2))
        counts.append(np.maximum(table.reshape(-1), 0.0))
    missed, noise, held_counts = map(np.concatenate, (misses, noises, counts))
    rate, part = max(
        product(RATES, PARTS), key=lambda at: _likelihood(missed, noise, held_counts, *at)
    )
    return Assumed(float(rate), float(part), max(map(len, cliques)))


def _likelihood(missed: Buffer, noise: Buffer, counts: Buffer, rate: float, part: float) -> float:
    variance = noise + rate * (counts + 1.0) + np.square(part * counts)
    return -float((missed / variance + np.log(variance)).sum())


def _apart(model: Model) -> tuple[list[Measurement], list[Measurement]]:
    """The measurements, and the last whole tables without which every attribute is still measured."""
    made = list(model.measurements)
    tables = list(dict.fromkeys(m.clique for m in made if len(m.clique) > 1 and m.is_identity))
    out: list[Clique] = []
    for clique in reversed(tables):
        if len(out) >= max(1, len(tables) // HELD):
            break
        rest = [m.clique for m in made if not _within([*out, clique], m.clique)]
        if all(any(a in c for c in rest) for a in clique):
            out.append(clique)
    left, held = [], []
    for m in made:
        given = Measurement(
            m.clique, m.values.reshape(-1), stddev=m.stddev, noise=m.noise, query=m.query
        )
        if m.clique in out:
            held.append(given)
        elif not _within(out, m.clique):
            left.append(given)
    return left, held


def _within(some: list[Clique], clique: Clique) -> bool:
    """Whether a table of the clique would tell one of these."""
    return any(set(c) <= set(clique) for c in some)
