"""Conditions in words, age>=65,sex=F|X, as codes of columns: all of them must hold."""

from __future__ import annotations

import re
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

from consilience.data.binned import Dates, Numeric
from consilience.data.columns import RESERVED, Column
from consilience.data.schema import Schema
from consilience.errors import DomainError

Chosen = dict[str, tuple[int, ...]]
_CONDITION = re.compile(r"""\s*(?P<name>"(?:[^"]|"")*"|[^<>=!,"]+?)\s*(?P<op>>=|<=|!=|=|>|<)\s*
                            (?P<value>(?:"(?:[^"]|"")*"|[^,"])*?)\s*(?:,|\s+and\s+|$)""", re.VERBOSE)  # fmt: skip


def quoted(name: str) -> str:
    """A name or a label such that words around it do not matter; a quote in it is doubled."""
    return '"' + name.replace('"', '""') + '"'


def unquoted(text: str) -> str:
    """What a word means, with quotes around it or without."""
    text = text.strip()
    inside = len(text) > 1 and text[0] == text[-1] == '"'
    return text[1:-1].replace('""', '"') if inside else text.strip('"')


def split(text: str, at: str = ",") -> list[str]:
    """Cut at a character that is outside of quotes, at commas outside of brackets; empty parts are left out."""
    parts, depth, inside, begun = [], 0, False, 0
    for i, c in enumerate(text):
        inside ^= c == '"'
        depth += 0 if inside or at != "," else (c == "(") - (c == ")")
        if c == at and depth == 0 and not inside:
            parts.append(text[begun:i])
            begun = i + 1
    return [p.strip() for p in [*parts, text[begun:]] if p.strip()]


def both(one: Chosen, other: Chosen) -> Chosen:
    """What meets both."""
    met = {**one, **other}
    for name in one.keys() & other.keys():
        met[name] = tuple(sorted(set(one[name]) & set(other[name])))
        if not met[name]:
            raise DomainError(
                f"the conditions on {name!r} must leave something, together they leave nothing"
            )
    return met


def read_where(schema: Schema, text: str) -> Chosen:
    """{column: codes} of conditions that must all hold. A value may be quoted, and a|b means either."""
    chosen: Chosen = {}
    at = 0
    while at < len(text.rstrip()):
        found = _CONDITION.match(text, at)
        if found is None or found.end() == at:
            raise DomainError(
                f"conditions must look like age>=65,sex=F, got {text[at:]!r}; put a value with commas in quotes"
            )
        at = found.end()
        name, value = unquoted(found["name"]), found["value"]
        level = schema.domain.levels.get(name)
        column = schema[name if level is None else level.attribute]
        if level is None:
            codes = set(_codes(column, found["op"], value))
        else:
            codes = _of_groups(schema, name, found["op"], value)
            name = level.attribute
        if name in chosen:
            codes &= set(chosen[name])
        if not codes:
            raise DomainError(
                f"{found[0].strip(' ,')} must hold for some label of {name!r}, it holds for none of "
                f"{_some(column)}"
            )
        chosen[name] = tuple(sorted(codes))
    return chosen


def _of_groups(schema: Schema, name: str, op: str, text: str) -> set[int]:
    """The codes of a column that lie in some of the groups of a hierarchy."""
    known, level = schema.labels[name], schema.domain.levels[name]
    if op not in ("=", "!="):
        raise DomainError(f"{op} is for numbers or days, got {name}{op}{text}; use = or !=")
    values = [unquoted(v) for v in split(text, "|")]
    unknown = next((v for v in values if v not in known), None)
    if unknown is not None:
        raise DomainError(
            f"a group of hierarchy {name!r} must be one of {', '.join(map(repr, known[:12]))}"
            f"{', ...' if len(known) > 12 else ''}, got {unknown!r}"
        )
    meant = {known.index(v) for v in values}
    return {i for i, unit in enumerate(level.units.tolist()) if (unit in meant) == (op == "=")}


def _codes(column: Column, op: str, text: str) -> list[int]:
    values = [unquoted(v) for v in split(text, "|")]
    everything = range(len(column.labels))
    if op in ("=", "!="):
        meant = {_equal(column, v) for v in values}
        return [i for i in everything if (i in meant) == (op == "=")]
    if len(values) != 1 or not isinstance(column, Numeric | Dates):
        raise DomainError(
            f"{op} is for one bound of a column of numbers or days, got {column.name}{op}{text}; use = or !="
        )
    low, high = _range(column, op, values[0])
    return list(range(low, high))


def _equal(column: Column, value: str) -> int:
    """A label; of numbers and days also a value that has a bin of its own."""
    if value in column.labels:
        return column.labels.index(value)
    raise DomainError(
        f"a label of column {column.name!r} must be one of {_some(column)}, got {value!r}"
    )


def _range(column: Numeric | Dates, op: str, text: str) -> tuple[int, int]:
    """Bins [low, high) that lie wholly on the asked side; a bound inside a bin is refused."""
    starts = _starts(column)
    bound = _bound(column, text)
    if op in (">", "<=") and isinstance(column, Numeric) and not column.whole:
        if op == "<=" and bound >= column.edges[-1]:
            return 0, column.bins
        raise DomainError(
            f"bins hold their lower bound, so ask {column.name}{'>=' if op == '>' else '<'}{text} "
            f"instead of {column.name}{op}{text}"
        )
    step = timedelta(days=1) if isinstance(column, Dates) else 1
    if op in (">", "<="):  # whole numbers and days: > 64 is >= 65
        bound = bound + step
        op = ">=" if op == ">" else "<"
    if bound <= starts[0]:
        cut = 0
    elif bound >= starts[-1]:
        cut = column.bins
    elif bound in starts:
        cut = starts.index(bound)
    else:
        near = next((a, b) for a, b in pairwise(starts) if a < bound < b)
        raise DomainError(
            f"a bound of {column.name!r} must lie between bins, {text} is inside the one from {near[0]} "
            f"to {near[1]}; ask for one of these"
        )
    return (cut, column.bins) if op == ">=" else (0, cut)


def _starts(column: Numeric | Dates) -> list[Any]:
    """The first value of each bin, and the first past the last one."""
    if isinstance(column, Numeric):
        edges = list(column.edges)
        return [*edges[:-1], edges[-1] + 1 if column.whole else edges[-1]]
    first = column.index(column.first)
    return [column.start(first + i) for i in range(column.bins + 1)]


def _bound(column: Numeric | Dates, text: str) -> Any:
    try:
        return float(text) if isinstance(column, Numeric) else date.fromisoformat(text)
    except ValueError:
        what = "a number" if isinstance(column, Numeric) else "a day such as 2021-07-31"
        raise DomainError(
            f"a bound of column {column.name!r} must be {what}, got {text!r}"
        ) from None


def _some(column: Column) -> str:
    shown = [v for v in column.labels if v not in RESERVED]
    return ", ".join(map(repr, shown[:12])) + (", ..." if len(shown) > 12 else "")
