"""Columns as a frame of whichever library is there: pandas, else Polars, else Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

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
