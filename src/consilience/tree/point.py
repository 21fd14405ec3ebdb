"""The distribution next to the tables of a junction tree that do not quite agree.

Mixing with the uniform table makes a consistent point non-negative on any graph, but on a table of a million cells one cell of
minus a millionth costs half of the mixture. On a junction tree there is a cheaper way: from the root down, each table keeps its
conditional distribution given the separator and takes that of the separator from its parent. One pass, and what comes out is
one distribution, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector
from consilience.regions.junction_tree import JunctionTree, Rooting
from consilience.regions.region_graph import Kind, RegionGraph


@dataclass(frozen=True, eq=False)
class TreePoint:
    """A junction tree's region graph, and the tree that its regions without parents make, rooted at the first of them."""

    graph: RegionGraph
    tree: JunctionTree
    rooted: Rooting

    @classmethod
    def of(cls, graph: RegionGraph) -> TreePoint | None:
        """None where the graph is not a junction tree's."""
        if graph.kind is not Kind.JUNCTION_TREE:
            return None
        roots = [graph.regions[i] for i in graph.roots]
        tree = JunctionTree.of(graph.domain, roots)
        if not set(roots) <= set(tree.cliques):
            return None
        return cls(graph, tree, tree.rooted_at(tree.cliques.index(roots[0])))

    def near(self, tables: CliqueVector) -> CliqueVector:
        """Tables of every region of one distribution, from non-negative tables of the regions without parents."""
        tau = CliqueVector(self.graph.layout)
        tree, rooted = self.tree, self.rooted
        for c in rooted.order:
            clique, shared = tree.cliques[c], set(rooted.separator[c])
            if clique not in tau.layout.index:  # an attribute that nothing measures
                continue
            if shared:
                parent = tree.cliques[rooted.up[c]]
                wanted = _summed(tau[parent], parent, shared)
                tau[clique][...] = _given(tables[clique], clique, shared, wanted)
            else:
                tau[clique][...] = tables[clique] / tables[clique].sum()
        self.graph.sum_from_parents(tau)
        return tau


def potentials(tree: JunctionTree, rooted: Rooting, tables: CliqueVector) -> CliqueVector:
    """theta on the cliques of a tree with p = exp(sum of theta): each table given what it shares with its parent, as logarithms.

    The tables agree; one that is missing is uniform. Minus infinity where a cell has nothing.
    """
    theta = CliqueVector.uniform(tree.domain, tree.cliques)
    for c, clique in enumerate(tree.cliques):
        shared = set(rooted.separator[c])
        if clique in tables.layout.index:
            theta[clique][...] = tables[clique]
        if shared:
            ones = np.ones([tree.domain[a] for a in clique if a in shared])
            theta[clique][...] = _given(theta[clique], clique, shared, ones)
    with np.errstate(divide="ignore"):
        np.log(theta.values, out=theta.values)
    return theta


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
