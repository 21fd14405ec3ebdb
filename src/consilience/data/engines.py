"""EngineTable: a table that stays in its engine (SQLite, PostgreSQL, Spark, a warehouse), reached through Ibis.

Coding and counting run there; what leaves the engine is counts. Ibis is an extra: pip install 'consilience[engines]'.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import count, islice
from operator import add
from typing import Any
from urllib.parse import unquote

import numpy as np

from consilience.data.coding import Coded, Kind, coded, spells_number
from consilience.data.files import first_line, one_of
from consilience.data.partitions import PartitionCounts
from consilience.data.schema import Schema
from consilience.data.survey import CodedTable, Survey, check_columns
from consilience.data.values import BLANKS
from consilience.domain import Clique, CliqueVector, Domain, Layout
from consilience.errors import ConsilienceError, DataError
from consilience.progress import Progress, Step

CODED_CELLS = 1 << 22
"""Cells of a joint table up to which cliques are counted together and summed here: fewer scans."""

TOGETHER = 1 << 14
"""The same where all joint tables are counted in one scan: few keys per row, and few groups."""
UNNESTS = ("duckdb", "postgres")
"""Engines that turn an array into rows, and so count every row under many keys in one scan."""

TRIES = ("duckdb", "pyspark", "snowflake", "bigquery", "trino")
"""Engines that can try a cast and give NULL."""


def _ibis() -> Any:
    try:
        import ibis  # pyright: ignore[reportMissingImports] (an extra)
    except ImportError:
        raise DataError(
            "tables in other engines are read through Ibis, which is not installed; "
            "run: pip install 'consilience[engines]'"
        ) from None
    return ibis


@contextmanager
def _quiet(shown: str, secrets: Sequence[str] = ()) -> Iterator[None]:
    """Ibis and its drivers warn about each other's future; what they refuse becomes one line, without parts of the address."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (ConsilienceError, KeyboardInterrupt):
            raise
        except Exception as error:  # every driver has exceptions of its own
            said = first_line(error)
            for secret in secrets:
                said = said.replace(secret, "...")
            raise DataError(f"the engine refused {shown!r}: {said}") from (
                None if secrets else error
            )


class IbisEngine:
    """The operations of `coding.Engine` as Ibis expressions."""

    def __init__(self, backend: str) -> None:
        self.ibis = _ibis()
        self.backend = backend
        name = "trim" if backend in ("sqlite", "duckdb") else "btrim"

        def trim(x: str, blanks: str) -> str: ...  # pyright: ignore[reportReturnType]

        self._trim: Callable[..., Any] = self.ibis.udf.scalar.builtin(
            trim, name=name, signature=(("string", "string"), "string")
        )

        def md5(x: str) -> str: ...  # pyright: ignore[reportReturnType]

        self.md5: Callable[..., Any] = self.ibis.udf.scalar.builtin(
            md5, signature=(("string",), "string")
        )

    def literal(self, value: int | float | str | bool) -> Any:
        kind = {bool: "boolean", int: "int64", float: "float64", str: "string"}[type(value)]
        return self.ibis.literal(value, type=kind)

    def null(self) -> Any:
        return self.ibis.null("int64")

    def is_null(self, x: Any) -> Any:
        return x.isnull()

    def is_nan(self, x: Any) -> Any:
        # SQLite has no NaN: it stores NULL.
        return self.literal(False) if self.backend == "sqlite" else x.isnan()

    def negate(self, condition: Any) -> Any:
        return ~condition

    def trim(self, x: Any) -> Any:
        if (
            self.backend == "pyspark"
        ):  # its text literals have no form feed and no vertical tab; patterns are slow there
            return self._trim(x, self._blanks)
        return self._trim(x, self.literal(BLANKS))

    @cached_property
    def _blanks(self) -> Any:
        def char(code: int) -> str: ...  # pyright: ignore[reportReturnType]

        made: Callable[..., Any] = self.ibis.udf.scalar.builtin(
            char, name="char", signature=(("int64",), "string")
        )
        return reduce(add, [made(self.literal(ord(c))) for c in BLANKS])

    def lower(self, x: Any) -> Any:
        return x.lower()

    def matches(self, x: Any, pattern: str) -> Any:
        # Java's $ also matches before a last line break.
        java = self.backend == "pyspark" and pattern.endswith("$")
        return x.re_search(pattern[:-1] + r"\z" if java else pattern)

    def part(self, x: Any, start: int, length: int) -> Any:
        return x.substr(start - 1, length)

    def extract(self, x: Any, pattern: str, group: int) -> Any:
        return x.re_extract(pattern, group)

    def replace(self, x: Any, old: str, new: str) -> Any:
        return x.replace(old, new)

    def to_number(self, x: Any) -> Any:
        return self._cast(x, "float64")

    def to_whole(self, x: Any) -> Any:
        return self._cast(x, "int64")

    def _cast(self, x: Any, kind: str) -> Any:
        if not x.type().is_string():
            return x.cast(kind)
        if self.backend in TRIES:
            return x.try_cast(kind)
        if self.backend == "sqlite":  # never an error there: text that is no number is 0
            return x.cast(kind)
        # Elsewhere a cast may raise: only text that is a number is cast.
        safe = spells_number(x, self) if kind == "float64" else x.re_search("^[0-9]{1,9}$")
        return safe.ifelse(x, self.ibis.null("string")).cast(kind)

    def to_text(self, x: Any) -> Any:
        return x.cast("string")

    def year_month_day(self, x: Any) -> tuple[Any, Any, Any]:
        return tuple(p.cast("int64") for p in (x.year(), x.month(), x.day()))  # pyright: ignore

    def to_day(self, x: Any) -> Any:
        return x.try_cast("date") if self.backend in TRIES else None

    def divide(self, x: Any, by: int) -> Any:
        return (x // self.literal(by)).cast("int64")

    def case(self, branches: Sequence[tuple[Any, Any]], otherwise: Any) -> Any:
        return self.ibis.cases(*branches, else_=otherwise) if branches else otherwise

    def lookup(self, x: Any, codes: Mapping[str, int]) -> Any:
        branches = [(x == self.literal(text), self.literal(i)) for text, i in codes.items()]
        return self.case(branches, self.null())


@dataclass(frozen=True, eq=False, repr=False)
class EngineTable(CodedTable):
    """An Ibis table coded by a schema; a `Source` of which only counts leave the engine."""

    schema: Schema
    table: Any
    shown: str
    progress: Progress | None = None
    secrets: tuple[str, ...] = ()
    """Parts of the address, which no message shows."""
    _columns: list[Coded] = field(init=False)
    _whole: Any = field(init=False)
    """The table as it is, before rows of a unit that has enough others are left out."""

    def __post_init__(self) -> None:
        types = self.table.schema()
        check_columns(self.schema, list(types.names), self.shown)
        engine, parts = IbisEngine(self._backend), []
        object.__setattr__(self, "_whole", self.table)
        if self.schema.unit is not None:
            with _quiet(self.shown, self.secrets):
                object.__setattr__(self, "table", self._few_of_each_unit(engine))
        for column in self.schema:
            kind, x = _reading(self.table[column.name], types[column.name])
            parts.append(coded(column, x, kind, engine))
        object.__setattr__(self, "_columns", parts)

    def _few_of_each_unit(self, engine: IbisEngine) -> Any:
        """At most so many rows of each unit, by a hash of the row: by that unit's own rows alone, and the same in every scan."""
        ibis, table, unit = engine.ibis, self.table, self.table[self.schema.unit]
        named = engine.trim(unit.cast("string")).nullif("")
        texts = [ibis.coalesce(table[c.name].cast("string"), ibis.literal("")) for c in self.schema]
        row = reduce(lambda a, b: a + ibis.literal("|") + b, texts)
        # SQLite has no hash: rows are taken in the order that they were entered.
        order = table.rowid() if self._backend == "sqlite" else engine.md5(row)
        place = ibis.row_number().over(group_by=named, order_by=[order, row])
        taken = {c.lower() for c in table.columns}
        whose, which = islice((n for i in count() if (n := f"_{i}") not in taken), 2)
        marked = table.mutate(**{whose: named, which: place})
        kept = (marked[which] < self.schema.rows_per_unit) & marked[whose].notnull()
        return marked.filter(kept).select([c.name for c in self.schema])

    @property
    def _backend(self) -> str:
        return self.table.get_backend().name

    def __repr__(self) -> str:
        return f"EngineTable({self.shown!r} in {self._backend}, {len(self.schema)} columns)"

    def _look(self) -> Survey:
        """In one query."""
        sums = {"n": self.table.count()}
        for i, part in enumerate(self._columns):
            for k, found in enumerate((part.unread, part.outside, part.missing)):
                sums[f"c{i}_{k}"] = self.table.count(where=found)
        with _quiet(self.shown, self.secrets):
            (row,) = self.table.aggregate(**sums).to_pyarrow().to_pylist()
            whole = (
                row["n"] if self.schema.unit is None else self._whole.count().to_pyarrow().as_py()
            )
        counts = [int(row[name] or 0) for name in sums]
        return Survey.of(self.schema, counts, int(whole) - counts[0])

    def undeclared(self, name: str, most: int) -> list[tuple[str, int]]:
        part = self._columns[self.domain.position(name)]
        with _quiet(self.shown, self.secrets):
            settled = self.table.filter(part.unread | part.outside)
            values = settled.select(v=settled[name].cast("string"))
            counted = values.group_by("v").aggregate(n=lambda t: t.count())
            found = counted.to_pyarrow().to_pylist()
        ranked = sorted(found, key=lambda row: (-row["n"], row["v"]))
        return [(row["v"], int(row["n"])) for row in ranked[:most]]

    def marginals(self, cliques: Iterable[Iterable[str]]) -> CliqueVector:
        """Exact counts of many marginals: in one scan where the engine can, else one GROUP BY per joint table of some cliques."""
        layout = Layout(self.domain, cliques)
        vector = CliqueVector(layout, np.zeros(layout.cells))
        if self._backend == "pyspark" and any(layout.cliques):
            return self._in_partitions(layout)
        if self._backend in UNNESTS:
            groups = list(joint_groups(self.domain, layout.cliques, TOGETHER))
            found: Iterable[np.ndarray] = self._in_one_scan([joint for joint, _ in groups])
        else:
            groups = list(joint_groups(self.domain, layout.cliques, CODED_CELLS))
            found = (self._joint(joint) for joint, _ in groups)
        for number, ((joint, members), counts) in enumerate(zip(groups, found, strict=True), 1):
            for clique in members:
                away = tuple(i for i, a in enumerate(joint) if a not in clique)
                vector[clique][...] = counts.sum(axis=away)
            if self.progress is not None:
                self.progress(Step("counting", number, len(groups)))
        return vector

    def _in_one_scan(self, joints: Sequence[Clique]) -> list[np.ndarray]:
        """Every row becomes one key per joint table, the place of its cell among the cells of them all; keys are counted."""
        layout = Layout(self.domain, joints)
        engine = IbisEngine(self._backend)
        used = dict.fromkeys(a for joint in joints for a in joint)
        names = {a: f"c{i}" for i, a in enumerate(used)}
        codes = {names[a]: self._columns[self.domain.position(a)].code for a in names}
        with _quiet(self.shown, self.secrets):
            if not codes:
                return [np.array(float(self.records)) for _ in joints]
            coded_table = self.table.select(**codes)
            keys = [
                self._key(engine, coded_table, names, joint, int(at))
                for joint, at in zip(layout.cliques, layout.offsets[:-1], strict=True)
            ]
            each = coded_table.select(k=engine.ibis.array(keys).unnest())
            found = each.group_by("k").aggregate(n=lambda t: t.count()).to_pyarrow()
        counts = np.zeros(layout.cells)
        counts[found["k"].to_numpy().astype(np.int64)] = found["n"].to_numpy()
        vector = CliqueVector(layout, counts)
        return [vector[joint] for joint in joints]

    def _in_partitions(self, layout: Layout) -> CliqueVector:
        """Spark reads, each partition's batches are coded and counted where they are, one table of counts of each comes back.

        Here: not coded by Spark, which took three times the rest on 15 columns of text and numbers.
        """
        used = self.domain.clique({a for clique in layout.cliques for a in clique})
        columns, types = [c for c in self.schema if c.name in used], self.table.schema()
        read = {
            f"c{i}": _reading(self.table[c.name], types[c.name])[1] for i, c in enumerate(columns)
        }
        read = {n: x.cast("float64") if x.type().is_decimal() else x for n, x in read.items()}
        engine, work = self.table.get_backend(), PartitionCounts(columns, list(layout.cliques))
        vector = CliqueVector(layout, np.zeros(layout.cells))
        with _quiet(self.shown, self.secrets):
            frame = engine.raw_sql(engine.compile(self.table.select(**read)))
            parts = frame.mapInArrow(work, "cells binary, counts binary")
            for done, row in enumerate(parts.collect(), 1):
                at = np.frombuffer(row["cells"], np.int64)
                vector.values[at] += np.frombuffer(row["counts"], np.float64)
                if self.progress is not None:
                    self.progress(Step("counting", done, None))
        return vector

    def _key(
        self, engine: IbisEngine, table: Any, names: Mapping[str, str], joint: Clique, at: int
    ) -> Any:
        """at + the place of the row's cell in the table over `joint`, the last attribute changing fastest."""
        place: Any = engine.literal(0)
        for a in joint:
            code = table[names[a]].cast("int64")
            place = place * engine.literal(self.domain[a]) + code
        return place + engine.literal(at)

    def _joint(self, clique: Clique) -> np.ndarray:
        counts = np.zeros(self.domain.shape_of(clique))
        if not clique:
            counts[...] = self.records
            return counts
        keys = {f"c{i}": self._columns[self.domain.position(a)].code for i, a in enumerate(clique)}
        with _quiet(self.shown, self.secrets):
            coded_table = self.table.select(**keys)
            grouped = coded_table.group_by(list(keys)).aggregate(n=lambda t: t.count())
            found = grouped.to_pyarrow()
        cells = tuple(found[k].to_numpy().astype(np.int64) for k in keys)
        np.add.at(counts, cells, found["n"].to_numpy().astype(np.float64))
        return counts


def joint_groups(
    domain: Domain, cliques: Sequence[Clique], most_cells: int
) -> Iterator[tuple[Clique, list[Clique]]]:
    """Cliques gathered greedily under joint cliques of at most so many cells: each is one scan of the table."""
    left = sorted(cliques, key=lambda c: (-domain.size(c), cliques.index(c)))
    while left:
        joint, members, rest = left[0], [left[0]], []
        for clique in left[1:]:
            larger = domain.clique({*joint, *clique})
            if len(larger) == len(joint) or domain.size(larger) <= most_cells:
                joint = larger
                members.append(clique)
            else:
                rest.append(clique)
        yield joint, members
        left = rest


def _reading(x: Any, kind: Any) -> tuple[Kind, Any]:
    if kind.is_boolean():
        return "truth", x
    if kind.is_integer():
        return "whole", x
    if kind.is_floating() or kind.is_decimal():
        return "number", x
    if kind.is_date():
        return "day", x
    if kind.is_timestamp():
        return "day", x.date()
    return "text", x if kind.is_string() else x.cast("string")


def engine_table(
    address: str,
    schema: Schema,
    *,
    name: str | None,
    progress: Progress | None = None,
) -> EngineTable:
    """A table by the address of its engine, such as sqlite:///people.db or postgres://host/database."""
    ibis = _ibis()
    shown, secrets = _hidden(address)
    with _quiet(shown, secrets):
        connection = ibis.connect(address)
        tables = sorted(connection.list_tables())
        name = one_of(tables, name, shown)
        table = connection.table(name)
    return EngineTable(schema, table, f"{shown}::{name}", progress, secrets)


def _hidden(address: str) -> tuple[str, tuple[str, ...]]:
    """What of an address may be shown, its scheme, and what may not, longest first: who, where, and the password."""
    scheme, _, rest = address.partition("://")
    who, _, place = rest.rpartition("@")
    parts = {address, rest, who, place, *re.split(r"[:/?&=@]", rest), *re.split(r"[/?&@]", rest)}
    parts |= {unquote(p) for p in parts}
    return f"{scheme}://...", tuple(sorted((p for p in parts if len(p) > 2), key=len, reverse=True))
