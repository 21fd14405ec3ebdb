"""Tables as people have them: each is drafted, released and sampled from, or refused in one line before anything is spent."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from cli.conftest import checked, run
from consilience.data.schema_file import read_schema

BUDGET = ("--epsilon", "1", "--delta", "1e-6", "--neighbours", "replace-one", "--ledger", "l")
ROWS = [("abc"[i % 3], i * 7 % 90, i * 13 % 101 / 4) for i in range(200)]
PLAIN = "kind,age,score\n" + "".join(f"{k},{a},{s}\n" for k, a, s in ROWS)


def lines(head: str, row: str) -> str:
    """A header, then a line per row with {k}, {a} and {s} filled in."""
    return head + "".join(row.format(k=k, a=a, s=s, m=1 + a % 12, d=1 + a % 28) for k, a, s in ROWS)


TABLES: dict[str, tuple[str | bytes, list[str]]] = {
    "byte order mark": ("\ufeff" + PLAIN, ["kind", "age", "score"]),
    "quoted delimiters": (
        lines('"kind, of",age\n', '"{k}, ""x""",{a}\n'),
        ["kind, of", "age"],
    ),
    "one column": (lines("kind\n", "{k}\n"), ["kind"]),
    "many columns": (
        ",".join(f"c{i}" for i in range(100)) + "\n" + f"{','.join('xy' * 50)}\n{','.join('yx' * 50)}\n" * 15,
        [f"c{i}" for i in range(100)],
    ),
    "all missing": (lines("kind,none,age\n", "{k},,{a}\n"), ["kind", "age"]),
    "numbers and n/a": (
        "kind,mix\n" + "".join(f"{k},{a if i % 7 else 'n/a'}\n" for i, (k, a, _) in enumerate(ROWS)),
        ["kind", "mix"],
    ),
    "days": (
        lines("kind,day,stamp\n", "{k},2020-{m:02d}-{d:02d},2021-{m:02d}-{d:02d}T12:30:00Z\n"),
        ["kind", "day", "stamp"],
    ),
    "huge integers": (
        "kind,big\n" + "".join(f"{k},{9007199254740993 + a * 10**15}\n" for k, a, _ in ROWS),
        ["kind", "big"],
    ),
    "line breaks in cells": (lines('kind,"no\nte"\n', '"{k}\nz",{a}\n'), ["kind", "no\nte"]),
    "semicolons": (PLAIN.replace(",", ";"), ["kind", "age", "score"]),
    "tabs": (PLAIN.replace(",", "\t"), ["kind", "age", "score"]),
    "windows line ends": (PLAIN.replace("\n", "\r\n"), ["kind", "age", "score"]),
    "old mac line ends": (PLAIN.replace("\n", "\r"), ["kind", "age", "score"]),
    "no last line end": (PLAIN.rstrip("\n"), ["kind", "age", "score"]),
    "blanks around everything": (lines(" kind , age \n", " {k} , {a} \n"), ["kind", "age"]),
    "words of SQL": (lines('select,"we""ird",日本\n', "{k},{a},{k}\n"), ["select", 'we"ird', "日本"]),
    "an index without a name": (
        ",kind,age\n" + "".join(f"{i},{k},{a}\n" for i, (k, a, _) in enumerate(ROWS)),
        ["kind", "age"],
    ),
    "names that others have": (
        lines("kind,Kind,kind_2,,\n", "{k},{a},{k},{a},{k}\n"),
        ["kind", "Kind_3", "kind_2", "column4", "column5"],
    ),
    "numbers as people write them": (
        lines("kind;price;share;euro;at\n", "{k};$1,{a:03d}.50;{a}%;1.{a:03d},25;{m:02d}:{d:02d}\n"),
        ["kind", "price", "share", "euro", "at"],
    ),
    "days as people write them": (
        lines("kind,us,eu,time\n", "{k},{m}/{d}/2020,{d:02d}.{m:02d}.2021,{m:02d}/{d:02d}/2019 12:30\n"),
        ["kind", "us", "eu", "time"],
    ),
    "codes": (lines("kind,zip,puma,dis\n", "{k},{a:05d},25-0{d},{m}\n"), ["kind", "zip", "puma", "dis"]),
    "reserved labels": (lines("kind,age\n(missing),3\n(other),4\n", "{k},{a}\n"), ["kind", "age"]),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_odd_tables_go_all_the_way(tmp_path: Path, monkeypatch, name: str) -> None:
    content, columns = TABLES[name]
    monkeypatch.chdir(tmp_path)
    encoded = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "t.csv").write_bytes(encoded)
    drafted = run("schema", "t.csv", "--out", "t.toml")
    assert drafted.exit_code == 0, drafted.output
    assert [c.name for c in read_schema(tmp_path / "t.toml")] == columns
    checked(tmp_path / "t.toml")
    words = ("--schema", "t.toml", *BUDGET, "--workload", "1", "--errors", "none", "--out", "out")
    done = run("release", "t.csv", *words)
    assert done.exit_code == 0, done.output
    settled = {"reserved labels": "kind: 2"}.get(name, "")
    assert (f"{settled} not declared" in done.stderr) == bool(settled), "drafted from itself"
    assert run("sample", "out", "--rows", "7", "--out", "rows.csv").exit_code == 0
    with (tmp_path / "rows.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == columns
    assert len(rows) == 8


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (PLAIN.encode("utf-16"), ["is UTF-16", "say --encoding utf-16"]),
        (PLAIN.encode("utf-16-le"), ["is UTF-16"]),
        (PLAIN.encode("utf-16-be"), ["is UTF-16"]),
        ("none\n" + '""\n' * 9, ["must have a column that can be counted"]),
        (PLAIN + "a,3\n", ["must have the columns of its first line, line 202 has not"]),
        ('kind,age\n"a,1\nb,2\n', ["must have the columns of its first line"]),
    ],
)
def test_what_can_not_be_read_is_said_in_a_line(tmp_path: Path, content, said) -> None:
    table = tmp_path / "t.csv"
    table.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = run("schema", table)
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.strip().splitlines()
    assert all(word in line for word in said)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "shift_jis"])
def test_other_encodings_are_named(tmp_path: Path, monkeypatch, encoding: str) -> None:
    monkeypatch.chdir(tmp_path)
    letters = "äéß" if not encoding.startswith("shift") else "日本語"
    content = "kind,größe\n" if letters == "äéß" else "kind,大\n"
    content += "".join(f"{letters[i % 3]},{i % 5}\n" for i in range(60))
    Path("t.csv").write_bytes(content.encode(encoding))
    words = ("--encoding", encoding)
    assert run("schema", "t.csv", *words, "--out", "t.toml").exit_code == 0
    checked(tmp_path / "t.toml")
    assert set(read_schema("t.toml")["kind"].labels) == set(letters)
    done = run("release", "t.csv", "--schema", "t.toml", *words, *BUDGET, "--out", "out")
    assert done.exit_code == 0, done.output
    assert "not declared" not in done.stderr
    assert run("plan", "t.csv", "--schema", "t.toml", *words, *BUDGET[:4]).exit_code == 0


@pytest.mark.parametrize(
    ("name", "content", "words", "said"),
    [
        ("t.csv", b"a\nx\n", ["--encoding", "latin-99"], "must be a known one, such as latin-1"),
        ("t.csv", b"a\n\xe9\n", ["--encoding", "ascii"], "is not ascii"),
        ("t.xlsx", b"PK", [], "'t.xlsx' is an Excel workbook; save it as CSV (UTF-8) first"),
        ("t.parquet", b"PAR1", ["--encoding", "latin-1"], "an encoding is that of a CSV file"),
        ("t.csv", b"a\nx\n", ["--bins", "3"], "--bins goes with --dictionary"),
        ("t.csv", b"a\nx\n", ["--json"], "--json goes with --check"),
    ],
)
def test_what_is_no_table_is_named(
    tmp_path: Path, monkeypatch, name: str, content: bytes, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    done = run("schema", name, *words)
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.strip().splitlines()
    assert said in line


@pytest.mark.parametrize("name", ["people[1].csv", "a*b.csv", 'o\'neil "q" 100%.csv', "a::b.csv"])
def test_a_file_is_itself_whatever_it_is_called(tmp_path: Path, monkeypatch, name: str) -> None:
    """people[1].csv is not people1.csv, which is there too."""
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(PLAIN)
    for other in ("people1.csv", "aXb.csv", "a"):
        Path(other).write_text("other\nx\n")
    drafted = run("schema", name, "--out", "t.toml")
    assert drafted.exit_code == 0, drafted.output
    assert [c.name for c in read_schema(tmp_path / "t.toml")] == ["kind", "age", "score"]
    checked(tmp_path / "t.toml")
    words = ("--schema", "t.toml", *BUDGET, "--errors", "none", "--out", "out::1")
    done = run("release", name, *words)
    assert done.exit_code == 0, done.output
    assert "out::1" in os.listdir(tmp_path)


def test_a_column_with_the_name_of_a_result_is_refused_before_anything_is_spent(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(PLAIN.replace("kind", "count"))
    assert run("schema", "t.csv", "--out", "t.toml").exit_code == 0
    checked(tmp_path / "t.toml")
    done = run("release", "t.csv", "--schema", "t.toml", *BUDGET, "--out", "out")
    assert done.exit_code == 2
    assert "no column may be called 'count'" in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["t.csv", "t.toml"]
