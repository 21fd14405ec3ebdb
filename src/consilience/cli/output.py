"""Output that fits its reader: results, notes on the way, and a bar while work takes long."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import perf_counter
from typing import Any

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from consilience.cli.log import EVERY, log_options, logging
from consilience.cli.shell import interrupts
from consilience.errors import ReleaseError
from consilience.kernels.compiling import listening
from consilience.progress import Progress, Step

PATIENCE = 2.0
"""Seconds after which work shows a bar, on a terminal."""
POLL = 0.2
COMPILING = "compiling, once"


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
        self, stage: str, share: Callable[[], float | None] = lambda: None
    ) -> Iterator[Progress]:
        """A bar with the time left once the work takes long, if somebody watches. Yields what is to be told of its steps.

        share: for a stage that does not report by itself, how much of it is done, from 0 to 1; asked now and then.
        """
        watched = self.notes.is_terminal and not self.quiet
        stages = _Stages(self, stage, share if watched else None)
        timer = Thread(target=stages.show, daemon=True)
        if watched:
            timer.start()
        try:
            with listening(stages.compiling):
                yield stages.report
        finally:
            stages.ended.set()
            if watched:
                timer.join()
                stages.bar.stop()
        stages.close()


class _Stages:
    """The bar of one piece of work, which goes through stages."""

    def __init__(
        self, output: Output, stage: str, share: Callable[[], float | None] | None
    ) -> None:
        self.output, self.share = output, share
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("so far"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self.bar = Bar(*columns, console=output.notes, transient=True)
        self.task = self.bar.add_task(stage, total=None)
        self.ended = Event()
        self.stage, self.since, self.counted = stage, perf_counter(), False
        self.logged = self.since
        self.depth = 0

    def report(self, step: Step) -> None:
        """A step of the work; one of another stage begins that stage.

        Here also ends what was asked to stop and went on, as where the interrupt fell into a callback that swallows exceptions.
        """
        if interrupts.seen:
            raise KeyboardInterrupt
        if step.stage != self.stage:
            self.close()
            self.stage, self.since = step.stage, perf_counter()
            self.logged = self.since
            self.bar.reset(self.task, description=step.stage, total=None)
        elif logging.log is not None and perf_counter() - self.logged > EVERY:
            self.logged = perf_counter()
            logging.log.write("progress", stage=step.stage, done=step.done, total=step.total)
        self.counted = step.total is not None
        self.bar.update(self.task, completed=step.done, total=step.total)

    def compiling(self, kernel: str, begins: bool) -> None:
        """A kernel is compiled, the first time that anything needs it; the bar says so meanwhile."""
        self.depth += 1 if begins else -1
        self.bar.update(self.task, description=COMPILING if self.depth else self.stage)

    def show(self) -> None:
        """In a thread of its own: wait, then draw until the work has ended."""
        if self.ended.wait(PATIENCE):
            return
        self.bar.start()
        while not self.ended.wait(POLL):
            done = self.share() if self.share is not None and not self.counted else None
            if done is not None:
                self.bar.update(self.task, completed=done, total=1.0)

    def close(self) -> None:
        """Say how long the stage took, if it was long and somebody watches; the log has it in any case."""
        seconds = perf_counter() - self.since
        if logging.log is not None:
            logging.log.write("stage", stage=self.stage, seconds=round(seconds, 3))
        if self.share is not None and seconds > PATIENCE:
            self.output.say(f"  {self.stage}: {seconds:.0f} s", style="dim")


def check_new_file(path: Path) -> None:
    """Refuse to write over a file."""
    if path.exists():
        raise ReleaseError(f"the output must be a new file, but {str(path)!r} exists; name another")


def quiet_option(command: Any) -> Any:
    """--quiet, and the log for runs that nobody watches."""
    return click.option(
        "--quiet", "-q", is_flag=True, help="Say nothing but results and mistakes."
    )(log_options(command))


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
