"""--whole: tables of whole numbers that agree, the same in the folder, in answers and in rows."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from cli.conftest import BUDGET, run
from consilience.release import read_release

pytestmark = pytest.mark.usefixtures("place")
WORDS = ("--schema", "people.toml", *BUDGET)


def counts(file: Path) -> list[int]:
    with file.open(encoding="utf-8") as lines:
        return [int(row["count"]) for row in csv.DictReader(lines)]


@pytest.mark.parametrize(
    ("workload", "method"), [("age,sex; grown", "controlled rounding"), ("2", "rows")]
)
def test_a_whole_release_is_whole_everywhere(place: Path, workload, method):
    done = run("release", "people.csv", *WORDS, "--workload", workload, "--whole", "--out", "whole")
    assert done.exit_code == 0, done.output
    facts = json.loads((place / "whole" / "release.json").read_text(encoding="utf-8"))
    assert facts["whole"]["method"] == method
    assert 0 <= facts["whole"]["bound"] <= facts["whole"]["distance"]
    assert facts["total"]["value"] == 400
    for table in facts["tables"]:
        assert sum(counts(place / "whole" / f"{table['file']}.csv")) == 400
    first = facts["tables"][0]
    asked = run("answer", "whole", ",".join(first["attributes"]), "--json")
    rows = json.loads(asked.stdout)["rows"]
    assert [r["count"] for r in rows] == counts(place / "whole" / f"{first['file']}.csv")
    assert all(isinstance(r["count"], int) for r in rows)
    assert run("sample", "whole", "--out", "rows.csv", "--seed", "1").exit_code == 0
    published = read_release(place / "whole")
    drawn = published.model.sample(400, 3)
    attributes = tuple(first["attributes"])
    assert np.array_equal(drawn.marginal(attributes), published.model.marginal(attributes))


def test_answers_can_be_whole_where_the_folder_is_not(place: Path):
    done = run("release", "people.csv", *WORDS, "--workload", "age,sex", "--out", "out")
    assert done.exit_code == 0, done.output
    asked = [run("answer", "out", q, "--whole", "--csv").stdout for q in ("age,sex", "age")]
    tables = [[int(r["count"]) for r in csv.DictReader(text.splitlines())] for text in asked]
    sexes = len(tables[0]) // len(tables[1])
    assert np.array_equal(np.reshape(tables[0], (-1, sexes)).sum(axis=1), tables[1])
    assert "." not in run("answer", "out", "age", "--whole", "--errors", "none").stdout


def test_given_tables_become_whole(place: Path):
    assert run("release", "people.csv", *WORDS, "--workload", "age,sex", "--out", "out").exit_code == 0  # fmt: skip
    words = ("--schema", "people.toml", "--whole", "--out", "again")
    done = run("reconstruct", "out/measurements", *words)
    assert done.exit_code == 0, done.output
    assert "controlled rounding" in done.stderr
    model = read_release(place / "again").model
    table = model.marginal(("sex", "age"))
    assert np.array_equal(table, np.rint(table))


def public(place: Path, women: str) -> None:
    schema = place / "people.toml"
    said = f'\n[[controls]]\ncolumns = ["sex"]\nexact = [["F", {women}], ["M", 203]]\n'
    schema.write_text(schema.read_text(encoding="utf-8") + said, encoding="utf-8")


@pytest.mark.parametrize("workload", ["age,sex", "2"])
def test_public_totals_hold_in_whole_tables_and_rows(place: Path, workload):
    public(place, "197")
    done = run("release", "people.csv", *WORDS, "--workload", workload, "--whole", "--out", "whole")
    assert done.exit_code == 0, done.output
    model = read_release(place / "whole").model
    assert sorted(model.marginal("sex").tolist())[-2:] == [197, 203]
    for rows in (400, 800):
        assert sorted(model.sample(rows, 2).marginal("sex"))[-2:] == [197 * rows / 400, 203 * rows / 400]  # fmt: skip


def test_public_totals_that_are_not_whole_are_refused_before_anything_is_spent(place: Path):
    public(place, "197.5")
    words = ("--workload", "2", "--ledger", "people.ledger", "--out", "whole")
    done = run("release", "people.csv", *WORDS, *words, "--whole")
    assert done.exit_code == 2
    assert "give it in whole numbers" in done.output
    assert not (place / "people.ledger").exists()
    assert not list(place.glob("whole*"))
