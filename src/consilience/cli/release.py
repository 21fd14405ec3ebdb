"""consilience release and resume: a table, a schema and a budget in, a folder that may be published out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from consilience.cli.options import (
    chosen,
    delimiter_option,
    encoding_option,
    read_budget,
    read_mechanism,
    release_options,
    whole_option,
)
from consilience.cli.output import Output, json_option, quiet_option
from consilience.cli.settings import Settled
from consilience.data.duck import DuckDBTable
from consilience.data.engines import EngineTable
from consilience.data.schema import Schema
from consilience.data.schema_file import read_schema
from consilience.data.survey import CodedTable
from consilience.data.tables import open_source
from consilience.errors import BudgetError
from consilience.privacy import SeededNoise
from consilience.release import Published, check_unpaid, release, resume
from consilience.release.folder import check_target
from consilience.release.standard_errors import METHODS
from consilience.status import STOPPED_EARLY


@click.command("release", cls=Settled)
@click.argument("table")
@click.option("--schema", "schema_path", required=True, type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="A folder to be made.")
@release_options(neighbours_required=True)
@click.option(
    "--ledger",
    type=click.Path(path_type=Path),
    help="The account of all that is spent on this table; made, with this budget as its total, if it is not there.",
)
@click.option(
    "--strict", is_flag=True, help="Refuse a table with values that the schema does not declare."
)
@click.option(
    "--lenient",
    is_flag=True,
    help="Leave out lines of a CSV file that cannot be read; refusing them tells that there are some.",
)
@click.option(
    "--accept-draft",
    is_flag=True,
    help="Release by a schema that was read off the data; the release is then not private, and says so.",
)
@click.option(
    "--accept-delta",
    is_flag=True,
    help="Release with a delta above 0.01, which lets one person in a hundred be told.",
)
@delimiter_option
@encoding_option
@click.option(
    "--errors",
    type=click.Choice(METHODS),
    default="auto",
    show_default=True,
    help="How the standard errors of the tables are found; simulated: the whole mechanism again, 20 times.",
)
@whole_option
@click.option(
    "--seed", type=int, help="For experiments only: repeatable noise, which protects nobody."
)
@json_option
@quiet_option
def release_command(
    table: str,
    schema_path: Path,
    out: Path,
    ledger: Path | None,
    strict: bool,
    lenient: bool,
    accept_draft: bool,
    accept_delta: bool,
    delimiter: str | None,
    encoding: str | None,
    errors: str,
    whole: bool,
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
      consilience release people.csv --log release.log     # the rest is in consilience.toml beside it
    """
    output = Output(quiet, as_json)
    check_target(out)
    check_unpaid(out)
    if words["neighbours"] is None:
        raise BudgetError(
            "a release must say --neighbours replace-one (the number of rows is public) or "
            "--neighbours add-remove (it is hidden too)"
        )
    schema = read_schema(schema_path)
    source: CodedTable | None = None

    def share_done() -> float | None:
        return None if source is None else source.share_done()

    with output.working("opening the table", share_done) as progress:
        source = open_source(
            table,
            schema,
            delimiter=delimiter,
            lenient=lenient,
            encoding=encoding,
            progress=progress,
        )
        budget = read_budget(words, schema)
        mechanism = chosen(read_mechanism(schema, words), budget, output.say)
        published = release(
            source,
            schema,
            mechanism,
            budget,
            out=out,
            ledger=ledger,
            errors=errors,
            whole=whole,
            strict=strict,
            accept_draft=accept_draft,
            accept_delta=accept_delta,
            noise=None if seed is None else SeededNoise(seed=seed),
            progress=progress,
            say=output.say,
        )
    _show(output, published)


@click.command("resume")
@click.argument("partial", type=click.Path(path_type=Path))
@click.option(
    "--table", help="The table of the release, needed where it ended before all was drawn."
)
@click.option("--delimiter", help="Of a CSV file; found in its first line unless given.")
@click.option("--lenient", is_flag=True, help="As of the release.")
@click.option(
    "--ledger", type=click.Path(path_type=Path), help="Where the ledger is now, if it was moved."
)
@click.option("--consistency", help="auto, global or local; as the release asked otherwise.")
@click.option("--memory", help="For the reconstruction; as the release asked otherwise.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="A folder to be made; the one that the release was for otherwise.",
)
@click.option(
    "--errors",
    type=click.Choice(METHODS),
    help="How standard errors are found; as the release asked otherwise.",
)
@click.option(
    "--whole/--not-whole",
    default=None,
    help="Whether the tables are in whole numbers; as the release asked otherwise.",
)
@json_option
@quiet_option
def resume_command(
    partial: Path,
    table: str | None,
    delimiter: str | None,
    lenient: bool,
    ledger: Path | None,
    out: Path | None,
    consistency: str | None,
    memory: str | None,
    errors: str | None,
    whole: bool | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Finish a release that was interrupted after it was paid for: Ctrl-C, a full disk, too little memory, a crash.

    PARTIAL is what it left beside its output, such as release.partial. It holds the noisy measurements, so the table is not
    read again and nothing is spent. If it ended before all of them were drawn, give it the table: the rest is drawn for the same
    payment. What costs no privacy may be changed: where the folder goes, and how it is reconstructed.

    \b
    Examples:
      consilience resume release.partial
      consilience resume release.partial --table people.csv
      consilience resume release.partial --out /elsewhere/release --memory '8 GB' --errors none
    """
    output = Output(quiet, as_json)
    changed = {"consistency": consistency, "memory": memory}
    with output.working("calibrating") as progress:

        def opened(schema: Schema) -> DuckDBTable | EngineTable:
            assert table is not None
            return open_source(
                table, schema, delimiter=delimiter, lenient=lenient, progress=progress
            )

        published = resume(
            partial,
            table=None if table is None else opened,
            ledger=ledger,
            out=out,
            settings={k: v for k, v in changed.items() if v is not None},
            errors=errors,
            whole=whole,
            progress=progress,
            say=output.say,
        )
    _show(output, published)


def _show(output: Output, published: Published) -> None:
    d, facts, tables = published.model.diagnostics, published.facts, len(published.facts["tables"])
    output.json(
        {
            "release": str(published.path),
            "tables": tables,
            "private": published.private,
            "status": d.status,
        }
    )
    gap = f", relative gap {d.gap:.1e}" if d.gap < 1 else ""  # of nothing, where all was met
    output.show(
        f"{published.path}: {tables:,} tables, {facts['mark']}; {d.method}, {d.status}{gap}"
    )
    if d.status == STOPPED_EARLY.name:
        output.say(f"the reconstruction was {d.status} {d.advice}")
    elif not d.converged:
        output.say(f"the reconstruction did not reach its tolerance: {d.advice}", "yellow")
