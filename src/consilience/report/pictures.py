"""Pictures of plans, fits, graphs and comparisons, in the look of the report: `picture(what).save("plan.svg")`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from html import escape
from math import isnan
from pathlib import Path
from typing import Any

from consilience.comparison import Comparison
from consilience.errors import ConsilienceError
from consilience.mechanisms.fixed import CalibratedTables
from consilience.memory import show_bytes
from consilience.model import Diagnostics, Model
from consilience.regions import drawing
from consilience.regions.region_graph import RegionGraph
from consilience.report import charts, places
from consilience.report.charts import LIGHT, chart_config, svg_to_png, to_png, to_svg
from consilience.report.page import write_text
from consilience.solvers.planner import Plan

WIDTH = 560
KINDS = (".svg", ".png", ".html")
MOST_BARS = 20
"""Tables in a ranking; the worst are kept."""


@dataclass(frozen=True, eq=False)
class Picture:
    """A drawing: a Vega-Lite specification, or SVG as it is. Notebooks show it."""

    title: str
    spec: charts.Spec | None = None
    drawn: str = ""

    def svg(self) -> str:
        return self.drawn if self.spec is None else to_svg(self.spec)

    def png(self, scale: float = 2.0) -> bytes:
        return svg_to_png(self.drawn, scale) if self.spec is None else to_png(self.spec, scale)

    def html(self) -> str:
        """A page with the drawing in it, and nothing to run."""
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(self.title)}</title></head>'
            f'<body style="background:{LIGHT.card}">{self.svg()}</body></html>\n'
        )

    def save(self, path: str | Path) -> Path:
        """Write it as .svg, .png or .html, by the name's ending, and say where."""
        target = Path(path)
        if target.suffix not in KINDS:
            raise ConsilienceError(
                f"a picture must be saved as .svg, .png or .html, got {target.name!r}"
            )
        if target.suffix == ".svg":
            return write_text(self.svg(), target)
        return write_text(self.html() if target.suffix == ".html" else self.png(), target)

    def _repr_svg_(self) -> str:
        return self.svg()


@singledispatch
def picture(what: object, **_: Any) -> Picture:
    """A picture of a Plan, a calibrated mechanism (records=...), a Diagnostics, a Model, a RegionGraph or a Comparison."""
    raise ConsilienceError(
        "there are pictures of a Plan, a calibrated mechanism, a Diagnostics, a Model, a RegionGraph and a Comparison, "
        f"got {type(what).__name__}"
    )


@picture.register
def _(what: Plan) -> Picture:
    """Memory of each kind of consistency against what is allowed."""
    rows = [
        {
            "way": o.consistency + (" (chosen)" if o.consistency == what.consistency else ""),
            "bytes": min(float(o.bytes), 1e30),
            "text": show_bytes(o.bytes),
        }
        for o in what.options
    ]
    spec = charts.against_limit(
        rows, label="way", value="bytes", title="memory, bytes", limit=float(what.budget)
    )
    title = f"Memory for {what.cliques} measured cliques; allowed: {show_bytes(what.budget)}"
    return _picture(title, spec)


@picture.register
def _(what: CalibratedTables, *, records: float | None = None) -> Picture:
    """Share of the cost and expected distance of each noisy table: total variation if `records` is given, else L1 in counts."""
    costs = {p.clique: float(p.cost(what.budget.neighbours).rho.value) for p in what.parts}
    whole = sum(costs.values())
    if records is None:
        far, title = what.expected_l1, "expected L1 distance of the noisy table, counts"
    else:
        shares = what.expected_total_variation(records)
        far = {c: 100 * v for c, v in shares.items()}
        title = "expected total variation of the noisy table, %"
    worst = sorted(far, key=lambda c: -far[c])[:MOST_BARS]
    rows = [{"table": " × ".join(c), "cost": 100 * costs[c] / whole, "far": far[c]} for c in worst]
    ranked = charts.ranking(rows, label="table", value="far", title=title)
    split = charts.ranking(rows, label="table", value="cost", title="share of the cost, %")
    left = len(far) - len(worst)
    name = f"{what}" + (f" (the {MOST_BARS} least reliable of {len(far)})" if left else "")
    return _picture(name, charts.stacked([split, ranked], WIDTH))


@picture.register
def _(what: Diagnostics) -> Picture:
    """The convergence curve."""
    rows = [
        {"iteration": i.done, "gap": max(i.gap, 1e-16)}
        for i in what.trace
        if 0 <= i.gap < float("inf")
    ]
    if len(rows) < 2:
        raise ConsilienceError(
            "a convergence curve needs the trace of a fit, this one kept none; make the model with reconstruct"
        )
    title = (
        f"{what.method}: {what.status} after {what.iterations:,} iterations, {what.seconds:.2f} s"
    )
    return _picture(title, charts.convergence(rows))


@picture.register
def _(what: Model) -> Picture:
    """Its places within places where an attribute has levels, else the convergence curve of its fit."""
    drawn = places.spec(what, {k: tuple(v) for k, v in (what.labels or {}).items()})
    if drawn is not None:
        return _picture(f"{what.total:,.0f} people by place", drawn)
    return picture(what.diagnostics)


@picture.register
def _(what: RegionGraph) -> Picture:
    """Regions as boxes, supersets above subsets."""
    drawing.check_size(what)
    return Picture(repr(what), None, drawing.svg(what))


@picture.register
def _(what: Comparison) -> Picture:
    """Methods side by side: distance to the truth (or validated), violation and seconds."""
    done = [r for r in what.rows if r.done]
    panels = []
    for field, title, form in (
        ("total_variation", "mean total variation to the truth", ".3~g"),
        ("validation", "validated RMSE, counts", ".3~g"),
        ("objective", "objective (half the sum of squared residuals)", ".4~g"),
        ("violation", "largest disagreement, share of the total", ".2~g"),
        ("seconds", "seconds", ".2~g"),
    ):
        rows = [{"method": r.method, field: getattr(r, field)} for r in done]
        rows = [r for r in rows if not isnan(r[field])]
        if rows:
            panels.append(charts.ranking(rows, label="method", value=field, title=title, form=form))
    title = f"{what.cliques} measured cliques, {what.cells:,} cells"
    refused = [r.method for r in what.rows if not r.done]
    if refused:
        title += f"; refused: {', '.join(refused)}"
    return _picture(title, charts.stacked(panels, WIDTH))


def _picture(title: str, spec: charts.Spec) -> Picture:
    """With colours, a fixed width and a background of its own: a picture stands on any page."""
    config = {**chart_config(LIGHT), "background": LIGHT.card}
    fixed = {**spec, "title": title, "config": config, "padding": 14}
    if fixed.get("width") == charts.CONTAINER:
        fixed["width"] = WIDTH
    return Picture(title, fixed)
