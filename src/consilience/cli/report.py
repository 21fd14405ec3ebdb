"""consilience report: one page about a release, for whoever must decide how far to trust it."""

from __future__ import annotations

from pathlib import Path

import click

from consilience.cli.output import Output, check_new_file, json_option, quiet_option
from consilience.release import read_release
from consilience.report import default_path, write_report


@click.command("report")
@click.argument("release", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="A new file; report.html in the folder otherwise.",
)
@click.option(
    "--title", default="A private release, and how far to trust it", help="The page's heading."
)
@click.option(
    "--rows",
    type=click.IntRange(min=0),
    help="Synthetic rows to compare with the tables; the total, 50,000 at most, unless given; 0 for none.",
)
@json_option
@quiet_option
def report_command(
    release: Path, out: Path | None, title: str, rows: int | None, as_json: bool, quiet: bool
) -> None:
    """One HTML page about a RELEASE folder: the promise, the tables, and how far each can be trusted.

    It is made from the published files alone, so it costs no privacy, and it needs no network to be read.

    \b
    Examples:
      consilience report release/
      consilience report release/ --out report.html --title "People of 2026"
    """
    output = Output(quiet, as_json)
    if out is not None:
        check_new_file(out)
    published = read_release(release)
    with output.working("writing the report") as progress:
        written = write_report(
            published, out or default_path(release), title=title, rows=rows, progress=progress
        )
    output.json({"report": str(written), "bytes": written.stat().st_size})
    output.show(f"{written}: open it in a browser")
