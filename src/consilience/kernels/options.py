"""Compiler settings shared by every kernel, and how many threads a piece of work deserves. Results do not depend on either."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba import get_num_threads, set_num_threads

# Sums may be re-ordered so that they vectorise; the order is fixed at compile time, so results stay the same bit for bit.
# Division by zero follows IEEE instead of raising, because a check per division keeps loops scalar.
LOOP: dict[str, Any] = {
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "nogil": True,
}
# For functions that a parallel loop calls per item with named tuples: a real call would count the references of every array.
INLINE: dict[str, Any] = {**LOOP, "forceinline": True}
# A parallel loop only hands its items to a function. What it wrote itself into an array of a named tuple would be lost: numba
# takes that for a value nobody reads.
PARALLEL: dict[str, Any] = {**LOOP, "parallel": True}

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
