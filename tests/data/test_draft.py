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
        ([1.5, None] * 60, None),
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
    assert "nothing is missing here: missing = 'blue' would do without that code" in full
    assert "nothing is missing" not in drafted(["red", None] * 60).comments["x"]
    numbers = drafted([str(i) if i % 3 else "n/a" for i in range(N)]).comments["x"]
    assert numbers == "the table goes from 1 to 119; 40 values are no numbers and count as missing"


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
