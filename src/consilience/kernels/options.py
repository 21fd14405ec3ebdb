"""Compiler settings shared by every kernel."""

from typing import Any

# Sums may be re-ordered so that they vectorise; the order is fixed at compile time, so results stay the same bit for bit.
# Division by zero follows IEEE instead of raising, because a check per division keeps loops scalar.
LOOP: dict[str, Any] = {
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
    "nogil": True,
}
PARALLEL: dict[str, Any] = {**LOOP, "parallel": True}
