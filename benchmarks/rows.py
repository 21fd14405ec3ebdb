"""What every benchmark gives: rows of a table, times taken fairly, work done in a process of its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any


@dataclass(frozen=True)
class Row:
    """One line of the table. `ratio` is rival / ours for a rival, ours / bar for a bar; the note says which."""

    name: str
    ours: str
    rival: str = ""
    ratio: float | None = None
    note: str = ""


def seconds(t: float) -> str:
    """A time that a person can read."""
    if t < 1e-3:
        return f"{t * 1e6:.0f} µs"
    return f"{t * 1e3:.3g} ms" if t < 1 else f"{t:.3g} s"


def size(n: float) -> str:
    """A number of bytes that a person can read."""
    return f"{n / 1e9:.2f} GB" if n >= 1e9 else f"{n / 1e6:.0f} MB"


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = perf_counter()
    result = work()
    return perf_counter() - start, result


def interleaved(rounds: int, *works: Callable[[], Any]) -> list[float]:
    """Median seconds of each piece of work, run in turns so that a busy machine is equally unkind to all."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for taken, work in zip(times, works, strict=True):
            taken.append(timed(work)[0])
    return [median(t) for t in times]


def peak_bytes() -> int:
    """The largest resident size that this process ever had.

    From /proc where there is one: there `getrusage` also counts what the parent held when it started this process.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def apart(script: str, *arguments: str) -> dict[str, Any]:
    """Run a benchmark file in a process of its own, so that memory and start-up are its own; its last line is JSON."""
    done = subprocess.run(
        [sys.executable, script, *arguments], check=True, text=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout.strip().splitlines()[-1])
