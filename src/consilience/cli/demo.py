"""consilience demo: the whole job on invented people."""

from __future__ import annotations

import click

from consilience.demo import main as run_demo


@click.command()
def demo() -> None:
    """The whole job on 50,000 invented people: schema, plan, release, answers, rows."""
    run_demo()
