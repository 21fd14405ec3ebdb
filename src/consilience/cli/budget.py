"""consilience budget: what a ledger allows and what was spent on it; or a new ledger."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from consilience.cli.options import read_budget
from consilience.cli.output import Output, json_option, quiet_option
from consilience.data.schema_file import read_schema
from consilience.errors import LedgerError
from consilience.privacy import Ledger
from consilience.release.facts import account_facts


@click.command("budget")
@click.argument("ledger", type=click.Path(path_type=Path))
@click.option("--table", help="The table that the ledger must protect; refused if it is another.")
@click.option("--create", is_flag=True, help="Make a new ledger with the total that follows.")
@click.option("--epsilon", metavar="NUMBER", help="With --create.")
@click.option("--delta", metavar="NUMBER", help="With --create.")
@click.option("--rho", metavar="NUMBER", help="With --create.")
@click.option(
    "--neighbours", type=click.Choice(["replace-one", "add-remove"]), help="With --create."
)
@click.option(
    "--accounting", type=click.Choice(["pure", "zcdp", "gaussian"]), help="With --create."
)
@click.option(
    "--schema",
    "schema_path",
    type=click.Path(path_type=Path),
    help="With --create: the table's name and whose its rows are, as declared there.",
)
@json_option
@quiet_option
def budget_command(
    ledger: Path,
    table: str | None,
    create: bool,
    epsilon: str | None,
    delta: str | None,
    rho: str | None,
    neighbours: str | None,
    accounting: str | None,
    schema_path: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """What LEDGER allows, what was spent on it, and by which releases. Spends nothing.

    A ledger is made by the first release that names it, with that release's budget as the total. To spread a larger
    total over several releases, make it beforehand with --create.

    \b
    Examples:
      consilience budget people.ledger
      consilience budget people.ledger --create --table people --epsilon 3 --delta 1e-6 --neighbours replace-one
    """
    output = Output(quiet, as_json)
    words = {"epsilon": epsilon, "delta": delta, "rho": rho, "neighbours": neighbours}
    if create:
        schema = None if schema_path is None else read_schema(schema_path)
        table = table or (schema.name if schema is not None else None)
        if not table:
            raise LedgerError(
                "a new ledger must name the table that it protects; give --table, or --schema with name = in it"
            )
        total = read_budget({**words, "accounting": accounting}, schema)
        account = Ledger.create(ledger, table=table, total=total).read()
    else:
        if any(v is not None for v in words.values()):
            raise LedgerError(
                "a total is set once, with --create; leave out --epsilon and the like"
            )
        account = Ledger(ledger, table=table).read()
    facts = account_facts(account)
    output.json(facts)
    if as_json:
        return
    console: Console = output.results
    console.print(
        f"table {facts['table']}, {facts['total']['neighbours']} neighbours, {facts['total']['per']}",
        markup=False,
    )
    console.print(f"total {facts['total']['text']}")
    console.print(f"spent {facts['spent']}, {facts['share']:.2%} of the total")
    if not account.entries:
        console.print("nothing released yet")
        return
    listing = Table("release", "time", "cost", "what")
    for entry in facts["releases"]:
        cost = entry["cost"]["text"]
        listing.add_row(str(entry["number"]), entry["time"], cost, entry["description"])
    console.print(listing)
