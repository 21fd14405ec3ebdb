"""The command line: a thin shell over the library. A mistake gets one line and exit code 2, never a traceback."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from consilience.demo import main as run_demo
from consilience.errors import ConsilienceError
from consilience.privacy import Ledger


class _OneLine(click.Group):
    """Turns what the library refuses into one line for a person."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ConsilienceError as refused:
            click.echo(f"consilience: {refused}", err=True)
            sys.exit(2)


@click.group(cls=_OneLine)
@click.version_option(package_name="consilience")
def main() -> None:
    """Consistent, non-negative answers from noisy, differentially private tables."""


@main.command()
def demo() -> None:
    """A private release of 50,000 invented people, made consistent."""
    run_demo()


@main.command()
@click.argument("ledger", type=click.Path(path_type=Path))
@click.option("--table", help="The table that the ledger must protect; refused if it is another.")
@click.option("--json", "as_json", is_flag=True, help="For scripts: one JSON object.")
def budget(ledger: Path, table: str | None, as_json: bool) -> None:
    """What LEDGER allows, what was spent on it, and by which releases. Spends nothing.

    Example: consilience budget people.ledger
    """
    account = Ledger(ledger, table=table).read()
    total, spent = account.total, account.total.spent(account.spent)
    if as_json:
        rows = [
            {"number": e.number, "time": e.time, "description": e.description}
            for e in account.entries
        ]
        shown = {"table": account.table, "total": str(total), "spent": str(spent), "releases": rows}
        click.echo(json.dumps(shown, indent=1))
        return
    console = Console()
    console.print(
        f"table [bold]{account.table}[/], {total.neighbours.value} neighbours", highlight=False
    )
    console.print(f"total {total}", f"spent {spent}", sep="\n", highlight=False)
    listing = Table("release", "time", "what")
    for entry in account.entries:
        listing.add_row(str(entry.number), entry.time, entry.description)
    console.print(listing if account.entries else "nothing released yet")
