"""Columns of a schema: how the values of one column become codes from 0 to size - 1, and back.

Every coding is a total function: whatever a cell holds, it gets a code, because an error that
depends on a value would tell something about it. Missing values get a code of their own, the last
one, unless the declaration says which value they take. Text that is no number, and labels that are
not declared, count as missing unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.data.values import BLANKS, Cell, Values, cells, spells_number, yes_or_no
from consilience.errors import DataError

MISSING = "(missing)"
"""How the code of missing values is shown."""
OTHER = "(other)"
"""How the own code of undeclared labels is shown."""
OUTSIDE = "(outside)"
"""How the own code of numbers and days out of bounds is shown."""
RESERVED = (MISSING, OTHER, OUTSIDE)

CodeArray = NDArray[np.int64]


class Column(Protocol):
    """A declared column: a name, a label for each code, and the coding both ways."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> tuple[str, ...]:
        """What each code is called, the own codes of missing and other values included."""
        ...

    @property
    def tokens(self) -> tuple[str, ...]:
        """What stands for a missing value, beside empty text."""
        ...

    @property
    def missing_code(self) -> int:
        """The code that missing values take, their own or another."""
        ...

    def encode(self, values: Values) -> CodeArray:
        """A code for each value, never an error."""
        ...

    def decode(self, codes: NDArray[np.integer]) -> Values:
        """A value for each code that `encode` gives back the same code."""
        ...


# -- categories ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Categorical:
    """Declared labels, in order. Blanks around a value do not count.

    Text must equal a label, a whole number its digits, a number the number that a label spells; true
    and false match in any case, and a day its ISO form.
    missing: the label that missing values take; None gives them a code of their own.
    other: the label that undeclared labels take, or OTHER for a code of their own; None treats them as missing.
    tokens: what else stands for a missing value, such as NA or ?, unless it is one of the labels.
    """

    name: str
    values: tuple[str, ...]
    missing: str | None = None
    other: str | None = None
    tokens: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        object.__setattr__(self, "tokens", checked_tokens(self.name, self.tokens))
        if not self.values:
            raise DataError(f"column {self.name!r} must declare at least one label, got none")
        seen: set[str] = set()
        for label in self.values:
            _check_label(self.name, label)
            if label in seen:
                raise DataError(
                    f"labels of column {self.name!r} must be distinct, got {label!r} twice"
                )
            seen.add(label)
        for role, label in (("missing", self.missing), ("other", self.other)):
            own = role == "other" and label == OTHER
            if label is not None and not own and label not in seen:
                raise DataError(
                    f"what {role} values of column {self.name!r} become must be one of its "
                    f"labels, got {label!r}"
                )

    @property
    def labels(self) -> tuple[str, ...]:
        other = (OTHER,) if self.other == OTHER else ()
        return (*self.values, *other, *((MISSING,) if self.missing is None else ()))

    @property
    def absent(self) -> tuple[str, ...]:
        """The tokens for missing values that are no labels."""
        return tuple(t for t in self.tokens if t not in self.by_text)

    @property
    def missing_code(self) -> int:
        return self.labels.index(MISSING if self.missing is None else self.missing)

    @property
    def other_code(self) -> int:
        return self.missing_code if self.other is None else self.labels.index(self.other)

    @cached_property
    def by_text(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.values)}

    @cached_property
    def by_number(self) -> dict[float, int]:
        """Labels that spell a number; of two that spell the same one the first counts."""
        spelled = [(i, v) for i, v in enumerate(self.values) if spells_number(v)]
        return {float(v): i for i, v in reversed(spelled)}

    @cached_property
    def by_truth(self) -> dict[bool, int]:
        """Labels that say true or false; of two that say the same the first counts."""
        words = {"true": True, "false": False}
        said = [(i, v.lower()) for i, v in enumerate(self.values) if v.lower() in words]
        return {words[v]: i for i, v in reversed(said)}

    def encode(self, values: Values) -> CodeArray:
        missing, other, by_text = self.missing_code, self.other_code, self.by_text

        def code_of(value: Cell) -> int:
            match value:
                case None:
                    return missing
                case str():
                    return by_text.get(value, other)
                case bool():
                    return self.by_truth.get(value, other)
                case int():
                    return by_text.get(str(value), other)
                case float():
                    return self.by_number.get(value, other)
                case date():
                    return by_text.get(value.isoformat(), other)

        return np.fromiter(map(code_of, cells(values, self.absent)), np.int64, count=len(values))

    def decode(self, codes: NDArray[np.integer]) -> Values:
        """Labels, and None for the own code of missing values."""
        return np.array([None if v == MISSING else v for v in self.labels], dtype=object)[codes]


def _check_label(column: str, label: object) -> None:
    if not isinstance(label, str):
        raise DataError(f"labels of column {column!r} must be text, got {label!r}")
    if not label or label != label.strip(BLANKS):
        raise DataError(
            f"labels of column {column!r} must be text without blanks around it, got {label!r}; "
            "values are compared without theirs, and an empty value is a missing one"
        )
    if label in RESERVED:
        raise DataError(
            f"labels of column {column!r} must not be one of {', '.join(RESERVED)}, got {label!r}; "
            "those are the names of codes"
        )


def checked_tokens(column: str, tokens: Sequence[str]) -> tuple[str, ...]:
    """What stands for missing values beside empty text; refuses what no trimmed text could equal."""
    if isinstance(tokens, str) or not all(
        isinstance(t, str) and t and t == t.strip(BLANKS) for t in tokens
    ):
        raise DataError(
            f"what stands for missing values of column {column!r} must be a list of text without blanks around it, got "
            f"{tokens!r}; empty text always does"
        )
    return tuple(dict.fromkeys(tokens))


# -- yes and no ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Boolean:
    """No is 0 and yes is 1; true and false, yes and no, 1 and 0 are understood in any case.

    missing: what missing values take; None gives them a code of their own. tokens: what else stands for a missing value.
    """

    name: str
    missing: bool | None = None
    tokens: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", checked_tokens(self.name, self.tokens))
        if self.missing is not None and not isinstance(self.missing, bool):
            raise DataError(
                f"what missing values of column {self.name!r} become must be true or false, "
                f"got {self.missing!r}"
            )

    @property
    def labels(self) -> tuple[str, ...]:
        return ("no", "yes") if self.missing is not None else ("no", "yes", MISSING)

    @property
    def missing_code(self) -> int:
        return 2 if self.missing is None else int(self.missing)

    def encode(self, values: Values) -> CodeArray:
        if values.dtype.kind == "b":
            return values.astype(np.int64)
        code: dict[bool | None, int] = {False: 0, True: 1, None: self.missing_code}
        found = (code[yes_or_no(v)] for v in cells(values, self.tokens))
        return np.fromiter(found, np.int64, count=len(values))

    def decode(self, codes: NDArray[np.integer]) -> Values:
        """Booleans, and None for the own code of missing values."""
        if self.missing is not None:
            return np.asarray(codes) == 1
        return np.array([False, True, None], dtype=object)[codes]


# -- what numbers and days share -----------------------------------------------------------------

CLIP = "clip"


@dataclass(frozen=True)
class Ends:
    """The codes past the bins of a column: where what is outside and what is missing goes."""

    bins: int
    outside: str
    missing_bin: int | None

    @property
    def labels(self) -> tuple[str, ...]:
        own = (OUTSIDE,) if self.outside == OUTSIDE else ()
        return (*own, *((MISSING,) if self.missing_bin is None else ()))

    @property
    def missing_code(self) -> int:
        if self.missing_bin is not None:
            return self.missing_bin
        return self.bins + (self.outside == OUTSIDE)

    @property
    def below_code(self) -> int:
        return self._beyond(0)

    @property
    def above_code(self) -> int:
        return self._beyond(self.bins - 1)

    def _beyond(self, nearest: int) -> int:
        return {CLIP: nearest, OUTSIDE: self.bins, MISSING: self.missing_code}[self.outside]


def check_outside(column: str, outside: object) -> None:
    allowed: Sequence[str] = (CLIP, OUTSIDE, MISSING)
    if outside not in allowed:
        raise DataError(
            f"what lies outside of column {column!r} must become {CLIP!r}, {OUTSIDE!r} or "
            f"{MISSING!r}, got {outside!r}"
        )
