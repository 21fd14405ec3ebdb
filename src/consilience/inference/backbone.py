"""Backbone: an exact model of the most informative part of a locally consistent one, kept for its global information."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from consilience.domain import Buffer, Clique, CliqueVector
from consilience.inference.spanning import mutual_information, pairs_of, spanning_tree
from consilience.oracles.elimination import distribution, eliminate
from consilience.regions.junction_tree import JunctionTree

if TYPE_CHECKING:
    from consilience.inference.model import Model

DEFAULT_MEMORY = "64 MB"
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False, repr=False)
class Backbone:
    """p_B(x) = product of `beliefs` over the product of the separators' tables, a distribution over the whole domain.

    `cliques` are the in-model cliques that it was fitted to; `beliefs` has one calibrated table per clique of `tree`.
    """

    tree: JunctionTree
    cliques: tuple[Clique, ...]
    beliefs: CliqueVector

    def marginal(self, attributes: Iterable[str]) -> Buffer:
        """The exact marginal of p_B on any attributes, a distribution; axes in domain order."""
        domain = self.tree.domain
        wanted = domain.clique(attributes)
        factors = []
        with np.errstate(divide="ignore"):
            for clique in self.tree.cliques:
                factors.append((domain.axes(clique), np.log(self.beliefs[clique])))
            for (i, _), separator in zip(self.tree.edges, self.tree.separators, strict=True):
                if separator:
                    clique = self.tree.cliques[i]
                    axes = tuple(k for k, a in enumerate(clique) if a not in separator)
                    below = np.log(self.beliefs[clique].sum(axis=axes))
                    factors.append(
                        (domain.axes(separator), -np.where(np.isfinite(below), below, 0.0))
                    )
        return distribution(eliminate(factors, domain.axes(wanted), domain.shape), wanted)


def build_backbone(
    model: Model, memory: str | int | float = DEFAULT_MEMORY, progress: Progress | None = None
) -> Backbone:
    """The backbone of a model. First version: the maximum-mutual-information spanning tree, or the whole of a global model."""
    domain, graph, tau = model.domain, model.graph, model.tau
    if graph.kind == "junction tree":
        tree = JunctionTree.of(domain, [graph.regions[i] for i in graph.roots])
        chosen = tree.cliques
    else:
        weights = []
        for pair, region in pairs_of(graph).items():
            axes = tuple(k for k, a in enumerate(region) if a not in pair)
            weights.append((pair, mutual_information(tau[region].sum(axis=axes))))
        chosen = spanning_tree(domain, weights)
        tree = JunctionTree.of(domain, chosen)
    tables = {c: _table(model, c) for c in tree.cliques}
    return Backbone(tree, chosen, CliqueVector.from_tables(domain, tables))


def _table(model: Model, clique: Clique) -> Buffer:
    """The model's table, or uniform for an attribute that nothing mentions."""
    if model.in_model(clique):
        return model.marginal(clique) / model.total
    return np.full(model.domain.shape_of(clique), 1.0 / model.domain.size(clique))
