"""Controls at the end of a solve: consistent tables brought to public marginals and ranges, and what contradicts what.

Each control is met by scaling every table that holds its clique, which is a KL projection; sweeps of Convex-GBP restore
agreement. In turns they reach tables that do both. Scaling keeps zeros, so what a control leaves no room for is a mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector, Domain
from consilience.domain.domain import names_of
from consilience.kernels.tables import FLOOR
from consilience.loop import Check, Goal, iterate
from consilience.measurements import BoundControl
from consilience.regions.region_graph import RegionGraph
from consilience.regions.wiring import Wiring
from consilience.solvers.convex_gbp import TOGETHER
from consilience.solvers.sweeper import Beliefs, Sweeper

CLOSE = 1e-12
"""Tables that agree, and controls that hold, to this L1 distance of distributions do so."""
MOST_TURNS = 4000
LEAST = 1e-300


def open_cells(domain: Domain, controls: Sequence[BoundControl]) -> dict[Clique, Any]:
    """Masks of what controls leave no room for, over attributes; nothing where they leave some room everywhere."""
    found: dict[Clique, Any] = {}
    for c in controls:
        if not (c.high > 0).all():
            allowed: Any = c.high > 0
            for axis, name in enumerate(c.named):
                if name in domain.levels:
                    allowed = domain.levels[name].spread(allowed, axis)
            clique = domain.clique(c.named)
            found[clique] = allowed & found.get(clique, np.bool_(True))
    return found


def with_masks(
    domain: Domain, possible: Mapping[Clique, Any], controls: Sequence[BoundControl]
) -> dict[Clique, Any]:
    """Masks that were declared, by canonical cliques, and what controls add to them."""
    found = open_cells(domain, controls)
    for given, mask in possible.items():
        order = names_of(given)
        clique = domain.clique(order)
        table = np.asarray(mask).transpose([order.index(a) for a in clique])
        found[clique] = table & found[clique] if clique in found else table
    return found


class _Scaled:
    """One control and the tables that hold its clique, as distributions."""

    def __init__(self, graph: RegionGraph, control: BoundControl, total: float) -> None:
        self.domain = graph.domain
        self.named = control.named
        self.clique = self.domain.clique(control.named)
        self.regions = [r for r in graph.regions if set(self.clique) <= set(r)]
        self.low, self.high = control.low / total, control.high / total
        self.exact = control.exact

    def sums(self, table: Buffer, region: Clique) -> Buffer:
        axes = tuple(i for i, a in enumerate(region) if a not in self.clique)
        return self.domain.coarsened(table.sum(axis=axes), self.named)

    def scale(self, tau: CliqueVector) -> float:
        """Bring every table to the control; the L1 distance by which the first was off."""
        off = 0.0
        for k, region in enumerate(self.regions):
            found = self.sums(tau[region], region)
            wanted = self.low if self.exact else _into(found, self.low, self.high)
            if k == 0:
                off = float(np.abs(found - wanted).sum())
            factor = np.divide(wanted, found, out=np.zeros_like(found), where=found > LEAST)
            for axis, name in enumerate(self.named):
                if name in self.domain.levels:
                    factor = self.domain.levels[name].spread(factor, axis)
            shape = [self.domain[a] if a in self.clique else 1 for a in region]
            tau[region][...] *= factor.reshape(shape)
        return off


def _into(found: Buffer, low: Buffer, high: Buffer) -> Buffer:
    """The KL-closest distribution between the ends: found times one number where neither end binds."""
    if ((found >= low) & (found <= high)).all():
        return found
    below, above = 0.0, 1.0
    while np.clip(above * found, low, high).sum() < 1.0 and above < 1e18:
        above *= 2.0
    for _ in range(100):
        middle = 0.5 * (below + above)
        if np.clip(middle * found, low, high).sum() < 1.0:
            below = middle
        else:
            above = middle
    return np.clip(above * found, low, high)


class _Turns:
    """Scaling and sweeping in turns, as a method of the loop."""

    def __init__(
        self, graph: RegionGraph, tau: CliqueVector, scaled: Sequence[_Scaled], allowed: CliqueVector
    ) -> None:  # fmt: skip
        self.graph, self.tau, self.scaled, self.allowed = graph, tau, scaled, allowed
        self.off = np.inf

    def start(self) -> Beliefs:
        wiring = Wiring.of(self.graph)
        state = Beliefs.uniform(wiring, self.allowed)
        state.tau = wiring.enter(self.tau)
        state.settle()
        self.sweeper = Sweeper(wiring, "sequential")
        return state

    def step(self, state: Beliefs, most: int) -> int:
        self.sweeper.sweeps(state, TOGETHER, 0.1 * CLOSE)
        state.settle()
        tau = state.marginals()
        self.off = max(s.scale(tau) for s in self.scaled)
        self.tau = tau
        inside = np.maximum(tau.values, np.where(self.allowed.values > 0, FLOOR, 0.0))
        state.tau = state.wiring.enter(CliqueVector(tau.layout, inside))
        return 1

    def check(self, state: Beliefs, done: int) -> Check:
        apart = self.graph.local_polytope_violation(self.tau) if done else np.inf
        return Check(violation=max(self.off, apart))


def controlled(
    graph: RegionGraph,
    tau: CliqueVector,
    allowed: CliqueVector,
    controls: Sequence[BoundControl],
    total: float,
) -> tuple[CliqueVector, float]:
    """Consistent tables near tau, positive only where allowed, that keep the controls; the violation that is left."""
    scaled = [_Scaled(graph, c, total) for c in controls]
    run = _Turns(graph, tau, scaled, allowed)
    end = iterate(run, limit=MOST_TURNS, tolerance=CLOSE, goal=Goal.VIOLATION)
    assert end.last is not None
    return run.tau, max(run.off, graph.local_polytope_violation(run.tau))
