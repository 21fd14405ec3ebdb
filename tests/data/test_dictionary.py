"""Drafts from dictionaries: what is said is declared, what is not said is asked for, and no row is read."""

import json
from datetime import date
from pathlib import Path

import pytest

from cli.conftest import run
from consilience.data import Boolean, Categorical, Dates, Numeric
from consilience.data.dictionary import draft_from_dictionary
from consilience.data.schema_file import parse_schema
from consilience.errors import DataError

CODES = {
    "AGEP": {"description": "age", "values": {"min": 0, "max": 99}},
    "MSP": {
        "description": "marital status",
        "values": {"N": "N/A (less than 15 years)", "1": "married", "6": "never married"},
    },
    "POVPIP": {"values": {"N": "N/A", "min": 0, "max": 500, "501": "above"}},
    "DENSITY": {"description": "density", "values": {"min": 16.3, "max": 52864.7}},
    "INDP": {"description": "industry", "details": "271 codes"},
}
FIELDS = {
    "fields": [
        {"name": "id", "type": "integer"},
        {"name": "sex", "type": "string", "constraints": {"enum": ["F", "M"], "required": True}},
        {"name": "age", "type": "integer", "constraints": {"minimum": 0, "exclusiveMaximum": 100}},
        {"name": "income", "type": "number", "missingValues": ["", "-"], "constraints": {"minimum": 0, "maximum": 9.5}},
        {"name": "price", "type": "number", "decimalChar": ",", "groupChar": "."},
        {"name": "member", "type": "boolean", "trueValues": ["1"], "falseValues": ["0"]},
        {"name": "smokes", "type": "boolean", "trueValues": ["J"], "falseValues": ["N"]},
        {
            "name": "joined",
            "type": "datetime",
            "format": "%d.%m.%Y %H:%M",
            "constraints": {"minimum": "01.02.2019", "maximum": "31.12.2021"},
        },
        {"name": "month", "type": "yearmonth", "constraints": {"minimum": "2019-01", "maximum": "2030-12"}},
        {"name": "city", "type": "string", "description": "where"},
        {"name": "place", "type": "geopoint"},
    ],
    "missingValues": ["", "NA"],
    "primaryKey": "id",
}  # fmt: skip
SDV = {
    "METADATA_SPEC_VERSION": "V2",
    "tables": {
        "people": {
            "primary_key": "id",
            "columns": {
                "id": {"sdtype": "id"},
                "sex": {"sdtype": "categorical", "range_values": ["F", "M"], "range_is_nullable": False},
                "town": {"sdtype": "categorical"},
                "age": {"sdtype": "numerical", "decimal_places": 0, "range_min": 0, "range_max": 90},
                "pay": {"sdtype": "numerical", "range_min": 0.5, "range_max": 9.5},
                "born": {
                    "sdtype": "datetime", "datetime_format": "%m/%d/%Y", "range_min": "01/31/1950", "range_max": "12/01/2020"
                },
                "mail": {"sdtype": "email", "pii": True},
                "ok": {"sdtype": "boolean"},
            },
        }
    },
    "relationships": [],
}  # fmt: skip
SDV_V1 = {
    "METADATA_SPEC_VERSION": "SINGLE_TABLE_V1",
    "primary_key": "id",
    "columns": {
        "id": {"sdtype": "id"},
        "age": {"sdtype": "numerical", "computer_representation": "Int64"},
        "sex": {"sdtype": "categorical"},
    },
}


def drafted(tmp_path: Path, content: object, *args, **kwargs):
    path = tmp_path / "dictionary.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return draft_from_dictionary(path, *args, **kwargs)


def test_codes_and_meanings(tmp_path: Path) -> None:
    found = drafted(tmp_path, CODES)
    tokens = ("N",)
    assert found.schema.columns == (
        Numeric.each("AGEP", 0, 99, 0, tokens=tokens),
        Categorical("MSP", ("1", "6"), tokens=tokens),
    )
    assert found.schema.draft == ()
    assert found.undecided == {
        "POVPIP": {"type": "integer", "bins": "?", "min": 0, "max": 501, "missing": "(missing)"},
        "DENSITY": {"type": "float", "bins": "?", "min": 16.3, "max": 52864.7},
        "INDP": {"type": "categorical", "labels": "?"},
    }
    assert found.offers == ["AGEP < 15 and MSP != (missing)"]
    assert found.comments["MSP"].startswith(
        "marital status; N: N/A (less than 15 years); 1: married"
    )
    with pytest.raises(DataError, match="bins of column 'POVPIP' must be decided"):
        parse_schema(found.to_toml())


def test_what_is_decided_at_the_command_line_needs_no_editing(tmp_path: Path) -> None:
    found = drafted(tmp_path, CODES, bins=5, ignore=["INDP"], name="survey")
    schema = parse_schema(found.to_toml())
    assert schema == found.schema
    assert schema.name == "survey"
    assert schema["POVPIP"].labels == (
        "0-99", "100-199", "200-299", "300-399", "400-499", "500", "501", "(missing)",
    )  # fmt: skip
    assert len(schema["DENSITY"].labels) == 5


def test_frictionless_table_schema(tmp_path: Path) -> None:
    for content in (FIELDS, {"resources": [{"name": "t", "schema": FIELDS}]}):
        found = drafted(tmp_path, content)
        tokens = ("NA", "-")
        assert found.schema.columns == (
            Categorical("sex", ("F", "M"), missing="F", tokens=tokens),
            Numeric.each("age", 0, 99, tokens=tokens),
            Boolean("member", tokens=tokens),
            Categorical("smokes", ("J", "N"), tokens=tokens),
            Dates("joined", date(2019, 2, 1), date(2021, 12, 31), "month", tokens=tokens, format="DD.MM.YYYY"),
            Dates("month", date(2019, 1, 1), date(2030, 12, 1), "year", tokens=tokens, format="YYYY-MM"),
        )  # fmt: skip
        assert list(found.undecided) == ["income", "price", "city"]
        assert found.undecided["price"] == {
            "type": "float", "format": "1.234,5", "bins": "?", "min": "?", "max": "?", "missing": "(missing)",
        }  # fmt: skip
        assert set(found.left_out) == {"id", "place"}


def test_sdv_metadata(tmp_path: Path) -> None:
    found = drafted(tmp_path, SDV, bins=3)
    assert found.schema.columns == (
        Categorical("sex", ("F", "M"), missing="F"),
        Numeric.each("age", 0, 90),
        Numeric("pay", (0.5, 3.5, 6.5, 9.5)),
        Dates("born", date(1950, 1, 31), date(2020, 12, 1), "year", format="MM/DD/YYYY"),
        Boolean("ok"),
    )
    assert list(found.undecided) == ["town"]
    assert set(found.left_out) == {"id", "mail"}
    assert "SDV's own detection reads ranges and values off the data" in found.schema.draft[0]
    old = drafted(tmp_path, SDV_V1)
    assert old.schema is None
    assert list(old.undecided) == ["age", "sex"]
    assert old.undecided["age"] == {
        "type": "integer", "bins": "?", "min": "?", "max": "?", "missing": "(missing)",
    }  # fmt: skip
    with pytest.raises(DataError, match="must be decided"):
        parse_schema(old.to_toml())


def test_only_the_header_of_a_table_is_looked_at(tmp_path: Path, monkeypatch) -> None:
    """A table of other rows, or of none, has the same draft."""
    monkeypatch.chdir(tmp_path)
    Path("d.json").write_text(json.dumps(CODES))
    texts = []
    for rows in ("", "17,1,x\n", "99,6,y\n18,N,z\n"):
        Path("t.csv").write_text("AGEP,MSP,extra\n" + rows)
        done = run("schema", "t.csv", "--dictionary", "d.json")
        assert done.exit_code == 0, done.output
        texts.append(done.stdout)
    assert len(set(texts)) == 1
    assert "Left out: 'extra', which the dictionary does not list." in texts[0]
    assert (
        "Remark: the table has no column 'POVPIP', 'DENSITY', 'INDP' of the dictionary." in texts[0]
    )
    assert parse_schema(texts[0]).ignored == ("extra",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "a dictionary must be JSON"),
        ("[1]", "a Frictionless Table Schema or SDV metadata"),
        ('{"a": 3}', "a Frictionless Table Schema or SDV metadata"),
        ('{"fields": [{"type": "string"}]}', "a Frictionless Table Schema or SDV metadata"),
        ('{"METADATA_SPEC_VERSION": "V1"}', "a Frictionless Table Schema or SDV metadata"),
        ('{"fields": [{"name": "a", "type": "object"}]}', "must describe a column of the table"),
        (None, "must be a file, got 'd.json', which is not there"),
    ],
)
def test_what_is_no_dictionary_is_refused_in_a_line(tmp_path, monkeypatch, content, words) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("d.json").write_text(content)
    done = run("schema", "--dictionary", "d.json")
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.strip().splitlines()
    assert words in line
