"""Rules: what cannot occur, as an expression over labels and bounds, such as `age < 15 and marital != never`.

A rule is compiled to combinations of labels. A cell is impossible where everything that it may hold meets the rule: a bin that
a bound cuts stays possible, and so does a missing value, of which nothing is known, unless the rule names (missing) itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from consilience.data.binned import Dates, Numeric
from consilience.data.columns import MISSING, RESERVED, Boolean, Categorical, Column
from consilience.data.values import day, spells_number
from consilience.errors import DataError

Labels = frozenset[str]
Conjunction = Mapping[str, Labels]
"""{column: labels}: every combination of one of these labels from each column."""

MOST_COMBINATIONS = 1000
_TOKEN = re.compile(
    r"\s*(?:(?P<own>\((?:missing|other|outside)\))|(?P<op><=|>=|!=|<>|==|[<>=])|(?P<mark>[(),])"
    r"|'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\"|(?P<word>[^\s()<>=!,'\"]+))"
)
_OPPOSITE = {
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
    "=": "!=",
    "!=": "=",
    "in": "not in",
    "not in": "in",
}
_KEYWORDS = ("and", "or", "not", "in")


@dataclass(frozen=True)
class Rule:
    """A compiled rule: its combinations, and in words which bins a bound cuts."""

    text: str
    combinations: tuple[Conjunction, ...]
    remarks: tuple[str, ...]


def compiled(text: str, columns: Mapping[str, Column]) -> Rule:
    """The rule that a text states over these columns; refuses in one line what cannot be kept."""
    parser = _Parser(text, columns)
    expression = parser.whole()
    remarks: dict[str, None] = {}
    found = _combined(expression, False, text, remarks)
    kept = [c for c in dict.fromkeys(tuple(sorted(f.items())) for f in found) if c]
    cut = tuple(remarks)
    if not kept:
        why = f": {cut[0]}; make the bound an edge" if cut else ""
        raise DataError(f"the rule {text!r} must exclude some combination, it excludes none{why}")
    combinations = tuple(dict(c) for c in kept)
    alone = next((name for c in combinations for name in c if len(c) == 1), None)
    if alone is not None:
        raise DataError(
            f"the rule {text!r} must tie at least two columns together, got {alone!r} alone; leave an impossible label undeclared"
        )
    return Rule(text, combinations, cut)


# -- the expression ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Comparison:
    column: Column
    operator: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class _Joined:
    """`all` of the parts, or any."""

    all: bool
    parts: tuple[_Comparison | _Joined | _Negated, ...]


@dataclass(frozen=True)
class _Negated:
    part: _Comparison | _Joined | _Negated


Expression = _Comparison | _Joined | _Negated


@dataclass
class _Parser:
    """Recursive descent: or, then and, then not, then comparisons. Mutable: its place in the words."""

    text: str
    columns: Mapping[str, Column]
    words: list[tuple[str, str]] = field(default_factory=list)
    """(kind, word) of what is still to be read."""

    def __post_init__(self) -> None:
        at = 0
        while self.text[at:].strip():
            found = _TOKEN.match(self.text, at)
            if found is None:
                raise self._wrong(f"got {self.text[at:].strip()!r}")
            kind = found.lastgroup or ""
            self.words.append((kind, found[kind]))
            at = found.end()

    def whole(self) -> Expression:
        found = self._any()
        if self.words:
            raise self._wrong(f"got {self.words[0][1]!r} after its end")
        return found

    def _any(self) -> Expression:
        parts = [self._all()]
        while self._skip("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else _Joined(False, tuple(parts))

    def _all(self) -> Expression:
        parts = [self._one()]
        while self._skip("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else _Joined(True, tuple(parts))

    def _one(self) -> Expression:
        if self._skip("not"):
            return _Negated(self._one())
        if self._skip("(", "mark"):
            found = self._any()
            self._expect(")")
            return found
        return self._comparison()

    def _comparison(self) -> _Comparison:
        name = self._value("a column")
        if name not in self.columns:
            known = ", ".join(map(repr, list(self.columns)[:12]))
            raise DataError(
                f"the rule {self.text!r} must compare columns with values, got {name!r} where a column belongs; there are {known}"
            )
        column = self.columns[name]
        negated = self._skip("not")
        if self._skip("in"):
            self._expect("(")
            values = [self._value("a label")]
            while self._skip(",", "mark"):
                values.append(self._value("a label"))
            self._expect(")")
            return _Comparison(column, "not in" if negated else "in", tuple(values))
        if negated or not self.words or self.words[0][0] != "op":
            raise self._wrong(f"got no comparison after {name!r}")
        operator = {"==": "=", "<>": "!="}.get(self.words[0][1], self.words[0][1])
        self.words.pop(0)
        return _Comparison(column, operator, (self._value("a value"),))

    def _skip(self, word: str, kind: str = "word") -> bool:
        if self.words and self.words[0] == (kind, word):
            self.words.pop(0)
            return True
        return False

    def _expect(self, mark: str) -> None:
        if not self._skip(mark, "mark"):
            raise self._wrong(f"a {mark!r} is lacking")

    def _value(self, what: str) -> str:
        if not self.words or self.words[0][0] in ("op", "mark"):
            raise self._wrong(f"{what} is lacking")
        kind, word = self.words[0]
        if kind == "word" and word in _KEYWORDS:
            raise self._wrong(f"{what} is lacking before {word!r}")
        self.words.pop(0)
        return word

    def _wrong(self, what: str) -> DataError:
        return DataError(
            f'a rule must be comparisons joined by and, or, not, such as "age < 15 and marital != never", {what} in {self.text!r}'
        )


# -- which cells always meet it ----------------------------------------------------------------------


def _combined(
    e: Expression, negated: bool, text: str, remarks: dict[str, None]
) -> list[dict[str, Labels]]:
    """The expression, or its negation, as a list of conjunctions of which one must hold."""
    match e:
        case _Negated():
            return _combined(e.part, not negated, text, remarks)
        case _Comparison():
            operator = _OPPOSITE[e.operator] if negated else e.operator
            labels = _always(e.column, operator, e.values, text, remarks)
            return [{e.column.name: labels}] if labels else []
    parts = [_combined(p, negated, text, remarks) for p in e.parts]
    if e.all == negated:
        return [c for part in parts for c in part]
    found: list[dict[str, Labels]] = [{}]
    for part in parts:
        joined = ({**a, **b, **_meet(a, b)} for a in found for b in part)
        found = [c for c in joined if all(c.values())]
        if len(found) > MOST_COMBINATIONS:
            raise DataError(
                f"a rule must come to at most {MOST_COMBINATIONS:,} combinations, {text!r} has more; state it as several rules"
            )
    return found


def _meet(a: Mapping[str, Labels], b: Mapping[str, Labels]) -> dict[str, Labels]:
    return {k: a[k] & b[k] for k in a.keys() & b.keys()}


def _always(
    column: Column, operator: str, values: Sequence[str], text: str, remarks: dict[str, None]
) -> Labels:
    """The labels of a column of which every value meets the comparison."""
    if operator in ("in", "not in"):
        each = [_always(column, "=", [v], text, remarks) for v in values]
        if operator == "in":
            return frozenset().union(*each)
        without = [_always(column, "!=", [v], text, remarks) for v in values]
        return frozenset.intersection(*without)
    (value,) = values
    labels = column.labels
    if isinstance(column, Boolean):
        value = {"true": "yes", "false": "no"}.get(value.lower(), value)
    if value in labels and operator in ("=", "!="):
        others = frozenset(v for v in labels if v != value and v != MISSING)
        return frozenset([value]) if operator == "=" else others
    if value in RESERVED:
        raise DataError(
            f"{value} must be a cell of column {column.name!r} and be compared by = or !=, got it in {text!r}; declare it, or "
            "compare with something else"
        )
    holds = _bounds(column, operator, value)
    if holds is None:
        known = ", ".join(map(repr, [v for v in labels if v not in RESERVED][:8]))
        raise DataError(
            f"column {column.name!r} must be compared with its labels or bounds, got {operator} {value!r} in {text!r}; it has "
            f"{known}"
        )
    certain, opposite = holds
    kept = [v for v in labels if v not in RESERVED]
    for i, label in enumerate(kept):
        cut = not certain(i) and not opposite(i) and not isinstance(column, Categorical)
        if cut and operator not in ("=", "!="):
            said = f"{operator} {value} cuts {label!r} of {column.name!r}, which stays possible"
            remarks[said] = None
    return frozenset(label for i, label in enumerate(kept) if certain(i))


Test = Callable[[int], bool]


def _bounds(column: Column, operator: str, value: str) -> tuple[Test, Test] | None:
    """Whether all that a bin holds meets the comparison, and whether none of it does; None where they do not compare."""
    spans: list[tuple[float, float, bool]]
    match column:
        case Numeric() if spells_number(value):
            bound, spans = float(value), [_span(column, i) for i in range(column.bins)]
        case Dates() if (when := day(value)) is not None:
            bound, spans = float(when.toordinal()), [_period(column, i) for i in range(column.bins)]
        case Categorical() if spells_number(value) and any(map(spells_number, column.values)):
            bound = float(value)
            spelled = [float(v) if spells_number(v) else float("nan") for v in column.values]
            spans = [(v, v, True) for v in spelled]
        case _:
            return None
    return _test(operator, bound, spans), _test(_OPPOSITE[operator], bound, spans)


def _test(operator: str, bound: float, spans: Sequence[tuple[float, float, bool]]) -> Test:
    """Of spans (low, high, closed): whether every number in it compares so with the bound."""

    def holds(i: int) -> bool:
        low, high, closed = spans[i]
        match operator:
            case "<":
                return high < bound or (high == bound and not closed)
            case "<=":
                return high <= bound
            case ">":
                return low > bound
            case ">=":
                return low >= bound
            case "=":
                return low == high == bound
        return bound < low or bound > high or (bound == high and not closed)

    return holds


def _span(column: Numeric, i: int) -> tuple[float, float, bool]:
    low, high, last = column.edges[i], column.edges[i + 1], i == column.bins - 1
    return (low, high if last else high - 1, True) if column.whole else (low, high, last)


def _period(column: Dates, i: int) -> tuple[float, float, bool]:
    first = column.index(column.first)
    begin = column.start(first + i).toordinal()
    try:
        end = column.start(first + i + 1).toordinal() - 1
    except (ValueError, OverflowError):  # the calendar ends with the year 9999
        end = date.max.toordinal()
    return float(begin), float(end), True
