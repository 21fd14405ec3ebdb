"""Dataset: what it is made from, what it gives, and the words of every refusal."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from consilience.domain import Domain
from consilience.errors import DataError, DomainError
from consilience.records import Dataset
from consilience.records.dataset import CHECKED_AT_ONCE

D = Domain({"age": 4, "sex": 2, "income": 3})
CODES = np.array([[0, 1, 2], [3, 0, 0], [3, 1, 2], [1, 1, 1], [3, 1, 2]])
NAMES = list(D)

SOURCES = {
    "int64": CODES,
    "uint8": CODES.astype(np.uint8),
    "fortran": np.asfortranarray(CODES),
    "strided": np.repeat(CODES, 2, axis=0)[::2],
    "lists": CODES.tolist(),
    "objects": CODES.astype(object),
    "pandas": pd.DataFrame(CODES, columns=NAMES),
    "pandas nullable": pd.DataFrame(CODES, columns=NAMES, dtype="Int64"),
    "pandas other index": pd.DataFrame(CODES, columns=NAMES, index=[9, 8, 7, 9, 8]),
    "pandas other order, extra column": pd.DataFrame(
        {"income": CODES[:, 2], "name": list("vwxyz"), "sex": CODES[:, 1], "age": CODES[:, 0]}
    ),
    "polars": pl.DataFrame(CODES, schema=NAMES),
    "polars narrow": pl.DataFrame(CODES.astype(np.uint8), schema=NAMES),
    "mapping": {"sex": CODES[:, 1].tolist(), "age": CODES[:, 0], "income": CODES[:, 2]},
    "booleans": {"sex": CODES[:, 1].astype(bool), "age": CODES[:, 0], "income": CODES[:, 2]},
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_kind_of_source_gives_the_same_records(source: str) -> None:
    data = Dataset(SOURCES[source], D)
    np.testing.assert_array_equal(data.to_array(), CODES)
    assert data.to_array().dtype == np.uint8
    assert data.records == len(data) == 5
    assert data.total == 5.0
    assert data.domain is D


def test_a_marginal_follows_the_order_asked_for() -> None:
    data = Dataset(CODES, D)
    expected = np.zeros((4, 3), dtype=int)
    for age, _, income in CODES:
        expected[age, income] += 1
    np.testing.assert_array_equal(data.marginal(("age", "income")), expected)
    np.testing.assert_array_equal(data.marginal(("income", "age")), expected.T)
    np.testing.assert_array_equal(data.marginal(["income", "age"]), expected.T)
    assert data.marginal("sex").tolist() == [1, 4]
    assert data.marginal(("income", "age")).flags.c_contiguous


def test_three_attributes_in_a_cyclic_order() -> None:
    table = Dataset(CODES, D).marginal(("income", "age", "sex"))
    assert table.shape == (3, 4, 2)
    assert table[2, 3, 1] == 2
    assert table.sum() == 5


def test_marginals_are_in_domain_order_whatever_was_asked() -> None:
    vector = Dataset(CODES, D).marginals([("income", "age"), ("sex",)])
    assert vector.cliques == (("age", "income"), ("sex",))
    assert vector[("age", "income")].shape == (4, 3)
    assert vector.values.dtype == np.float64


def test_counts_are_whole_numbers_unless_weighted() -> None:
    assert Dataset(CODES, D).marginal("age").dtype == np.int64
    assert Dataset(CODES, D).marginal(()) == 5
    assert Dataset(CODES, D).marginal(()).shape == ()
    weighted = Dataset(CODES, D, weights=[1, 0.5, 0, 2, 4])
    assert weighted.marginal("age").tolist() == [1.0, 2.0, 0.0, 4.5]
    assert weighted.total == 7.5
    assert weighted.records == 5


def test_a_dataset_does_not_change_with_its_source() -> None:
    codes, weights = CODES.copy(), np.ones(5)
    data = Dataset(codes, D, weights)
    codes[:] = 0
    weights[:] = 0
    assert data.marginal("sex").tolist() == [1.0, 4.0]


def test_columns_and_weights_are_read_only() -> None:
    data = Dataset(CODES, D, np.ones(5))
    with pytest.raises(ValueError, match="read-only"):
        data.column("sex")[0] = 0
    assert data.weights is not None
    with pytest.raises(ValueError, match="read-only"):
        data.weights[0] = 0


def test_project_keeps_records_and_weights_and_copies_no_codes() -> None:
    data = Dataset(CODES, D, weights=[1, 2, 3, 4, 5])
    part = data.project(("income", "age"))
    assert part.domain == D.project(("age", "income"))
    np.testing.assert_array_equal(part.to_array(), CODES[:, [0, 2]])
    np.testing.assert_array_equal(part.marginal("income"), data.marginal("income"))
    assert np.shares_memory(part.column("age"), data.column("age"))


def test_repr_is_readable() -> None:
    assert repr(Dataset(CODES, D)) == "Dataset(5 records; 3 attributes: age, sex, income)"
    assert "5 records, weights summing to 10;" in repr(Dataset(CODES, D, np.full(5, 2.0)))
    wide = Domain({f"x{i}": 2 for i in range(20)})
    assert repr(Dataset(np.zeros((1, 20), int), wide)).endswith("x4, x5, ..., x19)")


def changed(row: int, column: int, value: object, dtype: type = np.int64) -> np.ndarray:
    codes = CODES.astype(dtype)
    codes[row, column] = value
    return codes


FRAME = pd.DataFrame(CODES, columns=NAMES)


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        (
            changed(2, 2, 3),
            r"column 'income' must be from 0 to 2, got 3 at row 2; correct the code",
        ),
        (changed(4, 0, -1), r"column 'age' must be from 0 to 3, got -1 at row 4"),
        (changed(1, 1, 255, np.uint8), r"column 'sex' must be from 0 to 1, got 255 at row 1"),
        (changed(1, 1, 2**40), r"column 'sex' must be from 0 to 1, got 1099511627776 at row 1"),
        (
            changed(1, 1, 2**80, object),
            r"column 'sex' must be .*, got 1208925819614629174706176 at",
        ),
        (FRAME.assign(income=9), r"column 'income' must be from 0 to 2, got 9 at row 0"),
        (
            CODES.astype(float),
            r"must be integers, got float64 in column 'age'; cast .*astype\(int\)",
        ),
        (
            changed(3, 1, np.nan, float),
            r"column 'sex' holds NaN at row 3; use 0 to 1, with a code of",
        ),
        (changed(3, 1, None, object), r"column 'sex' holds None at row 3; use 0 to 1"),
        (CODES.astype(str), r"must be integers, got <U21 in column 'age'; .* with a Schema"),
        (FRAME.assign(sex=list("fmmfm")), r"column 'sex' holds f at row 0; .* with a Schema"),
        (FRAME.assign(sex=[1, 0, None, 1, 0]), r"column 'sex' holds NaN at row 2"),
        (FRAME.astype("Int64").replace({"sex": {0: pd.NA}}), r"'sex' holds (<NA>|NaN) at row 1"),
        (pl.DataFrame({"age": [1, None], "sex": [1, 1], "income": [0, 0]}), r"holds NaN at row 1"),
        (
            FRAME.drop(columns="sex"),
            r"must have a column 'sex', got columns 'age', 'income'; rename",
        ),
        ({}, r"must have a column 'age', got columns none"),
        (pd.concat([FRAME, FRAME[["sex"]]], axis=1), r"'sex' must be one column .* used twice\?"),
        ({"age": [1, 2], "sex": [1], "income": [0, 0]}, r"got 2 values in 'age' and 1 in 'sex'"),
        (CODES[:, :2], r"must have shape \(records, 3\), one column per attribute, got \(5, 2\)"),
        (CODES.ravel(), r"must have shape \(records, 3\), .* got \(15,\)"),
        ([], r"must have shape \(records, 3\), .* got \(0,\)"),
        ([[1, 0, 0], [1]], r"must be a table, got rows of different lengths"),
    ],
)
def test_bad_codes_are_refused(codes: object, words: str) -> None:
    with pytest.raises(DataError, match=words):
        Dataset(codes, D)  # type: ignore[arg-type]


def test_the_first_bad_row_of_a_long_table_is_named() -> None:
    codes = np.zeros((CHECKED_AT_ONCE + 10, 3), dtype=np.int64)
    codes[[CHECKED_AT_ONCE + 2, CHECKED_AT_ONCE + 5], 2] = 7
    with pytest.raises(DataError, match=f"got 7 at row {CHECKED_AT_ONCE + 2};"):
        Dataset(codes, D)


def test_codes_are_checked_before_weights() -> None:
    with pytest.raises(DataError, match="column 'income'"):
        Dataset(changed(2, 2, 3), D, weights=[-1])


def test_an_attribute_past_four_bytes_is_refused() -> None:
    with pytest.raises(DataError, match=r"at most 2\^32 values, got 4294967297 for 'id'"):
        Dataset([[1]], Domain({"id": 2**32 + 1}))
    assert Dataset([[2**32 - 1]], Domain({"id": 2**32})).column("id").tolist() == [2**32 - 1]


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1, 2], r"one number per record, shape \(5,\), got shape \(2,\)"),
        (np.ones((5, 1)), r"shape \(5,\), got shape \(5, 1\)"),
        ([1, 1, -2, 1, 1], r"finite and not negative, got -2.0 at row 2; correct or drop"),
        ([1, 1, 1, np.nan, 1], r"finite and not negative, got nan at row 3"),
        ([np.inf, 1, 1, 1, 1], r"finite and not negative, got inf at row 0"),
        (list("abcde"), r"must be numbers, one per record"),
    ],
)
def test_bad_weights_are_refused(weights: object, words: str) -> None:
    with pytest.raises(DataError, match=words):
        Dataset(CODES, D, weights)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda d: d.marginal(("age", "height")), "must be in the domain, got 'height'"),
        (lambda d: d.marginals([("height",)]), "must be in the domain, got 'height'"),
        (
            lambda d: d.marginal(("age", "sex", "age")),
            r"must be distinct, got \('age', 'sex', 'age'",
        ),
        (lambda d: d.project("height"), "must be in the domain, got 'height'"),
        (lambda d: d.column("height"), "must be in the domain, got 'height'"),
    ],
)
def test_bad_questions_are_refused(ask, words: str) -> None:
    with pytest.raises(DomainError, match=words):
        ask(Dataset(CODES, D))
