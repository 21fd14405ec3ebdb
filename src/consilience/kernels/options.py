"""Compiler settings shared by every kernel."""

from __future__ import annotations

from typing import Any

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
