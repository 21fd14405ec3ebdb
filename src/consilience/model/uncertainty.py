"""Standard errors of in-model answers: in closed form where non-negativity is inactive, else by parametric bootstrap.

Least squares under local consistency is diagonal in the residual basis. Component t (one per attribute subset) has precision
p_t = sum over measured a containing t and tied on t of 1 / (sigma_a^2 n_{a\\t}), its covariance is C_t / p_t with C_t the
projection that centres along every axis of t, and a table on g is the sum of its components t spread over g:

    Var(q . x_g) = sum_{t in g} ||C_t (q summed down to t)||^2 / (p_t n_{g\\t}^2),

for q a single cell: prod_{i in t} (1 - 1/n_i) / (p_t n_{g\\t}^2). The empty t is the total: no variance when it is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations, pairwise
from math import inf, prod, sqrt
from typing import TYPE_CHECKING

import numpy as np

from consilience.domain import Buffer, Clique
from consilience.domain.moves import cells_of
from consilience.errors import ConsilienceError, DomainError, MeasurementError
from consilience.measurements import BoundMeasurement, Measurements, Query
from consilience.measurements.measurements import NOISES
from consilience.progress import Progress, Step
from consilience.regions import Kind

if TYPE_CHECKING:
    from consilience.model.fit import Fit
    from consilience.model.model import Model

METHODS = ("auto", "closed-form", "bootstrap")
CLEAR_OF_ZERO = 3.0
"""The closed form is taken where every cell of the model is this many standard errors above zero."""
LOOSEST = 1e-4
"""Refits stop at this relative gap: the fit is then within a hundredth of the noise."""

Question = tuple[Clique, Query | None]


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Standard errors in counts, shaped like the answer, and where they come from.

    For the bootstrap `stderr` is the root mean square deviation of refits around the model, so that it holds the bias that
    non-negativity (or a prior) brings; `bias` is the mean deviation alone. In closed form the bias is zero.
    """

    stderr: Buffer
    bias: Buffer
    method: str
    replicates: int


def uncertainties(
    model: Model,
    asked: Sequence[Question],
    method: str,
    replicates: int,
    rng: np.random.Generator | int,
    progress: Progress,
) -> list[Uncertainty]:
    """One `Uncertainty` per asked answer (attributes in the order asked for, query or None for the table)."""
    if method not in METHODS:
        raise ConsilienceError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if not model.measurements:
        raise MeasurementError(
            "a standard error needs measurements with noise of a known width, the model has none (FEM and DualQuery release "
            "choices of cells); where it is wanted, measure tables, with AIM or HDMM for example"
        )
    out = next((a for a, _ in asked if not model.in_model(a)), None)
    if out is not None and method != "bootstrap":
        raise DomainError(
            f"some measured clique must contain {out} for a standard error with method={method!r}, none does; "
            "ask for method='bootstrap' (it refits, and holds the noise but not what inference assumes)"
        )
    if method == "auto":
        method = "closed-form" if closed_form_holds(model) else "bootstrap"
    if method == "closed-form":
        return [_closed_form(model, attributes, query) for attributes, query in asked]
    return _bootstrap(model, asked, replicates, np.random.default_rng(rng), progress)


def reach_of(model: Model, attributes: Clique, found: Uncertainty) -> Buffer:
    """The standard error that an interval is built on: near zero the bootstrap's alone is too short.

    A cell that the fit holds at zero hardly moves in refits, though the data would allow it a count of about its own noise. So
    where the closed form exists as well, the larger of the two is taken.
    """
    if found.method == "closed-form" or not _least_squares(model):
        return found.stderr
    clique = model.domain.clique(attributes)
    variance = _cell_variance(model, _Precisions(model), clique, model.region_of(clique))
    return np.maximum(found.stderr, sqrt(variance)) if np.isfinite(variance) else found.stderr


# -- closed form -------------------------------------------------------------------------------------


def closed_form_holds(model: Model) -> bool:
    """Whether the fit is plain least squares: identity queries, no prior, no cell near zero, everything determined."""
    if not _least_squares(model):
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


def _closed_form(model: Model, attributes: Clique, query: Query | None) -> Uncertainty:
    through = _first_query(model)
    if through is not None:
        raise MeasurementError(
            f"closed-form standard errors need measurements of whole tables, got a query on {through.clique}; "
            "use method='bootstrap'"
        )
    if model.fit is None or not model.fit.closed_form:
        raise ConsilienceError(
            f"closed-form standard errors are those of least squares, got a model by {_name(model.fit)}; "
            "use method='bootstrap'"
        )
    clique = model.domain.clique(attributes)
    region = model.region_of(clique)
    precision = _Precisions(model)
    if query is None:
        variance = _cell_variance(model, precision, clique, region)
        spread = np.full(model.domain.shape_of(attributes), variance)
    else:
        spread = _query_variance(model, precision, attributes, region, query)
    if not np.isfinite(spread).all():
        raise MeasurementError(
            f"closed-form standard errors need every part of {clique} measured, some of it is not; use method='bootstrap'"
        )
    return Uncertainty(np.sqrt(spread), np.zeros_like(spread), "closed-form", 0)


def _name(fit: Fit | None) -> str:
    return "an estimator that is not known" if fit is None else type(fit).__name__


def _least_squares(model: Model) -> bool:
    """Whether the fit is least squares on whole tables, apart from non-negativity."""
    fit = model.fit
    plain = fit is not None and fit.closed_form and not fit.possible
    return plain and _first_query(model) is None


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
    domain = model.domain
    rows = query.adjoint(np.eye(query.rows))
    rows = rows.reshape(*domain.shape_of(attributes), query.rows)
    place = model.graph.regions.places.get(region, -1)
    variance = np.zeros(query.rows)
    for t in _subsets(attributes):
        dropped = tuple(i for i, a in enumerate(attributes) if a not in t)
        part = rows.sum(axis=dropped, keepdims=True)
        for i in range(len(attributes)):
            if i not in dropped:
                part = part - part.mean(axis=i, keepdims=True)
        length = np.square(part).reshape(-1, query.rows).sum(axis=0)
        p = precision.of(domain.clique(t), place)
        spread = domain.size(attributes) / domain.size(t)
        present = length > 1e-24
        variance[present] += length[present] / (p * spread**2) if p > 0 else inf
    return variance


# -- bootstrap ---------------------------------------------------------------------------------------


def _bootstrap(
    model: Model,
    asked: Sequence[Question],
    replicates: int,
    rng: np.random.Generator,
    progress: Progress,
) -> list[Uncertainty]:
    """Refit to the model's own answers under fresh noise of the same kind and scale."""
    if replicates < 2:
        raise ConsilienceError(f"replicates must be at least 2, got {replicates}")
    if model.fit is None:
        raise ConsilienceError(
            "a bootstrap needs the estimator of the model, which is not known; make the model with reconstruct"
        )
    fit = model.fit.coarser(LOOSEST)
    centres = [_answers(model, *a) for a in asked]
    squares = [np.zeros_like(c) for c in centres]
    sums = [np.zeros_like(c) for c in centres]
    exact = _expected(model)
    # Without its state, so that a model that was loaded gives the same errors as the one that was saved.
    warm = replace(model, state=None)
    for k in range(replicates):
        drawn = _redrawn(model.measurements, exact, rng)
        refit = fit(model.domain, drawn, model.total if model.total_known else None, warm=warm)
        warm = refit
        for i, a in enumerate(asked):
            moved = _answers(refit, *a) - centres[i]
            squares[i] += np.square(moved)
            sums[i] += moved
        progress(Step("refits", k + 1, replicates))
    return [
        Uncertainty(np.sqrt(s / replicates), m / replicates, "bootstrap", replicates)
        for s, m in zip(squares, sums, strict=True)
    ]


def _answers(model: Model, attributes: Clique, query: Query | None) -> Buffer:
    return model.marginal(attributes) if query is None else model.answer(attributes, query)


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
