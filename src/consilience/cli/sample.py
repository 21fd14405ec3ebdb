"""consilience sample: synthetic rows from a release."""

from __future__ import annotations

import os
from pathlib import Path
from secrets import token_hex

import click
import pyarrow

from consilience.cli.output import Output, check_new_file, json_option, quiet_option
from consilience.errors import ReleaseError
from consilience.release import read_release, write_table


@click.command("sample")
@click.argument("release", type=click.Path(path_type=Path))
@click.option(
    "--rows", type=click.IntRange(min=1), help="How many; as many as the release says there are."
)
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="A new .csv or .parquet file."
)
@click.option("--seed", type=int, help="The same rows again; costs no privacy.")
@json_option
@quiet_option
def sample_command(
    release: Path, rows: int | None, out: Path, seed: int | None, as_json: bool, quiet: bool
) -> None:
    """Synthetic rows from a RELEASE folder, in the columns, order and types of the schema.

    Rows are made from the published model alone, so they cost no privacy. Numbers lie inside their bin as the bins beside it
    suggest, days are the first of their period.

    \b
    Example: consilience sample release/ --rows 1000 --out rows.csv
    """
    output = Output(quiet, as_json)
    check_new_file(out)
    if out.suffix not in (".csv", ".parquet"):
        raise ReleaseError(f"the output must end in .csv or .parquet, got {str(out)!r}")
    if not out.absolute().parent.is_dir():
        raise ReleaseError(f"the output must be in a folder that exists, got {str(out)!r}")
    published = read_release(release)
    model = published.model
    wanted = rows if rows is not None else max(1, round(model.total))
    with output.working("drawing rows") as report:
        data = model.sample(wanted, seed, progress=report)
    columns = published.decode(data, seed)
    if out.suffix == ".csv":
        columns = published.schema.spelled(columns)
    table = pyarrow.table({k: pyarrow.array(v, from_pandas=True) for k, v in columns.items()})
    draft = out.with_name(f".{token_hex(8)}{out.suffix}")
    try:
        write_table(table, draft)
        os.replace(draft, out)
    finally:
        draft.unlink(missing_ok=True)
    output.json({"rows": wanted, "columns": table.num_columns, "file": str(out)})
    output.show(f"{out}: {wanted:,} synthetic rows, {table.num_columns} columns")
