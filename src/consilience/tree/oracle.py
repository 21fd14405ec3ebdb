"""Exact marginals by a junction tree: the paper's Marginal-Oracle of Private-PGM, as steps on calibrated tables.

The state is a calibrated tree: p(x) is the product of the cliques' tables over the product of the separators'. A mirror step
multiplies each measured clique's factor exp(-rate * gradient) into the clique that holds it and calibrates again (Hugin: a
separator's new sum over its old one is a factor for the clique on its other side). Nothing is exponentiated but the gradient.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, log

import numpy as np
from numpy.typing import NDArray

from consilience.domain import Buffer, CliqueVector, Domain, Layout
from consilience.errors import LossError
from consilience.kernels import hugin
from consilience.kernels.tables import FLOOR
from consilience.memory import check_capacity
from consilience.regions.junction_tree import JunctionTree
from consilience.tree.arrays import TreeArrays
from consilience.tree.elimination import (
    align,
    check_domain,
    check_potentials,
    distribution,
    eliminate,
    sum_out,
)

MOST_PARTS = 20
"""Steps in products that cost about as much as one in logarithms."""


@dataclass
class ExactState:
    """Mutable: calibrated clique tables, separators and measured marginals; the root is still to be multiplied by `scale`.

    `log_partition` is that of the accumulated potentials, exact unless a cell fell below FLOOR and came back.
    """

    tables: Buffer
    below: Buffer
    scale: float
    log_partition: float

    def copy(self) -> ExactState:
        return ExactState(self.tables.copy(), self.below.copy(), self.scale, self.log_partition)

    def adopt(self, other: ExactState) -> None:
        """Take over another state's numbers without new memory."""
        np.copyto(self.tables, other.tables)
        np.copyto(self.below, other.below)
        self.scale, self.log_partition = other.scale, other.log_partition


class ExactOracle:
    """Steps and marginals on one junction tree, for potentials on `cliques`; holds scratch memory, the state is passed in."""

    def __init__(
        self, tree: JunctionTree, cliques: Iterable[Iterable[str]], *, memory: int | None = None
    ) -> None:
        measured = tuple(dict.fromkeys(tree.domain.clique(c) for c in cliques))
        check_capacity(f"{tree}", bytes_needed(tree, measured), memory)
        self.tree = tree
        self.arrays = TreeArrays.of(tree, measured)
        self._plan, scratch = self.arrays.plan()
        below = self.arrays.below.length
        self._first = below - self.layout.cells
        children = len(self.arrays.below.members)
        self._scratch = hugin.Scratch(
            factor=np.ones(below),
            sums=np.empty(scratch),
            lift=np.zeros(children),
            span=np.zeros(children),
        )
        self._enter, self._leave = _permutations(self.arrays)

    @property
    def layout(self) -> Layout:
        """Where the measured cliques lie in gradients and marginals, in domain order."""
        return self.arrays.layout

    def uniform(self) -> ExactState:
        """The uniform distribution: all potentials zero."""
        t, b = self.arrays.cliques.cells, self.arrays.below.cells
        size = sum(log(n) for n in self.tree.domain.shape)
        return ExactState(np.repeat(1.0 / t, t), np.repeat(1.0 / b, b), 1.0, size)

    def of_potentials(self, theta: CliqueVector) -> ExactState:
        """The distribution with these potentials, on cliques inside the tree's. Minus infinity marks an impossible cell."""
        check_domain(theta, self.tree.domain)
        check_potentials(theta)
        arrays = self.arrays
        logs = arrays.views(np.zeros(arrays.cliques.length))
        arrays.add_potentials(logs, theta)
        state = ExactState(np.empty(arrays.cliques.length), np.empty(arrays.below.length), 1.0, 0.0)
        state.log_partition = arrays.calibrate(logs)
        self._settle(state, logs)
        return state

    def step(self, state: ExactState, gradient: Buffer, rate: float) -> None:
        """theta -= rate * gradient, then calibrate. The gradient lies over `layout` in domain order."""
        entered = gradient if self._enter is None else gradient[self._enter]
        parts = self._parts(entered, rate)
        for _ in range(parts):
            self._step(state, entered, rate / parts)

    def _parts(self, gradient: Buffer, rate: float) -> int:
        """The number of equal parts that a step is taken in.

        One step whose factors are too wide for products is finished in logarithms, at the cost of MOST_PARTS steps in products.
        A clique's own factors may take half of WIDEST, which leaves as much for its neighbours' messages; the factors of the
        whole tree reach it in part. Along the way no cell is less likely than at the worse of the two ends, because its
        logarithm is concave.
        """
        if not len(gradient):
            return 1
        first = self.layout.offsets[:-1]
        span = np.maximum.reduceat(gradient, first) - np.minimum.reduceat(gradient, first)
        own = float(np.bincount(self.arrays.home, span).max())
        wide = abs(rate) * max(2.0 * own, 0.5 * float(span.sum())) / hugin.WIDEST
        return max(1, ceil(wide)) if wide <= MOST_PARTS else 1

    def _step(self, state: ExactState, entered: Buffer, rate: float) -> None:
        tables = hugin.Calibrated(state.tables, state.below)
        stopped, mass, lift = hugin.step(
            self._plan, entered, float(rate), tables, state.scale, self._scratch
        )
        if stopped == hugin.NOT_FINITE:
            raise LossError("a gradient must be finite, got NaN or infinity; check the loss")
        if stopped:
            self._finish_in_logs(state, -rate * entered, stopped)
            return
        state.scale = 1.0 / mass
        state.log_partition += lift + log(mass)

    def marginals(self, state: ExactState) -> Buffer:
        """The measured cliques' marginals over `layout` in domain order, each a distribution; a new buffer."""
        found = state.below[self._first :]
        return found.copy() if self._leave is None else found[self._leave]

    def marginal(
        self, state: ExactState, attributes: Iterable[str], *, memory: int | None = None
    ) -> Buffer:
        """The marginal of any clique by variable elimination on the part of the tree that it spans; axes in domain order."""
        domain, arrays = self.tree.domain, self.arrays
        wanted = domain.clique(attributes)
        keep = domain.axes(wanted)
        members = arrays.cliques.members
        logs, below = self._logs(state)
        factors = []
        for c in _spanning(arrays, set(keep)):
            table = logs[c]
            if c > 0 and arrays.up[c] >= 0:
                table = table - align(
                    _finite(below[c - 1]), arrays.below.members[c - 1], members[c]
                )
            factors.append((members[c], table))
        return distribution(eliminate(factors, keep, domain.shape, memory), wanted)

    # -- in logarithms -------------------------------------------------------------------------------

    def _logs(self, state: ExactState) -> tuple[list[Buffer], list[Buffer]]:
        arrays = self.arrays
        with np.errstate(divide="ignore"):
            logs, below = (
                arrays.views(np.log(state.tables)),
                arrays.views_below(np.log(state.below)),
            )
        logs[0] += log(state.scale)
        return logs, below

    def _finish_in_logs(self, state: ExactState, exponent: Buffer, stopped: int) -> None:
        """The rest of a step whose factors are too wide for products; cliques from `stopped` on have collected."""
        arrays = self.arrays
        members, inside = arrays.cliques.members, arrays.below.members
        logs, below = self._logs(state)
        messages = arrays.views_below(self._scratch.factor)
        for c in range(1, len(members)):
            divisor = _finite(below[c - 1])
            if c >= stopped:  # its message to the parent, new sum over old, is on its way
                message = np.where(messages[c - 1] > 0, messages[c - 1], 1.0)
                divisor = divisor - np.log(message) - self._scratch.lift[c - 1]
            logs[c] -= align(divisor, inside[c - 1], members[c])
        added = arrays.views_below(np.concatenate([np.zeros(self._first), exponent]))
        for a, home in enumerate(arrays.home, arrays.separators):
            if home < stopped:
                logs[home] += align(added[a], inside[a], members[home])
            else:
                state.log_partition += float(self._scratch.lift[a])
        state.log_partition += arrays.calibrate(logs)
        self._settle(state, logs)

    def _settle(self, state: ExactState, logs: list[Buffer]) -> None:
        """Write calibrated log-marginals into the state."""
        arrays = self.arrays
        members, inside = arrays.cliques.members, arrays.below.members
        for table, log_table in zip(arrays.views(state.tables), logs, strict=True):
            np.exp(log_table, out=table)
            np.maximum(table, FLOOR, out=table, where=log_table > -np.inf)
        above = [*range(1, len(members)), *arrays.home]
        for k, table in enumerate(arrays.views_below(state.below)):
            np.exp(sum_out(logs[above[k]], members[above[k]], inside[k]), out=table)
        for c, table in enumerate(arrays.views_below(state.below)[: arrays.separators], 1):
            least = FLOOR * logs[c].size / table.size
            np.maximum(
                table, least, out=table, where=sum_out(logs[c], members[c], inside[c - 1]) > -np.inf
            )
        state.scale = 1.0


def exact_marginals(
    domain: Domain,
    theta: CliqueVector,
    cliques: Iterable[Iterable[str]] | None = None,
    *,
    memory: int | None = None,
) -> tuple[CliqueVector, float]:
    """Marginals of p = exp(<theta, M p>) / Z on `cliques` (theta's own if None), and log Z; minus infinity is allowed."""
    check_domain(theta, domain)
    measured = theta.cliques if cliques is None else tuple(cliques)
    tree = JunctionTree.of(domain, [*theta.cliques, *measured])
    oracle = ExactOracle(tree, measured, memory=memory)
    state = oracle.of_potentials(theta)
    return CliqueVector(oracle.layout, oracle.marginals(state)), state.log_partition


def largest_total(tree: JunctionTree, theta: CliqueVector) -> float:
    """max over x of sum_r theta_r(x_r), by max-sum messages to the root; every clique of theta lies in a clique of the tree."""
    arrays = TreeArrays.of(tree, ())
    members = arrays.cliques.members
    logs = arrays.views(np.zeros(arrays.cliques.length))
    arrays.add_potentials(logs, theta)
    for c in range(len(members) - 1, 0, -1):
        keep, p = arrays.below.members[c - 1], arrays.up[c]
        axes = tuple(i for i, a in enumerate(members[c]) if a not in keep)
        logs[p] += align(logs[c].max(axis=axes), keep, members[p])
    return float(logs[0].max())


def bytes_needed(tree: JunctionTree, cliques: Iterable[Iterable[str]]) -> int:
    """Upper estimate of what an oracle with one state takes: tables, sums, factors, maps. Nothing is allocated."""
    domain = tree.domain
    measured = tuple(domain.clique(c) for c in cliques)
    below = sum(map(domain.size, [*tree.separators, *measured]))
    ends = [*map(tree.home, measured), *(i for edge in tree.edges for i in edge)]
    mapped = [tree.cliques[i] for i in ends]
    # A map has an entry per run of cells, and a run is at least as long as the clique's largest attribute.
    maps = sum(domain.size(c) // max(domain.shape_of(c)) for c in mapped)
    return 8 * (4 * tree.cells + 5 * below) + 4 * maps


def _finite(log_table: Buffer) -> Buffer:
    """Minus infinity replaced by zero: what it would be subtracted from is minus infinity already."""
    return np.where(np.isfinite(log_table), log_table, 0.0)


def _spanning(arrays: TreeArrays, wanted: set[int]) -> list[int]:
    """Cliques of the smallest subtree that holds the wanted attributes, with the root; the rest sums to one."""
    kept = list(range(len(arrays.up)))
    needed = [bool(wanted & set(m)) for m in arrays.cliques.members]
    beneath = [wanted & set(m) for m in arrays.cliques.members]
    for c in range(len(kept) - 1, 0, -1):
        separator = set(arrays.below.members[c - 1])
        needed[c] = not beneath[c] <= separator
        if needed[c]:
            beneath[arrays.up[c]] |= beneath[c]
    return [c for c in kept if c == 0 or needed[c]]


def _permutations(arrays: TreeArrays) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Where each cell of engine order lies in domain order, and the reverse; None where the orders agree."""
    inside = arrays.below.members[arrays.separators :]
    if all(tuple(sorted(m)) == m for m in inside):
        return None, None
    parts = []
    for i, members in enumerate(inside):
        lo, hi = arrays.layout.offsets[i], arrays.layout.offsets[i + 1]
        table = np.arange(lo, hi).reshape(arrays.layout.shapes[i])
        parts.append(align(table, tuple(sorted(members)), members).reshape(-1))
    enter = np.concatenate(parts)
    leave = np.empty_like(enter)
    leave[enter] = np.arange(len(enter))
    return enter, leave
