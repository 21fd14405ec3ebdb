"""Memory: sizes in bytes, as people write them and as they are refused."""

from __future__ import annotations

import re

from consilience.errors import CapacityError, ConsilienceError

DEFAULT_MEMORY = 4 * 2**30
"""Bytes that exact inference may take unless told otherwise."""


def parse_bytes(given: str | int | float) -> int:
    """2_000_000_000, "2 GB", "500MB"; GiB and GB are told apart."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        value = float(given)
    else:
        found = re.fullmatch(r"\s*([0-9]+\.?[0-9]*)\s*([kmgt]?i?b)?\s*", str(given).lower())
        if not found:
            raise ConsilienceError(
                f'memory must be a number of bytes or text such as "2 GB", got {given!r}'
            )
        unit = found.group(2) or "b"
        base = 1024 if "i" in unit else 1000
        value = float(found.group(1)) * base ** "bkmgt".index(unit[0])
    if not value > 0 or value == float("inf"):
        raise ConsilienceError(f"memory must be positive and finite, got {given!r}")
    return int(value)


def show_bytes(n: int | float) -> str:
    """The size in words: "1.2 GB"."""
    if n >= 10**18:
        return f"10^{len(str(int(n))) - 1} B"
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if n < 1000 or unit == "PB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    raise AssertionError


def check_capacity(what: str, needed: int, memory: int | None) -> None:
    """Refuse exact inference that would not fit the budget, before anything is allocated."""
    budget = DEFAULT_MEMORY if memory is None else memory
    if needed > budget:
        raise CapacityError(
            f"exact inference must fit the memory budget: {what} needs {show_bytes(needed)}, the budget is "
            f"{show_bytes(budget)}; raise memory=, measure fewer cliques, or use a region graph",
            needed,
            budget,
        )
