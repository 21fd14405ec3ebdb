"""A drawing of a small region graph as SVG: one row of boxes per level, supersets above subsets."""

from __future__ import annotations

from html import escape
from pathlib import Path

from consilience.domain import Clique
from consilience.errors import RegionGraphError
from consilience.regions.region_graph import RegionGraph

MOST_REGIONS = 60
LETTER, BOX_HEIGHT, GAP, ROW = 7.2, 30.0, 18.0, 92.0
"""Width of a letter, height of a box, space between boxes, distance of rows, in pixels."""


def draw(graph: RegionGraph, path: str | Path) -> Path:
    """Write the graph as an SVG file and say where. Boxes name the region, its cells and its counting number."""
    check_size(graph)
    target = Path(path)
    if target.suffix != ".svg":
        raise RegionGraphError(f"a drawing must be written to a .svg file, got {target.name!r}")
    target.write_text(svg(graph), encoding="utf-8")
    return target


def check_size(graph: RegionGraph) -> None:
    """Refuse what nobody could read."""
    if len(graph.regions) > MOST_REGIONS:
        raise RegionGraphError(
            f"a graph must have at most {MOST_REGIONS} regions to be drawn, got {len(graph.regions)}; "
            "draw one built from fewer cliques"
        )


def svg(graph: RegionGraph) -> str:
    """The drawing itself."""
    rows = _rows(graph)
    labels = [_label(r) for r in graph.regions]
    widths = [max(len(text), 8) * LETTER + 20 for text in labels]
    width = max(sum(widths[i] + GAP for i in row) for row in rows) + GAP
    height = len(rows) * ROW + GAP
    middle: dict[int, tuple[float, float]] = {}
    for depth, row in enumerate(rows):
        x = (width - sum(widths[i] + GAP for i in row) + GAP) / 2
        for i in row:
            middle[i] = (x + widths[i] / 2, GAP + depth * ROW + BOX_HEIGHT / 2)
            x += widths[i] + GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="DejaVu Sans Mono, monospace" font-size="12" role="img">',
        f"<title>{escape(repr(graph))}</title>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
    ]
    lines += [_line(middle[p], middle[c]) for p, c in graph.edge_array.tolist()]
    for i, region in enumerate(graph.regions):
        note = f"{graph.domain.size(region):,} cells, kappa {graph.counting_numbers[i]:g}"
        lines.append(
            _box(middle[i], widths[i], labels[i], note, root=i in set(graph.roots.tolist()))
        )
    return "\n".join([*lines, "</svg>", ""])


def _rows(graph: RegionGraph) -> list[list[int]]:
    """Regions by the longest way down from a region without parents; each row ordered by where its parents stand."""
    depth = [0] * len(graph.regions)
    parents: list[list[int]] = [[] for _ in graph.regions]
    # A parent is strictly wider than its child, so wider regions first is an order in which depths are final.
    for p, c in graph.edge_array.tolist():
        parents[c].append(p)
    for i in sorted(range(len(depth)), key=lambda i: -len(graph.regions[i])):
        depth[i] = max((depth[p] + 1 for p in parents[i]), default=0)
    rows: list[list[int]] = []
    place: dict[int, float] = {}
    for d in range(max(depth) + 1):
        row = [i for i in range(len(depth)) if depth[i] == d]
        row.sort(key=lambda i: (sum(place[p] for p in parents[i]) / max(len(parents[i]), 1), i))
        for x, i in enumerate(row):
            place[i] = (x + 0.5) / len(row)
        rows.append(row)
    return rows


def _label(region: Clique) -> str:
    return ", ".join(region)


def _line(top: tuple[float, float], bottom: tuple[float, float]) -> str:
    return (
        f'<line x1="{top[0]:.1f}" y1="{top[1] + BOX_HEIGHT / 2:.1f}" x2="{bottom[0]:.1f}" '
        f'y2="{bottom[1] - BOX_HEIGHT / 2:.1f}" stroke="#51606e"/>'
    )


def _box(middle: tuple[float, float], width: float, label: str, note: str, *, root: bool) -> str:
    x, y = middle
    fill = "#d3e3f1" if root else "#eef3f7"
    return (
        f'<g><title>{escape(note)}</title><rect x="{x - width / 2:.1f}" y="{y - BOX_HEIGHT / 2:.1f}" '
        f'width="{width:.1f}" height="{BOX_HEIGHT:.0f}" rx="5" fill="{fill}" stroke="#0b5394"/>'
        f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle">{escape(label)}</text></g>'
    )
