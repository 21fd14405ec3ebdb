"""Standard errors of the released tables: which method, and the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from consilience.domain import Clique
from consilience.errors import ConsilienceError
from consilience.mechanisms import Calibrated, CalibratedAdaptive, Mechanism, Result
from consilience.mechanisms.simulation import RUNS
from consilience.model import Model, Uncertainty
from consilience.model.replicates import FEWEST, affordable
from consilience.progress import Progress, quiet
from consilience.release.registry import MECHANISMS, name_of
from consilience.solvers.work import seconds

METHODS = ("auto", "closed-form", "bootstrap", "simulated", "none")
CLASSES = (
    "simulated errors are those of tables that latent classes can say, and too small for others; those of auto hold what classes "
    "leave open"
)
LONG = 2.4e10
"""Visits of cells in all refits beyond which "auto" takes the closed form, and says so: some two minutes."""


def check_errors(mechanism: Mechanism, errors: str) -> None:
    """Refuse before anything is spent what could not be found afterwards."""
    if errors not in METHODS:
        raise ConsilienceError(f"errors must be one of {', '.join(METHODS)}, got {errors!r}")
    name = name_of(mechanism)
    noisy = errors in ("closed-form", "bootstrap", "simulated")
    if noisy and name is not None and not MECHANISMS[name].counts:
        raise ConsilienceError(
            f"standard errors need noise of a known width, {name} publishes choices instead; leave errors at auto"
        )
    if errors == "closed-form" and not mechanism.fit.closed_form:
        raise ConsilienceError(
            f"{type(mechanism.fit).__name__} has no closed form of its errors; leave errors at auto"
        )


def check_ended(ready: Calibrated, errors: str, about: Mapping[str, Any]) -> None:
    """Refuse to simulate a run that was cut short by whole ones: their errors would be too small. about: as it was kept."""
    short = isinstance(ready, CalibratedAdaptive) and not about.get("ended", False)
    if errors == "simulated" and short:
        raise ConsilienceError(
            "simulated errors are those of a run that went to its end, this one was interrupted; give the table to draw the "
            "rest, or find errors another way: --errors bootstrap"
        )


def chosen_method(model: Model, errors: str) -> tuple[str, int, str]:
    """What "auto" means for this model, how many refits its folder keeps, and why that is not all that could be had."""
    if not model.measurements and errors == "auto":
        return "none", 0, "no standard errors: choices were published, not counts with known noise"
    most = affordable(model)
    if errors != "auto":
        pulled = errors == "simulated" and model.mixture is not None
        count = {"bootstrap": most, "simulated": min(RUNS, most)}.get(errors, 0)
        return errors, count, CLASSES if pulled else ""
    work = model.diagnostics.work  # counted: what is published must not depend on a clock
    count = most if most * work <= LONG else int(LONG / work)
    if count >= FEWEST:
        return "auto", count, ""
    minutes = seconds(most * work, most * len(model.cliques), "splitting") / 60
    about = (
        f"{most} refits would take about {minutes:.0f} minutes (ask for them with errors bootstrap)"
    )
    # In closed form a folder can answer filters and sums of tables measured whole, and of no others.
    if model.fit is None or not model.fit.closed_form or model.measurements.queries:
        return "none", 0, f"no standard errors: {about}"
    return "closed-form", 0, f"standard errors in closed form: {about}"


def with_replicates(
    ready: Calibrated, result: Result, method: str, count: int, progress: Progress
) -> Model:
    """The model of a result with so many replicates of the method that its folder states, and its backbone."""
    if method != "simulated":
        return result.model.lasting(count, progress)
    lasting = replace(result, model=result.model.lasting(0, progress))
    return ready.simulated(lasting, count, progress=progress)


def asked_of_models(method: str) -> str:
    """What a model is asked for by a folder that states this method: simulated runs are the replicates that it keeps."""
    return "bootstrap" if method == "simulated" else method


def errors_of(
    model: Model, cliques: Sequence[Clique], method: str, progress: Progress = quiet
) -> dict[Clique, Uncertainty | None]:
    """The errors of each table by the method that its folder states; None where that has none.

    Every reader of a folder asks by it, so that a number has the same error wherever it is shown.
    """
    found: dict[Clique, Uncertainty | None] = dict.fromkeys(cliques)
    some = [c for c in cliques if has_errors(model, c, method)]
    asked = asked_of_models(method)
    made = model.uncertainties(some, method=asked, progress=progress) if some else []
    return found | dict(zip(some, made, strict=True))


def has_errors(model: Model, clique: Clique, method: str) -> bool:
    """Whether a folder that states this method has errors for answers about these attributes."""
    if method == "none" or not model.measurements:
        return False
    return method != "closed-form" or model.in_model(clique)
