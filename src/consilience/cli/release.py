"""consilience release: a table, a schema and a budget in, a folder that may be published out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from consilience.cli.asked import Asked, asked_options, read_asked
from consilience.cli.finish import Finish, check_errors, errors_option, keeping
from consilience.cli.shell import Output, json_option, quiet_option
from consilience.cli.words import account_facts, schema_file
from consilience.data.files import table_and_name
from consilience.data.schema import Schema
from consilience.data.survey import Survey
from consilience.data.tables import open_source
from consilience.errors import BudgetError, DataError
from consilience.mechanisms import Calibrated, CalibratedAdaptive, Release, Source
from consilience.privacy import Ledger, SeededNoise
from consilience.progress import Step
from consilience.release import Paid, check_unpaid
from consilience.release.atomic import check_target


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
@errors_option
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
    how many there were is shown here and is not in the folder. The cost is recorded in the ledger before noise is drawn, and what
    is drawn is kept beside OUT until the folder stands: consilience resume finishes a release that was interrupted.

    \b
    Examples:
      consilience release people.csv --schema people.toml --epsilon 1 --delta 1e-6 \\
          --neighbours replace-one --workload 2 --ledger people.ledger --out release/
      consilience release people.parquet --schema people.toml --rho 0.1 --neighbours add-remove \\
          --mechanism aim --ledger people.ledger --out release/
    """
    output = Output(quiet, as_json)
    check_target(out)
    check_unpaid(out)
    if words["neighbours"] is None:
        raise BudgetError(
            "a release must say --neighbours replace-one (the number of rows is public) or "
            "--neighbours add-remove (it is hidden too)"
        )
    schema = schema_file(schema_path)
    counted = Relay()
    with output.working("opening the table"):
        source = open_source(table, schema, delimiter=delimiter, progress=counted)
    asked = read_asked(schema, words)
    check_errors(asked, errors)
    with output.working("calibrating"):
        ready = asked.mechanism.calibrate(asked.budget)
    output.say(f"{ready}\n{ready.plan}")
    with output.working("looking for values that the schema does not declare", source.share_done):
        survey = source.survey
    _show_survey(output, schema, survey, strict)
    paid = Paid.begin(out, schema, {**asked.words, "errors": errors}, 16 * asked.workload.cells)
    with keeping(paid):
        ledger = _ledger(output, ledger_path, table, asked, seed)
        noisy, account = _measure(output, ready, source, counted, ledger, seed, paid)
        Finish(output, out, schema, asked, ready, paid)(noisy, errors, account)


class Relay:
    """Passes on what a table reports while it is counted; whom to is known later."""

    report: Callable[[int, int | None], None] | None = None

    def __call__(self, done: int, of: int | None) -> None:
        if self.report is not None:
            self.report(done, of)


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
    name = Path(table_and_name(table)[0]).name.partition(".")[0] or table
    if path.exists():
        return Ledger(path)
    output.say(f"new ledger {path} for table {name!r}, with this release's budget as its total")
    return Ledger.create(path, table=name, total=asked.budget)


def _measure(
    output: Output,
    ready: Calibrated,
    source: Source,
    counted: Relay,
    ledger: Ledger | None,
    seed: int | None,
    paid: Paid,
) -> tuple[Release, dict[str, Any] | None]:
    """Pay and draw; what is drawn is on disk before anything else is done with it. Also what the ledger says now."""
    noise = None if seed is None else SeededNoise(seed=seed)
    with output.working("counting, paying and drawing noise") as report:
        counted.report = report

        def heard(step: Step) -> None:
            report(step.done, step.total)

        if not isinstance(ready, CalibratedAdaptive):
            noisy = ready.measure(source, noise=noise, ledger=ledger, progress=heard)
            account = None if ledger is None else account_facts(ledger.read())
            paid.keep(noisy, {"account": account})
            return noisy, account
        run = ready.start(source, noise=noise, ledger=ledger, progress=heard)
        account = None if ledger is None else account_facts(ledger.read())
        kept = 0
        try:
            for _ in run:
                paid.keep(run.release, {"account": account})
                kept = len(run.release.measurements)
        finally:  # a round that was interrupted may have drawn before
            if len(run.release.measurements) > kept:
                paid.keep(run.release, {"account": account})
        return run.release, account
