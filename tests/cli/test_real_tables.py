"""Four tables that nobody prepared: from the file to a folder and its rows, by commands and the owner's decisions alone."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path

import pytest

from cli.conftest import checked, run
from consilience.data import Categorical, Numeric
from consilience.data.columns import MISSING
from consilience.data.schema_file import read_schema

FOLDER = Path(os.environ.get("CONSILIENCE_DATA", Path(__file__).parents[3] / "shared" / "data"))
BUDGET = ("--epsilon", "1", "--delta", "1e-6", "--neighbours", "replace-one", "--ledger", "l")
RULES = 'impossible = ["AGEP < 10 and MSP != (missing)", "AGEP < 10 and PINCP != (missing)"]\n'


def table(name: str) -> Path:
    path = FOLDER / f"{name}.csv.gz"
    if not path.exists():
        pytest.skip(f"needs {path.name} in {FOLDER}; set CONSILIENCE_DATA")
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("name", "left_out", "missing"),
    [
        ("adult-raw", set(), {"workclass", "occupation", "native-country"}),
        ("titanic-raw", {"PassengerId", "Name", "Ticket", "Cabin"}, {"Survived", "Age", "Fare", "Embarked"}),
        ("fire-decoded", set(), {"Call Type Group", "City", "Original Priority", "Station Area", "Zipcode of Incident"}),
        (
            "acs-ma2019-raw",
            set(),
            {"MSP", "NOC", "NPF", "INDP", "INDP_CAT", "EDU", "PINCP", "PINCP_DECILE", "POVPIP", "DVET", "DREM", "DPHY"},
        ),
    ],
)  # fmt: skip
def test_a_table_as_it_is(tmp_path: Path, monkeypatch, name: str, left_out, missing) -> None:
    """The draft keeps every column that is no identifier, and only columns with missing values have a cell for them."""
    source = table(name)
    monkeypatch.chdir(tmp_path)
    assert run("schema", source, "--out", "t.toml").exit_code == 0
    schema = read_schema("t.toml")
    assert set(schema.ignored) == left_out
    assert {c.name for c in schema if MISSING in c.labels} == missing
    checked(tmp_path / "t.toml")
    done = run("schema", "--check", "t.toml", source)
    assert done.exit_code == 0, done.output
    assert "not declared" not in done.stdout
    assert "out of bounds" not in done.stdout
    words = ("--schema", "t.toml", *BUDGET, "--workload", "1", "--errors", "none", "--out", "out")
    done = run("release", source, *words)
    assert done.exit_code == 0, done.output
    assert run("sample", "out", "--rows", "500", "--out", "rows.csv", "--seed", "1").exit_code == 0
    blank = {c for row in rows_of(tmp_path / "rows.csv") for c, v in row.items() if not v}
    assert blank <= missing


def test_the_survey_of_which_the_columns_were_lost(tmp_path: Path, monkeypatch) -> None:
    source = table("acs-ma2019-raw")
    monkeypatch.chdir(tmp_path)
    assert run("schema", source, "--out", "t.toml").exit_code == 0
    schema = read_schema("t.toml")
    assert isinstance(schema["PINCP"], Numeric)
    assert isinstance(schema["POVPIP"], Numeric)
    assert schema["DREM"].labels == ("1", "2", MISSING)
    assert schema["DEYE"].labels == ("1", "2")
    assert isinstance(schema["INDP"], Categorical)
    assert '#     "AGEP < 10 and MSP != (missing)"' in Path("t.toml").read_text()
    checked(tmp_path / "t.toml")
    Path("t.toml").write_text(RULES + Path("t.toml").read_text())
    tables = "AGEP,SEX; MSP; PINCP; SEX,MSP"
    words = (
        "--schema",
        "t.toml",
        *BUDGET,
        "--workload",
        tables,
        "--errors",
        "none",
        "--out",
        "out",
    )
    done = run("release", source, *words)
    assert done.exit_code == 0, done.output
    assert run("sample", "out", "--rows", "7000", "--out", "r.csv", "--seed", "1").exit_code == 0
    young = [r for r in rows_of(tmp_path / "r.csv") if int(r["AGEP"]) < 10]
    assert len(young) > 300
    assert [r for r in young if r["MSP"] or r["PINCP"]] == []


def test_its_dictionary_is_enough(tmp_path: Path, monkeypatch) -> None:
    source = table("acs-ma2019-raw")
    monkeypatch.chdir(tmp_path)
    words = (
        "--dictionary",
        FOLDER / "acs-data-dictionary.json",
        "--bins",
        "10",
        "--ignore",
        "INDP",
    )
    assert run("schema", source, *words, "--out", "t.toml").exit_code == 0
    schema = read_schema("t.toml")
    assert len(schema) == 23
    assert schema.draft == ()
    done = run("schema", "--check", "t.toml", source)
    assert "not declared" not in done.stdout
    assert "out of bounds" not in done.stdout
    out = ("--workload", "1", "--errors", "none", "--out", "out")
    done = run("release", source, "--schema", "t.toml", *BUDGET, *out)
    assert done.exit_code == 0, done.output
