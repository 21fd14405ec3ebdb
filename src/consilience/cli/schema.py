"""consilience schema: a first draft of the declaration of a table."""

from __future__ import annotations

from pathlib import Path

import click

from consilience.cli.output import Output, check_new_file, quiet_option
from consilience.data.draft import WARNING, draft_schema
from consilience.data.files import table_and_name


@click.command("schema")
@click.argument("table")
@click.option(
    "--out", type=click.Path(path_type=Path), help="A new file; standard output otherwise."
)
@click.option("--delimiter", help="Of a CSV file; found in its first line unless given.")
@quiet_option
def schema_command(table: str, out: Path | None, delimiter: str | None, quiet: bool) -> None:
    """Draft a schema for TABLE: what its columns are, their labels, bounds and bins.

    TABLE is a CSV (also .csv.gz), Parquet, Arrow or DuckDB file. The draft is read off the data and therefore NOT
    private: go through it before a release, and keep only what is public or would be chosen without the data.

    \b
    Examples:
      consilience schema people.csv > people.toml
      consilience schema visits.parquet --out visits.toml
    """
    output = Output(quiet)
    if out is not None:
        check_new_file(out)
    where, name = table_and_name(table)
    with output.working("looking at every column") as progress:
        draft = draft_schema(where, delimiter=delimiter, name=name, progress=progress)
    text = draft.to_toml()
    if out is None:
        click.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")
        output.say(f"draft of {len(draft.schema)} columns in {out}")
    for column, why in draft.left_out.items():
        output.say(f"left out {column!r}, {why}")
    output.say(WARNING, style="yellow")
    for line in draft.schema.draft:
        output.say(f"check: {line}")
