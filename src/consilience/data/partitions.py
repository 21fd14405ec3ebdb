"""Rows coded and counted where they are: one partition of a table in Spark, in Spark's own Python process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from consilience.data.columns import Column
from consilience.data.duck import duckdb_table
from consilience.data.schema import Schema
from consilience.domain import Clique, Layout
from consilience.kernels.threads import threads
from consilience.records import Dataset

ROWS_AT_ONCE = 1 << 19
"""Of Spark's small batches, before they are counted."""
MOST_KNOWN = 1 << 20
"""Values of a column of text whose codes are remembered within a partition."""


class PartitionCounts:
    """Counts of a partition's batches, as Spark's Python processes run it: the cells that hold something, and how many.

    They are coded by DuckDB and counted by our kernel where the rows are, so every executor must have Consilience installed.
    Text is coded once for each value, because DuckDB takes most of its time for it: rows hold what the values' codes are.
    """

    def __init__(self, columns: list[Column], cliques: list[Clique]) -> None:
        self.columns, self.cliques = columns, cliques

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        domain = Schema(self.columns).domain
        known: list[dict[str | None, int]] = [{} for _ in self.columns]
        counts = np.zeros(Layout(domain, self.cliques).cells)
        with threads(1):  # Spark has a process for each core
            for table in _gathered(batches):
                codes = self._codes(table, known)
                counts += Dataset(codes, domain).marginals(self.cliques).values
        at = np.flatnonzero(counts)
        found = [pa.array([b.tobytes()], pa.binary()) for b in (at, counts[at])]
        yield pa.RecordBatch.from_arrays(found, ["cells", "counts"])

    def _codes(self, table: pa.Table, known: list[dict[str | None, int]]) -> dict[str, np.ndarray]:
        found, rest = {}, []
        for column, values, codes in zip(self.columns, table.columns, known, strict=True):
            if not pa.types.is_string(values.type):
                rest.append((column, values))
                continue
            encoded = values.combine_chunks().dictionary_encode()
            distinct = [*encoded.dictionary.to_pylist(), None]
            new = [v for v in distinct if v not in codes]
            if new:
                coded_now = _coded_here([(column, pa.array(new, pa.string()))])[column.name]
                codes.update(zip(new, coded_now.tolist(), strict=True))
            own = np.array([codes[v] for v in distinct])
            found[column.name] = own[encoded.indices.fill_null(len(own) - 1).to_numpy()]
            if len(codes) > MOST_KNOWN:
                codes.clear()
        return found | (_coded_here(rest) if rest else {})


def _coded_here(given: list[tuple[Column, Any]]) -> dict[str, np.ndarray]:
    """The codes of values of some columns, by DuckDB in this process."""
    table = pa.table({column.name: values for column, values in given})
    source = duckdb_table(table, Schema([column for column, _ in given]))
    source.connection.execute("SET threads = 1")
    dataset = source.dataset()
    return {column.name: dataset.column(column.name) for column, _ in given}


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches together, until they are worth a call of the kernel."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(b.num_rows for b in held) >= ROWS_AT_ONCE:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)
