"""Every engine that can be had here, behind one function: a table in, a Source out."""

from __future__ import annotations

import atexit
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from datetime import date, datetime
from functools import cache
from glob import glob
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from consilience.data import Schema
from consilience.data.duck import duckdb_table
from consilience.data.engines import EngineTable

ENGINES = ("duckdb", "ibis-duckdb", "sqlite", "postgres", "spark")


def why_not(engine: str) -> str:
    """Why an engine cannot be tried here; empty if it can."""
    if engine == "duckdb":
        return ""
    if find_spec("ibis") is None:
        return "Ibis is not installed: pip install -e '.[engines]'"
    if engine == "spark" and find_spec("pyspark") is None:
        return "PySpark is not installed: pip install -e '.[engines]'"
    if engine == "spark" and shutil.which("java") is None:
        return "Java is not installed (Debian: apt install default-jre-headless)"
    if engine == "postgres" and _postgres_programs() is None:
        return "PostgreSQL is not installed (Debian: apt install postgresql)"
    if engine == "postgres" and os.geteuid() == 0 and shutil.which("runuser") is None:
        return "PostgreSQL does not run as root, and there is no runuser"
    return ""


def source(engine: str, table: pa.Table, schema: Schema) -> Any:
    if why_not(engine):
        pytest.skip(why_not(engine))
    return _MAKERS[engine](table, schema)


def _ibis_duckdb(table: pa.Table, schema: Schema) -> EngineTable:
    import ibis

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        connection = ibis.duckdb.connect()
        connection.con.register("people", table)
        return EngineTable(schema, connection.table("people"), "people")


def _sqlite(table: pa.Table, schema: Schema) -> EngineTable:
    import ibis

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        connection = ibis.sqlite.connect()
        names = ", ".join(f'"{f.name}" {_sqlite_type(f.type)}' for f in table.schema)
        database: sqlite3.Connection = connection.con
        database.execute(f"CREATE TABLE people ({names})")
        marks = ", ".join("?" * table.num_columns)
        rows = zip(*(map(_sqlite_value, c.to_pylist()) for c in table.columns), strict=True)
        database.executemany(f"INSERT INTO people VALUES ({marks})", rows)
        return EngineTable(schema, connection.table("people"), "people")


def _postgres_programs() -> Path | None:
    """Where PostgreSQL's own programs are; Debian does not put them on the path."""
    found = shutil.which("initdb")
    listed = [found] if found else sorted(glob("/usr/lib/postgresql/*/bin/initdb"))
    return Path(listed[-1]).parent if listed else None


@cache
def postgres_server() -> str:
    """A server of our own on a socket in a new folder, stopped at the end; the folder."""
    programs = _postgres_programs()
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if user:
        shutil.chown(folder, "postgres")

    def run(*words: str) -> None:
        subprocess.run([*user, *words], check=True, capture_output=True, cwd=folder, timeout=120)

    data = str(folder / "data")
    run(str(programs / "initdb"), "-D", data, "-U", "postgres", "-E", "UTF8", "--no-sync")
    options = f"-c listen_addresses='' -c fsync=off -k {folder}"
    log = str(folder / "log")
    run(str(programs / "pg_ctl"), "-D", data, "-l", log, "-o", options, "-w", "start")
    atexit.register(run, str(programs / "pg_ctl"), "-D", data, "-m", "immediate", "stop")
    return str(folder)


@cache
def postgres() -> Any:
    import ibis

    connection = ibis.postgres.connect(host=postgres_server(), user="postgres", database="postgres")
    atexit.register(connection.disconnect)
    return connection


def _postgres(table: pa.Table, schema: Schema) -> EngineTable:
    kinds = {
        "string": "TEXT",
        "bool": "BOOLEAN",
        "int64": "BIGINT",
        "double": "DOUBLE PRECISION",
        "date32[day]": "DATE",
        "timestamp[us]": "TIMESTAMP",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        connection = postgres()
        names = ", ".join(f'"{f.name}" {kinds[str(f.type)]}' for f in table.schema)
        with connection.con.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS people")
            cursor.execute(f"CREATE TABLE people ({names})")
            with cursor.copy("COPY people FROM STDIN") as copy:
                for row in zip(*(c.to_pylist() for c in table.columns), strict=True):
                    copy.write_row(row)
        return EngineTable(schema, connection.table("people"), "people")


def _sqlite_type(kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return "BOOLEAN"
    if pa.types.is_integer(kind):
        return "INTEGER"
    if pa.types.is_floating(kind):
        return "REAL"
    if pa.types.is_date(kind):
        return "DATE"
    return "TIMESTAMP" if pa.types.is_timestamp(kind) else "TEXT"


def _sqlite_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(" ")
    return value.isoformat() if isinstance(value, date) else value


@cache
def spark() -> Any:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.sql.warehouse.dir": tempfile.mkdtemp(),
    }
    builder = SparkSession.builder.master("local[2]").appName("consilience tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _spark(table: pa.Table, schema: Schema) -> EngineTable:
    import ibis
    from pyspark.sql import types as t

    kinds = {
        "string": t.StringType(),
        "bool": t.BooleanType(),
        "int64": t.LongType(),
        "double": t.DoubleType(),
        "date32[day]": t.DateType(),
        "timestamp[us]": t.TimestampNTZType(),
    }
    fields = [t.StructField(f.name, kinds[str(f.type)]) for f in table.schema]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = list(zip(*(c.to_pylist() for c in table.columns), strict=True))
        frame = spark().createDataFrame(rows, t.StructType(fields))
        frame.createOrReplaceTempView("people")
        connection = ibis.pyspark.connect(spark())
        return EngineTable(schema, connection.table("people"), "people")


_MAKERS: dict[str, Callable[[pa.Table, Schema], Any]] = {
    "duckdb": duckdb_table,
    "ibis-duckdb": _ibis_duckdb,
    "sqlite": _sqlite,
    "postgres": _postgres,
    "spark": _spark,
}
