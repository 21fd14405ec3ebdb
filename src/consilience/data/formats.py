"""Formats: how the text of a number or a day is written, declared by an example.

A number: "1,234.5", "1.234,5", "1 234,5", "$1,234", "1234%", always with these digits; or "hh:mm", the hours of a time of day.
A day: "MM/DD/YYYY", "DD.MM.YYYY", "YYYYMMDD", "YYYY-MM" and the like; a time after a blank or a T does not count.
Both are patterns that every engine understands, so that the same text is the same number everywhere.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property, lru_cache

from consilience.errors import DataError

_EXAMPLE = re.compile(
    r"(?P<prefix>[^0-9]*?) ?1(?P<thousands>[.,' \u00a0\u202f]?)234((?P<decimal>[.,])5)? ?(?P<suffix>[^0-9]*)"
)
CLOCK = ("hh:mm", "hh:mm:ss")


@dataclass(frozen=True)
class NumberFormat:
    """Marks between thousands and before decimals, and what may stand before and after a number."""

    thousands: str = ""
    decimal: str = "."
    prefix: str = ""
    suffix: str = ""
    clock: bool = False

    @cached_property
    def pattern(self) -> str:
        """What a text must look like; `plain` of it is then a number as every engine reads it, or no number."""
        if self.clock:
            return r"^([01]?[0-9]|2[0-4]):([0-5][0-9])(:[0-5][0-9]([.][0-9]*)?)?$"
        before = f"({_literal(self.prefix)} ?)?" if self.prefix else ""
        after = f"( ?{_literal(self.suffix)})?" if self.suffix else ""
        whole = "[0-9]+"
        if self.thousands:
            whole = f"([0-9]{{1,3}}({_literal(self.thousands)}[0-9]{{3}})+|[0-9]+)"
        point = _literal(self.decimal)
        sign = f"([+-]?{before}|{before}[+-])" if before else "[+-]?"
        return f"^{sign}({whole}({point}[0-9]*)?|{point}[0-9]+){after}$"

    @property
    def swaps(self) -> tuple[tuple[str, str], ...]:
        """What is replaced in a text that matches, one after the other, to have it as every engine reads it."""
        gone = [v for v in (self.prefix, self.suffix, " ", self.thousands) if v]
        return (*((v, "") for v in dict.fromkeys(gone)), *self._point)

    @property
    def _point(self) -> tuple[tuple[str, str], ...]:
        return () if self.decimal == "." else ((self.decimal, "."),)

    def plain(self, text: str) -> str:
        for old, new in self.swaps:
            text = text.replace(old, new)
        return text

    def text(self, value: float) -> str:
        """A number as the format spells it; read again it is the same, hours to the minute."""
        if self.clock:
            minutes = round(value * 60)
            return f"{minutes // 60:02d}:{minutes % 60:02d}"
        size = int(abs(value)) if value == int(value) else abs(float(value))
        digits = f"{size:,}".replace(",", "_").replace(".", self.decimal)
        sign = "-" if value < 0 else ""
        return f"{sign}{self.prefix}{digits.replace('_', self.thousands)}{self.suffix}"

    @cached_property
    def _shape(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def fits(self, text: str) -> bool:
        return self._shape.match(text) is not None

    def hours(self, text: str) -> float:
        """Of a text that matches: the hours and minutes of a time of day, as hours."""
        hour, minute = text.split(":")[:2]
        return int(hour) + int(minute) / 60


@lru_cache(maxsize=256)
def number_format(column: str, example: str) -> NumberFormat:
    """The format that an example shows; refuses what shows none."""
    if example in CLOCK:
        return NumberFormat(clock=True)
    found = _EXAMPLE.fullmatch(example) if isinstance(example, str) else None
    parts = {} if found is None else {k: v or "" for k, v in found.groupdict().items()}
    prefix, suffix = parts.get("prefix", "").strip(), parts.get("suffix", "").strip()
    if found is None or not all(_is_affix(c) for c in prefix + suffix):
        raise DataError(
            f"the format of column {column!r} must show how 1234.5 is written, such as '1,234.5', '1.234,5', '$1,234', '1234%', "
            f"or be 'hh:mm', got {example!r}"
        )
    thousands = parts["thousands"]
    decimal = parts["decimal"] or ("," if thousands == "." else ".")
    if thousands == decimal:
        raise DataError(
            f"the format of column {column!r} must have different marks for thousands and decimals, got {example!r}"
        )
    return NumberFormat(thousands, decimal, prefix, suffix)


def _is_affix(c: str) -> bool:
    return (
        c.isalpha() or c in "%‰°" or unicodedata.category(c) == "Sc"
    ) and c not in "eE\u00a0\u202f"


def _literal(text: str) -> str:
    """A text as a pattern; in brackets even a mark stands for itself."""
    return "".join(f"[{c}]" for c in text)


# -- days --------------------------------------------------------------------------------------------

ISO = "YYYY-MM-DD"
_TOKENS = re.compile("YYYY|MM|DD|M|D")


@dataclass(frozen=True)
class DateFormat:
    """Where year, month and day stand: the pattern of the text up to there, and the number of each one's group (0 for none)."""

    start: str
    year: int
    month: int
    day: int

    @cached_property
    def patterns(self) -> tuple[str, str]:
        """A text matches one of these: the day alone, or followed by a time."""
        return f"{self.start}$", f"{self.start}[T ]"

    @cached_property
    def _shapes(self) -> tuple[re.Pattern[str], ...]:
        return tuple(map(re.compile, self.patterns))

    def parts(self, text: str) -> tuple[int, int, int] | None:
        """Year, month and day as they are written, whatever the calendar says; None for a text of another form."""
        found = next((m for s in self._shapes if (m := s.match(text))), None)
        if found is None:
            return None
        of = (self.year, self.month, self.day)
        year, month, day = (int(found[group]) if group else 1 for group in of)
        return year, month, day


@lru_cache(maxsize=256)
def date_format(column: str, shown: str) -> DateFormat:
    """The format of MM/DD/YYYY and the like; refuses what shows none."""
    text = re.split(r"[T ](?=[hH])", shown)[0] if isinstance(shown, str) else ""
    pieces = _TOKENS.split(text)
    tokens = _TOKENS.findall(text)
    kinds = [t[0] for t in tokens]
    plain = all(len(p) <= 1 and p in "./- " for p in pieces) and pieces[0] == pieces[-1] == ""
    if not plain or sorted(kinds) not in (["Y"], ["M", "Y"], ["D", "M", "Y"]):
        raise DataError(
            f"the format of column {column!r} must show where the parts of a day stand, such as 'MM/DD/YYYY', 'DD.MM.YYYY' or "
            f"'YYYYMMDD', got {shown!r}"
        )
    digits = []
    for i, token in enumerate(tokens):
        alone = (i == 0 or pieces[i]) and (i == len(tokens) - 1 or pieces[i + 1])
        digits.append(
            "([0-9]{4})" if token == "YYYY" else "([0-9]{1,2})" if alone else "([0-9]{2})"
        )
    start = "^" + "".join(_literal(sep) + d for sep, d in zip(pieces[:-1], digits, strict=True))
    groups = {kind: i for i, kind in enumerate(kinds, 1)}
    return DateFormat(start, groups["Y"], groups.get("M", 0), groups.get("D", 0))
