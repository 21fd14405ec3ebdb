"""consilience census: the bureau's noisy measurement files read, simulated, and made into consistent tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.table import Table

from consilience.census.files import read_state, states_of, summary, totals_of
from consilience.census.layout import AXES, LEVELS, NAMES
from consilience.census.rivals import errors_by_level, top_down, truth_of, two_pass
from consilience.census.simulate import read_truth, simulate
from consilience.census.tables import state_model, write_state
from consilience.cli.options import whole_option
from consilience.cli.output import Output, json_option, quiet_option
from consilience.privacy.noise import SecureNoise, SeededNoise
from consilience.release.folder import check_target
from consilience.solvers.place_engines import spark_session

state_option = click.option(
    "--state", metavar="FIPS", help="Two digits; not needed where the folder has one state."
)


def _workers(_: Any, __: Any, given: str | None) -> Any:
    if given is None:
        return None
    if given == "spark":
        return spark_session()
    if not given.isdecimal() or int(given) < 1:
        raise click.BadParameter(
            f"must be a number of processes from 1 on, or spark, got {given!r}"
        )
    return int(given)


@click.group("census")
def census_command() -> None:
    """The 2020 census's noisy measurement files: read them, simulate some, make consistent tables of a state.

    \b
    Examples:
      consilience census simulate blocks.csv --out files/
      consilience census read files/
      consilience census reconstruct files/ --out release/
    """


@census_command.command("read")
@click.argument("folder", type=click.Path(path_type=Path))
@json_option
@quiet_option
def read_command(folder: Path, as_json: bool, quiet: bool) -> None:
    """What the files in FOLDER hold, county by county checked against the layout: units, measurements, variances."""
    output = Output(quiet, as_json)
    totals, found = totals_of(folder), {}
    for fips in states_of(folder):
        with output.working("reading"):
            found[fips] = summary(folder, fips)
    output.json({f: {"total": totals.get(f), "levels": rows} for f, rows in found.items()})
    for fips, rows in found.items():
        said = f"total {totals[fips]:,}" if fips in totals else "no total in state_totals.csv"
        output.show(f"state {fips}: {said}")
        table = Table("level", "units", "measured", "numbers", "variance of total", "of detailed")
        for r in rows:
            spans = [_span(r[name]) for name in ("total", "detailed")]
            table.add_row(r["level"], *(f"{r[n]:,}" for n in ("units", "measured", "numbers")), *spans)  # fmt: skip
        output.show(table)


def _span(values: list[float]) -> str:
    return "" if not values else " ".join(f"{v:g}" for v in values[:3]) + (" ..." if len(values) > 3 else "")  # fmt: skip


@census_command.command("simulate")
@click.argument("truth", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="A folder to be made.")
@click.option("--seed", type=int, help="For experiments: repeatable noise that protects nobody.")
@json_option
@quiet_option
def simulate_command(truth: Path, out: Path, seed: int | None, as_json: bool, quiet: bool) -> None:
    """Noisy files in the bureau's layout from the table of blocks TRUTH, with the production run's allocation and noise.

    TRUTH is a CSV file with a row per block (block, child_hisp, ..., adult_two) or a row per cell (block, hhgq, votingage,
    hispanic, cenrace, count). It is for experiments: no ledger is charged.
    """
    output = Output(quiet, as_json)
    check_target(out)
    exact = read_truth(truth)
    with output.working("simulating") as progress:
        simulate(exact, out, SecureNoise() if seed is None else SeededNoise(seed=seed), progress)
    output.json({"folder": str(out), "blocks": len(exact.blocks), "private": seed is None})
    marked = "" if seed is None else f"; seed {seed}, so it protects nobody"
    output.show(f"{out}: noisy files about {len(exact.blocks):,} blocks{marked}")


@census_command.command("reconstruct")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="A folder to be made.")
@state_option
@click.option(
    "--errors",
    type=click.Choice(["auto", "bootstrap", "none"]),
    default="auto",
    show_default=True,
    help="How standard errors are found.",
)
@click.option(
    "--compare",
    "truth_path",
    type=click.Path(path_type=Path),
    help="The truth of simulated files: errors by level, beside two other estimators.",
)
@click.option(
    "--workers",
    metavar="N|spark",
    callback=_workers,
    help="Share the fit between N processes, or leave it to the Spark that is set up here; the tables are the same.",
)
@whole_option
@json_option
@quiet_option
def reconstruct_state_command(
    folder: Path,
    out: Path,
    state: str | None,
    errors: str,
    truth_path: Path | None,
    workers: Any,
    whole: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Consistent tables of one state from the files in FOLDER: they add up, none is negative, the invariants hold exactly.

    The result is a release folder for answer, report and sample; its columns are state, county, tract, group, block, hhgq,
    votingage, hispanic and cenrace.
    """
    output = Output(quiet, as_json)
    check_target(out)
    truth = None if truth_path is None else read_truth(truth_path)
    with output.working("reading"):
        read = read_state(folder, state)
    exact = None if truth is None else truth_of(read, truth)
    with output.working("reconstructing") as progress:
        model = state_model(read, workers=workers, progress=progress)
        facts = write_state(read, model, out, errors=errors, whole=whole, progress=progress)
    if facts["why"]:
        output.say(facts["why"])
    d, rows = model.diagnostics, []
    if exact is not None:
        with output.working("comparing"):
            own = model.marginal((NAMES[-1], *AXES)).reshape(len(exact), -1)
            made = {
                "ours": own,
                "two-pass least squares": two_pass(read),
                "top-down": top_down(read),
            }
            rows = errors_by_level(read, exact, made)
    output.json({"folder": str(out), "state": read.fips, "total": model.total, "status": d.status, "errors": rows})  # fmt: skip
    output.show(
        f"{out}: state {read.fips}, {len(read.levels[-1].codes):,} blocks, total {model.total:,.0f}; {d.status}, relative gap "
        f"{d.gap:.1e}"
    )
    if rows:
        output.show(_comparison(rows))


def _comparison(rows: list[dict]) -> Table:
    methods = list(dict.fromkeys(r["method"] for r in rows))
    table = Table("mean absolute error", "level", *methods)
    by = {(r["query"], r["level"], r["method"]): r["error"] for r in rows}
    for query in dict.fromkeys(r["query"] for r in rows):
        for level in NAMES[: len(LEVELS)]:
            table.add_row(query, level, *(f"{by[query, level, m]:.3f}" for m in methods))
    return table
