"""Answers to questions: a number for each group with its error, what bins leave open, and what all of it rests on.

Every question is counts of one joint table, added up, and a function of them. The counts' errors are those of
`model/uncertainty.py`; a mean or a share is computed from every replicate's counts as from the model's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray
from scipy.sparse import csr_array

from consilience.data.schema import Schema
from consilience.data.within import Values
from consilience.errors import ConsilienceError
from consilience.markup import html_table
from consilience.measurements import Query, as_query
from consilience.model import Model
from consilience.model.frames import frame
from consilience.model.uncertainty import deviations
from consilience.progress import Progress, quiet
from consilience.release.conditions import Chosen, both
from consilience.release.numbers import (
    Numbers,
    aligned,
    bounds_of,
    compared_bounds,
    notes_on,
    over,
    quantile,
)
from consilience.release.questions import OF_NUMBERS, Measure, Question
from consilience.release.standard_errors import asked_of_models, has_errors

LEVEL = 0.9
"""Of the intervals in tables, answers and reports."""
WHAT_IT_HOLDS = "the error holds the noise and, of what was assumed beyond it, only what measured tables of the same size tell"
ERRORS = ("auto", "all", "none")
"""Errors as the folder keeps them, by refits where it keeps none, or not at all."""


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """One row per group: its labels, the number, its error and interval, and what the bins leave open.

    name: what the number is. bounds: the exact least and most that the number could be wherever in their bins the values are,
    None where nothing is binned. basis: what it rests on, in words; verdict: measured, inferred or assumed.
    """

    question: str
    name: str
    by: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    values: Numbers | NDArray[np.int64]
    stderr: Numbers | None
    low: Numbers | None
    high: Numbers | None
    bounds: tuple[Numbers, Numbers] | None
    verdict: str
    basis: str
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, Any]:
        """Labels, then numbers, column by column."""
        found: dict[str, Any] = {
            name: [row[i] for row in self.labels] for i, name in enumerate(self.by)
        }
        found[self.name] = self.values
        parts = {"stderr": self.stderr, "low": self.low, "high": self.high}
        found |= {k: v for k, v in parts.items() if v is not None}
        if self.bounds is not None:
            found |= {"at_least": self.bounds[0], "at_most": self.bounds[1]}
        return found

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Plain values, with None for an error that there is not, and for a number of nobody."""
        columns = {"stderr": None, "low": None, "high": None} | self.columns
        order = [*self.by, self.name, *(k for k in columns if k not in (*self.by, self.name))]
        return [{k: _plain(columns[k], i) for k in order} for i in range(len(self.values))]

    def to_arrow(self) -> pyarrow.Table:
        return pyarrow.table({k: pyarrow.array(v) for k, v in self.columns.items()})

    def to_frame(self) -> Any:
        """A frame of pandas or Polars, whichever is there, else of Arrow."""
        return frame(self.columns)

    def __repr__(self) -> str:
        return f"Answer({self.question!r}: {len(self.values)} numbers, {self.basis})"

    def _repr_html_(self) -> str:
        shown = [
            [_shown(v) for v in row.values() if v is not None] for row in self.rows[:MOST_SHOWN]
        ]
        left = len(self.values) - len(shown)
        note = f"{self.basis}" + (f"; {left:,} more rows" if left else "")
        return html_table(self.question, shown, list(self.columns), note=note)


MOST_SHOWN = 60
"""Rows of an answer in a notebook."""


def _plain(column: Any, i: int) -> Any:
    value = None if column is None else column[i]
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, np.integer):
        return int(value)
    return float(value) if np.isfinite(value) else None


def _shown(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


# -- answering ---------------------------------------------------------------------------------------


def answer(
    model: Model,
    schema: Schema,
    question: Question,
    stated: str = "auto",
    progress: Progress = quiet,
    *,
    errors: str = "auto",
    level: float = LEVEL,
) -> Answer:
    """The answer of a model. stated: how its folder finds errors. errors: "none" leaves them out, "all" refits the model for
    those that the folder does not keep.
    """
    if errors not in ERRORS:
        raise ConsilienceError(f"errors must be one of {', '.join(ERRORS)}, got {errors!r}")
    method = "none" if errors == "none" else stated
    wanted = _Wanted(model, schema, question, method, progress, refit=errors == "all")
    groups = wanted.groups
    if question.measure.kind == "count":
        return _counts(wanted, groups, level)
    found = wanted.measured(question.measure, question.where)
    notes = [*found.notes]
    stderr = low = high = None
    if found.replicates is not None:
        made = deviations(found.value, found.replicates)
        stderr = made.stderr
        low, high = made.interval(level)
        low, high = np.maximum(low, found.least), np.minimum(high, found.most)
    elif errors != "none":
        notes.append(wanted.why_no_errors())
    verdict, basis = wanted.basis()
    if stderr is not None and verdict != "measured":
        notes.append(WHAT_IT_HOLDS)
    name = question.measure.kind
    return Answer(
        question.text, name, question.by, groups.labels, found.value, stderr, low, high, found.bounds,
        verdict, basis, tuple(dict.fromkeys(notes)),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Groups:
    """The groups of a question: their labels, and for each column which group its codes belong to."""

    bases: tuple[str, ...]
    codes: tuple[NDArray[np.int64], ...]
    shape: tuple[int, ...]
    labels: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, schema: Schema, by: Sequence[str], where: Chosen) -> _Groups:
        levels = schema.domain.levels
        bases, codes, shown = [], [], []
        for name in by:
            base = levels[name].attribute if name in levels else name
            size, labels = len(schema[base].labels), schema.labels[name]
            units = levels[name].units if name in levels else np.arange(size)
            kept = np.array(where.get(base, range(size)), np.int64)
            groups, place = np.unique(units[kept], return_inverse=True)
            own = np.full(size, -1)
            own[kept] = place
            shown.append([labels[g] for g in groups])
            bases.append(base)
            codes.append(own)
        shape = tuple(len(s) for s in shown)
        rows = [tuple(s[c] for s, c in zip(shown, cell, strict=True)) for cell in np.ndindex(shape)]
        return cls(tuple(bases), tuple(codes), shape, tuple(rows))


@dataclass(frozen=True, eq=False)
class _Found:
    """A number per group: by the model, by each replicate, and the bounds that bins leave."""

    value: Numbers
    replicates: Numbers | None
    bounds: tuple[Numbers, Numbers] | None = None
    notes: tuple[str, ...] = ()
    least: float = -np.inf
    most: float = np.inf


class _Wanted:
    """What answering a question needs; remembers which attributes were read together."""

    def __init__(
        self,
        model: Model,
        schema: Schema,
        question: Question,
        stated: str,
        progress: Progress,
        *,
        refit: bool,
    ) -> None:
        self.model, self.schema, self.question = model, schema, question
        self.stated, self.progress, self.refit = stated, progress, refit
        self.groups = _Groups.of(schema, question.by, question.where)
        self.read: dict[tuple[str, ...], None] = {}

    def method(self, joint: tuple[str, ...], *, counts: bool = False) -> str | None:
        """How errors are found; None where there are none. counts: of counts alone, for which the closed form will do."""
        if has_errors(self.model, joint, self.stated) and (counts or self.stated != "closed-form"):
            return asked_of_models(self.stated)
        return "auto" if self.refit and self.model.measurements else None

    # -- counts --------------------------------------------------------------------------------------

    def query(
        self, where: Chosen, parts: Mapping[str, NDArray[np.int64]], count: int
    ) -> tuple[tuple[str, ...], Query]:
        """The joint table and the sums of its cells: one per group and part. parts: {column: the part of each code, -1 for
        none}, multiplied together where there are several columns.
        """
        domain, groups = self.model.domain, self.groups
        # A condition that everything meets does not widen the table: the same number is read off the same one.
        narrow = {a: kept for a, kept in where.items() if len(kept) < domain[a]}
        joint = domain.clique({*groups.bases, *narrow, *parts})
        self.read[joint] = None
        shape = domain.shape_of(joint)
        rows, outside = np.zeros(shape, np.int64), np.zeros(shape, bool)

        def along(values: NDArray[Any], name: str) -> NDArray[Any]:
            axis = joint.index(name)
            return values.reshape([-1 if i == axis else 1 for i in range(len(joint))])

        for base, codes, size in zip(groups.bases, groups.codes, groups.shape, strict=True):
            rows, outside = rows * size + along(codes, base), outside | (along(codes, base) < 0)
        part = np.zeros(shape, np.int64)
        for name, codes in parts.items():
            part, outside = part + along(codes, name), outside | (along(codes, name) < 0)
        rows = rows * count + part
        for name, kept in narrow.items():
            outside = outside | along(~np.isin(np.arange(domain[name]), kept), name)
        cells = np.flatnonzero(~outside.reshape(-1))
        adds = (np.ones(cells.size), (rows.reshape(-1)[cells], cells))
        total = count * int(np.prod(groups.shape, dtype=np.int64))
        return joint, as_query(csr_array(adds, shape=(total, rows.size)))

    def counts(
        self, where: Chosen, parts: Mapping[str, NDArray[np.int64]], count: int
    ) -> tuple[Numbers, Numbers | None]:
        """(groups x parts, replicates x groups x parts) people."""
        joint, query = self.query(where, parts, count)
        shape = (-1, count)
        if self.method(joint) is None:
            return self.model.answer(joint, query).reshape(shape), None
        own, drawn = self.model.replicated(joint, query, progress=self.progress)
        return own.reshape(shape), drawn.reshape(len(drawn), *own.reshape(shape).shape)

    # -- measures ------------------------------------------------------------------------------------

    def measured(self, measure: Measure, where: Chosen) -> _Found:
        if measure.of is not None:
            return self._compared(measure, measure.of, where)
        if measure.kind == "share":
            if measure.condition is None:
                return self._share_within(measure.within, where)
            return self._share(measure.condition, where)
        if measure.kind in OF_NUMBERS:
            return self._of_numbers(measure, where)
        own, drawn = self.counts(where, {}, 1)
        return _Found(own[:, 0], None if drawn is None else drawn[:, :, 0], least=0.0)

    def _share(self, condition: Chosen, where: Chosen) -> _Found:
        domain = self.model.domain
        if len(condition) == 1:
            ((name, kept),) = condition.items()
            parts = {name: np.isin(np.arange(domain[name]), kept).astype(np.int64)}
            own, drawn = self.counts(where, parts, 2)
            yes = [None if x is None else (x[..., 1], x.sum(axis=-1)) for x in (own, drawn)]
        else:
            met, everybody = (self.counts(w, {}, 1) for w in (both(where, condition), where))
            one, of = aligned(met[1], everybody[1])
            yes = [
                (met[0][:, 0], everybody[0][:, 0]),
                None if one is None or of is None else (one[..., 0], of[..., 0]),
            ]
        value, drawn = (None if y is None else over(*y) for y in yes)
        assert value is not None
        return _Found(value, drawn, least=0.0, most=1.0)

    def _share_within(self, names: tuple[str, ...], where: Chosen) -> _Found:
        """Each group's share of all groups that have its labels in these columns."""
        shape, by = self.groups.shape, self.question.by
        summed = tuple(i - len(by) for i, name in enumerate(by) if name not in names)

        def share(counts: Numbers) -> Numbers:
            cells = counts.reshape(*counts.shape[:-1], *shape)
            return over(cells, cells.sum(axis=summed, keepdims=True)).reshape(counts.shape)

        own, drawn = self.counts(where, {}, 1)
        replicates = None if drawn is None else share(drawn[..., 0])
        return _Found(share(own[:, 0]), replicates, least=0.0, most=1.0)

    def _of_numbers(self, measure: Measure, where: Chosen) -> _Found:
        values = Values.of(self.schema[measure.column])
        numbers = len(values.codes)
        codes = np.full(self.model.domain[measure.column], numbers)  # the last part has no number
        codes[list(values.codes)] = np.arange(numbers)
        kept = where.get(measure.column)
        asked, drawn = self.counts(where, {measure.column: codes}, numbers + 1)
        own, drawn = asked[..., :-1], None if drawn is None else drawn[..., :-1]
        find: Callable[[Numbers], Numbers] = {
            "mean": lambda n: over((n * values.means(n)).sum(axis=-1), n.sum(axis=-1)),
            "sum": lambda n: (n * values.means(n)).sum(axis=-1),
        }.get(measure.kind, lambda n: quantile(values, n, measure.level))
        used = range(len(values.codes)) if kept is None else np.flatnonzero(np.isin(values.codes, kept))  # fmt: skip
        ends = [float(values.first[used].min()), float(values.last[used].max())]
        if measure.kind == "sum":
            ends = [-np.inf, np.inf]
        return _Found(
            find(own),
            None if drawn is None else find(drawn),
            bounds_of(values, own, measure) if (values.last > values.first).any() else None,
            notes_on(values, own, kept, max(0.0, 1 - own.sum() / max(asked.sum(), 1e-300))),
            *ends,
        )

    def _compared(self, measure: Measure, of: Measure, where: Chosen) -> _Found:
        first, second = (self.measured(of, both(where, g)) for g in measure.groups)
        one, two = aligned(first.replicates, second.replicates)
        ratio = measure.kind == "ratio"
        drawn = None
        if one is not None and two is not None:
            drawn = over(one, two) if ratio else one - two
        value = over(first.value, second.value) if ratio else first.value - second.value
        ends = None
        if first.bounds is not None and second.bounds is not None:
            ends = compared_bounds(first.bounds, second.bounds, ratio)
        return _Found(value, drawn, ends, (*first.notes, *second.notes))

    # -- words ---------------------------------------------------------------------------------------

    def basis(self) -> tuple[str, str]:
        """The weakest verdict of what was read, and every basis in words."""
        found = [self.model.basis(c) for c in self.read if c]
        if not found:
            return "measured", "measured together"
        order = ("measured", "inferred", "assumed")
        worst = max((b.verdict for b in found), key=order.index)
        return worst, "; ".join(dict.fromkeys(str(b) for b in found if b.verdict == worst))

    def why_no_errors(self) -> str:
        if not self.model.measurements:
            return "no standard error: choices were published, not counts with known noise"
        if self.stated == "none":
            return "no standard error: none was asked for, or the release was made without"
        return "no standard error: the release has those of measured counts alone, in closed form (all, by refits: errors all)"


def _counts(wanted: _Wanted, groups: _Groups, level: float) -> Answer:
    question, model = wanted.question, wanted.model
    joint, query = wanted.query(question.where, {}, 1)
    stderr = low = high = None
    notes: tuple[str, ...] = ()
    method = wanted.method(joint, counts=True)
    if method is not None:
        found = model.uncertainty(joint, query, method=method, progress=wanted.progress)
        values, stderr = found.answer, found.stderr
        low, high = found.interval(level)
    else:
        values, notes = model.answer(joint, query), (wanted.why_no_errors(),)
    if model.is_whole(joint):
        values = values.astype(np.int64)
    verdict, basis = wanted.basis()
    if stderr is not None and verdict != "measured":
        notes = (WHAT_IT_HOLDS,)
    return Answer(
        question.text, "count", question.by, groups.labels, values, stderr, low, high, None,
        verdict, basis, notes,
    )  # fmt: skip
