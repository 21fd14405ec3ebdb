"""The exact model of noisy tables: Prox-PGM on a junction tree's possible cells, stopped where more would follow the noise.

A step minimises L(p) + strength KL(p || the model before it), L half the squared distances over their variances, by block ascent
of the dual: a walk around the tree on which every noisy table is approached with the others' potentials held. Steps from the
uniform distribution trace the path from no data to the maximum-likelihood fit. They end where Stein's estimate of the risk,
    ||y - p||^2 / sigma^2 + 2 tr(dp / dy) - cells,
stops falling; the trace is measured by a second path to slightly different data. Nothing but the noisy tables is used.

# Paper: Private-PGM takes a fixed number of steps on full tables. Here: large steps, cells that can occur, and a rule to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector
from consilience.inference.support import SupportTree
from consilience.inference.tree_fit import TreeFit, TreePath
from consilience.kernels import proportional

FOLLOWED = 5.0
"""A step follows the noisy tables where a cell holds this many standard deviations of the noise, or more."""
TOURS = 16
"""Walks around the tree in a step; the first step takes twice as many."""
MOST_STEPS = 40
GAIN = 0.005
"""Steps end when they lower the estimated risk by less than this part of it."""
NUDGE = 0.5
"""Standard deviations that the second path's data are moved by."""


@dataclass(frozen=True, eq=False)
class NoisyTables:
    """Tables with independent noise, divided by the total; `weights[i]` is one over the variance of a cell of clique i."""

    values: CliqueVector
    weights: Buffer

    @cached_property
    def by_cell(self) -> Buffer:
        """The weight of each cell of `values`."""
        return np.repeat(self.weights, np.diff(self.values.layout.offsets))

    @property
    def strength(self) -> float:
        """Of the pull towards the step before, so that cells of FOLLOWED standard deviations are followed by a step."""
        return FOLLOWED * float(np.sqrt(np.median(self.weights)))

    def weight(self, clique: Clique) -> float:
        return float(self.weights[self.values.layout.index[clique]])

    def only(self, cliques: Sequence[Clique]) -> NoisyTables:
        """The tables of these cliques."""
        values = CliqueVector.from_tables(
            self.values.domain, {c: self.values[c].copy() for c in cliques}
        )
        return NoisyTables(values, np.array([self.weight(c) for c in values.cliques]))

    def nudged(self, rng: np.random.Generator) -> tuple[NoisyTables, Buffer]:
        """The same with NUDGE standard deviations of fresh noise, and that noise in standard deviations."""
        drawn = rng.standard_normal(len(self.values.values))
        moved = self.values.values + NUDGE * drawn / np.sqrt(self.by_cell)
        return NoisyTables(CliqueVector(self.values.layout, moved), self.weights), drawn


class ProximalPath:
    """Steps from the uniform distribution on the possible cells towards the noisy tables. Mutable."""

    def __init__(self, support: SupportTree, noisy: NoisyTables) -> None:
        self.noisy, self.support = noisy, support
        layout = noisy.values.layout
        self._path = TreePath(support, noisy.values)
        self._walk = self._path.walk(fitting=True)
        self._last = self._path.walk(fitting=False)
        self._theta = np.zeros(layout.cells)
        self._x, self._below = self._path.calibrated(self._theta)
        self._factor = np.ones(len(self._below))
        self._sums = np.empty((proportional.MOST_BLOCKS, max(self._path.widths)))
        self._stiffness = noisy.weights / noisy.strength
        self._by_cell = noisy.by_cell / noisy.strength
        self.steps, self._moved = 0, np.inf

    def step(self) -> None:
        """Data to which the potentials so far are added back: the pull is then towards where the step began."""
        wanted = self.noisy.values.values + self._theta / self._by_cell
        distance = np.zeros(len(self._walk.clique))
        for _ in range(TOURS if self.steps else 2 * TOURS):
            self._go(self._walk, wanted, distance)
        self.steps, self._moved = self.steps + 1, float(distance.max(initial=0.0))

    def _go(self, walk: proportional.Walk, wanted: Buffer, distance: Buffer) -> None:
        proportional.walk(
            walk, self._x, self._below, wanted, self._theta, self._factor, self._sums, distance,
            1.0, self._stiffness,
        )  # fmt: skip

    def fit(self) -> TreeFit:
        """Where the path is, told to everyone in the tree."""
        self._go(self._last, self.noisy.values.values, np.zeros(len(self._last.clique)))
        self._factor[:] = 1.0
        x = self._x
        tables = tuple(t / t.sum() for t in np.split(x.copy(), self._path.at[1:-1]))
        theta = CliqueVector(self.noisy.values.layout, self._theta.copy())
        return TreeFit(self.support, tables, theta, self._moved, self.steps)


def tables_of(fit: TreeFit) -> CliqueVector:
    """The model's own tables of the cliques that it was fitted to."""
    support, domain = fit.support, fit.support.tree.domain
    found = CliqueVector(fit.theta.layout)
    for clique in found.cliques:
        wanted = domain.axes(clique)
        home = support.home(wanted)
        found[clique][...] = support.summed(home, fit.tables[home], wanted)
    return found


def fit_noisy(
    support: SupportTree,
    noisy: NoisyTables,
    steps: int | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> TreeFit:
    """The exact model on the possible cells after so many steps; None finds out how many. `fit.tours` says how many it took.

    progress sees (steps done, steps at most).
    """
    path = ProximalPath(support, noisy)
    if steps is not None:
        for k in range(steps):
            path.step()
            if progress is not None:
                progress(k + 1, steps)
        return path.fit()
    # The draws are fixed: the same data give the same model.
    nudged, drawn = noisy.nudged(np.random.default_rng(0))
    beside = ProximalPath(support, nudged)
    best, least = None, np.inf
    for k in range(MOST_STEPS):
        path.step()
        beside.step()
        fit = path.fit()
        risk = _risk(noisy, tables_of(fit).values, tables_of(beside.fit()).values, drawn)
        if progress is not None:
            progress(k + 1, MOST_STEPS)
        if best is not None and risk > least - GAIN * abs(least):
            return fit if risk < least else best
        best, least = fit, risk
    assert best is not None
    return best


def _risk(noisy: NoisyTables, p: Buffer, beside: Buffer, drawn: Buffer) -> float:
    """Stein's unbiased estimate of ||p - truth||^2 / sigma^2, its trace from one random direction."""
    root = np.sqrt(noisy.by_cell)
    missed = float(np.sum((root * (noisy.values.values - p)) ** 2))
    freedom = float(np.sum(drawn * root * (beside - p))) / NUDGE
    return missed + 2 * freedom - len(p)
