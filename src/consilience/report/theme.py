"""The look of pages and pictures: one palette for light, one for dark, as CSS variables and as a chart configuration."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


@dataclass(frozen=True)
class Palette:
    """Colours by their use. Text colours are readable (contrast of 4.5 and more) on `page`, `card` and `box`."""

    page: str
    card: str
    box: str
    text: str
    quiet: str
    line: str
    link: str
    accent: str
    bar: str
    mark: str
    warn: str
    good: str
    low: str
    middle: str
    high: str


LIGHT = Palette(
    page="#fbfaf8", card="#ffffff", box="#eef3f7", text="#1b2129", quiet="#51606e", line="#d5dbe1",
    link="#0b5394", accent="#0b5394", bar="#5b93c4", mark="#1b2129", warn="#a23b12", good="#1f6b3a",
    low="#eef4fa", middle="#6aa5d4", high="#08306b",
)  # fmt: skip
DARK = Palette(
    page="#14181d", card="#1b2027", box="#202a35", text="#e8ebee", quiet="#a9b5c1", line="#36404b",
    link="#8fc1f0", accent="#8fc1f0", bar="#4f86b5", mark="#f1f3f5", warn="#f3a27a", good="#86d1a0",
    low="#1d2833", middle="#3d7bb0", high="#d6ebff",
)  # fmt: skip


def css_variables(palette: Palette) -> str:
    return " ".join(f"--{f.name}: {getattr(palette, f.name)};" for f in fields(palette))


def categories(palette: Palette) -> list[str]:
    """Colours of things side by side; told apart without red and green."""
    dark = palette is DARK
    return (
        ["#8fc1f0", "#f0a868", "#6fd0bd", "#d3a4e8", "#e8d36a", "#f08d9b"]
        if dark
        else ["#2b6ca3", "#c5671c", "#23796b", "#7d4a9c", "#8a7412", "#b1364a"]
    )


def chart_config(palette: Palette) -> dict[str, Any]:
    """A Vega-Lite configuration."""
    p = asdict(palette)
    text = {"labelColor": p["quiet"], "titleColor": p["text"], "titleFontWeight": 600}
    return {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            **text,
            "gridColor": p["line"],
            "domainColor": p["line"],
            "tickColor": p["line"],
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titlePadding": 8,
            "labelLimit": 150,
        },
        "legend": {**text, "labelFontSize": 12, "titleFontSize": 12, "titleLimit": 260},
        "title": {"color": p["text"], "anchor": "start", "fontSize": 14, "subtitleColor": p["quiet"]},
        "header": text,
        "text": {"color": p["text"]},
        "bar": {"color": p["bar"]},
        "rule": {"color": p["mark"]},
        "line": {"color": p["accent"]},
        "point": {"color": p["accent"]},
        "rect": {"color": p["bar"]},
        "range": {
            "category": categories(palette),
            "heatmap": [p["low"], p["middle"], p["high"]],
            "ramp": [p["low"], p["middle"], p["high"]],
        },
        "style": {"expected": {"color": p["warn"]}, "limit": {"color": p["warn"]}},
    }  # fmt: skip
