"""Schema files: a schema as TOML for people to write and review, and back.

name = "people"                 # of the table, by which ledgers know it
unit = "person_id"              # the column that says whose a row is; without it every row stands for itself
rows_per_unit = 3               # at most so many rows of a unit are counted
draft = ["labels of sex"]       # what was read off the data and nobody has checked: a release refuses it
missing_values = ["N", "?"]     # what stands for a missing value in every column, beside empty text
impossible = ["age < 15 and marital != never"]

[columns.age]
type = "integer"                # or categorical, float, boolean, date
edges = [0, 18, 65, 105]        # or bins = 10 with min and max; or min and max alone: every whole number
missing = "(missing)"           # a code of its own, as where nothing is said, or the number that missing values take
outside = "clip"                # or "(outside)", "(missing)"
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from consilience.data.binned import Dates, Numeric
from consilience.data.columns import CLIP, MISSING, Boolean, Categorical, Column
from consilience.data.public import KINDS, PublicTable
from consilience.data.schema import Grouping, Schema
from consilience.errors import ConsilienceError, DataError

Fields = dict[str, Any]

# -- reading -----------------------------------------------------------------------------------------


def read_schema(path: str | os.PathLike[str]) -> Schema:
    """The schema in a TOML file."""
    source = Path(path)
    try:
        text = source.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(
            f"the schema must be a file, got {str(source)!r}, which is not there"
        ) from None
    except UnicodeDecodeError:
        raise DataError(f"a schema must be UTF-8 text, {str(source)!r} is not") from None
    except OSError as error:
        raise DataError(f"the schema {str(source)!r} cannot be read: {error.strerror}") from error
    try:
        return parse_schema(text)
    except ConsilienceError as error:
        raise DataError(f"{source}: {error}") from error


def parse_schema(text: str) -> Schema:
    try:
        given = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise DataError(f"a schema must be TOML, and this is not: {_first_line(error)}") from error
    known = (
        "name",
        "unit",
        "rows_per_unit",
        "draft",
        "missing_values",
        "columns",
        "ignore",
        "impossible",
        "hierarchies",
        "controls",
    )
    _check_known("a schema", given, known)
    columns = given.get("columns")
    if not isinstance(columns, dict) or not columns:
        raise DataError("a schema must have a table [columns.NAME] for each column, got none")
    ignored = given.get("ignore", [])
    if not _is_texts(ignored):
        raise DataError(f"ignore must be a list of names of columns, got {ignored!r}")
    draft = given.get("draft", [])
    if not _is_texts(draft):
        raise DataError(f"draft must be a list of what is to be checked, got {draft!r}")
    hierarchies = given.get("hierarchies", {})
    if not isinstance(hierarchies, dict):
        raise DataError(f"hierarchies must be tables [hierarchies.NAME], got {hierarchies!r}")
    impossible = given.get("impossible", [])
    if not isinstance(impossible, list) or not all(isinstance(i, dict | str) for i in impossible):
        raise DataError(
            'what is impossible must be a list of rules such as "age < 15 and marital != never", or tables [[impossible]] of '
            "COLUMN = [labels]"
        )
    controls = given.get("controls", [])
    if not isinstance(controls, list) or not all(isinstance(c, dict) for c in controls):
        raise DataError(
            "controls must be tables [[controls]] with columns, and exact, or low and high, got something else"
        )
    tokens = _tokens("the schema", given, ())
    return Schema(
        [_column(name, fields, tokens) for name, fields in columns.items()],
        ignored,
        [
            one if isinstance(one, str) else {name: _labels(name, v) for name, v in one.items()}
            for one in impossible
        ],
        [_grouping(name, fields) for name, fields in hierarchies.items()],
        [_public(fields) for fields in controls],
        name=given.get("name"),
        unit=given.get("unit"),
        rows_per_unit=given.get("rows_per_unit"),
        draft=draft,
    )


def _column(name: str, fields: object, tokens: tuple[str, ...]) -> Column:
    if not isinstance(fields, dict):
        raise DataError(f"column {name!r} must be a table [columns.{_key(name)}], got {fields!r}")
    kind = fields.get("type")
    if not isinstance(kind, str) or kind not in _READERS:
        raise DataError(
            f"the type of column {name!r} must be one of {', '.join(_READERS)}, got {kind!r}"
        )
    return _READERS[kind](name, fields, _tokens(f"column {name!r}", fields, tokens))


def _tokens(what: str, fields: Fields, usual: tuple[str, ...]) -> tuple[str, ...]:
    given = fields.get("missing_values", list(usual))
    if not _is_texts(given):
        raise DataError(f"missing_values of {what} must be a list of text, got {given!r}")
    return tuple(v for v in given if v)


def _categorical(name: str, fields: Fields, tokens: tuple[str, ...]) -> Categorical:
    known = ("type", "labels", "missing", "other", "missing_values")
    _check_known(f"column {name!r}", fields, known)
    labels = fields.get("labels", [])
    _check_decided(name, "labels", labels, "a list of text")
    if not isinstance(labels, list):
        raise DataError(f"labels of column {name!r} must be a list of text, got {labels!r}")
    return Categorical(
        name, tuple(labels), _unless_own(fields, "missing"), _unless_own(fields, "other"), tokens
    )


def _boolean(name: str, fields: Fields, tokens: tuple[str, ...]) -> Boolean:
    _check_known(f"column {name!r}", fields, ("type", "missing", "missing_values"))
    return Boolean(name, _unless_own(fields, "missing"), tokens)


def _numeric(name: str, fields: Fields, tokens: tuple[str, ...]) -> Numeric:
    bounds = ("edges", "bins", "min", "max")
    known = ("type", *bounds, "missing", "outside", "missing_values", "format")
    _check_known(f"column {name!r}", fields, known)
    _check_decided(name, "bins", fields.get("bins"), "a whole number such as 10, or edges")
    whole = fields["type"] == "integer"
    missing, outside = _unless_own(fields, "missing"), fields.get("outside", CLIP)
    form = fields.get("format")
    asked = tuple(k for k in ("edges", "bins", "min", "max") if k in fields)
    if asked == ("edges",):
        if not isinstance(fields["edges"], list):
            raise DataError(f"edges of column {name!r} must be a list of numbers")
        return Numeric(name, tuple(fields["edges"]), whole, missing, outside, tokens, form)
    if asked == ("bins", "min", "max"):
        low, high, bins = fields["min"], fields["max"], fields["bins"]
        return Numeric.uniform(name, low, high, bins, whole, missing, outside, tokens, form)
    if asked == ("min", "max") and whole:
        return Numeric.each(name, fields["min"], fields["max"], missing, outside, tokens, form)
    enough = "edges, or bins with min and max" + (", or min and max" if whole else "")
    raise DataError(
        f"column {name!r} must declare {enough}, got {', '.join(asked) or 'none of them'}"
    )


def _dates(name: str, fields: Fields, tokens: tuple[str, ...]) -> Dates:
    known = ("type", "period", "first", "last", "missing", "outside", "missing_values", "format")
    _check_known(f"column {name!r}", fields, known)
    for key in ("first", "last", "format"):
        _check_decided(name, key, fields.get(key), "a day, and a format such as MM/DD/YYYY")
    return Dates(
        name,
        _as_day(fields.get("first")),
        _as_day(fields.get("last")),
        fields.get("period", "month"),
        _as_day(_unless_own(fields, "missing")),
        fields.get("outside", CLIP),
        tokens,
        fields.get("format"),
    )


UNDECIDED = "?"
"""What a draft writes where only the owner of the table can decide."""


def _check_decided(name: str, key: str, given: object, what: str) -> None:
    if given == UNDECIDED:
        raise DataError(
            f"{key} of column {name!r} must be decided: {what}, got {UNDECIDED!r}; write it into the schema, or list the "
            "column under ignore"
        )


_READERS: Mapping[str, Callable[[str, Fields, tuple[str, ...]], Column]] = {
    "categorical": _categorical,
    "integer": _numeric,
    "float": _numeric,
    "boolean": _boolean,
    "date": _dates,
}


def _grouping(name: str, fields: object) -> Grouping:
    if isinstance(fields, dict) and "prefix" in fields:
        _check_known(f"hierarchy {name!r}", fields, ("of", "prefix"))
        return Grouping(name, str(fields.get("of")), {}, fields["prefix"])
    if not isinstance(fields, dict) or not isinstance(fields.get("groups"), dict):
        raise DataError(
            f"hierarchy {name!r} must have of = COLUMN and groups = {{NAME = [labels]}}, or of = COLUMN and prefix = NUMBER"
        )
    _check_known(f"hierarchy {name!r}", fields, ("of", "groups"))
    groups = {group: _labels(group, labels) for group, labels in fields["groups"].items()}
    return Grouping(name, str(fields.get("of")), groups)


def _as_day(value: Any) -> Any:
    """A TOML date, or the same as text; what is neither is left for `Dates` to refuse."""
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d{2}-\d{2}", value):
        try:
            return date.fromisoformat(value)
        except ValueError:
            return value
    return value


def _unless_own(fields: Fields, role: str) -> Any:
    """None for a code of its own, which is what (missing) says."""
    given = fields.get(role, MISSING)
    return None if given == MISSING else given


def _labels(name: str, given: object) -> tuple[str, ...]:
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, list) or not _is_texts(given):
        raise DataError(f"the labels of {name!r} must be a list of text, got {given!r}")
    return tuple(given)


def _is_texts(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(v, str) for v in given)


def _check_known(what: str, fields: Fields, known: Iterable[str]) -> None:
    unknown = [k for k in fields if k not in known]
    if unknown:
        raise DataError(f"{what} may have {', '.join(known)}, got {unknown[0]!r}")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


# -- writing -----------------------------------------------------------------------------------------


def _public(fields: Fields) -> PublicTable:
    _check_known("a control", fields, ("columns", *KINDS))
    columns = fields.get("columns")
    if not isinstance(columns, list) or not _is_texts(columns):
        raise DataError(f"columns of a control must be a list of names, got {columns!r}")
    rows = {kind: fields.get(kind, []) for kind in KINDS}
    for kind, given in rows.items():
        if not isinstance(given, list) or not all(isinstance(r, list) for r in given):
            raise DataError(
                f"{kind} of a control must be a list of rows such as ['Maui', 154834], got {given!r}"
            )
    return PublicTable(tuple(columns), **{k: tuple(map(tuple, v)) for k, v in rows.items()})


def format_schema(schema: Schema, comments: Mapping[str, str] | None = None, head: str = "") -> str:
    """The schema as TOML. `comments` are written above their columns, `head` at the top."""
    said = comments or {}
    parts = [_commented(head)] if head else []
    rows = None if schema.unit is None else schema.rows_per_unit
    own = {"name": schema.name, "unit": schema.unit, "rows_per_unit": rows}
    lines = [f"{k} = {_value(v)}\n" for k, v in own.items() if v is not None]
    if schema.draft:  # one line, to be deleted when it is done
        lines.append(f"draft = [{', '.join(map(_value, schema.draft))}]\n")
    if lines:
        parts.append("".join(lines))
    if schema.ignored:
        parts.append(f"ignore = {_list(schema.ignored)}\n")
    tokens = Counter(c.tokens for c in schema).most_common(1)[0][0]
    if tokens:
        parts.append(f"missing_values = {_list(tokens)}\n")
    ruled = any(isinstance(c, str) for c in schema.impossible)
    if ruled:
        parts.append(f"impossible = {_list(schema.impossible)}\n")
    for column in schema:
        own = {} if column.tokens == tokens else {"missing_values": column.tokens}
        parts.append(column_text(column.name, _fields(column) | own, said.get(column.name, "")))
    for combination in () if ruled else schema.impossible:
        assert not isinstance(combination, str)
        lines = [f"{_key(name)} = {_list(labels)}" for name, labels in combination.items()]
        parts.append("\n".join(["[[impossible]]", *lines]) + "\n")
    for g in schema.groupings:
        lines = [f"[hierarchies.{_key(g.name)}]", f"of = {_value(g.of)}"]
        if g.prefix is not None:
            parts.append("\n".join([*lines, f"prefix = {g.prefix}"]) + "\n")
            continue
        lines.append(f"[hierarchies.{_key(g.name)}.groups]")
        lines += [f"{_key(name)} = {_list(labels)}" for name, labels in g.groups.items()]
        parts.append("\n".join(lines) + "\n")
    for table in schema.public:
        rows = {kind: getattr(table, kind) for kind in KINDS}
        lines = [f"{kind} = {_list(given)}" for kind, given in rows.items() if given]
        parts.append(
            "\n".join(["[[controls]]", f"columns = {_list(table.columns)}", *lines]) + "\n"
        )
    return "\n".join(parts)


def column_text(name: str, fields: Fields, comment: str = "") -> str:
    """The table of one column."""
    lines = [f"[columns.{_key(name)}]", *(f"{k} = {_value(v)}" for k, v in fields.items())]
    return _commented(comment) + "\n".join(lines) + "\n"


def _fields(column: Column) -> Fields:
    match column:
        case Categorical():
            other = {} if column.other is None else {"other": column.other}
            return {
                "type": "categorical",
                "labels": column.values,
                "missing": MISSING if column.missing is None else column.missing,
            } | other
        case Boolean():
            missing = MISSING if column.missing is None else column.missing
            return {"type": "boolean", "missing": missing}
        case Numeric():
            kind = "integer" if column.whole else "float"
            bins = _bins(column)
        case Dates():
            kind = "date"
            bins = {"period": column.period, "first": column.first, "last": column.last}
        case _:
            raise DataError(f"column {column.name!r} is of a kind that no file can hold")
    missing = MISSING if column.missing is None else column.missing
    form = {} if column.format is None else {"format": column.format}
    return {"type": kind, **form, **bins, "missing": missing, "outside": column.outside}


def _bins(column: Numeric) -> Fields:
    low, high = column.edges[0], column.edges[-1]
    each = column.whole and high - low + 1 == column.bins
    if each and column.edges == (*range(int(low), int(high) + 1), int(high)):
        return {"min": int(low), "max": int(high)}
    return {"edges": tuple(int(e) if column.whole else float(e) for e in column.edges)}


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            # TOML's basic strings are JSON's, which leaves DEL as it is.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case int():
            return str(value)
        case float():
            return repr(value)
        case date():
            return value.isoformat()
        case tuple():
            return _list(value)
        case Mapping():
            return "{" + ", ".join(f"{_key(k)} = {_inline(v)}" for k, v in value.items()) + "}"
    raise DataError(f"a schema file cannot hold {value!r}")


def _inline(values: Iterable[object]) -> str:
    return f"[{', '.join(map(_value, values))}]"


def _list(values: Iterable[object]) -> str:
    written = [_value(v) for v in values]
    line = f"[{', '.join(written)}]"
    return line if len(line) <= 100 else "[\n" + "".join(f"    {v},\n" for v in written) + "]"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _commented(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())
