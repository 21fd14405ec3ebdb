"""Runs that nobody watches: a log, a settings file, exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import run
from consilience.privacy import Ledger
from consilience.release import read_release

SETTINGS = """
table = "people.csv"

[release]
schema = "people.toml"
epsilon = 2
delta = 1e-6
neighbours = "replace-one"
workload = [["sex", "age"], ["sex", "member"]]
mechanism = "mwem"
ledger = "l"
out = "out"
errors = "none"
strict = false

[release.option]
rounds = 2

[plan]
workload = "@tables.txt"
"""
SAID = "--epsilon 2 --delta 1e-06 --neighbours replace-one --workload 'sex,age; sex,member'"


# -- settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["here", "beside the table"])
def test_a_release_is_one_short_command(place: Path, monkeypatch, where: str) -> None:
    (place / "consilience.toml").write_text(SETTINGS)
    words: tuple[object, ...] = ()
    if where != "here":
        (place / "elsewhere").mkdir()
        monkeypatch.chdir(place / "elsewhere")
        words = (place / "people.csv",)
    done = run("release", *words)
    assert done.exit_code == 0, done.output
    assert "settings of " in done.stderr
    for words_said in (SAID, "--mechanism mwem", "--option rounds=2", "--errors none"):
        assert words_said in done.stderr
    published = read_release(place / "out")
    assert len(published.facts["measurements"]) == 2
    assert len(Ledger(place / "l").read().entries) == 1


def test_the_command_line_comes_first(place: Path) -> None:
    (place / "consilience.toml").write_text(SETTINGS)
    (place / "tables.txt").write_text("sex,income\nsex,age\nage,member\n")
    done = run("plan", "--json")
    assert done.exit_code == 0, done.output
    planned = json.loads(done.stdout)
    assert planned["workload"]["tables"] == 3, "what [plan] says comes before [release]"
    words = ("--mechanism", "gaussian", "--option", "weights=optimal", "--out", "two")
    other = run("release", *words)
    assert other.exit_code == 0, other.output
    assert "rounds" not in other.stderr
    assert read_release(place / "two").facts["mechanism"]["calibrated"].startswith("Gaussian")
    alone = run("release", "--settings", "none", "people.csv")
    assert alone.exit_code == 2
    assert "Missing option '--schema'" in alone.stderr
    (place / "consilience.toml").rename(place / "mine.toml")
    (place / "l").unlink()
    assert run("release", "--settings", "mine.toml", "-q").exit_code == 0
    assert run("release").exit_code == 2


WRONG = {
    "epsilon = [": "settings must be TOML, and these are not",
    "epsilon = 1": "got 'epsilon'; options stand below [release]",
    "[release]\nepsillon = 1": "must hold options of consilience release, got 'epsillon'; there are",
    "[release]\nsettings = 'x'": "got 'settings'",
    "[release]\nstrict = 'yes'": "strict must be true or false, got 'yes'",
    "[release]\nepsilon = true": "epsilon must be text or a number, got True",
    "[release]\nepsilon = [1]": "epsilon must be text or a number, got [1]",
    "release = 3": "[release] must be a table of options, got 3",
    "table = 3": "table must be a path or an address, got 3",
    "table = 'other.csv'": "are for the table 'other.csv', got another",
    "[release]\nschema = 'people.toml'\nout = 'out'\nneighbours = 'none'": "'none' is not one of 'replace-one', 'add-remove'",
}


@pytest.mark.parametrize("text", WRONG)
def test_settings_that_are_refused(place: Path, text: str) -> None:
    before = set(os.listdir(place))
    (place / "consilience.toml").write_text(text)
    done = run("release", "people.csv", "-q")
    lines = done.stderr.strip().splitlines()
    assert (done.exit_code, len(lines)) == (2, 1)
    assert WRONG[text] in lines[0]
    assert set(os.listdir(place)) == before | {"consilience.toml"}
    missing = run("release", "people.csv", "--settings", "nowhere.toml")
    assert "--settings must be a file, got 'nowhere.toml'" in missing.stderr


# -- the log ----------------------------------------------------------------------------------------

WORDS = ("people.csv", "--schema", "people.toml", "--epsilon", "1", "--delta", "1e-6")
RELEASE = (*WORDS, "--neighbours", "replace-one", "--out", "out", "--errors", "none", "-q")
LINE = re.compile(
    r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (\w+) (begin|stage|progress|end)(: .*)?$"
)


def test_a_line_for_every_stage(place: Path) -> None:
    assert run("release", *RELEASE, "--mechanism", "gaussian", "--log", "x.log").exit_code == 0
    assert run("answer", "out", "sex", "-q", "--log", "x.log").exit_code == 0
    lines = (place / "x.log").read_text().splitlines()
    found = [LINE.match(line) for line in lines]
    assert all(found), lines
    said = [m.groups() for m in found if m is not None]
    assert [s[:2] for s in said if s[1] != "stage"] == [
        ("release", "begin"),
        ("release", "end"),
        ("answer", "begin"),
        ("answer", "end"),
    ]
    stages = [str(s[2]) for s in said if s[:2] == ("release", "stage")]
    order = ["opening", "calibrating", "counting", "drawing", "reconstructing", "writing"]
    assert [next(w for w in order if w in s) for s in stages if any(w in s for w in order)] == order
    assert "exit code 0" in str(said[[s[1] for s in said].index("end")][2])


def test_a_log_of_json(place: Path) -> None:
    assert run("release", *RELEASE, "--log", "x.log", "--log-json").exit_code == 0
    assert run("release", *RELEASE, "--log", "x.log", "--log-json").exit_code == 2
    records = [json.loads(line) for line in (place / "x.log").read_text().splitlines()]
    ends = [r for r in records if r["event"] == "end"]
    assert [r["exit"] for r in ends] == [0, 2]
    assert "must be a new folder" in ends[1]["error"]
    assert all({"time", "command", "event"} <= set(r) for r in records)
    assert all(r["seconds"] >= 0 for r in records if r["event"] == "stage")


def test_a_long_stage_says_how_far_it_is(place: Path, monkeypatch) -> None:
    monkeypatch.setattr("consilience.cli.output.EVERY", -1.0)
    words = ("--mechanism", "mwem", "-o", "rounds=3", "--log", "x.log", "--log-json")
    assert run("release", *RELEASE, *words).exit_code == 0
    records = [json.loads(line) for line in (place / "x.log").read_text().splitlines()]
    rounds = [
        (r["done"], r["total"]) for r in records if r.get("stage") == "rounds" and "done" in r
    ]
    assert rounds == [(2, 3), (3, 3)]


def test_a_log_that_cannot_be_written(place: Path) -> None:
    done = run("release", *RELEASE, "--log", "no/x.log")
    assert done.exit_code == 2
    assert "--log must name a file that can be written, got 'no/x.log'" in done.stderr
    assert not (place / "out").exists()


def test_a_password_is_in_no_log(place: Path) -> None:
    address = "postgres://me:hunter2@127.0.0.1:1/db::people"
    done = run("release", address, *RELEASE[1:], "--log", "x.log")
    assert done.exit_code == 2
    assert "hunter2" not in (place / "x.log").read_text() + done.stderr


# -- exit codes -------------------------------------------------------------------------------------


def ended(place: Path, *words: str, code: str = "", **more: object) -> subprocess.CompletedProcess:
    lines = f"import os, signal, sys\n{code}\nsys.argv = {['consilience', *words]!r}\n"
    lines += "import consilience_start; consilience_start.main()"
    return subprocess.run([sys.executable, "-c", lines], cwd=place, capture_output=True, **more)  # pyright: ignore


def test_exit_codes_are_as_the_page_says(place: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    stated = re.findall(r"^\| `(\d)` \|", page, re.MULTILINE)
    assert stated == ["0", "1", "2"]
    assert ended(place, "--version").returncode == 0
    assert ended(place, "release", "nothing").returncode == 2
    stop = "import threading; threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGTERM)).start()"
    assert ended(place, "demo", code=stop).returncode == 2
    defect = "import consilience.cli.budget as b; b.budget_command.callback = lambda **k: 1 / 0"
    done = ended(place, "budget", "l", "--log", "x.log", code=defect)
    assert (done.returncode, b"ZeroDivisionError" in done.stderr) == (1, True)
    assert "exit code 1" in (place / "x.log").read_text()
