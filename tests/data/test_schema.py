"""Schema and its columns: coding is total, decoding its inverse, bad declarations refused."""

from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.data import MISSING, Boolean, Categorical, Column, Dates, Numeric, Schema
from consilience.errors import DataError, DomainError
from consilience.records import Dataset


def objects(*values: object) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


COLOUR = Categorical("colour", ("red", "green", "other"), other="other")
PLAIN = Categorical("plain", ("None", "1", "x"))
FILLED = Categorical("filled", ("a", "b"), missing="b")
AGE = Numeric("age", (0, 18, 65, 100), whole=True)
RATE = Numeric("rate", (-1.0, 0.0, 0.5, 2.0), missing=0.25)
YEARS = Numeric("years", (0, 1, 2, 5), whole=True, missing=3)
MEMBER = Boolean("member")
ACTIVE = Boolean("active", missing=False)
COLUMNS: list[Column] = [COLOUR, PLAIN, FILLED, AGE, RATE, YEARS, MEMBER, ACTIVE]


@pytest.mark.parametrize(
    ("column", "values", "codes"),
    [
        (COLOUR, objects("red", "other", "blue", None, np.nan, pd.NA), [0, 2, 2, 3, 3, 3]),
        (COLOUR, np.array(["green", "Red"]), [1, 2]),
        (
            PLAIN,
            objects("None", None, 1, "1", np.int64(1), "y", 1.0, [1]),
            [0, 3, 1, 1, 1, 3, 1, 3],
        ),
        (PLAIN, np.array([1, 2]), [1, 3]),
        (FILLED, objects("a", "b", "c", None), [0, 1, 1, 1]),
        (AGE, np.array([0, 17, 18, 64, 65, 100]), [0, 0, 1, 1, 2, 2]),
        (AGE, np.array([-5, 101, 1e300, np.inf, -np.inf, np.nan]), [0, 2, 2, 2, 0, 3]),
        (
            AGE,
            objects("17", " 18 ", "old", None, pd.NA, Decimal(70), 10**400),
            [0, 1, 3, 3, 3, 2, 2],
        ),
        (AGE, np.array(["17.9", ""]), [0, 3]),
        (AGE, np.array(["2020-01-01"], dtype="datetime64[D]"), [3]),
        (RATE, np.array([-1.0, -0.01, 0.0, 0.49, 0.5, 2.0, 9.0, np.nan]), [0, 0, 1, 1, 2, 2, 2, 1]),
        (YEARS, np.array([0, 1, 4, np.nan]), [0, 1, 2, 2]),
        (MEMBER, np.array([True, False]), [1, 0]),
        (
            MEMBER,
            objects(True, False, None, "YES", "no", "maybe", 1, 0.0),
            [1, 0, 2, 1, 0, 2, 1, 0],
        ),
        (MEMBER, np.array([1.0, 0.0, np.nan]), [1, 0, 2]),
        (ACTIVE, objects("true", None, "False"), [1, 0, 0]),
    ],
)
def test_every_value_has_a_code(column: Column, values: np.ndarray, codes: list[int]) -> None:
    assert column.encode(values).tolist() == codes


anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.dates()
)


@given(st.lists(anything))
def test_no_value_is_an_error(values: list[object]) -> None:
    for column in COLUMNS:
        codes = column.encode(objects(*values))
        assert codes.shape == (len(values),)
        assert ((codes >= 0) & (codes < len(column.labels))).all()


@pytest.mark.parametrize("column", COLUMNS, ids=lambda c: c.name)
def test_decoding_is_inverse_to_coding(column: Column) -> None:
    codes = np.arange(len(column.labels))
    np.testing.assert_array_equal(column.encode(column.decode(codes)), codes)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8, unique=True), st.booleans())
def test_numeric_bins_survive_the_round_trip(edges: list[float], whole: bool) -> None:
    ordered = sorted({float(np.floor(e)) for e in edges} if whole else edges)
    middles = (np.array(ordered[1:]) + ordered[:-1]) / 2
    # Neighbouring floats leave no room for a middle; nobody declares such bins.
    if len(ordered) < 2 or (middles <= ordered[:-1]).any() or (middles >= ordered[1:]).any():
        return
    column = Numeric("x", tuple(ordered), whole=whole)
    codes = np.arange(len(ordered))
    np.testing.assert_array_equal(column.encode(column.decode(codes)), codes)


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        (COLOUR, ("red", "green", "other", MISSING)),
        (FILLED, ("a", "b")),
        (AGE, ("0-17", "18-64", "65-100", MISSING)),
        (YEARS, ("0", "1", "2-5")),
        (RATE, ("[-1, 0)", "[0, 0.5)", "[0.5, 2]")),
        (MEMBER, ("no", "yes", MISSING)),
        (ACTIVE, ("no", "yes")),
    ],
)
def test_labels_name_the_codes(column: Column, labels: tuple[str, ...]) -> None:
    assert column.labels == labels


def test_decoded_types() -> None:
    assert COLOUR.decode(np.array([0, 3])).tolist() == ["red", None]
    assert MEMBER.decode(np.array([1, 0, 2])).tolist() == [True, False, None]
    assert ACTIVE.decode(np.array([1, 0])).dtype == bool
    assert YEARS.decode(np.array([0, 2])).tolist() == [0, 3]
    assert YEARS.decode(np.array([0])).dtype == np.int64
    ages = AGE.decode(np.array([0, 1, 3]))
    assert ages[:2].tolist() == [9.0, 41.0]
    assert np.isnan(ages[2])


def test_uniform_bins() -> None:
    assert Numeric.uniform("x", 0, 1, 4).edges == (0, 0.25, 0.5, 0.75, 1)
    assert Numeric.uniform("x", 0, 10, 4, whole=True).edges == (0, 2, 5, 8, 10)


# -- whole tables ---------------------------------------------------------------------------------

SCHEMA = Schema([COLOUR, AGE, MEMBER])
TABLE = {
    "member": objects(True, None, False),
    "age": np.array([20.0, np.nan, 80.0]),
    "name": objects("x", "y", "z"),
    "colour": objects("green", "blue", None),
}
CODES = [[1, 1, 1], [2, 3, 2], [3, 2, 0]]


@pytest.mark.parametrize("make", [dict, pd.DataFrame, lambda t: pl.DataFrame(t, strict=False)])
def test_tables_of_any_kind_are_encoded_by_name(make) -> None:
    data = SCHEMA.encode(make({**TABLE, "member": [True, None, False]}))
    assert data.to_array().tolist() == CODES
    assert data.domain == SCHEMA.domain


def test_pandas_types_of_its_own() -> None:
    frame = pd.DataFrame(
        {
            "colour": pd.Categorical(["green", "blue", None]),
            "age": pd.array([20, None, 80], dtype="Int64"),
            "member": pd.array([True, None, False], dtype="boolean"),
        }
    )
    assert SCHEMA.encode(frame).to_array().tolist() == CODES
    frame["colour"] = frame["colour"].astype("string")
    assert SCHEMA.encode(frame).to_array().tolist() == CODES


def test_weights_go_along() -> None:
    assert SCHEMA.encode(TABLE, weights=[1, 2, 3]).total == 6.0


def test_schema_reads_like_a_list_with_names() -> None:
    assert SCHEMA["age"] is AGE
    assert len(SCHEMA) == 3
    assert list(SCHEMA) == [COLOUR, AGE, MEMBER]
    assert SCHEMA.domain.shape == (4, 4, 3)
    assert repr(SCHEMA) == "Schema(colour: categorical 4, age: numeric 4, member: boolean 3)"
    assert Schema([COLOUR, AGE, MEMBER]) == SCHEMA


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2))))
def test_whole_tables_survive_the_round_trip(rows: list[tuple[int, int, int]]) -> None:
    codes = np.array(rows, dtype=np.int64).reshape(-1, 3)
    columns = SCHEMA.decode(codes)
    assert list(columns) == ["colour", "age", "member"]
    again = SCHEMA.encode(columns)
    np.testing.assert_array_equal(again.to_array(), codes)
    assert list(SCHEMA.decode(again)) == list(columns)


# -- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Categorical("c", ()), "'c' must declare at least one label, got none"),
        (lambda: Categorical("c", ("a", 1)), "labels of column 'c' must be text, got 1"),
        (lambda: Categorical("c", ("a", "b", "a")), "must be distinct, got 'a' twice"),
        (lambda: Categorical("c", ("a",), missing="b"), "what missing values .* labels, got 'b'"),
        (lambda: Categorical("c", ("a",), other="b"), "what other values .* labels, got 'b'"),
        (lambda: Numeric("n", (1,)), "'n' must have at least two edges, got 1"),
        (lambda: Numeric("n", (0, 2, 1)), "edges of column 'n' must increase, got 2 before 1"),
        (lambda: Numeric("n", (0, 0)), "must increase, got 0 before 0"),
        (lambda: Numeric("n", (0, float("inf"))), "edges of column 'n' must be finite"),
        (lambda: Numeric("n", (0, float("nan"))), "edges of column 'n' must be finite"),
        (lambda: Numeric("n", (0, 0.5), whole=True), "whole-number column 'n' must be whole"),
        (lambda: Numeric("n", (0, 1), missing=float("nan")), "must be a finite number, got nan"),
        (
            lambda: Numeric.uniform("n", 0, 1, 0),
            "'n' must have at least one bin and at most 10,000, got 0",
        ),
        (lambda: Numeric.uniform("n", 1, 0, 2), "edges of column 'n' must increase"),
        (lambda: SCHEMA["height"], "declared in the schema, got 'height'; it has 'colour', 'age'"),
        (lambda: SCHEMA.encode({"age": [1]}), "must have a column 'colour', got columns 'age'"),
        (lambda: SCHEMA.decode(np.array([[0, 4, 0]])), "'age' must be from 0 to 3, got 4 at row 0"),
        (
            lambda: SCHEMA.decode(Dataset([[0]], Schema([ACTIVE]).domain)),
            "must have the domain of the schema, got Domain",
        ),
    ],
)
def test_bad_declarations_are_refused(make, words: str) -> None:
    with pytest.raises(DataError, match=words):
        make()


def test_columns_have_distinct_names_and_there_is_one() -> None:
    with pytest.raises(DomainError, match="must be distinct, got 'age' twice"):
        Schema([AGE, AGE])
    with pytest.raises(DomainError, match="must have at least one attribute"):
        Schema([])


def test_rows_in_a_file_of_text_are_spelled_as_declared_and_read_again() -> None:
    columns = [
        Numeric("a", (-2000.0, -0.5, 1234.5, 1e7), format="1.234,5"),
        Numeric("b", (-5000, 0, 2000, 90000), whole=True, format="$1,234"),
        Numeric("c", (0, 40, 100), whole=True, missing=0, format="1234%"),
        Numeric.each("d", 0, 23, format="hh:mm"),
        Dates("e", date(2019, 1, 1), date(2021, 12, 31), "month", format="M/D/YYYY hh:mm"),
        Dates("f", date(2019, 1, 1), date(2021, 12, 31), "quarter", format="YYYYMMDD"),
        Dates("g", date(2019, 1, 1), date(2021, 12, 31), "quarter"),
    ]
    schema = Schema(columns)
    rows = np.stack([np.arange(40) % len(c.labels) for c in columns], axis=1)
    data = Dataset(rows, schema.domain)
    texts = schema.texts(data)
    assert [texts[c][1] for c in "abcdef"] == [
        "617", "$1,000", "70%", "01:00", "02/01/2019", "20190401",
    ]  # fmt: skip
    assert texts["a"][0] == "-1.000,25"
    assert texts["b"][0] == "-$2,500"
    np.testing.assert_array_equal(schema.encode(texts).to_array(), rows)
