"""The largest total potential of a record, by dynamic programming on a junction tree (max-sum)."""

from __future__ import annotations

import numpy as np

from consilience.domain import Buffer, CliqueVector
from consilience.oracles.elimination import align
from consilience.oracles.rooted_tree import RootedTree
from consilience.regions.junction_tree import JunctionTree


def largest_total(tree: JunctionTree, theta: CliqueVector) -> float:
    """max over x of sum_r theta_r(x_r). Every clique of theta lies in some clique of the tree."""
    rooted = RootedTree.of(tree, ())
    members = rooted.cliques.members
    sizes = rooted.cliques.sizes
    logs: list[Buffer] = [np.zeros([int(sizes[a]) for a in m]) for m in members]
    place = {name: i for i, name in enumerate(tree.domain.attributes)}
    sets = [frozenset(m) for m in members]
    for clique, table in theta.items():
        have = tuple(place[a] for a in clique)
        inside = frozenset(have)
        home = min((i for i, s in enumerate(sets) if inside <= s), key=lambda i: logs[i].size)
        logs[home] += align(table, have, members[home])
    for c in range(len(members) - 1, 0, -1):
        keep, p = rooted.below.members[c - 1], rooted.up[c]
        axes = tuple(i for i, a in enumerate(members[c]) if a not in keep)
        logs[p] += align(logs[c].max(axis=axes), keep, members[p])
    return float(logs[0].max())
