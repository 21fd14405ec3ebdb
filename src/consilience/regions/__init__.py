"""Region graphs, junction trees and their compiled form."""

from consilience.regions.drawing import draw
from consilience.regions.junction_tree import JunctionTree, Rooting
from consilience.regions.pseudo_marginals import PseudoMarginals
from consilience.regions.region_graph import Kind, RegionGraph

__all__ = ["JunctionTree", "Kind", "PseudoMarginals", "RegionGraph", "Rooting", "draw"]
