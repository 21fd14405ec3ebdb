"""Work items handed to threads. Kernels release the interpreter's lock and work on ranges of items: `kernel(first, last, ...)`.

Items are independent of each other, so results are the same bit for bit whatever the number of threads or of ranges.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import Any

from numba import config

SERIAL_CELLS = 60_000
"""Visits of cells below which handing work to threads costs more than it saves."""
RANGES = 4
"""Ranges per thread: a thread that is kept waiting by other work on the machine leaves its share to the others."""


class _Threads:
    """How many threads there are, and those that wait for work (made when first needed, and anew in a forked process)."""

    def __init__(self) -> None:
        self.count: int = config.NUMBA_NUM_THREADS  # pyright: ignore[reportAttributeAccessIssue]
        self.forget()

    def forget(self) -> None:
        self.lock = Lock()
        self.pool: ThreadPoolExecutor | None = None
        self.helpers = 0

    def waiting(self, helpers: int) -> ThreadPoolExecutor:
        with self.lock:
            if self.pool is None or self.helpers < helpers:
                self.pool, self.helpers = ThreadPoolExecutor(helpers, "consilience"), helpers
            return self.pool


_threads = _Threads()
os.register_at_fork(after_in_child=_threads.forget)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """As many threads as this, instead of one per core (or NUMBA_NUM_THREADS)."""
    before, _threads.count = _threads.count, count
    try:
        yield
    finally:
        _threads.count = before


def small(cells: int) -> bool:
    """Whether work that visits this many cells is left to one thread, however many there are."""
    return cells < SERIAL_CELLS


def spread(kernel: Callable[..., Any], items: int, cells: int, *args: Any, start: int = 0) -> None:
    """kernel(first, last, *args) over `items` items from `start` on: in one call if it visits few cells, else by all threads."""
    if items < 2 or small(cells) or _threads.count == 1:
        if items:
            kernel(start, start + items, *args)
        return
    workers = min(_threads.count, items)
    parts = min(items, workers * RANGES)
    ranges = iter(
        [(start + k * items // parts, start + (k + 1) * items // parts) for k in range(parts)]
    )

    def work() -> None:
        for first, last in ranges:  # a list's iterator gives each range to one thread only
            kernel(first, last, *args)

    pool = _threads.waiting(workers - 1)
    others = [pool.submit(work) for _ in range(workers - 1)]
    try:
        work()
    finally:
        for other in others:
            other.result()
