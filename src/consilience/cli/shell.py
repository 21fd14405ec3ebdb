"""What all commands share: one line and an exit code for every mistake, output that fits its reader, progress."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from time import perf_counter
from typing import Any, NoReturn

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from consilience.cli.interrupts import interrupts, last_words
from consilience.errors import ConsilienceError

PATIENCE = 2.0
"""Seconds after which work shows a bar, on a terminal."""
POLL = 0.2
MISTAKE = 2
INTERRUPTED = "interrupted"
COMMANDS = {
    "demo": ("demo", "the whole job on invented people"),
    "schema": ("schema", "draft what the columns of a table are"),
    "plan": ("plan", "what a release would measure, cost and need; touches no data"),
    "release": ("release", "a table and a budget in, a folder that may be published out"),
    "resume": ("resume", "finish a release that was paid for and interrupted"),
    "answer": ("answer", "counts from a release, with standard errors and what they rest on"),
    "sample": ("sample", "synthetic rows from a release"),
    "report": (
        "report",
        "one page about a release: the promise, the tables, how far to trust them",
    ),
    "budget": ("budget", "what a ledger allows and what was spent; new ledgers"),
    "reconstruct": ("reconstruct_tables", "somebody's noisy tables in, consistent ones out"),
    "compare": ("compare_methods", "every reconstruction on one's own measurements"),
}
"""{name: (function in the module of that name, one line)}, in the order in which they are used."""


class Shell(click.Group):
    """A group of commands in which whatever goes wrong is one line for a person and exit code 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command is imported when it is asked for: the noise library alone takes a second to load."""
        if cmd_name not in COMMANDS:
            return None
        return getattr(import_module(f"consilience.cli.{cmd_name}"), COMMANDS[cmd_name][0])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def main(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        extra["standalone_mode"] = False
        try:
            code = super().main(args, "consilience", **extra)
        except click.exceptions.NoArgsIsHelpError as asked:
            click.echo(asked.format_message())
            sys.exit(MISTAKE)
        except BrokenPipeError:  # whoever read our output has stopped
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except (Exception, KeyboardInterrupt) as error:
            with last_words():
                line = line_of(error)
                if line is None:
                    raise
                if line == INTERRUPTED:
                    line += "; nothing was written, and what a ledger had recorded stays spent"
                click.echo("consilience: " + " ".join(line.split()), err=True)
                sys.exit(MISTAKE)
        sys.exit(code if isinstance(code, int) else 0)


def load(words: Sequence[str]) -> None:
    """Import the command that is asked for."""
    if words and words[0] in COMMANDS:
        import_module(f"consilience.cli.{words[0]}")


def line_of(error: BaseException) -> str | None:
    """What went wrong, in a line for a person; None where it is a defect of ours, to be seen in full."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return INTERRUPTED
    if isinstance(error, ConsilienceError):
        return str(error)
    if interrupts.seen:  # whatever the library that was stopped made of it
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        return _usage(error)
    if isinstance(error, OSError):
        return _io(error)
    if isinstance(error, MemoryError):
        return "this does not fit the memory; ask for fewer or smaller tables"
    return None


def _usage(mistake: click.ClickException) -> str:
    text = mistake.format_message()
    if isinstance(mistake, click.UsageError) and mistake.ctx is not None:
        return f"{text} (see {mistake.ctx.command_path} --help)"
    return text


def _io(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "there is no space left on the disk; nothing was written"
    where = f" {error.filename!r}" if error.filename else ""
    return f"{error.strerror or error}{where}"


@click.group(cls=Shell, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="consilience")
def main() -> None:
    """Private tables that agree: from a table of people and a budget to a folder that may be published.

    \b
    From a CSV file to answers, in five commands:
      consilience schema people.csv > people.toml          # draft, then edit: what are the columns?
      consilience plan people.csv --schema people.toml --epsilon 1 --delta 1e-6 --workload 2
      consilience release people.csv --schema people.toml --epsilon 1 --delta 1e-6 --workload 2 \\
          --neighbours replace-one --ledger people.ledger --out release/
      consilience answer release/ age,sex --where 'income>=50000'
      consilience sample release/ --rows 1000 --out rows.csv

    Every command explains itself: consilience release --help. A mistake is one line and exit code 2.
    """


# -- output ------------------------------------------------------------------------------------------


class Output:
    """Results to standard output, everything said on the way to standard error."""

    def __init__(self, quiet: bool = False, as_json: bool = False) -> None:
        self.quiet, self.as_json = quiet, as_json
        self.results = Console(highlight=False, soft_wrap=True)
        self.notes = Console(stderr=True, highlight=False, soft_wrap=True)

    def say(self, text: str = "", style: str | None = None) -> None:
        """For the person at the terminal; nothing in --quiet."""
        if not self.quiet:
            self.notes.print(text, style=style, markup=False)

    def show(self, result: Any) -> None:
        """A result for people; nothing where JSON was asked for."""
        if not self.as_json:
            self.results.print(result, markup=False)

    def json(self, result: Any) -> None:
        if self.as_json:
            click.echo(json.dumps(result, indent=1, ensure_ascii=False))

    @contextmanager
    def working(
        self, what: str, share: Callable[[], float | None] = lambda: None
    ) -> Iterator[Callable[[int, int | None], None]]:
        """A bar with the time left once the work takes long, if somebody watches. Yields (done, of) -> None.

        share: for work that does not report by itself, how much of it is done, from 0 to 1; asked now and then.
        """
        watched = self.notes.is_terminal and not self.quiet
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("so far"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        bar = Progress(*columns, console=self.notes, transient=True)
        task = bar.add_task(what, total=None)
        ended = Event()

        def show() -> None:
            if ended.wait(PATIENCE):
                return
            bar.start()
            while not ended.wait(POLL):
                done = share()
                if done is not None:
                    bar.update(task, completed=done, total=1.0)

        timer = Thread(target=show, daemon=True)
        start = perf_counter()
        if watched:
            timer.start()
        try:
            yield lambda done, of: bar.update(task, completed=done, total=of)
        finally:
            ended.set()
            if watched:
                timer.join()
                bar.stop()
        seconds = perf_counter() - start
        if watched and seconds > PATIENCE:
            self.say(f"  {what}: {seconds:.0f} s", style="dim")


def quiet_option(command: Any) -> Any:
    return click.option(
        "--quiet", "-q", is_flag=True, help="Say nothing but results and mistakes."
    )(command)


def picture_option(command: Any) -> Any:
    return click.option(
        "--picture",
        "drawing",
        type=click.Path(path_type=Path),
        help="Also draw it: a .svg, .png or .html file.",
    )(command)


def json_option(command: Any) -> Any:
    return click.option("--json", "as_json", is_flag=True, help="For scripts: one JSON object.")(
        command
    )
