"""Workloads in words: tables, weights, and sums along columns; what comes of them, and every mistake in one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cli.conftest import BUDGET, SCHEMA, run
from consilience.cli.workload import read_asked
from consilience.data.schema_file import parse_schema
from consilience.errors import DomainError
from consilience.mechanisms import HDMM, Gaussian
from consilience.release import read_release
from consilience.release.registry import USUAL, from_record, named, to_record

DECLARED = parse_schema(SCHEMA)


def rows_of(query) -> set[tuple[int, ...]]:
    """Each row of a query of zeros and ones as the codes that it sums."""
    matrix = query.apply(np.eye(query.cells))
    assert set(np.unique(matrix)) <= {0.0, 1.0}
    return {tuple(np.flatnonzero(row).tolist()) for row in matrix}


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("1", {("sex",): 1, ("age",): 1, ("income",): 1, ("member",): 1, ("joined",): 1}),
        ("age, sex*5; income", {("sex", "age"): 5, ("income",): 1}),
        ("sex,age * 2.5; age,sex*4; age*0.5", {("sex", "age"): 4, ("age",): 0.5}),
        ("grown,sex; income:prefix*3", {("sex", "grown"): 1, ("income",): 3}),
    ],
)
def test_tables_and_weights(text: str, weights: dict) -> None:
    assert dict(read_asked(DECLARED, text).workload) == weights


def test_what_is_asked_along_columns() -> None:
    """Ages have three bins and a cell for missing values, which is in no range; incomes have three bins."""
    asked = read_asked(DECLARED, "age:ranges,sex; income:prefix; joined").queries
    assert set(asked) == {"age", "income"}
    assert rows_of(asked["age"]) == {(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2), (3,)}
    assert rows_of(asked["income"]) == {(0,), (0, 1), (0, 1, 2)}
    both = read_asked(DECLARED, "grown,sex; age:prefix; age")
    assert rows_of(both.queries["age"]) == {(0,), (1,), (2,), (3,), (0, 1), (0, 1, 2)}
    assert rows_of(HDMM(both.workload, both.queries).queries["age"]) == {
        (0,), (1,), (2,), (3,), (0, 1), (0, 1, 2), (1, 2)
    }  # fmt: skip
    assert read_asked(DECLARED, "grown").queries == {}
    assert rows_of(HDMM(read_asked(DECLARED, "grown").workload).queries["age"]) == {
        (0,),
        (1, 2),
        (3,),
    }
    assert read_asked(DECLARED, "age,sex").queries == {}


def test_a_file_names_the_same(tmp_path: Path) -> None:
    path = tmp_path / "w.txt"
    path.write_text("# first\nage:ranges, sex*5   # ranges\n\nincome\n")
    there = read_asked(DECLARED, f"@{path}")
    assert dict(there.workload) == {("sex", "age"): 5, ("income",): 1}
    assert set(there.queries) == {"age"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("age:median", "along a column prefix or ranges can be asked for, as in age:ranges, got 'age:median'"),
        ("sex:ranges", "must be along numbers or days, got 'sex:ranges'"),
        ("aeg,sex", "'sex', 'age', 'income', 'member', 'joined', or hierarchies, 'grown'; got 'aeg' in 'aeg,sex'"),
        ("grown,age", "must be distinct, got 'grown,age'"),
        ("age,sex*many", "must be a positive number, such as age,sex*5, got 'age,sex*many'"),
        ("age*0", "must be a positive number"),
        (";", "must name at least one table"),
        ("9", "from 1 to what the schema has, 5 columns"),
        ("@nowhere", "the workload file 'nowhere' cannot be read"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(text: str, words: str) -> None:
    with pytest.raises(DomainError) as caught:
        read_asked(DECLARED, text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_mechanisms_take_weights_and_queries_and_are_written_down() -> None:
    asked = read_asked(DECLARED, "age:ranges,sex*5; grown,income")
    made = named("hdmm", asked.workload, (), dict(USUAL), asked.queries)
    again = from_record(json.loads(json.dumps(to_record(made))), DECLARED.domain)
    assert isinstance(made, HDMM)
    assert isinstance(again, HDMM)
    assert dict(again.workload) == dict(made.workload)
    assert {a: rows_of(q) for a, q in again.queries.items()} == {
        a: rows_of(q) for a, q in made.queries.items()
    }
    weighed = read_asked(DECLARED, "age,sex*5; income").workload
    gaussian = named("gaussian", weighed, (), dict(USUAL))
    assert isinstance(gaussian, Gaussian)
    assert gaussian.weights == {("sex", "age"): 5.0, ("income",): 1.0}
    assert named("gaussian", weighed, ("weights=optimal",), dict(USUAL)).weights == "optimal"  # pyright: ignore


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            ["--workload", "age:ranges", "--mechanism", "gaussian"],
            "are measured by hdmm, got gaussian; add --mechanism hdmm",
        ),
        (["--workload", "age*2; sex", "--mechanism", "fem"], "fem does not take weights of tables"),
    ],
)
def test_what_a_mechanism_does_not_take_is_refused(place: Path, more, said: str) -> None:
    done = run("plan", "--schema", "people.toml", *BUDGET[:4], *more)
    assert (done.exit_code, said in done.stderr) == (2, True), done.output


def test_a_release_of_ranges_and_groups(place: Path) -> None:
    """From the command line to the folder, and its answers by the hierarchy."""
    words = (
        "--schema",
        "people.toml",
        *BUDGET,
        "--mechanism",
        "hdmm",
        "--workload",
        "age:ranges,sex*5; grown,member",
    )
    plan = run("plan", *words, "--json")
    assert plan.exit_code == 0, plan.output
    done = run("release", "people.csv", *words, "--ledger", "l", "--out", "out", "-q")
    assert done.exit_code == 0, done.output
    published = read_release(place / "out")
    assert [t["attributes"] for t in published.facts["tables"]] == [
        ["sex", "age"],
        ["age", "member"],
    ]
    answered = run("answer", "out", "grown,sex", "--json")
    assert answered.exit_code == 0, answered.output
    assert len(json.loads(answered.stdout)["rows"]) == 6
