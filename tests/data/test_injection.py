"""Names, labels, values and paths that are pieces of SQL: each engine takes them as text, and counts as plain Python does."""

from __future__ import annotations

import csv
import sqlite3
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from consilience.data import Categorical, Schema
from consilience.data.duck import duckdb_table
from consilience.data.engines import EngineTable
from consilience.data.tables import open_source

from .engines import postgres, postgres_server, why_not

DROP = "DROP TABLE victim; --"
NAMES = [
    f'a"; {DROP}',
    f"b'; {DROP}",
    "c\\' OR 1=1 --",
    "%s %(x)s %% {0} {x}",
    "? :x $1 $$ @y #z",
    "SELECT",
    "a\nb\tc",
    "ä·表 `back` [box]",
]
"""Columns; the last but two is a word of the language."""
LABELS = [
    f"'; {DROP}",
    f'"; {DROP}',
    "\\'; DROP TABLE victim; --",
    "%s",
    "{0}",
    "? :x $1",
    "' || (SELECT secret FROM victim) || '",
    "NULL",
    "/* */ -- $$",
    "a\nb",
]
TABLES = [f'people"; {DROP}', f"people'; {DROP}", "people % {0} ? :x", "select"]
ROWS = 200


def hostile(seed: int = 0) -> tuple[Schema, pa.Table]:
    rng = np.random.default_rng(seed)
    columns = [Categorical(name, LABELS, LABELS[0]) for name in NAMES]
    codes = rng.integers(0, len(LABELS), (len(NAMES), ROWS))
    table = pa.table(
        {name: [LABELS[c] for c in row] for name, row in zip(NAMES, codes, strict=True)}
    )
    return Schema(columns), table


def check(source: Any, table: pa.Table) -> None:
    """Every pair of neighbouring columns, against a plain count."""
    place = {label: i for i, label in enumerate(LABELS)}
    for first, second in pairwise(NAMES):
        pairs = zip(table[first].to_pylist(), table[second].to_pylist(), strict=True)
        wanted = np.zeros((len(LABELS), len(LABELS)))
        for (x, y), n in Counter(pairs).items():
            wanted[place[x], place[y]] = n
        found = source.marginals([(first, second)])[source.domain.clique((first, second))]
        inside = found[: len(LABELS), : len(LABELS)]
        if source.domain.clique((first, second)) != (first, second):
            inside = inside.T
        np.testing.assert_array_equal(inside, wanted)
    assert source.records == ROWS
    assert not list(source.survey.lines()), "nothing was undeclared"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def fill(execute: Callable[..., Any], name: str, table: pa.Table, mark: str) -> None:
    """The hostile table, and one that it would like to be rid of."""
    columns = ", ".join(f"{quoted(c)} TEXT" for c in table.column_names).replace(
        "%", "%%" if mark == "%s" else "%"
    )
    shown = quoted(name).replace("%", "%%" if mark == "%s" else "%")
    execute("DROP TABLE IF EXISTS victim", ())
    execute("CREATE TABLE victim (secret TEXT)", ())
    execute(f"INSERT INTO victim VALUES ({mark})", ("alive",))
    execute(f"DROP TABLE IF EXISTS {shown}", ())
    execute(f"CREATE TABLE {shown} ({columns})", ())
    marks = ", ".join([mark] * table.num_columns)
    for row in zip(*(c.to_pylist() for c in table.columns), strict=True):
        execute(f"INSERT INTO {shown} VALUES ({marks})", row)


def opened_by_ibis(connection: Any, name: str, schema: Schema) -> EngineTable:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return EngineTable(schema, connection.table(name), name)


@pytest.mark.parametrize("name", TABLES)
def test_sqlite(name: str, tmp_path: Path) -> None:
    if why_not("sqlite"):
        pytest.skip(why_not("sqlite"))
    schema, table = hostile()
    path = tmp_path / "pe'op;le #1 %20?.db"
    with sqlite3.connect(path) as database:
        fill(database.execute, name, table, "?")
    database.close()
    import ibis

    check(opened_by_ibis(ibis.sqlite.connect(path), name, schema), table)
    if "?" not in name:  # an address has its own meaning of it
        plain = tmp_path / "people.db"
        path.rename(plain)
        check(open_source(f"sqlite://{plain}::{name}", schema), table)
        path = plain
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT secret FROM victim").fetchall() == [("alive",)]
    database.close()


@pytest.mark.parametrize("name", TABLES)
def test_postgresql(name: str) -> None:
    if why_not("postgres"):
        pytest.skip(why_not("postgres"))
    schema, table = hostile()
    with postgres().con.cursor() as cursor:
        fill(cursor.execute, name, table, "%s")
    postgres().con.commit()
    check(opened_by_ibis(postgres(), name, schema), table)
    if "?" not in name:
        address = f"postgres://postgres@/postgres?host={postgres_server()}"
        source = open_source(f"{address}::{name}", schema)
        check(source, table)
        source.table.get_backend().disconnect()
    with postgres().con.cursor() as cursor:
        assert cursor.execute("SELECT secret FROM victim").fetchall() == [("alive",)]
        cursor.execute(f"DROP TABLE {quoted(name)}")
    postgres().con.commit()


@pytest.mark.parametrize("name", TABLES)
def test_duckdb_through_ibis(name: str) -> None:
    if why_not("ibis-duckdb"):
        pytest.skip(why_not("ibis-duckdb"))
    import ibis

    schema, table = hostile()
    connection = ibis.duckdb.connect()
    fill(connection.con.execute, name, table, "?")
    check(opened_by_ibis(connection, name, schema), table)
    assert connection.con.execute("SELECT secret FROM victim").fetchall() == [("alive",)]


PATHS = [f"pe'op;le {DROP}", 'pe"op"le', "pe*op[le]?", "%s {0} $1", "-q"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "duckdb"])
@pytest.mark.parametrize("stem", PATHS)
def test_duckdb_and_files(stem: str, kind: str, tmp_path: Path, monkeypatch) -> None:
    """Paths too; a decoy beside the file would be counted as well if a path were a pattern."""
    schema, table = hostile()
    monkeypatch.chdir(tmp_path)
    path = Path(f"{stem}.{kind}")
    for file, rows in ((path, table), (Path(f"pexxopl.{kind}"), hostile(1)[1])):
        write(file, rows)
    check(duckdb_table(path, schema), table)
    check(open_source(f"./{path}", schema), table)


def write(path: Path, table: pa.Table) -> None:
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path)
    elif path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows_of(table))
    else:
        with duckdb.connect(path) as database:
            fill(database.execute, "people", table, "?")
            database.execute("DROP TABLE victim")


def rows_of(table: pa.Table) -> Iterator[Any]:
    yield table.column_names
    yield from zip(*(c.to_pylist() for c in table.columns), strict=True)


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "ibis-duckdb"])
@pytest.mark.parametrize("unit", NAMES[:4])
def test_the_unit_is_a_hostile_column(engine: str, unit: str) -> None:
    """At most two rows of each person, whose id is a piece of SQL in a column that is one too."""
    if why_not(engine):
        pytest.skip(why_not(engine))
    import ibis

    schema, table = hostile()
    rest = [c for c in schema if c.name != unit]
    declared = Schema(rest, unit=unit, rows_per_unit=2)
    if engine == "postgres":
        connection = postgres()
        with connection.con.cursor() as cursor:
            fill(cursor.execute, TABLES[0], table, "%s")
        connection.con.commit()
    else:
        connection = ibis.sqlite.connect() if engine == "sqlite" else ibis.duckdb.connect()
        fill(connection.con.execute, TABLES[0], table, "?")
    source = opened_by_ibis(connection, TABLES[0], declared)
    people = Counter(table[unit].to_pylist())
    assert source.records == sum(min(2, n) for n in people.values())
    other = rest[0].name
    assert source.marginals([(other,)])[(other,)].sum() == source.records


def test_no_column_is_taken_for_one_of_ours() -> None:
    if why_not("ibis-duckdb"):
        pytest.skip(why_not("ibis-duckdb"))
    import ibis

    names = ["_0", "_1", "_2", "unit_of_row", "place_in_unit"]
    schema = Schema([Categorical(n, ["x", "y"], "x") for n in names], unit="id", rows_per_unit=1)
    connection = ibis.duckdb.connect()
    table = pa.table({"id": ["a", "b", "b"], **{n: ["y", "y", "y"] for n in names}})
    connection.con.register("people", table)
    source = opened_by_ibis(connection, "people", schema)
    for name in names:
        assert source.marginals([(name,)])[(name,)].tolist() == [0, 2]
