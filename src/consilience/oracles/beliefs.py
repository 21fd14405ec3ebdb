"""Beliefs: the state of Convex-GBP without messages, and one sweep of it.

Paper: Algorithm 2 keeps two messages per edge. Here: only the regions' beliefs are kept; all messages cancel (the index
slips of the printed algorithm do not arise). With b_r the log-belief of region r, S_p the log of parent p's belief
summed to child t, one update of t is

    q_t = (kappa_t b_t + sum_p kappa_p S_p) / (kappa_t + sum_p kappa_p),    b_p += q_t - S_p,    b_t = q_t,

which is exact block coordinate descent on the dual of Problem 3, D = sum_r kappa_r log sum exp b_r.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, CliqueVector, dot
from consilience.errors import RegionGraphError
from consilience.kernels import sweep as kernels
from consilience.kernels.agreement import combine
from consilience.kernels.tables import FLOOR, project
from consilience.kernels.threads import threads_for
from consilience.regions.schedule import Stage, schedule
from consilience.regions.wiring import Ints, Wiring, chunks

Marks = NDArray[np.uint8]


class Beliefs:
    """Mutable working state: `tau` are the beliefs in engine order, B_r = kappa_r (log tau_r + shift_r).

    A sweep may leave its last factors unapplied until the next pass over the tables; reading `tau`, `shift` or `mass` applies
    them first. Passing the state on is a warm start; `copy` it to keep a snapshot.
    """

    def __init__(
        self,
        wiring: Wiring,
        tau: Buffer,
        shift: Buffer,
        violation: float = np.inf,
        mass: Buffer | None = None,
    ) -> None:
        self.wiring = wiring
        self._tau = tau
        self._shift = shift
        self._mass = np.ones(len(shift)) if mass is None else mass
        self.violation = violation
        self.drift: Buffer = np.zeros(wiring.edges.length)
        """Logarithms of the factors that the sweeps since the last step applied, edge by edge."""
        self._creditor: Sweeper | None = None

    def pay(self) -> None:
        """Apply what the last sweep left to do."""
        if self._creditor is not None:
            self._creditor.collect()

    @property
    def tau(self) -> Buffer:
        self.pay()
        return self._tau

    @tau.setter
    def tau(self, values: Buffer) -> None:
        self.pay()
        self._tau = values

    @property
    def shift(self) -> Buffer:
        self.pay()
        return self._shift

    @shift.setter
    def shift(self, values: Buffer) -> None:
        self.pay()
        self._shift = values

    @property
    def mass(self) -> Buffer:
        """What each table still has to be divided by."""
        self.pay()
        return self._mass

    @classmethod
    def uniform(cls, wiring: Wiring, possible: CliqueVector | None = None) -> Beliefs:
        """B = 0 on every cell, and minus infinity where `possible` is zero."""
        cells = wiring.tables.cells
        tau = np.repeat(1.0 / cells, cells) if possible is None else wiring.enter(possible)
        state = cls(wiring, tau, np.log(cells.astype(np.float64)))
        if possible is not None:
            state._restrict()
        return state

    @classmethod
    def of_potentials(cls, wiring: Wiring, theta: CliqueVector) -> Beliefs:
        """B = theta. Minus infinity marks an impossible cell. A region with counting number zero can hold none."""
        state = cls.uniform(wiring)
        values = wiring.enter(theta)
        kappa = np.repeat(wiring.kappa, wiring.tables.cells)
        if np.any((kappa == 0) & (values != 0)):
            raise RegionGraphError(
                "theta must be zero on regions with counting number zero; move it to a parent (CliqueVector.expand)"
            )
        scaled = np.divide(values, kappa, out=np.zeros_like(values), where=kappa > 0)
        starts = wiring.tables.at
        top = np.maximum.reduceat(scaled, starts)
        if np.any(~np.isfinite(top)):
            raise RegionGraphError(
                "theta must have a finite entry in every region and no NaN or plus infinity"
            )
        state.tau = np.exp(scaled - np.repeat(top, wiring.tables.cells))
        np.maximum(state.tau, FLOOR, out=state.tau, where=np.isfinite(scaled))
        mass = np.add.reduceat(state.tau, starts)
        state.tau /= np.repeat(mass, wiring.tables.cells)
        state.shift = top + np.log(mass)
        return state

    def copy(self) -> Beliefs:
        return Beliefs(
            self.wiring, self.tau.copy(), self.shift.copy(), self.violation, self.mass.copy()
        )

    def adopt(self, other: Beliefs) -> None:
        """Take over another state's numbers without new memory."""
        np.copyto(self.tau, other.tau)
        np.copyto(self.shift, other.shift)
        np.copyto(self.mass, other.mass)
        np.copyto(self.drift, other.drift)
        self.violation = other.violation

    def settle(self) -> None:
        """Bring every belief to mass one. Steps leave the last division to the next pass over the cells."""
        t = self.wiring.tables
        with threads_for(len(self.tau)):
            kernels.settle(self.tau, self.shift, self.mass, t.at, t.rows, t.inner)

    @property
    def dual(self) -> float:
        """D(lambda), exact once the beliefs are settled. Problem 3's value is at least -D."""
        return dot(self.wiring.kappa, self.shift)

    def peaks(self) -> Buffer:
        """max over x of B_r(x) / kappa_r, per region."""
        t = self.wiring.tables
        out = np.empty(len(t.at))
        kernels.peak(self.tau, out, t.at, t.rows, t.inner)
        return np.log(np.maximum(out, FLOOR)) + self.shift

    def marginals(self) -> CliqueVector:
        return self.wiring.leave(self.tau)

    def _restrict(self) -> None:
        """Uniform over the possible cells; shift keeps B = 0 there."""
        starts = self.wiring.tables.at
        self.tau = (self.tau > 0).astype(np.float64)
        mass = np.add.reduceat(self.tau, starts)
        if np.any(mass == 0):
            raise RegionGraphError(
                "every region must have at least one possible cell, got one with none"
            )
        self.tau /= np.repeat(mass, self.wiring.tables.cells)
        self.shift = np.log(mass)


class Sweeper:
    """Runs sweeps of one schedule over `Beliefs`; holds the messages as scratch."""

    def __init__(self, wiring: Wiring, name: str = "parallel") -> None:
        self.wiring = wiring
        self.stages = schedule(wiring, name)
        self._msg = np.empty(wiring.edges.length)
        self._lift = np.zeros(len(wiring.edges.parent))
        self._gap = [np.zeros(len(s.children)) for s in self.stages]
        count = len(wiring.tables.members)
        self.square = np.zeros(count)
        self.cross = np.zeros(count)
        self.track = False
        """Whether sweeps keep the drift that `foresee` needs."""
        self._debtor: Beliefs | None = None
        self._nobody = np.zeros(count, np.uint8)
        self._owes = _deferrable(self.stages, count)
        self._no_rate = np.zeros(count)
        self._all = np.arange(count, dtype=np.int64)
        self._all_chunk = chunks(wiring.tables.cells)
        # The mirror step visits every region once and sums down the first stage's edges on the way.
        ptr = np.zeros(count + 1, np.int64)
        if self.stages:
            first = self.stages[0]
            ptr[first.parents + 1] = np.diff(first.parent_ptr)
        self._all_ptr = np.cumsum(ptr)
        self._no_ptr = np.zeros(count + 1, np.int64)
        self._all_edge = self.stages[0].parent_edge if self.stages else np.zeros(0, np.int64)

    def sweep(self, state: Beliefs) -> None:
        """One pass over all stages; afterwards `state.violation` is the largest L1 gap met on an edge."""
        self._step(kernels.PLAIN, state, state._tau, self._no_rate)

    def step_gradient(
        self, state: Beliefs, gradient: Buffer, rate: Buffer, foresee: bool = False
    ) -> None:
        """tau_r *= exp(-rate_r gradient_r), then one sweep.

        With `foresee` the drift of the sweeps since the last step is applied first: near the optimum every step is undone by
        the same reparametrisation as the one before, so guessing it leaves the sweep little to do.
        """
        self._step(kernels.GRADIENT, state, gradient, rate, foresee)

    def step_squared(
        self, state: Beliefs, target: Buffer, rate: Buffer, foresee: bool = False
    ) -> None:
        """The same with gradient tau - target; leaves sums for value and linearisation in `square` and `cross`."""
        self._step(kernels.SQUARED, state, target, rate, foresee)

    def _step(
        self, mode: int, state: Beliefs, other: Buffer, rate: Buffer, foresee: bool = False
    ) -> None:
        if self._debtor is not state or foresee:
            self.collect()
            state.pay()
        state_owes = self._debtor is state
        with threads_for(len(state._tau)):
            if foresee:
                self._mirror(mode, state, other, rate, self._no_ptr, self._nobody)
                self._repeat_drift(state)
                mode, other, rate = kernels.PLAIN, state._tau, self._no_rate
            elif mode != kernels.PLAIN and self.track:
                state.drift[:] = 0.0
            self._forgive(state)
            self._mirror(
                mode, state, other, rate, self._all_ptr, self._owes if state_owes else self._nobody
            )
            worst = 0.0
            for k, stage in enumerate(self.stages):
                if k:
                    self._project(state, stage)
                worst = max(worst, self._agree(state, k, stage))
            state.violation = worst
        self._lend(state)

    # -- factors that wait for the next pass over the tables ----------------------------------------

    def collect(self) -> None:
        """Apply the factors that the last sweep left on the messages."""
        state = self._debtor
        if state is not None:
            self._forgive(state)
            with threads_for(len(state._tau)):
                self._scale(state, self.stages[0], self._owes, 1)

    def _lend(self, state: Beliefs) -> None:
        if self.stages:
            self._debtor, state._creditor = state, self

    def _forgive(self, state: Beliefs) -> None:
        self._debtor, state._creditor = None, None

    # -- kernels --------------------------------------------------------------------------------------

    def _mirror(
        self, mode: int, state: Beliefs, other: Buffer, rate: Buffer, ptr: Ints, owes: Marks
    ) -> None:
        t, e = self.wiring.tables, self.wiring.edges
        kernels.step(
            mode, state._tau, state._shift, state._mass, other, rate, self.square, self.cross, owes, self._lift, self._msg,
            self._all_chunk, self._all, ptr, self._all_edge, t.at, t.rows, t.inner, e.kind, e.map_at, e.msg_at, e.width, e.maps,
        )  # fmt: skip

    def _repeat_drift(self, state: Beliefs) -> None:
        t, e = self.wiring.tables, self.wiring.edges
        self._lift[:] = 0.0
        for s in self.stages:
            kernels.foresee(
                state._tau, self._msg, state.drift, self.wiring.kappa, s.children, s.child_ptr, s.child_edge, e.parent,
                t.at, t.rows, t.inner, e.msg_at,
            )  # fmt: skip
            self._scale(state, s, self._nobody, 0)

    def _project(self, state: Beliefs, s: Stage) -> None:
        t, e = self.wiring.tables, self.wiring.edges
        project(
            state._tau, self._msg, s.chunk, s.parents, s.parent_ptr, s.parent_edge, t.at, t.rows, t.inner,
            e.kind, e.map_at, e.msg_at, e.width, e.maps,
        )  # fmt: skip

    def _agree(self, state: Beliefs, k: int, s: Stage) -> float:
        t, e = self.wiring.tables, self.wiring.edges
        gap = self._gap[k]
        combine(
            self.track, state._tau, state._shift, state._mass, self._msg, state.drift, gap, self._lift, s.weight,
            self.wiring.kappa, s.children, s.child_ptr, s.child_edge, e.parent, t.at, t.rows, t.inner, e.msg_at,
        )  # fmt: skip
        self._scale(state, s, self._nobody if k else self._owes, 0)
        return float(gap.max(initial=0.0))

    def _scale(self, state: Beliefs, s: Stage, owes: Marks, owing: int) -> None:
        t, e = self.wiring.tables, self.wiring.edges
        kernels.scale(
            state._tau, state._shift, state._mass, owes, owing, self._msg, self._lift, s.chunk, s.parents, s.parent_ptr,
            s.parent_edge, t.at, t.rows, t.inner, e.kind, e.map_at, e.msg_at, e.width, e.maps,
        )  # fmt: skip


def _deferrable(stages: tuple[Stage, ...], count: int) -> Marks:
    """Marks the regions that only the first stage touches: their factors can wait until the next pass sums them down."""
    marks = np.zeros(count, np.uint8)
    if stages:
        marks[stages[0].parents] = 1
        for stage in stages[1:]:
            marks[stage.parents] = 0
            marks[stage.children] = 0
    return marks
