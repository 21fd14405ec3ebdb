"""Files: a model as one npz archive, arrays for what is long and JSON for the rest. Versioned; nothing in it is executed."""

from __future__ import annotations

import os
import zipfile
import zlib
from contextlib import suppress
from math import prod
from pathlib import Path
from secrets import token_hex
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.errors import ModelFileError
from consilience.model.packing import FORMAT, VERSION, Arrays, Fits, described_by, packed, unpacked

if TYPE_CHECKING:
    from consilience.model.model import Model

DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    RuntimeError,
    OverflowError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What reading bytes that are not what they claim to be can raise, here and in NumPy's and Python's readers."""


# -- writing -----------------------------------------------------------------------------------------


def write(path: str | os.PathLike[str], model: Model) -> None:
    """Write beside the target, then rename: a reader sees the old file or the new one."""
    arrays = packed(model)
    target = Path(path)
    beside = target.with_name(f".{target.name}.{token_hex(8)}")
    try:
        try:
            with beside.open("xb") as file:
                _save(file, arrays)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, target)
        finally:
            with suppress(FileNotFoundError):
                beside.unlink()
    except OSError as error:
        raise ModelFileError(
            f"a model must be saved where files can be written, got {str(target)!r}: {error.strerror or error}"
        ) from error


def _save(file: IO[bytes], arrays: Arrays) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in arrays.items():
            # A fixed date: equal models make equal files.
            entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            with archive.open(entry, "w", force_zip64=True) as out:
                np.lib.format.write_array(out, np.ascontiguousarray(array), allow_pickle=False)


# -- reading -----------------------------------------------------------------------------------------


def read(path: str | os.PathLike[str], fits: Fits) -> dict[str, Any]:
    """The fields of the model in a file; `fits` are the estimators that are known, by name."""
    source = Path(path)
    if source.is_dir():
        raise ModelFileError(f"a saved model must be a file, got the folder {str(source)!r}")
    if not source.exists():
        raise ModelFileError(f"a saved model must exist, got {str(source)!r}; check the path")
    arrays, described = _opened(source)
    version = described.get("version")
    if not isinstance(version, int) or version < 1:
        raise ModelFileError(_damaged(source, "it has no version"))
    if version > VERSION:
        raise ModelFileError(
            f"{str(source)!r} must be of format version {VERSION} or older, got {version}; "
            "a newer release of consilience wrote it, upgrade to read it"
        )
    try:
        return unpacked(arrays, described, fits)
    except DAMAGE as error:
        raise ModelFileError(_damaged(source, _short(error))) from error


def _opened(source: Path) -> tuple[Arrays, dict[str, Any]]:
    """Every entry and the JSON; one that does not carry the magic name is not ours."""
    foreign = f"a saved model must be a file that Model.save wrote, got {str(source)!r}; this is something else"
    try:
        if not zipfile.is_zipfile(source):
            with source.open("rb") as file:
                start = file.read(4)
            raise ModelFileError(
                _damaged(source, "its end is missing") if start == b"PK\x03\x04" else foreign
            )
        with zipfile.ZipFile(source) as archive:
            if "consilience.npy" not in archive.namelist():
                raise ModelFileError(foreign)
            _check_sizes(archive, source.stat().st_size)
            arrays = {n.removesuffix(".npy"): _entry(archive, n) for n in archive.namelist()}
        described = described_by(arrays["consilience"])
    except ModelFileError:
        raise
    except DAMAGE as error:
        raise ModelFileError(_damaged(source, _short(error))) from error
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise ModelFileError(foreign)
    return arrays, described


def _check_sizes(archive: zipfile.ZipFile, size: int) -> None:
    """What is read takes no more memory than the file takes disk: entries are stored as they are, one after the other."""
    listed = archive.infolist()
    stored = all(e.compress_type == zipfile.ZIP_STORED for e in listed)
    if not stored or sum(e.file_size for e in listed) > size:
        raise ValueError("its entries are larger than the file")


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def _entry(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with archive.open(name) as file:
        shape, _, kind = _HEADERS[np.lib.format.read_magic(file)](file)
        if prod(shape) * kind.itemsize != archive.getinfo(name).file_size - file.tell():
            raise ValueError(f"{name} is not as long as it says")
    with archive.open(name) as file:
        array = np.lib.format.read_array(file, allow_pickle=False)
        if file.read(1):  # also makes the archive check what was read against its checksum
            raise ValueError(f"{name} is longer than it says")
    return array


def _damaged(source: Path, why: str) -> str:
    return f"the saved model {str(source)!r} must be whole, it is damaged ({why}); save it again"


def _short(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:120] or type(error).__name__
