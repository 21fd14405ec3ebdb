"""consilience compare: every reconstruction on one's own measurements."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from pathlib import Path

import click

from consilience.cli.output import Output, json_option, picture_option, quiet_option
from consilience.comparison import METHODS, compare
from consilience.errors import ConsilienceError
from consilience.release.noisy import evidence_of_release, evidence_of_tables
from consilience.report import picture


@click.command("compare")
@click.argument("measured", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--methods", default="", help=f"Some of: {', '.join(METHODS)}.")
@click.option("--schema", "schema_path", type=click.Path(path_type=Path), help="For noisy tables.")
@click.option("--stddev", type=float, help="For noisy tables without a column stddev.")
@click.option("--noise", type=click.Choice(["gaussian", "laplace"]), default="gaussian")
@click.option("--total", type=float, help="The number of people, if public.")
@picture_option
@json_option
@quiet_option
def compare_command(
    measured: tuple[Path, ...],
    methods: str,
    schema_path: Path | None,
    stddev: float | None,
    noise: str,
    total: float | None,
    drawing: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Bake-off: exact, local, factor graph, PriView, relaxed projection and prior on the same measurements.

    MEASURED is a release folder, or noisy tables as for reconstruct. Without the truth, methods are judged by noise that
    is held back (validation), by how well they fit and by how far their tables agree. Costs no privacy.

    \b
    Examples:
      consilience compare release/
      consilience compare age_sex.csv sex_income.csv --stddev 20 --methods local,priview,prior
    """
    output = Output(quiet, as_json)
    chosen = tuple(w.strip() for w in methods.split(",") if w.strip()) or METHODS
    unknown = [m for m in chosen if m not in METHODS]
    if unknown:
        raise ConsilienceError(f"methods must be some of {', '.join(METHODS)}, got {unknown[0]!r}")
    single = len(measured) == 1 and (measured[0] / "release.json").exists()
    evidence = (
        evidence_of_release(measured[0])
        if single
        else evidence_of_tables(measured, schema_path, stddev, noise)
    )
    with output.working("comparing") as progress:
        found = compare(
            evidence.schema.domain,
            evidence.measurements,
            total=total if total is not None else evidence.total,
            methods=chosen,
            progress=progress,
        )
    rows = [{k: v for k, v in asdict(r).items() if v == v and v != ""} for r in found.rows]
    rows = [{k: v for k, v in r.items() if isinstance(v, str) or isfinite(v)} for r in rows]
    output.json(
        {"cliques": found.cliques, "cells": found.cells, "total": found.total, "rows": rows}
    )
    output.show(repr(found))
    if drawing is not None:
        output.say(f"drawn in {picture(found).save(drawing)}")
