"""Projection: the consistent tables closest to given ones, in closed form on a graph's ties. One pass down, one pass up."""

from __future__ import annotations

import numpy as np

from consilience.domain import Buffer
from consilience.kernels import splitting as kernels
from consilience.kernels.splitting import Means, Roots
from consilience.regions.ties import Ties
from consilience.regions.wiring import chunks, group


class Projection:
    """Sums every table down to the nodes below it, averages there, and spreads what is missing back up (`regions.ties`).

    `target` holds the nodes' tables after `project`; its first cell is the total that all tables must have. `base` and
    `base_share` are what is known about the nodes apart from the tables: sums of weight * value and of weights.
    """

    def __init__(self, ties: Ties) -> None:
        self.ties = ties
        self.target = np.zeros(ties.nodes.length)
        self.target[0] = 1.0
        self.base = np.zeros(ties.nodes.length)
        self.base_share = np.zeros(len(ties.nodes.at))
        self.stats = np.zeros((len(ties.roots.at), kernels.STATS))
        self._msg = np.empty(ties.down.length)
        self._node_msg = np.empty(ties.inner.length)
        self._chunk = chunks(ties.roots.cells)
        self._incoming = group(ties.down.edges.child, len(ties.nodes.at))

    def weigh(self, weights: Buffer) -> None:
        """Give every table a weight: its sum down to a node s then counts as weight / n_{r\\s}."""
        down = self.ties.down
        weight = weights[down.edges.parent] / down.summed
        sums = np.bincount(down.edges.child, weight, minlength=len(self.base_share))
        share = 1.0 / np.maximum(sums + self.base_share, 1e-300)
        self._means = Means(self.target, self.base, weight, share, *self._incoming)

    def project(self, roots: Roots) -> None:
        """Leave in roots.x what is to be projected (`kernels.gather`), and find the nodes' tables of its projection."""
        t, msg = self.ties, self._msg
        nodes = t.nodes.shapes
        kernels.gather(roots, msg, self._chunk, t.roots.shapes, nodes, t.down.below, t.down.edges)
        for level in t.levels:
            kernels.average(level, msg, self._means, nodes, t.down.edges)
            kernels.adjust_nodes(
                level, self.target, self._node_msg, nodes, t.inner.below, t.inner.edges
            )

    def spread(self, roots: Roots, relax: float, *, update: bool) -> None:
        """Make roots.x the projection; then either v += relax (x - z), or take the statistics of the certificate."""
        t = self.ties
        kernels.scatter(
            update, relax, roots, self.stats, self.target, self._msg, self._chunk, t.roots.shapes, t.nodes.shapes,
            t.down.below, t.down.edges,
        )  # fmt: skip
