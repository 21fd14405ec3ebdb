"""The distribution next to the tables of a junction tree that do not quite agree.

Mixing with the uniform table makes a consistent point non-negative on any graph, but on a table of a million cells one cell of
minus a millionth costs half of the mixture. On a junction tree there is a cheaper way: from a root down, each table keeps its
conditional distribution given the separator and takes that of the separator from its parent. Two passes, and what comes out is
one distribution, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector
from consilience.regions.junction_tree import JunctionTree
from consilience.regions.region_graph import Kind, RegionGraph
from consilience.solvers.feasible import sum_from_parents


@dataclass(frozen=True, eq=False)
class TreePoint:
    """The regions without parents of a junction tree's graph, each after its parent; None for the first of each tree."""

    graph: RegionGraph
    order: tuple[tuple[Clique, Clique | None], ...]

    @classmethod
    def of(cls, graph: RegionGraph) -> TreePoint | None:
        """None where the graph is not a junction tree's."""
        roots = [graph.regions[i] for i in graph.roots]
        if graph.kind is not Kind.JUNCTION_TREE:
            return None
        tree = JunctionTree.of(graph.domain, roots)
        if not set(roots) <= set(tree.cliques):
            return None
        joined: dict[Clique, list[Clique]] = {c: [] for c in tree.cliques}
        for (a, b), separator in zip(tree.edges, tree.separators, strict=True):
            if separator:
                joined[tree.cliques[a]].append(tree.cliques[b])
                joined[tree.cliques[b]].append(tree.cliques[a])
        order: dict[Clique, Clique | None] = {}
        for first in roots:
            if first in order:
                continue
            order[first] = None
            waiting = [first]
            while waiting:
                parent = waiting.pop()
                for child in joined[parent]:
                    if child not in order:
                        order[child] = parent
                        waiting.append(child)
        return cls(graph, tuple(order.items()))

    def near(self, roots: CliqueVector) -> CliqueVector:
        """Tables of every region of one distribution, from non-negative tables of the regions without parents."""
        tau = CliqueVector(self.graph.layout)
        for clique, parent in self.order:
            if parent is None:
                tau[clique][...] = roots[clique] / roots[clique].sum()
            else:
                shared = set(clique).intersection(parent)
                wanted = _summed(tau[parent], parent, shared)
                tau[clique][...] = _given(roots[clique], clique, shared, wanted)
        sum_from_parents(self.graph, tau)
        return tau


def _summed(table: Buffer, clique: Clique, shared: set[str]) -> Buffer:
    return table.sum(axis=tuple(i for i, a in enumerate(clique) if a not in shared))


def _given(table: Buffer, clique: Clique, shared: set[str], wanted: Buffer) -> Buffer:
    """The table with `wanted` as its marginal; evenly spread where it has nothing and something is wanted."""
    inside = [n if a in shared else 1 for a, n in zip(clique, table.shape, strict=True)]
    have = _summed(table, clique, shared).reshape(inside)
    wanted = wanted.reshape(inside)
    each = table.size // wanted.size
    out = table * np.divide(wanted, have, out=np.zeros_like(have), where=have > 0)
    out += np.where(have > 0, 0.0, wanted / each)
    return out
