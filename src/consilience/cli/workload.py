"""Workloads in words: which tables, what is asked along their columns, and how much each counts.

2 | 1,2 | age,sex; sex,income | age:ranges,sex; income:prefix*5; grown,sex | @FILE with a table per line. `age:ranges` asks for
every range of age, `income:prefix` for every "up to"; a hierarchy of the schema stands where a column does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consilience.data.binned import Dates, Numeric
from consilience.data.columns import RESERVED
from consilience.data.schema import Schema
from consilience.domain import Clique, Workload, all_marginals
from consilience.errors import DomainError
from consilience.measurements import Query, Ranges

ALONG = ("prefix", "ranges")


@dataclass(frozen=True)
class Asked:
    """A workload, and along which columns something else than their values is asked for."""

    workload: Workload
    queries: dict[str, Query] = field(default_factory=dict)


def read_asked(schema: Schema, text: str) -> Asked:
    """The workload that --workload names."""
    if text.startswith("@"):
        text = _lines(text[1:])
    domain = schema.domain
    parts = [p.strip() for p in text.split(";") if p.strip()]
    if len(parts) == 1 and all(w.strip().isdigit() for w in parts[0].split(",")):
        orders = [int(w) for w in parts[0].split(",")]
        if not all(1 <= k <= len(domain) for k in orders):
            has = f"{len(domain)} column{'s' if len(domain) > 1 else ''}"
            raise DomainError(
                f"--workload {text} asks for tables of so many columns each: it must be from 1 to what the schema has, {has}"
            )
        return Asked(Workload(domain, [c for k in orders for c in all_marginals(domain, k)]))
    if not parts:
        raise DomainError(
            "--workload must name at least one table, such as 2 or 'age,sex', got none"
        )
    weights: dict[Clique, float] = {}
    asked: dict[str, dict[str, None]] = {}
    for part in parts:
        words, weight = _weighed(schema, part)
        columns: list[str] = []
        for word in words:
            column, along = _along(schema, word, part)
            columns.append(column)
            if column not in domain.levels:
                asked.setdefault(column, {})[along] = None
        clique = domain.named(columns)
        if len(clique) != len(columns):
            raise DomainError(f"the attributes of a table must be distinct, got {part!r}")
        weights[clique] = max(weight, weights.get(clique, 0.0))
    queries = {c: _query(schema, c, list(a)) for c, a in asked.items() if set(a) != {""}}
    return Asked(Workload(domain, weights), queries)


def _lines(path: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DomainError(f"the workload file {path!r} cannot be read: {error}") from error
    return ";".join(line.partition("#")[0] for line in lines if line.partition("#")[0].strip())


def _weighed(schema: Schema, part: str) -> tuple[list[str], float]:
    """The words of a table and its weight: age,sex*5."""
    words = [w.strip() for w in part.split(",") if w.strip()]
    last, star, given = (words[-1] if words else "").rpartition("*")
    if not star or words[-1] in schema.domain:
        return words, 1.0
    try:
        weight = float(given)
    except ValueError:
        weight = float("nan")
    if not 0 < weight < float("inf"):
        raise DomainError(
            f"the weight of a table must be a positive number, such as age,sex*5, got {part!r}"
        )
    return [*words[:-1], last.strip()], weight


def _along(schema: Schema, word: str, part: str) -> tuple[str, str]:
    """The column or hierarchy of a word, and what is asked along it: its values (nothing), ranges or prefixes."""
    if word in schema.domain:
        return word, ""
    name, colon, along = word.rpartition(":")
    if colon and name.strip() in schema.domain.sizes:
        column = schema[name.strip()]
        if along.strip() not in ALONG:
            raise DomainError(
                f"along a column {' or '.join(ALONG)} can be asked for, as in {column.name}:ranges, got {word!r}"
            )
        if not isinstance(column, Numeric | Dates):
            raise DomainError(
                f"ranges and prefixes must be along numbers or days, got {word!r}, which has labels without an order"
            )
        return column.name, along.strip()
    hierarchies = ", ".join(repr(g.name) for g in schema.groupings)
    known = ", ".join(map(repr, schema.domain.attributes[:12]))
    more = f", or hierarchies, {hierarchies}" if hierarchies else ""
    raise DomainError(
        f"a table must name columns of the schema, {known}{more}; got {word!r} in {part!r}"
    )


def _query(schema: Schema, name: str, asked: Sequence[str]) -> Query:
    """Everything that is asked along a column, as one query; what is missing or outside is asked for by itself."""
    column: Any = schema[name]
    size = len(column.labels)
    own = [i for i, label in enumerate(column.labels) if label in RESERVED]
    bins = size - len(own)
    intervals = [(i, i + 1) for i in own]
    if "" in asked:
        intervals += [(i, i + 1) for i in range(bins)]
    if "prefix" in asked:
        intervals += [(0, i + 1) for i in range(bins)]
    if "ranges" in asked:
        intervals += [(i, j) for i in range(bins) for j in range(i + 1, bins + 1)]
    return Ranges(size, sorted(set(intervals)))
