"""The demo: a private release of invented people, from the budget to one consistent set of tables.

Everything is the real thing: discrete noise from the operating system, a ledger that is charged before
noise is drawn, the planner, the solver and its certificate. Only the people are not real, which is the
one reason why true counts may be printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from time import perf_counter

import numpy as np
from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from consilience.data import POPULATION_SCHEMA, population
from consilience.domain import CliqueVector, all_marginals
from consilience.mechanisms import CalibratedGaussian, Gaussian, Release, Result, Step
from consilience.privacy import Budget, Ledger
from consilience.records import Dataset

PEOPLE = 50_000
SEED = 2021
"""Of the people, who are the same in every run; the noise never is."""
BUDGET = Budget(epsilon=1, delta=1e-6, neighbours="replace-one")
SHOWN = ("employment", "insurance")
ASKED = "employment"
WIDTH = 80
PATIENCE = 2.0
"""Seconds after which a step shows a bar, on a terminal."""


def main() -> None:
    console = Console()
    if not console.is_terminal or console.width > WIDTH:
        console = Console(width=WIDTH)
    with _step(console, f"{PEOPLE:,} people invented"):
        data = population(PEOPLE, np.random.default_rng(SEED))
    console.print(_people(data))
    pairs = all_marginals(data.domain, 2)
    with _step(console, "noise calibrated and the cost known, before the people are looked at"):
        ready = Gaussian(pairs).calibrate(BUDGET)
    console.print(_promise(ready), _plan(ready))
    release = _measure(console, ready, data)
    with _step(console, "one consistent set of tables found") as report:
        result = ready.reconstruct(release, progress=report)
    with _step(console, "compared with the truth, which only a demo can do"):
        exact = data.marginals(pairs)
    tables = _Tables.of(exact, result)
    console.print(_side_by_side(tables), _before_and_after(tables), _certificate(result))


def _measure(console: Console, ready: CalibratedGaussian, data: Dataset) -> Release:
    """The only step that spends; the ledger of a real release would be kept for ever."""
    with TemporaryDirectory() as folder:
        ledger = Ledger.create(Path(folder) / "people.ledger", table="people", total=BUDGET)
        what = f"{len(ready.workload)} tables counted, paid for in the ledger, and made noisy"
        with _step(console, what) as report:
            release = ready.measure(data, ledger=ledger, progress=report)
        account = ledger.read()
    spent = BUDGET.spent(account.spent)
    assert spent is not None
    share = float(spent.value / BUDGET.capacity.value)
    console.print(
        f"  [dim]ledger: {len(account.entries)} release, {share:.2%} of the budget spent[/]"
    )
    return release


@contextmanager
def _step(console: Console, what: str) -> Iterator[Callable[[Step], None]]:
    """Says what was done and how long it took; a bar if it takes long and somebody watches."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(what, total=None)
    patience = Timer(PATIENCE, bar.start)
    start = perf_counter()
    if console.is_terminal:
        patience.start()
    try:
        yield lambda s: bar.update(task, description=s.stage, completed=s.done, total=s.total)
    finally:
        if console.is_terminal:
            patience.cancel()
            patience.join()
            bar.stop()
    console.print(f"[green]✓[/] {what} [dim]{perf_counter() - start:.2f} s[/]", highlight=False)


# -- before the data ------------------------------------------------------------------------------


def _people(data: Dataset) -> Panel:
    """A few people in words, so that the table is not an abstraction."""
    first = POPULATION_SCHEMA.decode(data.to_array()[:4])
    table = Table(box=None, pad_edge=False, header_style="dim")
    shown = ("region", "sex", "age", "education", "employment", "health")
    for name in shown:
        table.add_column(name, justify="right" if name == "age" else "left")
    for i in range(4):
        table.add_row(*("—" if first[n][i] is None else str(first[n][i]) for n in shown))
    return _panel(table, "four of them, nobody real")


def _promise(ready: CalibratedGaussian) -> Panel:
    """The privacy statement, in words and in numbers."""
    (sigma,) = {s.value for s in ready.sigmas.values()}
    expected = np.mean(list(ready.expected_total_variation(PEOPLE).values()))
    epsilon, delta = float(BUDGET.epsilon.value), float(BUDGET.delta or 0)  # pyright: ignore
    text = Text.assemble(
        "Whoever sees all that is published can hardly tell one person's row from another's: ",
        (f"epsilon = {epsilon:g}, delta = {delta:g}, {BUDGET.neighbours.value} neighbours", "bold"),
        f". To that end each of {ready.workload.cells:,} counts gets discrete Gaussian noise of ",
        (f"sigma = {sigma:.1f}", "bold"),
        " from the operating system's entropy. That costs ",
        f"rho = {float(ready.cost.rho.value):.4f} of zero-concentrated privacy, the whole budget. ",
        "Expected total variation of a noisy table: ",
        (f"{expected:.4f}", "bold"),
        ".",
    )
    return _panel(text, "the promise", style="blue")


def _plan(ready: CalibratedGaussian) -> Panel:
    return _panel(Text(str(ready.plan)), "the plan")


# -- after it -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tables:
    """The same tables three times, as counts."""

    true: CliqueVector
    noisy: CliqueVector
    ours: CliqueVector

    @classmethod
    def of(cls, true: CliqueVector, result: Result) -> _Tables:
        noisy = {m.attributes: m.values for m in result.measurements}
        ours = {clique: result.model.marginal(clique) for clique in true}
        build = CliqueVector.from_tables
        return cls(true, build(true.domain, noisy), build(true.domain, ours))


def _side_by_side(tables: _Tables) -> Table:
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


def _before_and_after(tables: _Tables) -> Table:
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


def _certificate(result: Result) -> Panel:
    d = result.diagnostics
    text = Text.assemble(
        f"{d.method}, {d.status} after {d.iterations} iterations: tables that agree can fit the noisy "
        "ones better by at most ",
        (f"{d.gap:.1e}", "bold"),
        " of the loss, and these agree with each other to ",
        (f"{d.violation:.1e}", "bold"),
        ". Both are computed, not assumed. The result is ",
        (result.mark, "bold"),
        "; run it again for other noise.",
    )
    return _panel(text, "the certificate", style="green")


def _panel(content: Table | Text, title: str, style: str = "none") -> Panel:
    return Panel(content, title=title, title_align="left", expand=False, border_style=style)


if __name__ == "__main__":
    main()
