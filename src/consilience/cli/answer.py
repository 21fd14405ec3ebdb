"""consilience answer: any question to a release, with its standard error and what it rests on."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Sequence
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.table import Table
from scipy.sparse import csr_array

from consilience.cli.output import Output, json_option, quiet_option
from consilience.data.binned import Dates, Numeric
from consilience.data.columns import RESERVED, Column
from consilience.data.schema import Schema
from consilience.errors import ConsilienceError, DomainError
from consilience.measurements import as_query
from consilience.release import read_release

Chosen = dict[str, tuple[int, ...]]
_CONDITION = re.compile(r"""\s*(?P<name>"[^"]*"|[^<>=!,"]+?)\s*(?P<op>>=|<=|!=|=|>|<)\s*
                            (?P<value>(?:"[^"]*"|[^,"])*?)\s*(?:,|$)""", re.VERBOSE)  # fmt: skip


@click.command("answer")
@click.argument("release", type=click.Path(path_type=Path))
@click.argument("attributes", default="")
@click.option(
    "--where", "condition", default="", help="Conditions that must all hold: age>=65,sex=F|X."
)
@click.option(
    "--errors",
    type=click.Choice(["auto", "all", "none"]),
    default="auto",
    show_default=True,
    help="Standard errors: of measured answers, of inferred ones too (which refits, and takes long), or none.",
)
@click.option("--replicates", default=50, show_default=True, type=click.IntRange(min=2))
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values.")
@json_option
@quiet_option
def answer_command(
    release: Path,
    attributes: str,
    condition: str,
    errors: str,
    replicates: int,
    as_csv: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Counts by ATTRIBUTES from a RELEASE folder: every combination of them, or just the number of people.

    ATTRIBUTES are names of columns or hierarchies separated by commas; any of them, measured together or not. Each count
    comes with its standard error, and the answer says what it rests on: measured, inferred (through tables that were measured)
    or assumed (nothing links the attributes).

    \b
    Examples:
      consilience answer release/ age,sex
      consilience answer release/ sex --where 'income>=50000,age<65'
      consilience answer release/ --where 'sex=F' --json
    """
    output = Output(quiet, as_json)
    published = read_release(release)
    model, schema = published.model, published.schema
    asked = tuple(w.strip() for w in attributes.split(",") if w.strip())
    question = Question(schema, asked, read_where(schema, condition))
    joint = question.joint
    with output.working("answering") as report:
        if joint and not model.in_model(joint):
            model.prepare(report)  # may take seconds; the rest does not
        counts = model.answer(joint, question.query) if joint else np.array([model.total])
        trust = model.trust(joint) if joint else None
    spread: NDArray[np.float64] | None = None
    measured = not joint or model.in_model(joint)
    noisy = bool(
        model.measurements
    )  # choices alone (fem, dual-query) have no noise of a known width
    if joint and (errors == "all" or (errors == "auto" and measured and noisy)):
        with output.working("standard errors") as report:
            method = "auto" if measured else "bootstrap"
            spread = model.stderr(
                joint,
                question.query,
                method=method,
                replicates=replicates,
                progress=report,
            )
    rests = "measured" if trust is None else trust.verdict
    rows = [
        {**labels, "count": float(c), "stderr": None if s is None else float(s)}
        for labels, c, s in zip(
            question.labelled(),
            counts,
            [None] * len(counts) if spread is None else spread,
            strict=True,
        )
    ]
    if as_csv and not as_json:
        _write_csv(rows)
    output.json(
        {
            "attributes": list(asked),
            "where": condition or None,
            "trust": rests,
            "rests_on": None if trust is None else str(trust),
            "private": published.private,
            "rows": rows,
        }
    )
    if not as_csv and not as_json:
        output.results.print(_table(asked, rows))
    if trust is not None:
        style = None if rests == "measured" else "yellow"
        output.say(f"{rests}: {trust}", style)
        if not noisy:
            output.say("no standard error: choices were published, not counts with known noise")
        elif not measured and errors == "auto":
            output.say("its standard error needs refits of the model; ask with --errors all", style)
    if not published.private:
        output.say(str(published.facts.get("mark")), "red")


class Question:
    """The joint table that holds the answer, and the query that adds up its cells."""

    def __init__(self, schema: Schema, asked: Sequence[str], where: Chosen) -> None:
        if len(set(asked)) != len(asked):
            raise ConsilienceError(f"attributes must be distinct, got {', '.join(asked)}")
        groupings = {g.name: g for g in schema.groupings}
        domain = schema.domain
        self.names = tuple(asked)
        self.shown: list[tuple[str, ...]] = []
        bases = [groupings[a].of if a in groupings else a for a in asked]
        self.joint = domain.clique([*bases, *where])
        outputs: dict[str, list[NDArray[np.int64]]] = {a: [] for a in self.joint}
        order: list[tuple[str, int]] = []
        for name, base in zip(asked, bases, strict=True):
            labels = schema[base].labels
            if name in groupings:
                groups = list(groupings[name].groups.items())
                place = {v: i for i, (_, members) in enumerate(groups) for v in members}
                codes = np.array([place[v] for v in labels])
                self.shown.append(tuple(g for g, _ in groups))
            else:
                kept = where.get(base, tuple(range(len(labels))))
                codes = np.full(len(labels), -1)
                codes[list(kept)] = np.arange(len(kept))
                self.shown.append(tuple(labels[i] for i in kept))
            order.append((base, len(outputs[base])))
            outputs[base].append(codes)
        shape = domain.shape_of(self.joint)
        rows = np.zeros(shape, dtype=np.int64)
        outside = np.zeros(shape, dtype=bool)
        for (base, which), labels in zip(order, self.shown, strict=True):
            codes = self._along(outputs[base][which], self.joint.index(base))
            rows, outside = rows * len(labels) + codes, outside | (codes < 0)
        for name, kept in where.items():
            mask = ~np.isin(np.arange(domain[name]), kept)
            outside = outside | self._along(mask, self.joint.index(name))
        cells = np.flatnonzero(~outside.reshape(-1))
        answers = int(np.prod([len(v) for v in self.shown], dtype=np.int64))
        adds = (np.ones(cells.size), (rows.reshape(-1)[cells], cells))
        self.query = as_query(csr_array(adds, shape=(answers, rows.size)))

    def _along(self, values: NDArray[Any], axis: int) -> NDArray[Any]:
        return values.reshape([-1 if i == axis else 1 for i in range(len(self.joint))])

    def labelled(self) -> list[dict[str, str]]:
        shape = tuple(len(v) for v in self.shown)
        return [
            {n: self.shown[i][c] for i, (n, c) in enumerate(zip(self.names, cell, strict=True))}
            for cell in np.ndindex(shape)
        ]


def _table(names: Sequence[str], rows: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(name)
    table.add_column("count", justify="right")
    table.add_column("± standard error", justify="right")
    for row in rows:
        error = "" if row["stderr"] is None else f"± {row['stderr']:,.1f}"
        table.add_row(*(row[n] for n in names), f"{row['count']:,.1f}", error)
    return table


def _write_csv(rows: list[dict[str, Any]]) -> None:
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


# -- conditions such as age>=65,sex=F ----------------------------------------------------------------


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
        name, value = found["name"].strip().strip('"'), found["value"]
        column = schema[name]
        codes = set(_codes(column, found["op"], value))
        if name in chosen:
            codes &= set(chosen[name])
        if not codes:
            raise DomainError(
                f"{found[0].strip(' ,')} must hold for some label of {name!r}, it holds for none of "
                f"{_some(column)}"
            )
        chosen[name] = tuple(sorted(codes))
    return chosen


def _codes(column: Column, op: str, text: str) -> list[int]:
    values = [v.strip().strip('"') for v in text.split("|")]
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
