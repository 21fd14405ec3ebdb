"""A folder that appears whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from consilience.errors import ReleaseError


def check_target(target: Path) -> None:
    """Refuse early what could not be written at the end."""
    if target.exists():
        raise ReleaseError(
            f"the output must be a new folder, but {str(target)!r} exists; name another or move it away"
        )
    parent = target.absolute().parent
    if not parent.is_dir():
        raise ReleaseError(
            f"the output must be in a folder that exists, got {str(parent)!r}; make it first"
        )
    if not os.access(parent, os.W_OK | os.X_OK):
        raise ReleaseError(
            f"the output must be in a folder that can be written to, got {str(parent)!r}"
        )


@contextmanager
def new_folder(target: Path, draft: Path | None = None) -> Iterator[Path]:
    """A draft, renamed to the target at the end; removed if anything goes wrong, Ctrl-C included.

    It is a hidden folder beside the target unless the caller has a place for it on the same disk.
    """
    check_target(target)
    whole = target.absolute()
    draft = draft or whole.with_name(f".{whole.name}.{token_hex(8)}")
    try:
        draft.mkdir()
        yield draft
        for folder in sorted({f.parent for f in draft.rglob("*")} | {draft}):
            _sync(folder)
        check_target(target)
        os.rename(draft, whole)
        _sync(whole.parent)
    except OSError as error:
        raise ReleaseError(_why(target, error)) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _why(target: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the release must fit the disk, but there is no space left for {str(target)!r}; nothing was written"
    what = error.strerror or str(error).splitlines()[0]
    return f"the release cannot be written to {str(target)!r}: {what}; nothing was written"


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
