"""What was paid for: noisy measurements on disk from the moment they are drawn until the release folder stands.

    NAME.partial/
        README.txt      what this is and how to go on
        asked.json      budget, workload, mechanism and settings, as they were asked for
        schema.toml     the declared columns
        payment.json    which entry of which ledger pays for it (`drawn.py`)
        drawn.bin       what is drawn, piece by piece (`drawn.py`)
        paid.npz        the noisy measurements (or choices), what they cost and what the ledger said; whole or not there
        lock            held by whoever works on it
        draft/          the folder in the making

The folder is made, with room for the measurements, before anything is spent. What is in it is private already.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from consilience.data.schema import Schema
from consilience.data.schema_file import format_schema, read_schema
from consilience.domain import Domain, Layout
from consilience.errors import ConsilienceError, DataError, ReleaseError
from consilience.measurements import Centring, Measurement, Query
from consilience.measurements.selections import Selections
from consilience.mechanisms import Calibrated, Release, SelectionRelease
from consilience.model.keeping import Arrays
from consilience.model.packed_queries import QueryReader, QueryWriter
from consilience.privacy import Cost, Ledger
from consilience.privacy.ledger import sync_directory
from consilience.release.drawn import Payment, TapeOnDisk, read_pieces

SUFFIX = ".partial"
ENDING = 1 << 20
"""Bytes beside the numbers themselves for which room is kept."""
CHOICES = ("beta", "ptr", "cells", "shares", "chosen_ptr", "chosen", "signs")

README = """A release that was paid for and is not finished. Nothing has to be paid again:

    consilience resume {name}

makes the folder and removes this one. The measurements in paid.npz and drawn.bin carry their noise already. If it ended
before all of them were drawn, it says so, and the table is needed for the rest, which was paid for as well:

    consilience resume {name} --table TABLE
"""


def partial_of(out: Path) -> Path:
    """Where the release to this folder keeps what it has paid for."""
    return out.with_name(out.name + SUFFIX)


@dataclass(frozen=True)
class Paid:
    """A folder that keeps what one release has paid for, until it is discarded.

    Whoever works on it holds its lock, which the operating system lets go when the process ends, however it ends.
    """

    path: Path
    lock: IO[bytes] | None = None

    @classmethod
    def begin(cls, out: Path, schema: Schema, order: Mapping[str, Any], room: int) -> Paid:
        """Make the folder, with room for so many bytes of measurements. Spends nothing."""
        path = partial_of(out)
        check_unpaid(out)
        paid = cls(path)
        try:
            path.mkdir()
            paid = paid.taken()
            (path / "README.txt").write_text(README.format(name=path), encoding="utf-8")
            (path / "schema.toml").write_text(format_schema(schema), encoding="utf-8")
            text = json.dumps({"out": out.name, **order}, indent=1, ensure_ascii=False)
            (path / "asked.json").write_text(text + "\n", encoding="utf-8")
            _fill(path / "room", room + ENDING)
        except OSError as error:
            paid.discard()
            raise ReleaseError(_no_room(out, error)) from error
        return paid

    @property
    def draft(self) -> Path:
        """Where the release folder is made before it is moved to its place."""
        return self.path / "draft"

    @property
    def kept(self) -> bool:
        """Whether all that is needed to finish is here."""
        return (self.path / "paid.npz").exists()

    @property
    def payment(self) -> Payment | None:
        """The payment, where it was made."""
        payment = Payment.read(self.path)
        return payment if payment is not None and payment.made else None

    @property
    def advice(self) -> str | None:
        """How to go on with what was paid for, if anything was."""
        if self.kept:
            return f"consilience resume {self.path}"
        if self.payment is not None:
            return f"consilience resume {self.path} --table TABLE"
        return None

    def keep(self, release: Release, about: Mapping[str, Any]) -> None:
        """Put the measurements on disk, all of them or none; what was kept before is replaced by it."""
        beside = self.path / "paid.tmp"
        arrays = _packed(release, about)
        (self.path / "room").unlink(missing_ok=True)
        with beside.open("wb") as file:
            np.savez(file, **arrays)  # pyright: ignore[reportArgumentType] (one array per name)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self.path / "paid.npz")
        sync_directory(self.path)

    def discard(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self.leave()

    def taken(self) -> Paid:
        """The same, with its lock."""
        return Paid(self.path, _locked(self.path))

    def leave(self) -> None:
        """Let others work on it."""
        if self.lock is not None:
            self.lock.close()


@dataclass(frozen=True)
class Unfinished:
    """A folder of `Paid` as read."""

    paid: Paid
    out: Path
    schema: Schema
    order: Mapping[str, Any]
    about: Mapping[str, Any] | None
    """None where not everything was drawn."""
    arrays: Mapping[str, NDArray[Any]]

    def check(self, ready: Calibrated[Any], stated: Mapping[str, Any] | None) -> None:
        """Refuse unless what was paid is what the mechanism is calibrated to now."""
        if stated is not None and stated != paid_for(ready):  # 0.1 did not write it down
            raise ReleaseError(
                f"{str(self.paid.path)!r} must ask for what was paid for, {stated['calibrated']}, it asks for {ready}; "
                "put asked.json back as it was written"
            )

    def rest(
        self, ready: Calibrated[Any], records: int, ledger: str | os.PathLike[str] | None
    ) -> tuple[TapeOnDisk, Ledger | None]:
        """The tape to go on with, whose pieces are not drawn again, and the ledger that paid for it."""
        payment = Payment.read(self.paid.path)
        if payment is None:
            raise ReleaseError(
                f"{str(self.paid.path)!r} was left by a version that draws everything at once, or with seeded noise; finish it "
                "without the table"
            )
        self.check(ready, payment.stated["paid"])
        rows = payment.stated["rows"]
        if rows is not None and rows != records:
            raise DataError(
                f"the table must be the one that was paid for, which had {rows:,} rows, got one of {records:,}"
            )
        account = payment.account(None if ledger is None else Path(ledger))
        return TapeOnDisk(self.paid.path, payment.stated, paid=True), account

    def release(self, ready: Calibrated[Any]) -> Release:
        """The measurements, with what they cost: what was paid must be what the mechanism is calibrated to now."""
        self.check_drawn()
        assert self.about is not None
        self.check(ready, self.about.get("paid"))
        return _unpacked(self.schema.domain, self.about, self.arrays, ready.cost)

    def check_drawn(self) -> None:
        """Refuse to finish without the table what was not drawn."""
        if self.about is None:
            done = len(read_pieces(self.paid.path)[0])
            drawn = (
                f"after {done} piece{'s' if done > 1 else ''} of what"
                if done
                else "before anything"
            )
            raise ReleaseError(
                f"{str(self.paid.path)!r} was paid for, and ended {drawn} was to be drawn; the table is needed to draw the rest, "
                f"for the same payment: consilience resume {self.paid.path} --table TABLE"
            )


def paid_for(ready: Calibrated[Any]) -> dict[str, Any]:
    """What is kept beside the measurements of their price and their noise."""
    return {
        "calibrated": str(ready),
        "cost": ready.cost.to_record(),
        "budget": ready.budget.to_record(),
    }


def _locked(path: Path) -> IO[bytes]:
    """The lock of a folder; refuses if another process has it."""
    file = (path / "lock").open("ab")
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except OSError:
        file.close()
        raise ReleaseError(
            f"another process is at work on {str(path)!r}: wait for it, or give another output; nothing was spent"
        ) from None
    return file


def check_unpaid(out: Path) -> None:
    """Refuse to pay twice: what an earlier run left is named. One that had drawn nothing is cleared away."""
    paid = Paid(partial_of(out))
    if paid.advice is not None:
        raise ReleaseError(
            f"{str(paid.path)!r} holds a release that was paid for and not finished; finish it with: {paid.advice} (or move it "
            "away to pay again)"
        )
    if paid.path.exists() and (paid.path / "asked.json").exists():
        paid.taken().leave()  # an earlier run that has ended, not one that is at work
        paid.discard()
    if paid.path.exists():
        raise ReleaseError(
            f"a release keeps what it has paid for in {str(paid.path)!r}, which is something else; move it away"
        )


def read_unfinished(path: Path) -> Unfinished:
    """What an interrupted release left."""
    paid = Paid(path)
    if not path.is_dir() or not (path / "asked.json").exists():
        raise ReleaseError(
            f"a release to be finished must be a folder that an interrupted release left, {str(path)!r} is not one"
        )
    if paid.advice is None:
        raise ReleaseError(
            f"{str(path)!r} holds no measurements: its release ended before noise was drawn; remove it and release again "
            "(consilience budget says what the ledger recorded)"
        )
    try:
        about, arrays = _kept(path) if paid.kept else (None, {})
        order = json.loads((path / "asked.json").read_text(encoding="utf-8"))
        schema = read_schema(path / "schema.toml")
        out = path.with_name(order.pop("out"))
    except (OSError, ValueError, KeyError, EOFError) as error:
        if isinstance(error, ConsilienceError):
            raise
        what = (str(error).splitlines() or [type(error).__name__])[0]
        raise ReleaseError(f"{str(path)!r} must be as it was written, it is not: {what}") from error
    return Unfinished(paid, out, schema, order, about, arrays)


def _kept(path: Path) -> tuple[dict[str, Any], Arrays]:
    with np.load(path / "paid.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return json.loads(arrays.pop("about").tobytes().decode()), arrays


def _fill(path: Path, size: int) -> None:
    """A file of zeros: the space that the measurements will take."""
    with path.open("wb") as file:
        for at in range(0, size, ENDING):
            file.write(bytes(min(ENDING, size - at)))
        file.flush()
        os.fsync(file.fileno())


def _no_room(out: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"what is measured must fit the disk of {str(out)!r}, but there is no space left; nothing was spent"
    what = error.strerror or str(error)
    return f"the release cannot be written to {str(out)!r}: {what}; nothing was spent"


# -- measurements as arrays ------------------------------------------------------------------------


def _packed(release: Release, about: Mapping[str, Any]) -> Arrays:
    queries = QueryWriter()
    arrays: Arrays = {}
    listed = []
    for i, m in enumerate(release.measurements):
        arrays[f"values_{i}"] = m.values
        listed.append(
            {
                "attributes": list(m.attributes),
                "stddev": float(m.stddev).hex(),
                "noise": m.noise,
                "query": _query_record(m.query, queries),
            }
        )
    described = {
        **about,
        "measurements": listed,
        "queries": queries.records,
        "total": release.total,
        "private": release.private,
    }
    if isinstance(release, SelectionRelease):
        arrays |= {name: getattr(release.selections, name) for name in CHOICES}
        arrays["codes"] = release.codes
        described["cliques"] = [list(c) for c in release.selections.cliques]
    text = json.dumps(described, ensure_ascii=False)
    return {"about": np.frombuffer(text.encode(), np.uint8), **arrays, **queries.arrays}


def _query_record(query: Any, queries: QueryWriter) -> Any:
    if query is None:
        return None
    return queries.add(query)


def _unpacked(
    domain: Domain, about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], cost: Cost
) -> Release:
    reader = QueryReader(about["queries"], arrays)

    def query(record: Any) -> Query | None:
        if isinstance(record, dict):  # as written before 0.3
            return Centring(tuple(record["centring"]))
        return None if record is None else reader[record]

    measurements = tuple(
        Measurement(
            m["attributes"],
            arrays[f"values_{i}"],
            stddev=float.fromhex(m["stddev"]),
            noise=m["noise"],
            query=query(m["query"]),
        )
        for i, m in enumerate(about["measurements"])
    )
    common = (domain, measurements, about["total"], cost, about["private"])
    if "cliques" not in about:
        return Release(*common)
    layout = Layout(domain, [tuple(c) for c in about["cliques"]])
    chosen = Selections(layout, *(arrays[name] for name in CHOICES))
    return SelectionRelease(*common, chosen, arrays["codes"])
