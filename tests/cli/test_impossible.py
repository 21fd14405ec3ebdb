"""Combinations that the schema declares impossible: no table, answer or row of a release shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet
import pytest

import consilience as cs
from cli.conftest import BUDGET, SCHEMA, run
from consilience.data import Schema
from consilience.data.schema_file import parse_schema
from consilience.release import read_release

IMPOSSIBLE = (
    SCHEMA
    + """
[[impossible]]
age = ["0-17"]
member = ["yes"]

[[impossible]]
sex = ["M"]
age = ["65-100"]
income = ["[50000, 200000]", "[20000, 50000)"]
"""
)


def shown(schema: Schema, out: Path, sample: Path) -> list[float]:
    """All that the release says about the two impossible combinations: in tables, answers and rows."""
    numbers: list[float] = []
    published = read_release(out)
    for table in published.facts["tables"]:
        attributes = table["attributes"]
        stored = pyarrow.parquet.read_table(out / f"{table['file']}.parquet").to_pylist()
        for combination in schema.combinations:
            if set(combination) <= set(attributes):
                bad = [r for r in stored if all(r[a] in v for a, v in combination.items())]
                assert bad
                numbers += [r["count"] for r in bad] + [r.get("stderr", 0.0) for r in bad]
    for combination in schema.combinations:
        quoted = {a: "|".join(f'"{label}"' for label in v) for a, v in combination.items()}
        where = ",".join(f"{a}={v}" for a, v in quoted.items())
        for extra in ("", "joined"):
            done = run("answer", out, extra, "--where", where, "--errors", "none", "--json")
            assert done.exit_code == 0, done.output
            numbers += [r["count"] for r in json.loads(done.stdout)["rows"]]
    assert run("sample", out, "--rows", "3000", "--out", sample, "--seed", "1").exit_code == 0
    rows = cs.read_table(sample, schema=Schema(schema.columns))
    numbers += [float(rows.marginal(c)[~m].sum()) for c, m in schema.possible.items()]
    return numbers


@pytest.mark.parametrize(
    ("mechanism", "workload", "more"),
    [
        ("gaussian", "2", ["--consistency", "local"]),
        ("gaussian", "2", ["--consistency", "global", "--errors", "closed-form"]),
        ("gaussian", "3", ["--errors", "bootstrap"]),
        ("gaussian", "age,sex; sex,income; member", []),
        ("laplace", "2", []),
        ("hdmm", "2", ["-o", "restarts=1"]),
        ("residual-planner", "2", []),
        ("mwem", "2", ["-o", "rounds=3"]),
        ("aim", "3", []),
    ],
)
def test_impossible_combinations_are_never_shown(
    place: Path, mechanism: str, workload: str, more: list[str]
) -> None:
    """Whether a table measured them or not."""
    (place / "people.toml").write_text(IMPOSSIBLE, encoding="utf-8")
    words = ("--schema", "people.toml", *BUDGET, "--mechanism", mechanism, "--workload", workload)
    errors = () if "--errors" in more else ("--errors", "none")
    done = run("release", "people.csv", *words, *errors, *more, "--out", "out", "-q")
    assert done.exit_code == 0, done.output
    numbers = shown(parse_schema(IMPOSSIBLE), place / "out", place / "rows.csv")
    assert len(numbers) > 8
    assert set(numbers) == {0.0}


RULES = """impossible = [
    "age < 18 and member = yes",
    "sex = M and age >= 65 and income >= 20000 and income <= 200000",
]
"""


@pytest.mark.parametrize("workload", ["2", "sex; age; member; income; joined"])
def test_rules_come_to_the_same(place: Path, workload: str) -> None:
    """Also where nobody measured what a rule ties together."""
    ruled, listed = parse_schema(RULES + SCHEMA), parse_schema(IMPOSSIBLE)
    for clique, mask in listed.possible.items():
        assert (ruled.possible[clique] == mask).all()
    (place / "people.toml").write_text(RULES + SCHEMA, encoding="utf-8")
    words = ("--schema", "people.toml", *BUDGET, "--workload", workload, "--errors", "none")
    done = run("release", "people.csv", *words, "--out", "out", "-q")
    assert done.exit_code == 0, done.output
    numbers = shown(ruled, place / "out", place / "rows.csv")
    assert set(numbers) == {0.0}


def test_impossible_combinations_hold_for_somebody_elses_tables(place: Path) -> None:
    (place / "people.toml").write_text(IMPOSSIBLE, encoding="utf-8")
    (place / "a.csv").write_text("sex,noisy\nF,80\nM,120\n")
    ages = ("0-17", "18-64", "65-100", "(missing)")
    cells = [f"{a},{m},20" for a in ages for m in ("no", "yes", "(missing)")]
    (place / "b.csv").write_text("\n".join(["age,member,noisy", *cells]))
    words = ("--schema", "people.toml", "--stddev", "9", "--out", "out")
    done = run("reconstruct", "a.csv", "b.csv", *words)
    assert done.exit_code == 0, done.output
    assert set(shown(parse_schema(IMPOSSIBLE), place / "out", place / "rows.csv")) == {0.0}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--mechanism", "fem"], "SelectionLikelihood cannot keep the schema's impossible comb"),
        (["--fit", "shrunk"], "Shrunk cannot keep the schema's impossible combinations empty"),
    ],
)
def test_what_can_not_keep_them_is_refused_before_anything_is_spent(place, more, said) -> None:
    (place / "people.toml").write_text(IMPOSSIBLE, encoding="utf-8")
    words = ("--schema", "people.toml", *BUDGET, "--ledger", "l", "--out", "out", *more)
    done = run("release", "people.csv", *words)
    assert (done.exit_code, said in done.stderr.splitlines()[-1]) == (2, True), done.output
    assert not (place / "l").exists()


def test_combinations_that_leave_nobody_are_refused_before_anything_is_spent(place: Path) -> None:
    nobody = SCHEMA + "".join(
        f'\n[[impossible]]\nage = ["0-17", "18-64", "65-100", "(missing)"]\nsex = ["{s}"]\n'
        for s in "FM"
    )
    (place / "people.toml").write_text(nobody, encoding="utf-8")
    words = ("--schema", "people.toml", *BUDGET, "--ledger", "l", "--out", "out")
    done = run("release", "people.csv", *words)
    assert (done.exit_code, "must leave some cell" in done.stderr) == (2, True), done.output
    assert not (place / "l").exists()
