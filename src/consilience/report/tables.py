"""Published tables with their intervals, and how far each can be relied on.

The yardstick of a table is its expected total variation to the truth: half the expected L1 distance, as a share of the
total. For a normal error of standard error s the expected distance of one count is s sqrt(2 / pi).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite, isnan, pi, sqrt

import numpy as np
from scipy.special import ndtri

from consilience.domain import Buffer, Clique, Domain
from consilience.errors import ConsilienceError
from consilience.model import Model
from consilience.model.uncertainty import Uncertainty, reach_of
from consilience.progress import Progress, quiet

LEVEL = 0.9
"""Of every interval in a report."""
MULTIPLE = float(ndtri(0.5 + LEVEL / 2))
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
    """Counts over a clique, the half-width of each interval, and the expected total variation to the truth.

    Where no counts were measured (FEM, DualQuery) there are no errors, and both are not numbers.
    """

    clique: Clique
    counts: Buffer
    reach: Buffer
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
    def low(self) -> Buffer:
        return np.maximum(self.counts - self.reach, 0.0)

    @property
    def high(self) -> Buffer:
        return self.counts + self.reach

    @property
    def unclear(self) -> float:
        """Share of cells whose interval reaches down to zero."""
        return float((self.low <= 0).mean()) if self.known else 0.0


def published_tables(
    model: Model,
    *,
    stderr: Mapping[Clique, Buffer | None] | None = None,
    replicates: int,
    rng: np.random.Generator | int = 0,
    progress: Progress = quiet,
) -> list[PublishedTable]:
    """Every attribute, every measured clique and what was published besides.

    `stderr`: what was published, with its standard errors where they are known already.
    """
    singles: list[Clique] = [(a,) for a in model.domain if model.in_model(a)]
    published: list[Clique] = [*singles, *model.cliques, *(stderr or {})]
    cliques = list(dict.fromkeys(published))
    found = {c: (s, PUBLISHED) for c, s in (stderr or {}).items() if s is not None}
    if not len(model.measurements):
        nothing = {c: np.full(model.domain.shape_of(c), np.nan) for c in cliques}
        found = {c: (n, UNKNOWN) for c, n in nothing.items()}
    for inside, method in ((True, "auto"), (False, "bootstrap")):
        missing = [c for c in cliques if c not in found and model.in_model(c) is inside]
        if missing:
            fresh = model.uncertainties(
                missing,
                method=method,
                replicates=replicates,
                rng=rng,
                progress=progress,
            )
            found |= {c: (u.stderr, u.method) for c, u in zip(missing, fresh, strict=True)}
    linked = Linked(model)
    tables = []
    for clique, counts in zip(cliques, model.marginals(cliques), strict=True):
        (spread, how), basis = found[clique], linked.basis(clique)
        reach = spread
        if basis == MEASURED and how != UNKNOWN:
            # What a cell near zero could hold; it adds nothing to errors that are in closed form already.
            at_least = Uncertainty(spread, np.zeros_like(spread), "bootstrap", 0)
            reach = reach_of(model, clique, at_least)
        apart = float(spread.sum()) * sqrt(2 / pi) / (2 * model.total)
        variation = apart if isnan(apart) else min(1.0, apart)
        tables.append(PublishedTable(clique, counts, MULTIPLE * reach, variation, how, basis))
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
    for attribute, size in domain.sizes.items():
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
