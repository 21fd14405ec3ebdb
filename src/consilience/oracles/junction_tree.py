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
from consilience.oracles.elimination import (
    align,
    check_domain,
    check_potentials,
    distribution,
    eliminate,
    sum_out,
)
from consilience.oracles.rooted_tree import RootedTree, homes
from consilience.regions.junction_tree import JunctionTree

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
        self.rooted = RootedTree.of(tree, measured)
        self._plan, scratch = self.rooted.plan()
        below = self.rooted.below.length
        self._first = below - self.layout.cells
        self._factor = np.ones(below)
        self._out = np.empty(scratch)
        self._lift = np.zeros(len(self.rooted.below.members))
        self._span = np.zeros(len(self.rooted.below.members))
        self._enter, self._leave = _permutations(self.rooted)

    @property
    def layout(self) -> Layout:
        """Where the measured cliques lie in gradients and marginals, in domain order."""
        return self.rooted.layout

    def uniform(self) -> ExactState:
        """The uniform distribution: all potentials zero."""
        t, b = self.rooted.cliques.cells, self.rooted.below.cells
        size = sum(log(n) for n in self.tree.domain.shape)
        return ExactState(np.repeat(1.0 / t, t), np.repeat(1.0 / b, b), 1.0, size)

    def of_potentials(self, theta: CliqueVector) -> ExactState:
        """The distribution with these potentials, on cliques inside the tree's. Minus infinity marks an impossible cell."""
        check_domain(theta, self.tree.domain)
        check_potentials(theta)
        rooted = self.rooted
        logs = rooted.views(np.zeros(rooted.cliques.length))
        inside = RootedTree.of(self.tree, theta.cliques).home
        for (clique, table), home in zip(theta.items(), inside, strict=True):
            have = self.tree.domain.axes(clique)
            logs[home] += align(table, have, rooted.cliques.members[home])
        state = ExactState(np.empty(rooted.cliques.length), np.empty(rooted.below.length), 1.0, 0.0)
        state.log_partition = rooted.calibrate(logs)
        self._settle(state, logs)
        return state

    def step(self, state: ExactState, gradient: Buffer, rate: float) -> None:
        """theta -= rate * gradient, then calibrate. The gradient lies over `layout` in domain order."""
        entered = gradient if self._enter is None else gradient[self._enter]
        parts = self._parts(entered, rate)
        for _ in range(parts):
            self._step(state, entered, rate / parts)

    def _parts(self, gradient: Buffer, rate: float) -> int:
        """How many equal steps to take one in: in logarithms, where factors are too wide for products, it would cost far more.

        A clique bears half of WIDEST by itself, which leaves as much for what its neighbours say; of the whole tree's factors it
        hears a part. Between its ends a cell is never less likely than at the lower one (its logarithm is concave along the way).
        """
        if not len(gradient):
            return 1
        first = self.layout.offsets[:-1]
        span = np.maximum.reduceat(gradient, first) - np.minimum.reduceat(gradient, first)
        own = float(np.bincount(self.rooted.home, span).max())
        wide = abs(rate) * max(2.0 * own, 0.5 * float(span.sum())) / hugin.WIDEST
        return max(1, ceil(wide)) if wide <= MOST_PARTS else 1

    def _step(self, state: ExactState, entered: Buffer, rate: float) -> None:
        stopped, mass, lift = hugin.step(
            self._plan, entered, float(rate), state.tables, state.below, state.scale,
            self._factor, self._out, self._lift, self._span,
        )  # fmt: skip
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
        domain, rooted = self.tree.domain, self.rooted
        wanted = domain.clique(attributes)
        keep = domain.axes(wanted)
        members = rooted.cliques.members
        logs, below = self._logs(state)
        factors = []
        for c in _spanning(rooted, set(keep)):
            table = logs[c]
            if c > 0 and rooted.up[c] >= 0:
                table = table - align(
                    _finite(below[c - 1]), rooted.below.members[c - 1], members[c]
                )
            factors.append((members[c], table))
        return distribution(eliminate(factors, keep, domain.shape, memory), wanted)

    # -- in logarithms -------------------------------------------------------------------------------

    def _logs(self, state: ExactState) -> tuple[list[Buffer], list[Buffer]]:
        rooted = self.rooted
        with np.errstate(divide="ignore"):
            logs, below = (
                rooted.views(np.log(state.tables)),
                rooted.views_below(np.log(state.below)),
            )
        logs[0] += log(state.scale)
        return logs, below

    def _finish_in_logs(self, state: ExactState, exponent: Buffer, stopped: int) -> None:
        """The rest of a step whose factors are too wide for products; cliques from `stopped` on have collected."""
        rooted = self.rooted
        members, inside = rooted.cliques.members, rooted.below.members
        logs, below = self._logs(state)
        sent = rooted.views_below(self._factor)
        for c in range(1, len(members)):
            divisor = _finite(below[c - 1])
            if (
                c >= stopped
            ):  # its message to the parent, new sum over old sum, is not yet delivered
                divisor = (
                    divisor
                    - np.log(np.where(sent[c - 1] > 0, sent[c - 1], 1.0))
                    - self._lift[c - 1]
                )
            logs[c] -= align(divisor, inside[c - 1], members[c])
        added = rooted.views_below(np.concatenate([np.zeros(self._first), exponent]))
        for a, home in enumerate(rooted.home, rooted.separators):
            if home < stopped:
                logs[home] += align(added[a], inside[a], members[home])
            else:
                state.log_partition += float(self._lift[a])
        state.log_partition += rooted.calibrate(logs)
        self._settle(state, logs)

    def _settle(self, state: ExactState, logs: list[Buffer]) -> None:
        """Write calibrated log-marginals into the state."""
        rooted = self.rooted
        members, inside = rooted.cliques.members, rooted.below.members
        for table, log_table in zip(rooted.views(state.tables), logs, strict=True):
            np.exp(log_table, out=table)
            np.maximum(table, FLOOR, out=table, where=log_table > -np.inf)
        held = [*range(1, len(members)), *rooted.home]
        for k, table in enumerate(rooted.views_below(state.below)):
            np.exp(sum_out(logs[held[k]], members[held[k]], inside[k]), out=table)
        for c, table in enumerate(rooted.views_below(state.below)[: rooted.separators], 1):
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


def bytes_needed(tree: JunctionTree, cliques: Iterable[Iterable[str]]) -> int:
    """Upper estimate of what an oracle with one state takes: tables, sums, factors, maps. Nothing is allocated."""
    domain = tree.domain
    measured = tuple(domain.clique(c) for c in cliques)
    below = sum(map(domain.size, [*tree.separators, *measured]))
    ends = [*homes(tree, tree.cliques, measured), *(i for edge in tree.edges for i in edge)]
    held = [tree.cliques[i] for i in ends]
    # A map has an entry per run of cells, and a run is at least as long as the clique's largest attribute.
    maps = sum(domain.size(c) // max(domain.shape_of(c)) for c in held)
    return 8 * (4 * tree.cells + 5 * below) + 4 * maps


def _finite(log_table: Buffer) -> Buffer:
    """Minus infinity replaced by zero: what it would be subtracted from is minus infinity already."""
    return np.where(np.isfinite(log_table), log_table, 0.0)


def _spanning(rooted: RootedTree, wanted: set[int]) -> list[int]:
    """Cliques of the smallest subtree that holds the wanted attributes, with the root; the rest sums to one."""
    kept = list(range(len(rooted.up)))
    needed = [bool(wanted & set(m)) for m in rooted.cliques.members]
    beneath = [wanted & set(m) for m in rooted.cliques.members]
    for c in range(len(kept) - 1, 0, -1):
        separator = set(rooted.below.members[c - 1])
        needed[c] = not beneath[c] <= separator
        if needed[c]:
            beneath[rooted.up[c]] |= beneath[c]
    return [c for c in kept if c == 0 or needed[c]]


def _permutations(rooted: RootedTree) -> tuple[NDArray[np.int64] | None, NDArray[np.int64] | None]:
    """Where each cell of engine order lies in domain order, and the reverse; None where the orders agree."""
    inside = rooted.below.members[rooted.separators :]
    if all(tuple(sorted(m)) == m for m in inside):
        return None, None
    parts = []
    for i, members in enumerate(inside):
        lo, hi = rooted.layout.offsets[i], rooted.layout.offsets[i + 1]
        table = np.arange(lo, hi).reshape(rooted.layout.shapes[i])
        parts.append(align(table, tuple(sorted(members)), members).reshape(-1))
    enter = np.concatenate(parts)
    leave = np.empty_like(enter)
    leave[enter] = np.arange(len(enter))
    return enter, leave
