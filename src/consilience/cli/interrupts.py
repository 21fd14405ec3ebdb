"""Ctrl-C and SIGTERM as KeyboardInterrupt, remembered: a library that was stopped may call it something else."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_STOPS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Whether the process was asked to stop. One per process, as signals are."""

    seen = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.seen = True
        raise KeyboardInterrupt


interrupts = Interrupts()


def listen() -> None:
    """From here on a signal to stop is a KeyboardInterrupt."""
    for stop in _STOPS:
        signal.signal(stop, interrupts)


@contextmanager
def last_words() -> Iterator[None]:
    """While the one line is said, further signals do not cut it short."""
    if interrupts.seen:
        for stop in _STOPS:
            signal.signal(stop, signal.SIG_IGN)
    yield
