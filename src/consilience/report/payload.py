"""Tables as a page embeds them: compact JSON, each number with no more digits than it deserves, within a limit of cells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from consilience.domain import Buffer
from consilience.report.tables import PublishedTable

MOST_CELLS = 300_000
"""Of all tables in one page: about 3 MB. The largest tables are left out beyond it, and listed."""


def embedded(
    tables: Sequence[PublishedTable], most: int = MOST_CELLS
) -> tuple[list[PublishedTable], list[PublishedTable]]:
    """(those that go into the page in their order, those left out), the smallest first while they fit."""
    room, chosen = most, set()
    for i in sorted(range(len(tables)), key=lambda i: tables[i].counts.size):
        if tables[i].counts.size > room:
            break
        room -= tables[i].counts.size
        chosen.add(i)
    inside = [t for i, t in enumerate(tables) if i in chosen]
    return inside, [t for i, t in enumerate(tables) if i not in chosen]


def table_json(table: PublishedTable) -> str:
    """{"a": attributes, "c": counts, "r": half-widths, or one if all are equal}."""
    flat = table.reach.reshape(-1)
    reach: Any = _three_digits(flat)
    if all(r == reach[0] for r in reach):
        reach = reach[0]
    return script_json({"a": table.clique, "c": _one_decimal(table.counts), "r": reach})


def script_json(value: Any) -> str:
    """JSON that can stand inside a script element, whatever the labels hold."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _one_decimal(values: Buffer) -> list[float | int]:
    return [_plain(v) for v in np.round(values.reshape(-1), 1).tolist()]


def _three_digits(values: Buffer) -> list[float | int]:
    return [_plain(float(f"{v:.3g}")) for v in values.tolist()]


def _plain(value: float) -> float | int:
    return int(value) if value == int(value) else value
