"""OpenDP's `extras.mbi`: `estimator=consilience.adapters.opendp.estimator()` in Fixed, MST, AIM and Sequential, unpatched.

Errors of a number come from our model, which is behind the table's: OpenDP's own `std` looks at single measurements alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from consilience.adapters.mbi import Estimator
from consilience.domain import Buffer
from consilience.errors import AdapterError
from consilience.fits import Fit
from consilience.model.model import Model


def estimator(fit: Fit | None = None) -> Estimator:
    """An estimator as OpenDP's algorithms call it: `estimator(domain, measurements, potentials=...)`."""
    return Estimator(fit)


def model_of(table: Any) -> Model:
    """Our model behind a ContingencyTable."""
    found = getattr(getattr(table, "model", None), "ours", None)
    if not isinstance(found, Model):
        raise AdapterError(
            "the table must be estimated by estimator= of this adapter, got one whose model is another's"
        )
    return found


def std(table: Any, attributes: str | Iterable[str]) -> Buffer:
    """The standard error of each number of `table.project(attributes)`."""
    return model_of(table).stderr(attributes)


def interval(
    table: Any, attributes: str | Iterable[str], level: float = 0.9
) -> tuple[Buffer, Buffer]:
    """(low, high) for each number of `table.project(attributes)`."""
    return model_of(table).interval(attributes, level)
