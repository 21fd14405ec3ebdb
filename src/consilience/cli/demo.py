"""consilience demo: the whole job on invented people, by the same commands that a custodian would type."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import mkdtemp
from time import perf_counter

import click
import numpy as np
import pyarrow
from rich.console import Console

from consilience.cli.shell import main
from consilience.data import POPULATION_SCHEMA, population_table
from consilience.data.schema_file import format_schema
from consilience.demo import Tables, before_and_after, certificate, people_panel, side_by_side
from consilience.domain import all_marginals
from consilience.release import read_release, write_table

PEOPLE = 50_000
SEED = 2021
"""Of the people, who are the same in every run; the noise never is."""
WIDTH = 80
BUDGET = "--epsilon 1 --delta 1e-6 --workload 2 --mechanism gaussian --neighbours replace-one"
QUESTIONS = (
    ("employed, and without insurance", "employment=employed,insurance=none"),
    ("65 or older, in poor health", "age>=65,health=poor"),
    ("earning 50,000 or more, in the Capital", "income>=50000,region=Capital"),
)


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), help="A folder to be made; a temporary one otherwise."
)
def demo(out: Path | None) -> None:
    """The whole job on 50,000 invented people: schema, plan, release, answers, rows, report.

    Everything is made in a folder of its own, whose place is printed at the end.
    """
    console = Console()
    if not console.is_terminal or console.width > WIDTH:
        console = Console(width=WIDTH)
    folder = Path(mkdtemp(prefix="consilience-demo-")) if out is None else out
    folder.mkdir(exist_ok=out is None)
    with _step(console, f"{PEOPLE:,} people invented, in people.csv"):
        table = population_table(PEOPLE, np.random.default_rng(SEED))
        columns = {k: pyarrow.array(v, from_pandas=True) for k, v in table.items()}
        write_table(pyarrow.table(columns), folder / "people.csv")
    data = POPULATION_SCHEMA.encode(table)
    console.print(people_panel(data))

    run = _Runner(console, folder)
    run("schema people.csv --out draft.toml --quiet", show=False)
    (folder / "people.toml").write_text(format_schema(POPULATION_SCHEMA), encoding="utf-8")
    console.print(
        "[dim]  a draft is read off the data, hence not private: people.toml holds what\n"
        "  would be declared without looking[/]"
    )
    run(f"plan people.csv --schema people.toml {BUDGET} --rows {PEOPLE}")
    run(
        f"release people.csv --schema people.toml {BUDGET} --ledger people.ledger --out release --quiet"
    )
    published = read_release(folder / "release")
    pairs = all_marginals(data.domain, 2)
    tables = Tables.of(data.marginals(pairs), published.model)
    console.print(side_by_side(tables), before_and_after(tables))
    console.print(certificate(published.model, str(published.facts["mark"])))
    run("sample release --rows 1000 --out rows.csv --quiet")
    run("report release --rows 5000 --quiet", show=False)
    answers = [_answer(run, where) for _, where in QUESTIONS]
    console.print("\n[bold]three answers[/], with one standard error each:")
    for (what, _), (count, stderr) in zip(QUESTIONS, answers, strict=True):
        console.print(f"  {what:<40} {count:>8,.0f} ± {stderr:,.0f}", highlight=False)
    console.print("\nthe release, safe to publish:", highlight=False)
    console.print(str(folder / "release"), style="bold", highlight=False, soft_wrap=True)
    console.print("a page about it, for a browser:", highlight=False)
    console.print(
        str(folder / "release" / "report.html"), style="bold", highlight=False, soft_wrap=True
    )
    console.print(
        "ask it something else: consilience answer RELEASE age,sex --where 'smoker=yes'",
        highlight=False,
    )


class _Runner:
    """Runs a command as if typed in the folder, and shows it."""

    def __init__(self, console: Console, folder: Path) -> None:
        self.console, self.folder = console, folder

    def __call__(self, line: str, show: bool = True) -> str:
        self.console.print(f"\n[bold cyan]$ consilience {line}[/]", highlight=False)
        printed = self.silently(line)
        if show and printed.strip():
            self.console.print(printed.rstrip(), highlight=False, markup=False)
        return printed

    def silently(self, line: str) -> str:
        names = ("people.csv", "draft.toml", "people.toml", "people.ledger", "release", "rows.csv")
        command, *rest = shlex.split(line)
        words = [str(self.folder / w) if w in names else w for w in rest]
        printed = StringIO()
        with (
            _step(self.console, command, quiet=command == "answer"),
            redirect_stdout(printed),
            main.make_context("consilience", [command, *words]) as context,
        ):
            main.invoke(context)
        return printed.getvalue()


def _answer(run: _Runner, where: str) -> tuple[float, float]:
    found = json.loads(run.silently(f"answer release --where {shlex.quote(where)} --json --quiet"))
    (row,) = found["rows"]
    return row["count"], row["stderr"]


@contextmanager
def _step(console: Console, what: str, quiet: bool = False) -> Iterator[None]:
    start = perf_counter()
    yield
    if not quiet:
        console.print(f"[green]✓[/] {what} [dim]{perf_counter() - start:.1f} s[/]", highlight=False)
