"""consilience.toml: the options of a release in a file beside the data, so that the command is short and can be reviewed.

    table = "people.csv"

    [release]
    schema = "people.toml"
    epsilon = 1
    delta = 1e-6
    neighbours = "replace-one"
    workload = [["age", "sex"], ["sex", "income"]]
    ledger = "people.ledger"
    out = "release"

Keys are the long options of the command; `plan` takes those of [release] that it has, and what [plan] says before them. Paths are
meant from the file's own folder. What is said on the command line comes first.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

import click

from consilience.errors import ConsilienceError

NAME = "consilience.toml"
SECTIONS = {"release": ("release",), "plan": ("release", "plan")}
"""{command: the sections that it reads}, the last first in rank."""
PATHS = ("schema", "ledger", "out", "log", "picture")


class Settled(click.Command):
    """A command whose options may stand in a settings file."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.params.append(
            click.Option(
                ["--settings"],
                metavar="FILE",
                expose_value=False,
                help=f"Options as TOML; {NAME} beside the table (or here) unless given, 'none' for none.",
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options of the settings file are defaults: what the command line says comes first."""
        said, _, _ = self.make_parser(ctx).parse_args(list(args))
        table = said.get("table")
        table = table if isinstance(table, str) else None
        path = _found(said.get("settings"), table)
        if path is not None and not ctx.resilient_parsing:
            ctx.default_map = read_settings(path, self, table)
            taken = [
                f"--{_key(o)} {_shown(ctx.default_map[o.name])}".rstrip()
                for o in self.params
                if o.name in ctx.default_map and o.name not in said
            ]
            if not said.get("quiet"):
                click.echo(f"settings of {path}: {' '.join(taken)}", err=True)
        return super().parse_args(ctx, args)


def _key(option: click.Parameter) -> str:
    """The long name of an option, or the name of an argument."""
    return next((n for n in option.opts if n.startswith("--")), option.opts[0]).removeprefix("--")


def _shown(value: Any) -> str:
    """A value as it would be typed."""
    if isinstance(value, bool):
        return ""
    return " ".join(map(quote, value)) if isinstance(value, list) else quote(str(value))


def _found(given: Any, table: str | None) -> Path | None:
    """The settings file: the one that is named, else the one beside the table, if there is one."""
    if isinstance(given, str):
        if given == "none":
            return None
        if not Path(given).is_file():
            raise ConsilienceError(f"--settings must be a file, got {given!r}, which is not there")
        return Path(given)
    folder = Path() if table is None or "://" in table else Path(table).parent
    beside = folder / NAME
    return beside if beside.is_file() else None


def read_settings(path: Path, command: click.Command, table: str | None) -> dict[str, Any]:
    """{parameter: value} for a command, checked: every key is one of its options, and the table is the one that they are for."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        what = str(error).splitlines()[0]
        raise ConsilienceError(
            f"{path}: settings must be TOML, and these are not: {what}"
        ) from error
    home = path.parent
    known = {"table", *(s for read in SECTIONS.values() for s in read)}
    if strange := sorted(set(given) - known):
        raise ConsilienceError(
            f"{path}: settings must be a table and [release] or [plan], got {strange[0]!r}; options stand below [release]"
        )
    found: dict[str, Any] = {}
    own = given.get("table")
    if own is not None:
        _check_table(path, own, table)
        found["table"] = own if "://" in str(own) else str(home / own)
    for section in SECTIONS[command.name or ""]:
        options = given.get(section, {})
        if not isinstance(options, Mapping):
            raise ConsilienceError(
                f"{path}: [{section}] must be a table of options, got {options!r}"
            )
        for key, value in options.items():
            option = _option(path, command, section, key)
            if option is not None and option.name is not None:
                found[option.name] = _value(path, option, key, value, home)
    return found


def _check_table(path: Path, own: Any, table: str | None) -> None:
    if not isinstance(own, str):
        raise ConsilienceError(f"{path}: table must be a path or an address, got {own!r}")
    if table is None:
        return
    same = own == table if "://" in own else (path.parent / own).resolve() == Path(table).resolve()
    if not same:
        raise ConsilienceError(
            f"the settings of {path} are for the table {own!r}, got another; give --settings FILE for its own, or --settings none"
        )


def _option(path: Path, command: click.Command, section: str, key: str) -> click.Option | None:
    """The option of a key; None for one of release's that plan does not have."""
    options = {_key(o): o for o in command.params if isinstance(o, click.Option)}
    found = options.get(key.replace("_", "-"))
    if key == "settings" or (found is None and section == command.name):
        raise ConsilienceError(
            f"{path}: [{section}] must hold options of consilience {section}, got {key!r}; there are "
            f"{', '.join(sorted(set(options) - {'settings'}))}"
        )
    return found


def _value(path: Path, option: click.Option, key: str, value: Any, home: Path) -> Any:
    """A TOML value as the command line would have it."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise ConsilienceError(f"{path}: {key} must be true or false, got {value!r}")
        return value
    if option.multiple:
        if isinstance(value, Mapping):
            return [f"{k}={_text(path, key, v)}" for k, v in value.items()]
        return [_text(path, key, v) for v in (value if isinstance(value, list) else [value])]
    if key == "workload" and isinstance(value, list):
        return "; ".join(
            ",".join(_text(path, key, a) for a in (t if isinstance(t, list) else [t]))
            for t in value
        )
    text = _text(path, key, value)
    if key == "workload" and text.startswith("@"):
        return f"@{home / text[1:]}"
    return str(home / text) if key in PATHS else text


def _text(path: Path, key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConsilienceError(f"{path}: {key} must be text or a number, got {value!r}")
    return str(value)
