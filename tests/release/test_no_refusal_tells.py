"""What a table holds decides nothing that is not paid for: an empty table, a day without a year, a line that cannot be read."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from cli.conftest import run
from consilience.data.binned import Dates
from consilience.data.duck import duckdb_table
from consilience.data.schema import Schema
from consilience.release import read_release

SCHEMA = """name = "t"
[columns.sex]
type = "categorical"
labels = ["F", "M"]
[columns.age]
type = "integer"
edges = [0, 18, 99]
"""


def release(*more: str, neighbours: str = "add-remove"):
    words = (
        "--schema",
        "t.toml",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--workload",
        "1",
        "--errors",
        "none",
    )
    return run("release", "t.csv", *words, "--neighbours", neighbours, "--out", "out", *more)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.toml").write_text(SCHEMA)
    return tmp_path


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "residual-planner", "mwem", "aim"])
def test_an_empty_table_is_released_where_that_is_to_be_hidden(here: Path, mechanism: str) -> None:
    (here / "t.csv").write_text("sex,age\n")
    own = ("-o", "rounds=2") if mechanism == "mwem" else ()
    done = release("--mechanism", mechanism, *own)
    assert done.exit_code == 0, done.output
    assert read_release("out").private


def test_an_empty_table_is_refused_where_the_number_of_rows_is_public(here: Path) -> None:
    (here / "t.csv").write_text("sex,age\n")
    assert release(neighbours="replace-one").exit_code == 2


BAD = {
    "too few cells": b"sex,age\nF,20\nM\nM,30\nF,5\n",
    "too many cells": b"sex,age\nF,20\nM,30,7,8\nM,30\nF,5\n",
    "not UTF-8": b"sex,age\nF,20\n\xff\xfe,30\nM,30\nF,5\n",
}


@pytest.mark.parametrize("name", BAD)
def test_a_line_that_cannot_be_read_is_refused_or_left_out(here: Path, name: str) -> None:
    (here / "t.csv").write_bytes(BAD[name])
    refused = release("-q")
    assert refused.exit_code == 2
    assert len(refused.stderr.strip().splitlines()) == 1
    done = release("--lenient")
    assert done.exit_code == 0, done.output


def test_days_without_a_year_are_missing() -> None:
    from datetime import date

    schema = Schema([Dates("d", date(2020, 1, 1), date(2020, 12, 31), "month")])
    table = duckdb.sql(
        "SELECT * FROM (VALUES (DATE '2020-03-04'), (DATE 'infinity'), (DATE '-infinity'), (NULL)) v(d)"
    )
    made = duckdb_table(table.to_arrow_table(), schema)
    assert made.records == 4
    counts = made.marginals([("d",)])["d",]
    assert counts.sum() == 4
    assert counts[schema["d"].labels.index("(missing)")] == 3
