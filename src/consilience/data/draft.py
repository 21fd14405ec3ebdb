"""Drafting: a first schema for a table, read off the table and therefore not private, or off its public dictionary.

Labels, bounds and bins that come from the records tell about the records. A draft says so in its first lines, and is to
be edited until everything in it is public knowledge or a choice made without the data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from consilience.data.binned import Dates, Numeric
from consilience.data.columns import MISSING, Boolean, Categorical, Column
from consilience.data.duck import DuckDBTable, opened_table
from consilience.data.files import FAILURES, Opened, refusal
from consilience.data.looks import Look
from consilience.data.schema import Schema
from consilience.data.schema_file import Fields, column_text, format_schema
from consilience.errors import DataError
from consilience.progress import Progress, Step

WARNING = """DRAFT, read off the table: NOT private as it is, and a release refuses it.
Labels, bounds and bins below were taken from the records, and publishing them tells about the records.
Before a private release, go through every column: keep what is public knowledge or would be chosen
without seeing the data, add labels that could occur, round the bounds. Then delete the line draft = [...],
which lists what to check."""
ID_NAME = re.compile(r"(^|[^a-z])(id|ids|uuid|guid|ssn|key)$|(ID|Id|Key)$|^(id|ID|Id)([^a-z]|$)")
"""Names that look like those of identifiers."""
AGE_NAME = re.compile(r"(^|[^a-z])ages?($|[^a-z])|^agep$|_age$", re.I)
"""Names of columns on which rules about children stand."""
ASKED = "as asked"
COMMON = 0.8
"""Share of a label in all rows from which it says nothing that children have no other."""
BY_CHANCE = 1e-6


@dataclass(frozen=True)
class Draft:
    """A drafted schema, with what to say above each column.

    undecided: {column: its fields} of columns that lack what only the owner can decide. offers: rules that no row breaks, or
    that are common. source: what it was read off, for the first lines. remarks: what else there is to say.
    """

    schema: Schema | None
    comments: Mapping[str, str]
    left_out: Mapping[str, str]
    head: str = WARNING
    undecided: Mapping[str, Fields] = field(default_factory=dict)
    offers: Sequence[str] = ()
    remarks: Sequence[str] = ()

    def to_toml(self) -> str:
        head = self.head
        for name, why in self.left_out.items():
            head += f"\nLeft out: {name!r}, {why}."
        for remark in self.remarks:
            head += f"\nRemark: {remark}."
        if self.offers:
            head += "\n\nRules that are common. Which hold for everybody is for you to say: state those here, without the #:"
            head += (
                "\nimpossible = [\n"
                + "".join(f"    {_quoted(rule)},\n" for rule in self.offers)
                + "]"
            )
        parts = (
            [] if self.schema is None else [format_schema(self.schema, self.comments, head + "\n")]
        )
        if self.schema is None:
            parts.append("".join(f"# {line}".rstrip() + "\n" for line in head.splitlines()))
        parts += [column_text(n, f, self.comments.get(n, "")) for n, f in self.undecided.items()]
        return "\n".join(parts)


def _quoted(rule: str) -> str:
    return f"'{rule}'" if '"' in rule else f'"{rule}"'


def draft_schema(
    table: Any,
    *,
    delimiter: str | None = None,
    name: str | None = None,
    encoding: str | None = None,
    missing: Iterable[str] = (),
    ignore: Iterable[str] = (),
    progress: Progress | None = None,
) -> Draft:
    """Look at every column of a table and guess what it is.

    missing: tokens for missing values beside the usual ones. ignore: columns to leave out. progress sees each column.
    """
    connection, opened, types = opened_table(table, delimiter, name, encoding=encoding)
    try:  # read once: every column takes several questions
        connection.execute(f"CREATE TEMP TABLE drafted AS SELECT * FROM {opened.relation}")
    except FAILURES as error:
        raise refusal(opened.shown, error) from error
    copied = Opened("drafted", opened.shown)
    given, unwanted = tuple(missing), set(ignore)
    columns: list[Any] = []
    comments: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for done, (column, type_name) in enumerate(types.items()):
        if progress is not None:
            progress(Step("looking at every column", done, len(types)))
        look = Look(connection, copied, column, type_name, given)
        found = ASKED if column in unwanted else look.guess()
        if isinstance(found, str):
            left_out[column] = found
        else:
            columns.append(found.column)
            comments[column] = found.said
    if not columns:
        raise DataError(
            f"the table {opened.shown!r} must have a column that can be counted, it has none: "
            + "; ".join(f"{n!r} {why}" for n, why in list(left_out.items())[:3])
        )
    tokens = tuple(dict.fromkeys(t for c in columns for t in c.tokens))
    columns = [replace(c, tokens=tokens) for c in columns]
    schema = Schema(columns, left_out, name=table_name(table), draft=_to_check(columns, left_out))
    offers = _offers(DuckDBTable(schema, connection, copied, types))
    return Draft(schema, comments, left_out, offers=offers, remarks=opened.remarks)


def table_name(table: Any) -> str | None:
    """The name of a file, without its endings, as the name of the table."""
    if not isinstance(table, str | Path):
        return None
    stem = Path(table).name.partition(".")[0].strip()
    return stem if stem.isprintable() and stem else None


def _to_check(columns: Sequence[Column], left_out: Mapping[str, str]) -> list[str]:
    """What of a draft tells about the records, kind by kind."""
    kinds = {
        "labels of": Categorical,
        "bounds and bins of": Numeric,
        "first and last day of": Dates,
    }
    said = [
        f"{what} {', '.join(names)}"
        for what, kind in kinds.items()
        if (names := [c.name for c in columns if isinstance(c, kind)])
    ]
    seen = [*(c.name for c in columns), *left_out]
    ids = [n for n in seen if ID_NAME.search(n) or "identifier" in left_out.get(n, "")]
    if ids:
        said.append(
            f"whether {' or '.join(ids)} says whose a row is: if somebody may have several rows, declare unit and rows_per_unit"
        )
    return said


def _offers(table: DuckDBTable) -> list[str]:
    """Rules about the young that no row breaks: below some age a column holds one label only, which is not everybody's."""
    ages = [c for c in table.schema if isinstance(c, Numeric) and AGE_NAME.search(c.name)]
    pairs = [(age, c) for age in ages for c in table.schema if c is not age]
    counts = table.marginals([(a.name, c.name) for a, c in pairs])
    offers = []
    for age, column in pairs:
        clique = table.domain.clique((age.name, column.name))
        cells = counts[clique] if clique[0] == age.name else counts[clique].T
        found = _of_the_young(cells[: age.bins])
        if found is not None:
            bins, label = found
            bound = age.edges[bins]
            offers.append(f"{rule_word(age.name)} < {bound:g} and {_other(column, label)}")
    return offers


def _of_the_young(cells: np.ndarray) -> tuple[int, int] | None:
    """How many of the first bins hold one label only, and which; None where that is no wonder."""
    share = cells.sum(axis=0) / max(1.0, cells.sum())
    young = np.cumsum(cells, axis=0)
    label = int(young[0].argmax())
    alone = (young.sum(axis=1) == young[:, label]) & (young.sum(axis=1) > 0)
    bins = int(alone.argmin()) if not alone.all() else 0
    if not bins or share[label] > COMMON:
        return None
    rows = float(young[bins - 1, label])
    return (bins, label) if rows * np.log(max(share[label], 1e-300)) < np.log(BY_CHANCE) else None


def _other(column: Column, label: int) -> str:
    """Anything but this label."""
    name, shown = rule_word(column.name), column.labels[label]
    if isinstance(column, Boolean):
        return (
            f"{name} = {'no' if shown == 'yes' else 'yes'}"
            if shown != MISSING
            else f"{name} != {MISSING}"
        )
    return f"{name} != {shown if shown == MISSING else rule_word(shown)}"


def rule_word(text: str) -> str:
    """A name or a label as a rule takes it."""
    plain = re.fullmatch(r"[^\s()<>=!,'\"]+", text) and text not in ("and", "or", "not", "in")
    return text if plain else f"'{text}'" if "'" not in text else f'"{text}"'
