"""Options that commands share, and how their words are read: budget, workload, mechanism."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import click

from consilience.cli.workload import read_asked
from consilience.data.schema import Schema
from consilience.domain import Domain
from consilience.errors import BudgetError, DomainError
from consilience.mechanisms import Auto, Mechanism
from consilience.privacy import Budget
from consilience.release.registry import FIT_NAMES, MECHANISMS, USUAL, name_of, named

time_limit_option = click.option(
    "--time-limit",
    type=float,
    default=USUAL["time_limit"],
    show_default=True,
    metavar="SECONDS",
    help="With --consistency auto: global only if it is expected to take no longer.",
)


fit_option = click.option(
    "--fit",
    type=click.Choice(list(FIT_NAMES)),
    help="How noisy tables become consistent ones; shrunk pulls them towards independence as far as the noise warrants: "
    "biased, often closer.",
)


whole_option = click.option(
    "--whole",
    is_flag=True,
    help="Whole numbers that agree with each other, as near as can be; errors stay those of the numbers before.",
)


delimiter_option = click.option(
    "--delimiter", help="Of a CSV file; found in its first line unless given."
)
encoding_option = click.option(
    "--encoding", help="Of a CSV file that is not UTF-8, such as cp1252 or latin-1."
)


def release_options(neighbours_required: bool) -> Callable[[Any], Any]:
    """--epsilon, --delta, --rho, --neighbours, --accounting, --workload, --mechanism, --option and how to reconstruct."""
    names = "\b\n" + "\n".join(f"{name}: {entry.line}" for name, entry in MECHANISMS.items())
    options = [
        click.option(
            "--epsilon", metavar="NUMBER", help="The privacy loss that is allowed, such as 1."
        ),
        click.option("--delta", metavar="NUMBER", help="The chance of more, such as 1e-6."),
        click.option(
            "--rho", metavar="NUMBER", help="Instead of epsilon and delta: zero-concentrated."
        ),
        click.option(
            "--neighbours",
            type=click.Choice(["replace-one", "add-remove"]),
            default=None if neighbours_required else "replace-one",
            show_default=not neighbours_required,
            help="What is hidden: which person a row is about (the number of rows is public), or "
            "whether there is a row at all.",
        ),
        click.option(
            "--accounting",
            type=click.Choice(["pure", "zcdp", "gaussian"]),
            help="How releases add up; the default suits every mechanism.",
        ),
        click.option(
            "--workload",
            default="2",
            show_default=True,
            metavar="WHICH",
            help="Tables to publish: 2 for all pairs, 1,2 for single columns and pairs, or "
            "'age,sex; sex,income', or @FILE with a table per line. 'age,sex*5; income' counts the first five times; with hdmm "
            "'age:ranges', 'income:prefix' and a hierarchy's name ask for sums.",
        ),
        click.option(
            "--mechanism",
            default="auto",
            show_default=True,
            metavar="NAME",
            help=f"How to spend the budget.\n\n{names}",
        ),
        click.option(
            "--option",
            "-o",
            "own",
            multiple=True,
            metavar="KEY=VALUE",
            help="An option of the mechanism, such as rounds=30.",
        ),
        click.option(
            "--consistency", default="auto", show_default=True, help="auto, global or local."
        ),
        click.option("--memory", default="2 GB", show_default=True, help="For the reconstruction."),
        time_limit_option,
        fit_option,
    ]

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def chosen(mechanism: Mechanism, budget: Budget, say: Callable[[str], None]) -> Mechanism:
    """The mechanism itself; where the choice was left to auto, what it chose, and the reason is said."""
    if not isinstance(mechanism, Auto):
        return mechanism
    found, why = mechanism.choose(budget)
    say(f"auto takes {name_of(found)} with the fit {type(found.fit).__name__}: {why}")
    return found


def read_mechanism(schema: Schema, words: Mapping[str, Any]) -> Mechanism:
    """The mechanism that --mechanism, --option, --workload and the settings of the reconstruction ask for."""
    asked = read_asked(schema, words["workload"])
    settings = {name: words[name] for name in USUAL}
    return named(words["mechanism"], asked.workload, words["own"], settings, asked.queries)


LEAST, MOST = Fraction(1, 10**12), Fraction(10**6)
"""Of epsilon and rho."""


def read_budget(words: Mapping[str, Any], schema: Schema | None = None) -> Budget:
    """The budget of --epsilon and its kin, for the unit that the schema declares."""
    amounts = {k: _amount(k, words[k]) for k in ("epsilon", "delta", "rho")}
    if amounts["epsilon"] is None and amounts["rho"] is None:
        raise BudgetError(
            "a budget must have --epsilon (with or without --delta) or --rho, got neither"
        )
    return Budget(
        epsilon=amounts["epsilon"],
        delta=amounts["delta"],
        rho=amounts["rho"],
        neighbours=words["neighbours"],
        unit=None if schema is None else schema.unit,
        rows_per_unit=1 if schema is None else schema.rows_per_unit,
        accounting=words["accounting"],
    )


def _amount(name: str, text: str | None) -> Fraction | None:
    if text is None:
        return None
    try:
        amount = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise BudgetError(f"--{name} must be a number such as 1 or 1e-6, got {text!r}") from None
    if amount <= 0:
        raise BudgetError(f"--{name} must be greater than zero, got {text!r}")
    if name != "delta" and not LEAST <= amount <= MOST:
        raise BudgetError(
            f"--{name} must be from {float(LEAST):g} to a million, got {text!r}; below nothing can be told from noise, above "
            "nobody is protected"
        )
    if name == "delta" and amount >= 1:
        raise BudgetError(f"--delta must be less than one, got {text!r}; 1e-6 is usual")
    return amount


def read_attributes(domain: Domain, text: str) -> tuple[str, ...]:
    """Names separated by commas; blanks around them do not count."""
    names = tuple(w.strip() for w in text.split(",") if w.strip())
    domain.clique(names)
    if len(set(names)) != len(names):
        raise DomainError(f"the attributes of a table must be distinct, got {text.strip()!r}")
    return names
