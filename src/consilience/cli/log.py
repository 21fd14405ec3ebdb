"""--log FILE: what a command did, a line per stage, for runs that nobody watches.

    2026-11-18T04:50:00.123Z release begin
    2026-11-18T04:50:00.456Z release stage: counting, 0.31 s
    2026-11-18T04:50:31.002Z release progress: drawing noise, 400 of 969
    2026-11-18T04:50:40.800Z release end: exit code 0, 40.7 s

With --log-json each line is a JSON object with the same facts. Lines are added to the file, each in one write. The log is for
whoever runs the command and not for publication: it holds neither values nor addresses, but its times depend on the data.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from consilience.errors import ConsilienceError

AS_JSON = "consilience.log_json"
EVERY = 30.0
"""Seconds after which a stage that is still at work says how far it is."""


class Log:
    """The log of one command, open from its options to its exit code."""

    def __init__(self, path: Path, command: str, as_json: bool) -> None:
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self.file = os.open(path, flags, 0o644)
        except OSError as error:
            raise ConsilienceError(
                f"--log must name a file that can be written, got {str(path)!r}: {error.strerror or error}"
            ) from error
        self.command, self.as_json, self.began = command, as_json, perf_counter()
        self.write("begin")

    def write(self, event: str, **facts: Any) -> None:
        """A line: when, which command, what."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        kept = {k: v for k, v in facts.items() if v is not None}
        if self.as_json:
            record = {"time": now, "command": self.command, "event": event, **kept}
            line = json.dumps(record, ensure_ascii=False)
        else:
            line = f"{now} {self.command} {event}{_in_words(kept)}"
        os.write(self.file, (" ".join(line.splitlines()) + "\n").encode("utf-8", "replace"))

    def end(self, code: int, error: str | None) -> None:
        """The last line; the file is closed."""
        self.write("end", exit=code, error=error, seconds=round(perf_counter() - self.began, 3))
        os.close(self.file)


def _in_words(facts: dict[str, Any]) -> str:
    parts = []
    if "stage" in facts:
        parts.append(str(facts["stage"]))
    if "exit" in facts:
        parts.append(f"exit code {facts['exit']}")
    if "done" in facts:
        of = f" of {facts['total']:,}" if "total" in facts else ""
        parts.append(f"{facts['done']:,}{of}")
    if "seconds" in facts:
        parts.append(f"{facts['seconds']:.2f} s")
    if "error" in facts:
        parts.append(str(facts["error"]))
    return ": " + ", ".join(parts) if parts else ""


class Logging:
    """The log of the command that runs, if it has one. One per process, as there is one command."""

    log: Log | None = None

    def end(self, code: int, error: str | None = None) -> None:
        if self.log is not None:
            self.log.end(code, error)
            self.log = None


logging = Logging()


def log_options(command: Any) -> Any:
    """--log FILE and --log-json."""

    def begin(context: click.Context, option: click.Parameter, path: Path | None) -> None:
        if path is not None and not context.resilient_parsing:
            name = context.info_name or "consilience"
            logging.log = Log(path, name, context.meta.get(AS_JSON, False))

    def as_json(context: click.Context, option: click.Parameter, given: bool) -> None:
        context.meta[AS_JSON] = given

    command = click.option(
        "--log",
        type=click.Path(path_type=Path, dir_okay=False),
        expose_value=False,
        callback=begin,
        help="Add a line per stage to this file, for runs that nobody watches.",
    )(command)
    return click.option(
        "--log-json",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=as_json,
        help="With --log: lines of JSON.",
    )(command)
