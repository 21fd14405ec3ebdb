"""The command line: thin shells over the library, one module per command."""

from consilience.cli.shell import main

__all__ = ["main"]
