"""Standard errors of least squares under local consistency, in closed form: what they are where no cell is held at zero.

Least squares under local consistency is diagonal in the residual basis. Component t (one per attribute subset) has precision
p_t = sum over measured a containing t and tied on t of 1 / (sigma_a^2 n_{a\\t}), its covariance is C_t / p_t with C_t the
projection that centres along every axis of t, and a table on g is the sum of its components t spread over g:

    Var(q . x_g) = sum_{t in g} ||C_t (q summed down to t)||^2 / (p_t n_{g\\t}^2),

for q a single cell: prod_{i in t} (1 - 1/n_i) / (p_t n_{g\\t}^2). The empty t is the total: no variance when it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import chain, combinations
from math import inf, prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

from consilience.domain import Buffer, Clique
from consilience.errors import ConsilienceError, MeasurementError
from consilience.measurements import (
    BoundMeasurement,
    Coarsened,
    Identity,
    Query,
    bound_controls,
)
from consilience.regions import Kind
from consilience.solvers.place_reading import PARENT, place_stderr, pulled_stderr, read_tree

if TYPE_CHECKING:
    from consilience.model.model import Model

CLEAR_OF_ZERO = 3.0
"""The closed form is taken where every cell of the model is this many standard errors above zero."""
MOST_ENTRIES = 1 << 22
"""Entries of a query that are written out at a time."""


def closed_form_holds(model: Model) -> bool:
    """Whether the fit is plain least squares: identity queries, no prior, no cell near zero, everything determined; and nobody
    asked for simulated errors.
    """
    fit = model.fit
    if model.replicates is not None and model.replicates.simulated:
        return False
    if fit is None or not fit.closed_form or fit.stated or _first_query(model) is not None:
        return False
    precision = _Precisions(model)
    for i in model.graph.roots:
        region = model.graph.regions[i]
        if precision.measured.isdisjoint(region):
            continue  # nothing measured says anything about it
        variance = _cell_variance(model, precision, region, region)
        least = float(model.tau[region].min()) * model.total
        if not least >= CLEAR_OF_ZERO * sqrt(variance):
            return False
    return True


class ClosedForm:
    """The standard errors of least squares on the measurements of a model, whatever the fit."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._whole = _first_query(model) is None
        self._precision = _Precisions(model)

    def check(self) -> None:
        """Refuse a model whose errors these are not."""
        through = _first_query(self.model)
        if through is not None and not self._is_tree():
            raise MeasurementError(
                f"closed-form standard errors need measurements of whole tables, got a query on {through.clique}; "
                "use method='bootstrap'"
            )
        fit = self.model.fit
        if fit is None or not fit.closed_form:
            name = "an estimator that is not known" if fit is None else type(fit).__name__
            raise ConsilienceError(
                f"closed-form standard errors are those of least squares, got a model by {name}; use method='bootstrap'"
            )

    def stderr(self, attributes: Clique, query: Query | None) -> Buffer | None:
        """One per number of an answer in the model; None where nothing measured determines it, or queries other than sums by
        levels were measured.
        """
        if not self._whole:
            return self._on_places(attributes, query)
        model = self.model
        clique = model.domain.clique(attributes)
        region = model.region_of(clique)
        if query is None or isinstance(query, Identity):
            variance = _cell_variance(model, self._precision, clique, region)
            shape = model.domain.shape_of(attributes) if query is None else query.rows
            spread = np.full(shape, variance)
        else:
            spread = _query_variance(model, self._precision, attributes, region, query)
        return np.sqrt(spread) if np.isfinite(spread).all() else None

    def _is_tree(self) -> bool:
        model = self.model
        controls = bound_controls(model.domain, () if model.fit is None else model.fit.controls)
        return read_tree(model.domain, model.measurements, controls) is not None

    def _on_places(self, attributes: Clique, query: Query | None) -> Buffer | None:
        """Of a table at levels where what was measured is a tree of places."""
        return self._read(place_stderr, attributes, query)

    def pulled(self, attributes: Clique, query: Query | None) -> Buffer | None:
        """Of a table of the smallest places, where those were pulled towards the place above."""
        model = self.model
        if model.diagnostics.prior != PARENT or len(model.graph.root_cliques) != 1:
            return None
        table = model.total * model.tau[model.graph.root_cliques[0]]
        return self._read(pulled_stderr, attributes, query, table)

    def _read(
        self, stderr: Callable[..., Buffer | None], attributes: Clique, query: Query | None, *more: Buffer
    ) -> Buffer | None:  # fmt: skip
        model = self.model
        if query is not None and not (
            isinstance(query, Coarsened) and isinstance(query.of, Identity)
        ):
            return None
        levels = query.levels if isinstance(query, Coarsened) else (None,) * len(attributes)
        asked = tuple(a if v is None else v.name for a, v in zip(attributes, levels, strict=True))
        if len(model.graph.root_cliques) != 1:
            return None
        controls = bound_controls(model.domain, () if model.fit is None else model.fit.controls)
        region = model.graph.root_cliques[0]
        found = stderr(model.domain, model.measurements, controls, region, asked, *more)
        return found if found is None or query is None else found.reshape(-1)


def _first_query(model: Model) -> BoundMeasurement | None:
    first = min(model.measurements.queries, default=None)
    return None if first is None else model.measurements[first]


class _Precisions:
    """p_t in count scale for component t as region r sees it: what is measured on regions tied to r on t."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.domain = model.domain
        self.everywhere = model.graph.kind in (Kind.SATURATED, Kind.JUNCTION_TREE)
        self.cliques = model.measurements.cliques
        self.weights = np.square(model.measurements.stddevs) * self.cliques.sizes
        self.known: dict[tuple[Clique, int], float] = {}

    def of(self, t: Clique, region: int) -> float:
        key = (t, -1 if self.everywhere or not t else region)
        if key not in self.known:
            self.known[key] = self._compute(t, region)
        return self.known[key]

    def _compute(self, t: Clique, region: int) -> float:
        if not t and self.model.total_known:
            return inf
        found = sorted(self.cliques.holders.of(t))
        if t and not self.everywhere:
            tied = self._tied(frozenset(t), region)
            found = [j for j in found if self._homes[j] in tied]
        return sum((self.domain.size(t) / self.weights[found]).tolist())

    @cached_property
    def measured(self) -> frozenset[str]:
        """The attributes that something was measured of."""
        return frozenset(self.domain.attributes[i] for i in np.unique(self.cliques.sets.flat))

    @cached_property
    def _homes(self) -> list[int]:
        """The region of each measurement, -1 for the total."""
        place = self.model.graph.regions.places
        return [place[self.model.region_of(c)] if c else -1 for c in self.cliques]

    @cached_property
    def _near(self) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for p, c in self.model.graph.edge_array.tolist():
            found.setdefault(p, []).append((c, c))
            found.setdefault(c, []).append((p, c))
        return found

    def _tied(self, inside: frozenset[str], region: int) -> set[int]:
        """The regions that the graph's edges tie to this one on these attributes."""
        seen, todo = {region}, [region]
        while todo:
            for other, child in self._near.get(todo.pop(), []):
                if other not in seen and inside.issubset(self.model.graph.regions[child]):
                    seen.add(other)
                    todo.append(other)
        return seen


def _subsets(clique: Clique) -> Iterable[Clique]:
    return chain.from_iterable(combinations(clique, k) for k in range(len(clique) + 1))


def _cell_variance(model: Model, precision: _Precisions, clique: Clique, region: Clique) -> float:
    domain = model.domain
    place = model.graph.regions.places.get(region, -1)
    variance = 0.0
    for t in _subsets(clique):
        p = precision.of(t, place)
        spread = domain.size(clique) / domain.size(t)
        share = prod(1 - 1 / domain[a] for a in t)
        if share > 0:
            variance += share / (p * spread**2) if p > 0 else inf
    return variance


def _query_variance(
    model: Model, precision: _Precisions, attributes: Clique, region: Clique, query: Query
) -> Buffer:
    """Row by row; the table's axes are in the order asked for."""
    step = max(1, MOST_ENTRIES // query.cells)
    found = []
    for lo in range(0, query.rows, step):
        chosen = np.eye(query.rows, min(step, query.rows - lo), -lo)
        found.append(_rows_variance(model, precision, attributes, region, query.adjoint(chosen)))
    return np.concatenate(found)


def _rows_variance(
    model: Model, precision: _Precisions, attributes: Clique, region: Clique, rows: Buffer
) -> Buffer:
    domain, count = model.domain, rows.shape[1]
    rows = rows.reshape(*domain.shape_of(attributes), count)
    place = model.graph.regions.places.get(region, -1)
    variance = np.zeros(count)
    for t in _subsets(attributes):
        dropped = tuple(i for i, a in enumerate(attributes) if a not in t)
        part = rows.sum(axis=dropped, keepdims=True)
        for i in range(len(attributes)):
            if i not in dropped:
                part = part - part.mean(axis=i, keepdims=True)
        length = np.square(part).reshape(-1, count).sum(axis=0)
        p = precision.of(domain.clique(t), place)
        spread = domain.size(attributes) / domain.size(t)
        present = length > 1e-24
        variance[present] += length[present] / (p * spread**2) if p > 0 else inf
    return variance
