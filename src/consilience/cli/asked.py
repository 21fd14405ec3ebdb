"""What a release is asked for: budget, workload, mechanism. The options that `plan` and `release` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from consilience.data.schema import Schema
from consilience.domain import Domain, Workload, all_marginals
from consilience.errors import BudgetError, ConsilienceError, DomainError
from consilience.fits import Fit, LeastSquares, PossibleCells, Shrunk
from consilience.mechanisms import (
    AIM,
    FEM,
    HDMM,
    MWEM,
    DualQuery,
    Gaussian,
    Laplace,
    Mechanism,
    ResidualPlanner,
)
from consilience.privacy import Budget
from consilience.release.labelled import RESULTS
from consilience.solvers.planner import TIME_LIMIT

PASSED_ON = ("consistency", "memory", "time_limit", "prior")
"""Settings of the reconstruction that mechanisms which measure tables take."""


@dataclass(frozen=True)
class Choice:
    """A mechanism by name: how it is made, its own options with their readers, and what it does in a line."""

    make: Callable[..., Mechanism]
    options: Mapping[str, Callable[[str], Any]]
    line: str
    passed: tuple[str, ...] = PASSED_ON


def _weights(text: str) -> str:
    return text


REGISTRY: Mapping[str, Choice] = {
    "gaussian": Choice(
        Gaussian, {"weights": _weights}, "every table once, Gaussian noise; needs a delta or rho"
    ),
    "laplace": Choice(
        Laplace, {"weights": _weights}, "every table once, Laplace noise; good for few tables"
    ),
    "hdmm": Choice(
        HDMM,
        {"slack": float, "restarts": int, "seed": int},
        "other tables than those asked for, where that needs less noise",
    ),
    "residual-planner": Choice(
        ResidualPlanner, {}, "the least total variance for Gaussian noise, many attributes"
    ),
    "mwem": Choice(
        MWEM,
        {"rounds": int, "noise": str, "select_share": float, "allowance": str},
        "chooses the worst answered table, measures it, and again",
    ),
    "aim": Choice(
        AIM,
        {"rounds_per_attribute": int},
        "chooses what is worth measuring, with the budget it has",
    ),
    "fem": Choice(
        FEM,
        {"rounds": int, "samples": int, "split": float, "perturbation": float, "seed": int},
        "chooses badly answered cells, and fits records that answer them",
        (),
    ),
    "dual-query": Choice(
        DualQuery,
        {"rounds": int, "samples": int, "seed": int},
        "draws queries, and finds records that answer them",
        (),
    ),
}


time_limit_option = click.option(
    "--time-limit",
    type=float,
    default=TIME_LIMIT,
    show_default=True,
    metavar="SECONDS",
    help="With --consistency auto: global only if it is expected to take no longer.",
)


def asked_options(neighbours_required: bool) -> Callable[[Any], Any]:
    """--epsilon, --delta, --rho, --neighbours, --accounting, --workload, --mechanism, --option and how to reconstruct."""
    names = "\b\n" + "\n".join(f"{name}: {c.line}" for name, c in REGISTRY.items())
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
            "'age,sex; sex,income', or @FILE with a table per line.",
        ),
        click.option(
            "--mechanism",
            default="gaussian",
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
        click.option(
            "--prior",
            type=click.Choice(["independence"]),
            help="Pull tables towards independence as far as the noise warrants: biased, often closer.",
        ),
    ]

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@dataclass(frozen=True)
class Asked:
    """The words of the options, read."""

    budget: Budget
    name: str
    options: Mapping[str, Any]
    mechanism: Mechanism
    workload: Workload
    words: Mapping[str, Any]
    """What it was read from, for JSON; the workload as a list of cliques."""


WORDS = ("epsilon", "delta", "rho", "neighbours", "accounting", "mechanism", "own", *PASSED_ON)


def read_asked(schema: Schema, words: Mapping[str, Any]) -> Asked:
    budget = read_budget(words)
    domain = schema.domain
    clash = next((a for a in domain if a in RESULTS), None)
    if clash is not None:
        raise ConsilienceError(
            f"no column may be called {clash!r}, which the released tables have for their results; rename it in the table "
            "and the schema"
        )
    workload = read_workload(domain, words["workload"])
    name = words["mechanism"]
    if name not in REGISTRY:
        raise ConsilienceError(f"the mechanism must be one of {', '.join(REGISTRY)}, got {name!r}")
    choice = REGISTRY[name]
    options = dict(_own_option(name, choice, given) for given in words["own"])
    usual = {"consistency": "auto", "memory": "2 GB", "time_limit": TIME_LIMIT, "prior": None}
    unused = [k for k in PASSED_ON if k not in choice.passed and words[k] != usual[k]]
    if unused:
        word = unused[0].replace("_", "-")
        raise ConsilienceError(f"{name} does not take --{word}; leave it out")
    if schema.impossible and not choice.passed:
        able = ", ".join(n for n, c in REGISTRY.items() if c.passed)
        raise ConsilienceError(
            f"{name} cannot keep the schema's impossible combinations empty; use one of {able}"
        )
    if choice.passed:
        options_of_fit = {k: words[k] for k in choice.passed}
        options["fit"] = read_fit(name, options_of_fit, schema.possible)
    mechanism = choice.make(workload, **options)
    options.pop("fit", None)
    kept = {k: words[k] for k in WORDS} | {"workload": [list(c) for c in workload]}
    return Asked(budget, name, options, mechanism, workload, kept)


def read_fit(name: str, words: Mapping[str, Any], possible: Mapping[Any, Any]) -> Fit:
    """The estimator that the words ask for; MWEM's own where they ask for nothing else."""
    if words["prior"] is not None:
        if possible:
            raise ConsilienceError(
                "combinations that cannot occur need a fit without a prior; leave out --prior"
            )
        return Shrunk(consistency=words["consistency"], memory=words["memory"])
    if name == "mwem" and words["consistency"] == "auto" and not possible:
        return PossibleCells(memory=words["memory"])
    return LeastSquares(
        consistency=words["consistency"],
        memory=words["memory"],
        time_limit=words["time_limit"],
        possible=possible,
    )


LEAST, MOST = Fraction(1, 10**12), Fraction(10**6)
"""Of epsilon and rho."""


def read_budget(words: Mapping[str, Any]) -> Budget:
    amounts = {k: _amount(k, words[k]) for k in ("epsilon", "delta", "rho")}
    if amounts["epsilon"] is None and amounts["rho"] is None:
        raise BudgetError(
            "a budget must have --epsilon (with or without --delta) or --rho, got neither"
        )
    return Budget(**amounts, neighbours=words["neighbours"], accounting=words["accounting"])


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


def read_workload(domain: Domain, text: str | list[list[str]]) -> Workload:
    """2 | 1,2 | age,sex; sex,income | @file, or a list of cliques."""
    if not isinstance(text, str):
        return Workload(domain, [tuple(c) for c in text])
    if text.startswith("@"):
        try:
            lines = Path(text[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DomainError(f"the workload file {text[1:]!r} can not be read: {error}") from error
        text = ";".join(line.partition("#")[0] for line in lines if line.partition("#")[0].strip())
    parts = [p.strip() for p in text.split(";") if p.strip()]
    if len(parts) == 1 and all(w.strip().isdigit() for w in parts[0].split(",")):
        orders = [int(w) for w in parts[0].split(",")]
        if not all(1 <= k <= len(domain) for k in orders):
            columns = f"{len(domain)} column{'s' if len(domain) > 1 else ''}"
            raise DomainError(
                f"--workload {text} asks for tables of so many columns each: it must be from 1 to what the schema has, "
                f"{columns}"
            )
        return Workload(domain, [c for k in orders for c in all_marginals(domain, k)])
    if not parts:
        raise DomainError(
            "--workload must name at least one table, such as 2 or 'age,sex', got none"
        )
    cliques = [read_attributes(domain, part) for part in parts]
    return Workload(domain, cliques)


def read_attributes(domain: Domain, text: str) -> tuple[str, ...]:
    """Names separated by commas; blanks around them do not count."""
    names = tuple(w.strip() for w in text.split(",") if w.strip())
    domain.clique(names)
    if len(set(names)) != len(names):
        raise DomainError(f"the attributes of a table must be distinct, got {text.strip()!r}")
    return names


def _own_option(name: str, choice: Choice, given: str) -> tuple[str, Any]:
    key, equals, value = given.partition("=")
    key = key.strip().replace("-", "_")
    if not equals or key not in choice.options:
        known = ", ".join(choice.options) or "none"
        raise ConsilienceError(
            f"an option of {name} must be KEY=VALUE with one of: {known}; got {given!r}"
        )
    try:
        return key, choice.options[key](value.strip())
    except ValueError:
        kind = choice.options[key].__name__
        raise ConsilienceError(f"option {key} of {name} must be a {kind}, got {value!r}") from None
