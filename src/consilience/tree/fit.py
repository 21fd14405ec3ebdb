"""Distributions fitted on a junction tree's possible cells, to exact tables or to noisy ones, by passes around the tree.

Exact tables: iterative proportional fitting gives the maximum-entropy distribution that has them. Where no distribution has all
of them (they need only be locally consistent), plain fitting would cycle; it is then damped until the cycle is a point, a
compromise between the targets.

Noisy tables: Prox-PGM, stopped before it follows the noise. A step minimises L(p) + strength KL(p || the model before it), L half
the squared distances over their variances, by block ascent of the dual: passes on which each noisy table in turn is fitted while
the others' potentials are fixed. Steps from the uniform distribution trace the path from no data to the maximum-likelihood fit.
They end where Stein's estimate of the risk,
    ||y - p||^2 / sigma^2 + 2 tr(dp / dy) - cells,
stops falling; the trace comes from a second path to slightly perturbed data. Nothing but the noisy tables is used.

# Paper: Private-PGM takes a fixed number of steps on full tables. Here: large steps, cells that can occur, and a rule to stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, Clique, CliqueVector
from consilience.kernels import proportional
from consilience.kernels.messages import add_up
from consilience.loop import Check, Goal, iterate
from consilience.progress import Progress, Step, quiet
from consilience.tree.support import SupportTree

TOLERANCE = 1e-6
"""Proportional fitting ends when no target is missed by more than this, in L1."""
PATIENCE = 5
MOST_DAMPED = 1 / 32
"""Steps are halved after PATIENCE passes without progress, down to MOST_DAMPED of a full step."""
FOLLOWED = 5.0
"""A proximal step follows the noisy tables where a cell holds this many standard deviations of the noise, or more."""
PASSES = 16
"""Passes around the tree in a proximal step; the first step takes twice as many."""
MOST_STEPS = 40
GAIN = 0.005
"""Proximal steps end when they lower the estimated risk by less than this part of it."""
PERTURBATION = 0.5
"""Standard deviations of the noise that perturbs the second path's data."""


@dataclass(frozen=True, eq=False)
class TreeFit:
    """p proportional to exp(sum of theta) on possible cells; one vector of their probabilities per clique of the tree.

    `iterations` counts passes of proportional fitting, or proximal steps; `misfit` is the largest L1 distance to a target (for
    noisy tables: the largest L1 change) that the last pass found.
    """

    support: SupportTree
    tables: Sequence[Buffer]
    theta: CliqueVector
    misfit: float
    iterations: int

    def beliefs(self) -> CliqueVector:
        """The tables in full, zero where nothing is possible."""
        tree = self.support.tree
        found = CliqueVector.zeros(tree.domain, tree.cliques)
        for c, (clique, members) in enumerate(zip(tree.cliques, self.support.members, strict=True)):
            found[clique].reshape(-1)[self.support.located(c, members)] = self.tables[c]
        return found

    def targets(self) -> CliqueVector:
        """The fitted distribution's own tables of the cliques that it was fitted to."""
        support, domain = self.support, self.support.tree.domain
        found = CliqueVector(self.theta.layout)
        for clique in found.cliques:
            wanted = domain.axes(clique)
            home = support.home(wanted)
            found[clique][...] = support.summed(home, self.tables[home], wanted)
        return found


# -- exact tables ------------------------------------------------------------------------------------


def fit_tree(
    support: SupportTree,
    targets: CliqueVector,
    *,
    theta: CliqueVector | None = None,
    passes: int = 100,
    tolerance: float = TOLERANCE,
    progress: Progress = quiet,
) -> TreeFit:
    """Maximum entropy with the given tables, in at most so many passes; `theta` (on cliques inside the tree) is a warm start."""
    method = _Proportional(support, targets, _potentials(targets, theta))
    run = iterate(
        method,
        limit=passes,
        tolerance=tolerance,
        goal=Goal.VIOLATION,
        progress=lambda s: progress(Step("fitting the tree", s.done, passes)),
    )
    return method.fitting.read(method.misfit, run.iterations)


class _Proportional:
    """Iterative proportional fitting, a pass at a time, damped where passes no longer bring the targets closer."""

    def __init__(self, support: SupportTree, targets: CliqueVector, theta: Buffer) -> None:
        self.targets = targets.values
        self.fitting = Fitting(support, targets, np.full(len(targets.cliques), np.inf), theta)
        self.best, self.misfit, self.damping, self.idle = np.inf, np.inf, 1.0, 0

    def start(self) -> None: ...

    def step(self, state: None, most: int) -> int:
        self.misfit = self.fitting.run(self.targets, self.damping)
        self.idle = 0 if self.misfit < (1 - 1e-4) * self.best else self.idle + 1
        self.best = min(self.best, self.misfit)
        if self.idle >= PATIENCE and self.damping > MOST_DAMPED:
            self.damping, self.idle = self.damping / 2, 0
        return 1

    def check(self, state: None, done: int) -> Check:
        return Check(violation=self.misfit)


def pass_cells(support: SupportTree, targets: int) -> int:
    """Roughly how many cells one pass goes over."""
    return int((2 + targets / max(1, len(support.cells))) * support.size)


def _potentials(targets: CliqueVector, theta: CliqueVector | None) -> Buffer:
    """theta as potentials of the targets, each table in the first target that holds it; what lies in none is left out."""
    found = CliqueVector(targets.layout)
    for clique, table in theta.items() if theta is not None else ():
        home = min(targets.layout.holders.of(clique), default=None)
        if home is not None:
            larger = targets.cliques[home]
            shape = [targets.domain[a] if a in clique else 1 for a in larger]
            found[larger][...] += table.reshape(shape)
    return found.values


# -- noisy tables ------------------------------------------------------------------------------------


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
        """The weight of KL in a step, such that cells of FOLLOWED standard deviations are followed by one step."""
        return FOLLOWED * float(np.sqrt(np.median(self.weights)))

    def weight(self, clique: Clique) -> float:
        return float(self.weights[self.values.layout.index[clique]])

    def only(self, cliques: Sequence[Clique]) -> NoisyTables:
        """The tables of these cliques."""
        values = CliqueVector.from_tables(
            self.values.domain, {c: self.values[c].copy() for c in cliques}
        )
        return NoisyTables(values, np.array([self.weight(c) for c in values.cliques]))

    def perturbed(self, rng: np.random.Generator) -> tuple[NoisyTables, Buffer]:
        """The same with PERTURBATION standard deviations of fresh noise, and that noise in standard deviations."""
        drawn = rng.standard_normal(len(self.values.values))
        values = self.values.values + PERTURBATION * drawn / np.sqrt(self.by_cell)
        return NoisyTables(CliqueVector(self.values.layout, values), self.weights), drawn


class ProximalPath:
    """Steps from the uniform distribution on the possible cells towards the noisy tables. Mutable."""

    def __init__(self, support: SupportTree, noisy: NoisyTables) -> None:
        self.noisy = noisy
        start = np.zeros(noisy.values.layout.cells)
        self._fitting = Fitting(support, noisy.values, noisy.weights / noisy.strength, start)
        self._by_cell = noisy.by_cell / noisy.strength
        self.steps, self._change = 0, np.inf

    def step(self) -> None:
        """Fit the data with the potentials so far added back: KL is then to where the step began."""
        wanted = self.noisy.values.values + self._fitting.state.theta / self._by_cell
        for _ in range(PASSES if self.steps else 2 * PASSES):
            self._change = self._fitting.run(wanted)
        self.steps += 1

    def fit(self) -> TreeFit:
        """The distribution that the path has reached; the path can go on."""
        return self._fitting.read(self._change, self.steps)


def fit_noisy(
    support: SupportTree,
    noisy: NoisyTables,
    steps: int | None = None,
    *,
    progress: Progress = quiet,
) -> TreeFit:
    """The exact model on the possible cells after so many proximal steps; None ends them where the estimated risk is least."""
    limit = MOST_STEPS if steps is None else steps
    method = _ToLeastRisk(support, noisy) if steps is None else _Steps(support, noisy)
    iterate(
        method,
        limit=limit,
        tolerance=0.0 if steps is None else None,
        progress=lambda s: progress(Step("fitting noisy tables", s.done, limit)),
    )
    return method.fit()


class _Steps:
    """Proximal steps, as many as the loop is told to make."""

    def __init__(self, support: SupportTree, noisy: NoisyTables) -> None:
        self.path = ProximalPath(support, noisy)

    def start(self) -> None: ...

    def step(self, state: None, most: int) -> int:
        self.path.step()
        return 1

    def check(self, state: None, done: int) -> Check:
        return Check()

    def fit(self) -> TreeFit:
        return self.path.fit()


class _ToLeastRisk(_Steps):
    """Proximal steps until they no longer lower the estimated risk; the gap of the check is then zero."""

    def __init__(self, support: SupportTree, noisy: NoisyTables) -> None:
        super().__init__(support, noisy)
        self.noisy = noisy
        # The draws are fixed: the same data give the same model.
        perturbed, self.drawn = noisy.perturbed(np.random.default_rng(0))
        self.beside = ProximalPath(support, perturbed)
        self.best: TreeFit | None = None
        self.least = np.inf

    def step(self, state: None, most: int) -> int:
        self.path.step()
        self.beside.step()
        return 1

    def check(self, state: None, done: int) -> Check:
        fit = self.path.fit()
        here, beside = fit.targets().values, self.beside.fit().targets().values
        risk = _risk(self.noisy, here, beside, self.drawn)
        over = self.best is not None and risk > self.least - GAIN * abs(self.least)
        if not over or risk < self.least:
            self.best, self.least = fit, risk
        return Check(objective=risk, gap=0.0 if over else np.inf)

    def fit(self) -> TreeFit:
        assert self.best is not None
        return self.best


def _risk(noisy: NoisyTables, p: Buffer, beside: Buffer, drawn: Buffer) -> float:
    """Stein's unbiased estimate of ||p - truth||^2 / sigma^2, its trace from one random direction."""
    root = np.sqrt(noisy.by_cell)
    missed = float(np.sum((root * (noisy.values.values - p)) ** 2))
    freedom = float(np.sum(drawn * root * (beside - p))) / PERTURBATION
    return missed + 2 * freedom - len(p)


# -- passes around the tree --------------------------------------------------------------------------


class Fitting:
    """A tree, its targets and the tables that passes fit to them, as the arrays of `kernels/proportional.py`. Mutable."""

    def __init__(
        self, support: SupportTree, targets: CliqueVector, stiffness: Buffer, theta: Buffer
    ) -> None:
        self.support, self.targets, self._stiffness = support, targets, stiffness
        rooted, domain = support.tree.rooted, support.tree.domain
        self._at = np.cumsum([0, *map(len, support.cells)], dtype=np.int64)
        self._sep = {c: k for k, c in enumerate(rooted.below)}
        self._widths = [support.widths[c] for c in rooted.below]
        self._widths += np.diff(targets.layout.offsets).tolist()
        self._below = np.cumsum([0, *self._widths], dtype=np.int64)
        # The targets that each clique is summed to, as numbers of children.
        self._inside: list[list[int]] = [[] for _ in support.members]
        maps: dict[tuple[int, int], NDArray[np.int32]] = {}
        for c, k in self._sep.items():
            maps[c, k], maps[rooted.up[c], k] = support.own[c], support.above[c]
        for k, clique in enumerate(targets.cliques, len(self._sep)):
            wanted = domain.axes(clique)
            home = support.home(wanted)
            self._inside[home].append(k)
            maps[home, k] = support.located(home, wanted).astype(np.int32)
        ends = np.cumsum([0, *map(len, maps.values())])
        self._map_at = dict(zip(maps, ends.tolist(), strict=False))
        self._maps = np.concatenate([*maps.values(), np.zeros(0, np.int32)])
        x, below = self._calibrated(theta, maps)
        self.state = proportional.State(x, below, theta, np.ones(len(below)))
        self._pass, self._last = self._steps(fitting=True), self._steps(fitting=False)
        self._sums = np.empty((proportional.SCRATCH, max(self._widths)))

    def run(self, wanted: Buffer, damping: float = 1.0) -> float:
        """Fit every target once, to `wanted`; the largest L1 distance that was found comes back."""
        return self._run(self._pass, wanted, damping)

    def read(self, misfit: float, iterations: int) -> TreeFit:
        """What the passes have reached, after one that fits nothing and brings every table up to date."""
        self._run(self._last, self.targets.values, 1.0)
        self.state.factor[:] = 1.0
        tables = tuple(t / t.sum() for t in np.split(self.state.x.copy(), self._at[1:-1]))
        theta = CliqueVector(self.targets.layout, self.state.theta.copy())
        return TreeFit(self.support, tables, theta, misfit, iterations)

    def _run(self, steps: proportional.Pass, wanted: Buffer, damping: float) -> float:
        scratch = proportional.Scratch(self._sums, np.zeros(len(steps.clique)))
        targets = proportional.Targets(wanted, self._stiffness)
        proportional.run(steps, self.state, targets, scratch, damping)
        return float(scratch.distance.max(initial=0.0))

    def _calibrated(
        self, theta: Buffer, maps: dict[tuple[int, int], NDArray[np.int32]]
    ) -> tuple[Buffer, Buffer]:
        """Tables and separator sums of exp(theta) on the possible cells: messages up to the root, then down again."""
        rooted, first = self.support.tree.rooted, self._below[len(self._sep)]
        tables = []
        for c, inside in enumerate(self._inside):
            log = np.zeros(self._at[c + 1] - self._at[c])
            for k in inside:
                log += theta[self._below[k] - first : self._below[k + 1] - first][maps[c, k]]
            tables.append(np.exp(log - log.max(initial=0.0)))
        below = np.zeros(self._below[-1])
        for c in reversed(rooted.below):
            k, p = self._sep[c], rooted.up[c]
            message = add_up(maps[c, k], tables[c], self._widths[k])
            tables[c] /= message.max()
            message /= message.max()
            below[self._below[k] : self._below[k + 1]] = message
            tables[p] *= message[maps[p, k]]
            tables[p] /= tables[p].max()
        tables[rooted.root] /= tables[rooted.root].sum()
        for c in rooted.below:
            k, p = self._sep[c], rooted.up[c]
            message = add_up(maps[p, k], tables[p], self._widths[k])
            mine = below[self._below[k] : self._below[k + 1]]
            ratio = np.divide(message, mine, out=np.zeros_like(message), where=mine > 0)
            tables[c] *= ratio[maps[c, k]]
            mine[:] = message
        return np.maximum(np.concatenate(tables), proportional.FLOOR), below

    def _steps(self, *, fitting: bool) -> proportional.Pass:
        """Once around the tree with every target on the way, or without, to bring all tables up to date."""
        root, children = self.support.tree.rooted.root, self.support.tree.rooted.children
        # The last message to the root is multiplied in when the next pass starts: its table is passed over once less.
        pending = self._sep[children[root][-1]] if children[root] else self._inside[root][-1]
        rows: list[tuple[int, int, int, bool]] = []

        def enter(c: int, incoming: int) -> int:
            for k in self._inside[c] if fitting else ():
                rows.append((c, incoming, k, True))
                incoming = k
            return incoming

        stack = [(root, iter(children[root]), enter(root, pending))]
        while stack:
            c, rest, incoming = stack.pop()
            d = next(rest, None)
            if d is not None:
                rows.append((c, incoming, self._sep[d], False))
                stack.append((c, rest, self._sep[d]))
                stack.append((d, iter(children[d]), enter(d, self._sep[d])))
            elif c != root:
                rows.append((c, incoming, self._sep[c], False))
        if not rows:  # one clique, no messages
            rows.append((root, pending, -1, False))
        place = [[self._map_at.get((r[0], r[side]), 0) for r in rows] for side in (1, 2)]
        clique, incoming, outgoing = (np.array([r[i] for r in rows], np.int64) for i in range(3))
        return proportional.Pass(
            at=self._at,
            below=self._below,
            measured=len(self._sep),
            maps=self._maps,
            clique=clique,
            incoming=incoming,
            incoming_map=np.array(place[0], np.int64),
            outgoing=outgoing,
            outgoing_map=np.array(place[1], np.int64),
            fits=np.array([r[3] for r in rows], np.bool_),
        )
