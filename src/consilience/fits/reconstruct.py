"""reconstruct: noisy measurements in, one consistent model out; plan: what it would take; load: a model that was saved."""

from __future__ import annotations

import os
from collections.abc import Iterable

from consilience.domain import Domain
from consilience.errors import ConsilienceError
from consilience.fits.laplace_likelihood import LaplaceLikelihood
from consilience.fits.latent_classes import LatentClasses
from consilience.fits.least_squares import LeastSquares
from consilience.fits.norm_cut import NormCut
from consilience.fits.possible_cells import PossibleCells
from consilience.fits.selection_likelihood import SelectionLikelihood
from consilience.fits.shrunk import Shrunk
from consilience.measurements import Measurement, Measurements
from consilience.model.files import read
from consilience.model.fit import Fit
from consilience.model.model import Model
from consilience.progress import Progress
from consilience.solvers.planner import Plan
from consilience.solvers.work import Load

FITS: dict[str, type[Fit]] = {
    kind.__name__: kind
    for kind in (
        LeastSquares,
        Shrunk,
        LatentClasses,
        LaplaceLikelihood,
        NormCut,
        PossibleCells,
        SelectionLikelihood,
    )
}
"""The estimators of this package, by the name under which a model's file keeps them."""

DEFAULT = LeastSquares()

MOVED = {
    "prior": "fit=cs.Shrunk()",
    "seed": "fit=cs.Shrunk(seed=...)",
    "likelihood": "fit=cs.LaplaceLikelihood()",
    "nonnegativity": "fit=cs.NormCut()",
    "on_plan": "cs.plan(domain, measurements, fit=...), or the first step that progress sees",
}
"""Where the options of version 0.1 went that are not options of LeastSquares."""
OF_LEAST_SQUARES = (
    "consistency",
    "solver",
    "memory",
    "time_limit",
    "possible",
    "iterations",
    "tolerance",
)


def reconstruct(
    domain: Domain,
    measurements: Iterable[Measurement] | Measurements,
    total: float | None = None,
    fit: Fit = DEFAULT,
    progress: Progress | None = None,
    warm: Model | None = None,
    **old: object,
) -> Model:
    """The closest consistent, non-negative tables to noisy measurements of marginals; the uniform model where none are given.

    total: the number of records if it is public (replace-one neighbours); None estimates it from the measurements.
    fit: the estimator: `LeastSquares(...)`, `Shrunk(...)`, `LaplaceLikelihood(...)`, `NormCut(...)`, `PossibleCells(...)`,
    or one's own. progress sees a `Step` now and then, first the plan, then iterations. warm: an earlier model of the same
    domain, from which the solver goes on; it changes how long a fit takes, not where it ends.
    """
    _refuse_old("reconstruct", old)
    if warm is not None and (not isinstance(warm, Model) or warm.domain != domain):
        given = repr(warm.domain) if isinstance(warm, Model) else type(warm).__name__
        raise ConsilienceError(f"warm must be a model of the same domain {domain!r}, got {given}")
    return checked_fit(fit)(domain, measurements, total, warm=warm, progress=progress)


def plan(
    domain: Domain,
    measurements: Iterable[Measurement] | Measurements,
    fit: Fit = DEFAULT,
    total: float | None = None,
    **old: object,
) -> Plan:
    """What `reconstruct` would do with the same arguments, without doing it."""
    _refuse_old("plan", old)
    bound = Measurements.of(domain, measurements)
    return checked_fit(fit).plan(domain, bound.cliques, Load.of(bound, total))


def load(path: str | os.PathLike[str]) -> Model:
    """The model that `Model.save` wrote, bit for bit; a damaged, foreign or newer file is a ModelFileError."""
    return Model(**read(path, FITS))


def checked_fit(fit: Fit) -> Fit:
    """The estimator itself; refuses what is none."""
    if isinstance(fit, Fit):
        return fit
    hint = "; call it" if isinstance(fit, type) else ""
    raise ConsilienceError(f"fit must be an estimator such as LeastSquares(), got {fit!r}{hint}")


def _refuse_old(name: str, old: dict[str, object]) -> None:
    for given in old:
        if given in MOVED:
            raise ConsilienceError(f"{name} takes no {given}= any more: write {MOVED[given]}")
        if given in OF_LEAST_SQUARES:
            raise ConsilienceError(
                f"{name} takes no {given}= any more: write fit=cs.LeastSquares({given}=...)"
            )
        raise ConsilienceError(f"{name} takes total, fit, progress and warm, got {given}=")
