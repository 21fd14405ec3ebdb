"""Release folders: everything that was published about a table, in files that are safe to pass on."""

from consilience.release.folder import Published, read_release, write_release
from consilience.release.labelled import labelled_table, write_table
from consilience.release.noisy import read_noisy_tables

__all__ = [
    "Published",
    "labelled_table",
    "read_noisy_tables",
    "read_release",
    "write_release",
    "write_table",
]
