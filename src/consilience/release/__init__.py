"""Release folders: everything that was published about a table, in files that are safe to pass on.

This package is `consilience.release`, and so is the function that makes a folder: calling the package calls it.
"""

import sys
from inspect import signature
from types import ModuleType

from consilience.release.answers import Answer
from consilience.release.folder import Published, read_release, write_release
from consilience.release.labelled import labelled_table, write_table
from consilience.release.noisy import read_noisy_tables
from consilience.release.paid import Paid, Unfinished, check_unpaid, read_unfinished
from consilience.release.run import release, resume

__all__ = [
    "Answer",
    "Paid",
    "Published",
    "Unfinished",
    "check_unpaid",
    "labelled_table",
    "read_noisy_tables",
    "read_release",
    "read_unfinished",
    "release",
    "resume",
    "write_release",
    "write_table",
]


class _Callable(ModuleType):
    """Python binds an imported package to its name in the parent, where `cs.release(...)` looks for the function."""

    __call__ = staticmethod(release)


sys.modules[__name__].__class__ = _Callable
__signature__ = signature(release)
