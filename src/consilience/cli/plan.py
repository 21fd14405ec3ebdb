"""consilience plan: what a release would measure, cost and need, before the data is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from consilience.cli.options import (
    chosen,
    delimiter_option,
    encoding_option,
    read_budget,
    read_mechanism,
    release_options,
)
from consilience.cli.output import Output, json_option, picture_option, quiet_option
from consilience.cli.settings import Settled
from consilience.data.duck import opened_table
from consilience.data.files import table_and_name
from consilience.data.schema_file import read_schema
from consilience.data.survey import check_columns
from consilience.domain import Workload
from consilience.mechanisms import Auto, Calibrated, CalibratedHDMM, CalibratedResidualPlanner
from consilience.mechanisms.fixed import CalibratedTables
from consilience.mechanisms.foresight import beside, design_of, needed
from consilience.mechanisms.residual_planner import CalibratedLevelResiduals
from consilience.release.facts import budget_facts, cost_facts
from consilience.release.registry import name_of
from consilience.release.run import Order
from consilience.report import picture


@click.command("plan", cls=Settled)
@click.argument("table", required=False)
@click.option("--schema", "schema_path", required=True, type=click.Path(path_type=Path))
@click.option("--rows", type=click.IntRange(min=1), help="About how many rows, if that is public.")
@release_options(neighbours_required=False)
@delimiter_option
@encoding_option
@picture_option
@json_option
@quiet_option
def plan_command(
    table: str | None,
    schema_path: Path,
    rows: int | None,
    delimiter: str | None,
    encoding: str | None,
    drawing: Path | None,
    as_json: bool,
    quiet: bool,
    **words: Any,
) -> None:
    """What would be measured, what it costs, how far off it is expected to be, and what it needs. Spends nothing.

    Of TABLE, if it is given, only the names of the columns are looked at.

    \b
    Examples:
      consilience plan people.csv --schema people.toml --epsilon 1 --delta 1e-6 --workload 2
      consilience plan --schema people.toml --epsilon 1 --workload 'age,sex; age,income' --mechanism laplace
      consilience plan --schema people.toml --rho 0.1 --mechanism aim --rows 50000
    """
    output = Output(quiet, as_json)
    schema = read_schema(schema_path)
    if table is not None:
        _check_header(table, schema, delimiter, encoding)
    budget = read_budget(words, schema)
    mechanism = chosen(read_mechanism(schema, words), budget, output.say)
    order = Order.of(schema, mechanism, budget)
    with output.working("calibrating"):
        ready = order.mechanism.calibrate(budget)
    assert order.tables is not None  # every mechanism that has a name has a workload
    facts = plan_facts(name_of(mechanism) or words["mechanism"], order.tables, ready, rows)
    if rows is not None and not order.tables.at_levels:
        facts |= closeness(ready, order.tables, rows)
    output.json(facts)
    output.show(_text(ready, facts))
    if (
        drawing is not None
    ):  # shares and expected distances where each table has its noise, else memory
        shown = (
            picture(ready, records=rows)
            if isinstance(ready, CalibratedTables)
            else picture(ready.plan)
        )
        output.say(f"drawn in {shown.save(drawing)}")


def plan_facts(
    name: str, workload: Workload, ready: Calibrated, rows: int | None
) -> dict[str, Any]:
    """What is known of a release before the data is touched."""
    facts: dict[str, Any] = {
        "mechanism": name,
        "calibrated": str(ready),
        "workload": {"tables": len(workload), "cells": workload.cells},
        "budget": budget_facts(ready.budget),
        "cost": cost_facts(ready.budget, ready.cost),
        "reconstruction": {
            "consistency": ready.plan.consistency,
            "bytes": ready.plan.bytes,
            "seconds": ready.plan.seconds,
        },
    }
    at_levels = isinstance(ready, CalibratedTables | CalibratedLevelResiduals)
    if at_levels or isinstance(ready, CalibratedHDMM | CalibratedResidualPlanner):
        spread = list(ready.expected_rmse.values())
        expected: dict[str, Any] = {"stddev": {"least": min(spread), "most": max(spread)}}
        facts["expected"] = expected
        fitted = ready.expected_fit if at_levels else None
        if fitted is not None:
            named = {",".join(c) or "(all)": error for c, error in fitted.items()}
            expected["rmse_after_least_squares"] = named
        if rows is not None and isinstance(ready, CalibratedTables):
            mean = float(np.mean(list(ready.expected_total_variation(rows).values())))
            expected["total_variation_of_noisy_tables"] = mean
    return facts


def closeness(ready: Calibrated, workload: Workload, rows: int) -> dict[str, Any]:
    """How close the release will be, beside every other design, as ranges over tables like those we know."""
    own = design_of(ready.mechanism, ready.fit, ready.budget)
    best, _ = Auto(workload).choose(ready.budget)
    recommended = design_of(best, best.fit, ready.budget)
    found = beside(workload, ready.budget, rows)
    facts: dict[str, Any] = {
        "designs": [
            {
                "design": e.design,
                "total_variation": vars(e.mean),
                "planned": e.design == own,
                "recommended": e.design == recommended,
            }
            for e in found
        ]
    }
    if own is not None:
        here = next((e for e in found if e.design == own), None) or ready.expect(rows)
        take = needed(here, ready.budget)
        facts["closeness"] = {
            "orders": {str(k): vars(here.order(k)) for k in here.orders},
            "told_from_zero": vars(here.told),
            "mostly_noise": [list(c) for c in here.hopeless],
            "warning": here.warning,
            "needed": None if take is None else str(take),
            "text": str(here),
        }
    return facts


def _close_text(facts: dict[str, Any]) -> list[str]:
    """The same in lines; without a number of rows, what is missing."""
    if "rmse_after_least_squares" in facts.get("expected", {}):
        return [
            "",
            "these are errors of least squares on the levels; non-negative tables are closer",
        ]
    if "designs" not in facts:
        return [
            "",
            "how close the tables will be depends on how many rows there are: give --rows, about, if that is public",
        ]
    lines = [
        "",
        "mean total variation after reconstruction, the middle of tables like those we know (8 of 10 lie within):",
    ]
    for d in facts["designs"]:
        marks = [m for m in ("planned", "recommended") if d[m]]
        v = d["total_variation"]
        shown = f"{v['middle']:.2g} ({v['low']:.2g} to {v['high']:.2g})"
        lines.append(f"  {d['design']:<24} {shown:<28} {', '.join(marks)}".rstrip())
    close = facts.get("closeness")
    if close is None:
        return [*lines, "there is no experience with what is planned here"]
    lines += ["", *close["text"].splitlines()]
    if close["warning"]:
        lines.append(f"warning: {close['warning']}")
    return [*lines, close["needed"]] if close["needed"] else lines


def _text(ready: Calibrated, facts: dict[str, Any]) -> str:
    budget, cost, workload = facts["budget"], facts["cost"], facts["workload"]
    lines = [
        f"measure   {ready}",
        f"publish   {workload['tables']:,} tables, {workload['cells']:,} cells",
        f"promise   {budget['text']}, {budget['neighbours']} neighbours, {budget['per']}",
        f"cost      {cost['text']}: {cost['share']:.2%} of that budget",
    ]
    if "expected" in facts:
        low, high = facts["expected"]["stddev"]["least"], facts["expected"]["stddev"]["most"]
        spread = f"{low:.4g}" if high - low < 1e-9 * high else f"{low:.4g} to {high:.4g}"
        lines.append(
            f"expected  every noisy count is off by about {spread} (one standard deviation)"
        )
        mean = facts["expected"].get("total_variation_of_noisy_tables")
        if mean is not None:
            lines.append(f"          mean total variation of the noisy tables {mean:.4f}")
        for table, error in facts["expected"].get("rmse_after_least_squares", {}).items():
            lines.append(f"          {table}: off by about {error:.4g} a cell once tables add up")
    lines += _close_text(facts)
    return "\n".join([*lines, "", str(ready.plan)])


def _check_header(table: str, schema: Any, delimiter: str | None, encoding: str | None) -> None:
    where, name = table_and_name(table)
    if "://" in where:
        return  # an engine is not asked anything before a release
    _, opened, types = opened_table(where, delimiter, name, encoding=encoding)
    check_columns(schema, list(types), opened.shown)
