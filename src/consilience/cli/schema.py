"""consilience schema: a first draft of the declaration of a table, off the table or off its dictionary, and its check."""

from __future__ import annotations

from pathlib import Path

import click

from consilience.cli.options import delimiter_option, encoding_option
from consilience.cli.output import Output, check_new_file, json_option, quiet_option
from consilience.data.check import checked
from consilience.data.dictionary import draft_from_dictionary
from consilience.data.draft import Draft, draft_schema, table_name
from consilience.data.duck import opened_table
from consilience.data.files import table_and_name
from consilience.data.schema_file import read_schema
from consilience.data.tables import open_source
from consilience.errors import ConsilienceError


@click.command("schema")
@click.argument("table", required=False)
@click.option(
    "--out", type=click.Path(path_type=Path), help="A new file; standard output otherwise."
)
@click.option(
    "--dictionary",
    type=click.Path(path_type=Path),
    help="The public dictionary of the table: JSON of the ACS excerpts' kind, Frictionless Table Schema, or SDV metadata. Of "
    "TABLE only the names of the columns are then looked at.",
)
@click.option(
    "--bins",
    type=click.IntRange(min=1),
    help="With --dictionary: so many bins of equal width for numbers of which it has only the bounds.",
)
@click.option(
    "--missing",
    default="",
    metavar="TOKENS",
    help="What else stands for a missing value, such as N,? or 999.",
)
@click.option(
    "--ignore", default="", metavar="COLUMNS", help="Columns to leave out, such as id,name."
)
@click.option(
    "--check",
    "schema_path",
    type=click.Path(path_type=Path),
    help="A schema: say, per column, what of TABLE it would settle. Nothing is spent.",
)
@delimiter_option
@encoding_option
@json_option
@quiet_option
def schema_command(
    table: str | None,
    out: Path | None,
    dictionary: Path | None,
    bins: int | None,
    missing: str,
    ignore: str,
    schema_path: Path | None,
    delimiter: str | None,
    encoding: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Draft a schema for TABLE: what its columns are, their labels, bounds and bins. Or check one.

    TABLE is a CSV (also .csv.gz), Parquet, Arrow or DuckDB file. A draft off the table is NOT private: go through it before a
    release, and keep only what is public or would be chosen without the data. With a dictionary nothing is read off the data.

    \b
    Examples:
      consilience schema people.csv > people.toml
      consilience schema visits.csv --missing N,999 --encoding cp1252 --out visits.toml
      consilience schema survey.csv --dictionary dictionary.json --bins 10 --out survey.toml
      consilience schema --check people.toml people.csv
    """
    output = Output(quiet, as_json)
    tokens, unwanted = _words(missing), _words(ignore)
    _refuse(table, out, dictionary, bins, [*tokens, *unwanted], schema_path)
    if as_json and schema_path is None:
        raise ConsilienceError("--json goes with --check; a draft is TOML")
    if schema_path is not None:
        assert table is not None
        _check(output, table, schema_path, delimiter, encoding)
        return
    if out is not None:
        check_new_file(out)
    draft = _drafted(output, table, dictionary, bins, tokens, unwanted, delimiter, encoding)
    text = draft.to_toml()
    if out is None:
        click.echo(text, nl=False)
    else:
        out.write_text(text, encoding="utf-8")
        output.say(f"draft of {len(draft.comments)} columns in {out}")
    for remark in draft.remarks:
        output.say(remark)
    for column, why in draft.left_out.items():
        output.say(f"left out {column!r}, {why}")
    output.say(draft.head, style="yellow")
    for line in () if draft.schema is None else draft.schema.draft:
        output.say(f"check: {line}")
    for column, fields in draft.undecided.items():
        lacking = ", ".join(k for k, v in fields.items() if v == "?")
        output.say(f"decide: {lacking} of {column}")


def _words(text: str) -> list[str]:
    return [w.strip() for w in text.split(",") if w.strip()]


def _refuse(
    table: str | None,
    out: Path | None,
    dictionary: Path | None,
    bins: int | None,
    words: list[str],
    schema_path: Path | None,
) -> None:
    if table is None and dictionary is None:
        raise ConsilienceError("schema must be given a table, or --dictionary, got neither")
    if schema_path is not None and (table is None or out or dictionary or words):
        raise ConsilienceError(
            "--check compares a table with a schema: give both, and neither --out, --dictionary, --missing nor --ignore"
        )
    if bins is not None and dictionary is None:
        raise ConsilienceError("--bins goes with --dictionary; a draft off the table makes its own")


def _drafted(
    output: Output,
    table: str | None,
    dictionary: Path | None,
    bins: int | None,
    tokens: list[str],
    unwanted: list[str],
    delimiter: str | None,
    encoding: str | None,
) -> Draft:
    where, name = (None, None) if table is None else table_and_name(table)
    if dictionary is None:
        with output.working("looking at every column") as progress:
            return draft_schema(
                where,
                delimiter=delimiter,
                name=name,
                encoding=encoding,
                missing=tokens,
                ignore=unwanted,
                progress=progress,
            )
    header, remarks = None, ()
    if where is not None:
        _, opened, types = opened_table(where, delimiter, name, encoding=encoding)
        header, remarks = list(types), opened.remarks
    return draft_from_dictionary(
        dictionary,
        header,
        bins=bins,
        missing=tokens,
        ignore=unwanted,
        name=table_name(where),
        remarks=remarks,
    )


def _check(
    output: Output, table: str, schema_path: Path, delimiter: str | None, encoding: str | None
) -> None:
    schema = read_schema(schema_path)
    with output.working("looking at every row") as progress:
        source = open_source(
            table, schema, delimiter=delimiter, encoding=encoding, progress=progress
        )
        found = checked(source)
    output.json(found.facts())
    output.show("\n".join(found.lines()))
