"""consilience resume: finish a release that was paid for and interrupted."""

from __future__ import annotations

from pathlib import Path

import click

from consilience.cli.asked import read_asked
from consilience.cli.finish import Finish, check_errors, keeping
from consilience.cli.shell import Output, json_option, quiet_option
from consilience.release import read_unfinished
from consilience.release.atomic import check_target


@click.command()
@click.argument("partial", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="A folder to be made; the one that the release was for otherwise.",
)
@click.option("--consistency", help="auto, global or local; as the release asked otherwise.")
@click.option("--memory", help="For the reconstruction; as the release asked otherwise.")
@click.option(
    "--errors",
    type=click.Choice(["auto", "closed-form", "bootstrap", "none"]),
    help="How standard errors are found; as the release asked otherwise.",
)
@json_option
@quiet_option
def resume(
    partial: Path,
    out: Path | None,
    consistency: str | None,
    memory: str | None,
    errors: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Finish a release that was interrupted after it was paid for: Ctrl-C, a full disk, too little memory, a crash.

    PARTIAL is what it left beside its output, such as release.partial. It holds the noisy measurements, so the table is not
    read again and nothing is spent. What costs no privacy may be changed: where the folder goes, and how it is reconstructed.

    \b
    Examples:
      consilience resume release.partial
      consilience resume release.partial --out /elsewhere/release --memory '8 GB' --errors none
    """
    output = Output(quiet, as_json)
    left = read_unfinished(partial)
    target = left.out if out is None else out
    check_target(target)
    changed = {"consistency": consistency, "memory": memory}
    words = {**left.asked, **{k: v for k, v in changed.items() if v is not None}}
    asked = read_asked(left.schema, words)
    wanted = errors or words["errors"]
    check_errors(asked, wanted)
    with keeping(left.paid):
        with output.working("calibrating"):
            ready = asked.mechanism.calibrate(asked.budget)
        noisy = left.release(ready.cost)
        output.say(f"{ready}\n{ready.plan}")
        finish = Finish(output, target, left.schema, asked, ready, left.paid)
        finish(noisy, wanted, left.about["account"])
