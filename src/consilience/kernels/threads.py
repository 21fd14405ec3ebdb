"""How many threads a piece of work deserves. Results do not depend on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from numba import get_num_threads, set_num_threads

SERIAL_CELLS = 60_000
"""Below this many cells handing work to threads costs more than it saves."""


@contextmanager
def threads_for(cells: int) -> Iterator[None]:
    """One thread for small work, as many as before for the rest."""
    before = get_num_threads()
    if cells >= SERIAL_CELLS or before == 1:
        yield
        return
    set_num_threads(1)
    try:
        yield
    finally:
        set_num_threads(before)
