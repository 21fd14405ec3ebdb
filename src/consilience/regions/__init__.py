"""Region graphs, junction trees and their compiled form."""

from consilience.regions.junction_tree import JunctionTree
from consilience.regions.region_graph import RegionGraph

__all__ = ["JunctionTree", "RegionGraph"]
