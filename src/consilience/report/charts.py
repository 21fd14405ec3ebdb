"""Charts as Vega-Lite specifications: plain values, drawn by whoever holds them (a page, or `Picture`).

Their colours come from `chart_config`. This is the only place that calls vl-convert, which is an extra: see `drawing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from importlib import import_module
from typing import Any

from consilience.errors import ConsilienceError

# -- colours and fonts -------------------------------------------------------------------------------

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


# -- Vega and Vega-Lite: the drawing library for a page, and pictures without a browser ----------------

VEGA_LITE = "6.4"


def drawing() -> Any:
    """vl-convert, 84 MB, or the line that says how to get it."""
    try:
        return import_module("vl_convert")
    except ImportError:
        raise ConsilienceError(
            "reports and pictures must have vl-convert to draw charts, it is not installed: pip install 'consilience[charts]'"
        ) from None


@lru_cache(maxsize=1)
def bundle() -> str:
    """JavaScript that gives a page `vegaEmbed`, whole: nothing is fetched."""
    return drawing().javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)


def to_svg(spec: dict[str, Any]) -> str:
    return drawing().vegalite_to_svg(spec, vl_version=VEGA_LITE)


def to_png(spec: dict[str, Any], scale: float) -> bytes:
    return drawing().vegalite_to_png(spec, vl_version=VEGA_LITE, scale=scale)


def svg_to_png(svg: str, scale: float) -> bytes:
    return drawing().svg_to_png(svg, scale=scale)


# -- specifications ------------------------------------------------------------------------------------

Spec = dict[str, Any]
Row = Mapping[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""A name, never fetched."""
CONTAINER = "container"
LONG = 40
"""Categories from which bars stand upright and labels are thinned."""
ROW_HEIGHT = 22


def chart(rows: Iterable[Row], *, height: int, **rest: Any) -> Spec:
    """What every chart shares. Heights are numbers: a step beside a width that follows the page makes Vega-Lite warn."""
    return {
        "$schema": SCHEMA,
        "data": {"values": [dict(r) for r in rows]},
        "width": CONTAINER,
        "height": height,
        **rest,
    }


# -- tables ------------------------------------------------------------------------------------------


def bars(rows: Iterable[Row] = (), *, name: str = "", long: bool = False) -> Spec:
    """A table of one attribute: a bar per category, its interval as a line. Rows: label, count, low, high."""
    category: Spec = {"field": "label", "type": "nominal", "sort": None, "title": name or None}
    count: Spec = {"field": "count", "type": "quantitative", "title": "count, with 90 % interval"}
    low, high = {**count, "field": "low"}, {"field": "high"}
    tips = [
        {"field": "label", "title": name or "category"},
        {"field": "count", "format": ",.1f"},
        {"field": "low", "format": ",.1f"},
        {"field": "high", "format": ",.1f"},
    ]
    along, across = ("y", "x") if long else ("x", "y")
    if long:
        category["axis"] = {"labelOverlap": True, "labelAngle": -60}
    listed = list(rows)
    return chart(
        listed,
        height=260 if long else ROW_HEIGHT * len(listed),
        encoding={across: category, "tooltip": tips},
        layer=[
            {"mark": {"type": "bar", "cornerRadiusEnd": 2}, "encoding": {along: count}},
            {
                "mark": {"type": "rule", "strokeWidth": 2, "strokeCap": "round"},
                "encoding": {along: low, f"{along}2": high},
            },
        ],
    )


def heatmap(
    rows: Iterable[Row] = (), *, across: str = "", down: str = "", value: str = "count"
) -> Spec:
    """A table of two attributes: colour for the count, or for the half-width of its interval. Rows: x, y, count, reach."""
    titles = {"count": "count", "reach": "± of the 90 % interval"}
    axis = {"labelOverlap": True, "labelLimit": 110, "grid": False, "ticks": False}
    listed = list(rows)
    return chart(
        listed,
        height=18 * len({r["y"] for r in listed}),
        mark={"type": "rect", "tooltip": True},
        encoding={
            "x": {"field": "x", "type": "nominal", "sort": None, "title": across or None,
                  "axis": {**axis, "labelAngle": -45}},
            "y": {"field": "y", "type": "nominal", "sort": None, "title": down or None, "axis": axis},
            "color": {"field": value, "type": "quantitative", "title": titles[value],
                      "scale": {"type": "sqrt", "nice": True},
                      "legend": {"orient": "top", "gradientLength": {"expr": "min(width, 220)"}, "tickCount": 3,
                                 "format": "~s"}},
            "tooltip": [
                {"field": "y", "title": down or "row"},
                {"field": "x", "title": across or "column"},
                {"field": "count", "format": ",.1f"},
                {"field": "reach", "title": "± (90 %)", "format": ",.3~g"},
            ],
        },
    )  # fmt: skip


# -- how good ----------------------------------------------------------------------------------------


def pair_matrix(rows: Iterable[Row]) -> Spec:
    """Attributes against attributes: expected total variation of each measured pair, the rest by what it rests on.

    Rows: x, y, percent (null if not measured), basis.
    """
    axis = {"labelLimit": 110, "grid": False, "ticks": False, "title": None}
    grid: Spec = {
        "x": {"field": "x", "type": "nominal", "sort": None, "axis": {**axis, "labelAngle": -45}},
        "y": {"field": "y", "type": "nominal", "sort": None, "axis": axis},
        "tooltip": [
            {"field": "y", "title": "attribute"},
            {"field": "x", "title": "with"},
            {"field": "percent", "title": "expected total variation, %", "format": ".2~f"},
            {"field": "basis"},
        ],
    }
    colour = {
        "field": "percent",
        "type": "quantitative",
        "title": "expected total variation, %",
        "legend": {"orient": "top", "gradientLength": {"expr": "min(width, 220)"}, "tickCount": 4},
    }
    listed = list(rows)
    return chart(
        listed,
        height=ROW_HEIGHT * len({r["y"] for r in listed}),
        encoding=grid,
        layer=[
            {
                "transform": [{"filter": "isValid(datum.percent)"}],
                "mark": "rect",
                "encoding": {"color": colour},
            },
            {
                "transform": [{"filter": "!isValid(datum.percent)"}],
                "mark": {"type": "text", "fontSize": 11},
                "encoding": {"text": {"field": "sign"}},
            },
        ],
    )


def nested(rows: Iterable[Row], levels: Sequence[str]) -> Spec:
    """Places within places as rectangles: a row of them per level, as wide as their counts, coloured by their error in per cent.

    Rows: level, place, from, to (cumulative counts), count, reach, percent.
    """
    return chart(
        rows,
        height=46 * len(levels),
        mark={"type": "rect", "strokeWidth": 0.6},
        encoding={
            "x": {"field": "from", "type": "quantitative", "title": "people", "axis": {"grid": False, "format": "~s"},
                  "scale": {"nice": False, "zero": False}},
            "x2": {"field": "to"},
            "y": {"field": "level", "type": "nominal", "sort": list(levels), "title": None,
                  "scale": {"paddingInner": 0.08}, "axis": {"grid": False, "ticks": False}},
            "color": {"field": "percent", "type": "quantitative", "title": "± (90 %), per cent of the count",
                      "scale": {"type": "sqrt", "clamp": True, "domainMax": 100},
                      "legend": {"orient": "top", "gradientLength": {"expr": "min(width, 220)"}, "tickCount": 3}},
            "stroke": {"value": "white"},
            "tooltip": [
                {"field": "level"},
                {"field": "place"},
                {"field": "count", "format": ",.1f"},
                {"field": "reach", "title": "± (90 %)", "format": ",.3~g"},
            ],
        },
    )  # fmt: skip


def convergence(rows: Iterable[Row]) -> Spec:
    """Certified relative gap against iterations, both on a logarithmic scale. Rows: iteration, gap."""
    return chart(
        rows,
        height=220,
        mark={"type": "line", "point": {"size": 18}, "tooltip": True, "interpolate": "monotone"},
        encoding={
            "x": {"field": "iteration", "type": "quantitative", "title": "iteration", "scale": {"type": "log"},
                  "axis": {"format": "~s", "tickCount": 5}},
            "y": {"field": "gap", "type": "quantitative", "title": "relative gap, at most",
                  "scale": {"type": "log"}, "axis": {"format": ".0e", "tickCount": 5}},
        },
    )  # fmt: skip


def residuals(bins: Iterable[Row], law: Iterable[Row]) -> Spec:
    """Observed standardised residuals (bars) against the law of the noise (line). Bins: low, high, density. Law: u, density."""
    density = {"type": "quantitative", "title": "density", "axis": {"tickCount": 4}}
    observed = {
        "data": {"values": [dict(b) for b in bins]},
        "mark": {"type": "bar", "tooltip": True},
        "encoding": {
            "x": {"field": "low", "type": "quantitative", "bin": {"binned": True},
                  "title": "standardised residual"},
            "x2": {"field": "high"},
            "y": {"field": "density", **density},
        },
    }  # fmt: skip
    expected = {
        "data": {"values": [dict(p) for p in law]},
        "mark": {"type": "line", "style": "expected", "strokeWidth": 2},
        "encoding": {
            "x": {"field": "u", "type": "quantitative"},
            "y": {"field": "density", **density},
        },
    }
    spec = chart([], height=240, layer=[observed, expected])
    del spec["data"]
    return spec


def rows_against_tables(rows: Iterable[Row]) -> Spec:
    """A point per table: how far the noise puts it from the truth, how far the rows are from it. Rows: table, noise, rows."""
    percent = {"type": "quantitative", "scale": {"zero": True}, "axis": {"format": ".2~f"}}
    return chart(
        rows,
        height=260,
        mark={"type": "point", "filled": True, "size": 45, "opacity": 0.7},
        encoding={
            "x": {"field": "noise", **percent, "title": "noise, expected, %"},
            "y": {"field": "rows", **percent, "title": "rows to tables, %"},
            "tooltip": [
                {"field": "table"},
                {"field": "noise", "title": "noise, %", "format": ".2~f"},
                {"field": "rows", "title": "rows to table, %", "format": ".3~f"},
            ],
        },
    )  # fmt: skip


# -- before and beside -------------------------------------------------------------------------------


def ranking(rows: Iterable[Row], *, label: str, value: str, title: str, form: str = ".3~g") -> Spec:
    """A bar per thing, the number written at its end. Rows: `label`, `value`, optionally note."""
    listed = list(rows)
    return chart(
        listed,
        height=ROW_HEIGHT * len(listed),
        encoding={
            "y": {"field": label, "type": "nominal", "sort": None, "title": None,
                  "axis": {"labelLimit": 240}},
            "x": {"field": value, "type": "quantitative", "title": title, "axis": {"tickCount": 5}},
            "tooltip": [{"field": label}, {"field": value, "format": form}],
        },
        layer=[
            {"mark": {"type": "bar", "cornerRadiusEnd": 2}},
            {"mark": {"type": "text", "align": "left", "dx": 4, "fontSize": 11},
             "encoding": {"text": {"field": value, "format": form}}},
        ],
    )  # fmt: skip


def against_limit(rows: Iterable[Row], *, label: str, value: str, title: str, limit: float) -> Spec:
    """A bar per thing on a logarithmic scale, and a line for what is allowed. Rows: `label`, `value`, text."""
    listed = list(rows)
    least = min([limit, *(float(r[value]) for r in listed)])
    scale = {"type": "log", "domainMin": least / 10, "nice": False}
    return chart(
        listed,
        height=(ROW_HEIGHT + 6) * len(listed),
        layer=[
            {
                "mark": {"type": "bar", "cornerRadiusEnd": 2},
                "encoding": {
                    "y": {"field": label, "type": "nominal", "sort": None, "title": None},
                    "x": {"field": value, "type": "quantitative", "title": title, "scale": scale,
                          "axis": {"format": "~s", "tickCount": 5}},
                    "x2": {"datum": least / 10},
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 4, "fontSize": 11},
                "encoding": {
                    "y": {"field": label, "type": "nominal", "sort": None},
                    "x": {"field": value, "type": "quantitative"},
                    "text": {"field": "text"},
                },
            },
            {
                "mark": {"type": "rule", "style": "limit", "strokeWidth": 2, "strokeDash": [5, 3]},
                "encoding": {"x": {"datum": limit, "type": "quantitative"}},
            },
        ],
    )  # fmt: skip


def stacked(panels: Sequence[Spec], width: int) -> Spec:
    """Charts below one another, each with its own scales."""
    inner = [{k: v for k, v in p.items() if k != "$schema"} | {"width": width} for p in panels]
    return {"$schema": SCHEMA, "vconcat": inner}
