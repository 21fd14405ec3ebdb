"""What one payment has drawn, on disk from piece to piece, so that whoever is killed loses nothing.

    NAME.partial/
        payment.json    which entry of which ledger pays for it; written just before that entry is committed
        drawn.bin       pieces as they are drawn, one after the other: length, checksum, arrays

Whether it was paid is for the ledger to say: it holds the entry that `payment.json` names, or it does not. So there is no moment
at which a kill could lose a payment. The last piece may be torn by a kill; then it was used for nothing, and it is drawn again.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from consilience.errors import LedgerError, ReleaseError
from consilience.mechanisms.mechanism import Piece, Tape
from consilience.privacy import Cost, Ledger
from consilience.privacy.ledger import Entry, sync_directory

PAYMENT, DRAWN = "payment.json", "drawn.bin"
_HEAD = struct.Struct("<QI")
_SYNC_EVERY = 1 << 20
"""Bytes after which the disk is waited for: a kill loses nothing that was written, a power failure at most this."""


@dataclass(frozen=True)
class Payment:
    """Who pays for what is drawn: an entry of a ledger, or nobody where no ledger keeps count."""

    ledger: str | None
    digest: str | None
    stated: Mapping[str, Any]
    """What is paid for (`paid.paid_for`), and the number of rows where it is public."""

    @classmethod
    def read(cls, folder: Path) -> Payment | None:
        """The payment that a folder names, None if there is none."""
        try:
            text = (folder / PAYMENT).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            record = json.loads(text)
            return cls(record["ledger"], record["digest"], dict(record["stated"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ReleaseError(
                f"{str(folder / PAYMENT)!r} must be as it was written, it is not: {error}"
            ) from error

    def write(self, folder: Path) -> None:
        """On disk, whole."""
        record = {"ledger": self.ledger, "digest": self.digest, "stated": dict(self.stated)}
        beside = folder / f"{PAYMENT}.tmp"
        with beside.open("w", encoding="utf-8") as file:
            json.dump(record, file, indent=1, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, folder / PAYMENT)
        sync_directory(folder)

    def account(self, moved: Path | None = None) -> Ledger | None:
        """The ledger that holds the entry, None where nobody keeps count; refuses if the entry is not there."""
        if self.ledger is None or self.digest is None:
            return None
        ledger = Ledger(moved or self.ledger)
        if not ledger.holds(self.digest):
            raise LedgerError(
                f"the ledger {ledger.path} must hold the payment of what is to be drawn, it does not: nothing was paid; remove "
                "the folder and release again"
            )
        return ledger

    @property
    def made(self) -> bool:
        """Whether it was paid. A ledger that cannot be read now may say so later: only one that can and does not denies it."""
        if self.ledger is None or self.digest is None:
            return True
        try:
            return Ledger(self.ledger).holds(self.digest)
        except LedgerError:
            return True


class TapeOnDisk(Tape):
    """A tape in the folder of a release."""

    def __init__(self, folder: Path, stated: Mapping[str, Any], *, paid: bool = False) -> None:
        """paid: go on with the pieces that are there, for the payment that is there."""
        pieces, good = read_pieces(folder) if paid else ([], 0)
        super().__init__(pieces)
        self._folder, self._stated, self.paid = folder, stated, paid
        self._good, self._unsynced = good, 0

    def pay(self, ledger: Ledger | None, cost: Cost, description: str) -> None:
        """Reserve the cost once; the payment is written down before it is made."""
        if self.paid:
            return
        if ledger is None:
            Payment(None, None, self._stated).write(self._folder)
        else:
            path = str(ledger.path.absolute())

            def note(entry: Entry) -> None:
                Payment(path, entry.digest, self._stated).write(self._folder)

            ledger.reserve(cost, description, note)
        self.paid = True

    def keep(self, piece: Piece) -> None:
        """Write the piece behind the others."""
        text = io.BytesIO()
        np.savez(text, **piece)  # pyright: ignore[reportArgumentType] (one array per name)
        data = text.getvalue()
        (self._folder / "room").unlink(missing_ok=True)
        with (self._folder / DRAWN).open("r+b" if self._good else "wb") as file:
            file.seek(self._good)  # what was torn is written over
            file.truncate()
            file.write(_HEAD.pack(len(data), zlib.crc32(data)) + data)
            file.flush()
            self._good = file.tell()
            self._unsynced += len(data)
            if self._unsynced >= _SYNC_EVERY:
                os.fsync(file.fileno())
                self._unsynced = 0
        super().keep(piece)


def read_pieces(folder: Path) -> tuple[list[Piece], int]:
    """The pieces that were kept whole, and how far into the file they reach."""
    try:
        data = (folder / DRAWN).read_bytes()
    except FileNotFoundError:
        return [], 0
    pieces: list[Piece] = []
    at = 0
    while len(data) - at >= _HEAD.size:
        size, check = _HEAD.unpack_from(data, at)
        body = data[at + _HEAD.size : at + _HEAD.size + size]
        if len(body) < size or zlib.crc32(body) != check:
            break
        pieces.append(_arrays(folder, body))
        at += _HEAD.size + size
    return pieces, at


def _arrays(folder: Path, body: bytes) -> dict[str, Any]:
    try:
        with np.load(io.BytesIO(body), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, KeyError, EOFError) as error:
        what = (str(error).splitlines() or [type(error).__name__])[0]
        raise ReleaseError(
            f"{str(folder / DRAWN)!r} must be as it was written, it is not: {what}"
        ) from error
