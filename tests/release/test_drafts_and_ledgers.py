"""A draft is no schema, a ledger protects the table that it names, and a promise that is hardly one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import BUDGET, checked, run
from consilience.data.draft import draft_schema
from consilience.data.engines import _hidden
from consilience.data.schema_file import parse_schema
from consilience.errors import LedgerError
from consilience.privacy import Budget, Ledger
from consilience.release import read_release

WORDS = ("--schema", "people.toml", *BUDGET, "--workload", "sex,age", "--errors", "none")


def release(*more: str):
    return run("release", "people.csv", *WORDS, *more)


# -- drafts --------------------------------------------------------------------------------------------


def test_a_release_refuses_a_draft_and_says_what_to_check(place: Path) -> None:
    drafted = run("schema", "people.csv", "--out", "draft.toml")
    assert "check: labels of sex" in drafted.stderr
    words = ("release", "people.csv", "--schema", "draft.toml", *BUDGET, "--errors", "none")
    refused = run(*words, "--out", "out")
    assert refused.exit_code == 2
    assert not (place / "out").exists()
    said = refused.stderr.strip().splitlines()
    assert len(said) == 1
    for part in (
        "is a draft",
        "labels of sex",
        "bounds and bins of age",
        "first and last day of joined",
        "delete the line",
    ):
        assert part in said[0]
    checked(place / "draft.toml")
    assert run(*words, "--out", "out").exit_code == 0
    assert read_release("out").private


def test_whoever_insists_gets_a_release_that_says_so_everywhere(place: Path) -> None:
    run("schema", "people.csv", "--out", "draft.toml")
    words = (
        "--schema",
        "draft.toml",
        *BUDGET,
        "--workload",
        "sex,age",
        "--errors",
        "none",
        "--accept-draft",
    )
    done = run("release", "people.csv", *words, "--ledger", "people.ledger", "--out", "out")
    assert done.exit_code == 0, done.output
    published = read_release("out")
    assert not published.private
    assert "read off the data" in published.facts["mark"]
    assert published.schema.draft
    for name in ("README.txt", "release.json", "manifest.json"):
        assert "read off the data" in (place / "out" / name).read_text(), name
    assert "NOT PRIVATE" in run("answer", "out", "sex").output
    assert run("report", "out").exit_code == 0
    assert "read off the data" in (place / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    "header, names",
    [
        ("person_id,sex", "person_id"),
        ("id,sex", "id"),
        ("userId,sex", "userId"),
        ("ssn,sex", "ssn"),
    ],
)
def test_a_draft_asks_about_columns_that_look_like_ids(
    tmp_path: Path, header: str, names: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n".join([header, *(f"{i % 40},{'FM'[i % 2]}" for i in range(120))]) + "\n")
    draft = draft_schema(path)
    assert any(f"whether {names} says whose a row is" in line for line in draft.schema.draft)
    assert parse_schema(draft.to_toml()).draft == draft.schema.draft
    assert draft.schema.name == "t"


def test_a_draft_without_such_columns_does_not_ask(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["sex,valid", *(f"{'FM'[i % 2]},{i % 3}" for i in range(30))]) + "\n")
    assert not any("whose" in line for line in draft_schema(path).schema.draft)


# -- which table ---------------------------------------------------------------------------------------


def test_a_ledger_refuses_another_table(place: Path) -> None:
    assert release("--ledger", "people.ledger", "--out", "one").exit_code == 0
    before = Ledger("people.ledger").read()
    assert before.table == "people"
    text = (place / "people.toml").read_text()
    (place / "people.toml").write_text(text.replace('name = "people"', 'name = "others"'))
    refused = release("--ledger", "people.ledger", "--out", "two")
    assert refused.exit_code == 2
    assert "protects table 'people', not 'others'" in refused.stderr
    (place / "people.toml").write_text(text.replace('name = "people"\n', ""))
    refused = release("--ledger", "people.ledger", "--out", "two")
    assert refused.exit_code == 2
    assert 'add the line name = "people"' in refused.stderr
    assert Ledger("people.ledger").read() == before


def test_a_second_ledger_of_the_same_table_is_remarked_on(place: Path) -> None:
    assert release("--ledger", "people.ledger", "--out", "one").exit_code == 0
    done = release("--ledger", "again.ledger", "--out", "two")
    assert done.exit_code == 0
    assert "people.ledger is a ledger of table 'people' already" in done.stderr


def test_a_key_authenticates_what_a_digest_alone_does_not(tmp_path: Path, monkeypatch) -> None:
    total = Budget(rho=1, neighbours="replace-one")
    plain = Ledger.create(tmp_path / "plain", table="t", total=total)
    monkeypatch.setenv("CONSILIENCE_LEDGER_KEY", "one")
    keyed = Ledger.create(tmp_path / "keyed", table="t", total=total)
    assert keyed.read().table == "t"
    with pytest.raises(LedgerError, match="made without a key"):
        plain.read()
    monkeypatch.setenv("CONSILIENCE_LEDGER_KEY", "another")
    with pytest.raises(LedgerError, match="is damaged"):
        keyed.read()
    monkeypatch.delenv("CONSILIENCE_LEDGER_KEY")
    with pytest.raises(LedgerError, match="set CONSILIENCE_LEDGER_KEY to its key"):
        keyed.read()
    assert plain.read().table == "t"


ADDRESSES = [
    "postgres://ann:s3cret@db.example:5432/census",
    "postgresql://ann:s3%40cret@10.1.2.3/census?sslmode=disable",
    "mysql://ann:s3cret@db.example/census",
    "snowflake://ann:s3cret@account/db/schema?warehouse=w",
    "sqlite:///s3cret/people.db",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_nothing_of_an_address_is_shown_or_kept(place: Path, address: str) -> None:
    shown, secrets = _hidden(address)
    assert "s3" not in shown
    assert "s3cret" in secrets or "s3@cret" in secrets
    done = run("release", f"{address}::people", *WORDS, "--ledger", "l.ledger", "--out", "out")
    assert done.exit_code == 2
    for secret in ("s3cret", "s3%40cret", "s3@cret", "ann", "db.example", "10.1.2.3"):
        assert secret not in done.output
    assert not (place / "l.ledger").exists()


def test_a_table_in_sqlite_is_named_by_its_schema_alone(place: Path) -> None:
    import sqlite3

    pytest.importorskip("ibis", reason="Ibis is not installed")
    hidden = place / "s3cret"
    hidden.mkdir()
    base = sqlite3.connect(hidden / "people.db")
    base.execute("CREATE TABLE people (sex TEXT)")
    base.executemany("INSERT INTO people VALUES (?)", [(v,) for v in "FMFFM" * 20])
    base.commit()
    base.close()
    (place / "sex.toml").write_text(
        'name = "people"\n[columns.sex]\ntype = "categorical"\nlabels = ["F", "M"]\n'
    )
    words = (
        "--schema",
        "sex.toml",
        *BUDGET,
        "--workload",
        "1",
        "--ledger",
        "l.ledger",
        "--out",
        "out",
    )
    done = run("release", f"sqlite:///{hidden}/people.db::people", *words)
    assert done.exit_code == 0, done.output
    assert Ledger("l.ledger").read().table == "people"
    kept = [p.read_bytes() for p in (place / "out").rglob("*") if p.is_file()]
    assert not any(b"s3cret" in content for content in [*kept, (place / "l.ledger").read_bytes()])


# -- delta ---------------------------------------------------------------------------------------------


def test_a_large_delta_is_refused_and_one_above_a_row_remarked_on(place: Path) -> None:
    def asked(delta: str, *more: str):
        words = (
            "--schema",
            "people.toml",
            "--epsilon",
            "1",
            "--delta",
            delta,
            "--neighbours",
            "replace-one",
        )
        return run("release", "people.csv", *words, "--workload", "1", "--errors", "none", *more)

    refused = asked("0.02", "--out", "out")
    assert refused.exit_code == 2
    assert "delta must be at most 0.01, got 0.02" in refused.stderr
    assert asked("0.02", "--accept-delta", "--out", "one").exit_code == 0
    done = asked("0.005", "--out", "two")
    assert done.exit_code == 0
    assert "delta 0.005 is more than one in the 400 rows" in done.stderr
    assert "more than one in" not in asked("1e-6", "--out", "three").stderr
