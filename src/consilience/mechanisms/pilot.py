"""Pilot: measure a little of everything, then the rest where that says it helps. Residuals with Gaussian noise, under zCDP.

    the number of rows, where it is not public, for a two-hundredth of rho; it says how much noise tables will have
    very little, and pairs are the largest tables, or nothing but single attributes: the rest as ResidualPlanner divides it
    much:  single attributes and the number of rows get what noisy tables of pairs would spend on them, and then every residual
           of two attributes alike
    else:  one-way marginals, for a twentieth to an eighth of rho; a pilot over every residual worth measuring, alike for all of
           one order; latent classes fitted to it say what each table will look like and how far it may leave that; the rest
           is divided by water-filling

Water-filling: a cell that is expected to hold b counts, and may leave that by a variance of lambda b, is known with variance
1 / (1 / (lambda b) + p / F) after its residual was measured with precision p, F the share of a table's variance that lies in
its residual. The sum of the roots of these variances, over all cells of a table, is what L1 will be about. It is least
under sum_c F_c p_c = rest where the slopes per unit of cost are equal.

All choices are made from noisy values, so they cost nothing; every stage is charged to a meter before it is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, Domain, Workload, closure
from consilience.errors import BudgetError
from consilience.fits import LatentClasses
from consilience.fits.latent_classes import Outlook
from consilience.measurements import Measurement
from consilience.mechanisms.fixed import Part, add_noise, check_parts_fit
from consilience.mechanisms.mechanism import (
    Calibrated,
    Call,
    Mechanism,
    Piece,
    Release,
    check_budget,
    check_workload,
)
from consilience.mechanisms.moments import mean_absolute
from consilience.mechanisms.residual_parts import prices, residual_parts
from consilience.mechanisms.residual_planner import ResidualPlan
from consilience.mechanisms.rounds import Meter, check_useful
from consilience.model import Fit
from consilience.privacy import Budget, Cost, Neighbours, Rho
from consilience.solvers.planner import Plan

FIRST_TOTAL = 0.005
"""Share of rho for the number of rows, before anything else."""
FEW_ONES = 0.05
"""Share of the one-way marginals where noise is very small."""
ONES, TOTAL = 0.12, 0.02
"""Shares of the one-way marginals and of the number of rows elsewhere."""
LITTLE = 0.005
"""Expected total variation of the noise in a table of two attributes, up to which it is very small."""
PILOT = 0.4
"""Of what is left after the one-way marginals."""
MUCH = 0.6
"""Expected total variation of the noise in a table of two attributes, above which everything is measured once and alike."""
LOST = 0.5
"""The same for a single attribute, above which the largest of them are lost, and all get the same noise."""
MOST_NOISE, LARGER = 3.0, 0.7
"""Tables of three attributes or more are measured where that noise is below this, with at most this share of the rest."""
FLOOR = 4.0
"""A table may leave what is expected by at least so many times what the pilot could have seen of it."""
BINS = 48
"""Cells are told apart by the logarithm of the variance that they may have, into so many kinds."""
SLACK = Fraction(1, 10**9)
"""Of rho, left unspent, so that rounding never passes what was reserved."""


@dataclass(frozen=True, eq=False)
class Pilot(Mechanism):
    """Noisy residuals of everything that a workload holds, the most of them where a first look says that they help.

    fit: how they are reconstructed.
    """

    workload: Workload
    fit: Fit = LatentClasses()

    def __post_init__(self) -> None:
        check_workload(self.workload, self.fit)
        self.fit.check("gaussian", query=True)

    @cached_property
    def cliques(self) -> tuple[Clique, ...]:
        """Every subset of the workload's cliques with a residual, smaller ones first."""
        sizes = self.workload.domain.sizes
        found = closure(self.workload.domain, self.workload)
        return tuple(c for c in found if c and all(sizes[a] > 1 for a in c))

    def calibrate(self, budget: Budget) -> CalibratedPilot:
        """Fix the rho of the whole, and see that it is enough for one-way marginals."""
        check_budget(budget)
        capacity = budget.capacity
        if not isinstance(capacity, Rho):
            raise BudgetError(
                f"Pilot spends rho, which {budget!r} does not count; give the budget a delta (or rho), with zcdp accounting"
            )
        domain, neighbours = self.workload.domain, budget.neighbours
        if not self.cliques:
            raise BudgetError(
                "Pilot needs a table of an attribute with more than one value, got none; use Gaussian"
            )
        check_parts_fit(domain, self.cliques, self.fit.memory, "the tables of the residuals")
        division = Division.of(self, 2 * float(capacity.value), neighbours)
        ones, _ = _parts(domain, division.ones(), 1.0, capacity, neighbours)
        cost = Cost.adaptive(neighbours, capacity)
        plan = self.fit.plan(domain, self.workload.cliques)
        return CalibratedPilot(self, budget, division, ones, cost, plan)


@dataclass(frozen=True, eq=False)
class CalibratedPilot(Calibrated[Pilot]):
    """`Pilot` with the rho of the whole. ones: the one-way marginals, were all of it spent on them."""

    mechanism: Pilot
    budget: Budget
    division: Division
    ones: Sequence[Part]
    cost: Cost
    plan: Plan

    def __post_init__(self) -> None:
        super().__post_init__()
        check_useful(self.least_noise)

    @property
    def workload(self) -> Workload:
        return self.mechanism.workload

    @property
    def least_noise(self) -> float:
        """Expected L1, in counts, of the noise in the one-way marginal that gets least of it, were all of rho spent on them."""
        size = self.domain.size
        return min(mean_absolute(p.width) / p.query.unit * size(p.clique) for p in self.ones)

    def draw(self, call: Call) -> Release:
        """Number of rows, one-way marginals, pilot and the rest, each charged before it is drawn."""
        check_useful(self.least_noise, call.total)
        division, stages = self.division, _Stages(self, call)
        stages.measure(division.rows, FIRST_TOTAL)
        largest = max(division.by_order)
        noise = division.noise(min(largest, 2), stages.left, stages.people)
        if largest == 1 or (largest == 2 and noise <= LITTLE):
            # A pilot would tell nothing worth its part of rho.
            plan = ResidualPlan.of(self.workload, self.budget.neighbours)
            stages.measure(
                dict(zip(plan.cliques, plan.variance.tolist(), strict=True)), stages.left
            )
            return stages.release
        wanted, ones, total = division.ones(), FEW_ONES, FIRST_TOTAL
        if noise > MUCH:
            ones, total = division.lower(stages.people)
            if division.noise(1, ones, stages.people) > LOST:
                wanted = division.alike(1)
        elif noise > LITTLE:
            part = division.pairs_part(stages.left, stages.people)
            ones, total = part * ONES, part * TOTAL
        stages.measure(wanted, ones)
        stages.measure(division.rows, total - FIRST_TOTAL)
        if noise > MUCH:
            stages.measure(division.alike(2), stages.left)
            return stages.release
        shares = division.orders(stages.left, stages.people)
        for order, part in shares.items():
            stages.measure(division.alike(order), PILOT * part)
        for wanted, part in stages.planned(lambda: self._rest(stages, shares)):
            stages.measure(wanted, part)
        return stages.release

    def _rest(self, stages: _Stages, shares: Mapping[int, float]) -> list[tuple[Wanted, float]]:
        """What is left of rho, divided within each order by what the pilot says."""
        call = stages.call
        look = LatentClasses(memory=self.fit.memory).look(
            self.domain, stages.measurements, stages.total, call.progress
        )
        whole, left = sum(shares.values()), stages.left
        found = []
        for order, share in shares.items():
            part = left * share / whole
            wanted = self.division.filled(order, part, look, stages.precision)
            found.append((wanted, part))
        return found

    def __str__(self) -> str:
        return (
            f"Pilot: {len(self.workload)} tables by {len(self.mechanism.cliques)} residuals, rho "
            f"{float(self.cost.rho.value):.6g}"
        )


Wanted = Mapping[Clique, float]
"""Variances of the noise of residuals, up to a common factor."""


def _parts(
    domain: Domain, wanted: Wanted, share: float, whole: Rho, neighbours: Neighbours
) -> tuple[list[Part], Cost]:
    """Residuals with noise in these proportions for a share of the whole rho."""
    cliques = [c for c, v in wanted.items() if np.isfinite(v)]
    variances = np.array([wanted[c] for c in cliques])
    return residual_parts(
        domain, cliques, variances, Rho(whole.value * Fraction(share)), neighbours
    )


class _Stages:
    """What one call has drawn: shares of its rho become measurements, in order."""

    def __init__(self, ready: CalibratedPilot, call: Call) -> None:
        self.ready, self.call = ready, call
        self.counts = call.counts([(), *ready.mechanism.cliques])
        self.meter = Meter(ready.cost)
        self.measurements: list[Measurement] = []
        self.precision: dict[Clique, float] = {}
        self.pieces = 0

    @property
    def release(self) -> Release:
        return self.call.release(self.measurements)

    @property
    def total(self) -> float | None:
        """The number of rows where it is public."""
        return None if self.call.total is None else float(self.call.total)

    @property
    def people(self) -> float:
        """The number of rows by what is public so far."""
        if self.total is not None:
            return max(1.0, self.total)
        noisy = next(m.values for m in self.measurements if not m.attributes)
        return max(1.0, float(noisy[0]))

    @property
    def left(self) -> float:
        """The share of rho that is not spent."""
        return float(1 - SLACK - self.meter.spent.rho.value / self.ready.cost.rho.value)

    def measure(self, wanted: Wanted, share: float) -> None:
        """Residuals with noise in these proportions, for this share of the whole rho."""
        share = min(share, self.left)
        if share <= 0 or not any(np.isfinite(v) for v in wanted.values()):
            return
        ready = self.ready
        parts, cost = _parts(ready.domain, wanted, share, ready.cost.rho, ready.budget.neighbours)
        self.meter.charge(cost)
        exact = [part.query.exact(self.counts[part.clique].astype(np.int64)) for part in parts]
        drawn = add_noise(
            self.call.noise, exact, [p.width for p in parts], self.call.progress, self._piece
        )
        for part, values in zip(parts, drawn, strict=True):
            self.measurements.append(part.measurement(values))
            before = self.precision.get(part.clique, 0.0)
            self.precision[part.clique] = before + part.stddev**-2

    def _piece(self, number: int, draw: Callable[[], Piece]) -> Piece:
        """The next piece of the tape, whatever its number within a stage."""
        found = self.call.piece(self.pieces, draw)
        self.pieces += 1
        return found

    def planned(
        self, plan: Callable[[], Sequence[tuple[Wanted, float]]]
    ) -> list[tuple[Wanted, float]]:
        """A plan made from public values. It is kept with what is drawn, so that a run that was interrupted goes on with it."""
        place = self.ready.mechanism.cliques

        def made() -> Piece:
            found = plan()
            rows = [[wanted.get(c, np.inf) for c in place] for wanted, _ in found]
            return {"variances": np.array(rows), "shares": np.array([s for _, s in found])}

        kept = self._piece(0, made)
        return [
            (dict(zip(place, row, strict=True)), share)
            for row, share in zip(kept["variances"].tolist(), kept["shares"].tolist(), strict=True)
        ]


@dataclass(frozen=True, eq=False)
class Division:
    """Which residuals a workload has, order by order, and how 2 rho is divided between them."""

    domain: Domain
    double_rho: float
    total_public: bool
    by_order: Mapping[int, tuple[Clique, ...]]
    price: Mapping[Clique, float]
    importance: Mapping[Clique, float]
    """The weight of the workload's tables that hold a residual, over the mean of its order."""

    @classmethod
    def of(cls, mechanism: Pilot, double_rho: float, neighbours: Neighbours) -> Division:
        domain, cliques = mechanism.workload.domain, mechanism.cliques
        orders: dict[int, list[Clique]] = {}
        for clique in cliques:
            orders.setdefault(len(clique), []).append(clique)
        weight = dict.fromkeys(cliques, 0.0)
        for wide, w in mechanism.workload.items():
            for clique in closure(domain, [wide]):
                if clique in weight:
                    weight[clique] += w
        means = {k: float(np.mean([weight[c] for c in found])) for k, found in orders.items()}
        return cls(
            domain,
            double_rho,
            neighbours.total_public,
            {k: tuple(found) for k, found in orders.items()},
            dict(zip(cliques, prices(domain, cliques, neighbours).tolist(), strict=True)),
            {c: w / means[len(c)] for c, w in weight.items()},
        )

    @property
    def rows(self) -> Wanted:
        """The number of rows, where it is not public."""
        return {} if self.total_public else {(): 1.0}

    def ones(self) -> Wanted:
        """Variances of the one-way residuals: rho in proportion to n^(2/3)."""
        size = self.domain.size
        return {
            c: self.price[c] / (size(c) * self.importance[c]) ** (2 / 3) for c in self.by_order[1]
        }

    def lower(self, people: float) -> tuple[float, float]:
        """Shares of single attributes and of the number of rows where pairs are mostly noise.

        What tables of two attributes, measured as they are, would spend on them: of the price 1 of a table of m x n cells,
        (1 - 1/m) (1 - 1/n) goes to its residual, 1 / (m n) to the number of rows, and the rest to its attributes. The smaller
        the tables, the more of their noise is shared by all of them. And more, the more single attributes are noise too.
        """
        pairs = [self.domain.shape_of(c) for c in self.by_order[2]]
        total = float(np.mean([1 / (m * n) for m, n in pairs]))
        own = float(np.mean([(1 - 1 / m) * (1 - 1 / n) for m, n in pairs]))
        ones = 1 - own - total
        noise = self.noise(1, ones, people)
        total *= 1 + min(noise, 2.0)
        return ones + (1 - ones - total) * noise / (1 + noise), total

    def alike(self, order: int) -> Wanted:
        """The same noise in every residual of an order, but for the workload's weights."""
        return {c: self.importance[c] ** (-2 / 3) for c in self.by_order[order]}

    def noise(self, order: int, share: float, people: float) -> float:
        """Expected total variation of the noise in a table, were this share of rho spent on this order alone."""
        cliques = self.by_order[order]
        deviation = (sum(self.price[c] for c in cliques) / (share * self.double_rho)) ** 0.5
        return 0.4 * float(np.mean([self.domain.size(c) for c in cliques])) * deviation / people

    def orders(self, share: float, people: float) -> dict[int, float]:
        """The share of each order above one, the largest tables first: the less, the more noise they would have."""
        found, left = {}, share
        for order in sorted(self.by_order, reverse=True):
            if order > 2:
                noise = self.noise(order, share, people)
                found[order] = left * LARGER / (1 + 2 * noise) if noise < MOST_NOISE else 0.0
                left -= found[order]
        return {**{k: v for k, v in found.items() if v > 0}, 2: left}

    def pairs_part(self, share: float, people: float) -> float:
        """How much of what goes to tables of several attributes goes to those of two."""
        shares = self.orders(share, people)
        return shares[2] / sum(shares.values())

    def filled(
        self, order: int, share: float, look: Outlook, known: Mapping[Clique, float]
    ) -> Wanted:
        """Variances of further noise for the residuals of an order, by water-filling; infinite where it would not help."""
        cliques = self.by_order[order]
        price = np.array([self.price[c] for c in cliques])
        precision = np.array([known[c] for c in cliques])
        weight = np.array([self.importance[c] for c in cliques])
        cells = np.array([self.domain.size(c) for c in cliques])
        part = np.array([prod(1 - 1 / self.domain[a] for a in c) for c in cliques])
        deviation = precision**-0.5
        free = np.array([look.freedom[c] for c in cliques]) * deviation
        free = np.maximum(free, FLOOR * deviation**2 * np.sqrt(2 * cells) / look.total)
        counts = look.total * np.concatenate([look.tables[c].reshape(-1) for c in cliques])
        kinds, variances = _kinds(np.repeat(free, cells) * counts, cells)
        more = _water_filling(
            kinds, variances, precision, part, price, weight, share * self.double_rho
        )
        with np.errstate(divide="ignore"):
            return dict(zip(cliques, (1 / more).tolist(), strict=True))


def _kinds(variances: Buffer, cells: NDArray[np.int64]) -> tuple[Buffer, Buffer]:
    """How many cells of each table may have a variance near each of a few; and these few."""
    logs = np.log(np.maximum(variances, 1e-8))
    low, high = np.log(1e-4), max(float(logs.max()), 0.0) + 1e-6
    place = np.clip(((logs - low) / (high - low) * BINS).astype(np.int64), 0, BINS - 1)
    owner = np.repeat(np.arange(len(cells)), cells)
    counted = np.bincount(owner * BINS + place, minlength=BINS * len(cells))
    middles = np.exp(low + (np.arange(BINS) + 0.5) * (high - low) / BINS)
    return counted.reshape(-1, BINS).astype(float), middles


def _water_filling(
    kinds: Buffer,
    variances: Buffer,
    known: Buffer,
    part: Buffer,
    price: Buffer,
    weight: Buffer,
    rest: float,
) -> Buffer:
    """Further precisions p >= 0 with price . p = rest that make the expected L1 least: slopes are equal where p > 0."""

    def slope(p: Buffer) -> Buffer:
        shrunk = variances / (1 + variances * ((known + p) / part)[:, None])
        return weight * (kinds * shrunk**1.5).sum(axis=1) / (part * price)

    def at(level: float) -> Buffer:
        low, high = np.zeros(len(known)), rest / price
        for _ in range(40):
            middle = (low + high) / 2
            more = slope(middle) > level
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        return np.where(slope(np.zeros(len(known))) > level, (low + high) / 2, 0.0)

    top = float(np.log(slope(np.zeros(len(known))).max()))
    low, high = top - 60, top
    for _ in range(50):
        middle = (low + high) / 2
        if price @ at(np.exp(middle)) > rest:
            low = middle
        else:
            high = middle
    found = at(np.exp(high))
    return found * (rest / max(float(price @ found), 1e-300))
