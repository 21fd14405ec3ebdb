"""Region graphs, junction trees and their compiled form."""

from consilience.regions.drawing import draw
from consilience.regions.junction_tree import JunctionTree
from consilience.regions.region_graph import Kind, RegionGraph

__all__ = ["JunctionTree", "Kind", "RegionGraph", "draw"]
