"""A small table of people, its schema, and one release of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from consilience.cli import main

SCHEMA = """
name = "people"
ignore = ["name"]

[columns.sex]
type = "categorical"
labels = ["F", "M"]
missing = "F"

[columns.age]
type = "integer"
edges = [0, 18, 65, 100]

[columns.income]
type = "float"
edges = [0.0, 20000.0, 50000.0, 200000.0]
missing = 0.0

[columns.member]
type = "boolean"

[columns.joined]
type = "date"
period = "year"
first = 2019-01-01
last = 2021-12-31
missing = 2019-01-01

[hierarchies.grown]
of = "age"
groups = { child = ["0-17"], adult = ["18-64", "65-100"], unknown = ["(missing)"] }
"""


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(w) for w in words])


def checked(schema: Path) -> None:
    """Say, as its owner would, that a draft was gone through."""
    lines = schema.read_text(encoding="utf-8").splitlines(keepends=True)
    assert any(line.startswith("draft = [") for line in lines)
    kept = (line for line in lines if not line.startswith("draft = ["))
    schema.write_text("".join(kept), encoding="utf-8")


def people(rows: int) -> str:
    rng = np.random.default_rng(3)
    lines = ["name,sex,age,income,member,joined"]
    for i in range(rows):
        age = int(rng.integers(0, 100))
        income = "" if age < 16 else f"{rng.lognormal(10.3, 0.6):.2f}"
        member = rng.choice(["yes", "no", ""], p=[0.4, 0.5, 0.1])
        joined = f"{rng.integers(2019, 2022)}-{rng.integers(1, 13):02d}-05"
        lines.append(f'"Person, {i}",{rng.choice(["F", "M"])},{age},{income},{member},{joined}')
    return "\n".join(lines) + "\n"


BUDGET = (
    "--epsilon",
    "2",
    "--delta",
    "1e-6",
    "--neighbours",
    "replace-one",
    "--mechanism",
    "gaussian",
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with people.csv and people.toml, which is the current one."""
    (tmp_path / "people.csv").write_text(people(400), encoding="utf-8")
    (tmp_path / "people.toml").write_text(SCHEMA, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one release of all pairs."""
    folder = tmp_path_factory.mktemp("released")
    (folder / "people.csv").write_text(people(2000), encoding="utf-8")
    (folder / "people.toml").write_text(SCHEMA, encoding="utf-8")
    words = (
        "--schema",
        folder / "people.toml",
        *BUDGET,
        "--workload",
        "2",
        "--errors",
        "closed-form",
    )
    done = run(
        "release", folder / "people.csv", *words, "--ledger", folder / "l", "--out", folder / "out"
    )
    assert done.exit_code == 0, done.output
    return folder / "out"
