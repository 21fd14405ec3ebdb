"""What the demo shows of invented people: themselves, and their tables before and after reconstruction.

Everything is the real thing: a real file, discrete noise from the operating system, a ledger that is charged before noise is
drawn, the planner, the solver and its certificate. Only the people are not real, which is the one reason why true
counts may be printed. The commands around it are in `cli/demo.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rich import box
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from consilience.data import POPULATION_SCHEMA
from consilience.domain import CliqueVector
from consilience.inference import Model
from consilience.records import Dataset

SHOWN = ("employment", "insurance")
ASKED = "employment"


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
class Tables:
    """The same tables three times, as counts."""

    true: CliqueVector
    noisy: CliqueVector
    ours: CliqueVector

    @classmethod
    def of(cls, true: CliqueVector, model: Model) -> Tables:
        noisy = {m.clique: m.values for m in model.measurements}
        ours = {clique: model.marginal(clique) for clique in true}
        build = CliqueVector.from_tables
        return cls(true, build(true.domain, noisy), build(true.domain, ours))


def side_by_side(tables: Tables) -> Table:
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


def before_and_after(tables: Tables) -> Table:
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
