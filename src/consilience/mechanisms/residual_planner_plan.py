"""The closed-form plan of ResidualPlanner: how precisely to measure each residual of a workload.

The residual of the marginal on t is what it says beyond its own lower-order marginals: z_t = C_t M_t x, where C_t
subtracts the mean along each axis. All marginals follow from the residuals of their subsets,

    M_c x = sum_{t <= c} z_t / n_{c minus t}
    variance of each cell of c = sum_{t <= c} sigma_t^2 p_t / n_{c minus t}^2,    p_t = d_t / n_t.

Noise of standard deviation sigma_t on each entry costs c_t / (2 sigma_t^2): c_t = p_t under add-remove. The workload's
squared error is sum_t v_t sigma_t^2, v_t = d_t n_t omega_t. So with 2 rho to spend

    sigma_t^2 = sqrt(c_t / v_t) S / (2 rho),     S = sum_t sqrt(v_t c_t),     least squared error S^2 / (2 rho),

which under add-remove is the least that any Gaussian mechanism can have (the singular value bound).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from consilience.domain import Buffer, Clique, Workload
from consilience.mechanisms.strategies import Lattice, Rows
from consilience.mechanisms.strategies_queries import Residual
from consilience.privacy import Neighbours, residuals


@dataclass(frozen=True, eq=False)
class ResidualPlan:
    """Variances of the residuals at unit budget, 2 rho = 1; at rho they are divided by 2 rho.

    `measured` are positions in the lattice: subsets whose residual is not empty (and, where the number of rows is
    public, not the total); `price` and `variance` follow it.
    """

    workload: Workload
    neighbours: Neighbours
    lattice: Lattice
    measured: Rows
    price: Buffer
    variance: Buffer

    @classmethod
    def of(cls, workload: Workload, neighbours: Neighbours) -> ResidualPlan:
        lattice = Lattice.of(workload.domain, workload)
        wanted = lattice.dims > 0
        wanted[0] = neighbours is Neighbours.ADD_REMOVE
        measured = np.flatnonzero(wanted)
        n, d = lattice.cells[measured], lattice.dims[measured]
        value = d * n * lattice.importance(workload)[measured]
        price = _prices(lattice, measured, neighbours)
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
        told = np.zeros(len(lattice.subsets))
        told[self.measured] = 1 / variance
        _fill_constant(lattice, told, lattice.importance(self.workload))
        order = np.array([len(c) for c in lattice.subsets])
        precision = np.zeros(len(told))
        for size in range(int(order.max()), -1, -1):
            level = np.flatnonzero(order == size)
            left = told - lattice.drops @ precision
            precision[level] = np.where(left > 1e-9 * told, left, 0.0)[level]
        if self.neighbours is Neighbours.REPLACE_ONE:
            precision[0] = 0.0
        return precision


def _prices(lattice: Lattice, measured: Rows, neighbours: Neighbours) -> Buffer:
    """c_t: squared L2 sensitivity of each residual, of which there are as many as different tuples of sizes."""
    sizes = lattice.domain.sizes
    known: dict[tuple[int, ...], float] = {}
    prices: list[float] = []
    for i in measured:
        shape = tuple(sorted([sizes[a] for a in lattice.subsets[i]]))
        if shape not in known:
            query = Residual(shape)
            known[shape] = float(residuals(neighbours, shape).l2_squared) / query.unit**2
        prices.append(known[shape])
    return np.array(prices)


def _fill_constant(lattice: Lattice, told: Buffer, importance: Buffer) -> None:
    """Attributes of one value: a table with them tells what it tells without them, in the workload's proportion."""
    sizes = lattice.domain.sizes
    for i in np.flatnonzero(lattice.dims == 0):
        plain = lattice.index[tuple(a for a in lattice.subsets[i] if sizes[a] > 1)]
        told[i] = told[plain] * importance[i] / importance[plain]
