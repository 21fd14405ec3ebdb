"""Edges of a saturated graph that the others imply, removed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

Ids = NDArray[np.int64]


def minimal_edges(edges: NDArray[np.int64], below: Ids, above: Ids) -> NDArray[np.int64]:
    """Keep one parent of each region per group of parents that share an ancestor.

    If a lies above u and v, and u and v above r, then a ties u and v on r already: an edge from u to r makes the one
    from v redundant. `edges` rows are (parent, child) of the Hasse diagram; (below, above) all strict containments.
    """
    if not len(edges):
        return edges
    edges = edges[np.lexsort((edges[:, 0], edges[:, 1]))]
    parents, children = edges[:, 0], edges[:, 1]
    # For each edge u -> r, every ancestor a of u: rows (edge, (r, a)).
    order = np.argsort(below, kind="stable")
    below, above = below[order], above[order]
    first = np.searchsorted(below, parents, "left")
    count = np.searchsorted(below, parents, "right") - first
    edge_of_row = np.repeat(np.arange(len(edges)), count)
    start_of_row = np.cumsum(count) - count
    position = np.arange(count.sum()) - np.repeat(start_of_row, count) + np.repeat(first, count)
    ancestor = above[position]
    width = int(max(edges.max(), above.max() if len(above) else 0)) + 1
    _, meeting = np.unique(children[edge_of_row] * width + ancestor, return_inverse=True)
    nodes = len(edges) + (int(meeting.max()) + 1 if len(meeting) else 0)
    links = coo_matrix(
        (np.ones(len(edge_of_row), np.int8), (edge_of_row, len(edges) + meeting)),
        shape=(nodes, nodes),
    )
    _, label = connected_components(links, directed=False)
    _, kept = np.unique(label[: len(edges)], return_index=True)
    return edges[np.sort(kept)]
