"""Standard errors of the released tables: which method, and the numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Clique
from consilience.errors import ConsilienceError
from consilience.mechanisms import Mechanism
from consilience.model import Model
from consilience.model.impossible import mask_on
from consilience.progress import Progress
from consilience.release.registry import MECHANISMS, name_of
from consilience.solvers.work import seconds

METHODS = ("auto", "closed-form", "bootstrap", "none")
REFITS = 50
LONG = 2.4e10
"""Visits of cells in all refits beyond which "auto" takes the closed form, and says so: some two minutes."""


def check_errors(mechanism: Mechanism, errors: str) -> None:
    """Refuse before anything is spent what could not be found afterwards."""
    if errors not in METHODS:
        raise ConsilienceError(f"errors must be one of {', '.join(METHODS)}, got {errors!r}")
    name = name_of(mechanism)
    if errors in ("closed-form", "bootstrap") and name is not None and not MECHANISMS[name].counts:
        raise ConsilienceError(
            f"standard errors need noise of a known width, {name} publishes choices instead; leave errors at auto"
        )
    if errors == "closed-form" and not mechanism.fit.closed_form:
        raise ConsilienceError(
            f"{type(mechanism.fit).__name__} has no closed form of its errors; leave errors at auto"
        )


def chosen_method(model: Model, errors: str) -> tuple[str, str]:
    """What "auto" means for this model, and why where that is not all that could be had."""
    if errors != "auto":
        return errors, ""
    if not model.measurements:
        why = "no standard errors: choices were published, not counts with known noise"
        return "none", why
    work = REFITS * model.diagnostics.work  # counted: what is published must not depend on a clock
    if work <= LONG:
        return "auto", ""
    minutes = seconds(work, REFITS * len(model.cliques), "splitting") / 60
    about = f"{REFITS} refits would take about {minutes:.0f} minutes (ask for them with errors bootstrap)"
    if model.diagnostics.prior is not None:
        return "none", f"no standard errors: {about}"
    return "closed-form", f"standard errors in closed form: {about}"


def errors_of_tables(
    model: Model, cliques: Sequence[Clique], method: str, progress: Progress
) -> dict[Clique, NDArray[np.float64] | None]:
    """The standard errors of each table; None where the method has none."""
    found: dict[Clique, NDArray[np.float64] | None] = dict.fromkeys(cliques)
    if method == "none":
        return found
    direct = [c for c in cliques if method == "bootstrap" or model.in_model(c)]
    inferred = [c for c in cliques if c not in set(direct)] if method == "auto" else []
    for some, how in ((direct, method), (inferred, "bootstrap")):
        if some:
            spreads = model.uncertainties(some, method=how, progress=progress)
            found |= {c: u.stderr for c, u in zip(some, spreads, strict=True)}
    return {c: _sure_of_zeros(model, c, stderr) for c, stderr in found.items()}


def _sure_of_zeros(
    model: Model, clique: Clique, stderr: NDArray[np.float64] | None
) -> NDArray[np.float64] | None:
    """Nothing is uncertain about a combination that cannot occur."""
    allowed = mask_on(model.domain, model.masks, clique)
    return stderr if stderr is None or allowed is None else np.where(allowed, stderr, 0.0)
