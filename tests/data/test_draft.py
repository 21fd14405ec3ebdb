"""Drafts: what a column is taken for, and bins that follow the rows."""

from __future__ import annotations

from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.data import Boolean, Categorical, Dates, Numeric
from consilience.data.draft import draft_schema
from consilience.data.looks import BINS, MARKS, WORDS
from consilience.data.schema_file import parse_schema
from consilience.errors import DataError
from consilience.progress import Step

N = 120


def drafted(values: list, kind: pa.DataType | None = None):
    """The draft of one column beside another that always counts."""
    table = pa.table({"x": pa.array(values, kind), "k": ["a", "b"] * (len(values) // 2)})
    return draft_schema(table)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["red", "blue"] * 60, Categorical),
        (["yes", "no"] * 60, Boolean),
        (["TRUE", "false"] * 60, Boolean),
        ([str(i % 50) for i in range(N)], Numeric),
        ([f"{i / 7:.3f}" for i in range(N)], Numeric),
        ([str(i) if i % 3 else "n/a" for i in range(N)], Numeric),
        (["2020-01-05", "2020-03-07"] * 60, Dates),
        (["2020-01-05", "?"] * 60, Dates),
        (["0", "1"] * 60, Categorical),
        (list(range(30)) * 4, Numeric),
        ([1.5, None] * 60, Categorical),
        ([1.5] * 120, None),
        (["x"] * 120, None),
        ([date(2020, 1, 5), None] * 60, Dates),
        ([True, None] * 60, Boolean),
        ([None] * N, None),
        ([f"id {i}" for i in range(N)], None),
        (list(range(1000, 1000 + N)), None),
        (["NA", "unknown"] * 60, Categorical),
    ],
)
def test_a_column_is_taken_for(values: list, kind: type | None) -> None:
    found = drafted(values)
    if kind is None:
        assert "x" in found.left_out
        assert "x" in found.schema.ignored
    else:
        assert isinstance(found.schema["x"], kind)


def test_what_is_said_above_a_column() -> None:
    full = drafted(["red", "blue"] * 60).comments["x"]
    assert full == (
        "nothing is missing here, so there is no cell for it; a value that is, or is not declared, would count as blue"
    )
    half = drafted(["red", None] * 60).comments["x"]
    assert half == "60 of 120 rows have no value here: missing values get a cell of their own"
    numbers = drafted([str(i) if i % 3 else "n/a" for i in range(N)]).comments["x"]
    assert numbers == (
        "the table goes from 1 to 119; 40 of 120 rows have no value here (n/a): missing values get a cell of their own"
    )
    some = drafted([str(i % 50) if i % 40 else "old" for i in range(N)]).comments["x"]
    assert "3 values are no numbers and count as missing; 3 of 120 rows have no value here" in some


@pytest.mark.parametrize(
    ("values", "column"),
    [
        (["1", "2", "N"] * 40, Categorical("x", ("1", "2"), tokens=("N",))),
        (["Y", "N"] * 60, Categorical("x", ("N", "Y"), missing="N")),
        (["1", "2", "None"] * 40, Categorical("x", ("1", "2", "None"), missing="1")),
        (["a", "b", "?"] * 40, Categorical("x", ("a", "b"), tokens=("?",))),
        (["1", "2", "E", "A"] * 40, Categorical("x", ("1", "2", "A", "E"), missing="1")),
        (["001", "010", "002"] * 40, Categorical("x", ("001", "002", "010"), missing="001")),
        ([1.0, 2.0, 0.5, None] * 30, Categorical("x", ("0.5", "1", "2"))),
        (["yes", "no", "NA"] * 40, Boolean("x", tokens=("NA",))),
        (
            [f"{i % 12 + 1}/{i % 28 + 1}/2020" for i in range(N)],
            Dates("x", date(2020, 1, 1), date(2020, 12, 31), "month", date(2020, 1, 1), format="MM/DD/YYYY"),
        ),
        (
            [f"{i % 28 + 1:02d}.{i % 12 + 1:02d}.{2001 + i % 9}" if i % 5 else "-" for i in range(N)],
            Dates("x", date(2001, 1, 1), date(2009, 12, 31), "quarter", tokens=("-",), format="DD.MM.YYYY"),
        ),
        (
            [f"{i % 97},5" for i in range(N)],
            Numeric("x", tuple(range(0, 101, 10)), False, 0.0, format="1.234,5"),
        ),
        (
            [f"${i % 97 * 100 + 1100:,}" for i in range(N)],
            Numeric("x", (1000, 11000), True, 1000, format="$1,234.5"),
        ),
        ([f"{i % 97}%" for i in range(N)], Numeric("x", tuple(range(0, 101, 10)), True, 0, format="1234%")),
        ([f"{i % 24:02d}:30" for i in range(N)], Numeric("x", tuple(range(0, 25, 5)), False, 0.0, format="hh:mm")),
    ],
)  # fmt: skip
def test_the_whole_column(values: list, column) -> None:
    found = drafted(values).schema["x"]
    if column.name == "x" and isinstance(column, Numeric):
        assert (found.whole, found.missing, found.format) == (
            column.whole,
            column.missing,
            column.format,
        )
        assert found.edges[0] <= column.edges[0] + 1000
        return
    assert found == column


def test_hundreds_of_codes_are_labels_and_tokens_can_be_named() -> None:
    occupations = [f"occ-{i % 400}" for i in range(4000)]
    table = {"job": occupations, "n": [i % 300 if i % 9 else 999 for i in range(4000)]}
    found = draft_schema(table, missing=["999"], ignore=["job"])
    assert found.left_out == {"job": "as asked"}
    assert found.schema["n"].edges[-1] == 300
    assert found.schema["n"].tokens == ("999",)
    assert len(draft_schema(table).schema["job"].labels) == 400


def test_bounds_are_round_and_wider_than_the_table() -> None:
    edges = drafted([17 + i % 74 for i in range(N)]).schema["x"].edges
    assert (edges[0], edges[-1]) == (10, 100)  # 90 occurs
    skewed = [4600 if i < 9 else -3.5 if i == 9 else 0.25 * (i % 30) for i in range(N)]
    edges = drafted(skewed).schema["x"].edges
    assert (edges[0], edges[-1]) == (-4, 5000)


def test_rules_about_the_young_are_offered_and_not_stated() -> None:
    rng = np.random.default_rng(0)
    ages = rng.integers(0, 90, 3000)
    married = np.where(ages < 18, "never", rng.choice(["never", "married", "widowed"], 3000))
    table = {"age": ages, "marital status": married, "sex": rng.choice(["F", "M"], 3000)}
    found = draft_schema(table)
    assert found.offers == ["age < 10 and 'marital status' != never"]
    text = found.to_toml()
    assert "#     \"age < 10 and 'marital status' != never\"," in text
    assert found.schema.impossible == ()
    ready = (
        text.replace("# impossible = [", "impossible = [")
        .replace("#     ", "    ")
        .replace("# ]", "]")
    )
    assert len(parse_schema(ready).possible) == 1


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31))
def test_crowded_bins_hold_equal_rows(seed: int) -> None:
    """numpy's own order statistics are the judge of where the bins end."""
    values = np.random.default_rng(seed).lognormal(3, 2.5, 200).round(2)
    edges = drafted(values.tolist()).schema["x"].edges  # pyright: ignore[reportAttributeAccessIssue]
    rows = np.sort(values)
    evenly = np.histogram(rows, np.linspace(edges[0], edges[-1], BINS + 1))[0]
    if evenly.max() < 0.8 * len(rows):
        return  # not crowded enough to be sure how it is drafted
    at = [rows[k * len(rows) // BINS - 1] for k in range(1, BINS)]
    for some, judge in ((edges[1:-1], at), ([v for v in at if v > edges[1] / 1.1], edges)):
        apart = np.abs(np.log(np.divide.outer(np.array(some), np.maximum(judge, 1e-9))))
        assert apart.min(axis=1).max() < 0.06, "two digits are kept"
    assert edges[0] <= rows[0]
    assert edges[-1] >= rows[-1]


@pytest.mark.parametrize("low", [-3, 0, 17])
def test_other_numbers_get_even_bins_that_hold_every_row(low: int) -> None:
    edges = np.array(drafted([low + i % 97 for i in range(N)]).schema["x"].edges)  # pyright: ignore
    assert np.ptp(np.diff(edges)) == 0
    assert edges[0] <= low
    assert edges[-1] >= low + 96


def test_progress_and_the_marks_of_nothing() -> None:
    seen: list[Step] = []
    draft_schema({"a": ["x", "y"], "b": ["u", "v"]}, progress=seen.append)
    assert [(step.done, step.total) for step in seen] == [(0, 2), (1, 2)]
    assert all(v == v.lower() for v in (*MARKS, *WORDS))


def test_a_table_of_nothing_is_refused() -> None:
    with pytest.raises(DataError, match="must have a column that can be counted, it has none"):
        draft_schema({"a": [None, None]})
