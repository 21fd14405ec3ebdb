"""The shell around all commands: one line and an exit code for every mistake, and signals to stop."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType, ModuleType
from typing import Any, NoReturn

import click

from consilience.cli.log import logging
from consilience.errors import ConsilienceError

DEFECT, MISTAKE = 1, 2
"""Exit codes, beside 0 for what was done; docs/command-line.md says what they mean."""
INTERRUPTED = "interrupted"
COMMANDS = {
    "demo": "the whole job on invented people",
    "schema": "draft what the columns of a table are",
    "plan": "what a release would measure, cost and need; touches no data",
    "release": "a table and a budget in, a folder that may be published out",
    "resume": "finish a release that was paid for and interrupted",
    "answer": "counts from a release, with standard errors and what they rest on",
    "sample": "synthetic rows from a release",
    "report": "one page about a release: the promise, the tables, how far to trust them",
    "explore": "a page to ask a release questions on, for this machine alone or as files",
    "budget": "what a ledger allows and what was spent; new ledgers",
    "reconstruct": "somebody's noisy tables in, consistent ones out",
    "compare": "every reconstruction on one's own measurements",
    "census": "the 2020 census's noisy measurement files: read, simulate, reconstruct",
}
"""{name: one line}, in the order in which they are used. The command NAME is `NAME_command` in the module of its name."""
ELSEWHERE = {"resume": "release"}
"""Commands that share the module of another."""


class Shell(click.Group):
    """A group of commands in which whatever goes wrong is one line for a person and exit code 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command is imported when it is asked for: the noise library alone takes a second to load."""
        if cmd_name not in COMMANDS:
            return None
        return getattr(_module(cmd_name), f"{cmd_name}_command")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

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
            logging.end(DEFECT, "whoever read the output has stopped")
            sys.exit(DEFECT)
        except (Exception, KeyboardInterrupt) as error:
            with last_words():
                line = line_of(error)
                if line is None:
                    logging.end(DEFECT, f"a defect: {type(error).__name__}")
                    raise
                notes = _notes(error)
                if line == INTERRUPTED and not notes:
                    notes = ["nothing was written, and what a ledger had recorded stays spent"]
                line = "; ".join([line, *notes])
                click.echo("consilience: " + " ".join(line.split()), err=True)
                logging.end(MISTAKE, " ".join(line.split()))
                sys.exit(MISTAKE)
        logging.end(code if isinstance(code, int) else 0)
        sys.exit(code if isinstance(code, int) else 0)


def load(words: Sequence[str]) -> None:
    """Import the command that is asked for."""
    if words and words[0] in COMMANDS:
        _module(words[0])


def _module(name: str) -> ModuleType:
    return import_module(f"consilience.cli.{ELSEWHERE.get(name, name)}")


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


def _notes(error: BaseException) -> list[str]:
    """What was noted on the way, as where paid-for measurements are kept; click makes an error of its own of Ctrl-C."""
    notes = list(getattr(error, "__notes__", []))
    return notes if error.__cause__ is None else notes + _notes(error.__cause__)


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


# -- signals to stop -------------------------------------------------------------------------------

_STOPS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Whether the process was asked to stop: a library that was stopped may call it something else. One per process."""

    seen = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.seen = True
        raise KeyboardInterrupt


interrupts = Interrupts()


def listen() -> None:
    """From here on Ctrl-C and SIGTERM are a KeyboardInterrupt, and are remembered."""
    for stop in _STOPS:
        signal.signal(stop, interrupts)


@contextmanager
def last_words() -> Iterator[None]:
    """While the one line is said, further signals do not cut it short."""
    if interrupts.seen:
        for stop in _STOPS:
            signal.signal(stop, signal.SIG_IGN)
    yield
