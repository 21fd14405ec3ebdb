"""consilience explore: a page on which a release can be asked, served to this machine or written as files."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from consilience.cli.output import Output, json_option, quiet_option
from consilience.explore import export, serve
from consilience.release import read_release


@click.command("explore")
@click.argument("release", type=click.Path(path_type=Path))
@click.option(
    "--port",
    default=0,
    type=click.IntRange(0, 65535),
    help="Of the page; a free one unless given.",
)
@click.option("--open", "browse", is_flag=True, help="Show it in the usual browser.")
@click.option(
    "--export",
    "target",
    type=click.Path(path_type=Path),
    help="A new folder for the page as files, with its tables prepared: it can be published, and opens from disk.",
)
@json_option
@quiet_option
def explore_command(
    release: Path, port: int, browse: bool, target: Path | None, as_json: bool, quiet: bool
) -> None:
    """A page to ask a RELEASE folder questions on: tables and charts with their errors, and what they rest on.

    It is served by this machine to this machine (127.0.0.1) until Ctrl-C, reads published files alone and costs no privacy. The
    numbers are those of `consilience answer`; the page shows the command for each.

    \b
    Examples:
      consilience explore release/ --open
      consilience explore release/ --export site/
    """
    output = Output(quiet, as_json)
    published = read_release(release)
    if target is not None:
        with output.working("answering") as progress:
            left = export(published, str(release), target, progress=progress)
        output.json({"page": str(target / "index.html"), "left_out": [list(c) for c in left]})
        output.show(f"{target / 'index.html'}: open it in a browser")
        if left:
            names = ", ".join(" x ".join(c) for c in left[:3])
            output.say(f"{len(left):,} tables were too large for it, such as {names}", "yellow")
        return

    def ready(address: str) -> None:
        output.json({"page": address})
        output.show(f"{address} shows {release}, to this machine only; Ctrl-C ends it")
        if browse:
            webbrowser.open(address)

    try:
        serve(published, str(release), port, ready=ready)
    except KeyboardInterrupt:
        output.say("ended")
