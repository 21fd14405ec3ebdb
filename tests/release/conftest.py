"""The folder with a table of people and its schema that the tests of the commands use."""

from cli.conftest import place

__all__ = ["place"]
