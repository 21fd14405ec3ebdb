"""Evidence: what Gaussian measurements say about each residual of a table, whatever they were made of.

The residual of the marginal on t is what it says beyond its own lower-order marginals, z_t = C_t M_t x, where C_t subtracts the
mean along each axis. A noisy table on a tells every z_t with t inside a, with precision n_t / (n_a sigma^2); a noisy residual
(`Centring`) tells its own. So all of them together are, up to a constant,

    L(x) = sum_t p_t / 2 ||C_t M_t x - z_t||^2.

Solvers want it as squared distances of whole tables. With y_c = sum_{t <= c} z_t / n_{c minus t} the least squares tables, which
agree with each other, the same function is sum_c u_c / 2 ||M_c x - y_c||^2 with

    u_c = p_c - sum_{a > c} u_a n_c / n_a,

where u_c is negative wherever less is known about z_c than larger tables would tell. The sum stays convex.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, Cliques, CliqueVector, Domain, Family, Layout
from consilience.domain.moves import cells_of
from consilience.domain.rows import row_keys
from consilience.domain.subsets import Subsets
from consilience.measurements.loss import BoundLoss, Loss, check_domain
from consilience.measurements.losses import (
    Plain,
    Separable,
    Square,
    SquaredLoss,
    bind_terms,
    terms_of,
)
from consilience.measurements.measurement import BoundMeasurement
from consilience.measurements.structured import Centring, centred

Ints = NDArray[np.int64]
DENSE = 2048
"""Cells of the largest table whose queries are turned into evidence about residuals; larger ones only shape the last fit."""
NOTHING = 1e-9
"""A precision below this share of the residual's is rounding."""


@dataclass(frozen=True, eq=False, repr=False)
class Evidence(Loss):
    """The precision of every residual, and the least squares tables, in counts, of a family closed under subsets.

    `rest` are measurements through queries that are no residuals: they count in the loss as they are, and in `precision` and
    `tables` by the even part of what they tell.
    """

    domain: Domain
    cliques: Cliques
    """Of the measurements."""
    total: float
    lattice: Subsets
    precision: Buffer
    """p_t per subset of the lattice, the empty one first, in counts."""
    tables: CliqueVector
    """y_t of every subset but the empty one."""
    rest: tuple[BoundMeasurement, ...]
    exact: Buffer
    """p_t without what `rest` tells."""
    alike: Mapping[int, float] = field(default_factory=dict)
    """How many neighbouring codes are alike: by position, attributes whose noisy counts showed it (`solvers/beside.py`)."""

    @classmethod
    def of(cls, loss: SquaredLoss, beside: Iterable[Clique] = ()) -> Evidence:
        """The evidence in the measurements of a loss, about their cliques and others `beside`, of which nothing is known."""
        domain, total = loss.domain, loss.total
        lattice = Subsets.of(domain, dict.fromkeys([*loss.cliques, *beside]))
        layout = Layout(domain, lattice.subsets[1:])
        sums, precision = np.zeros(layout.cells), np.zeros(len(lattice.subsets))
        part = loss.separable()
        _add_tables(layout, part.targets * total, part.weights / total**2, sums, precision[1:])
        rest = []
        for m in part.rest:
            if isinstance(m.query, Centring):
                i, weight = layout.index[m.clique], m.stddev**-2
                where = slice(*layout.offsets[i : i + 2])
                table = m.values.reshape(domain.shape_of(m.clique))
                sums[where] += weight * centred(table, table.ndim).reshape(-1)
                precision[1 + i] += weight
            else:
                rest.append(m)
        exact = precision.copy()
        for m in rest:
            _add_query(domain, layout, m, sums, precision[1:])
        z = sums / np.repeat(np.maximum(precision[1:], 1e-300), np.diff(layout.offsets))
        tables = CliqueVector(layout, _assembled(layout, z, total))
        return cls(domain, loss.cliques, total, lattice, precision, tables, tuple(rest), exact)

    @property
    def smoothness(self) -> float | None:
        return None

    @cached_property
    def residuals(self) -> CliqueVector:
        """z_t of every subset."""
        out = CliqueVector(self.tables.layout)
        for shape, members, _ in groups(out.layout):
            cells = _cells(out.layout, members)
            axes = self.tables.values[cells].reshape(-1, *shape)
            for axis in range(1, len(shape) + 1):
                axes = axes - axes.mean(axis=axis, keepdims=True)
            out.values[cells] = axes.reshape(len(members), -1)
        return out

    def up_to(self, order: int) -> Evidence:
        """The same without residuals of more attributes than this, and without `rest`."""
        kept = [i for i, t in enumerate(self.lattice.subsets) if len(t) <= order]
        subsets = [self.lattice.subsets[i] for i in kept if i]
        lattice = Subsets.of(self.domain, subsets)
        layout = Layout(self.domain, lattice.subsets[1:])
        find = self.tables.layout.cliques.find(layout.cliques)
        values = self.tables.values[_flat(self.tables.layout, find)]
        precision = np.concatenate([[0.0], self.precision[1:][find]])
        return Evidence(
            self.domain,
            layout.cliques.maximal(),
            self.total,
            lattice,
            precision,
            CliqueVector(layout, values),
            (),
            precision,
        )

    def sharper(
        self, tables: Mapping[int, Buffer], gains: Mapping[int, float], widths: Mapping[int, float]
    ) -> Evidence:
        """The same with other tables of single attributes, by their places, and so many times the precision; and how many of
        their neighbouring codes are alike.
        """
        layout, z = self.tables.layout, self.residuals.values.copy()
        precision, exact = self.precision.copy(), self.exact.copy()
        for i, table in tables.items():
            z[slice(*layout.offsets[i : i + 2])] = table - table.mean()
            more = (gains[i] - 1) * precision[1 + i]
            precision[1 + i] += more
            exact[1 + i] += more
        found = CliqueVector(layout, _assembled(layout, z, self.total))
        position = self.domain.position
        alike = {position(layout.cliques[i][0]): width for i, width in widths.items()}
        return replace(self, precision=precision, exact=exact, tables=found, alike=alike)

    def raised(self) -> Evidence:
        """The same with precisions raised until no table has a negative weight.

        A negative weight stands where larger tables would tell more of a small one than was measured: then cells that are kept
        from passing zero move it, although it is known well itself. Raised, it stays near what was measured of it.
        """
        weights = np.maximum(table_precisions(self.lattice, self.exact), 0.0)
        return replace(self, exact=self.lattice.drops @ weights)

    # -- as a loss -------------------------------------------------------------------------------

    @cached_property
    def weights(self) -> Buffer:
        """u_c of every subset but the empty one, in counts."""
        return table_precisions(self.lattice, self.exact)[1:]

    def separable(self) -> Separable:
        """The loss as squared distances of tables, in probability scale."""
        used = np.flatnonzero(self.weights)
        layout = Layout(self.domain, self.tables.cliques.take(used))
        cells = _flat(self.tables.layout, used)
        targets = CliqueVector(layout, self.tables.values[cells] / self.total)
        return Separable(self.weights[used] * self.total**2, targets, self.rest, 0.0)

    def bind(self, layout: Layout) -> BoundLoss:
        check_domain(self, layout)
        return _Difference(layout, None, *(self._bound(layout, sign) for sign in (1.0, -1.0)))

    def _bound(self, layout: Layout, sign: float) -> BoundLoss:
        """The terms of one sign, as they are added or subtracted."""
        which = np.flatnonzero(sign * self.weights > 0)
        family = Layout(self.domain, self.tables.cliques.take(which))
        tables = CliqueVector(family, self.tables.values[_flat(self.tables.layout, which)])
        plain = Plain(tables, np.abs(self.weights[which]) ** -0.5)
        rest = terms_of(self.rest) if sign > 0 else []
        return bind_terms(layout, plain, rest, Square(), self.total, 0.0)

    def __repr__(self) -> str:
        return f"Evidence({len(self.lattice.subsets):,} residuals, total {self.total:g})"


@dataclass(frozen=True, eq=False)
class _Difference(BoundLoss):
    """One bound loss minus another."""

    layout: Layout
    smoothness: float | None
    more: BoundLoss
    less: BoundLoss

    def value_and_grad(self, values: Buffer) -> tuple[float, Buffer]:
        (value, slope), (off, back) = (b.value_and_grad(values) for b in (self.more, self.less))
        return value - off, slope - back


def table_precisions(lattice: Subsets, precision: Buffer) -> Buffer:
    """u_c of tables that tell as much about every residual as `precision` says; some may be negative."""
    found = np.zeros(len(precision))
    order = np.array([len(c) for c in lattice.subsets])
    for size in range(int(order.max()), 0, -1):
        level = np.flatnonzero(order == size)
        left = precision - lattice.drops @ found
        told = np.maximum(precision, lattice.drops @ np.abs(found))
        found[level] = np.where(np.abs(left) > NOTHING * told, left, 0.0)[level]
    return found


# -- between tables and residuals ----------------------------------------------------------------------


def groups(layout: Layout) -> Iterator[tuple[tuple[int, ...], Ints, NDArray[Any]]]:
    """The tables of a layout by shape, with the positions of their attributes, so that equal ones are treated at once."""
    shapes = np.array(layout.domain.shape)
    for where, rows in layout.cliques.sets.by_rank.values():
        if rows.shape[1] == 0:
            continue
        sizes = shapes[rows]
        _, first, back = np.unique(row_keys(sizes), return_index=True, return_inverse=True)
        for k, i in enumerate(first.tolist()):
            yield tuple(sizes[i].tolist()), np.asarray(where)[back == k], rows[back == k]


def _cells(layout: Layout, members: Ints) -> Ints:
    """(members, cells): where the tables of one shape lie."""
    count = int(layout.offsets[members[0] + 1] - layout.offsets[members[0]])
    return layout.offsets[members][:, None] + np.arange(count)


def _flat(layout: Layout, members: Ints) -> Ints:
    """The cells of tables of any shapes, one after the other."""
    return cells_of(layout.offsets[members], np.diff(layout.offsets)[members])


def _parts(family: Layout, rows: NDArray[Any]) -> Iterator[tuple[tuple[int, ...], Ints]]:
    """Every non-empty choice of axes of cliques of one size, and the number in `family` of each one's part on them."""
    for size in range(1, rows.shape[1] + 1):
        for kept in combinations(range(rows.shape[1]), size):
            part = Cliques(family.domain, Family.of_rows(rows[:, list(kept)]))
            yield kept, family.cliques.find(part)


def _add_tables(
    family: Layout, tables: CliqueVector, weights: Buffer, sums: Buffer, precision: Buffer
) -> None:
    """What noisy tables tell about the residuals of all their parts; weights are 1 / sigma^2."""
    layout = tables.layout
    for shape, members, rows in groups(layout):
        cells = int(np.prod(shape))
        values = tables.values[_cells(layout, members)].reshape(-1, *shape)
        for kept, parts in _parts(family, rows):
            size = int(np.prod([shape[i] for i in kept]))
            share = weights[members] * (size / cells)
            dropped = tuple(i + 1 for i in range(len(shape)) if i not in kept)
            part = values.sum(axis=dropped) if dropped else values
            for axis in range(1, part.ndim):
                part = part - part.mean(axis=axis, keepdims=True)
            flat = part.reshape(len(members), -1) * share[:, None]
            np.add.at(sums, family.offsets[parts][:, None] + np.arange(size), flat)
            np.add.at(precision, parts, share)


def _assembled(layout: Layout, z: Buffer, total: float) -> Buffer:
    """y_c = sum_{t <= c} z_t / n_{c minus t} of every table."""
    out = np.empty(layout.cells)
    for shape, members, rows in groups(layout):
        cells = int(np.prod(shape))
        found = np.full((len(members), *shape), total / cells)
        for kept, parts in _parts(layout, rows):
            size = int(np.prod([shape[i] for i in kept]))
            part = z[layout.offsets[parts][:, None] + np.arange(size)] * (size / cells)
            found += part.reshape(
                len(members), *(n if i in kept else 1 for i, n in enumerate(shape))
            )
        out[_cells(layout, members)] = found.reshape(len(members), -1)
    return out


def _add_query(
    domain: Domain, layout: Layout, m: BoundMeasurement, sums: Buffer, precision: Buffer
) -> None:
    """What a measurement through a query tells about residuals: its least squares table, with the even part of its precision.

    Queries such as prefix sums tell some directions of a residual better than others; here each residual gets the harmonic
    mean over its directions, where the query tells all of them.
    """
    shape, cells = domain.shape_of(m.clique), domain.size(m.clique)
    if cells > DENSE:
        return
    matrix = m.query.apply(np.eye(cells)) / m.stddev
    values, vectors = np.linalg.eigh(matrix.T @ matrix)
    seen = values > 1e-9 * max(values.max(), 1e-300)
    spread = vectors[:, seen] / np.sqrt(values[seen])
    table = (spread @ (spread.T @ (matrix.T @ (m.values / m.stddev)))).reshape(shape)
    for size in range(1, len(shape) + 1):
        for kept in combinations(range(len(shape)), size):
            dropped = tuple(i for i in range(len(shape)) if i not in kept)
            basis = vectors[:, ~seen].reshape(*shape, -1).sum(axis=dropped)
            if np.abs(centred(basis, len(kept))).max(initial=0.0) > 1e-6:
                continue  # some direction of this residual is not seen
            noise = centred(spread.reshape(*shape, -1).sum(axis=dropped), len(kept))
            dims = np.prod([shape[i] - 1 for i in kept])
            variance = float(np.square(noise).sum()) / max(dims, 1)
            if variance <= 0 or dims == 0:
                continue
            i = layout.index[tuple(m.clique[k] for k in kept)]
            part = centred(table.sum(axis=dropped), len(kept))
            sums[slice(*layout.offsets[i : i + 2])] += part.reshape(-1) / variance
            precision[i] += 1 / variance
