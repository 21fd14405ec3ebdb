"""The drawing of a region graph is well-formed SVG with one box per region and one line per edge."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from consilience.domain import Domain, random_marginals
from consilience.errors import RegionGraphError
from consilience.regions import RegionGraph, draw

D = Domain({"A": 2, "B": 3, "C": 2, "D <&>": 3, "E": 2})
SVG = "{http://www.w3.org/2000/svg}"


def test_boxes_and_lines(tmp_path: Path) -> None:
    cliques = [("A", "B", "C"), ("A", "D <&>"), ("B", "C", "D <&>"), ("D <&>", "E")]
    graph = RegionGraph.saturated(D, cliques)
    written = draw(graph, tmp_path / "graph.svg")
    root = ElementTree.parse(written).getroot()
    assert root.tag == f"{SVG}svg"
    boxes = root.findall(f"{SVG}g")
    labels = {box.findtext(f"{SVG}text") for box in boxes}
    assert labels == {", ".join(r) for r in graph.regions}
    assert len(root.findall(f"{SVG}line")) == len(graph.edges)
    notes = [box.findtext(f"{SVG}title") for box in boxes]
    assert "12 cells, kappa 1" in notes
    # Boxes of one level do not overlap, everything lies inside the picture, parents lie above children.
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    at = {}
    for box in boxes:
        rect = box.find(f"{SVG}rect")
        assert rect is not None
        x, y, w, h = (float(rect.get(k, "nan")) for k in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + w <= width
        assert y + h <= height
        at[box.findtext(f"{SVG}text")] = (x, y, w)
    for one in at.values():
        for other in at.values():
            if one < other and one[1] == other[1]:
                assert one[0] + one[2] <= other[0]
    for parent, child in graph.edges:
        assert at[", ".join(parent)][1] < at[", ".join(child)][1]


def test_large_graphs_and_other_formats_are_refused(tmp_path: Path) -> None:
    domain = Domain({f"x{i}": 2 for i in range(30)})
    graph = RegionGraph.saturated(domain, random_marginals(domain, 2, 80, seed=0))
    with pytest.raises(
        RegionGraphError, match=f"at most 60 regions to be drawn, got {len(graph.regions)}"
    ):
        draw(graph, tmp_path / "graph.svg")
    small = RegionGraph.saturated(domain, [("x0", "x1")])
    with pytest.raises(RegionGraphError, match=r"must be written to a \.svg file, got 'graph.png'"):
        draw(small, tmp_path / "graph.png")
    assert not list(tmp_path.iterdir())
