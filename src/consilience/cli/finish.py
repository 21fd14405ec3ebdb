"""The free half of a release: from what was paid for to the folder. `release` and `resume` end with it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from consilience.cli.asked import REGISTRY, Asked
from consilience.cli.shell import Output, line_of
from consilience.cli.words import budget_facts, cost_facts, versions
from consilience.data.schema import Schema
from consilience.domain import Clique
from consilience.errors import ConsilienceError, ReleaseError
from consilience.inference import Model
from consilience.inference.impossible import mask_on
from consilience.mechanisms import Calibrated, Release
from consilience.release import Paid, write_release

REFITS = 50
LONG = 120.0
"""Seconds of refitting beyond which --errors auto takes the closed form, and says so."""

README = """This folder holds tables about {rows} that were made private and consistent by Consilience {version}.

{promise}
tables/         consistent tables with standard errors, as CSV and Parquet: never negative, equal where they overlap
measurements/   the noisy tables that all of it was made from, with the standard deviation of their noise
model.npz       the model, for other questions:  consilience answer THIS-FOLDER age,sex
release.json    the promise, what it cost, how it was made, and what is in which file
manifest.json   checksums of every file
"""

errors_option = click.option(
    "--errors",
    type=click.Choice(["auto", "closed-form", "bootstrap", "none"]),
    default="auto",
    show_default=True,
    help="How the standard errors of the tables are found.",
)


@contextmanager
def keeping(paid: Paid) -> Iterator[None]:
    """Whatever goes wrong in here is one line that says where the paid-for measurements are, if there are any."""
    try:
        yield
    except (Exception, KeyboardInterrupt, click.Abort) as error:
        if not paid.kept:
            paid.discard()
            raise
        line = line_of(error)
        if line is None:  # a defect of ours: let it be seen in full
            error.add_note(f"consilience: what was paid for is kept in {paid.path}")
            raise
        raise ReleaseError(
            f"{line}; what was paid for is kept, finish it with: consilience resume {paid.path}"
        ) from error


@dataclass(frozen=True)
class Finish:
    """What the last steps need to know."""

    output: Output
    out: Path
    schema: Schema
    asked: Asked
    ready: Calibrated
    paid: Paid

    def __call__(self, noisy: Release, errors: str, account: Mapping[str, Any] | None) -> None:
        """Reconstruct, find standard errors, write the folder, and remove what was kept for the case of a crash."""
        output, out = self.output, self.out
        with output.working("reconstructing") as report:
            model = self.ready.reconstruct(noisy, progress=lambda s: report(s.done, s.total)).model
        errors = _errors(output, model, errors)
        tables = _tables(output, model, self.asked, errors)
        facts = {**self._facts(noisy, model), "standard_errors": errors}
        shutil.rmtree(self.paid.draft, ignore_errors=True)
        near = self.paid.path.stat().st_dev == out.absolute().parent.stat().st_dev
        with output.working("writing the folder"):
            write_release(
                out,
                model=model,
                schema=self.schema,
                measurements=noisy.measurements,
                tables=tables,
                facts=facts,
                ledger=account,
                readme=_readme(facts),
                draft=self.paid.draft if near else None,
            )
        self.paid.discard()
        _done(output, out, noisy, model, len(tables))

    def _facts(self, noisy: Release, model: Model) -> dict[str, Any]:
        asked, d = self.asked, model.diagnostics
        return {
            "private": noisy.private,
            "mark": noisy.mark,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "mechanism": {
                "name": asked.name,
                "options": dict(asked.options),
                "calibrated": str(self.ready),
            },
            "budget": budget_facts(asked.budget),
            "neighbours": asked.budget.neighbours.value,
            "cost": cost_facts(asked.budget, noisy.cost),
            "total": {"value": model.total, "public": noisy.total is not None},
            "diagnostics": {
                "method": d.method,
                "status": d.status,
                "converged": d.converged,
                "relative_gap": d.gap,
                "violation": d.violation,
                "iterations": d.iterations,
                "prior": d.prior,
            },
            "versions": versions(),
        }


def check_errors(asked: Asked, errors: str) -> None:
    """Refuse before anything is spent what could not be found afterwards."""
    if errors in ("closed-form", "bootstrap") and not REGISTRY[asked.name].passed:
        raise ConsilienceError(
            f"standard errors need noise of a known width, {asked.name} publishes choices instead; leave out --errors"
        )
    if errors == "closed-form" and asked.words["prior"] is not None:
        raise ConsilienceError("a prior has no closed form of its errors; leave out --errors")


def _errors(output: Output, model: Model, asked: str) -> str:
    """What "auto" means where there is no known noise, or refits would take long: said aloud and in release.json."""
    seconds = REFITS * model.diagnostics.seconds
    if asked == "auto" and not model.measurements:
        output.say("no standard errors: choices were published, not counts with known noise")
        return "none"
    if asked != "auto" or seconds <= LONG:
        return asked
    about = f"{REFITS} refits would take about {seconds / 60:.0f} minutes (ask for them with --errors bootstrap)"
    if model.diagnostics.prior is not None:
        output.say(f"no standard errors: {about}", "yellow")
        return "none"
    output.say(f"standard errors in closed form: {about}", "yellow")
    return "closed-form"


def _tables(
    output: Output, model: Model, asked: Asked, errors: str
) -> dict[Clique, NDArray[np.float64] | None]:
    """The tables of the workload, each with its standard errors where they can be had."""
    cliques = list(asked.workload)
    if errors == "none":
        return dict.fromkeys(cliques)
    known = [c for c in cliques if errors == "bootstrap" or model.in_model(c)]
    rest = [c for c in cliques if c not in set(known)]
    found: dict[Clique, NDArray[np.float64] | None] = dict.fromkeys(cliques)
    with output.working("standard errors") as report:
        if known:
            spreads = model.uncertainties(known, method=errors, progress=report)
            found |= {c: u.stderr for c, u in zip(known, spreads, strict=True)}
        if rest and errors == "auto":
            spreads = model.uncertainties(rest, method="bootstrap", progress=report)
            found |= {c: u.stderr for c, u in zip(rest, spreads, strict=True)}
    return {c: _sure_of_zeros(model, c, stderr) for c, stderr in found.items()}


def _sure_of_zeros(
    model: Model, clique: Clique, stderr: NDArray[np.float64] | None
) -> NDArray[np.float64] | None:
    """Nothing is uncertain about a combination that can not occur."""
    allowed = mask_on(model.domain, model.masks, clique)
    return stderr if stderr is None or allowed is None else np.where(allowed, stderr, 0.0)


def _readme(facts: dict[str, Any]) -> str:
    budget = facts["budget"]
    promise = (
        f"Promise: {budget['text']} under {facts['neighbours']} neighbours ({facts['mark']}).\n"
    )
    if not facts["private"]:
        promise = f"{facts['mark']}.\n"
    total = facts["total"]
    rows = f"{total['value']:,.0f} people" + ("" if total["public"] else " (estimated)")
    return README.format(rows=rows, version=facts["versions"]["consilience"], promise=promise)


def _done(output: Output, out: Path, noisy: Release, model: Model, tables: int) -> None:
    d = model.diagnostics
    output.json(
        {"release": str(out), "tables": tables, "private": noisy.private, "status": d.status}
    )
    gap = f", relative gap {d.gap:.1e}" if d.gap < 1 else ""  # of nothing, where all was met
    output.show(f"{out}: {tables:,} tables, {noisy.mark}; {d.method}, {d.status}{gap}")
    if not d.converged:
        output.say(f"the reconstruction did not reach its tolerance: {d.advice}", "yellow")
