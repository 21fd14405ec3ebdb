"""The demo: generated people, counted, made noisy, shown.

At this stage the noise is NumPy's and nothing is reconstructed: it shows the question that the
package answers. No privacy is claimed for what it prints.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from consilience.data import POPULATION_SCHEMA, Dataset, population
from consilience.domain import CliqueVector, all_marginals

T = TypeVar("T")

PEOPLE = 50_000
STDDEV = 40.0
SHOWN = ("employment", "insurance")
ASKED = "employment"
SEED = 2021


def main() -> None:
    console = Console()
    rng = np.random.default_rng(SEED)
    data = _timed(console, f"{PEOPLE:,} people generated", lambda: population(PEOPLE, rng))
    pairs = all_marginals(data.domain, 2)
    exact = _timed(
        console,
        f"{len(pairs)} two-way tables counted, {pairs.cells:,} cells",
        lambda: data.marginals(pairs),
    )
    noisy = exact + CliqueVector(
        exact.layout, rng.normal(0.0, STDDEV, exact.values.size)
    )  # demo only
    console.print()
    console.print(_people_panel(data))
    console.print(_pair_table(exact[SHOWN], noisy[SHOWN]))
    console.print(_disagreement(exact, noisy))


def _timed(console: Console, what: str, work: Callable[[], T]) -> T:
    start = perf_counter()
    result = work()
    console.print(f"[green]✓[/] {what} [dim]in {perf_counter() - start:.2f} s[/]")
    return result


def _people_panel(data: Dataset) -> Panel:
    """A few people in words, so that the table is not an abstraction."""
    first = POPULATION_SCHEMA.decode(data.to_array()[:4])
    table = Table(box=None, pad_edge=False, header_style="dim")
    shown = ("region", "sex", "age", "education", "employment", "health")
    for name in shown:
        table.add_column(name, justify="right" if name == "age" else "left")
    for i in range(4):
        table.add_row(*("—" if first[n][i] is None else str(first[n][i]) for n in shown))
    return Panel(table, title="four of them, nobody real", title_align="left", expand=False)


def _pair_table(exact: NDArray[np.float64], noisy: NDArray[np.float64]) -> Table:
    """Exact and noisy counts of one pair, side by side; negative counts in red."""
    rows, columns = (POPULATION_SCHEMA[a].labels for a in SHOWN)
    table = Table(
        title=f"{SHOWN[0]} by {SHOWN[1]}: true count and noisy count",
        caption=f"Gaussian noise of standard deviation {STDDEV:g} on every cell",
        box=box.SIMPLE_HEAVY,
    )
    table.add_column(SHOWN[0], style="bold")
    for label in columns:
        table.add_column(label, justify="right")
        table.add_column("noisy", justify="right", header_style="cyan")
    for i, label in enumerate(rows):
        cells = [
            Text(f"{value:,.0f}", style=style)
            for j in range(len(columns))
            for value, style in (
                (exact[i, j], ""),
                (noisy[i, j], "bold red" if noisy[i, j] < -0.5 else "cyan"),
            )
        ]
        table.add_row(label, *cells)
    return table


def _disagreement(exact: CliqueVector, noisy: CliqueVector) -> Panel:
    """What is wrong with noisy tables: negative counts, and as many answers as tables."""
    value = int(np.argmax(exact.project([ASKED])))
    holders = [c for c in noisy.cliques if ASKED in c]
    answers = [noisy[c].sum(axis=1 - c.index(ASKED))[value] for c in holders]
    true = exact.project([ASKED])[value]
    label = POPULATION_SCHEMA[ASKED].labels[value]
    negative = np.count_nonzero(noisy.values < 0)
    text = Text.assemble(
        "How many people are ",
        (label, "bold"),
        f"? The {len(holders)} noisy tables that know say\nanything from ",
        (f"{min(answers):,.0f}", "cyan"),
        " to ",
        (f"{max(answers):,.0f}", "cyan"),
        f" (the truth is {true:,.0f}), and ",
        (f"{negative:,}", "bold red"),
        f" of {noisy.values.size:,} cells are negative.\n",
        "Consilience finds one set of non-negative tables that agree.",
    )
    return Panel(text, title="why that is not good enough", title_align="left", expand=False)


if __name__ == "__main__":
    main()
