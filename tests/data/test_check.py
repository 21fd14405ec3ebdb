"""schema --check: per column what would be settled, in every engine, and nothing is spent."""

import json
from datetime import date

import pyarrow as pa
import pytest

from cli.conftest import run
from consilience.data import Boolean, Categorical, Dates, Numeric, Schema
from consilience.data.check import checked
from consilience.data.columns import OTHER
from consilience.data.schema_file import format_schema
from data.engines import ENGINES, source

SCHEMA = Schema(
    [
        Categorical("a", ("x", "y"), missing="y", other=OTHER, tokens=("NA",)),
        Numeric("n", (0, 10, 20), whole=True, tokens=("NA",)),
        Boolean("b", missing=False),
        Dates("d", date(2020, 1, 1), date(2020, 12, 31), format="DD.MM.YYYY"),
    ],
    impossible=["n < 12 and b = yes"],
)
TABLE = {
    "a": ["x", "z", "NA", None, "z"],
    "n": ["5", "99", "-1", "old", "NA"],
    "b": ["yes", "maybe", "no", None, "yes"],
    "d": ["31.12.2020", "2020-01-01", "01.01.2021", "never", ""],
}


@pytest.mark.parametrize("engine", ENGINES)
def test_what_would_be_settled(engine: str) -> None:
    found = checked(source(engine, pa.table(TABLE), SCHEMA))
    assert found.lines() == [
        "5 rows; nothing is spent, and this is for your eyes only",
        "  a: 2 not declared, counted as (other) ('z' 2); 2 missing, counted as y",
        "  n: 1 not declared, counted as (missing); 2 out of bounds, counted as the nearest ('-1' 1, '99' 1, 'old' 1); "
        "1 missing, counted as (missing)",
        "  b: 1 not declared, counted as no ('maybe' 1); 1 missing, counted as no",
        "  d: 1 not declared, counted as (missing); 1 out of bounds, counted as the nearest ('01.01.2021' 1, 'never' 1); "
        "1 missing, counted as (missing)",
        "rule 'n < 12 and b = yes': < 12 cuts '10-20' of 'n', which stays possible",
        "rows in combinations of n, b that the schema calls impossible: 1",
    ]  # fmt: skip


def test_the_command(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(format_schema(SCHEMA))
    rows = zip(*TABLE.values(), strict=True)
    lines = [",".join(v or "" for v in row) for row in rows]
    (tmp_path / "t.csv").write_text("\n".join([",".join(TABLE), *lines]) + "\n")
    done = run("schema", "--check", "s.toml", "t.csv")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[1].startswith("  a: 2 not declared, counted as (other)")
    facts = json.loads(run("schema", "--check", "s.toml", "t.csv", "--json").stdout)
    assert facts["columns"]["a"] == {
        "undeclared": 2, "out_of_bounds": 0, "missing": 2, "missing_cell": False, "values": {"z": 2},
    }  # fmt: skip
    assert facts["impossible"] == [{"columns": ["n", "b"], "rows": 1}]
    (tmp_path / "good.csv").write_text("a,n,b,d\nx,3,no,01.01.2020\n")
    done = run("schema", "--check", "s.toml", "good.csv")
    assert done.stdout.count("every value is declared") == 4
    assert "no row is in a combination that the schema calls impossible" in done.stdout
    done = run("schema", "--check", "s.toml")
    assert (done.exit_code, "must be given a table" in done.stderr) == (2, True)
    done = run("schema", "--check", "s.toml", "t.csv", "--missing", "N")
    assert (done.exit_code, "--check compares a table with a schema" in done.stderr) == (2, True)
