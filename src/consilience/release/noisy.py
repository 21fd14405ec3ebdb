"""Noisy tables as files: one row per cell, labels first, then `noisy` (the count with its noise) and `stddev`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
from scipy.sparse import csr_array

from consilience.data.columns import Categorical, Column
from consilience.data.schema import Schema
from consilience.data.schema_file import read_schema
from consilience.domain import Domain
from consilience.errors import ConsilienceError, DataError, MeasurementError
from consilience.measurements import Measurement
from consilience.release.folder import read_release
from consilience.release.labelled import from_text

VALUES = ("noisy", "count", "value")
"""Names that the column of noisy counts may have, in this order."""
MOST_CELLS = 1 << 40


def read_noisy_tables(
    paths: Iterable[Path],
    declared: Schema | None,
    *,
    stddev: float | None = None,
    noise: str = "gaussian",
) -> tuple[Domain, dict[str, tuple[str, ...]], list[Measurement]]:
    """Somebody's noisy tables. Without a schema an attribute has the labels that its first table lists, in that order.

    Tables need not be complete: a cell that is not listed was not measured.
    """
    tables = [(path, _table(path)) for path in paths]
    if not tables:
        raise MeasurementError("at least one noisy table must be given, got none")
    known = {} if declared is None else dict(declared.labels)
    if declared is None:
        for path, table in tables:
            for name in _attributes(table):
                seen = dict.fromkeys(_labels(path, table[name].to_pylist()))
                known[name] = (
                    *known.get(name, ()),
                    *(v for v in seen if v not in known.get(name, ())),
                )
    plain = [(a, len(v)) for a, v in known.items()]
    domain = Domain(plain) if declared is None else declared.domain
    found = [_measurement(path, table, known, domain, stddev, noise) for path, table in tables]
    return domain, known, found


def _table(path: Path) -> pyarrow.Table:
    if not path.is_file():
        raise MeasurementError(
            f"a noisy table must be a file, got {str(path)!r}, which is not there"
        )
    try:
        if path.suffix == ".parquet":
            table = pyarrow.parquet.read_table(path)
        else:
            options = pyarrow.csv.ConvertOptions(strings_can_be_null=False)
            table = pyarrow.csv.read_csv(path, convert_options=options)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise MeasurementError(
            f"the noisy table {str(path)!r} must be CSV or Parquet: {str(error).splitlines()[0]}"
        ) from error
    if not table.num_rows:
        raise MeasurementError(f"a noisy table must have rows, {str(path)!r} has none")
    return table


def _value_column(path: Path, table: pyarrow.Table) -> str:
    for name in VALUES:
        if name in table.column_names:
            return name
    raise MeasurementError(
        f"the noisy table {str(path)!r} must have a column {' or '.join(VALUES)}, it has "
        f"{', '.join(table.column_names[:8])}"
    )


def _attributes(table: pyarrow.Table) -> list[str]:
    return [n for n in table.column_names if n not in (*VALUES, "stddev", "noise")]


def _measurement(
    path: Path,
    table: pyarrow.Table,
    known: dict[str, tuple[str, ...]],
    domain: Domain,
    stddev: float | None,
    noise: str,
) -> Measurement:
    column, names = _value_column(path, table), _attributes(table)
    unknown = [n for n in names if n not in known]
    if unknown:
        raise MeasurementError(
            f"the attributes of {str(path)!r} must be in the schema, got {unknown[0]!r}"
        )
    codes = [_codes(path, table[n].to_pylist(), n, known[n]) for n in names]
    shape = tuple(len(known[n]) for n in names)
    if prod(shape) > MOST_CELLS:
        raise MeasurementError(
            f"a noisy table must have at most {MOST_CELLS:,} cells, {str(path)!r} has {len(names)} attributes with "
            f"{prod(shape):,}; is it a table of rows? consilience release counts one"
        )
    cells = np.ravel_multi_index(codes, shape) if names else np.zeros(table.num_rows, np.int64)
    if np.unique(cells).size != cells.size:
        raise MeasurementError(
            f"every cell of {str(path)!r} must be listed once, one is there twice"
        )
    values = _numbers(path, table, column)
    spread = _spread(path, table, stddev)
    law: Any = table["noise"][0].as_py() if "noise" in table.column_names else noise
    size = int(np.prod(shape, dtype=object)) if names else 1
    if cells.size == size:
        full = np.empty(size)
        full[cells] = values
        return Measurement(tuple(names), full.reshape(shape), stddev=spread, noise=law)
    listed = np.arange(cells.size)
    rows = csr_array((np.ones(cells.size), (listed, cells)), shape=(cells.size, size))
    return Measurement(tuple(names), values, stddev=spread, noise=law, query=rows)


def _codes(path: Path, values: list[object], name: str, labels: tuple[str, ...]) -> np.ndarray:
    code = {label: i for i, label in enumerate(labels)}
    given = _labels(path, values)
    found = [code.get(label, -1) for label in given]
    if -1 in found:
        raise MeasurementError(
            f"labels of {name!r} in {str(path)!r} must be declared, got "
            f"{given[found.index(-1)]!r}; known are {', '.join(map(repr, labels[:12]))}"
        )
    return np.array(found, dtype=np.int64)


def _labels(path: Path, values: list[object]) -> list[str]:
    """Cells as labels; the apostrophe that keeps a CSV cell from being a formula is no part of one."""
    texts = [str(v).lower() if isinstance(v, bool) else str(v) for v in values]
    return texts if path.suffix == ".parquet" else [from_text(t) for t in texts]


def _numbers(path: Path, table: pyarrow.Table, name: str) -> np.ndarray:
    try:
        values = np.array(table[name].to_pylist(), dtype=np.float64)
    except (TypeError, ValueError):
        values = np.array([np.nan])
    if not np.isfinite(values).all():
        raise MeasurementError(f"column {name!r} of {str(path)!r} must hold finite numbers")
    return values


def _spread(path: Path, table: pyarrow.Table, stddev: float | None) -> float:
    if "stddev" not in table.column_names:
        if stddev is None:
            raise MeasurementError(
                f"the noise of {str(path)!r} must be known: give it a column stddev, or say --stddev"
            )
        return stddev
    values = _numbers(path, table, "stddev")
    if np.ptp(values) > 0:
        raise MeasurementError(
            f"a noisy table must have one stddev, {str(path)!r} has several; split it"
        )
    found = float(values[0])
    if stddev is not None and not (isfinite(found) and found == stddev):
        raise MeasurementError(
            f"{str(path)!r} says stddev {found:g} and --stddev says {stddev:g}; leave one out"
        )
    return found


# -- measurements to work on -----------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """Measurements to work on: what their attributes are, and the total where it is public."""

    schema: Schema
    measurements: tuple[Measurement, ...]
    total: float | None


def evidence_of_tables(
    paths: Sequence[Path], schema_path: Path | None, stddev: float | None, noise: str
) -> Evidence:
    """Files, or folders of files; without a schema, labels are those that the tables list."""
    files = [f for p in paths for f in (_inside(p) if p.is_dir() else [p])]
    declared = None if schema_path is None else read_schema(schema_path)
    _, known, found = read_noisy_tables(files, declared, stddev=stddev, noise=noise)
    return Evidence(declared or _undeclared(known), tuple(found), None)


def evidence_of_release(path: Path) -> Evidence:
    """The measurements of a release folder."""
    published = read_release(path)
    listed = tuple(
        Measurement(
            m.clique,
            m.values,
            stddev=m.stddev,
            noise=m.noise,
            query=None if m.is_identity else m.query,
        )
        for m in published.model.measurements
    )
    public = published.facts["total"]["public"]
    return Evidence(published.schema, listed, published.model.total if public else None)


def _inside(folder: Path) -> list[Path]:
    found = sorted(f for f in folder.iterdir() if f.suffix in (".csv", ".parquet"))
    if not found:
        raise MeasurementError(
            f"the folder {str(folder)!r} must hold .csv or .parquet tables, it has none"
        )
    return found


def _undeclared(labels: dict[str, tuple[str, ...]]) -> Schema:
    columns: list[Column] = []
    for name, values in labels.items():
        missing = values[-1] == "(missing)"
        try:
            columns.append(
                Categorical(
                    name, values[:-1] if missing else values, None if missing else values[0]
                )
            )
        except ConsilienceError as error:
            raise DataError(f"{error}; say what the columns are with --schema") from error
    return Schema(columns)
