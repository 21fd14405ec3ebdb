"""consilience report: one HTML page that explains a release to whoever reads it."""

from __future__ import annotations

from pathlib import Path

import click

from consilience.cli.shell import Output, json_option, quiet_option
from consilience.release import read_release
from consilience.report import default_path, write_report


@click.command()
@click.argument("release", type=click.Path(path_type=Path))
@click.option(
    "--out", type=click.Path(path_type=Path), help="An HTML file; RELEASE/report.html unless given."
)
@click.option(
    "--title", default="A private release, and how far to trust it", help="The page's heading."
)
@click.option(
    "--rows",
    type=click.IntRange(min=0),
    help="Synthetic rows to compare with the tables: as many as the total, 50,000 at most, unless given; 0 for none.",
)
@json_option
@quiet_option
def report(
    release: Path, out: Path | None, title: str, rows: int | None, as_json: bool, quiet: bool
) -> None:
    """One page about a RELEASE folder: what was spent, how far each table can be relied on, every table with intervals.

    The page is one HTML file that opens from disk and fetches nothing. It is made from the published files alone and costs no
    privacy.

    \b
    Example: consilience report release/
    """
    output = Output(quiet, as_json)
    published = read_release(release)
    target = out if out is not None else default_path(release)
    with output.working("looking at every table") as heard:
        write_report(published, target, title=title, rows=rows, progress=heard)
    size = target.stat().st_size
    output.json({"report": str(target), "bytes": size})
    output.show(f"{target}: {size / 1e6:.1f} MB, opens in any browser")
