"""ResidualPlanner: the optimal Gaussian mechanism for marginals, in closed form.

Each residual z_t (see `residual_planner_plan`) is measured on its own. With A the product of n_i I - 1 1^T over the
attributes of t, A M_t x is a vector of whole numbers, n_t times the residual. Independent discrete Gaussian noise of
parameter n_t sigma_t on it costs what Gaussian noise costs on any integer vector, rho = D^2 / (2 n_t^2 sigma_t^2) with D
the L2 sensitivity of A M_t. Under add-remove D^2 / n_t^2 = d_t / n_t, which is the price of the continuous mechanism.
# Paper: noise H N(0, I) on H M_t x, H the differences of neighbouring cells. Here: noise on A M_t x; centred, it is the same law
# up to its being discrete, and what centring removes is noise alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector, Workload
from consilience.domain.clique_vector import Layout
from consilience.errors import BudgetError, DomainError
from consilience.fits import LeastSquares
from consilience.measurements import Measurement
from consilience.mechanisms.fixed import CalibratedParts, Part, check_parts_fit
from consilience.mechanisms.mechanism import (
    Mechanism,
    Release,
    check_admitted,
    check_budget,
    check_workload,
)
from consilience.mechanisms.residual_planner_plan import ResidualPlan
from consilience.mechanisms.strategies_queries import Residual, centred
from consilience.model import Fit
from consilience.privacy import (
    Budget,
    Cost,
    Epsilon,
    MuSquared,
    Neighbours,
    Rho,
    gaussian_sigma,
)
from consilience.privacy.noise import checked_width
from consilience.solvers.planner import Plan


@dataclass(frozen=True, eq=False)
class ResidualPlanner(Mechanism):
    """Noisy residuals with the least expected squared error for `workload`, then one consistent model of them.

    The weight of a clique in the workload multiplies its answers, so squared errors count by its square. fit: how they are
    reconstructed, from marginals that say the same as the residuals.
    """

    workload: Workload
    fit: Fit = LeastSquares()

    def __post_init__(self) -> None:
        check_workload(self.workload, self.fit)
        self.fit.check("gaussian")

    def calibrate(self, budget: Budget) -> CalibratedResidualPlanner:
        """Least noise that an (epsilon, delta) or rho budget allows."""
        check_budget(budget)
        if isinstance(budget.capacity, Epsilon):
            raise BudgetError(
                f"Gaussian noise cannot keep a pure epsilon, got {budget!r}; give the budget a "
                "delta (or rho), or use HDMM with Laplace noise"
            )
        noise = ResidualPlan.of(self.workload, budget.neighbours)
        domain = self.workload.domain
        check_parts_fit(domain, noise.cliques, self.fit.memory, "the tables of the residuals")
        parts = _with_noise(noise, budget)
        cost = Cost.sum(budget.neighbours, _costs(parts, budget.neighbours))
        check_admitted(budget, cost)
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


def _with_noise(noise: ResidualPlan, budget: Budget) -> list[Part]:
    """The least sigma for each residual's share; equal residuals are calibrated once."""
    sizes = noise.workload.domain.sizes
    known: dict[tuple[tuple[int, ...], float], int] = {}
    kinds: list[int] = []
    shapes = [tuple([sizes[a] for a in clique]) for clique in noise.cliques]
    for shape, share in zip(shapes, noise.shares.tolist(), strict=True):
        kinds.append(known.setdefault((tuple(sorted(shape)), share), len(known)))
    times = np.bincount(kinds)
    capacity = budget.capacity
    amounts = capacity.split([share * int(n) for (_, share), n in zip(known, times, strict=True)])
    widths = []
    for (shape, _), amount, n in zip(known, amounts, times, strict=True):
        each = amount * Fraction(1, int(n))
        assert isinstance(each, Rho | MuSquared)
        widths.append(gaussian_sigma(Residual(shape).sensitivity(budget.neighbours), each))
        checked_width(widths[-1])
    return [
        Part(clique, widths[kind], Residual(shape))
        for clique, shape, kind in zip(noise.cliques, shapes, kinds, strict=True)
    ]


def _costs(parts: Iterable[Part], neighbours: Neighbours) -> Iterator[Cost]:
    """Equal parts are priced once."""
    groups: dict[tuple[tuple[int, ...], float], list[Part]] = {}
    for part in parts:
        assert isinstance(part.query, Residual)
        key = tuple(sorted(part.query.sizes)), part.width.value
        groups.setdefault(key, []).append(part)
    for members in groups.values():
        yield members[0].cost(neighbours) * len(members)
