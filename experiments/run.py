"""Run the experiments: all of them, or one figure; in parallel, resumed where they were stopped, each with a manifest.

    python experiments/run.py --list
    python experiments/run.py [--figure 2ab] [--quick [--folder results/quick]] [--jobs 2] [--plot]

Every experiment is a script that appends rows to experiments/results and skips the rows that are there; delete a CSV to run it
anew. --quick writes to results/quick (not committed) and takes a minute or two for all of it; tests/experiments runs it and
asserts the paper's claims on its rows.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import click
from catalogue import BY_NAME, EXPERIMENTS, Experiment
from common import RESULTS, ROOT, data_folder
from manifest import Cost, described, write_manifest
from rich.console import Console
from rich.markup import escape
from rich.table import Table

QUICK = ROOT / "results" / "quick"
HERE = pathlib.Path(__file__).resolve().parent
console = Console(highlight=False)


def command_of(experiment: Experiment, quick: bool, folder: pathlib.Path) -> list[str]:
    """The words after `python`."""
    words = [
        str(HERE / experiment.script),
        *((experiment.quick or ()) if quick else experiment.full),
    ]
    return words + (["--out", str(folder / experiment.rows)] if experiment.out else [])


def run(experiment: Experiment, quick: bool, folder: pathlib.Path, threads: int) -> Cost:
    """One experiment in a process of its own; its lines go to the screen with its name before them."""
    words = command_of(experiment, quick, folder)
    rows = folder / experiment.rows
    rows.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "NUMBA_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive", "PYTHONUNBUFFERED": "1"
    }  # fmt: skip
    began = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, *words], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )  # fmt: skip
    echo = threading.Thread(target=_echo, args=(experiment.name, child))
    echo.start()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    echo.join()
    scale = 1e6 if sys.platform == "darwin" else 1e3
    cost = Cost(
        round(time.perf_counter() - began, 1), round(used.ru_utime + used.ru_stime, 1),
        round(used.ru_maxrss / scale, 1), child.returncode,
    )  # fmt: skip
    if rows.exists():
        shown = ["python", *(w.replace(f"{ROOT}/", "") for w in words)]
        write_manifest(rows, shown, experiment.seeds, cost)
    return cost


def _echo(name: str, child: subprocess.Popen[str]) -> None:
    for line in child.stdout or ():
        console.print(f"[dim]{name:>10}[/] {escape(line.rstrip())}", soft_wrap=True)


def reason_to_skip(experiment: Experiment, quick: bool) -> str | None:
    if quick and experiment.quick is None:
        return "has no quick form; tests/experiments asserts its claim on a small case"
    if experiment.data and not data_folder().is_dir():
        return f"needs the paper's data in {data_folder()}; set CONSILIENCE_DATA"
    if not (HERE / experiment.script).exists():
        return f"{experiment.script} is not there yet"
    return None


def listing() -> Table:
    table = Table(
        "figure", "reproduces", "rows", "takes about", title="experiments", title_justify="left"
    )
    for e in EXPERIMENTS:
        path = RESULTS / e.rows
        done = f"{sum(1 for _ in path.open()) - 1} rows" if path.exists() else "none yet"
        table.add_row(e.name, e.reproduces, f"{e.rows}: {done}", e.hours)
    return table


def note_rows(chosen: list[Experiment]) -> None:
    """Manifests for rows that came from scripts run by hand, whose cost is therefore not known; others are left alone."""
    for experiment in chosen:
        rows = RESULTS / experiment.rows
        if rows.exists() and not described(rows):
            write_manifest(rows, ["python", *_shown(experiment)], experiment.seeds, None)


def _shown(experiment: Experiment) -> list[str]:
    return [w.replace(f"{ROOT}/", "") for w in command_of(experiment, quick=False, folder=RESULTS)]


@click.command()
@click.option(
    "--figure",
    "figures",
    multiple=True,
    type=click.Choice(list(BY_NAME)),
    help="Which; all if not given.",
)
@click.option("--quick", is_flag=True, help="Small sizes, a minute or two, to results/quick.")
@click.option(
    "--folder", type=click.Path(path_type=pathlib.Path), default=QUICK, help="For --quick."
)
@click.option(
    "--jobs", default=2, show_default=True, type=click.IntRange(1), help="Experiments at once."
)
@click.option(
    "--plot/--no-plot",
    default=True,
    help="Draw the figures and fill docs/reproduction.md afterwards.",
)
@click.option("--manifests", is_flag=True, help="Only write manifests for the rows that are there.")
@click.option("--list", "only_list", is_flag=True, help="Show the experiments and stop.")
def main(
    figures: tuple[str, ...],
    quick: bool,
    folder: pathlib.Path,
    jobs: int,
    plot: bool,
    manifests: bool,
    only_list: bool,
) -> None:
    """Run the experiments of the paper."""
    if only_list:
        console.print(listing())
        return
    chosen = [BY_NAME[f] for f in figures] or list(EXPERIMENTS)
    if manifests:
        note_rows(chosen)
        return
    ready = []
    for experiment in chosen:
        reason = reason_to_skip(experiment, quick)
        if reason:
            console.print(f"[yellow]{experiment.name} left out: {reason}[/]")
        else:
            ready.append(experiment)
    threads = max(1, (os.cpu_count() or 1) // min(jobs, len(ready) or 1))
    failed = []
    with ThreadPoolExecutor(jobs) as pool:
        into = folder if quick else RESULTS
        costs = pool.map(lambda e: run(e, quick, into, threads), ready)
        for done, (experiment, cost) in enumerate(zip(ready, costs, strict=True), 1):
            colour = "green" if cost.exit_code == 0 else "red"
            failed += [experiment.name] * (cost.exit_code != 0)
            console.print(
                f"[{colour}]{done} of {len(ready)}: {experiment.name} ended with {cost.exit_code} after "
                f"{cost.seconds:.0f} s, {cost.peak_mb:.0f} MB[/]"
            )
    if plot and not quick:
        drawable = find_spec("matplotlib") is not None
        if not drawable:
            console.print("figures are not drawn for want of matplotlib (pip install matplotlib)")
        for script in ("plot.py", "tables.py") if drawable else ("tables.py",):
            subprocess.run([sys.executable, str(HERE / script)], check=True)
    if failed or not ready:
        console.print(
            f"[red]{', '.join(failed) + ' failed' if failed else 'nothing could be run'}[/]"
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
