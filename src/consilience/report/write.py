"""write_report: a release, a result or a model as one HTML page."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from secrets import token_hex

from consilience.errors import ConsilienceError
from consilience.mechanisms.mechanism import Result
from consilience.model import Model
from consilience.model.sampling import SampledRows
from consilience.privacy import Account, Budget
from consilience.progress import Progress, quiet
from consilience.release import Published, read_release
from consilience.report.page import page
from consilience.report.promise import Promise, promise_of, standard_errors
from consilience.report.subject import subject_of
from consilience.report.tables import Labels

REPLICATES = 50
"""Refits behind the standard errors, where they are not known already."""


def write_report(
    what: Result | Model | Published | str | Path,
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
    """Write one self-contained HTML page about a release folder, a result or a model, and say where.

    labels: {attribute: a label per code}. budget: what a result was calibrated to; account: what its ledger holds
    (`Ledger.read()`). A release folder knows all three. rows: synthetic rows to compare with the tables, how many to draw
    (0: none), or None for as many as the total, 50,000 at most. replicates: refits behind standard errors that are not
    known yet. progress sees refits and rows.
    """
    promise, stderr = None, None
    if isinstance(what, str | Path):
        what = read_release(Path(what))
    if isinstance(what, Published):
        model, labels = what.model, what.labels
        promise, stderr = promise_of(what), standard_errors(what)
        mechanism = what.facts.get("mechanism", {}).get("calibrated", mechanism)
    elif isinstance(what, Result):
        model = what.model
        promise = Promise.of(what.cost, what.private, budget, account)
    elif isinstance(what, Model):
        model = what
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
        stderr=stderr,
        rows=rows,
        replicates=replicates,
        version=version("consilience"),
        progress=progress or quiet,
    )
    return write_text(page(subject), path)


def write_text(content: str | bytes, path: str | Path) -> Path:
    """All of it or nothing: written beside its place, then moved there."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{token_hex(8)}")
    try:
        try:
            beside.write_bytes(content.encode() if isinstance(content, str) else content)
            os.replace(beside, target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise ConsilienceError(
            f"a report or picture must be written where files can be written, got {str(target)!r}: {error.strerror or error}"
        ) from error
    return target
