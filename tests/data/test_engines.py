"""Coding and counting in an engine give what `Schema.encode` and the kernel give, whatever the cells hold."""

from datetime import date, datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consilience.data.binned import Dates, Numeric
from consilience.data.columns import MISSING, OTHER, OUTSIDE, Boolean, Categorical
from consilience.data.duck import duckdb_table
from consilience.data.partitions import PartitionCounts
from consilience.data.population import POPULATION_SCHEMA, population_table
from consilience.data.schema import Schema
from consilience.data.tables import open_source, read_table
from consilience.domain import all_marginals, random_marginals
from data.engines import ENGINES, source

COLUMNS = [
    Categorical("a", ("red", "1", "0.5", "true", "2020-02-29", "None", "Ä'\"", "-7"), other=OTHER),
    Categorical("b", ("x", "TRUE", "false", "1.0", "1"), missing="x"),
    Categorical("c", ("x", "2e1", "é"), other="x"),
    Boolean("d"),
    Boolean("e", missing=True),
    Numeric("f", (0, 18, 65, 100), whole=True),
    Numeric("g", (-1.5, 0.0, 0.1, 2.0), missing=0.05, outside=OUTSIDE),
    Numeric("h", (0, 1, 2, 3, 4, 5, 6, 6), whole=True, outside=MISSING),
    Dates("i", date(2020, 2, 1), date(2021, 3, 15), "month"),
    Dates("j", date(1999, 12, 31), date(2024, 1, 1), "year", outside=OUTSIDE),
    Dates("k", date(2020, 2, 20), date(2020, 3, 20), "day", missing=date(2020, 3, 1)),
    Dates("l", date(2019, 1, 1), date(2022, 1, 1), "week", outside=MISSING),
    Dates("m", date(2019, 1, 1), date(2022, 1, 1), "quarter"),
    Categorical("n", ("red", "None", "1", "0.5"), other=OTHER, tokens=("null", "-", "None", "20")),
    Numeric("o", (-10, 0, 5, 1000), tokens=("-", "-7", "2020-02-29", "1e1"), outside=OUTSIDE),
    Boolean("p", tokens=("t", "1", "true")),
    Numeric("q", (-2000, 0, 1, 1.5, 15, 2000, 1e7), format="1.234,5", outside=OUTSIDE),
    Numeric(
        "r", (-2000, 0, 1, 1.5, 15, 2000, 1e7), format="$1,234", tokens=("$0",), outside=OUTSIDE
    ),
    Numeric("s", (0, 1, 20, 45, 100), whole=True, format="1234%", outside=OUTSIDE),
    Numeric.each("t", 0, 24, format="hh:mm", outside=OUTSIDE),
    Dates("u", date(2019, 1, 1), date(2021, 12, 31), "month", format="MM/DD/YYYY", outside=OUTSIDE),
    Dates(
        "v",
        date(2019, 1, 1),
        date(2021, 12, 31),
        "day",
        format="DD.MM.YYYY",
        tokens=("2020-02-29",),
    ),
    Dates("w", date(2019, 1, 1), date(2021, 12, 31), "week", format="YYYYMMDD", outside=OUTSIDE),
    Dates("x", date(2019, 1, 1), date(2021, 12, 31), "quarter", format="YYYY-MM", outside=OUTSIDE),
]

NASTY = [
    None, "", " ", "\t\n", "red", " red ", "red\n", "Red", "none", "None", "null", "NaN", "nan", "inf",
    "-inf", "Infinity", "1", "1.0", " 1", "01", "+1", "1.", ".5", "0.5", "-7", "1e1", "2e1", "20", "1e99",
    "-1e99", "1e308", "1e999", "1e-999", "1_000", "1,5", "0x10", "１２", "9" * 101, "9" * 100, "0.1",
    "0.30000000000000004", "1e", "e1", ".", "-", "--1", "1 2", "true", "TRUE", "True", "yes", "No", "t", "0",
    "0.0", "Ä'\"", "A\u0308'\"", "é", "\u00a0red", "red\u00a0", "\u2028", "12\u2028", "日本語", "🙂",
    "'; DROP TABLE people; --", "2020-02-29", "2021-02-29", "2020-2-9", "2020-13-01", "2020-00-10",
    "2020-01-32", "0000-01-01", "0001-01-01", "9999-12-31", "2020-02-29T10:00:00", "2020-02-29 10:00",
    "2020-02-29x", "29.02.2020", "2020/02/29", "1999-12-31", "2000-02-29", "1900-02-29", "2021-03-31",
    "2021-04-01", "100", "100.0001", "-0.0", "-0", "65", "64.999999999999999", "6", "6.5", "7", "\x01", "a\x1fb",
    "1.234,5", "1.234", "1.23", "12.345,", ",5", "1,234", "1,234.5", "$1,234", "$ 1,234.5", "-$1,234", "$-5", "-$-5", "+-5",
    "$", "5$", "$0", "1.234.5", "1,2345", "1,5e1", "12 %", "45%", "45 %", "%45", "45%%", "-45%", "00:30", "7:05", "23:59:59",
    "24:00", "25:00", "7:5", "7:60", "12/31/2020", "2/9/2020", "02/30/2020", "13/01/2020", "02/29/2020 10:00", "02/29/2020x",
    "02/29/20201", "12/31/2020\u2028", "31.12.2020", "9.2.2020T1", "29.02.2021", "20200229", "20201301", "2020022", "202002290",
    "20200229 1", "2020-05", "2020-5", "2020-13", "2020-05T", "2020-05-", "1900", "null",
]  # fmt: skip
WHOLE = [None, 0, 1, -1, 17, 18, 64, 65, 100, 101, -7, 20, 2**53 + 1, 2**63 - 1, -(2**63)]
NUMBERS = [
    None, 0.0, -0.0, 0.1, 0.5, 1.0, 1.5, -1.5, -1.6, 2.0, 2.0000000001, 18.0, 20.0, 65.0, 1e300, -1e300,
    float("inf"), float("-inf"), float("nan"), 5e-324, 6.0, 6.1, -7.0,
]  # fmt: skip
DAYS = [
    None, date(2020, 2, 29), date(1, 1, 1), date(9999, 12, 31), date(2020, 1, 31), date(2021, 3, 31),
    date(2021, 4, 1), date(1999, 12, 31), date(2024, 12, 31), date(2025, 1, 1), date(2019, 1, 6), date(2019, 1, 7),
    date(2000, 3, 1), date(1900, 3, 1),
]  # fmt: skip
KINDS = {
    "text": (pa.string(), NASTY),
    "truth": (pa.bool_(), [None, True, False]),
    "whole": (pa.int64(), WHOLE),
    "number": (pa.float64(), NUMBERS),
    "day": (pa.date32(), DAYS),
    "moment": (
        pa.timestamp("us"),
        [None, *(datetime(d.year, d.month, d.day, 23, 59, 59) for d in DAYS[1:] if d.year > 1900)],
    ),
}


def objects(values: list) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def check_codes(engine: str, kind: pa.DataType, values: list, names: str = "adgi") -> None:
    """Every column of COLUMNS reads the same values; a column of row numbers tells rows apart.

    `names` are the columns that Spark tries: planning a query takes it seconds.
    """
    rows = Numeric.each("row", 0, len(values) - 1)
    columns = [c for c in COLUMNS if engine != "spark" or c.name in names]
    schema = Schema([rows, *columns])
    table = pa.table(
        {
            "row": pa.array(range(len(values)), pa.int64()),
            **{c.name: pa.array(values, kind) for c in columns},
        }
    )
    found = source(engine, table, schema).marginals([("row", c.name) for c in columns])
    for column in columns:
        counts = found[("row", column.name)]
        assert (counts.sum(axis=1)[:-1] == 1).all()
        got = [column.labels[i] for i in counts[:-1].argmax(axis=1)]
        want = [column.labels[i] for i in column.encode(objects(values))]
        wrong = [(v, g, w) for v, g, w in zip(values, got, want, strict=True) if g != w]
        assert wrong == [], f"{column.name}: (value, engine, encode)"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ENGINES)
def test_nasty_values_are_coded_alike(engine: str, kind: str) -> None:
    check_codes(engine, *KINDS[kind], "ag" if kind == "text" else "adgi")


@pytest.mark.slow
@pytest.mark.parametrize("names", ["dl", "noqr", "stu", "vx"])
def test_more_columns_are_coded_alike_by_spark(names: str) -> None:
    check_codes("spark", *KINDS["text"], names)


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)
near = st.sampled_from([v for v in NASTY if v]).flatmap(
    lambda v: st.sampled_from([v, v[:-1], v + "0", v + " ", v.upper(), "-" + v])
)
spelled = st.floats().map(str) | st.integers().map(str) | st.dates().map(str)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.none() | text | near | spelled, min_size=1, max_size=200))
def test_any_text_is_coded_alike_by_duckdb(values: list) -> None:
    check_codes("duckdb", pa.string(), values)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.none() | st.floats(), min_size=1, max_size=200))
def test_any_number_is_coded_alike_by_duckdb(values: list) -> None:
    check_codes("duckdb", pa.float64(), values)


@settings(max_examples=8, deadline=None)
@given(st.lists(st.none() | st.dates(), min_size=1, max_size=200))
def test_any_day_is_coded_alike_by_duckdb(values: list) -> None:
    check_codes("duckdb", pa.date32(), values)


# -- whole tables ---------------------------------------------------------------------------------

PEOPLE = population_table(3000, np.random.default_rng(5))
CODED = POPULATION_SCHEMA.encode(PEOPLE)
ARROW = pa.table({k: pa.array(v, from_pandas=True) for k, v in PEOPLE.items()})
PAIRS = all_marginals(POPULATION_SCHEMA.domain, 2)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_counts_the_same_people(engine: str) -> None:
    table = source(engine, ARROW, POPULATION_SCHEMA)
    assert table.records == 3000
    assert table.domain == CODED.domain
    asked = PAIRS if engine == "duckdb" else random_marginals(POPULATION_SCHEMA.domain, 2, 12, 0)
    np.testing.assert_array_equal(table.marginals(asked).values, CODED.marginals(asked).values)
    total = table.marginals([()])
    assert total.values.tolist() == [3000.0]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_survey_counts_what_the_schema_settled(engine: str) -> None:
    schema = Schema([Categorical("a", ("x", "y")), Numeric("n", (0, 10)), Boolean("b")])
    table = pa.table(
        {
            "a": ["x", "z", "", None, " y "],
            "n": ["5", "11", "-1", "old", None],
            "b": ["yes", "maybe", "perhaps", None, ""],
        }
    )
    survey = source(engine, table, schema).survey
    assert survey.records == 5
    assert survey.unread == {"a": 1, "n": 1, "b": 2}
    assert survey.outside == {"a": 0, "n": 2, "b": 0}


def write(path, kind: str):
    if kind == "csv":
        pl.from_arrow(ARROW).write_csv(path)
    elif kind == "parquet":
        pyarrow.parquet.write_table(ARROW, path)
    elif kind == "arrow":
        pyarrow.feather.write_feather(ARROW, path)
    else:
        import duckdb

        with duckdb.connect(str(path)) as connection:
            connection.register("given", ARROW)
            connection.execute("CREATE TABLE people AS SELECT * FROM given")


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow", "duckdb"])
def test_files_hold_the_same_people(kind: str, tmp_path) -> None:
    path = tmp_path / f"people.{kind}"
    write(path, kind)
    np.testing.assert_array_equal(read_table(path, POPULATION_SCHEMA).to_array(), CODED.to_array())
    counts = open_source(str(path), POPULATION_SCHEMA).marginals(PAIRS)
    np.testing.assert_array_equal(counts.values, CODED.marginals(PAIRS).values)


@pytest.mark.parametrize(
    "make", [dict, pd.DataFrame, lambda t: pl.from_arrow(ARROW), lambda t: ARROW]
)
def test_frames_hold_the_same_people(make) -> None:
    read = read_table(make({k: v.tolist() for k, v in PEOPLE.items()}), POPULATION_SCHEMA)
    np.testing.assert_array_equal(read.to_array(), CODED.to_array())


def test_batches_are_added_up(monkeypatch) -> None:
    monkeypatch.setattr("consilience.data.duck.ROWS_AT_ONCE", 700)
    seen = []
    table = duckdb_table(
        ARROW, POPULATION_SCHEMA, progress=lambda step: seen.append((step.done, step.total))
    )
    np.testing.assert_array_equal(table.marginals(PAIRS).values, CODED.marginals(PAIRS).values)
    np.testing.assert_array_equal(table.dataset().to_array(), CODED.to_array())
    assert seen[-1] == (3000, 3000)


def test_a_partition_is_counted_as_the_whole_table_is() -> None:
    """What Spark's Python processes run, without Spark: text is coded once for each value, in batches of any size."""
    rng = np.random.default_rng(5)
    schema = Schema(
        [Categorical("a", ("x", "y"), other=OTHER), Numeric("b", (0.0, 1.0, 2.0)), Boolean("c"), Numeric("d", (0, 5, 9))]
    )  # fmt: skip
    n = 3000
    rows = pa.table(
        {
            "c0": pa.array([(["x", " y ", "z", "", None])[i] for i in rng.integers(0, 5, n)], pa.string()),
            "c1": pa.array([float(v) if v < 2.4 else None for v in rng.uniform(-0.5, 2.5, n)]),
            "c2": pa.array([([True, False, None])[i] for i in rng.integers(0, 3, n)]),
            "c3": pa.array([str(v) for v in rng.integers(-2, 12, n)]),
        }
    )  # fmt: skip
    cliques = [schema.domain.clique(c) for c in (("a", "b"), ("c",), ("a", "c", "d"), ())]
    whole = duckdb_table(rows.rename_columns(list(schema.domain)), schema).marginals(cliques)
    for size in (7, 1000, n):
        (found,) = PartitionCounts(list(schema), cliques)(rows.to_batches(size))
        counts = np.zeros(whole.values.size)
        counts[np.frombuffer(found["cells"][0].as_py(), np.int64)] = np.frombuffer(found["counts"][0].as_py())  # fmt: skip
        np.testing.assert_array_equal(counts, whole.values)
