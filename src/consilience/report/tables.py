"""Published tables with their intervals, and how far each can be relied on.

The yardstick of a table is its expected total variation to the truth: half the expected L1 distance, as a share of the
total. Errors are those of `model/uncertainty.py`; nothing is computed about them here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite

import numpy as np

from consilience.domain import Buffer, Clique, Domain
from consilience.errors import ConsilienceError
from consilience.model import Model, Uncertainty
from consilience.progress import Progress, quiet
from consilience.release.answers import LEVEL

PUBLISHED = "published with the table"
UNKNOWN = "not known, because choices of cells were released and no noisy counts"
MEASURED, INFERRED, ASSUMED = "measured", "inferred", "assumed"
MEANING = {
    MEASURED: "the attributes were measured together",
    INFERRED: "never measured together; inferred through other measured tables",
    ASSUMED: "nothing measured links them; independence is assumed",
}
Labels = Mapping[str, Sequence[str]]


@dataclass(frozen=True, eq=False)
class PublishedTable:
    """Counts over a clique, the interval of each, and the expected total variation to the truth.

    Where no counts were measured (FEM, DualQuery) there are no errors, and neither is a number.
    """

    clique: Clique
    counts: Buffer
    low: Buffer
    high: Buffer
    variation: float
    how: str
    """Where the standard errors come from."""
    basis: str
    """`MEASURED`, `INFERRED` or `ASSUMED`."""

    @property
    def name(self) -> str:
        return " × ".join(self.clique)

    @property
    def known(self) -> bool:
        """Whether there are standard errors."""
        return isfinite(self.variation)

    @property
    def unclear(self) -> float:
        """Share of cells whose interval reaches down to zero."""
        return float((self.low <= 0).mean()) if self.known else 0.0


def published_tables(
    model: Model,
    *,
    errors: Mapping[Clique, Uncertainty | None] | None = None,
    replicates: int | None = None,
    rng: np.random.Generator | int | None = None,
    progress: Progress = quiet,
) -> list[PublishedTable]:
    """Every attribute, every measured clique and what was published besides.

    errors: what was published, with its errors where the folder states any. replicates, rng: refits behind the others, which
    are the model's own unless given.
    """
    singles: list[Clique] = [(a,) for a in model.domain if model.in_model(a)]
    published: list[Clique] = [*singles, *model.cliques, *(errors or {})]
    cliques = list(dict.fromkeys(published))
    linked = Linked(model)
    if not len(model.measurements):
        nothing = [np.full(model.domain.shape_of(c), np.nan) for c in cliques]
        return [
            PublishedTable(c, counts, nan, nan, np.nan, UNKNOWN, linked.basis(c))
            for c, counts, nan in zip(cliques, model.marginals(cliques), nothing, strict=True)
        ]
    found = {c: (u, PUBLISHED) for c, u in (errors or {}).items() if u is not None}
    missing = [c for c in cliques if c not in found]
    fresh = model.uncertainties(missing, replicates=replicates, rng=rng, progress=progress)
    found |= {c: (u, u.method) for c, u in zip(missing, fresh, strict=True)}
    tables = []
    for clique in cliques:
        u, how = found[clique]
        variation = min(1.0, float(u.distance.sum()) / (2 * model.total))
        low, high = u.interval(LEVEL)
        basis = linked.basis(clique)
        tables.append(PublishedTable(clique, u.answer, low, high, variation, how, basis))
    return tables


def least_reliable(tables: Sequence[PublishedTable], count: int = 5) -> list[PublishedTable]:
    """The tables with the largest expected total variation, worst first."""
    return sorted((t for t in tables if t.known), key=lambda t: -t.variation)[:count]


@dataclass(frozen=True)
class Example:
    """One count with its interval, in words."""

    table: PublishedTable
    codes: tuple[int, ...]
    labels: tuple[str, ...]
    count: float
    low: float
    high: float

    @property
    def question(self) -> str:
        return " and ".join(
            f"{a} = {v}" for a, v in zip(self.table.clique, self.labels, strict=True)
        )


def example_of(tables: Sequence[PublishedTable], labels: Labels) -> Example:
    """The largest count, short of half of the total, in the pair (or widest table) of middling reliability."""
    wide = [t for t in tables if len(t.clique) == 2] or list(tables)
    table = sorted(wide, key=lambda t: t.variation if t.known else 0.0)[len(wide) // 2]
    half = table.counts.sum() / 2
    sized = np.where(table.counts <= half, table.counts, -1.0)
    where = np.unravel_index(int(sized.argmax()), table.counts.shape)
    codes = tuple(int(i) for i in where)
    names = tuple(labels[a][i] for a, i in zip(table.clique, codes, strict=True))
    return Example(
        table,
        codes,
        names,
        float(table.counts[where]),
        float(table.low[where]),
        float(table.high[where]),
    )


def checked_labels(domain: Domain, given: Labels | None) -> dict[str, tuple[str, ...]]:
    """A label for each code; codes themselves where none are given."""
    labels = {}
    for attribute in (*domain, *domain.levels):
        size = domain[attribute]
        names = tuple((given or {}).get(attribute, [str(i) for i in range(size)]))
        if len(names) != size:
            raise ConsilienceError(
                f"labels must name every code of {attribute!r}, {size} of them, got {len(names)}"
            )
        labels[attribute] = names
    return labels


# -- what rests on what ------------------------------------------------------------------------------


class Linked:
    """Which attributes measured cliques tie together, directly or through others."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.group = {a: a for a in model.domain}
        for clique in model.cliques:
            for a in clique[1:]:
                self.group[self._root(a)] = self._root(clique[0])

    def _root(self, a: str) -> str:
        while self.group[a] != a:
            self.group[a] = self.group[self.group[a]]
            a = self.group[a]
        return a

    def basis(self, clique: Clique) -> str:
        """What the answer for these attributes rests on."""
        if self.model.in_model(clique):
            return MEASURED
        return INFERRED if len({self._root(a) for a in clique}) == 1 else ASSUMED


def basis_of_pairs(model: Model) -> dict[Clique, str]:
    """What the answer for each pair of attributes rests on."""
    linked = Linked(model)
    return {pair: linked.basis(pair) for pair in combinations(model.domain.attributes, 2)}
