"""Questions in words: mean(income) by region where age>=18. What is asked, of whom, and for which groups.

    age,sex                                         counts of every combination (nothing at all: the number of people)
    mean(income)    sum(income)                     of a column of numbers
    median(income)  quantile(income, 0.9)
    share(employment=unemployed)                    of the people asked about
    share(region) by region, employment             of each group among the people of its region; share(): among all
    difference(mean(income), sex=F, sex=M)          the first group less the second; ratio(...) the first over the second
    count()                                         to be compared in groups: ratio(count(), sex=F, sex=M)

Each may go on with `by` and columns or hierarchies, and with `where` and conditions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from consilience.data.binned import Dates, Numeric
from consilience.data.columns import Column
from consilience.data.schema import Schema
from consilience.data.within import Values
from consilience.errors import ConsilienceError
from consilience.release.conditions import Chosen, both, read_where, split, unquoted

OF_NUMBERS = ("mean", "sum", "median", "quantile")
COMPARED = ("difference", "ratio")
MEASURES = ("count", *OF_NUMBERS, "share", *COMPARED)
EXAMPLES = (
    "age,sex; mean(income); quantile(income, 0.9); share(sex=F); ratio(mean(income), sex=F, sex=M)"
)


@dataclass(frozen=True)
class Measure:
    """What is asked of a group of people: one number."""

    kind: str = "count"
    column: str = ""
    level: float = 0.5
    """Of a quantile."""
    condition: Chosen | None = None
    """Of a share of each group: those who meet it."""
    within: tuple[str, ...] = ()
    """Of a share that each group is: of all people who are the same in these columns."""
    of: Measure | None = None
    groups: tuple[Chosen, ...] = ()
    """What is compared, and in which two groups."""

    @property
    def columns(self) -> set[str]:
        """All that it reads."""
        inner = set() if self.of is None else self.of.columns
        named = ({self.column} if self.column else set()) | set(self.within) | inner
        return named.union(self.condition or (), *self.groups)


@dataclass(frozen=True)
class Question:
    """A measure, for every combination of labels of `by`, among the people that meet `where`."""

    text: str
    measure: Measure
    by: tuple[str, ...]
    where: Chosen

    @property
    def columns(self) -> set[str]:
        """All that it reads."""
        return self.measure.columns.union(self.by, self.where)


@dataclass(frozen=True)
class Askable:
    """A column or hierarchy as questions know it. ordered: its labels have an order; numbers: it has a mean."""

    name: str
    labels: tuple[str, ...]
    of: str
    ordered: bool
    numbers: bool


def askable(schema: Schema) -> list[Askable]:
    """All that questions can be about, in the order of the schema, hierarchies last."""
    columns = [
        Askable(c.name, c.labels, c.name, isinstance(c, Numeric | Dates), _has_numbers(c))
        for c in schema
    ]
    levels = schema.domain.levels
    groups = [
        Askable(g.name, schema.labels[g.name], levels[g.name].attribute, False, False)
        for g in schema.groupings
    ]
    return columns + groups


def _has_numbers(column: Column) -> bool:
    try:
        return bool(Values.of(column).codes)
    except ConsilienceError:
        return False


def read_question(
    schema: Schema, text: str, by: str | tuple[str, ...] = (), where: str = ""
) -> Question:
    """A question from words; `by` and `where` add to what the words say."""
    asked, groups, condition = _clauses(text)
    measure = Measure()
    call = _call(asked)
    if call is not None:
        measure = _measure(schema, *call)
    elif asked:
        groups = asked if not groups else f"{asked},{groups}"
    given = tuple(unquoted(w) for w in split(by)) if isinstance(by, str) else by
    names = (*(unquoted(w) for w in split(groups)), *given)
    if len(set(names)) != len(names):
        raise ConsilienceError(f"attributes must be distinct, got {', '.join(names)}")
    known = {g.name for g in schema.groupings}
    for name in names:
        if name not in known:
            _ = schema[name]  # refuses what is not declared
    other = next((w for w in (measure.of or measure).within if w not in names), None)
    if other is not None:
        raise ConsilienceError(
            f"a share within {other!r} must be asked by it, got by {', '.join(names) or 'nothing'}; add it to by"
        )
    chosen = both(read_where(schema, condition), read_where(schema, where))
    shown = asked if call is not None else ",".join(names)
    words = shown + (f" by {', '.join(names)}" if names and call is not None else "")
    told = ", ".join(w.strip() for w in (condition, where) if w.strip())
    return Question(words + (f" where {told}" if told else ""), measure, names, chosen)


def read_questions(schema: Schema, text: str, where: str = "") -> list[Question]:
    """A question a line; empty lines and what follows # are left out."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.split("#")[0].strip():
            continue
        try:
            found.append(read_question(schema, line.split("#")[0].strip(), where=where))
        except ConsilienceError as error:
            raise type(error)(f"line {number}: {error}") from None
    if not found:
        raise ConsilienceError(f"a file of questions must have one a line, such as {EXAMPLES}")
    return found


def _clauses(text: str) -> tuple[str, str, str]:
    """(what is asked, by, where): the words by and where count outside of brackets and quotes only."""
    plain, depth, quoted = [], 0, False
    for c in text:
        quoted ^= c == '"'
        depth += 0 if quoted else (c == "(") - (c == ")")
        plain.append(c if depth <= 0 and not quoted else "\0")
    found = re.fullmatch(
        r"(?P<asked>.*?)(?:(?:^|\s+)by\s+(?P<by>.*?))?(?:(?:^|\s+)where\s+(?P<where>.*))?",
        "".join(plain),
        re.DOTALL,
    )
    assert found is not None
    spans = [found.span(name) for name in ("asked", "by", "where")]
    asked, groups, condition = (text[lo:hi].strip() if lo >= 0 else "" for lo, hi in spans)
    return asked, groups, condition


def _call(text: str) -> tuple[str, list[str]] | None:
    """(name, arguments) of a call; None for a list of columns."""
    found = re.fullmatch(r"\s*([A-Za-z_]+)\s*\((.*)\)\s*", text, re.DOTALL)
    if found is None:
        return None
    if found[1] not in MEASURES:
        raise ConsilienceError(
            f"a question must be one of {', '.join(MEASURES)} or a list of columns, got {found[1]!r}; examples: {EXAMPLES}"
        )
    return found[1], split(found[2])


def _measure(schema: Schema, kind: str, arguments: list[str]) -> Measure:
    needed = {"count": 0, "quantile": 2, "difference": 3, "ratio": 3}.get(kind, 1)
    if kind == "share":
        names = tuple(map(unquoted, arguments))
        if all(name in schema.labels for name in names):
            return Measure("share", within=names)
        return Measure("share", condition=read_where(schema, ",".join(arguments)))
    if len(arguments) != needed:
        raise ConsilienceError(
            f"{kind} must have {needed or 'no'} argument{'s' if needed != 1 else ''}, got {len(arguments)}; examples: {EXAMPLES}"
        )
    if kind in COMPARED:
        inner = _call(arguments[0])
        of = None if inner is None else _measure(schema, *inner)
        if of is None or of.of is not None:
            raise ConsilienceError(
                f"{kind} must compare count(), share(...) or a measure of numbers in two groups, got {arguments[0]!r}"
            )
        groups = tuple(read_where(schema, a) for a in arguments[1:])
        return Measure(kind, of=of, groups=groups)
    if kind == "count":
        return Measure()
    made = Measure(kind, unquoted(arguments[0]))
    _ = schema[made.column]
    return replace(made, level=_level(arguments[1])) if kind == "quantile" else made


def _level(text: str) -> float:
    try:
        level = float(text)
    except ValueError:
        level = -1.0
    if not 0 < level < 1:
        raise ConsilienceError(
            f"the level of a quantile must be a number between 0 and 1, got {text!r}"
        )
    return level
