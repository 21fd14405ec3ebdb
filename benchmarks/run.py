"""All benchmarks beside their rivals, one table.

    python benchmarks/run.py                         # what `make bench` runs
    python benchmarks/run.py counting engine --full  # some of them, with the largest sizes

The rows are also written to results/bench.json.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import answers
import click
import clique_vector
import cold
import counting
import engine
import large
import noise
import prices
import reconstruction
import rival_mbi
import sampling
from rich.console import Console
from rich.table import Table
from rows import Row

BENCHMARKS: dict[str, Callable[[bool], Iterator[Row]]] = {
    "counting": counting.rows,
    "clique_vector": clique_vector.rows,
    "engine": engine.rows,
    "reconstruction": reconstruction.rows,
    "large": large.rows,
    "prices": prices.rows,
    "noise": noise.rows,
    "answers": answers.rows,
    "sampling": sampling.rows,
    "cold": cold.rows,
    "mbi": rival_mbi.rows,
}
RESULTS = Path(__file__).parents[1] / "results" / "bench.json"


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHMARKS)))
@click.option(
    "--full", is_flag=True, help="Also the largest sizes: 100,000 triples, 84 million cells."
)
def main(names: tuple[str, ...], full: bool) -> None:
    """Run the benchmarks NAMES (all of them if none is named) and print one table."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    progress = Console(stderr=True)
    found: list[Row] = []
    busy = os.getloadavg()[0]
    for name in names or BENCHMARKS:
        for row in BENCHMARKS[name](full):
            progress.print(f"[dim]{row.name}: {row.ours}[/]", highlight=False)
            found.append(row)
    console.print(table(found))
    if busy > 0.5:
        console.print(f"[yellow]The machine was busy (load {busy:.1f}): expect worse figures.[/]")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({**machine(), "rows": [asdict(r) for r in found]}, indent=1))


def table(found: list[Row]) -> Table:
    shown = Table(title="Consilience beside its rivals", title_justify="left")
    for column in ("what", "ours", "rival", "ratio", "note"):
        shown.add_column(column, justify="right" if column == "ratio" else "left")
    for row in found:
        ratio = "" if row.ratio is None else f"{row.ratio:.4g}"
        shown.add_row(row.name, row.ours, row.rival, ratio, row.note)
    return shown


def machine() -> dict[str, object]:
    packages = {p: _version(p) for p in ("consilience", "numpy", "numba", "mbi")}
    return {"cores": os.cpu_count(), "python": platform.python_version(), **packages}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    sys.exit(main())
