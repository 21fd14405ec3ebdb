"""Columns as a frame of whichever library is there: pandas, else Polars, else Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from consilience.domain import Buffer

LIBRARIES = ("pandas", "polars", "pyarrow")


def frame(columns: Mapping[str, Any]) -> Any:
    """A frame of pandas, Polars or Arrow, the first that is installed; the columns as they are where none is."""
    for name in LIBRARIES:
        try:
            library = import_module(name)
        except ImportError:
            continue
        made = getattr(library, "DataFrame", None) or library.table
        return made(dict(columns))
    return dict(columns)


def table_frame(
    attributes: Sequence[str],
    counts: Buffer,
    errors: Buffer,
    interval: tuple[Buffer, Buffer],
    labels: Mapping[str, Sequence[str]],
) -> Any:
    """A row per cell: the attributes, by label or code, then count, error, low and high."""
    columns: dict[str, Any] = {}
    for name, codes in zip(attributes, np.indices(counts.shape), strict=True):
        words, flat = labels.get(name), codes.reshape(-1)
        columns[name] = flat if words is None else np.array(words, dtype=object)[flat]
    numbers = {"count": counts, "error": errors, "low": interval[0], "high": interval[1]}
    return frame(columns | {k: np.asarray(v).reshape(-1) for k, v in numbers.items()})
