"""Release folders: everything that was published about a table, in files that are safe to pass on."""

from consilience.release.folder import Published, read_release, write_release
from consilience.release.labelled import labelled_table, write_table
from consilience.release.noisy import read_noisy_tables
from consilience.release.paid import Paid, Unfinished, check_unpaid, read_unfinished

__all__ = [
    "Paid",
    "Published",
    "Unfinished",
    "check_unpaid",
    "labelled_table",
    "read_noisy_tables",
    "read_release",
    "read_unfinished",
    "write_release",
    "write_table",
]
