"""Columns of a schema: how the values of one column become codes from 0 to size - 1, and back.

Every coding is a total function: whatever a cell holds, it gets a code, because an error that
depends on a value would tell something about it. Missing values get a code of their own, the last
one, unless the declaration says which value they take. Text that is no number, and labels that are
not declared, count as missing unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.errors import DataError

MISSING = "(missing)"
"""How the code of missing values is shown."""

Values = NDArray[Any]
CodeArray = NDArray[np.int64]


class Column(Protocol):
    """A declared column: a name, a label for each code, and the coding both ways."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> tuple[str, ...]:
        """What each code is called, the own code of missing values included."""
        ...

    def encode(self, values: Values) -> CodeArray:
        """A code for each value, never an error."""
        ...

    def decode(self, codes: NDArray[np.integer]) -> Values:
        """A value for each code that `encode` gives back the same code."""
        ...


def _is_missing(value: object) -> bool:
    """None, NaN and the like: what does not equal itself (pandas' NA answers neither)."""
    if value is None:
        return True
    same = value == value
    return not (isinstance(same, bool | np.bool_) and bool(same))


# -- categories ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Categorical:
    """Declared labels, in order. A value is matched as text.

    missing: the label that missing values take; None gives them a code of their own.
    other: the label that undeclared labels take; None treats them as missing.
    """

    name: str
    values: tuple[str, ...]
    missing: str | None = None
    other: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        if not self.values:
            raise DataError(f"column {self.name!r} must declare at least one label, got none")
        bad = next((v for v in self.values if not isinstance(v, str)), None)
        if bad is not None:
            raise DataError(f"labels of column {self.name!r} must be text, got {bad!r}")
        twice = next((v for v in self.values if self.values.count(v) > 1), None)
        if twice is not None:
            raise DataError(f"labels of column {self.name!r} must be distinct, got {twice!r} twice")
        for role, label in (("missing", self.missing), ("other", self.other)):
            if label is not None and label not in self.values:
                raise DataError(
                    f"what {role} values of column {self.name!r} become must be one of its "
                    f"labels, got {label!r}"
                )

    @property
    def labels(self) -> tuple[str, ...]:
        return self.values if self.missing is not None else (*self.values, MISSING)

    def encode(self, values: Values) -> CodeArray:
        code = {label: i for i, label in enumerate(self.values)}
        missing = len(self.values) if self.missing is None else code[self.missing]
        other = missing if self.other is None else code[self.other]

        def code_of(value: object) -> int:
            return missing if _is_missing(value) else code.get(str(value), other)

        # Text is the usual case and by far the fastest to look up.
        found = (code.get(v, other) if isinstance(v, str) else code_of(v) for v in values.tolist())
        return np.fromiter(found, np.int64, count=len(values))

    def decode(self, codes: NDArray[np.integer]) -> Values:
        """Labels, and None for the own code of missing values."""
        return np.array([*self.values, None], dtype=object)[codes]


# -- yes and no ----------------------------------------------------------------------------------

_TRUE = frozenset({"true", "yes", "1", "1.0"})
_FALSE = frozenset({"false", "no", "0", "0.0"})


@dataclass(frozen=True)
class Boolean:
    """No is 0 and yes is 1; true and false, yes and no, 1 and 0 are understood in any case.

    missing: what missing values take; None gives them a code of their own.
    """

    name: str
    missing: bool | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        return ("no", "yes") if self.missing is not None else ("no", "yes", MISSING)

    def encode(self, values: Values) -> CodeArray:
        missing = 2 if self.missing is None else int(self.missing)
        if values.dtype.kind == "b":
            return values.astype(np.int64)

        def code_of(value: object) -> int:
            text = str(value).strip().lower()
            return 1 if text in _TRUE else 0 if text in _FALSE else missing

        return np.fromiter(map(code_of, values.tolist()), np.int64, count=len(values))

    def decode(self, codes: NDArray[np.integer]) -> Values:
        """Booleans, and None for the own code of missing values."""
        if self.missing is not None:
            return np.asarray(codes) == 1
        return np.array([False, True, None], dtype=object)[codes]


# -- numbers -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Numeric:
    """Bins [e_0, e_1), [e_1, e_2), ..., [e_{k-1}, e_k]; what lies outside takes the nearest bin.

    whole: values are whole numbers, so bins are named and decoded as such.
    missing: the number that missing values take; None gives them a code of their own.
    """

    name: str
    edges: tuple[float, ...]
    whole: bool = False
    missing: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "edges", tuple(self.edges))
        if len(self.edges) < 2:
            raise DataError(
                f"column {self.name!r} must have at least two edges, got {len(self.edges)}"
            )
        if not np.isfinite(self.edges).all():
            raise DataError(f"edges of column {self.name!r} must be finite, got {self.edges}")
        for low, high in pairwise(self.edges):
            if not low < high:
                raise DataError(
                    f"edges of column {self.name!r} must increase, got {low:g} before {high:g}"
                )
        if self.whole and any(e != int(e) for e in self.edges):
            raise DataError(
                f"edges of whole-number column {self.name!r} must be whole, got {self.edges}"
            )
        if self.missing is not None and not np.isfinite(self.missing):
            raise DataError(
                f"what missing values of column {self.name!r} become must be a finite number, "
                f"got {self.missing}"
            )

    @classmethod
    def uniform(cls, name: str, low: float, high: float, bins: int, whole: bool = False) -> Numeric:
        """Bins of equal width (to the nearest whole number if the values are whole)."""
        if bins < 1:
            raise DataError(f"column {name!r} must have at least one bin, got {bins}")
        edges = np.linspace(low, high, bins + 1)
        return cls(name, tuple((np.round(edges) if whole else edges).tolist()), whole)

    @property
    def bins(self) -> int:
        return len(self.edges) - 1

    @property
    def labels(self) -> tuple[str, ...]:
        named = tuple(self._bin_name(i) for i in range(self.bins))
        return named if self.missing is not None else (*named, MISSING)

    def _bin_name(self, i: int) -> str:
        low, high, last = self.edges[i], self.edges[i + 1], i == self.bins - 1
        if not self.whole:
            return f"[{low:g}, {high:g}{']' if last else ')'}"
        top = int(high) if last else int(high) - 1
        return f"{int(low)}" if top == low else f"{int(low)}-{top}"

    def encode(self, values: Values) -> CodeArray:
        numbers = _numbers(values)
        inner = np.array(self.edges[1:-1])
        codes = np.searchsorted(inner, numbers, side="right").astype(np.int64)
        missing = (
            self.bins
            if self.missing is None
            else int(np.searchsorted(inner, self.missing, side="right"))
        )
        return np.where(np.isnan(numbers), missing, codes)

    def decode(self, codes: NDArray[np.integer]) -> Values:
        """The middle of each bin, rounded down if whole; NaN for the own code of missing values."""
        edges = np.array(self.edges)
        middle = (edges[:-1] + edges[1:]) / 2
        if self.whole:
            middle = np.floor(middle)
            if self.missing is not None:
                return middle.astype(np.int64)[codes]
        return np.append(middle, np.nan)[codes]


def _numbers(values: Values) -> NDArray[np.float64]:
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    return np.fromiter(map(_number, _cells(values)), np.float64, count=len(values))


def _cells(values: Values) -> Iterable[object]:
    return values.tolist() if values.dtype.kind in "OUS" else [None] * len(values)


def _number(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number past every float
        return float("inf") if value > 0 else float("-inf")
    except (TypeError, ValueError):
        return float("nan")
