"""The command line: what it shows, and that a mistake is one line and exit code 2."""

import json

import pytest
from click.testing import CliRunner

from consilience.cli import main
from consilience.privacy import Budget, Cost, Ledger, Scale, marginals


@pytest.fixture
def ledger(tmp_path):
    total = Budget(epsilon=2, neighbours="add-remove")
    made = Ledger.create(tmp_path / "people.ledger", table="people", total=total)
    made.reserve(Cost.laplace(marginals("add-remove"), Scale(2.0)), "ages")
    return made


def run(*words):
    return CliRunner().invoke(main, list(words))


def test_budget_shows_table_total_spent_and_releases(ledger):
    shown = run("budget", str(ledger.path))
    assert shown.exit_code == 0
    for word in ("people", "add-remove", "ages", "0.5"):
        assert word in shown.output


def test_budget_as_json(ledger):
    found = json.loads(run("budget", str(ledger.path), "--json").output)
    assert found["table"] == "people"
    assert [r["description"] for r in found["releases"]] == ["ages"]


@pytest.mark.parametrize("make", ["missing", "other table", "text"])
def test_a_mistake_is_one_line_and_exit_code_2(ledger, tmp_path, make):
    words = {
        "missing": ["budget", str(tmp_path / "none.ledger")],
        "other table": ["budget", str(ledger.path), "--table", "dogs"],
        "text": ["budget", str(tmp_path / "note.ledger")],
    }[make]
    (tmp_path / "note.ledger").write_text("not a ledger")
    shown = run(*words)
    assert shown.exit_code == 2
    assert "Traceback" not in shown.output
    assert len(shown.output.strip().splitlines()) == 1


def test_every_command_has_help():
    for name in main.commands:
        shown = run(name, "--help")
        assert shown.exit_code == 0
        assert len(shown.output.splitlines()) > 3
