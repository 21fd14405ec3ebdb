"""The reconstructions that a comparison knows by name, each from measurements and a total to answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from consilience.baselines import Answers, Tables, priview, relaxed_projection
from consilience.baselines.views import Views
from consilience.domain import Domain
from consilience.errors import MeasurementError
from consilience.inference import reconstruct
from consilience.measurements import Measurement, SquaredLoss

Method = Callable[[Domain, Sequence[Measurement], float], Answers]


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


def _by(**settings: str) -> Method:
    def method(domain: Domain, measurements: Sequence[Measurement], total: float) -> Answers:
        return reconstruct(domain, measurements, total=total, **settings)  # pyright: ignore[reportArgumentType]

    return method


def _priview(domain: Domain, measurements: Sequence[Measurement], total: float) -> Answers:
    return priview(domain, measurements, total=total)


def _norm_sub(domain: Domain, measurements: Sequence[Measurement], total: float) -> Answers:
    return priview(domain, measurements, total=total, nonnegativity="norm-sub")


def _relaxed(domain: Domain, measurements: Sequence[Measurement], total: float) -> Answers:
    return relaxed_projection(domain, measurements, total=total)


KNOWN: Mapping[str, Method] = {
    "noisy": noisy,
    "global": _by(consistency="global"),
    "local": _by(consistency="local"),
    "factor": _by(consistency="factor"),
    "prior": _by(prior="independence"),
    "norm-cut": _by(nonnegativity="norm-cut"),
    "priview": _priview,
    "priview-norm-sub": _norm_sub,
    "relaxed_projection": _relaxed,
}
