"""compare: the same measurements through every reconstruction, judged by one yardstick, as values and as a table for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import isnan
from time import perf_counter

import numpy as np

from consilience.baselines import Answers, Tables, priview, relaxed_projection
from consilience.baselines.priview import Views
from consilience.domain import Buffer, Clique, CliqueVector, Domain
from consilience.errors import ConsilienceError, DomainError, MeasurementError
from consilience.fits import LeastSquares, NormCut, Shrunk
from consilience.markup import html_table
from consilience.measurements import BoundMeasurement, Measurement, Measurements, SquaredLoss
from consilience.progress import Progress, Step

COLUMNS = (
    ("total_variation", "total variation", ".5f"),
    ("validation", "validated RMSE", ".4g"),
    ("objective", "objective", ".6g"),
    ("violation", "violation", ".1e"),
    ("negative", "negative mass", ".1e"),
    ("seconds", "seconds", ".2f"),
)
"""Field, heading, format; a column without any number is not shown."""


@dataclass(frozen=True)
class Row:
    """One reconstruction. Numbers that could not be had are NaN; `refused` says why there are none at all."""

    method: str
    total_variation: float = float("nan")
    """Mean over the measured cliques of half the L1 distance to the truth, as a share of the total."""
    validation: float = float("nan")
    """Root mean squared distance, in counts, to noise that was held back by thinning, less that noise."""
    objective: float = float("nan")
    """1/2 sum ||Q x - y||^2 / sigma^2 of the answers, the same for every method."""
    violation: float = float("nan")
    """Largest L1 distance between answers on what two measured cliques share, as a share of the total."""
    negative: float = float("nan")
    """Mean over the measured cliques of the mass below zero, as a share of the total."""
    seconds: float = float("nan")
    refused: str = ""

    @property
    def done(self) -> bool:
        return not self.refused


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What several reconstructions made of the same measurements; `answers` holds those that were made."""

    rows: tuple[Row, ...]
    answers: Mapping[str, Answers]
    cliques: int
    cells: int
    total: float

    def __getitem__(self, method: str) -> Row:
        found = next((r for r in self.rows if r.method == method), None)
        if found is None:
            raise ConsilienceError(
                f"the method must be one of {', '.join(r.method for r in self.rows)}, got {method!r}"
            )
        return found

    def _shown(self) -> list[tuple[str, str, str]]:
        """The columns with a number in them."""
        return [
            (field, head, form)
            for field, head, form in COLUMNS
            if any(not isnan(getattr(r, field)) for r in self.rows)
        ]

    def _repr_html_(self) -> str:
        shown = self._shown()
        rows = []
        for r in self.rows:
            values = [(getattr(r, field), form) for field, _, form in shown]
            rows.append([r.method, *("-" if isnan(v) else format(v, f) for v, f in values)])
        title = f"Comparison on {self.cliques} measured cliques, {self.cells:,} cells, total {self.total:,.6g}"
        refused = "; ".join(f"{r.method}: {r.refused}" for r in self.rows if not r.done)
        return html_table(title, rows, ("method", *(h for _, h, _ in shown)), note=refused)

    def __repr__(self) -> str:
        shown = self._shown()
        lines = [["method", *(head for _, head, _ in shown)]]
        for r in self.rows:
            values = [getattr(r, field) for field, _, _ in shown]
            lines.append(
                [r.method]
                + [
                    "-" if isnan(v) else format(v, f)
                    for v, (_, _, f) in zip(values, shown, strict=True)
                ]
            )
        wide = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        text = [
            f"Comparison on {self.cliques} measured cliques, {self.cells:,} cells, total {self.total:,.6g}"
        ]
        for r, line in zip((None, *self.rows), lines, strict=True):
            cells = [
                line[0].ljust(wide[0]),
                *(c.rjust(w) for c, w in zip(line[1:], wide[1:], strict=True)),
            ]
            text.append(
                "  ".join(cells).rstrip() if r is None or r.done else f"{cells[0]}  {r.refused}"
            )
        return "\n".join(text)


Method = Callable[[Domain, Measurements, float], Answers]
"""Any `Fit`, any baseline, any function from measurements and a total to answers."""


def noisy(domain: Domain, measurements: Measurements, total: float) -> Answers:
    """The measured tables as they are, several of one clique averaged by their precision."""
    part = SquaredLoss(domain, measurements, total).separable()
    if part.rest:
        raise MeasurementError(
            f"noisy answers need whole tables, got a query on {part.rest[0].clique}; leave 'noisy' out"
        )
    views = Views(domain, part.targets.cliques, part.weights)
    violation = views.disagreement(views.enter(part.targets), 1.0)
    return Tables(part.targets * total, total, "noisy tables", 0, violation)


KNOWN: Mapping[str, Method] = {
    "noisy": noisy,
    "global": LeastSquares(consistency="global"),
    "local": LeastSquares(consistency="local"),
    "factor": LeastSquares(consistency="factor"),
    "prior": Shrunk(),
    "norm-cut": NormCut(),
    "priview": priview,
    "priview-norm-sub": partial(priview, nonnegativity="norm-sub"),
    "relaxed_projection": relaxed_projection,
}
METHODS = (
    "noisy",
    "global",
    "local",
    "factor",
    "prior",
    "norm-cut",
    "priview",
    "relaxed_projection",
)
"""What is compared unless something else is asked for."""
NAN = float("nan")


def compare(
    domain: Domain,
    measurements: Iterable[Measurement] | Measurements,
    *,
    total: float | None = None,
    truth: CliqueVector | None = None,
    methods: Iterable[str] | Mapping[str, Method] = METHODS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """One row per reconstruction of the same measurements; a refusal is a row that says why.

    total: number of records if public; None estimates it once, for all. truth: exact counts of the measured cliques
    (`Dataset.marginals`), for experiments; without it every method is fitted a second time to thinned measurements (noise added
    by `seed`, Gaussian noise only) and judged by what was held back. methods: names, or names with functions
    (domain, measurements, total) -> answers. progress sees each method as a stage.
    """
    columns = Measurements.of(domain, measurements)
    loss = SquaredLoss(domain, columns, total)
    chosen = _chosen(methods)
    _check_truth(truth, loss.cliques)
    halves = None if truth is not None else _thinned(loss.measurements, seed)
    rows: list[Row] = []
    answers: dict[str, Answers] = {}
    for number, (name, method) in enumerate(chosen.items()):
        if progress is not None:
            progress(Step(name, number, len(chosen)))
        began = perf_counter()
        try:
            found = method(domain, columns, loss.total)
        except ConsilienceError as why:
            rows.append(Row(name, refused=str(why)))
            continue
        seconds = perf_counter() - began
        answers[name] = found
        rows.append(
            Row(
                name,
                NAN if truth is None else _total_variation(found, truth, loss.cliques),
                NAN if halves is None else _validated(method, domain, halves, loss.total),
                _objective(found, loss.measurements),
                _violation(found, loss.cliques),
                _negative(found, loss.cliques),
                seconds,
            )
        )
    cells = sum(domain.size(c) for c in loss.cliques)
    return Comparison(tuple(rows), answers, len(loss.cliques), cells, loss.total)


def _chosen(methods: Iterable[str] | Mapping[str, Method]) -> dict[str, Method]:
    if isinstance(methods, Mapping):
        return dict(methods)
    names = [methods] if isinstance(methods, str) else list(methods)
    for name in names:
        if name not in KNOWN:
            raise ConsilienceError(
                f"methods must be among {', '.join(KNOWN)}, got {name!r}; give a mapping of names to functions for others"
            )
    if not names:
        raise ConsilienceError("at least one method must be given, got none")
    return {name: KNOWN[name] for name in names}


def _check_truth(truth: CliqueVector | None, cliques: Sequence[Clique]) -> None:
    missing = [] if truth is None else [c for c in cliques if c not in truth.layout.index]
    if missing:
        raise DomainError(
            f"the truth must hold every measured clique, got none for {missing[0]}; use data.marginals(cliques)"
        )


# -- yardsticks ----------------------------------------------------------------------------------------


def _total_variation(found: Answers, truth: CliqueVector, cliques: Sequence[Clique]) -> float:
    apart = [np.abs(found.marginal(c) - truth[c]).sum() / truth[c].sum() for c in cliques]
    return 0.5 * float(np.mean(apart))


def _objective(found: Answers, measurements: Sequence[BoundMeasurement]) -> float:
    return 0.5 * sum(_square(found, m).sum() / m.stddev**2 for m in measurements if m.clique)


def _square(found: Answers, m: BoundMeasurement) -> Buffer:
    table = np.ascontiguousarray(found.marginal(m.clique)).reshape(-1)
    return np.square(m.query.apply(table) - m.values)


def _negative(found: Answers, cliques: Sequence[Clique]) -> float:
    below = [-np.minimum(found.marginal(c), 0.0).sum() for c in cliques]
    return float(np.mean(below)) / found.total


def _violation(found: Answers, cliques: Sequence[Clique]) -> float:
    """The largest L1 distance of two tables summed down to what they share."""
    worst = 0.0
    tables = {c: found.marginal(c) for c in cliques}
    sums: dict[tuple[Clique, Clique], Buffer] = {}
    for a, b in combinations(cliques, 2):
        shared = tuple(x for x in a if x in b)
        for c in (a, b):
            if (c, shared) not in sums:
                axes = tuple(i for i, x in enumerate(c) if x not in shared)
                sums[c, shared] = tables[c].sum(axis=axes)
        worst = max(worst, float(np.abs(sums[a, shared] - sums[b, shared]).sum()))
    return worst / found.total


# -- validation without the truth ----------------------------------------------------------------------

Halves = tuple[Measurements, Measurements]


def _thinned(measured: Measurements, seed: int) -> Halves | None:
    """y + sigma g to fit and y - sigma g to judge: independent for Gaussian noise, None for any other."""
    if any(noise != "gaussian" for noise, _ in measured.kinds):
        return None
    wide = np.repeat(measured.stddevs, np.diff(measured.at))
    g = wide * np.random.default_rng(seed).standard_normal(len(wide))
    y, more = measured.values, measured.stddevs * 2**0.5
    return measured.replaced(y + g, more), measured.replaced(y - g, more)


def _validated(method: Method, domain: Domain, halves: Halves, total: float) -> float:
    """sqrt of the mean over answers of (x - y2)^2 - var(y2), an unbiased estimate of (x - truth)^2; at least 0."""
    fit, judge = halves
    found = method(domain, fit, total)
    squares = [_square(found, m).sum() - m.stddev**2 * m.values.size for m in judge if m.clique]
    count = sum(m.values.size for m in judge if m.clique)
    return float(np.sqrt(max(sum(squares), 0.0) / count))
