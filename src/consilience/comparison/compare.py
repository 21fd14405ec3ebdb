"""compare: the same measurements through every reconstruction, judged by one yardstick."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations
from time import perf_counter

import numpy as np

from consilience.baselines import Answers, Tables, priview, relaxed_projection
from consilience.baselines.views import Views
from consilience.comparison.rows import Comparison, Row
from consilience.domain import Buffer, Clique, CliqueVector, Domain
from consilience.errors import ConsilienceError, DomainError, MeasurementError
from consilience.fits import LeastSquares, NormCut, Shrunk
from consilience.measurements import BoundMeasurement, Measurement, SquaredLoss
from consilience.progress import Progress, Step

Method = Callable[[Domain, Sequence[Measurement], float], Answers]
"""Any `Fit`, any baseline, any function from measurements and a total to answers."""


def noisy(domain: Domain, measurements: Sequence[Measurement], total: float) -> Answers:
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
    measurements: Iterable[Measurement],
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
    listed = list(measurements)
    loss = SquaredLoss(domain, listed, total)
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
            found = method(domain, listed, loss.total)
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

Halves = tuple[list[Measurement], list[BoundMeasurement]]


def _thinned(measurements: Sequence[BoundMeasurement], seed: int) -> Halves | None:
    """y + sigma g to fit and y - sigma g to judge: independent for Gaussian noise, None for any other."""
    if any(m.noise != "gaussian" for m in measurements):
        return None
    rng = np.random.default_rng(seed)
    fit: list[Measurement] = []
    judge: list[BoundMeasurement] = []
    for m in measurements:
        g = m.stddev * rng.standard_normal(m.values.shape)
        wide = m.stddev * 2**0.5
        fit.append(Measurement(m.clique, m.values + g, stddev=wide, query=m.query))
        judge.append(BoundMeasurement(m.clique, m.values - g, wide, m.noise, m.query))
    return fit, judge


def _validated(method: Method, domain: Domain, halves: Halves, total: float) -> float:
    """sqrt of the mean over answers of (x - y2)^2 - var(y2), an unbiased estimate of (x - truth)^2; at least 0."""
    fit, judge = halves
    found = method(domain, fit, total)
    squares = [_square(found, m).sum() - m.stddev**2 * m.values.size for m in judge if m.clique]
    count = sum(m.values.size for m in judge if m.clique)
    return float(np.sqrt(max(sum(squares), 0.0) / count))
