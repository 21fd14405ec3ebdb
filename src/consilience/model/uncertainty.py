"""The error of a number: one home for standard errors and intervals, wherever the number is shown.

Errors come in closed form where the fit is plain least squares (closed_form.py), and from replicates elsewhere (replicates.py):
the standard error is then their root mean square deviation from the model, so that it holds the bias that non-negativity, a
prior or a stopping rule brings. Intervals hold counts that cannot be negative, so they are unified ones (Feldman and Cousins
1998): a count that is clear of zero gets the usual two tails, one near zero has its whole error on one side. Two things are added
to what a count's own replicates say, because a count that is held at zero hardly moves in them:

- upwards the reach is at least the noise that the measurements leave on the number without non-negativity;
- downwards it is at most what empty cells of the same table rise to in replicates, so that a cell that rose higher is not called
  possibly empty.

Neither is for fits with latent classes: their replicates hold what classes leave open, in empty cells too, and their tables are
closer than least squares could be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import pi, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from consilience.domain import Buffer, Clique, Domain
from consilience.domain.levels import Level
from consilience.errors import ConsilienceError, DomainError, MeasurementError
from consilience.measurements import (
    Coarsened,
    Dense,
    Exact,
    Identity,
    Kronecker,
    Prefix,
    Query,
    Ranges,
    Sparse,
)
from consilience.measurements.structured import Permuted
from consilience.model.closed_form import ClosedForm, closed_form_holds
from consilience.model.impossible import mask_on
from consilience.model.replicates import Replicates, replicates_of
from consilience.progress import Progress

if TYPE_CHECKING:
    from consilience.model.model import Model

METHODS = ("auto", "closed-form", "bootstrap")
ONE_SIDED = 0.2
"""How fast an interval's lower tail goes from one side to two as a count moves away from zero, per standard error."""
EMPTY, ENOUGH, BEYOND, SHARE = 0.5, 400, 0.02, 0.5
"""A cell of fewer counts is empty; replicates of empty cells that say how far they rise; how much more often than the level;
how much of what a count lies above that is added to its reach. The last two were tuned (docs/uncertainty.md says on what)."""

PULLED_UP, PULLED_DOWN = 1.4, 1.0
"""Of the error that noise and place leave of a pulled cell; places have heavier tails than the pull takes them to have. Tuned on
seeds 7100 to 7102 of experiments/places.py and on generated places."""

Question = tuple[Clique, Query | None]
"""Attributes in some order, and what is asked of their table."""


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Errors of an answer, shaped like it: in counts, or in what the answer is in.

    stderr: for replicates the root mean square deviation from the model. bias: the mean deviation, zero in closed form.
    distance: the expected absolute error. least: the error that intervals reach up by at least. risen: what empty cells of
    the table rise to in replicates, in order, where there are enough of them. bounded: whether it cannot be negative.
    """

    answer: Buffer
    stderr: Buffer
    bias: Buffer
    distance: Buffer
    method: str
    replicates: int
    least: Buffer | None = None
    risen: Buffer | None = None
    least_down: Buffer | None = None
    """The error that intervals reach down by at least, if there is one."""
    cells: NDArray[np.bool_] | None = None
    """Which numbers are single cells of their table; None for all of them."""
    bounded: bool = True
    limits: tuple[Buffer, Buffer] | None = None
    """What is public about the least and the most that each number can be."""

    def interval(self, level: float = 0.9) -> tuple[Buffer, Buffer]:
        """(low, high) that hold the truth this often, as far as noise is what is uncertain."""
        low, high = self._by_noise(level)
        if self.limits is None:
            return low, high
        return np.maximum(low, self.limits[0]), np.minimum(high, self.limits[1])

    def _by_noise(self, level: float) -> tuple[Buffer, Buffer]:
        if not 0 < level < 1:
            raise ConsilienceError(f"level must be between 0 and 1, got {level}")
        both = self._multiple(0.5 + level / 2)
        up = self.stderr if self.least is None else np.maximum(self.stderr, self.least)
        high = self.answer + both * up
        if not self.bounded:
            return self.answer - both * self.stderr, high
        one = min(both, max(0.0, self._multiple(level)))
        spread = self.stderr
        if self.least_down is not None:
            spread = np.maximum(spread, self.least_down)
        away = np.divide(self.answer, spread, out=np.zeros_like(up), where=spread > 0)
        down = spread * np.clip(one + ONE_SIDED * (away - one), one, both)
        if self.risen is not None:
            top = float(np.quantile(self.risen, min(level + BEYOND, 0.5 + level / 2)))
            known = top + SHARE * np.maximum(self.answer - top, 0.0)
            closer = np.minimum(down, known)
            down = closer if self.cells is None else np.where(self.cells, closer, down)
        return np.maximum(self.answer - down, 0.0), high

    def _multiple(self, share: float) -> float:
        """The quantile of a normal error whose spread is known exactly, or from so many replicates."""
        if self.method == "closed-form":
            return float(ndtri(share))
        return float(stdtrit(self.replicates, share))


def at_attributes(domain: Domain, asked: Clique, query: Query | None) -> Question:
    """A question about levels as one about their attributes."""
    if not any(a in domain.levels for a in asked):
        return asked, query
    levels = tuple(domain.levels.get(a) for a in asked)
    names = tuple(a if v is None else v.attribute for a, v in zip(asked, levels, strict=True))
    of = Identity(domain.size(asked)) if query is None else query
    return names, Coarsened(domain.shape_of(names), levels, of)


def read_at(domain: Domain, table: Buffer, asked: Clique) -> Buffer:
    """A table over attributes in domain order as the one that was asked for: in that order, at those levels."""
    named = domain.named(asked)
    return domain.coarsened(table, named).transpose([named.index(a) for a in asked])


def _shaped(found: Uncertainty, query: Query | None) -> Uncertainty:
    """Tables at levels as tables; other answers are rows of numbers."""
    if not (isinstance(query, Coarsened) and isinstance(query.of, Identity)):
        return found
    shape = query.coarse

    def table(values: Any) -> Any:
        return None if values is None else values.reshape(shape)

    return replace(
        found,
        answer=table(found.answer),
        stderr=table(found.stderr),
        bias=table(found.bias),
        distance=table(found.distance),
        least=table(found.least),
        least_down=table(found.least_down),
        cells=table(found.cells),
    )


def deviations(answer: Buffer, found: Buffer, *, bounded: bool = False) -> Uncertainty:
    """The errors of any answer from what replicates say, replicate after replicate."""
    moved = found - answer
    return Uncertainty(
        answer,
        np.sqrt(np.square(moved).mean(axis=0)),
        moved.mean(axis=0),
        np.abs(moved).mean(axis=0),
        "bootstrap",
        len(found),
        bounded=bounded,
    )


def uncertainties(
    model: Model,
    asked: Sequence[Question],
    method: str,
    replicates: int | None,
    rng: np.random.Generator | int | None,
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
    formula = ClosedForm(model)
    if method == "closed-form":
        out = next((a for a, _ in asked if not model.in_model(a)), None)
        if out is not None:
            raise DomainError(
                f"some measured clique must contain {out} for a standard error with method={method!r}, none does; "
                "ask for method='bootstrap' (it refits, and holds the noise but not what inference assumes)"
            )
        formula.check()
    plain = method == "closed-form" or (method == "auto" and model.plain)
    direct = [plain and model.in_model(a) for a, _ in asked]
    cliques = [model.domain.clique(attributes) for attributes, _ in asked]
    listed = list(dict.fromkeys(cliques))
    own = dict(zip(listed, model.marginals(listed, progress=progress), strict=True))
    rest = {c: own[c] for c, d in zip(cliques, direct, strict=True) if not d}
    spread = _spread(model, replicates, rng, progress).tables(model, rest) if rest else {}
    found = [
        _closed_form(model, formula, own[c], *a)
        if d
        else _by_replicates(model, formula, own[c], *a, spread[c])
        for a, c, d in zip(asked, cliques, direct, strict=True)
    ]
    return [
        _limited(model, _shaped(certain(u) if _is_public(model, a) else u, a[1]), a)
        for u, a in zip(found, asked, strict=True)
    ]


def certain(found: Uncertainty) -> Uncertainty:
    """The same answer, known without error."""
    nothing = np.zeros_like(found.stderr)
    return replace(
        found,
        stderr=nothing,
        bias=nothing,
        distance=nothing,
        least=None,
        least_down=None,
        risen=None,
    )


def _is_public(model: Model, asked: Question) -> bool:
    """Whether the answer can be read off a marginal that is public and exact."""
    attributes, query = asked
    domain = model.domain
    levels = query.levels if isinstance(query, Coarsened) else (None,) * len(attributes)
    for control in () if model.fit is None else model.fit.controls:
        own = {domain.clique(a)[0]: domain.levels.get(a) for a in control.attributes}
        if isinstance(control, Exact) and all(
            a in own and _reads(own[a], v) for a, v in zip(attributes, levels, strict=True)
        ):
            return True
    return False


def _limited(model: Model, found: Uncertainty, asked: Question) -> Uncertainty:
    """With the ends of a range that is public about this very table."""
    attributes, query = asked
    if query is not None and not (isinstance(query, Coarsened) and isinstance(query.of, Identity)):
        return found
    levels = query.levels if isinstance(query, Coarsened) else (None,) * len(attributes)
    names = tuple(a if v is None else v.name for a, v in zip(attributes, levels, strict=True))
    for control in () if model.fit is None else model.fit.controls:
        if set(control.attributes) == set(names) and not isinstance(control, Exact):
            bound = control.bind(model.domain)
            axes = [bound.named.index(a) for a in names]
            return replace(found, limits=(bound.low.transpose(axes), bound.high.transpose(axes)))
    return found


def _reads(finer: Level | None, coarser: Level | None) -> bool:
    """Whether values at one level tell those at another; None is the attribute itself."""
    if finer is None:
        return True
    return coarser is not None and finer.parents(coarser) is not None


def replicated(
    model: Model, attributes: Clique, query: Query | None, progress: Progress
) -> tuple[Buffer, Buffer]:
    """An answer, and what every replicate says to the same question."""
    clique = model.domain.clique(attributes)
    (table,) = model.marginals([clique], progress=progress)
    tables = model.spread(progress).tables(model, {clique: table})[clique]
    own = _answered(model, attributes, query, table[None])[0]
    found = _answered(model, attributes, query, tables)
    # Simulated replicates may pass zero, and ratios of counts may not.
    if query is None or _adds_up(query):
        found = np.maximum(found, 0.0)
    if isinstance(query, Coarsened) and isinstance(query.of, Identity):
        return own.reshape(query.coarse), found.reshape(-1, *query.coarse)
    return own, found


def _spread(
    model: Model,
    replicates: int | None,
    rng: np.random.Generator | int | None,
    progress: Progress,
) -> Replicates:
    """The model's own replicates, unless others are asked for."""
    if replicates is None and rng is None:
        return model.spread(progress)
    fresh = np.random.default_rng(0 if rng is None else rng)
    return replicates_of(model, 50 if replicates is None else replicates, fresh, progress)


def _closed_form(
    model: Model, formula: ClosedForm, table: Buffer, attributes: Clique, query: Query | None
) -> Uncertainty:
    """table: the model's own, axes in domain order."""
    spread = formula.stderr(attributes, query)
    if spread is None:
        raise MeasurementError(
            f"closed-form standard errors need every part of {model.domain.clique(attributes)} measured, some of it is not; "
            "use method='bootstrap'"
        )
    spread = _sure_of_zeros(model, attributes, query, spread)
    distance = spread * sqrt(2 / pi)
    answer = _answered(model, attributes, query, table[None])[0]
    bounded = query is None or _adds_up(query)
    return Uncertainty(
        answer, spread, np.zeros_like(spread), distance, "closed-form", 0, bounded=bounded
    )


def _by_replicates(
    model: Model,
    formula: ClosedForm,
    table: Buffer,
    attributes: Clique,
    query: Query | None,
    tables: Buffer,
) -> Uncertainty:
    """tables: every replicate's, axes in domain order as those of the model's own."""
    clique = model.domain.clique(attributes)
    empty = table < EMPTY
    allowed = mask_on(model.domain, model.masks, clique)
    if allowed is not None:
        empty &= allowed
    risen = tables[:, empty].reshape(-1)
    answer = _answered(model, attributes, query, table[None])[0]
    made = deviations(answer, _answered(model, attributes, query, tables))
    own = model.mixture is None
    least = formula.stderr(attributes, query) if own and model.in_model(clique) else None
    pulled = formula.pulled(attributes, query) if own else None
    down = None
    if pulled is not None:  # a cell next to nothing hardly moves in refits, and may well be nothing
        least = PULLED_UP * (pulled if least is None else np.minimum(pulled, least))
        down = PULLED_DOWN / PULLED_UP * least
    return replace(
        made,
        least=None if least is None else _sure_of_zeros(model, attributes, query, least),
        least_down=down,
        risen=np.sort(risen) if own and down is None and risen.size >= ENOUGH else None,
        cells=None if query is None else _single_cells(query),
        bounded=query is None or _adds_up(query),
    )


def _answered(model: Model, attributes: Clique, query: Query | None, tables: Buffer) -> Buffer:
    """The answers that tables give, one after the other; their axes are in domain order."""
    clique = model.domain.clique(attributes)
    turned = tables.transpose(0, *[1 + clique.index(a) for a in attributes])
    if query is None:
        return turned
    flat = np.ascontiguousarray(turned).reshape(len(turned), -1)
    return query.apply(flat[0])[None] if len(flat) == 1 else query.apply(flat.T).T


def _sure_of_zeros(model: Model, attributes: Clique, query: Query | None, spread: Buffer) -> Buffer:
    """Nothing is uncertain about a combination that cannot occur."""
    clique = model.domain.clique(attributes)
    allowed = mask_on(model.domain, model.masks, clique)
    if allowed is None:
        return spread
    allowed = allowed.transpose([clique.index(a) for a in attributes])
    if query is None:
        return np.where(allowed, spread, 0.0)
    if not _adds_up(query):
        return spread
    some = query.apply(np.ascontiguousarray(allowed, np.float64).reshape(-1)) > 0
    return np.where(some, spread, 0.0)


def _adds_up(query: Query) -> bool:
    """Whether the answers are sums of counts with no negative weight, so that none of them can be negative."""
    match query:
        case Identity() | Prefix() | Ranges():
            return True
        case Dense():
            return bool((query.matrix >= 0).all())
        case Sparse():
            return bool((query.matrix.data >= 0).all())
        case Kronecker():
            return all(map(_adds_up, query.factors))
        case Permuted():
            return _adds_up(query.query)
        case Coarsened():
            return _adds_up(query.of)
    return False


def _single_cells(query: Query) -> NDArray[np.bool_]:
    """Which answers are one cell of the table."""
    match query:
        case Identity():
            return np.ones(query.rows, bool)
        case Dense():
            return (np.count_nonzero(query.matrix, axis=1) == 1) & (query.matrix.max(axis=1) == 1)
        case Sparse():
            ones = np.diff(query.matrix.indptr) == 1
            return ones & (np.asarray(query.matrix.max(axis=1).todense()).reshape(-1) == 1)
    return np.zeros(query.rows, bool)


__all__ = [
    "METHODS",
    "Question",
    "Uncertainty",
    "closed_form_holds",
    "deviations",
    "replicated",
    "uncertainties",
]
