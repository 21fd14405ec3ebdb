"""The command reference: every Click command, its words and its options, put where the page says so."""

from __future__ import annotations

import inspect
from html import escape
from typing import Any

import click

from consilience.cli import main

MARK = "<!-- the commands -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    return markdown.replace(MARK, reference()) if MARK in markdown else markdown


def reference() -> str:
    """Markdown of all commands, in the order in which `consilience --help` lists them."""
    root = click.Context(main, info_name="consilience")
    parts = []
    for name in main.list_commands(root):
        command = main.get_command(root, name)
        assert command is not None, f"consilience lists {name!r} and does not have it"
        parts.append(_command(command, click.Context(command, info_name=name, parent=root), 2))
    return "\n\n".join(parts)


def _command(command: click.Command, context: click.Context, level: int) -> str:
    """One command; of a group its commands too, one level deeper."""
    usage = f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    lines = [f"{'#' * level} {context.command_path}", "", "```text", usage, "```", ""]
    lines += [_words(command.help or ""), "", *_options(command, context)]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            child = click.Context(inner, info_name=name, parent=context)
            lines += ["", _command(inner, child, level + 1)]
    return "\n".join(lines)


def _words(text: str) -> str:
    """Help as Markdown: a paragraph that starts with a backspace is laid out by hand, and stays so."""
    blocks = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        "```text\n" + block.removeprefix("\b").strip("\n") + "\n```"
        if block.startswith("\b")
        else block
        for block in blocks
    )


def _options(command: click.Command, context: click.Context) -> list[str]:
    rows = [param.get_help_record(context) for param in command.get_params(context)]
    found = [(f"<code>{_cell(names)}</code>", _cell(words)) for names, words in filter(None, rows)]
    return ["| option | |", "|---|---|", *(f"| {a} | {b} |" for a, b in found)]


def _cell(text: str) -> str:
    """Text that a table and Markdown leave alone; lines laid out by hand stay lines."""
    before, _, by_hand = text.partition("\b")
    lines = [" ".join(before.split()), *(line.strip() for line in by_hand.splitlines())]
    shown = "<br>".join(escape(line, quote=False) for line in lines if line)
    return shown.replace("|", "&#124;").replace("*", "&#42;").replace("_", "&#95;")
