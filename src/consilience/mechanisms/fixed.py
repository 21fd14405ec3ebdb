"""Fixed mechanisms: a list of noisy queries that is known before data is seen. `Gaussian` and `Laplace`, and what HDMM shares.

A `Part` is one query: y = (A x + z) / unit with A an integer matrix, x the counts of a clique and z discrete noise of the
part's width. `Gaussian` and `Laplace` have one part per clique of the workload, the table itself. One person changes c cells of
each table by one: c = 1 (add-remove) or c = 2 (replace-one). With shares w_i of the budget

    Gaussian: sigma_i^2 = c sum(w) / (2 rho w_i), so that the costs c / (2 sigma_i^2) add up to rho
    Laplace:  b_i = c sum(w) / (epsilon w_i), so that the costs c / b_i add up to epsilon

Shares are equal unless told otherwise; between tables at levels of one attribute they are those that least squares on its tree
errs least with (level_shares.py), and "census" stands for the 2020 census's. "optimal" minimises the expected L1 distance of the
noisy tables, sum_c v_c n_c E|z_c| with v_c the workload's weight and n_c the cells of table c. As E|z_c| is in proportion to
share_c^(-p), the Lagrangian gives share_c in proportion to (v_c n_c)^(1 / (1 + p)): p = 1/2 for Gaussian noise, p = 1 for Laplace
noise.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Clique, CliqueVector, Domain, Workload
from consilience.errors import BudgetError, CapacityError, ConsilienceError, DataError
from consilience.fits import LeastSquares
from consilience.measurements import Measurement
from consilience.mechanisms.integer_queries import CELLS, IntegerQuery
from consilience.mechanisms.level_shares import LevelDesign, expected_after_fit
from consilience.mechanisms.mechanism import (
    BYTES_PER_CELL,
    Calibrated,
    Call,
    M,
    Mechanism,
    Piece,
    Release,
    check_budget,
    check_workload,
)
from consilience.mechanisms.moments import Width, mean_absolute, stddev
from consilience.memory import parse_bytes, show_bytes
from consilience.model import Fit
from consilience.privacy import (
    Budget,
    Cost,
    Epsilon,
    Neighbours,
    NoiseSource,
    Scale,
    Sigma,
    laplace_scale,
    marginals,
    weighted_gaussian_sigmas,
)
from consilience.privacy.noise import DRAWING, checked_width
from consilience.privacy.sensitivity import checked_weights
from consilience.progress import Progress, Step
from consilience.solvers.planner import Plan

Weights = str | Mapping[Clique, float] | None

_LONG_DRAW = 50_000
"""Cells from which a draw reports its own progress; it starts with a pilot that costs a little."""
_BATCH = 32_768
"""Cells from which tables are drawn and kept as one piece: two chunks of the sampler, a quarter of a second."""
_LARGEST = 2**62


@dataclass(frozen=True, eq=False)
class Part:
    """One noisy query: the clique whose table is counted, the integer query on it, and the width of the noise."""

    clique: Clique
    width: Width
    query: IntegerQuery = CELLS

    @property
    def stddev(self) -> float:
        """Standard deviation of each answer, in counts."""
        return stddev(self.width) / self.query.unit

    def cost(self, neighbours: Neighbours) -> Cost:
        change = self.query.sensitivity(neighbours)
        if isinstance(self.width, Sigma):
            return Cost.gaussian(change, self.width)
        return Cost.laplace(change, self.width)

    def exact(self, domain: Domain, counts: CliqueVector) -> NDArray[np.int64]:
        """What the query says about the counts, read at the levels of the clique."""
        table = counts[domain.clique(self.clique)].astype(np.int64)
        return self.query.exact(domain.coarsened(table, self.clique))

    def measurement(self, noisy: NDArray[np.int64]) -> Measurement:
        law: Literal["gaussian", "laplace"] = (
            "gaussian" if isinstance(self.width, Sigma) else "laplace"
        )
        values = noisy / self.query.unit
        return Measurement(
            self.clique, values, stddev=self.stddev, noise=law, query=self.query.query
        )


class CalibratedParts(Calibrated[M]):
    """Parts with their noise fixed, and the order of a call around them."""

    parts: Sequence[Part]
    """What is measured."""

    @property
    def workload(self) -> Workload:
        return self.mechanism.workload

    def draw(self, call: Call) -> Release:
        """y = (A x + z) / unit for every part, z discrete noise of its width."""
        parts = self.parts
        _check_range(parts, call.records)
        domain = self.domain
        counts = call.counts(dict.fromkeys(domain.clique(part.clique) for part in parts))
        exact = [part.exact(domain, counts) for part in parts]
        widths = [part.width for part in parts]
        noisy = add_noise(call.noise, exact, widths, call.progress, call.piece)
        return call.release(p.measurement(values) for p, values in zip(parts, noisy, strict=True))


@dataclass(frozen=True, eq=False)
class EachTable(Mechanism):
    """Every table of a workload, counted once, with noise of one law; then one consistent model of them.

    weights: shares of the budget per clique; None for equal noise in every table (or, at levels of one attribute, the least
    expected error by least squares), "optimal" for the least expected L1 distance of the noisy tables, "census" for the 2020
    census's shares by level. fit: how they are reconstructed.
    """

    workload: Workload
    weights: Weights = None
    fit: Fit = LeastSquares()
    levels: ClassVar[bool] = True
    law: ClassVar[Literal["gaussian", "laplace"]]

    @abstractmethod
    def widths(self, budget: Budget) -> Sequence[Width]:
        """The least noise that the budget allows, table by table; refuses a budget in another unit."""

    def __post_init__(self) -> None:
        check_workload(self.workload, self.fit, levels=self.levels)
        self.fit.check(self.law, query=self.workload.at_levels)
        object.__setattr__(self, "weights", _checked_shares(self.workload, self.weights))

    def calibrate(self, budget: Budget) -> CalibratedTables:
        """Least noise that the budget allows."""
        check_budget(budget)
        widths = self.widths(budget)
        plan = self.fit.plan(self.workload.domain, self.workload.cliques)
        for width in widths:
            checked_width(width)
        cost = Cost.sum(budget.neighbours, (noise_cost(budget.neighbours, w) for w in widths))
        by_clique = dict(zip(self.workload, widths, strict=True))
        return CalibratedTables(self, budget, by_clique, cost, plan)


@dataclass(frozen=True, eq=False)
class CalibratedTables(CalibratedParts[EachTable]):
    """`Gaussian` or `Laplace` with one width of noise per clique of the workload."""

    mechanism: EachTable
    budget: Budget
    widths: Mapping[Clique, Width]
    cost: Cost
    plan: Plan

    @property
    def parts(self) -> list[Part]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return [Part(clique, width) for clique, width in self.widths.items()]

    @property
    def expected_rmse(self) -> dict[Clique, float]:
        """Root mean squared difference per cell of each noisy table from the truth: its stddev."""
        return {clique: stddev(width) for clique, width in self.widths.items()}

    @property
    def expected_fit(self) -> dict[Clique, float] | None:
        """Root mean squared difference per cell of each table from the truth after least squares on the tree that its levels
        make, before non-negativity; None where there is no such tree."""
        return expected_after_fit(self.workload, self.expected_rmse)

    @property
    def expected_l1(self) -> dict[Clique, float]:
        """Expected L1 distance, in counts, of each noisy table from the truth."""
        size = self.workload.domain.size
        return {c: size(c) * mean_absolute(width) for c, width in self.widths.items()}

    def expected_total_variation(self, records: float) -> dict[Clique, float]:
        """Half the expected L1 distance of each noisy table, as a share of so many records."""
        if not 0 < records < float("inf"):
            raise ConsilienceError(f"records must be positive and finite, got {records!r}")
        return {c: l1 / (2 * records) for c, l1 in self.expected_l1.items()}

    def __str__(self) -> str:
        values = sorted({width.value for width in self.widths.values()})
        symbol = next(iter(self.widths.values())).symbol
        noise = " to ".join(f"{v:.6g}" for v in (values[0], values[-1])[: len(values)])
        plural = "s" if len(self.workload) > 1 else ""
        tables = f"{len(self.workload)} table{plural}, {self.workload.cells:,} cells"
        return f"{type(self.mechanism).__name__}: {tables}, {symbol} {noise}"


@dataclass(frozen=True, eq=False)
class Gaussian(EachTable):
    """Noisy marginals of `workload` with discrete Gaussian noise, under (epsilon, delta) or rho; weights are shares of rho."""

    law = "gaussian"

    def widths(self, budget: Budget) -> Sequence[Sigma]:
        if isinstance(budget.capacity, Epsilon):
            raise BudgetError(
                f"Gaussian noise cannot keep a pure epsilon, got {budget!r}; give the budget a "
                "delta (or rho), or use the Laplace mechanism"
            )
        roots = [math.sqrt(w) for w in _shares(self.workload, self.weights, power=0.5)]
        return weighted_gaussian_sigmas(budget.neighbours, roots, budget.capacity)


@dataclass(frozen=True, eq=False)
class Laplace(EachTable):
    """Noisy marginals of `workload` with discrete Laplace noise, under pure epsilon; weights are shares of it."""

    law = "laplace"

    def widths(self, budget: Budget) -> Sequence[Scale]:
        if budget.epsilon is None or budget.accounting == "gaussian":
            raise BudgetError(
                "Laplace noise spends a pure epsilon, which a budget with rho or Gaussian accounting "
                f"does not count, got {budget!r}; give epsilon, or use the Gaussian mechanism"
            )
        parts = budget.epsilon.split(_shares(self.workload, self.weights, power=1.0))
        return [laplace_scale(marginals(budget.neighbours), part) for part in parts]


def noise_cost(neighbours: Neighbours, width: Width) -> Cost:
    """What one table with noise of this width costs."""
    one = marginals(neighbours)
    return Cost.gaussian(one, width) if isinstance(width, Sigma) else Cost.laplace(one, width)


def _checked_shares(workload: Workload, weights: Weights) -> Weights:
    """The weights as a mechanism keeps them: one positive number per clique, if they are given."""
    if weights is None or weights == "optimal":
        return weights
    if weights == "census":
        _design(workload).of_the_census()
        return weights
    if not isinstance(weights, Mapping):
        raise BudgetError(
            "weights must be None, 'optimal', 'census' or a mapping of clique to share of the budget, "
            f"got {weights!r}"
        )
    canonical = {workload.domain.named(c): w for c, w in weights.items()}
    missing = [c for c in workload if c not in canonical]
    extra = [c for c in canonical if c not in workload]
    if missing or extra or len(canonical) != len(weights):
        wrong = (
            f"none for {missing[0]}"
            if missing
            else f"one for {extra[0]}"
            if extra
            else "one clique spelled twice"
        )
        raise BudgetError(f"weights must name each clique of the workload once, got {wrong}")
    checked_weights(canonical.values())
    return MappingProxyType({c: canonical[c] for c in workload})


def _shares(workload: Workload, weights: Weights, power: float) -> tuple[float, ...]:
    """One share per clique, up to a common factor; `power` is p above."""
    if weights is None:
        design = LevelDesign.of(workload)
        return (1.0,) * len(workload) if design is None else tuple(design.best(power).tolist())
    if weights == "census":
        return tuple(_design(workload).of_the_census().tolist())
    if isinstance(weights, str):
        size = workload.domain.size
        return tuple((workload[c] * size(c)) ** (1 / (1 + power)) for c in workload)
    return tuple(weights[c] for c in workload)


def _design(workload: Workload) -> LevelDesign:
    design = LevelDesign.of(workload)
    if design is None:
        raise BudgetError(
            "the census's shares are for tables at levels of one attribute that lie in each other, got others"
        )
    return design


# -- what is refused before anything is spent ------------------------------------------------------


def check_parts_fit(
    domain: Domain, cliques: Iterable[Clique], memory: str | int | float, what: str
) -> None:
    """The tables that are counted, and the noise in them, must fit the memory allowed."""
    cells = sum(domain.size(c) for c in cliques)
    need, budget = BYTES_PER_CELL * cells, parse_bytes(memory)
    if need > budget:
        raise CapacityError(
            f"{what} must fit the memory budget of {show_bytes(budget)}, {cells:,} cells need about "
            f"{show_bytes(need)}; choose smaller cliques or raise memory=",
            need,
            budget,
        )


def _check_range(parts: Iterable[Part], records: int) -> None:
    peak = max(part.query.peak for part in parts)
    if peak * records > _LARGEST:
        raise DataError(
            f"answers must fit 64-bit integers: entries up to {peak:,} allow {_LARGEST // peak:,} rows, got "
            f"{records:,}; ask for fewer ordered attributes together; nothing was spent"
        )


# -- drawing ---------------------------------------------------------------------------------------


def _at_once(number: int, draw: Callable[[], Piece]) -> Piece:
    return draw()


def add_noise(
    source: NoiseSource,
    exact: Sequence[NDArray[np.int64]],
    widths: Sequence[Width],
    progress: Progress | None,
    piece: Callable[[int, Callable[[], Piece]], Piece] = _at_once,
) -> list[NDArray[np.int64]]:
    """Each array plus noise of its width, batch by batch; `piece` keeps a batch before the next is drawn (`Call.piece`)."""
    noisy: list[NDArray[np.int64]] = list(exact)
    total = sum(x.size for x in exact)
    done = 0
    for number, members in enumerate(batches([x.size for x in exact], widths)):
        cells, before = [exact[i].ravel() for i in members], done

        def draw(cells=cells, width=widths[members[0]], before=before) -> Piece:
            values = _draw(source, np.concatenate(cells), width, before, total, progress)
            return {"values": values}

        values = piece(number, draw)["values"]
        done += values.size
        cuts = np.cumsum([exact[i].size for i in members])[:-1]
        for i, part in zip(members, np.split(values, cuts), strict=True):
            noisy[i] = part.reshape(exact[i].shape)
    return noisy


def batches(sizes: Sequence[int], widths: Sequence[Width]) -> Iterator[list[int]]:
    """Tables that are drawn at once: of equal width, and no more than make a batch worth its while."""
    groups: dict[Width, list[int]] = {}
    for i, width in enumerate(widths):
        groups.setdefault(width, []).append(i)
    for members in groups.values():
        batch, cells = [], 0
        for i in members:
            batch.append(i)
            cells += sizes[i]
            if cells >= _BATCH:
                yield batch
                batch, cells = [], 0
        if batch:
            yield batch


def _draw(
    source: NoiseSource,
    exact: NDArray[np.int64],
    width: Width,
    done: int,
    total: int,
    progress: Progress | None,
) -> NDArray[np.int64]:
    """One group of cells plus noise; `done` of `total` cells came before."""

    def report(step: Step) -> None:
        assert progress is not None
        each = (step.seconds_left or 0.0) / max(1, exact.size - step.done)
        left = each * (total - done - step.done)
        progress(Step(DRAWING, done + step.done, total, left))

    watch = report if progress is not None and exact.size >= _LONG_DRAW else None
    if isinstance(width, Sigma):
        values = source.discrete_gaussian(exact, width, watch).values
    else:
        values = source.discrete_laplace(exact, width, watch).values
    if progress is not None and watch is None:
        progress(Step(DRAWING, done + exact.size, total))
    return values
