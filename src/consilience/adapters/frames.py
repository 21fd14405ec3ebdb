"""The exchange format: noisy measurements, or a model's tables, as one tidy table with a row per number, and as Parquet.

    measurement  clique          cell    value  stddev  noise
    0            ["age", "sex"]  [0, 1]  41.7   5.0     gaussian

`cell` holds codes in the order of `clique`. A cell without a row was not measured. The domain travels in the metadata of an Arrow
table and of a Parquet file. pandas and Polars: `table.to_pandas()`, `polars.from_arrow(table)`; any of the three is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from scipy import sparse

from consilience.domain import Domain
from consilience.errors import AdapterError, DomainError
from consilience.measurements import BoundMeasurement, Measurement, Measurements
from consilience.measurements.queries import Identity, Sparse
from consilience.model.model import Model

COLUMNS = ("measurement", "clique", "cell", "value", "stddev", "noise")
KEY = b"consilience.domain"
Tidy = tuple[Sequence[str], Any, Any, Any, str]
"""A measurement as (clique, codes of its cells, values, standard deviations, noise)."""


def measurements_table(
    domain: Domain, measurements: Iterable[Measurement] | Measurements
) -> pyarrow.Table:
    """Noisy measurements of cells, tidy; one through a query that is more than some of its table's cells is refused."""
    bound = Measurements.of(domain, measurements, empty=True)
    return _table(domain, [_cells(domain, m) for m in bound])


def model_table(model: Model, cliques: Iterable[str | Iterable[str]]) -> pyarrow.Table:
    """Tables of a model, tidy: `value` is the count, `stddev` its standard error, `noise` what the table rests on."""
    listed = [model.domain.clique(c) for c in cliques]
    if any(a in model.domain.levels for c in listed for a in c):
        raise AdapterError("tidy tables are of attributes, got a level; ask for the attribute")
    parts: list[Tidy] = []
    for clique, found in zip(listed, model.uncertainties(listed), strict=True):
        codes = np.indices(found.answer.shape).reshape(len(clique), -1).T
        kind = "measured" if model.in_model(clique) else "inferred"
        parts.append((clique, codes, found.answer.reshape(-1), found.stderr.reshape(-1), kind))
    return _table(model.domain, parts)


def read_measurements(table: Any, domain: Domain | None = None) -> tuple[Domain, list[Measurement]]:
    """The domain and the measurements of a tidy table: Arrow, pandas or Polars. domain: where the table does not tell it."""
    arrow = table if isinstance(table, pyarrow.Table) else pyarrow.table(table)
    missing = [c for c in COLUMNS if c not in arrow.column_names]
    if missing:
        raise AdapterError(
            f"a tidy table must have the columns {', '.join(COLUMNS)}, got none named {missing[0]!r}"
        )
    told = _told(arrow)
    if domain is None and told is None:
        raise AdapterError("the table does not tell its domain; give domain=")
    known = told if domain is None else domain
    assert known is not None
    columns = {c: arrow[c].to_pylist() for c in COLUMNS}
    groups: dict[Any, list[int]] = {}
    for row, number in enumerate(columns["measurement"]):
        groups.setdefault(number, []).append(row)
    return known, [_measurement(known, columns, rows) for rows in groups.values()]


def save(path: str | os.PathLike[str], table: pyarrow.Table) -> None:
    """Write a tidy table as Parquet, its domain with it."""
    pyarrow.parquet.write_table(table, os.fspath(path))


def load(path: str | os.PathLike[str]) -> tuple[Domain, list[Measurement]]:
    """The domain and the measurements of a Parquet file that `save`, or another tool, wrote."""
    return read_measurements(pyarrow.parquet.read_table(os.fspath(path)))


def measured_cells(
    domain: Domain, clique: Sequence[str], codes: Any, values: Any, stddev: Any, noise: Any
) -> Measurement:
    """The measurement of some cells of a table, given by their codes; of all of them where none is missing."""
    shape = domain.shape_of(tuple(domain.named((a,))[0] for a in clique))
    rows = np.asarray(codes, np.int64).reshape(len(values), len(shape))
    outside = (rows < 0) | (rows >= np.array(shape, np.int64))
    if outside.any():
        raise DomainError(
            f"a cell of {tuple(clique)} must have codes below {shape}, got {tuple(rows[outside.any(axis=1)][0].tolist())}"
        )
    flat = np.ravel_multi_index(tuple(rows.T), shape) if shape else np.zeros(len(values), np.int64)
    cells = int(np.prod(shape, dtype=np.int64))
    values, width = np.asarray(values, np.float64), np.broadcast_to(stddev, len(values))
    if len(flat) == cells and len(np.unique(flat)) == cells:
        order = np.argsort(flat)
        return Measurement(clique, values[order], stddev=np.array(width[order]), noise=noise)
    some = sparse.csr_array((np.ones(len(flat)), (np.arange(len(flat)), flat)), (len(flat), cells))
    return Measurement(clique, values, stddev=np.array(width), noise=noise, query=Sparse(some))


def _table(domain: Domain, parts: Sequence[Tidy]) -> pyarrow.Table:
    counts = [len(values) for _, _, values, _, _ in parts]
    names = [list(clique) for clique, *_ in parts]
    columns = {
        "measurement": np.repeat(np.arange(len(parts)), counts),
        "clique": pyarrow.array(
            [names[i] for i, n in enumerate(counts) for _ in range(n)],
            pyarrow.list_(pyarrow.string()),
        ),
        "cell": pyarrow.array(
            [row for _, codes, *_ in parts for row in np.asarray(codes).tolist()],
            pyarrow.list_(pyarrow.int64()),
        ),
        "value": np.concatenate([np.zeros(0), *(values for _, _, values, _, _ in parts)]),
        "stddev": np.concatenate(
            [np.zeros(0), *(np.broadcast_to(s, len(v)) for _, _, v, s, _ in parts)]
        ),
        "noise": pyarrow.array(
            [noise for (*_, noise), n in zip(parts, counts, strict=True) for _ in range(n)],
            pyarrow.string(),
        ),
    }
    about = {"sizes": list(domain.sizes.items()), "labels": dict(domain.labels)}
    return pyarrow.table(columns).replace_schema_metadata({KEY: json.dumps(about).encode()})


def _cells(domain: Domain, m: BoundMeasurement) -> Tidy:
    """A bound measurement as cells: its answers are cells, or cells times a number."""
    shape = domain.shape_of(m.clique)
    at, weight = np.arange(m.query.cells), np.ones(m.query.rows)
    if not isinstance(m.query, Identity):
        matrix = m.query.matrix if isinstance(m.query, Sparse) else None
        if matrix is None or np.any(np.diff(matrix.indptr) != 1) or np.any(matrix.data <= 0):
            raise AdapterError(
                f"a tidy table holds measurements of cells, got one of {m.clique} through {m.query!r}; save the model instead"
            )
        at, weight = matrix.indices.astype(np.int64), np.asarray(matrix.data, np.float64)
    codes = np.stack(np.unravel_index(at, shape), axis=1) if shape else np.zeros((1, 0), np.int64)
    return m.clique, codes, m.values / weight, m.stddev / weight, m.noise


def _told(table: pyarrow.Table) -> Domain | None:
    about = (table.schema.metadata or {}).get(KEY)
    if about is None:
        return None
    try:
        told = json.loads(about)
        return Domain([(name, size) for name, size in told["sizes"]], labels=told.get("labels"))
    except (ValueError, KeyError, TypeError) as error:
        raise AdapterError(
            f"the domain in the table's metadata cannot be read: {error}; give domain="
        ) from error


def _measurement(domain: Domain, columns: dict[str, list[Any]], rows: list[int]) -> Measurement:
    def one(column: str) -> Any:
        found = {tuple(v) if isinstance(v, list) else v for v in (columns[column][r] for r in rows)}
        if len(found) > 1:
            raise AdapterError(
                f"the rows of a measurement must have one {column}, got {len(found)} in measurement "
                f"{columns['measurement'][rows[0]]}"
            )
        return found.pop()

    codes, values, stddev = ([columns[c][r] for r in rows] for c in ("cell", "value", "stddev"))
    return measured_cells(domain, one("clique"), codes, values, stddev, one("noise"))
