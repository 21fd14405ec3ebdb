"""consilience demo: the whole job on invented people, by the same commands that a custodian would type.

Everything is the real thing: a real file, discrete noise from the operating system, a ledger that is charged before noise is
drawn, the planner, the solver and its certificate. Only the people are not real, which is the one reason why true
counts may be printed.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from tempfile import mkdtemp
from time import perf_counter

import click
import numpy as np
import pyarrow
from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from consilience.cli.shell import main
from consilience.data import POPULATION_SCHEMA, population_table
from consilience.data.schema_file import format_schema
from consilience.domain import CliqueVector, all_marginals
from consilience.model import Model
from consilience.records import Dataset
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

SHOWN = ("employment", "insurance")
ASKED = "employment"


@click.command("demo")
@click.option(
    "--out", type=click.Path(path_type=Path), help="A folder to be made; a temporary one otherwise."
)
def demo_command(out: Path | None) -> None:
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
    tables = ThreeTimes.of(data.marginals(pairs), published.model)
    console.print(side_by_side(tables), before_and_after(tables))
    console.print(certificate(published.model, str(published.facts["mark"])))
    run("sample release --rows 1000 --out rows.csv --quiet")
    drawn = find_spec("vl_convert") is not None
    if drawn:
        run("report release --rows 5000 --quiet", show=False)
    else:
        console.print(
            "\nno report: it needs charts, pip install 'consilience[charts]'",
            highlight=False,
            markup=False,
        )
    answers = [_answer(run, where) for _, where in QUESTIONS]
    console.print("\n[bold]three answers[/], with one standard error each:")
    for (what, _), (count, stderr) in zip(QUESTIONS, answers, strict=True):
        console.print(f"  {what:<40} {count:>8,.0f} ± {stderr:,.0f}", highlight=False)
    console.print("\nthe release, safe to publish:", highlight=False)
    console.print(str(folder / "release"), style="bold", highlight=False, soft_wrap=True)
    if drawn:
        console.print("a page about it, for a browser:", highlight=False)
        page = folder / "release" / "report.html"
        console.print(str(page), style="bold", highlight=False, soft_wrap=True)
    console.print(
        "ask it something else: consilience explore RELEASE --open\n"
        "                       consilience answer RELEASE age,sex --where 'smoker=yes'",
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


# -- what is shown of the people, and of their tables before and after reconstruction ---------------


def people_panel(data: Dataset) -> Panel:
    """A few people in words, so that the table is not an abstraction."""
    first = POPULATION_SCHEMA.decode(data.to_array()[:4])
    table = Table(box=None, pad_edge=False, header_style="dim")
    shown = ("region", "sex", "age", "education", "employment", "health")
    for name in shown:
        table.add_column(name, justify="right" if name == "age" else "left")
    for i in range(4):
        table.add_row(*("—" if first[n][i] is None else str(first[n][i]) for n in shown))
    return _panel(table, "four of them, nobody real")


@dataclass(frozen=True)
class ThreeTimes:
    """The same tables three times, as counts."""

    true: CliqueVector
    noisy: CliqueVector
    ours: CliqueVector

    @classmethod
    def of(cls, true: CliqueVector, model: Model) -> ThreeTimes:
        noisy = {m.clique: m.values for m in model.measurements}
        ours = {clique: model.marginal(clique) for clique in true}
        build = CliqueVector.from_tables
        return cls(true, build(true.domain, noisy), build(true.domain, ours))


def side_by_side(tables: ThreeTimes) -> Table:
    """One pair, true, noisy and reconstructed; negative counts in red."""
    rows, columns = (POPULATION_SCHEMA[a].labels for a in SHOWN)
    table = Table(
        title=f"{SHOWN[0]} by {SHOWN[1]}: true, noisy, reconstructed",
        caption="The true counts are shown only because these people are invented.",
        box=box.SIMPLE_HEAVY,
        padding=(0, 0, 0, 1),
        pad_edge=False,
    )
    table.add_column(SHOWN[0], style="bold", min_width=max(map(len, rows)), no_wrap=True)
    for label in columns:
        table.add_column(f"{label}\ntrue", justify="right", style="dim")
        table.add_column("\nnoisy", justify="right")
        table.add_column("\nours", justify="right", style="green", header_style="green")
    true, noisy, ours = (v[SHOWN] for v in (tables.true, tables.noisy, tables.ours))
    for i, label in enumerate(rows):
        cells: list[Text | str] = []
        for j in range(len(columns)):
            cells.append(f"{true[i, j]:.0f}")
            cells.append(
                Text(f"{noisy[i, j]:.0f}", style="bold red" if noisy[i, j] < 0 else "cyan")
            )
            cells.append(f"{ours[i, j]:.0f}")
        table.add_row(label, *cells)
    return table


def before_and_after(tables: ThreeTimes) -> Table:
    """What is wrong with noisy tables, and what is left of it."""
    value = int(np.argmax(tables.true.project([ASKED])))
    label = POPULATION_SCHEMA[ASKED].labels[value]
    truth = float(tables.true.project([ASKED])[value])
    table = Table(title="before and after", box=box.SIMPLE_HEAVY, padding=(0, 1))
    table.add_column("")
    table.add_column("true", justify="right", style="dim")
    table.add_column("noisy", justify="right", style="cyan")
    table.add_column("reconstructed", justify="right", style="green")
    vectors = (tables.noisy, tables.ours)
    answers = [_answers(v, ASKED)[:, value] for v in vectors]
    ranges = [f"{a.min():,.0f} to {a.max():,.0f}" for a in answers]
    ranges[1] = f"{answers[1].mean():,.0f}" if np.ptp(answers[1]) < 1e-6 else ranges[1]
    table.add_row(f"people {label}, by {len(answers[0])} tables", f"{truth:,.0f}", *ranges)
    apart = [max(float(np.ptp(_answers(v, a), axis=0).max()) for a in v.domain) for v in vectors]
    table.add_row("largest contradiction, people", "0", *(_count(x) for x in apart))
    negative = [np.count_nonzero(v.values < 0) for v in vectors]
    size = tables.true.values.size
    table.add_row(f"negative counts, of {size:,}", "0", f"{negative[0]:,}", f"{negative[1]:,}")
    distance = [_mean_total_variation(v, tables.true) for v in vectors]
    table.add_row("mean total variation", "0", *(f"{d:.4f}" for d in distance))
    return table


def _count(count: float) -> str:
    return f"{count:,.0f}" if count >= 0.5 or count == 0 else f"{count:.0e}"


def _answers(vector: CliqueVector, attribute: str) -> np.ndarray:
    """What each table that holds the attribute says about it, one row per table."""
    holders = [c for c in vector.cliques if attribute in c]
    return np.array([vector[c].sum(axis=1 - c.index(attribute)) for c in holders])


def _mean_total_variation(vector: CliqueVector, true: CliqueVector) -> float:
    halves = [np.abs(vector[c] - table).sum() / (2 * table.sum()) for c, table in true.items()]
    return float(np.mean(halves))


def certificate(model: Model, mark: str) -> Panel:
    d = model.diagnostics
    text = Text.assemble(
        f"{d.method}, {d.status} after {d.iterations} iterations: tables that agree can fit the noisy "
        "ones better by at most ",
        (f"{d.gap:.1e}", "bold"),
        " of the loss, and these agree with each other to ",
        (f"{d.violation:.1e}", "bold"),
        ". Both are computed, not assumed. The result is ",
        (mark, "bold"),
        "; run it again for other noise.",
    )
    return _panel(text, "the certificate", style="green")


def _panel(content: Table | Text, title: str, style: str = "none") -> Panel:
    return Panel(content, title=title, title_align="left", expand=False, border_style=style)
