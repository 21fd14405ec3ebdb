"""Vega and Vega-Lite: the drawing library for a page, and pictures without a browser. The only place that calls vl-convert."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import vl_convert

VEGA_LITE = "6.4"


@lru_cache(maxsize=1)
def bundle() -> str:
    """JavaScript that gives a page `vegaEmbed`, whole: nothing is fetched."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)


def to_svg(spec: dict[str, Any]) -> str:
    return vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE)


def to_png(spec: dict[str, Any], scale: float) -> bytes:
    return vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=scale)


def svg_to_png(svg: str, scale: float) -> bytes:
    return vl_convert.svg_to_png(svg, scale=scale)
