"""Every wrong thing that a person does gets one clear line and exit code 2, and nothing is left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.conftest import BUDGET, SCHEMA, people, run
from consilience.data.files import refusal


def refused(done, *words: str) -> None:
    lines = done.stderr.strip().splitlines()
    assert done.exit_code == 2, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert lines[-1].startswith("consilience: "), done.output
    for word in words:
        assert word in lines[-1]


def release(*words: object, table: object = "people.csv", budget=BUDGET, out: object = "out"):
    return run("release", table, "--schema", "people.toml", *budget, "--out", out, "-q", *words)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.csv", None, ["must be a file", "none.csv", "not there"]),
        ("empty.csv", b"", ["must have a header and rows", "is empty"]),
        (
            "head.csv",
            people(0).encode(),
            ["must have rows, got a header only", "nothing was spent"],
        ),
        (
            "tabs.csv",
            people(5).replace(",", "~").encode(),
            ["must have the column 'sex'", "another delimiter"],
        ),
        (
            "latin.csv",
            people(5).replace(",F,", ",\xe9,").encode("latin-1"),
            ["must be UTF-8", "--encoding cp1252"],
        ),
        ("binary.csv", b"\x00\x01\x02", ["must be text", ".parquet"]),
        ("utf16.csv", people(5).encode("utf-16"), ["is UTF-16"]),
        (
            "ragged.csv",
            (people(5) + "a,b\n").encode(),
            ["must have the columns of its first line", "line 7"],
        ),
        (
            "twice.csv",
            b"sex,sex\nF,M\n",
            ["must have the column 'age' of the schema, it has 'sex', 'sex_2'"],
        ),
        ("blank.csv", b"sex,,age\nF,1,2\n", ["it has 'sex', 'column2', 'age'"]),
        ("fake.parquet", b"not parquet", ["cannot be read"]),
        ("fake.arrow", b"not arrow", ["must be an Arrow file"]),
        ("fake.duckdb", b"not duckdb" * 99, ["must be a DuckDB database"]),
        ("bad.csv.gz", b"not gzip", ["cannot be read"]),
    ],
)
def test_files_that_are_not_tables(place: Path, name: str, content: bytes | None, words) -> None:
    if content is not None:
        (place / name).write_bytes(content)
    before = set(os.listdir(place))
    refused(release("--ledger", "l", table=name), *words)
    assert set(os.listdir(place)) == before


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('ignore = ["name"]', "", ["must declare the column 'name'", "list it under ignore"]),
        ("[columns.member]", "[columns.height]", ["must have the column 'height' of the schema"]),
        ("edges = [0, 18, 65, 100]", "bins = 3\nmin = 100\nmax = 0", ["are the bounds reversed?"]),
        ("[columns.sex]", "[columns.sex", ["people.toml: a schema must be TOML"]),
        (SCHEMA, "", ["must have a table [columns.NAME]"]),
    ],
)
def test_schemas_that_do_not_fit(place: Path, old: str, new: str, words) -> None:
    (place / "people.toml").write_text(SCHEMA.replace(old, new), encoding="utf-8")
    refused(release(), *words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--epsilon", "0", "--neighbours", "add-remove"],
            ["--epsilon must be greater than zero, got '0'"],
        ),
        (
            ["--epsilon", "much", "--neighbours", "add-remove"],
            ["--epsilon must be a number", "'much'"],
        ),
        (
            ["--epsilon", "-1", "--neighbours", "add-remove"],
            ["--epsilon must be greater than zero"],
        ),
        (["--epsilon", "nan", "--neighbours", "add-remove"], ["--epsilon must be a number"]),
        (["--epsilon", "1e400", "--neighbours", "add-remove"], ["to a million, got '1e400'"]),
        (["--rho", "1e-300", "--neighbours", "add-remove"], ["--rho must be from 1e-12"]),
        (
            ["--epsilon", "1", "--delta", "1", "--neighbours", "add-remove"],
            ["--delta must be less than one, got '1'"],
        ),
        (
            ["--epsilon", "1", "--delta", "1/0", "--neighbours", "add-remove"],
            ["--delta must be a number"],
        ),
        (["--epsilon", "1", "--rho", "1", "--neighbours", "add-remove"], ["either epsilon or rho"]),
        (["--neighbours", "add-remove"], ["must have --epsilon", "or --rho, got neither"]),
        (["--epsilon", "1", "--delta", "1e-6"], ["--neighbours replace-one", "add-remove"]),
        (
            ["--epsilon", "1", "--neighbours", "none"],
            ["'none' is not one of", "see consilience release"],
        ),
        (
            ["--epsilon", "1", "--neighbours", "add-remove", "--mechanism", "gaussian"],
            ["cannot keep a pure epsilon"],
        ),
    ],
)
def test_budgets_that_are_none(place: Path, words, said) -> None:
    refused(release(budget=words), *said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--mechanism", "magic"],
            ["mechanism must be one of auto, gaussian, laplace", "got 'magic'"],
        ),
        (["--workload", "sex,height"], ["'height'"]),
        (["--workload", "9"], ["--workload 9 asks for tables", "what the schema has, 5 columns"]),
        (["--workload", ";;"], ["--workload must name at least one table"]),
        (["--workload", "sex,sex"], ["must be distinct, got 'sex,sex'"]),
        (["--time-limit", "0"], ["time_limit must be a positive number of seconds"]),
        (["--workload", "@none.txt"], ["workload file 'none.txt' cannot be read"]),
        (["-o", "rounds=3"], ["option of gaussian must be KEY=VALUE with one of: weights"]),
        (
            ["--mechanism", "mwem", "-o", "rounds=many"],
            ["option rounds of mwem must be a int, got 'many'"],
        ),
        (["--mechanism", "fem", "--fit", "shrunk"], ["fem does not take --fit"]),
        (["--mechanism", "fem", "--errors", "bootstrap"], ["fem publishes choices instead"]),
        (["--mechanism", "dual-query", "--errors", "simulated"], ["publishes choices instead"]),
        (["--fit", "shrunk", "--errors", "closed-form"], ["Shrunk has no closed form"]),
        (["--memory", "lots"], ["memory must be a number of bytes"]),
        (["--consistency", "full"], ["consistency must be"]),
        (["--out"], ["requires an argument"]),
        (["--nonsense"], ["No such option", "--nonsense"]),
        (["--seed", "1", "--ledger", "l"], ["a ledger records private releases, got seeded noise"]),
        (["--delimiter", "||"], ["a delimiter must be one character"]),
    ],
)
def test_words_that_mean_nothing(place: Path, words, said) -> None:
    refused(release(*words), *said)
    assert not (place / "out").exists()


def test_output_that_exists_or_can_not_be_written(place: Path) -> None:
    (place / "there").mkdir()
    refused(release(out="there"), "must be a new folder, but 'there' exists")
    refused(release(out="no/where"), "must be in a folder that exists")
    if os.geteuid():
        (place / "locked").mkdir(mode=0o500)
        refused(release(out="locked/out"), "can be written to")


def test_a_query_that_is_interrupted_is_ctrl_c() -> None:
    """DuckDB raises a plain RuntimeError when a signal stops it."""
    with pytest.raises(KeyboardInterrupt):
        refusal("people.csv", RuntimeError("Query interrupted"))


def test_a_spent_ledger_refuses_the_next_release(place: Path) -> None:
    words = ("--ledger", "l", "--errors", "none")
    assert release(*words).exit_code == 0
    refused(release(*words, out="again"), "of", "is left; nothing was spent")
    assert not (place / "again").exists()


# -- values are never an error --------------------------------------------------------------------


def test_values_are_settled_and_shown_to_the_custodian_only(place: Path) -> None:
    lines = people(300).splitlines()
    lines[5] = "x,unheard-of,old,1e9,perhaps,never"
    (place / "people.csv").write_text("\n".join(lines), encoding="utf-8")
    words = ("people.csv", "--schema", "people.toml", *BUDGET, "--errors", "none")
    done = run("release", *words, "--out", "out")
    assert done.exit_code == 0, done.output
    for line in ("sex: 1 not declared of 300", "income: 1 out of bounds", "age: 1 not declared"):
        assert line in done.stderr
    published = b"".join(f.read_bytes() for f in (place / "out").rglob("*") if f.is_file())
    for secret in (
        b"unheard-of",
        b"not declared",
        b"out of bounds",
        b"perhaps",
        str(place).encode(),
    ):
        assert secret not in published
    strict = run("release", *words, "--out", "strict", "--strict")
    refused(strict, "with strict, every cell must be a declared value, 1 of column 'sex'")
    assert not (place / "strict").exists()


# -- the other commands ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["schema", "none.csv"], ["must be a file", "not there"]),
        (["schema", "people.csv", "--out", "people.toml"], ["must be a new file"]),
        (["plan", "none.csv", "--schema", "people.toml", "--epsilon", "1"], ["must be a file"]),
        (["plan", "--schema", "none.toml", "--epsilon", "1"], ["the schema must be a file"]),
        (["answer", "people.csv"], ["made by release, 'people.csv' is not a folder"]),
        (["answer", "."], ["has no manifest.json"]),
        (["answer", "RELEASE", "height"], ["'height'"]),
        (["answer", "RELEASE", "sex,sex"], ["must be distinct"]),
        (["answer", "RELEASE", "--where", "height=1"], ["declared in the schema, got 'height'"]),
        (["answer", "RELEASE", "--where", "sex=X"], ["must be one of 'F', 'M', got 'X'"]),
        (
            ["answer", "RELEASE", "--where", "sex>F"],
            ["> is for one bound of a column of numbers or days"],
        ),
        (
            ["answer", "RELEASE", "--where", "age>=20"],
            ["must lie between bins, 20 is inside the one from 18"],
        ),
        (["answer", "RELEASE", "--where", "age>=old"], ["must be a number, got 'old'"]),
        (
            ["answer", "RELEASE", "--where", "income>50000"],
            ["so ask income>=50000 instead of income>50000"],
        ),
        (["answer", "RELEASE", "--where", "age<0"], ["it holds for none of"]),
        (["answer", "RELEASE", "--where", "joined>=soon"], ["must be a day such as"]),
        (["answer", "RELEASE", "--where", "age"], ["conditions must look like age>=65,sex=F"]),
        (["sample", "RELEASE", "--rows", "0", "--out", "r.csv"], ["'--rows'"]),
        (["sample", "RELEASE", "--rows", "5", "--out", "people.csv"], ["must be a new file"]),
        (["sample", "RELEASE", "--rows", "5", "--out", "r.xls"], ["must end in .csv or .parquet"]),
        (["reconstruct", "none.csv", "--out", "o"], ["a noisy table must be a file"]),
        (
            ["reconstruct", "people.csv", "--out", "o"],
            ["must have a column noisy or count or value"],
        ),
        (["reconstruct", "noisy.csv", "--out", "o"], ["must be known: give it a column stddev"]),
        (["reconstruct", "noisy.csv", "--stddev", "-1", "--out", "o"], ["stddev must be positive"]),
        (["compare", "RELEASE", "--methods", "best"], ["methods must be some of noisy", "'best'"]),
    ],
)
def test_mistakes_of_the_other_commands(place: Path, released: Path, words, said) -> None:
    (place / "noisy.csv").write_text("sex,noisy\nF,3\nM,4\n")
    before = set(os.listdir(place))
    refused(run(*(released if w == "RELEASE" else w for w in words)), *said)
    assert set(os.listdir(place)) == before


def test_a_changed_release_is_refused(released: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(released, copy)
    assert run("answer", copy, "sex", "--errors", "none").exit_code == 0
    table = next((copy / "tables").glob("*.csv"))
    table.write_text(table.read_text().replace("1", "2", 1))
    refused(run("answer", copy, "sex"), "must be as it was written", table.name)
