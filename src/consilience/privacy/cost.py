"""Cost: what a release spends, as a value that is known before data is touched.

A cost is a list of spends, each the price of one primitive in every currency that applies to it:

    primitive                            epsilon     rho (zCDP)       mu^2 (Gaussian DP)
    discrete Laplace, scale b            D1 / b      epsilon^2 / 2    -
    selection (exponential mechanism)    epsilon     epsilon^2 / 8    -
    discrete Gaussian, sigma             -           D2^2 / 2 sigma^2 D2^2 / (sigma^2 - 2)
    adaptive composition, bound rho      -           rho              -

Costs add in each currency; a currency that one spend lacks is lacking in the sum. Proofs,
and lemma 1, are in docs/privacy.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from math import prod
from typing import Any

from consilience.errors import BudgetError
from consilience.privacy.sensitivity import Neighbours, Sensitivity, residual_family
from consilience.privacy.units import (
    Epsilon,
    MuSquared,
    Rho,
    Scale,
    Sigma,
    require,
    round_up,
)

SMOOTHING = Fraction(2)
"""Variance given up to read discrete Gaussian noise as rounded continuous noise (lemma 1)."""

SLACK_PER_CELL = Fraction(3, 10**17)
"""What lemma 1 adds to epsilon, and takes from ln(delta), per changed cell: at least
ln((1+b)/(1-b)) with b = 2 sum_n exp(-2 pi^2 SMOOTHING n^2) < 1.44e-17.
"""

FORMS = ("laplace", "selection", "noisy-max", "gaussian", "adaptive")
"""What a ledger may hold; "noisy-max" is in those of version 0.1 and is not drawn any more."""


@dataclass(frozen=True)
class Spend:
    """The price of one primitive, `times` times; `cells` that change carry Gaussian noise."""

    form: str
    rho: Fraction
    epsilon: Fraction | None = None
    mu_squared: Fraction | None = None
    cells: int = 0
    times: int = 1


@dataclass(frozen=True)
class Cost:
    """The spends of a release under one neighbour relation."""

    neighbours: Neighbours
    spends: tuple[Spend, ...] = ()

    @classmethod
    def laplace(cls, sensitivity: Sensitivity, scale: Scale) -> Cost:
        """Discrete Laplace noise of one scale on every entry of an integer vector."""
        width = Fraction(require(scale, Scale, "Laplace noise").value)
        return cls._pure(sensitivity.neighbours, "laplace", sensitivity.l1 / width, Fraction(1, 2))

    @classmethod
    def selection(cls, neighbours: Neighbours, epsilon: Epsilon) -> Cost:
        """One exponential mechanism, P(i) in proportion to exp(epsilon score_i / (2 sensitivity)).

        Its privacy loss has range epsilon, hence epsilon^2 / 8 rather than epsilon^2 / 2.
        """
        return cls._pure(
            neighbours,
            "selection",
            require(epsilon, Epsilon, "selection").value,
            Fraction(1, 8),
        )

    @classmethod
    def gaussian(cls, sensitivity: Sensitivity, sigma: Sigma) -> Cost:
        """Discrete Gaussian noise of one sigma on every entry of an integer vector."""
        variance = Fraction(require(sigma, Sigma, "Gaussian noise").value) ** 2
        d = sensitivity.l2_squared
        if d <= 0:
            raise BudgetError("a release that no one can change costs nothing; publish it as it is")
        smooth = round_up(d / (variance - SMOOTHING)) if variance > SMOOTHING else None
        spend = Spend(
            "gaussian", round_up(d / (2 * variance)), mu_squared=smooth, cells=sensitivity.cells
        )
        return cls(sensitivity.neighbours, (spend,))

    @classmethod
    def residuals(
        cls,
        neighbours: Neighbours,
        sizes: Sequence[int],
        family: Sequence[tuple[int, ...]],
        sigmas: Sequence[Sigma],
        places: Sequence[int] | None = None,
    ) -> Cost:
        """Discrete Gaussian noise on every residual of a family, each with its own sigma: one person moves them together.

        places: as in `residual_family`.
        """
        variances = [Fraction(require(s, Sigma, "Gaussian noise").value) ** 2 for s in sigmas]
        smooth = None
        if min(variances) > SMOOTHING:
            less = [v - SMOOTHING for v in variances]
            smooth = round_up(residual_family(neighbours, sizes, family, less, places))
        rho = round_up(residual_family(neighbours, sizes, family, variances, places) / 2)
        at = [1] * len(family) if places is None else places
        touched = neighbours.changed_cells * neighbours.rows
        cells = sum(
            prod(sizes[i] for i in t) * (touched if n > 1 else 1)
            for t, n in zip(family, at, strict=True)
        )
        return cls(neighbours, (Spend("gaussian", rho, mu_squared=smooth, cells=cells),))

    @classmethod
    def adaptive(cls, neighbours: Neighbours, rho: Rho) -> Cost:
        """Primitives whose widths are chosen along the way, their rhos adding up to at most `rho`.

        A bound fixed beforehand is a valid filter (docs/privacy.md, "Adding up"); who spends it must
        keep count.
        """
        amount = require(rho, Rho, "an adaptive composition").value
        if amount <= 0:
            raise BudgetError("an adaptive composition must have a rho above zero, got 0")
        return cls(neighbours, (Spend("adaptive", amount),))

    @classmethod
    def _pure(
        cls, neighbours: Neighbours, form: str, epsilon: Fraction, per_square: Fraction
    ) -> Cost:
        if epsilon <= 0:
            raise BudgetError("a release that no one can change costs nothing; publish it as it is")
        amount = round_up(epsilon)
        return cls(neighbours, (Spend(form, amount**2 * per_square, epsilon=amount),))

    @classmethod
    def sum(cls, neighbours: Neighbours, costs: Iterable[Cost]) -> Cost:
        """Sequential composition; equal spends are counted, not repeated."""
        counts: dict[Spend, int] = {}
        for cost in costs:
            if cost.neighbours != neighbours:
                raise BudgetError(
                    f"costs must have the same neighbours, got {neighbours} and {cost.neighbours}"
                )
            for s in cost.spends:
                once = replace(s, times=1)
                counts[once] = counts.get(once, 0) + s.times
        return cls(neighbours, tuple(replace(s, times=n) for s, n in counts.items()))

    def __add__(self, other: Cost) -> Cost:
        return Cost.sum(self.neighbours, (self, other))

    def __mul__(self, times: int) -> Cost:
        """The same release `times` times."""
        if not isinstance(times, int) or times < 0:
            raise BudgetError(f"a cost is multiplied by a whole number, got {times!r}")
        spends = tuple(replace(s, times=s.times * times) for s in self.spends)
        return Cost(self.neighbours, spends if times else ())

    def to_record(self) -> list[dict[str, Any]]:
        """The spends as JSON, every amount exact."""
        plain = (asdict(s) for s in self.spends)
        return [
            {k: str(v) if isinstance(v, Fraction) else v for k, v in spend.items()}
            for spend in plain
        ]

    @classmethod
    def from_record(cls, neighbours: Neighbours, record: Iterable[Mapping[str, Any]]) -> Cost:
        """The cost that `to_record` wrote down."""
        spends = []
        for written in record:
            fields = dict(written)
            if fields["form"] not in FORMS:
                raise ValueError(f"unknown form {fields['form']!r}")
            for name in ("rho", "epsilon", "mu_squared"):
                fields[name] = None if fields[name] is None else Fraction(fields[name])
            spends.append(Spend(**fields))
        return cls(neighbours, tuple(spends))

    @property
    def rho(self) -> Rho:
        """zCDP: every primitive has it."""
        return Rho(sum((s.rho * s.times for s in self.spends), Fraction(0)))

    @property
    def epsilon(self) -> Epsilon | None:
        """Pure epsilon, or None where a primitive has none."""
        amounts = [s.epsilon * s.times for s in self.spends if s.epsilon is not None]
        return Epsilon(sum(amounts, Fraction(0))) if len(amounts) == len(self.spends) else None

    @property
    def mu_squared(self) -> MuSquared | None:
        """Gaussian DP, or None where a primitive is not Gaussian or too narrow for lemma 1."""
        amounts = [s.mu_squared * s.times for s in self.spends if s.mu_squared is not None]
        return MuSquared(sum(amounts, Fraction(0))) if len(amounts) == len(self.spends) else None

    @property
    def slack(self) -> Fraction:
        """What lemma 1 adds to epsilon when the cost is read as Gaussian DP."""
        return SLACK_PER_CELL * sum(s.cells * s.times for s in self.spends)
