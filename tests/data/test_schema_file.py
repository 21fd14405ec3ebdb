"""Schema files: what is written is what is read, and every mistake in one is named."""

import re
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consilience.data.binned import Dates, Numeric
from consilience.data.columns import (
    BLANKS,
    CLIP,
    MISSING,
    OTHER,
    OUTSIDE,
    RESERVED,
    Boolean,
    Categorical,
)
from consilience.data.population import POPULATION_SCHEMA
from consilience.data.schema import Grouping, Schema
from consilience.data.schema_file import format_schema, parse_schema, read_schema
from consilience.errors import DataError

EXAMPLE = """
ignore = ["name", "ticket no"]

[columns.sex]
type = "categorical"
labels = ["F", "M"]
other = "(other)"

[columns."Call Type"]
type = "categorical"
labels = ["fire", 'alarm "x"']
missing = "fire"

[columns.age]
type = "integer"
edges = [0, 18, 65, 105]
outside = "(outside)"

[columns.children]
type = "integer"
min = 0
max = 4

[columns.height]
type = "float"
bins = 4
min = 1.0
max = 2.0
missing = 1.6
outside = "(missing)"

[columns.member]
type = "boolean"
missing = false

[columns.joined]
type = "date"
period = "quarter"
first = 2020-02-01
last = 2021-12-31

[[impossible]]
age = ["0-17"]
member = ["yes"]

[hierarchies.grown]
of = "age"
groups = { child = ["0-17"], adult = ["18-64", "65-105"], unknown = ["(outside)", "(missing)"] }
"""


def test_every_kind_of_column_is_read() -> None:
    schema = parse_schema(EXAMPLE)
    assert schema.columns == (
        Categorical("sex", ("F", "M"), other=OTHER),
        Categorical("Call Type", ("fire", 'alarm "x"'), missing="fire"),
        Numeric("age", (0, 18, 65, 105), whole=True, outside=OUTSIDE),
        Numeric("children", (0, 1, 2, 3, 4, 4), whole=True),
        Numeric("height", (1.0, 1.25, 1.5, 1.75, 2.0), missing=1.6, outside=MISSING),
        Boolean("member", missing=False),
        Dates("joined", date(2020, 2, 1), date(2021, 12, 31), "quarter"),
    )
    assert schema.ignored == ("name", "ticket no")
    assert schema["children"].labels == ("0", "1", "2", "3", "4", MISSING)
    assert schema["joined"].labels[:2] == ("2020-Q1", "2020-Q2")
    assert len(schema["joined"].labels) == 9
    mask = schema.possible[("age", "member")]
    assert [list(cell) for cell in zip(*(~mask).nonzero(), strict=True)] == [[0, 1]]
    assert schema.groupings[0].groups["adult"] == ("18-64", "65-105")


@pytest.mark.parametrize("schema", [parse_schema(EXAMPLE), POPULATION_SCHEMA])
def test_what_is_written_is_read_again(schema: Schema) -> None:
    assert parse_schema(format_schema(schema, {"age": "said\ntwice"}, "a head")) == schema


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
labels = texts.filter(lambda v: v and v == v.strip(BLANKS) and v not in RESERVED)
days = st.dates(date(1, 1, 1), date(9000, 1, 1))
tokens = st.sampled_from([(), ("N",), ("N", "?")])
FORMATS = [None, "1.234,5", "$1,234", "1234%", "1 234,5", "hh:mm"]


@st.composite
def columns(draw, name: str):
    kind = draw(st.integers(0, 3))
    outside = draw(st.sampled_from([CLIP, OUTSIDE, MISSING]))
    if kind == 0:
        values = draw(st.lists(labels, min_size=1, max_size=4, unique=True))
        own = st.none() | st.sampled_from(values)
        other = draw(own | st.just(OTHER))
        return Categorical(name, tuple(values), draw(own), other, draw(tokens))
    if kind == 1:
        return Boolean(name, draw(st.none() | st.booleans()), draw(tokens))
    if kind == 2:
        whole = draw(st.booleans())
        number = st.integers(-(2**53), 2**53) if whole else st.floats(-1e300, 1e300)
        edges = sorted(draw(st.lists(number, min_size=2, max_size=5, unique=True)))
        missing, form = draw(st.none() | st.floats(-9, 9)), draw(st.sampled_from(FORMATS))
        return Numeric(name, tuple(edges), whole, missing, outside, draw(tokens), form)
    first = draw(days)
    last = draw(st.dates(first, date.fromordinal(first.toordinal() + 3000)))
    period = draw(st.sampled_from(["year", "quarter", "month", "week", "day"]))
    form = draw(st.sampled_from([None, "MM/DD/YYYY", "YYYYMMDD"]))
    return Dates(name, first, last, period, draw(st.none() | days), outside, draw(tokens), form)


@st.composite
def schemas(draw) -> Schema:
    names = draw(st.lists(texts.filter(bool), min_size=1, max_size=3, unique=True))
    return Schema([draw(columns(name)) for name in names])


@given(schemas())
def test_any_schema_survives_its_file(schema: Schema) -> None:
    again = parse_schema(format_schema(schema))
    assert again == schema
    assert [c.labels for c in again] == [c.labels for c in schema]


def column(text: str) -> str:
    return f"[columns.x]\n{text}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[columns", "a schema must be TOML, and this is not: "),
        ("", "must have a table [columns.NAME] for each column, got none"),
        ("[columns]\nx = 3", "column 'x' must be a table [columns.x], got 3"),
        (column("type = 'text'"), "type of column 'x' must be one of categorical, integer, float"),
        (column("type = 'categorical'"), "'x' must declare at least one label, got none"),
        (
            column("type = 'categorical'\nlabels = 'a'"),
            "labels of column 'x' must be a list of text",
        ),
        (
            column("type = 'categorical'\nlabels = ['a', ' b']"),
            "without blanks around it, got ' b'",
        ),
        (column("type = 'categorical'\nlabels = ['(missing)']"), "must not be one of (missing)"),
        (
            column("type = 'categorical'\nlabel = ['a']"),
            "labels, missing, other, missing_values, got 'label'",
        ),
        (
            column("type = 'integer'"),
            "must declare edges, or bins with min and max, or min and max",
        ),
        (column("type = 'float'\nmin = 0\nmax = 1"), "or bins with min and max, got min, max"),
        (column("type = 'float'\nmin = 1\nmax = 0\nbins = 3"), "are the bounds reversed?"),
        (
            column("type = 'float'\nmin = 'a'\nmax = 0\nbins = 3"),
            "edges of column 'x' must be numbers",
        ),
        (
            column("type = 'integer'\nmin = 9\nmax = 1"),
            "must be whole numbers in order, got 9 and 1",
        ),
        (column("type = 'integer'\nmin = 0\nmax = 1000000"), "at most 10,000 bins, got 1,000,001"),
        (column("type = 'integer'\nedges = [0, 5, 5, 9]"), "must increase, got 5 before 5"),
        (
            column("type = 'float'\nedges = [0, 5]\noutside = 'drop'"),
            "must become 'clip', '(outside)'",
        ),
        (column("type = 'boolean'\nmissing = 'no'"), "must be true or false, got 'no'"),
        (column("type = 'date'\nfirst = 2020-01-01"), "last of column 'x' must be a day such as"),
        (
            column("type = 'date'\nfirst = 2020-01-02\nlast = 2020-01-01"),
            "first must not be after last in column 'x', got 2020-01-02 and 2020-01-01; are the bounds",
        ),
        (
            column("type = 'date'\nfirst = 2020-01-02\nlast = 2020-01-02\nperiod = 'hour'"),
            "period of column 'x' must be one of year, quarter, month, week, day, got 'hour'",
        ),
        (
            column("type = 'boolean'") + "\n[other]",
            "ignore, impossible, hierarchies, controls, got 'other'",
        ),
        (
            "ignore = ['x']\n" + column("type = 'boolean'"),
            "either declared or ignored, got both for 'x'",
        ),
        ("ignore = 'x'\n" + column("type = 'boolean'"), "ignore must be a list of names"),
        (
            column("type = 'boolean'") + "\n[[impossible]]\nx = ['yes']",
            "at least two columns, got 'x'",
        ),
        (
            column("type = 'boolean'\n[columns.y]\ntype = 'boolean'")
            + "\n[[impossible]]\nx = ['yes']\ny = ['maybe']",
            "must name labels of column 'y', got 'maybe'",
        ),
        (
            "missing_values = 'N'\n" + column("type = 'boolean'"),
            "missing_values of the schema must",
        ),
        (
            column("type = 'boolean'\nmissing_values = [1]"),
            "missing_values of column 'x' must be a",
        ),
        (
            column("type = 'boolean'\nmissing_values = [' N']"),
            "stands for missing values of column 'x' must be a list of text without blanks around it",
        ),
        (
            column("type = 'categorical'\nlabels = '?'"),
            "labels of column 'x' must be decided: a list",
        ),
        (
            column("type = 'float'\nmin = 0\nmax = 9\nbins = '?'"),
            "bins of column 'x' must be decided: a whole number such as 10, or edges, got '?'; write it",
        ),
        (
            column("type = 'float'\nedges = [0, 9]\nformat = '12,5'"),
            "format of column 'x' must show how 1234.5 is written, such as '1,234.5', '1.234,5'",
        ),
        (
            column("type = 'float'\nedges = [0, 9]\nformat = '1,234,5'"),
            "must have different marks for thousands and decimals, got '1,234,5'",
        ),
        (
            column("type = 'date'\nfirst = 2020-01-01\nlast = 2020-01-02\nformat = 'MM/YY'"),
            "must show where the parts of a day stand, such as 'MM/DD/YYYY'",
        ),
        ("impossible = [3]\n" + column("type = 'boolean'"), "must be a list of rules such as"),
        (
            column("type = 'boolean'") + "\n[hierarchies.h]\nof = 'x'\ngroups = {a = ['yes']}",
            "must put every label of 'x' in one group, got 'no' in 0",
        ),
    ],
)
def test_every_mistake_is_one_line(text: str, words: str) -> None:
    with pytest.raises(DataError, match=re.escape(words)) as found:
        parse_schema(text)
    assert "\n" not in str(found.value)


def test_a_file_that_can_not_be_read(tmp_path) -> None:
    with pytest.raises(DataError, match=r"the schema must be a file, got .*none\.toml"):
        read_schema(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="a schema must be UTF-8 text"):
        read_schema(tmp_path / "latin.toml")
    (tmp_path / "wrong.toml").write_text("[columns]")
    with pytest.raises(DataError, match=r"wrong.toml: a schema must have a table"):
        read_schema(tmp_path / "wrong.toml")


def test_a_grouping_needs_a_name_of_its_own() -> None:
    with pytest.raises(DataError, match="name of its own, got 'x', which is a column"):
        Schema([Boolean("x")], groupings=[Grouping("x", "x", {})])
