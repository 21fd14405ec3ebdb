"""Tables by name: one door to whatever holds the rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from consilience.data.duck import DuckDBTable, duckdb_table
from consilience.data.engines import EngineTable, engine_table
from consilience.data.files import table_and_name
from consilience.data.schema import Schema
from consilience.data.schema_file import read_schema
from consilience.progress import Progress
from consilience.records.dataset import Dataset


def read_table(
    table: Any,
    schema: Schema | str | os.PathLike[str],
    *,
    delimiter: str | None = None,
    name: str | None = None,
    encoding: str | None = None,
) -> Dataset:
    """The rows of a table as codes in memory, values settled as the schema says.

    table: the path of a CSV, Parquet, Arrow or DuckDB file, or a pandas, polars or Arrow table. schema: a `Schema` or the path of
    its TOML. delimiter: of a CSV file, found in its first line unless given. name: of the table in a DuckDB file.
    encoding: of a CSV file that is not UTF-8.
    """
    declared = schema if isinstance(schema, Schema) else read_schema(schema)
    opened = duckdb_table(table, declared, delimiter=delimiter, name=name, encoding=encoding)
    return opened.dataset()


def open_source(
    table: Any,
    schema: Schema | str | os.PathLike[str],
    *,
    delimiter: str | None = None,
    lenient: bool = False,
    encoding: str | None = None,
    progress: Progress | None = None,
) -> DuckDBTable | EngineTable:
    """The table as a `Source` that is counted where it is. A path or address may end in ::NAME of a table in a database.

    lenient: lines of a CSV file that cannot be read are left out instead of refused.
    """
    declared = schema if isinstance(schema, Schema) else read_schema(schema)
    if isinstance(table, str | Path):
        where, name = table_and_name(str(table))
        if "://" in where:
            return engine_table(where, declared, name=name, progress=progress)
        return duckdb_table(
            where,
            declared,
            delimiter=delimiter,
            name=name,
            progress=progress,
            lenient=lenient,
            encoding=encoding,
        )
    return duckdb_table(table, declared, delimiter=delimiter, progress=progress)
