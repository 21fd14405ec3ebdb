"""write_report: a release, a result or a model as one HTML page."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from consilience.errors import ConsilienceError
from consilience.inference import Model
from consilience.inference.sampling import SampledRows
from consilience.mechanisms.mechanism import Result
from consilience.privacy import Account, Budget
from consilience.report.page import page
from consilience.report.promise import Promise
from consilience.report.subject import subject_of
from consilience.report.tables import Labels, Progress

REPLICATES = 50
"""Refits behind the standard errors, where they are not known already."""


def write_report(
    what: Result | Model,
    path: str | Path,
    *,
    title: str = "A private release, and how far to trust it",
    labels: Labels | None = None,
    budget: Budget | None = None,
    account: Account | None = None,
    mechanism: str = "",
    rows: SampledRows | int | None = None,
    replicates: int = REPLICATES,
    progress: Progress | None = None,
) -> Path:
    """Write one self-contained HTML page, and say where.

    labels: {attribute: a label per code}. budget: what the release was calibrated to; account: what its ledger holds
    (`Ledger.read()`). rows: synthetic rows to compare with the tables, how many to draw (0: none), or None for as many as the
    total, 50,000 at most. replicates: refits behind the standard errors. progress sees (refits done, refits asked for).
    """
    if isinstance(what, Result):
        model = what.model
        promise = Promise.of(what.cost, what.private, budget, account)
    elif isinstance(what, Model):
        model, promise = what, None
    else:
        raise ConsilienceError(
            f"a report is made of a Result, a Model or a release folder, got {type(what).__name__}"
        )
    subject = subject_of(
        model,
        title=title,
        labels=labels,
        promise=promise,
        mechanism=mechanism,
        stderr=None,
        rows=rows,
        replicates=replicates,
        version=version("consilience"),
        progress=progress,
    )
    target = Path(path)
    try:
        target.write_text(page(subject), encoding="utf-8")
    except OSError as error:
        raise ConsilienceError(
            f"a report must be written where files can be written, got {str(target)!r}: {error.strerror or error}"
        ) from error
    return target
