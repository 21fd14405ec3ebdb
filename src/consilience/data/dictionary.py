"""Dictionaries: a draft from what a publisher says about the columns of a table, so that nothing is read off the data.

Three kinds of JSON are known: {column: {description, values}} as the American Community Survey's excerpts have it, where values
are codes with their meaning, or min and max, or both; Frictionless Table Schema (alone, or in a data package); SDV metadata
(V1 and V2). What a dictionary does not say, such as how many bins there are, is left to be decided and marked with "?".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from consilience.data.binned import MOST_BINS, Dates, Numeric
from consilience.data.columns import MISSING, RESERVED, Boolean, Categorical
from consilience.data.draft import AGE_NAME, ASKED, Draft, rule_word, table_name
from consilience.data.formats import date_format
from consilience.data.looks import without_missing
from consilience.data.schema import Schema
from consilience.data.schema_file import UNDECIDED, Fields
from consilience.data.values import day, spells_number
from consilience.errors import DataError

EACH = 100
"""Whole numbers between declared bounds are taken one by one up to so many; more need bins."""
FROM_DICTIONARY = """From {source}: nothing below was read off the data{names}.
Everything that the dictionary does not say is marked with "?" and is to be decided before a release."""
DETECTED = "whether {source} was written by people: SDV's own detection reads ranges and values off the data"


@dataclass(frozen=True)
class Said:
    """What a dictionary says of one column: `kind` is ours, or None for what is to be left out, with the reason in `why`."""

    kind: str | None
    labels: tuple[str, ...] | None = None
    low: Any = None
    high: Any = None
    singles: tuple[float, ...] = ()
    """Numbers with a meaning of their own beside the bounds."""
    missing: bool = False
    tokens: tuple[str, ...] = ()
    format: str | None = None
    comment: str = ""
    why: str = ""
    rule: int | None = None
    """The age below which nobody has a value."""
    notes: tuple[str, ...] = field(default=())


UNLISTED = Said(None, why="which the dictionary does not list")


def draft_from_dictionary(
    path: Path,
    header: Sequence[str] | None = None,
    *,
    bins: int | None = None,
    missing: Iterable[str] = (),
    ignore: Iterable[str] = (),
    name: str | None = None,
    remarks: Sequence[str] = (),
) -> Draft:
    """The draft of a dictionary's columns, or of those that a table has.

    bins: of numbers with bounds alone. ignore: columns to leave out. name: of the table, the dictionary's own unless given.
    """
    kind, said = _read(path)
    columns: list[Any] = []
    comments: dict[str, str] = {}
    left_out: dict[str, str] = {}
    undecided: dict[str, Fields] = {}
    notes = list(remarks)
    names = list(said) if header is None else list(header)
    tokens = tuple(
        dict.fromkeys([*missing, *(t for n in names if n in said for t in said[n].tokens)])
    )
    unwanted = set(ignore)
    for column in names:
        one = said.get(column, UNLISTED)
        if one.kind is None or column in unwanted:
            left_out[column] = ASKED if column in unwanted else one.why
            continue
        made = _column(column, replace(one, tokens=tokens), bins)
        comments[column] = "; ".join([v for v in (one.comment, *one.notes) if v])
        if isinstance(made, dict):
            undecided[column] = made | ({"missing": MISSING} if one.missing else {})
        else:
            columns.append(made)
    absent = [n for n in said if n not in names]
    if absent:
        notes.append(f"the table has no column {', '.join(map(repr, absent))} of the dictionary")
    if not columns and not undecided:
        raise DataError(
            f"the dictionary {str(path)!r} must describe a column of the table, it describes none"
        )
    source = f"{path.name} ({kind})"
    draft = [DETECTED.format(source=path.name)] if kind.startswith("SDV") else []
    called = name or table_name(path)
    schema = Schema(columns, left_out, name=called, draft=draft) if columns else None
    looked = "" if header is None else " but the names of its columns"
    head = FROM_DICTIONARY.format(source=source, names=looked)
    offers = _offers(said, [n for n in names if n in comments])
    return Draft(schema, comments, left_out, head, undecided, offers, notes)


def _read(path: Path) -> tuple[str, dict[str, Said]]:
    """What kind of dictionary it is, and what it says by column."""
    try:
        given = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise DataError(
            f"the dictionary must be a file, got {str(path)!r}, which is not there"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"a dictionary must be JSON, {str(path)!r} is not: {str(error).splitlines()[0]}"
        ) from None
    try:
        if isinstance(given, dict):
            if "METADATA_SPEC_VERSION" in given:
                return f"SDV metadata {given['METADATA_SPEC_VERSION']}", _sdv(given)
            resources = given.get("resources")
            if isinstance(resources, list) and resources:
                given = resources[0].get("schema", {})
            if isinstance(given.get("fields"), list):
                return "Frictionless Table Schema", _frictionless(given)
            if given and all(
                isinstance(v, dict) and ({"description", "values"} & v.keys())
                for v in given.values()
            ):
                return "codes and meanings", {n: _codes(n, v) for n, v in given.items()}
    except (KeyError, TypeError, AttributeError, ValueError):
        pass
    raise DataError(
        f"a dictionary must be {{column: {{description, values}}}}, a Frictionless Table Schema or SDV metadata, "
        f"{str(path)!r} is none"
    )


# -- a column of what was said ---------------------------------------------------------------------------


def _column(name: str, said: Said, bins: int | None) -> Any:
    """The declared column, or its fields with "?" where something is to be decided."""
    match said.kind:
        case "categorical":
            if not said.labels:
                return {"type": "categorical", "labels": UNDECIDED}
            made: Any = Categorical(name, said.labels, tokens=said.tokens)
        case "boolean":
            made = Boolean(name, tokens=said.tokens)
        case "date":
            if said.low is None or said.high is None:
                fields = {"first": said.low or UNDECIDED, "last": said.high or UNDECIDED}
                form = {} if said.format is None else {"format": said.format}
                return {"type": "date", **form, "period": "month", **fields}
            years = said.high.year - said.low.year
            period = "month" if years <= 4 else "year"
            made = Dates(name, said.low, said.high, period, tokens=said.tokens, format=said.format)
        case _:
            found = _numbers(name, said, bins)
            if isinstance(found, dict):
                return found
            made = found
    return made if said.missing else without_missing(made)


def _numbers(name: str, said: Said, bins: int | None) -> Any:
    whole = said.kind == "integer"
    form = {} if said.format is None else {"format": said.format}
    if said.low is None or said.high is None:
        bounds = {
            "min": UNDECIDED if said.low is None else said.low,
            "max": UNDECIDED if said.high is None else said.high,
        }
        return {"type": said.kind, **form, "bins": UNDECIDED if bins is None else bins, **bounds}
    low, high = min([said.low, *said.singles]), max([said.high, *said.singles])
    if whole and high - low < EACH:
        return Numeric.each(name, int(low), int(high), tokens=said.tokens)
    if bins is None:
        return {"type": said.kind, **form, "bins": UNDECIDED, "min": low, "max": high}
    count = min(bins, MOST_BINS)
    inner = Numeric.uniform(name, said.low, said.high, count, whole).edges
    # A number with a meaning of its own has a bin of its own, as far as whole numbers allow.
    below = [s for s in said.singles if s < said.low]
    above = [s for s in said.singles if s > said.high]
    edges = sorted({*below, *inner, *above})
    if whole and above:
        edges.append(edges[-1])
    return Numeric(name, tuple(edges), whole, tokens=said.tokens, format=said.format)


# -- {column: {description, values}} -------------------------------------------------------------------

_NOT_THERE = re.compile(r"\s*(n/?a\b|not applicable|missing|blank|not available)", re.I)
_TOO_YOUNG = re.compile(r"(?:less than|under|younger than)\s+(\d+)(?:\s+years?|\b)", re.I)


def _codes(name: str, given: Mapping[str, Any]) -> Said:
    """Codes that are not applicable are missing values where numbers are, and labels among labels."""
    values, description = given.get("values"), str(given.get("description", "")).strip()
    if not isinstance(values, dict) or not values:
        return Said("categorical", comment=description, notes=("the dictionary lists no values",))
    codes = {k: str(v) for k, v in values.items() if k not in ("min", "max")}
    young = next(
        (m for k, v in codes.items() if _NOT_THERE.match(v) and (m := _TOO_YOUNG.search(v))), None
    )
    rule = int(young[1]) if young else None
    meanings = "; ".join(f"{k}: {v}" for k, v in codes.items())
    if {"min", "max"} & values.keys():
        low, high = values.get("min"), values.get("max")
        absent = tuple(k for k in codes if not spells_number(k))
        singles = tuple(float(k) for k in codes if spells_number(k))
        known = [v for v in (low, high, *singles) if v is not None]
        whole = all(float(v) == int(v) for v in known)
        kind = "integer" if whole else "float"
        fit = tuple(int(s) for s in singles) if whole else singles
        comment = "; ".join(v for v in (description, meanings) if v)
        return Said(kind, None, low, high, fit, bool(absent), absent, comment=comment, rule=rule)
    absent = tuple(k for k, v in codes.items() if _NOT_THERE.match(v))
    labels = tuple(k for k in codes if k not in absent and k not in RESERVED)
    if not labels:
        labels, absent = tuple(codes), ()
    short = meanings if len(meanings) <= 500 else f"{meanings[:500]}..."
    comment = "; ".join(v for v in (description, short) if v)
    return Said(
        "categorical", labels, missing=bool(absent), tokens=absent, comment=comment, rule=rule
    )


# -- Frictionless Table Schema --------------------------------------------------------------------------

_KINDS = {
    "integer": "integer",
    "number": "float",
    "year": "integer",
    "boolean": "boolean",
    "date": "date",
    "datetime": "date",
    "yearmonth": "date",
}
_STRPTIME = {"%Y": "YYYY", "%m": "MM", "%d": "DD"}


def _frictionless(given: Mapping[str, Any]) -> dict[str, Said]:
    keys = given.get("primaryKey", [])
    ids = {keys} if isinstance(keys, str) else set(keys)
    usual = given.get("missingValues", [""])
    return {f["name"]: _field(f, ids, usual) for f in given["fields"]}


def _field(f: Mapping[str, Any], ids: set[str], usual: Sequence[Any]) -> Said:
    limits = f.get("constraints", {})
    listed = [v["value"] if isinstance(v, dict) else v for v in f.get("missingValues", usual)]
    tokens = tuple(str(v) for v in listed if str(v).strip())
    about = {
        "missing": not limits.get("required", False),
        "tokens": tokens,
        "comment": str(f.get("description") or f.get("title") or ""),
    }
    if f["name"] in ids or limits.get("unique"):
        return Said(None, why="which is a key: declare it as unit if it says whose a row is")
    kind = f.get("type", "any")
    if "enum" in limits and kind != "boolean":
        return Said("categorical", tuple(dict.fromkeys(str(v) for v in limits["enum"])), **about)
    if kind in ("string", "any"):
        return Said("categorical", None, **about)
    if kind not in _KINDS:
        return Said(None, why=f"whose type {kind!r} cannot be counted")
    if kind == "boolean":
        words = [*f.get("trueValues", []), *f.get("falseValues", [])]
        known = {"true", "false", "yes", "no", "1", "0"}
        if any(str(w).lower() not in known for w in words):
            return Said("categorical", tuple(dict.fromkeys(map(str, words))), **about)
        return Said("boolean", None, **about)
    if _KINDS[kind] == "date":
        form = "YYYY-MM" if kind == "yearmonth" else _day_format(f.get("format"))
        low, high = (
            _whole_day(limits.get(k), form, k == "maximum") for k in ("minimum", "maximum")
        )
        return Said("date", None, low, high, format=form, **about)
    low, high = (_bound(limits, k, _KINDS[kind] == "integer") for k in ("minimum", "maximum"))
    marks = {k: f.get(k) for k in ("decimalChar", "groupChar") if f.get(k)}
    form = None
    if kind == "number" and marks:
        form = f"1{marks.get('groupChar', '')}234{marks.get('decimalChar', '.')}5"
    return Said(_KINDS[kind], None, low, high, format=form, **about)


def _bound(limits: Mapping[str, Any], side: str, whole: bool) -> float | int | None:
    """A bound; one that itself does not occur is moved by one where values are whole."""
    given = limits.get(side, limits.get(f"exclusive{side.title()}"))
    if given is None:
        return None
    value = int(given) if whole else float(given)
    if whole and side not in limits:
        value += 1 if side == "minimum" else -1
    return value


def _day_format(given: Any) -> str | None:
    """Ours for a strptime pattern whose day is before its time; None for the ISO form and for what is not known."""
    if not isinstance(given, str) or "%" not in given:
        return None
    form = re.split(r"[T ]?%[HIMSpfzZ]", given)[0]
    for theirs, ours in _STRPTIME.items():
        form = form.replace(theirs, ours)
    try:
        date_format("", form)
    except DataError:
        return None
    return None if form == "YYYY-MM-DD" else form


def _whole_day(given: Any, form: str | None, last: bool) -> date | None:
    if given is None:
        return None
    text = str(given)
    found = (
        day(text, None if form is None else date_format("", form))
        or day(f"{text}-01")
        or day(f"{text}-01-01")
    )
    return found


# -- SDV metadata ----------------------------------------------------------------------------------------


def _sdv(given: Mapping[str, Any]) -> dict[str, Said]:
    """V1 and V2, of one table; of several the first."""
    table = next(iter(given["tables"].values())) if "tables" in given else given
    keys = {table.get("primary_key"), *table.get("alternate_keys", [])}
    return {name: _sdtype(name, f, keys) for name, f in table["columns"].items()}


def _sdtype(name: str, f: Mapping[str, Any], keys: set[Any]) -> Said:
    kind = f.get("sdtype")
    missing = bool(f.get("range_is_nullable", True))
    if name in keys or kind == "id":
        return Said(None, why="which is a key: declare it as unit if it says whose a row is")
    match kind:
        case "categorical" | "ordinal":
            if f.get("high_cardinality"):
                return Said(None, why="which has too many values")
            labels = f.get("range_values") or f.get("order") or ()
            return Said("categorical", tuple(str(v) for v in labels) or None, missing=missing)
        case "boolean":
            return Said("boolean", missing=missing)
        case "numerical":
            whole = f.get("decimal_places") == 0 or str(
                f.get("computer_representation", "")
            ).startswith(("Int", "UInt"))
            return Said(
                "integer" if whole else "float",
                None,
                f.get("range_min"),
                f.get("range_max"),
                missing=missing,
            )
        case "datetime":
            form = _day_format(f.get("datetime_format"))
            low, high = (
                _whole_day(f.get(k), form, k == "range_max") for k in ("range_min", "range_max")
            )
            return Said("date", None, low, high, missing=missing, format=form)
    return Said(None, why=f"whose type {kind!r} is personal or unknown")


# -- rules that are common --------------------------------------------------------------------------------

_ABOUT_ADULTS = re.compile(
    r"marital|marri|spouse|income|salary|wage|earning|employ|occupation|veteran|military", re.I
)
_NEVER = re.compile(r"never|not |none|no\b|single|without", re.I)


def _offers(said: Mapping[str, Said], names: Sequence[str]) -> list[str]:
    """What the dictionary itself says of the age below which nobody has a value; else pairs of which a rule is common."""
    ages = [n for n in names if AGE_NAME.search(n) and said[n].kind in ("integer", "float")]
    if not ages:
        return []
    age = rule_word(ages[0])
    offers = []
    for name in names:
        one = said[name]
        if one.rule:
            offers.append(f"{age} < {one.rule} and {rule_word(name)} != {MISSING}")
        elif name != ages[0] and _ABOUT_ADULTS.search(name):
            child = next(
                (v for v in one.labels or () if _NEVER.match(v)), MISSING if one.missing else None
            )
            if child is not None:
                shown = child if child == MISSING else rule_word(child)
                offers.append(f"{age} < 15 and {rule_word(name)} != {shown}")
    return offers
