"""A backbone as files keep it: its cliques and potentials, from which its tables are made again at a tenth of the price."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from consilience.domain import Clique, CliqueVector
from consilience.regions.junction_tree import JunctionTree
from consilience.regions.pseudo_marginals import PseudoMarginals
from consilience.tree.answers import Backbone
from consilience.tree.fit import Fitting
from consilience.tree.support import SupportTree


@dataclass(frozen=True, eq=False)
class KeptBackbone:
    """theta: potentials on the cliques that it was fitted to. cells: how many of its tree are possible. The rest as there."""

    theta: CliqueVector
    whole: bool
    cells: int
    misfit: float
    iterations: int
    missed: tuple[tuple[Clique, float], ...]

    @classmethod
    def of(cls, backbone: Backbone) -> KeptBackbone:
        fit = backbone.fit
        # Six digits: the last bits of a sum may differ between a kernel just compiled and one from the cache.
        misfit = float(f"{fit.misfit:.6g}")
        theta = CliqueVector(fit.theta.layout, np.round(fit.theta.values, 6))
        missed = tuple((c, float(f"{distance:.6g}")) for c, distance in backbone.missed)
        return cls(theta, backbone.whole, fit.support.size, misfit, fit.iterations, missed)

    def restored(self, known: PseudoMarginals) -> Backbone | None:
        """The backbone of these tables; None if they are not those that it was fitted to."""
        cliques = tuple(self.theta.cliques)
        if not all(map(known.holds, cliques)):
            return None
        tree = JunctionTree.of(known.domain, cliques)
        targets = CliqueVector.from_tables(known.domain, {c: known.table(c) for c in cliques})
        zeros = self.cells < tree.cells
        support = SupportTree.of(tree, targets, self.cells, zeros=zeros)
        if support is None or support.size != self.cells:
            return None
        loose = np.full(len(cliques), np.inf)
        fitting = Fitting(support, targets, loose, self.theta.values.copy())
        fit = fitting.read(self.misfit, self.iterations)
        return Backbone(cliques, fit, self.whole, self.missed)
