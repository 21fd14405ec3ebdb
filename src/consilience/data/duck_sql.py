"""DuckDB's SQL as the expressions that coding is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from consilience.data.coding import Kind
from consilience.data.values import BLANKS

_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_KINDS: dict[str, Kind] = {
    "BOOLEAN": "truth",
    "FLOAT": "number",
    "DOUBLE": "number",
    "DATE": "day",
    **dict.fromkeys(_WHOLE, "whole"),
    **dict.fromkeys((f"U{w}" for w in _WHOLE), "whole"),
}


def kind_of(type_name: str) -> Kind:
    name = type_name.upper()
    if name.startswith("DECIMAL"):
        return "number"
    return "day" if name.startswith("TIMESTAMP") else _KINDS.get(name, "text")


def quoted(name: str) -> str:
    """A name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True, eq=False)
class Sql:
    """A piece of SQL. Operators put it together; == is SQL's."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> Sql:  # type: ignore[override]
        return Sql(f"({self} = {other})")

    def __lt__(self, other: Sql) -> Sql:
        return Sql(f"({self} < {other})")

    def __gt__(self, other: Sql) -> Sql:
        return Sql(f"({self} > {other})")

    def __add__(self, other: Sql) -> Sql:
        return Sql(f"({self} + {other})")

    def __sub__(self, other: Sql) -> Sql:
        return Sql(f"({self} - {other})")

    def __mul__(self, other: Sql) -> Sql:
        return Sql(f"({self} * {other})")

    def __and__(self, other: Sql) -> Sql:
        return Sql(f"({self} AND {other})")

    def __or__(self, other: Sql) -> Sql:
        return Sql(f"({self} OR {other})")


class DuckDB:
    """The operations of `coding.Engine`."""

    def literal(self, value: int | float | str | bool) -> Sql:
        match value:
            case bool():
                return Sql("true" if value else "false")
            case int():
                return Sql(str(value))
            case float():
                return Sql(f"CAST('{value!r}' AS DOUBLE)")  # a bare 1.5 would be a decimal
        return Sql(text_literal(value))

    def null(self) -> Sql:
        return Sql("CAST(NULL AS INTEGER)")

    def is_null(self, x: Sql) -> Sql:
        return Sql(f"({x} IS NULL)")

    def is_nan(self, x: Sql) -> Sql:
        return Sql(f"isnan({x})")

    def negate(self, condition: Sql) -> Sql:
        return Sql(f"(NOT {condition})")

    def trim(self, x: Sql) -> Sql:
        return Sql(f"trim({x}, {text_literal(BLANKS)})")

    def lower(self, x: Sql) -> Sql:
        return Sql(f"lower({x})")

    def matches(self, x: Sql, pattern: str) -> Sql:
        return Sql(f"regexp_matches({x}, {text_literal(pattern)})")

    def part(self, x: Sql, start: int, length: int) -> Sql:
        return Sql(f"substring({x}, {start}, {length})")

    def to_number(self, x: Sql) -> Sql:
        return Sql(f"TRY_CAST({x} AS DOUBLE)")

    def to_whole(self, x: Sql) -> Sql:
        return Sql(f"TRY_CAST({x} AS INTEGER)")

    def to_text(self, x: Sql) -> Sql:
        return Sql(f"CAST({x} AS VARCHAR)")

    def year_month_day(self, x: Sql) -> tuple[Sql, Sql, Sql]:
        year, month, day = (Sql(f"extract('{p}' FROM {x})") for p in ("year", "month", "day"))
        return year, month, day

    def to_day(self, x: Sql) -> Sql:
        return Sql(f"TRY_CAST({x} AS DATE)")

    def divide(self, x: Sql, by: int) -> Sql:
        return Sql(f"({x} // {by})")

    def case(self, branches: Sequence[tuple[Sql, Sql]], otherwise: Sql) -> Sql:
        if not branches:
            return otherwise
        whens = " ".join(f"WHEN {c} THEN {v}" for c, v in branches)
        return Sql(f"(CASE {whens} ELSE {otherwise} END)")

    def lookup(self, x: Sql, codes: Mapping[str, int]) -> Sql:
        # An enumeration is a hash table; its codes are the positions of its labels.
        assert list(codes.values()) == list(range(len(codes)))
        labels = ", ".join(text_literal(label) for label in codes)
        return Sql(f"CAST(enum_code(TRY_CAST({x} AS ENUM({labels}))) AS INTEGER)")

    def column(self, name: str, kind: Kind, type_name: str) -> Sql:
        """A column in the type that its kind is handled in."""
        x = Sql(quoted(name))
        if kind == "text" and type_name.upper() != "VARCHAR":
            return self.to_text(x)
        if kind == "day" and type_name.upper() != "DATE":
            utc = "WITH TIME ZONE" in type_name.upper()
            return Sql(f"CAST({x}{' AT TIME ZONE ' + text_literal('UTC') if utc else ''} AS DATE)")
        return x
