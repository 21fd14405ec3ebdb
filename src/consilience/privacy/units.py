"""The units of privacy as distinct types: amounts (Epsilon, Rho, MuSquared) and noise (Sigma,
Scale).

An amount of privacy adds up, so it is an exact rational and never drifts; a noise scale is what a
sampler takes, so it is a float. Each unit refuses to be mixed with any other: a rho cannot be
passed where a sigma is wanted.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, Self, TypeVar

from consilience.errors import BudgetError

T = TypeVar("T")
Real = int | float | Fraction | Decimal


def exact(value: object, name: str) -> Fraction:
    """The rational that a person means: a float is the decimal that it prints, 0.1 one tenth."""
    if isinstance(value, Unit):
        raise BudgetError(
            f"{name} must be a plain number, got {value!r}; units are never converted silently"
        )
    if isinstance(value, bool) or not isinstance(value, numbers.Real | Decimal):
        raise BudgetError(f"{name} must be a number, got {value!r}")
    if isinstance(value, numbers.Rational):  # int, Fraction and NumPy's integers
        return Fraction(int(value.numerator), int(value.denominator))
    number = value if isinstance(value, Decimal) else Decimal(repr(float(value)))
    if not number.is_finite():
        raise BudgetError(f"{name} must be finite, got {value!r}")
    return Fraction(number)


def positive(value: Real, name: str) -> Fraction:
    """`exact`, refusing zero and below."""
    number = exact(value, name)
    if number <= 0:
        raise BudgetError(f"{name} must be greater than zero, got {value!r}")
    return number


def round_up(value: Fraction, bits: int = 128) -> Fraction:
    """`value` (> 0) itself when it is short, else the next dyadic rational of `bits` bits above it.

    Sums of such numbers stay short, which sums of arbitrary rationals do not.
    """
    if value.denominator.bit_length() <= 32:
        return value
    excess = value.numerator.bit_length() - value.denominator.bit_length() - bits
    unit = Fraction(2) ** excess
    return math.ceil(value / unit) * unit


def float_above(value: Fraction) -> float:
    """The smallest float that is at least `value`."""
    x = float(value)
    return x if Fraction(x) >= value else math.nextafter(x, math.inf)


class Unit:
    """A number with a unit; `symbol` names it in errors."""

    symbol: ClassVar[str]
    value: Any  # a Fraction or a float

    def __repr__(self) -> str:
        return f"{type(self).__name__}({float(self.value):.6g})"


@dataclass(frozen=True, init=False, order=False, repr=False)
class Amount(Unit):
    """An exact, non-negative amount of privacy loss. Only equal units add or compare."""

    symbol: ClassVar[str] = "amount"
    value: Fraction

    def __init__(self, value: Real) -> None:
        number = exact(value, self.symbol)
        if number < 0:
            raise BudgetError(f"{self.symbol} must not be negative, got {value!r}")
        object.__setattr__(self, "value", number)

    def _same(self, other: object) -> Fraction:
        if type(other) is not type(self) or not isinstance(other, Amount):
            raise BudgetError(
                f"only amounts of one unit can be combined, got {self!r} and {other!r}"
            )
        return other.value

    def __add__(self, other: Self) -> Self:
        return type(self)(self.value + self._same(other))

    def __sub__(self, other: Self) -> Self:
        return type(self)(self.value - self._same(other))

    def __mul__(self, times: int | Fraction) -> Self:
        return type(self)(self.value * exact(times, "a factor"))

    def __le__(self, other: Self) -> bool:
        return self.value <= self._same(other)

    def __lt__(self, other: Self) -> bool:
        return self.value < self._same(other)

    def __ge__(self, other: Self) -> bool:
        return self.value >= self._same(other)

    def __gt__(self, other: Self) -> bool:
        return self.value > self._same(other)

    def split(self, weights: Iterable[Real]) -> tuple[Self, ...]:
        """Shares in proportion to the weights; exact rationals, so that they sum to the whole."""
        parts = [positive(w, "a weight") for w in weights]
        if not parts:
            raise BudgetError("a budget must be split into at least one part, got no weights")
        total = sum(parts, Fraction(0))
        return tuple(type(self)(self.value * part / total) for part in parts)


class Epsilon(Amount):
    """Pure DP: no output is more than exp(epsilon) times as likely on a neighbour."""

    symbol = "epsilon"


class Rho(Amount):
    """Zero-concentrated DP: Renyi divergence of order alpha at most rho alpha, all alpha > 1."""

    symbol = "rho"


class MuSquared(Amount):
    """Gaussian DP: as hard to tell apart as N(0, 1) and N(mu, 1). The squares of mu add up."""

    symbol = "mu squared"


NARROWEST = 1e-12
"""Noise, in counts, that can be drawn."""


@dataclass(frozen=True, init=False, repr=False)
class Noise(Unit):
    """How wide the noise is: a positive float. Use a subclass."""

    symbol: ClassVar[str] = "noise"
    value: float

    def __init__(self, value: Real) -> None:
        number = positive(value, self.symbol)  # a float is taken as it is; a rational rounds up
        width = float(value) if isinstance(value, float) else float_above(number)
        if width < NARROWEST:
            raise BudgetError(
                f"{self.symbol} must be at least {NARROWEST:g} counts, got {value!r}; narrower noise protects nobody"
            )
        object.__setattr__(self, "value", width)


class Sigma(Noise):
    """Parameter of the discrete Gaussian: P(z) in proportion to exp(-z^2 / (2 sigma^2))."""

    symbol = "sigma"


class Scale(Noise):
    """Parameter of the discrete Laplace: P(z) in proportion to exp(-|z| / scale)."""

    symbol = "scale"


def require(value: object, unit: type[T], what: str) -> T:
    """`value`, which must be of exactly this unit."""
    if not isinstance(value, unit):
        raise BudgetError(f"{what} must be given as {unit.__name__}(...), got {value!r}")
    return value
