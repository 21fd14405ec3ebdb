"""What a person sees at a terminal: a bar with the time left while work goes on, and nothing of it elsewhere."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from cli.conftest import BUDGET
from consilience.cli.output import Output
from consilience.cli.shell import interrupts
from consilience.progress import Step

WORDS = ("people.csv", "--schema", "people.toml", *BUDGET, "--errors", "none", "--out", "out")
SLOW = """
import sys, time
import consilience.cli.output as output
import consilience.cli.shell as shell
import consilience.data.duck as duck
import consilience.release.run as run
from consilience.progress import Step
output.PATIENCE, output.POLL = 0.0, 0.01
work = run.errors_of
def slow(model, cliques, method, progress):
    for i in range(12):
        progress(Step("thinking", i, 12))
        time.sleep(0.1)
    duck.DuckDBTable.share_done = lambda self: 0.25
    progress(Step("asking", 0))
    time.sleep(0.5)
    return work(model, cliques, method, progress)
run.errors_of = slow
"""
"""Bars from the first moment on, and a second of work for them to show."""


def at_a_terminal(place: Path, *words: str) -> str:
    """All that the command writes to a pseudo-terminal, with its control codes."""
    code = f"{SLOW}\nsys.argv = {['consilience', 'release', *words]!r}\nshell.main()"
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "NO_COLOR": ""}
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=place,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    assert child.wait(timeout=60) == 0, seen.decode()
    return seen.decode()


def test_a_bar_with_the_time_left(place: Path) -> None:
    seen = at_a_terminal(place, *WORDS)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen)
    assert re.search(r"thinking .*━.* so far \d:\d\d:\d\d left 0:00:0\d", plain)
    assert re.search(r"asking .*━.* so far \d:\d\d:\d\d left", plain)
    assert "out: 10 tables, private" in plain
    assert plain.rstrip().splitlines()[-1].startswith("out: "), "no bar is left standing"


def test_no_bar_in_quiet(place: Path) -> None:
    seen = at_a_terminal(place, *WORDS, "--quiet")
    assert re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen).strip().startswith("out: 10 tables, private")
    assert "━" not in seen
    assert "thinking" not in seen


def test_no_bar_where_nobody_watches(place: Path) -> None:
    code = f"{SLOW}\nsys.argv = {['consilience', 'release', *WORDS]!r}\nshell.main()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=place, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    for text in (done.stdout, done.stderr):
        assert "\x1b" not in text
        assert "━" not in text
        assert "thinking" not in text


def test_a_stop_that_was_swallowed_ends_the_work_at_its_next_step() -> None:
    """An interrupt inside a callback of a library is lost there; whatever reports progress ends all the same."""
    with Output(quiet=True).working("working") as progress:
        progress(Step("working", 1, 3))
        with suppress(KeyboardInterrupt):  # as such a library does
            interrupts(signal.SIGTERM, None)
        try:
            with pytest.raises(KeyboardInterrupt):
                progress(Step("working", 2, 3))
        finally:
            interrupts.seen = False
