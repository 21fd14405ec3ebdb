"""Labelled tables as files: one row per cell, its labels first and its numbers after them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from consilience.errors import DataError

Labels = Mapping[str, Sequence[str]]
"""{attribute: the label of each code}."""

RESULTS = ("count", "stderr", "low", "high", "noisy", "stddev", "noise", "row")
"""Columns of released tables beside the attributes."""


def labelled_table(
    labels: Labels, attributes: Sequence[str], numbers: Mapping[str, NDArray[Any]]
) -> pyarrow.Table:
    """Arrays over the cells of a clique as a table: the last attribute changes fastest."""
    clash = [name for name in numbers if name in attributes]
    if clash:
        raise DataError(
            f"no attribute may be called {clash[0]!r}, which is the name of a result; rename it in the schema"
        )
    shape = tuple(len(labels[a]) for a in attributes)
    columns: dict[str, Any] = {}
    for name, index in zip(attributes, np.indices(shape, dtype=np.int32, sparse=True), strict=True):
        codes = np.broadcast_to(index, shape).reshape(-1)
        words = pyarrow.array(labels[name], pyarrow.string())
        columns[name] = words.take(pyarrow.array(codes))
    for name, values in numbers.items():
        columns[name] = pyarrow.array(np.ascontiguousarray(values).reshape(-1))
    return pyarrow.table(columns)


RUNS = ("=", "@", "+", "-", "'", "\t", "\r")
"""How a text begins that a spreadsheet may take for a formula, or that was marked as text already."""


def as_text(label: str) -> str:
    """A label as a cell of a CSV file: what a spreadsheet would run is marked as text by an apostrophe. `from_text` undoes it."""
    return f"'{label}" if label.startswith(RUNS) and not _is_number(label) else label


def from_text(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(RUNS) else cell


def _is_number(label: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]*\.?[0-9]+", label) is not None


def write_labelled(table: pyarrow.Table, path: Path) -> None:
    """A table of labels and numbers; in a CSV file no label is a formula."""
    if path.suffix == ".csv":
        for i, name in enumerate(table.column_names):
            if pyarrow.types.is_string(table.schema.field(i).type):
                words = [as_text(label) for label in table.column(i).to_pylist()]
                table = table.set_column(i, name, pyarrow.array(words, pyarrow.string()))
    write_table(table, path)


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of plain values as CSV, in which no label is a formula."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: as_text(v) if isinstance(v, str) else v for k, v in row.items()})
    return text.getvalue()


def write_table(table: pyarrow.Table, path: Path) -> None:
    """A table as CSV or Parquet, by the name of the file."""
    with path.open("wb") as file:  # by its name, pyarrow would take a:b for an address
        if path.suffix == ".parquet":
            pyarrow.parquet.write_table(table, file)
        else:
            pyarrow.csv.write_csv(table, file, pyarrow.csv.WriteOptions(quoting_style="needed"))


def file_name(number: int, attributes: Sequence[str]) -> str:
    """A name that every file system takes; the index says what is in it."""
    words = "-".join(
        "".join(c if c.isalnum() and c.isascii() else "_" for c in a) for a in attributes
    )
    return f"{number:04d}-{words[:80]}" if words else f"{number:04d}"
