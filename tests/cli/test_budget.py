"""consilience budget: what it shows, new ledgers, and its mistakes."""

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
    assert found["share"] == 0.25


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


def test_a_new_ledger_has_the_total_that_was_asked_for(tmp_path):
    path = str(tmp_path / "new.ledger")
    total = ["--epsilon", "3", "--delta", "1e-6", "--neighbours", "replace-one"]
    made = run("budget", path, "--create", "--table", "dogs", *total, "--json")
    assert made.exit_code == 0, made.output
    found = json.loads(made.output)
    assert found["total"]["exact"] == {"epsilon": "3", "delta": "1/1000000"}
    assert found["releases"] == []
    assert "nothing released yet" in run("budget", path).output
    again = run("budget", path, "--create", "--table", "dogs", *total)
    assert (again.exit_code, "created once" in again.output) == (2, True)
    late = run("budget", path, "--epsilon", "3")
    assert (late.exit_code, "set once, with --create" in late.output) == (2, True)
