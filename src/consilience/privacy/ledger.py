"""Ledger: the durable account of all that was ever spent on one table.

A release reserves its cost here, on disk, before it draws noise. A crash between the two never hides
spending; with what `note` wrote down, it need not waste any either. Choices, all for that rule:

- one SQLite file with a rollback journal and synchronous=EXTRA: when `reserve` returns, the entry
  and the directory are on disk, and a copy of the one file is a copy of the whole ledger (with a
  write-ahead log it would not be);
- BEGIN IMMEDIATE: reading what is left and writing the entry are one step between processes;
- amounts are exact rationals as text; each entry is chained to the one before by a digest, and the
  head holds their number and the last digest, so that a damaged file is noticed and refused.

What no ledger can notice: a file replaced by an older copy of itself. Digests without a key show damage, not forgery: whoever
can write the file can write another history. With CONSILIENCE_LEDGER_KEY they are authenticated by that key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from consilience.errors import BudgetError, InsufficientBudgetError, LedgerError
from consilience.privacy.budget import Budget
from consilience.privacy.cost import Cost

_APPLICATION = 0x436F6E73  # "Cons"
_VERSION = 1
_WAIT_SECONDS = 60.0
_SCHEMA = """
CREATE TABLE head (only INTEGER PRIMARY KEY CHECK (only = 1), table_id TEXT NOT NULL,
                   budget TEXT NOT NULL, entries INTEGER NOT NULL, digest TEXT NOT NULL);
CREATE TABLE entry (number INTEGER PRIMARY KEY, time TEXT NOT NULL, description TEXT NOT NULL,
                    spends TEXT NOT NULL, digest TEXT NOT NULL);
"""


@dataclass(frozen=True)
class Entry:
    """One reservation: when, for what, and its cost."""

    number: int
    time: str
    description: str
    cost: Cost
    digest: str = ""
    """Of it and of all that came before: no two entries have the same."""


@dataclass(frozen=True)
class Account:
    """All that a ledger holds, read and verified at one moment."""

    table: str
    total: Budget
    entries: tuple[Entry, ...]

    @property
    def spent(self) -> Cost:
        """The cost of all entries together."""
        return Cost.sum(self.total.neighbours, (entry.cost for entry in self.entries))


class Ledger:
    """A ledger file. `create` sets the table and the total once; `reserve` spends."""

    def __init__(self, path: str | os.PathLike[str], *, table: str | None = None) -> None:
        """Open an existing ledger; `table`, when given, must be the one that it protects."""
        self.path = Path(path)
        self._table = table
        self.read()

    @classmethod
    def create(cls, path: str | os.PathLike[str], *, table: str, total: Budget) -> Ledger:
        """Make a new ledger, whole or not at all: it is written aside and linked into place."""
        target = Path(path)
        if not isinstance(table, str) or not table:
            raise LedgerError(f"a ledger must name the table that it protects, got {table!r}")
        if not isinstance(total, Budget):
            raise LedgerError(f"the total of a ledger must be a Budget, got {total!r}")
        budget = json.dumps(total.to_record())
        head = (1, table, budget, 0, _digest(table, budget))
        draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            with closing(_connect(draft, "rwc")) as db:
                db.execute(f"PRAGMA application_id = {_APPLICATION}")
                db.execute(f"PRAGMA user_version = {_VERSION}")
                db.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
                db.execute("INSERT INTO head VALUES (?, ?, ?, ?, ?)", head)
            os.link(draft, target)
        except FileExistsError:
            raise LedgerError(
                f"a ledger is created once, but {target} exists; open it instead"
            ) from None
        except (OSError, sqlite3.Error) as error:
            raise LedgerError(f"the ledger {target} cannot be written: {error}") from error
        finally:
            if draft.exists():
                draft.unlink()
        sync_directory(target.parent)
        return cls(target, table=table)

    @classmethod
    def beside(cls, path: str | os.PathLike[str], table: str) -> list[Path]:
        """Other ledgers of the same table in the same folder."""
        found = []
        for other in sorted(Path(path).absolute().parent.iterdir()):
            try:
                if other.is_file() and _begins_like_one(other) and cls(other).read().table == table:
                    found.append(other)
            except (LedgerError, OSError):
                continue
        return found

    def read(self) -> Account:
        """Everything in the ledger, verified."""
        with self._transaction("BEGIN") as db:
            return self._verified(db)[0]

    def check(self, cost: Cost) -> None:
        """Refuse now what `reserve` would refuse; spends nothing."""
        _refuse_beyond(self.read(), cost)

    def reserve(
        self, cost: Cost, description: str, note: Callable[[Entry], None] | None = None
    ) -> Entry:
        """Spend `cost`, durably, or raise and spend nothing. Call it before any noise is drawn.

        note: is given the entry just before it is committed. What it writes down tells later, with `holds`, whether it was:
        no moment is left at which something is paid for and nobody knows what.
        """
        if not isinstance(cost, Cost) or not cost.spends:
            raise BudgetError(f"a reservation must have a Cost that is not empty, got {cost!r}")
        with self._transaction("BEGIN IMMEDIATE") as db:
            account, digest = self._verified(db)
            _refuse_beyond(account, cost)
            number = len(account.entries) + 1
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            row = (number, now, str(description), json.dumps(cost.to_record()))
            digest = _digest(digest, *row)
            db.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?)", (*row, digest))
            db.execute("UPDATE head SET entries = ?, digest = ?", (number, digest))
            entry = Entry(number, now, str(description), cost, digest)
            if note is not None:
                note(entry)
        return entry

    def holds(self, digest: str) -> bool:
        """Whether the entry of this digest was paid."""
        return any(hmac.compare_digest(e.digest, digest) for e in self.read().entries)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        if not self.path.is_file():
            raise LedgerError(f"there is no ledger at {self.path}; create it first")
        try:
            with closing(_connect(self.path, "rw")) as db:
                db.execute(begin)
                try:
                    yield db
                except BaseException:
                    db.rollback()
                    raise
                db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise LedgerError(
                f"the ledger {self.path} cannot be used, release nothing: {error}"
            ) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from error

    def _verified(self, db: sqlite3.Connection) -> tuple[Account, str]:
        """The account and its last digest; refuses damage, other files and other tables."""
        if db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
            raise LedgerError(f"{self.path} is not a ledger of Consilience; nothing was spent")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version != _VERSION:
            raise LedgerError(
                f"the ledger {self.path} must be of version {_VERSION}, got {version}; "
                "use the release that wrote it"
            )
        problems = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
        heads = db.execute("SELECT table_id, budget, entries, digest FROM head").fetchall()
        if problems != "ok" or len(heads) != 1:
            raise self._damaged(problems if problems != "ok" else "its head is missing")
        table, budget, count, last = heads[0]
        self._check_key(last)
        try:
            total = Budget.from_record(json.loads(budget))
            digest = _digest(table, budget)
            entries = []
            for *row, stored in db.execute("SELECT * FROM entry ORDER BY number"):
                digest = _digest(digest, *row)
                if digest != stored:
                    raise self._damaged(f"entry {row[0]} does not match its digest")
                cost = Cost.from_record(total.neighbours, json.loads(row[3]))
                entries.append(Entry(row[0], row[1], row[2], cost, digest))
        except (ValueError, KeyError, TypeError) as error:
            if isinstance(error, LedgerError):
                raise
            raise self._damaged(f"it cannot be read ({error})") from error
        if len(entries) != count or digest != last:
            raise self._damaged(f"its head speaks of {count} entries, {len(entries)} match")
        if self._table is not None and table != self._table:
            raise LedgerError(
                f"the ledger {self.path} protects table {table!r}, not {self._table!r}; "
                "use that table's own ledger, nothing was spent"
            )
        return Account(table, total, tuple(entries)), digest

    def _check_key(self, digest: str) -> None:
        """A ledger with a key is read with it, and one without is not taken for one with."""
        keyed, given = digest.startswith(_KEYED), bool(os.environ.get(KEY))
        if keyed and not given:
            raise LedgerError(
                f"the ledger {self.path} is authenticated: set {KEY} to its key; nothing was spent"
            )
        if given and not keyed:
            raise LedgerError(
                f"the ledger {self.path} was made without a key, but {KEY} is set: anybody may have written it; unset the key "
                "to use it as it is; nothing was spent"
            )

    def _damaged(self, how: str) -> LedgerError:
        return LedgerError(
            f"the ledger {self.path} is damaged: {how}; nothing was spent, "
            "restore it from a copy that holds every release"
        )


def _refuse_beyond(account: Account, cost: Cost) -> None:
    """Raise unless the total admits what is spent already and this cost."""
    total, spent = account.total, account.spent
    if cost.neighbours != total.neighbours:
        raise LedgerError(
            f"the ledger is stated for {total.neighbours}, the release for {cost.neighbours}; "
            "calibrate it for the ledger's, nothing was spent"
        )
    asked, used = total.spent(cost), total.spent(spent)
    if asked is None or used is None:
        kind = "pure mechanisms" if total.accounting == "pure" else "wide Gaussian noise"
        raise BudgetError(
            f"a ledger with {total.accounting} accounting takes only {kind}, got "
            f"{', '.join(sorted({s.form for s in cost.spends}))}; nothing was spent"
        )
    if not total.admits(spent + cost):
        left = total.capacity.value - used.value
        raise InsufficientBudgetError(
            f"the release costs {asked.symbol} {float(asked.value):.6g}, but only "
            f"{float(max(left, Fraction(0))):.6g} of {float(total.capacity.value):.6g} is left; "
            "nothing was spent",
            remaining=float(left),
            requested=float(asked.value),
        )


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    db = sqlite3.connect(uri, uri=True, timeout=_WAIT_SECONDS, isolation_level=None)
    try:
        db.execute("PRAGMA synchronous = EXTRA")
        db.execute("PRAGMA fullfsync = ON")  # macOS: through the drive's own cache
    except BaseException:
        db.close()
        raise
    return db


def sync_directory(path: Path) -> None:
    """A file that was made or renamed in this directory stays there, whatever happens to the machine."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# -- text ----------------------------------------------------------------------------------------


KEY = "CONSILIENCE_LEDGER_KEY"
"""The variable that holds the key of authenticated ledgers."""
_KEYED = "keyed "


def _digest(*parts: object) -> str:
    """Of all that came before: unkeyed it shows damage; with a key, which is kept apart, nobody without it can write another."""
    text, key = json.dumps(parts).encode(), os.environ.get(KEY, "")
    if not key:
        return hashlib.sha256(text).hexdigest()
    return _KEYED + hmac.new(key.encode(), text, hashlib.sha256).hexdigest()


def _begins_like_one(path: Path) -> bool:
    """Whether a file has SQLite's header and our mark in it."""
    with path.open("rb") as file:
        start = file.read(72)
    return start[:15] == b"SQLite format 3" and start[68:72] == _APPLICATION.to_bytes(4, "big")
