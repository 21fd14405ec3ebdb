"""consilience reconstruct: somebody's noisy tables in, consistent ones out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from consilience.cli.options import fit_option, time_limit_option, whole_option
from consilience.cli.output import Output, json_option, quiet_option
from consilience.fits import LeastSquares, Planned, reconstruct
from consilience.progress import Step
from consilience.release import write_release
from consilience.release.facts import common_facts
from consilience.release.folder import check_target
from consilience.release.noisy import evidence_of_tables
from consilience.release.registry import fit_named, with_stated
from consilience.release.standard_errors import chosen_method, errors_of

README = """Consistent tables made by Consilience {version} from {count} noisy tables that were given to it.
What protects the people in them is the noise that was in those tables; this adds none and takes none away.
"""


@click.command("reconstruct")
@click.argument("tables", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="A folder to be made.")
@click.option(
    "--schema", "schema_path", type=click.Path(path_type=Path), help="Declares all labels."
)
@click.option("--stddev", type=float, help="Of the noise, for tables without a column stddev.")
@click.option("--noise", type=click.Choice(["gaussian", "laplace"]), default="gaussian")
@click.option("--total", type=float, help="The number of people, if public; estimated otherwise.")
@click.option(
    "--consistency", default="auto", show_default=True, help="auto, global, local or factor."
)
@click.option("--memory", default="2 GB", show_default=True)
@time_limit_option
@fit_option
@whole_option
@json_option
@quiet_option
def reconstruct_command(
    tables: tuple[Path, ...],
    out: Path,
    schema_path: Path | None,
    stddev: float | None,
    noise: str,
    total: float | None,
    whole: bool,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """Make noisy TABLES agree: never negative, equal wherever they overlap, as close to what was measured as can be.

    Each table is a CSV or Parquet file (or a folder of them) with one row per cell: a column for each attribute with its
    label, a column noisy (or count, or value), and a column stddev, the standard deviation of its noise, unless --stddev
    says it for all. Tables may overlap in any way, and need not list every cell. No data is seen, so it costs no privacy.

    \b
    Examples:
      consilience reconstruct age_sex.csv sex_income.csv --stddev 20 --out consistent/
      consilience reconstruct release/measurements --schema release/schema.toml --out again/
    """
    output = Output(quiet, as_json)
    check_target(out)
    evidence = evidence_of_tables(tables, schema_path, stddev, noise)
    fit = with_stated(fit_named(settings, LeastSquares()), evidence.schema)
    with output.working("reconstructing") as progress:

        def watch(step: Step) -> None:
            if isinstance(step, Planned):
                output.say(str(step.plan))
            else:
                progress(step)

        model = reconstruct(evidence.schema.domain, evidence.measurements, total, fit, watch)
        errors, refits, why = chosen_method(model, "auto")
        model = model.lasting(refits, progress)
        if whole:
            model = model.whole(progress)
            output.say(str(model.rounding).partition("\n")[0])
        found = errors_of(model, list(model.cliques), errors, progress)
    if why:
        output.say(why)
    d = model.diagnostics
    facts = {
        "private": None,
        "mark": "as private as the tables that it was made from",
        **common_facts(model, public=total is not None),
        "mechanism": {"name": "given tables", "options": {}, "calibrated": ""},
        "diagnostics": {"method": d.method, "status": d.status, "relative_gap": d.gap},
        "standard_errors": errors,
        "replicates": refits,
    }
    readme = README.format(
        version=facts["versions"]["consilience"], count=len(evidence.measurements)
    )
    write_release(
        out,
        model=model,
        schema=evidence.schema,
        measurements=evidence.measurements,
        tables=found,
        facts=facts,
        ledger=None,
        readme=readme,
    )
    output.json(
        {"folder": str(out), "tables": len(model.cliques), "total": model.total, "status": d.status}
    )
    output.show(
        f"{out}: {len(model.cliques):,} consistent tables, total {model.total:,.0f}; {d.method}, {d.status}, "
        f"relative gap {d.gap:.1e}"
    )
