"""People with several rows: at most so many of each are counted, in every engine, and every file says whose privacy it is."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.conftest import run
from consilience.data import Schema
from consilience.data.columns import Categorical
from consilience.data.schema_file import format_schema, parse_schema
from consilience.data.tables import read_table
from consilience.domain import Domain, Workload
from consilience.errors import DataError
from consilience.mechanisms import Gaussian
from consilience.privacy import Budget, SeededNoise
from consilience.records import Dataset
from data.engines import ENGINES, source

COLUMNS = [Categorical("sex", ("F", "M")), Categorical("drug", ("a", "b", "c"))]
SCHEMA = Schema(COLUMNS, name="visits", unit="person_id", rows_per_unit=2)
ROWS = [
    ("p1", "F", "a"), ("p1", "F", "b"), ("p1", "F", "c"), ("p2", "M", "a"), ("p2", "M", "a"), ("p2", "M", "a"),
    ("p3", "F", "b"), (None, "M", "c"), ("", "M", "c"), ("  ", "F", "a"), ("p4", "M", "b"), ("p4", "F", "c"),
]  # fmt: skip


def table(rows=ROWS) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    names = ("person_id", "sex", "drug")
    return pa.table({n: pa.array(c, pa.string()) for n, c in zip(names, columns, strict=True)})


@pytest.mark.parametrize("engine", ENGINES)
def test_at_most_so_many_rows_of_each_are_counted(engine: str) -> None:
    opened = source(engine, table(), SCHEMA)
    assert opened.records == 2 + 2 + 1 + 2
    assert opened.survey.dropped == len(ROWS) - 7
    assert opened.unit_rows == ("person_id", 2)
    counts = opened.marginals([("sex",), ("drug",)])
    assert counts["sex",].sum() == counts["drug",].sum() == 7
    assert opened.marginals([("sex",), ("drug",)]).values.tolist() == counts.values.tolist()


@pytest.mark.parametrize("engine", ENGINES)
def test_whoever_comes_or_goes_moves_nobody_elses_rows(engine: str) -> None:
    """Adding a unit adds its own kept rows, whatever the rest; so the sensitivity of the table is that of its units."""
    with_all = source(engine, table(), SCHEMA).marginals([("sex", "drug")]).values
    for person in ("p1", "p2", "p3", "p4"):
        others = [r for r in ROWS if r[0] != person]
        mine = [r for r in ROWS if r[0] == person]
        own = source(engine, table(mine), SCHEMA).marginals([("sex", "drug")]).values
        apart = source(engine, table(others), SCHEMA).marginals([("sex", "drug")]).values
        assert own.sum() <= 2
        np.testing.assert_array_equal(apart + own, with_all)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=30), st.integers(1, 4))
def test_a_dataset_keeps_the_first_rows_of_each(rows: list[tuple[int, int]], most: int) -> None:
    domain = Domain({"x": 3})
    codes = np.array([[v] for _, v in rows], np.int64).reshape(-1, 1)
    found = Dataset(codes, domain).few_of_each_unit([u for u, _ in rows], most, "u")
    seen: Counter[int] = Counter()
    expected = []
    for u, v in rows:
        seen[u] += 1
        if seen[u] <= most:
            expected.append(v)
    assert found.column("x").tolist() == expected
    assert found.unit_rows == ("u", most)


def test_the_table_must_be_counted_for_whom_the_budget_protects() -> None:
    domain = SCHEMA.domain
    mechanism = Gaussian(Workload(domain, [("sex", "drug")]))
    rows = Budget(rho=1, neighbours="replace-one")
    people = Budget(rho=1, neighbours="replace-one", unit="person_id", rows_per_unit=2)
    read = read_table(table(), SCHEMA)
    noise = SeededNoise(seed=1)
    with pytest.raises(
        DataError,
        match=r"at most 2 rows of each 'person_id', and the budget .* every row for itself",
    ):
        mechanism.calibrate(rows)(read, noise=noise)
    with pytest.raises(DataError, match="it keeps every row for itself"):
        mechanism.calibrate(people)(Dataset(np.zeros((3, 2), int), domain), noise=noise)
    one, two = mechanism.calibrate(rows), mechanism.calibrate(people)
    (wide,), (wider,) = one.widths.values(), two.widths.values()
    assert wider.value == pytest.approx(2 * wide.value, rel=1e-6)
    made = two(read, noise=noise)
    assert made.release.total is None  # with 1 to 2 rows each, the number of rows is not public


@pytest.mark.parametrize(
    "text, words",
    [
        ('unit = "id"', "must say rows_per_unit"),
        ('unit = "id"\nrows_per_unit = 0', "a whole number from 1 on"),
        ('unit = "id"\nrows_per_unit = true', "a whole number from 1 on"),
        ("rows_per_unit = 2", "goes with unit"),
        ('unit = "sex"\nrows_per_unit = 2', "never released, got 'sex'"),
        ('unit = 3\nrows_per_unit = 2', "must be the name of the column"),
        ('name = ""', "must be a line of text"),
        ("draft = 3", "a list of what is to be checked"),
    ],
)  # fmt: skip
def test_a_schema_says_whose_rows_or_is_refused(text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        parse_schema(f'{text}\n[columns.sex]\ntype = "categorical"\nlabels = ["F", "M"]\n')


def test_a_schema_with_a_unit_is_written_and_read_back() -> None:
    schema = Schema(
        COLUMNS, name="people", unit="person_id", rows_per_unit=3, draft=["labels of sex"]
    )
    assert parse_schema(format_schema(schema)) == schema


def test_every_file_says_whose_privacy_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = [f"p{i // 3},{'FM'[rng.integers(2)]},{'abc'[rng.integers(3)]}" for i in range(900)]
    (tmp_path / "visits.csv").write_text("\n".join(["person_id,sex,drug", *lines]) + "\n")
    (tmp_path / "visits.toml").write_text(format_schema(SCHEMA))
    words = (
        "--schema",
        "visits.toml",
        "--epsilon",
        "2",
        "--delta",
        "1e-6",
        "--workload",
        "2",
        "--neighbours",
        "replace-one",
    )
    said = "per person, at most 2 rows"
    plan = run("plan", "visits.csv", *words)
    assert said in plan.output, plan.output
    done = run("release", "visits.csv", *words, "--ledger", "visits.ledger", "--out", "out")
    assert done.exit_code == 0, done.output
    assert "300 rows are not counted" in done.output
    assert said in (tmp_path / "out" / "README.txt").read_text()
    facts = json.loads((tmp_path / "out" / "release.json").read_text())
    assert facts["budget"]["per"] == said
    assert not facts["total"]["public"]
    assert json.loads((tmp_path / "out" / "ledger.json").read_text())["total"]["per"] == said
    assert "person_id" not in {c for t in facts["tables"] for c in t["attributes"]}
    assert said in run("budget", "visits.ledger").output
    page = run("report", "out")
    assert page.exit_code == 0, page.output
    assert said in (tmp_path / "out" / "report.html").read_text()
    per_row = (
        (tmp_path / "visits.toml")
        .read_text()
        .replace('unit = "person_id"\nrows_per_unit = 2\n', 'ignore = ["person_id"]\n')
    )
    (tmp_path / "rows.toml").write_text(per_row)
    refused = run(
        "release",
        "visits.csv",
        "--schema",
        "rows.toml",
        *words[2:],
        "--ledger",
        "visits.ledger",
        "--out",
        "two",
    )
    assert refused.exit_code == 2
    assert (
        "stated for replace-one neighbours per person, at most 2 rows, the release for"
        in refused.output
    )
