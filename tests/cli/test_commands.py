"""The commands together: from a raw CSV file to answers, rows and comparisons, without any Python."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

import consilience as cs
from cli.conftest import BUDGET, SCHEMA, checked, people, run
from consilience.cli.shell import COMMANDS
from consilience.data import Schema
from consilience.data.schema_file import parse_schema
from consilience.privacy import Ledger
from consilience.release import read_release
from consilience.release.registry import MECHANISMS


def exact(rows: int, tmp_path: Path):
    path = tmp_path / "exact.csv"
    path.write_text(people(rows), encoding="utf-8")
    return cs.read_table(path, schema=parse_schema(SCHEMA))


def test_five_commands_from_a_csv_to_answers(place: Path) -> None:
    drafted = run("schema", "people.csv")
    assert drafted.exit_code == 0
    assert "NOT private" in drafted.stderr
    assert drafted.stdout.startswith(
        "# DRAFT, read off the table: NOT private as it is, and a release"
    )
    (place / "draft.toml").write_text(drafted.stdout, encoding="utf-8")
    checked(place / "draft.toml")
    common = ("--schema", "draft.toml", "--epsilon", "5", "--delta", "1e-6", "--workload", "2")
    planned = run("plan", "people.csv", *common)
    assert planned.exit_code == 0, planned.output
    assert "Pilot: 10 tables" in planned.stdout
    assert "100.00% of that budget" in planned.stdout
    words = ("--neighbours", "replace-one", "--ledger", "people.ledger", "--out", "release")
    made = run("release", "people.csv", *common, *words, "--errors", "none")
    assert made.exit_code == 0, made.output
    asked = run("answer", "release", "sex", "--where", "member=yes", "--json")
    assert asked.exit_code == 0, asked.output
    assert json.loads(asked.stdout)["trust"] == "measured"
    rows = run("sample", "release", "--rows", "100", "--out", "rows.csv")
    assert rows.exit_code == 0, rows.output
    assert len((place / "rows.csv").read_text().splitlines()) == 101


def test_the_folder_holds_what_it_should(released: Path) -> None:
    names = {p.name for p in released.iterdir()}
    assert names == {
        "README.txt", "release.json", "schema.toml", "tables", "measurements", "model.npz", "ledger.json",
        "manifest.json",
    }  # fmt: skip
    published = read_release(released)
    facts = published.facts
    assert facts["private"] is True
    assert facts["neighbours"] == "replace-one"
    assert facts["cost"]["share"] == pytest.approx(1, abs=1e-9)
    assert facts["total"] == {"value": 2000.0, "public": True}
    assert len(facts["tables"]) == len(facts["measurements"]) == 10
    assert published.schema == parse_schema(SCHEMA)
    entry = json.loads((released / "ledger.json").read_text())["releases"]
    assert [e["number"] for e in entry] == [1]


def test_tables_agree_with_the_model_and_with_each_other(released: Path) -> None:
    published = read_release(released)
    for table in published.facts["tables"]:
        stored = pyarrow.parquet.read_table(released / f"{table['file']}.parquet")
        counts = published.model.marginal(tuple(table["attributes"]))
        np.testing.assert_allclose(stored["count"].to_numpy(), counts.reshape(-1))
        assert min(stored["stderr"].to_pylist()) > 0
        with (released / f"{table['file']}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        labels = [[r[a] for a in table["attributes"]] for r in rows]
        sizes = [published.labels[a] for a in table["attributes"]]
        assert labels == [[x, y] for x in sizes[0] for y in sizes[1]]
        np.testing.assert_allclose([float(r["count"]) for r in rows], counts.reshape(-1))


def test_measurements_can_be_reconstructed_again(released: Path, tmp_path: Path) -> None:
    words = ("--schema", released / "schema.toml", "--total", "2000", "--out", tmp_path / "again")
    done = run("reconstruct", released / "measurements", *words)
    assert done.exit_code == 0, done.output
    first, second = read_release(released).model, read_release(tmp_path / "again").model
    for clique in first.cliques:
        np.testing.assert_allclose(first.marginal(clique), second.marginal(clique), atol=0.05)


def answers(*words: object) -> dict:
    done = run("answer", *words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("attributes", "where", "clique", "pick"),
    [
        ("sex", "", ("sex",), lambda t: t),
        ("age,sex", "", ("age", "sex"), lambda t: t.reshape(-1)),
        ("sex,age", "", ("sex", "age"), lambda t: t.reshape(-1)),
        ("", "sex=F", ("sex",), lambda t: t[:1]),
        ("sex", "income>=50000", ("sex", "income"), lambda t: t[:, 2]),
        ("sex", "income<50000", ("sex", "income"), lambda t: t[:, :2].sum(axis=1)),
        ("", "age>=18,age<65,sex=M", ("age", "sex"), lambda t: t[1:2, 1]),
        ("", "age>17,age<=64,sex=M", ("age", "sex"), lambda t: t[1:2, 1]),
        ("", "age>100", ("age",), None),
        ("age", "age!=(missing)", ("age",), lambda t: t[:3]),
        ("sex", "age=0-17|65-100", ("sex", "age"), lambda t: t[:, [0, 2]].sum(axis=1)),
        ("sex", "joined>=2020-01-01", ("sex", "joined"), lambda t: t[:, 1:].sum(axis=1)),
        ("grown", "", ("age",), lambda t: np.array([t[0], t[1] + t[2], t[3]])),
        (
            "grown,sex",
            "",
            ("age", "sex"),
            lambda t: np.array([t[0], t[1] + t[2], t[3]]).reshape(-1),
        ),
    ],
)
def test_answers_add_up_the_cells_that_meet_the_conditions(
    released: Path, attributes, where, clique, pick
) -> None:
    if pick is None:
        assert run("answer", released, "--where", where).exit_code == 2
        return
    found = answers(released, attributes, "--where", where)
    want = pick(read_release(released).model.marginal(clique))
    np.testing.assert_allclose([r["count"] for r in found["rows"]], want)
    assert found["trust"] == "measured"
    assert all(r["stderr"] > 0 for r in found["rows"])


def test_answers_come_close_to_the_truth(released: Path, tmp_path: Path) -> None:
    data = exact(2000, tmp_path)
    found = answers(released, "sex,member")
    truth = data.marginal(("sex", "member")).reshape(-1)
    for row, true in zip(found["rows"], truth, strict=True):
        assert abs(row["count"] - true) < 6 * row["stderr"] + 1
        assert {row["sex"]} <= {"F", "M"}


def test_an_answer_that_was_not_measured_says_so(released: Path) -> None:
    found = answers(released, "sex,age,member")
    assert found["trust"] == "inferred"
    assert found["rests_on"] == "inferred from sex-age, sex-member and age-member"
    assert {r["stderr"] for r in found["rows"]} == {None}
    assert found["notes"] == [
        "no standard error: the release has those of measured counts alone, in closed form (all, by refits: errors all)"
    ]
    with_errors = answers(released, "sex,member,joined", "--errors", "all")
    assert all(r["stderr"] is not None for r in with_errors["rows"])


def test_answers_as_csv_and_for_people(released: Path) -> None:
    text = run("answer", released, "sex,member", "--csv", "-q").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == ["sex", "member", "count", "stderr", "low", "high"]
    assert len(rows) == 6
    shown = run("answer", released, "sex")
    assert "± standard error" in shown.stdout
    assert "measured" in shown.stderr


def test_sampled_rows_have_the_columns_and_types_of_the_schema(released: Path, tmp_path) -> None:
    out = tmp_path / "rows.parquet"
    assert run("sample", released, "--rows", "500", "--out", out, "--seed", "1").exit_code == 0
    table = pyarrow.parquet.read_table(out)
    assert table.column_names == ["sex", "age", "income", "member", "joined"]
    kinds = [str(t) for t in table.schema.types]
    assert kinds == ["string", "double", "double", "bool", "date32[day]"]
    schema = parse_schema(SCHEMA)
    data = cs.read_table(out, schema=Schema(schema.columns))
    assert data.records == 500
    again = tmp_path / "again.csv"
    assert run("sample", released, "--rows", "500", "--out", again, "--seed", "1").exit_code == 0
    same = cs.read_table(again, schema=Schema(schema.columns))
    np.testing.assert_array_equal(same.to_array(), data.to_array())


def test_tables_of_somebody_else_become_consistent(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sex,age,count\nF,old,10\nF,young,22\nM,old,-3\nM,young,8\n")
    (tmp_path / "b.csv").write_text(
        "age,member,value,stddev\nold,true,5,2\nyoung,true,12,2\nyoung,false,30,2\n"
    )
    out = tmp_path / "out"
    done = run("reconstruct", tmp_path / "b.csv", "--out", out)
    assert (done.exit_code, "must determine the total" in done.stderr) == (2, True)
    done = run("reconstruct", tmp_path / "b.csv", "--total", "50", "--out", out)
    assert done.exit_code == 0, done.output
    done = run(
        "reconstruct", tmp_path / "a.csv", "--stddev", "3", "--out", tmp_path / "c", "--json"
    )
    assert done.exit_code == 0, done.output
    model = read_release(tmp_path / "c").model
    assert model.marginal(("sex", "age")).min() >= 0
    assert answers(tmp_path / "c", "sex")["private"] is False


@pytest.mark.slow
def test_compare_lists_every_method(released: Path) -> None:
    done = run("compare", released, "--methods", "noisy,local,prior", "--json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert [r["method"] for r in rows] == ["noisy", "local", "prior"]
    assert all(r["validation"] > 0 for r in rows)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_can_be_asked_for(place: Path, mechanism: str) -> None:
    own = ("-o", "rounds=2") if "rounds" in MECHANISMS[mechanism].options else ()
    words = ("--schema", "people.toml", *BUDGET, "--mechanism", mechanism, *own)
    planned = run("plan", *words, "--rows", "400", "--json")
    assert planned.exit_code == 0, planned.output
    assert 0 < json.loads(planned.stdout)["cost"]["share"] <= 1
    done = run("release", "people.csv", *words, "--ledger", "l", "--out", "out")
    assert done.exit_code == 0, done.output
    facts = read_release(place / "out").facts
    assert facts["mechanism"]["name"] == {"auto": "pilot"}.get(mechanism, mechanism)
    assert facts["standard_errors"] == ("auto" if MECHANISMS[mechanism].counts else "none")
    assert len(Ledger(place / "l").read().entries) >= 1


def test_refits_that_would_take_long_are_left_out_and_that_is_said(
    place: Path, monkeypatch
) -> None:
    monkeypatch.setattr("consilience.release.standard_errors.LONG", 0.0)
    words = ("people.csv", "--schema", "people.toml", *BUDGET, "--out", "out")
    done = run("release", *words)
    assert done.exit_code == 0, done.output
    assert "standard errors in closed form: 50 refits would take" in done.stderr
    assert read_release(place / "out").facts["standard_errors"] == "closed-form"


def test_a_seed_marks_the_release_as_not_private(place: Path) -> None:
    words = ("people.csv", "--schema", "people.toml", *BUDGET, "--seed", "5", "--errors", "none")
    for out in ("one", "two"):
        assert run("release", *words, "--out", out).exit_code == 0
    one, two = read_release(place / "one"), read_release(place / "two")
    assert not one.private
    assert "NOT PRIVATE" in (place / "one" / "README.txt").read_text()
    np.testing.assert_array_equal(one.model.marginal("sex"), two.model.marginal("sex"))


def test_add_remove_hides_the_number_of_rows(place: Path) -> None:
    words = ("--epsilon", "2", "--delta", "1e-6", "--neighbours", "add-remove", "--errors", "none")
    done = run("release", "people.csv", "--schema", "people.toml", *words, "--out", "out")
    assert done.exit_code == 0
    assert read_release(place / "out").facts["total"]["public"] is False


def test_quiet_is_quiet_and_nothing_moves_without_a_terminal(place: Path) -> None:
    words = ("people.csv", "--schema", "people.toml", *BUDGET, "--errors", "none")
    quiet = run("release", *words, "--out", "out", "-q")
    assert quiet.stderr == ""
    loud = run("release", *words, "--out", "out2")
    assert "\x1b" not in loud.output
    assert "sigma" in loud.stderr


def test_every_command_teaches_with_an_example() -> None:
    for name in COMMANDS:
        shown = run(name, "--help")
        assert shown.exit_code == 0
        assert name == "demo" or f"consilience {name} " in shown.output
    assert all(f"  {name}" in run("--help").output for name in COMMANDS)
