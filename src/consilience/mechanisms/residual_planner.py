"""ResidualPlanner: the optimal Gaussian mechanism for marginals, in closed form.

Each residual z_t (see below) is measured on its own. With A the product of n_i I - 1 1^T over the
attributes of t, A M_t x is a vector of whole numbers, n_t times the residual. Independent discrete Gaussian noise of
parameter n_t sigma_t on it costs what Gaussian noise costs on any integer vector, rho = D^2 / (2 n_t^2 sigma_t^2) with D
the L2 sensitivity of A M_t. Under add-remove D^2 / n_t^2 = d_t / n_t, which is the price of the continuous mechanism, and prices
add up. Under replace-one no change of a row is the worst for every residual, and all are priced together (`residual_family`).
# Paper: noise H N(0, I) on H M_t x, H the differences of neighbouring cells. Here: noise on A M_t x; centred, it is the same law
# up to its being discrete, and what centring removes is noise alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy import sparse

from consilience.domain import Buffer, Clique, CliqueVector, Workload
from consilience.domain.clique_vector import Layout
from consilience.domain.subsets import Rows, Subsets
from consilience.errors import BudgetError, DomainError
from consilience.fits import LeastSquares
from consilience.measurements import Measurement
from consilience.measurements.structured import centred
from consilience.mechanisms.fixed import CalibratedParts, Part, check_parts_fit
from consilience.mechanisms.level_shares import LevelDesign
from consilience.mechanisms.mechanism import (
    Mechanism,
    Release,
    check_budget,
    check_workload,
)
from consilience.mechanisms.residual_parts import level_parts, prices, residual_parts
from consilience.model import Fit
from consilience.privacy import (
    Budget,
    Cost,
    Epsilon,
    Neighbours,
)
from consilience.solvers.planner import Plan


@dataclass(frozen=True, eq=False)
class ResidualPlanner(Mechanism):
    """Noisy residuals with the least expected squared error for `workload`, then one consistent model of them.

    The weight of a clique in the workload multiplies its answers, so squared errors count by its square. fit: how they are
    reconstructed, from marginals that say the same as the residuals.

    At levels of an attribute the residuals are those of the table of every place. A level has few cells or very many, so there
    each table counts by its root mean squared error (after least squares on the tree), whatever its size, as for `Gaussian`.
    """

    workload: Workload
    fit: Fit = LeastSquares()
    levels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_workload(self.workload, self.fit, levels=True)
        self.fit.check("gaussian", query=self.workload.at_levels)
        if self.workload.at_levels and LevelDesign.of(self.workload) is None:
            raise DomainError(
                "ResidualPlanner takes tables at levels of one attribute that lie in each other, got others; use Gaussian or HDMM"
            )

    def calibrate(self, budget: Budget) -> CalibratedResidualPlanner | CalibratedLevelResiduals:
        """Least noise that an (epsilon, delta) or rho budget allows."""
        check_budget(budget)
        if isinstance(budget.capacity, Epsilon):
            raise BudgetError(
                f"Gaussian noise cannot keep a pure epsilon, got {budget!r}; give the budget a "
                "delta (or rho), or use HDMM with Laplace noise"
            )
        domain = self.workload.domain
        design = LevelDesign.of(self.workload)
        if design is not None:
            wanted = design.residual_precisions(budget.neighbours.total_public)
            parts, cost = level_parts(domain, design, wanted, budget.capacity, budget.neighbours)
            plan = self.fit.plan(domain, self.workload.cliques)
            return CalibratedLevelResiduals(self, budget, design, parts, cost, plan)
        noise = ResidualPlan.of(self.workload, budget.neighbours)
        check_parts_fit(domain, noise.cliques, self.fit.memory, "the tables of the residuals")
        capacity = budget.capacity
        parts, cost = residual_parts(
            domain, noise.cliques, noise.variance, capacity, budget.neighbours
        )
        variance = np.array([part.stddev**2 for part in parts])
        precision = noise.equivalent_precisions(variance)
        cliques = [c for c, u in zip(noise.lattice.subsets, precision, strict=True) if c and u > 0]
        plan = self.fit.plan(domain, cliques)
        return CalibratedResidualPlanner(self, budget, noise, parts, cost, plan, precision)


@dataclass(frozen=True, eq=False)
class CalibratedResidualPlanner(CalibratedParts[ResidualPlanner]):
    """`ResidualPlanner` with one sigma per residual."""

    mechanism: ResidualPlanner
    budget: Budget
    noise: ResidualPlan
    parts: Sequence[Part]
    cost: Cost
    plan: Plan
    precision: Buffer
    """Of the plain marginals that are equivalent to the residuals, for reconstruction; one per subset of the lattice."""

    # -- known beforehand ------------------------------------------------------------------------

    def expected_variance(self, attributes: str | Iterable[str]) -> float:
        """Variance of each cell of a marginal by least squares: any clique of the workload, or a part of one."""
        clique = self.workload.domain.clique(attributes)
        if clique not in self.noise.lattice.index:
            raise DomainError(
                f"some clique of the workload must contain {clique}, none does; add it to the workload"
            )
        return float(self._variances[self.noise.lattice.index[clique]])

    @property
    def expected_rmse(self) -> dict[Clique, float]:
        """Per clique of the workload, root mean squared error of a cell by least squares, before reconstruction."""
        places = self.noise.lattice.places(self.workload)
        return dict(zip(self.workload, np.sqrt(self._variances[places]).tolist(), strict=True))

    @property
    def expected_overall_rmse(self) -> float:
        """The same over all cells of the workload together."""
        places = self.noise.lattice.places(self.workload)
        cells = self.noise.lattice.cells[places]
        return math.sqrt(float(self._variances[places] @ cells) / float(cells.sum()))

    @cached_property
    def _variances(self) -> Buffer:
        return self.noise.cell_variances(np.array([part.stddev**2 for part in self.parts]))

    # -- free of privacy cost --------------------------------------------------------------------

    def unbiased(self, release: Release) -> CliqueVector:
        """The least squares answers on the workload, in counts: unbiased, consistent, some below zero."""
        residual = self._residuals(release)
        out = CliqueVector(Layout(release.domain, self.workload))
        for clique in out.cliques:
            out[clique][...] = self.noise.table(clique, residual)
        return out

    def evidence(self, release: Release) -> Iterator[Measurement]:
        """Plain marginals with the same information as the residuals.

        Least squares tables with the precisions of `ResidualPlan.equivalent_precisions`: where none of those had to be
        raised to zero, their squared loss over consistent tables is that of the residuals, up to a constant.
        """
        residual = self._residuals(release)
        for clique, precision in zip(self.noise.lattice.subsets, self.precision, strict=True):
            if precision > 0:
                values = self.noise.table(clique, residual)
                yield Measurement(clique, values.reshape(-1), stddev=float(precision**-0.5))

    def _residuals(self, release: Release) -> dict[Clique, Buffer]:
        """z_t of each residual; the total is the public one where there is one."""
        shape = release.domain.shape_of
        found = {
            m.attributes: centred(m.values.reshape(shape(m.attributes)), len(m.attributes))
            for m in release.measurements
        }
        if release.total is not None:
            found[()] = np.array(float(release.total))
        return found

    def __str__(self) -> str:
        return (
            f"ResidualPlanner: {len(self.workload)} cliques by {len(self.parts)} residuals, "
            f"expected RMSE {self.expected_overall_rmse:.6g}"
        )


@dataclass(frozen=True, eq=False)
class CalibratedLevelResiduals(CalibratedParts[ResidualPlanner]):
    """`ResidualPlanner` at levels: one sigma per level and residual. The fit takes the residuals as they are."""

    mechanism: ResidualPlanner
    budget: Budget
    design: LevelDesign
    parts: Sequence[Part]
    cost: Cost
    plan: Plan

    @property
    def expected_rmse(self) -> dict[Clique, float]:
        """Per clique of the workload, root mean squared error of a cell by least squares on the tree, before non-negativity."""
        of, names = self.design.parts, self.design.names
        own = np.zeros((len(names), len(of)))
        if self.budget.neighbours.total_public:
            own[0, int(of.inside(()).argmax())] = np.inf
        for part in self.parts:
            level = next((names.index(a) for a in part.clique if a in names), 0)
            s = tuple(self.design.others.index(a) for a in part.clique if a in self.design.others)
            at = len(of) - 1 if s == of.whole else of.subsets.index(s)
            own[level, at] += of.copies(s) / part.stddev**2
        found = np.sqrt(self.design.variances_given(own))
        return dict(zip(self.workload, found.tolist(), strict=True))

    expected_fit = expected_rmse
    """The same: what least squares leaves is what is known beforehand."""

    def __str__(self) -> str:
        return (
            f"ResidualPlanner: {len(self.workload)} cliques by {len(self.parts)} residuals at "
            f"{len(self.design.names)} levels"
        )


# -- The closed-form plan of ResidualPlanner: how precisely to measure each residual of a workload ---
#
# The residual of the marginal on t is what it says beyond its own lower-order marginals: z_t = C_t M_t x, where C_t
# subtracts the mean along each axis. All marginals follow from the residuals of their subsets,
#
#     M_c x = sum_{t <= c} z_t / n_{c minus t}
#     variance of each cell of c = sum_{t <= c} sigma_t^2 p_t / n_{c minus t}^2,    p_t = d_t / n_t.
#
# Noise of standard deviation sigma_t on each entry costs c_t / (2 sigma_t^2): c_t = p_t under add-remove. The workload's
# squared error is sum_t v_t sigma_t^2, v_t = d_t n_t omega_t. So with 2 rho to spend
#
#     sigma_t^2 = sqrt(c_t / v_t) S / (2 rho),     S = sum_t sqrt(v_t c_t),     least squared error S^2 / (2 rho),
#
# which under add-remove is the least that any Gaussian mechanism can have (the singular value bound).


@dataclass(frozen=True, eq=False)
class ResidualPlan:
    """Variances of the residuals at unit budget, 2 rho = 1; at rho they are divided by 2 rho.

    `measured` are positions in the lattice: subsets whose residual is not empty (and, where the number of rows is
    public, not the total); `price` and `variance` follow it.
    """

    workload: Workload
    neighbours: Neighbours
    lattice: Subsets
    measured: Rows
    price: Buffer
    variance: Buffer

    @classmethod
    def of(cls, workload: Workload, neighbours: Neighbours) -> ResidualPlan:
        lattice = Subsets.of(workload.domain, workload)
        wanted = lattice.dims > 0
        wanted[0] = not neighbours.total_public
        measured = np.flatnonzero(wanted)
        n, d = lattice.cells[measured], lattice.dims[measured]
        value = d * n * lattice.importance(workload)[measured]
        price = prices(lattice.domain, [lattice.subsets[i] for i in measured], neighbours)
        variance = np.sqrt(price / value) * np.sqrt(value * price).sum()
        return cls(workload, neighbours, lattice, measured, price, variance)

    @property
    def cliques(self) -> list[Clique]:
        return [self.lattice.subsets[i] for i in self.measured]

    @property
    def shares(self) -> Buffer:
        """Share of rho for each residual; they sum to one."""
        return self.price / self.variance

    @property
    def unit_rmse(self) -> float:
        """Root mean squared error per answer of the workload at 2 rho = 1."""
        errors = self.cell_variances(self.variance)[self.lattice.places(self.workload)]
        cells = self.lattice.cells[self.lattice.places(self.workload)]
        return float(np.sqrt(errors @ cells / cells.sum()))

    def cell_variances(self, variance: Buffer) -> Buffer:
        """Variance of each cell of every marginal of the lattice, given that of the residuals' noise."""
        share = np.zeros(len(self.lattice.subsets))
        share[self.measured] = (
            variance * self.lattice.dims[self.measured] / self.lattice.cells[self.measured]
        )
        return self.lattice.drops.power(2).T @ share

    # -- from residuals to marginals ---------------------------------------------------------------

    def table(self, clique: Clique, residual: Mapping[Clique, Buffer]) -> Buffer:
        """sum_{t <= c} z_t / n_{c minus t}: the least squares answer on a clique."""
        shape = self.workload.domain.shape_of(clique)
        out = np.zeros(shape)
        start, end = self._inside.indptr[
            [self.lattice.index[clique], self.lattice.index[clique] + 1]
        ]
        for i, ratio in zip(
            self._inside.indices[start:end], self._inside.data[start:end], strict=True
        ):
            t = self.lattice.subsets[i]
            if t in residual:
                kept = [n if a in t else 1 for a, n in zip(clique, shape, strict=True)]
                out += ratio * residual[t].reshape(kept)
        return out

    @cached_property
    def _inside(self) -> sparse.csc_array:
        return sparse.csc_array(self.lattice.drops)

    def equivalent_precisions(self, variance: Buffer) -> Buffer:
        """Precisions u_a of plain marginals that tell as much about every residual as the plan's own measurements.

        From larger cliques down, u_a = 1 / sigma_a^2 - what the supersets of a tell already. Where that would be negative no
        independent noisy marginals are equivalent, and zero is taken: the residual then counts for a little more than it should.
        """
        lattice = self.lattice
        evidence = np.zeros(len(lattice.subsets))
        evidence[self.measured] = 1 / variance
        _fill_constant(lattice, evidence, lattice.importance(self.workload))
        order = np.array([len(c) for c in lattice.subsets])
        precision = np.zeros(len(evidence))
        for size in range(int(order.max()), -1, -1):
            level = np.flatnonzero(order == size)
            left = evidence - lattice.drops @ precision
            precision[level] = np.where(left > 1e-9 * evidence, left, 0.0)[level]
        if self.neighbours.total_public:
            precision[0] = 0.0
        return precision


def _fill_constant(lattice: Subsets, evidence: Buffer, importance: Buffer) -> None:
    """Attributes of one value: a table with them tells what it tells without them, in the workload's proportion."""
    sizes = lattice.domain.sizes
    for i in np.flatnonzero(lattice.dims == 0):
        plain = lattice.index[tuple(a for a in lattice.subsets[i] if sizes[a] > 1)]
        evidence[i] = evidence[plain] * importance[i] / importance[plain]
