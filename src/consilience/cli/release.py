"""consilience release: a table, a schema and a budget in, a folder that may be published out."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from consilience.cli.asked import Asked, asked_options, read_asked
from consilience.cli.shell import Output, json_option, quiet_option
from consilience.cli.words import account_facts, budget_facts, cost_facts, schema_file, versions
from consilience.data.schema import Schema
from consilience.data.survey import Survey
from consilience.data.tables import open_source
from consilience.domain import Clique
from consilience.errors import BudgetError, DataError
from consilience.inference import Model, reconstruct
from consilience.mechanisms import Calibrated, Release, Step
from consilience.privacy import Ledger, SeededNoise
from consilience.release import write_release
from consilience.release.atomic import check_target

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


@click.command()
@click.argument("table")
@click.option("--schema", "schema_path", required=True, type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="A folder to be made.")
@asked_options(neighbours_required=True)
@click.option(
    "--ledger",
    "ledger_path",
    type=click.Path(path_type=Path),
    help="The account of all that is spent on this table; made, with this budget as its total, if it is not there.",
)
@click.option(
    "--strict", is_flag=True, help="Refuse a table with values that the schema does not declare."
)
@click.option("--delimiter", help="Of a CSV file; found in its first line unless given.")
@click.option(
    "--errors",
    type=click.Choice(["auto", "closed-form", "bootstrap", "none"]),
    default="auto",
    show_default=True,
    help="How the standard errors of the tables are found.",
)
@click.option(
    "--seed", type=int, help="For experiments only: repeatable noise, which protects nobody."
)
@json_option
@quiet_option
def release(
    table: str,
    schema_path: Path,
    out: Path,
    ledger_path: Path | None,
    strict: bool,
    delimiter: str | None,
    errors: str,
    seed: int | None,
    as_json: bool,
    quiet: bool,
    **words: Any,
) -> None:
    """Measure TABLE with noise, make the tables consistent, and write a folder that is safe to publish.

    TABLE is a CSV (also .csv.gz), Parquet, Arrow or DuckDB file (FILE::NAME for one of several tables), or the address of an
    engine such as sqlite:///people.db::people. Values that the schema does not declare are settled as it says, never an error;
    how many there were is shown here and is not in the folder. The cost is recorded in the ledger before noise is drawn.

    \b
    Examples:
      consilience release people.csv --schema people.toml --epsilon 1 --delta 1e-6 \\
          --neighbours replace-one --workload 2 --ledger people.ledger --out release/
      consilience release people.parquet --schema people.toml --rho 0.1 --neighbours add-remove \\
          --mechanism aim --ledger people.ledger --out release/
    """
    output = Output(quiet, as_json)
    check_target(out)
    if words["neighbours"] is None:
        raise BudgetError(
            "a release must say --neighbours replace-one (the number of rows is public) or "
            "--neighbours add-remove (it is hidden too)"
        )
    schema = schema_file(schema_path)
    with output.working("opening the table"):
        source = open_source(table, schema, delimiter=delimiter)
    asked = read_asked(schema.domain, words)
    with output.working("calibrating"):
        ready = asked.mechanism.calibrate(asked.budget)
    output.say(f"{ready}\n{ready.plan}")
    with output.working("looking for values that the schema does not declare"):
        survey = source.survey
    _show_survey(output, schema, survey, strict)
    ledger = _ledger(output, ledger_path, table, asked, seed)
    noisy = _measure(output, ready, source, ledger, seed)
    model = _model(output, ready, noisy, schema, words)
    errors = _errors(output, model, errors)
    tables = _tables(output, model, asked, errors)
    facts = {**_facts(asked, ready, noisy, model), "standard_errors": errors}
    account = None if ledger is None else account_facts(ledger.read())
    with output.working("writing the folder"):
        write_release(
            out,
            model=model,
            schema=schema,
            measurements=noisy.measurements,
            tables=tables,
            facts=facts,
            ledger=account,
            readme=_readme(facts),
        )
    _done(output, out, noisy, model, len(tables))


def _show_survey(output: Output, schema: Schema, survey: Survey, strict: bool) -> None:
    if survey.records < 1:
        raise DataError("a table must have rows, got a header only; nothing was spent")
    if strict:
        survey.refuse()
    settled = [c.name for c in schema if survey.unread[c.name] or survey.outside[c.name]]
    if not settled:
        return
    output.say(
        "values that the schema does not declare (shown to you only, not in the release):", "yellow"
    )
    for name in settled:
        unread, outside = survey.unread[name], survey.outside[name]
        parts = [
            f"{unread:,} not declared" if unread else "",
            f"{outside:,} out of bounds" if outside else "",
        ]
        output.say(f"  {name}: {', '.join(p for p in parts if p)} of {survey.records:,}", "yellow")


def _ledger(
    output: Output, path: Path | None, table: str, asked: Asked, seed: int | None
) -> Ledger | None:
    """The ledger of this table, made if it is not there."""
    if path is None:
        if seed is None:
            output.say("no --ledger: nothing keeps count of what is spent on this table", "yellow")
        return None
    name = Path(table.partition("::")[0]).name.partition(".")[0] or table
    if path.exists():
        return Ledger(path)
    output.say(f"new ledger {path} for table {name!r}, with this release's budget as its total")
    return Ledger.create(path, table=name, total=asked.budget)


def _measure(
    output: Output, ready: Calibrated, source: Any, ledger: Ledger | None, seed: int | None
) -> Release:
    with output.working("counting, paying and drawing noise") as report:

        def heard(step: Step) -> None:
            report(step.done, step.total)

        noise = None if seed is None else SeededNoise(seed=seed)
        return ready.measure(source, noise=noise, ledger=ledger, progress=heard)


def _model(
    output: Output, ready: Calibrated, noisy: Release, schema: Schema, words: dict[str, Any]
) -> Model:
    with output.working("reconstructing") as report:
        possible = schema.possible
        if not possible:
            return ready.reconstruct(noisy, progress=lambda s: report(s.done, s.total)).model
        return reconstruct(
            noisy.domain,
            noisy.measurements,
            total=None if noisy.total is None else float(noisy.total),
            consistency=words["consistency"],
            memory=words["memory"],
            prior=words["prior"],
            possible=possible,
            progress=lambda i: report(i.number, None),
        )


def _errors(output: Output, model: Model, asked: str) -> str:
    """What "auto" means for a model whose refits would take long: the closed form, said aloud and in release.json."""
    seconds = REFITS * model.diagnostics.seconds
    if asked != "auto" or seconds <= LONG:
        return asked
    output.say(
        f"standard errors in closed form: {REFITS} refits would take about {seconds / 60:.0f} minutes "
        "(ask for them with --errors bootstrap)",
        "yellow",
    )
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
    return found


def _facts(asked: Asked, ready: Calibrated, noisy: Release, model: Model) -> dict[str, Any]:
    d = model.diagnostics
    return {
        "private": noisy.private,
        "mark": noisy.mark,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "mechanism": {"name": asked.name, "options": dict(asked.options), "calibrated": str(ready)},
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
    output.show(
        f"{out}: {tables:,} tables, {noisy.mark}; {d.method}, {d.status}, relative gap {d.gap:.1e}"
    )
    if not d.converged:
        output.say(f"the reconstruction did not reach its tolerance: {d.advice}", "yellow")
