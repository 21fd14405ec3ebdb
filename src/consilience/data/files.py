"""Files: what DuckDB reads, and what is wrong with a file that it cannot read, in one line.

CSV files have a header and are UTF-8 unless another encoding is named; everything in them is text until a schema says otherwise,
so that neither the types nor the errors depend on values. Columns without a name, or with another's, are renamed by their place.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
import pyarrow.dataset

from consilience.errors import DataError

Connection = duckdb.DuckDBPyConnection
FAILURES = (duckdb.Error, OSError, RuntimeError)
"""What DuckDB raises, its Arrow reader (OSError), and either of them when it is interrupted (RuntimeError)."""
DELIMITERS = (",", ";", "\t", "|")
_HEADER_BYTES = 1 << 20


@dataclass(frozen=True)
class Opened:
    """A table that DuckDB can scan: SQL for FROM, and what it is called in messages."""

    relation: str
    shown: str
    remarks: tuple[str, ...] = ()
    """How columns were renamed, in words."""


def open_table(
    connection: Connection,
    table: Any,
    *,
    delimiter: str | None = None,
    name: str | None = None,
    lenient: bool = False,
    encoding: str | None = None,
) -> Opened:
    """A path, or a frame in memory (pandas, polars, Arrow, a mapping of columns), as something to select from."""
    if isinstance(table, str | Path):
        return _open_path(connection, Path(table), delimiter, name, lenient, encoding)
    if isinstance(table, Mapping):
        table = pyarrow.table({k: pyarrow.array(v) for k, v in table.items()})
    try:
        connection.register("given", table)
    except (duckdb.Error, TypeError, ValueError) as error:
        raise DataError(
            "a table must be a path, or a pandas, polars or Arrow table, got "
            f"{type(table).__name__}: {first_line(error)}"
        ) from error
    return Opened("given", type(table).__name__)


OTHERS = {
    ".xlsx": "an Excel workbook",
    ".xlsm": "an Excel workbook",
    ".xls": "an Excel workbook",
    ".ods": "an OpenDocument spreadsheet",
    ".sav": "an SPSS file",
    ".dta": "a Stata file",
    ".sas7bdat": "a SAS file",
    ".rds": "an R file",
    ".json": "a JSON file",
}
"""Tables that are known by their names and not read."""


def _open_path(
    connection: Connection,
    path: Path,
    delimiter: str | None,
    name: str | None,
    lenient: bool,
    encoding: str | None,
) -> Opened:
    shown = str(path)
    many = any(c in shown for c in "*?[") and not path.exists()
    if not many:
        if not path.exists():
            raise DataError(f"the table must be a file, got {shown!r}, which is not there")
        if path.is_dir():
            raise DataError(
                f"the table must be a file, got the folder {shown!r}; name its files, "
                f"such as '{path / '*.parquet'}'"
            )
        try:
            with path.open("rb") as file:
                empty = not file.read(1)
        except OSError as error:
            raise DataError(f"the table {shown!r} cannot be read: {error.strerror}") from error
        if empty:
            raise DataError(f"the table must have a header and rows, {shown!r} is empty")
    kinds = [s.lower() for s in path.suffixes if s.lower() not in (".gz", ".zst")]
    kind = kinds[-1] if kinds else ""
    if kind in OTHERS:
        raise DataError(
            f"a table must be a CSV, Parquet, Arrow or DuckDB file, {shown!r} is {OTHERS[kind]}; save it as CSV (UTF-8) first"
        )
    binary = kind in (".parquet", ".pq", ".arrow", ".feather", ".ipc", ".duckdb", ".ddb")
    if binary and encoding is not None:
        raise DataError(f"an encoding is that of a CSV file, {shown!r} is none; leave it out")
    if kind in (".parquet", ".pq"):
        pattern = shown if many else _itself(shown)
        return Opened(f"read_parquet({text_literal(pattern)})", shown)
    if kind in (".arrow", ".feather", ".ipc"):
        with _refused(shown, "an Arrow file"):
            connection.register("given", pyarrow.dataset.dataset(shown, format="ipc"))
        return Opened("given", shown)
    if kind in (".duckdb", ".ddb"):
        return _open_database(connection, shown, name)
    if many:
        raise DataError(f"only Parquet files can be named by a pattern, got {shown!r}")
    if encoding is not None:
        path = _transcoded(connection, path, encoding, lenient)
    relation, remarks = _csv(path, delimiter, lenient, shown)
    return Opened(relation, shown, remarks)


def _itself(shown: str) -> str:
    """The pattern that only this file matches: DuckDB would take people[1].csv for people1.csv."""
    return re.sub(r"([*?\[])", r"[\1]", shown)


def table_and_name(address: str) -> tuple[str, str | None]:
    """FILE::NAME or ADDRESS::NAME in two; a file that is called so is itself."""
    if Path(address).exists():
        return address, None
    where, _, name = address.partition("::")
    return where, name or None


def _open_database(connection: Connection, shown: str, name: str | None) -> Opened:
    with _refused(shown, "a DuckDB database"):
        connection.execute(f"ATTACH {text_literal(shown)} AS given (READ_ONLY)")
        listed = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_catalog = 'given'"
        ).fetchall()
    tables = sorted(row[0] for row in listed)
    name = one_of(tables, name, shown)
    return Opened(f"given.{quoted(name)}", f"{shown}::{name}")


def one_of(tables: Sequence[str], name: str | None, shown: str) -> str:
    """The table of a database that is asked for; the only one where none is named."""
    if name is None and len(tables) == 1:
        return tables[0]
    if name is None or name not in tables:
        raise DataError(
            f"one table of {shown!r} must be named, got {name!r}; it has "
            f"{', '.join(map(repr, tables)) or 'none'}"
        )
    return name


# -- CSV ---------------------------------------------------------------------------------------------


def _csv(
    path: Path, delimiter: str | None, lenient: bool, shown: str
) -> tuple[str, tuple[str, ...]]:
    """SQL that reads the file, and which columns were renamed.

    lenient: a line that cannot be read is left out, whatever the others are, and not refused.
    """
    header = _header_line(path, shown)
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise DataError(f"a delimiter must be one character, got {delimiter!r}")
    between = delimiter or _most_frequent(header)
    names, remarks = distinct_names(
        [n.strip() for n in next(csv.reader([header], delimiter=between))]
    )
    columns = ", ".join(f"{text_literal(n)}: 'VARCHAR'" for n in names)
    # DuckDB takes a line break inside a name for the kind that ends lines, and then finds no rows.
    breaks = ", new_line = '\\r\\n'" if "\n" in header and _ends_in_crlf(path) else ""
    relation = (
        f"read_csv({text_literal(_itself(str(path)))}, columns = {{{columns}}}, delim = {text_literal(between)}, "
        "header = true, auto_detect = false, quote = '\"', escape = '\"', nullstr = ''"
        f"{breaks}{', ignore_errors = true, null_padding = true' if lenient else ''})"
    )
    return relation, remarks


def distinct_names(given: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """A name for every column, by its place alone, and in words which are not the table's own.

    Small and capital letters count as the same, as in SQL.
    """
    taken = {n.lower() for n in given if n}
    used: set[str] = set()
    names, remarks = [], []
    for place, name in enumerate(given, 1):
        wanted = name or f"column{place}"
        count, free = 1, wanted
        while free.lower() in used or (free != name and free.lower() in taken):
            count += 1
            free = f"{wanted}_{count}"
        if free != name:
            remarks.append(
                f"column {place} is called {free!r} here: "
                + (
                    f"{name!r} is another column's name"
                    if name
                    else "it has no name in the first line"
                )
            )
        used.add(free.lower())
        names.append(free)
    return names, tuple(remarks)


def _transcoded(connection: Connection, path: Path, encoding: str, lenient: bool) -> Path:
    """The file in UTF-8, in the folder that is removed with the connection. lenient: what is no text becomes a mark for it."""
    try:
        known = codecs.lookup(encoding)
    except LookupError:
        raise DataError(
            f"an encoding must be a known one, such as latin-1, cp1252 or utf-16, got {encoding!r}"
        ) from None
    (folder,) = connection.execute("SELECT current_setting('temp_directory')").fetchall()[0]
    target = Path(folder) / f"utf-8-{path.name.removesuffix('.gz')}"
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    how = "replace" if lenient else "strict"
    try:
        with (
            opener(path, "rt", encoding=known.name, errors=how, newline="") as source,
            target.open("w", encoding="utf-8", newline="") as sink,
        ):
            shutil.copyfileobj(source, sink, 1 << 20)
    except (UnicodeError, LookupError):
        raise DataError(
            f"the table must be text in the encoding that is named, {str(path)!r} is not {encoding}"
        ) from None
    except (OSError, EOFError) as error:
        raise DataError(f"the table {str(path)!r} cannot be read: {error}") from error
    return target


def _header_line(path: Path, shown: str) -> str:
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rb") as file:
            start = file.read(_HEADER_BYTES)
    except (OSError, EOFError) as error:
        raise DataError(f"the table {shown!r} cannot be read: {error}") from error
    if path.suffix.lower() == ".zst":
        raise DataError(f"the table must be CSV or CSV.gz, got {shown!r}; unpack it first")
    line = _first_record(start.removeprefix(b"\xef\xbb\xbf"))
    if _is_utf16(start[:2], line):
        raise DataError(
            f"a table must be UTF-8 text, {shown!r} is UTF-16; say --encoding utf-16, or convert it"
        )
    if b"\0" in line:
        raise DataError(
            f"a CSV file must be text, {shown!r} is not; Parquet and Arrow files are known by "
            "their names, .parquet and .arrow"
        )
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(_not_utf8(shown)) from None


def _ends_in_crlf(path: Path) -> bool:
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "rb") as file:
        start = file.read(_HEADER_BYTES).removeprefix(b"\xef\xbb\xbf")
    end = len(_first_record(start))
    return start[end : end + 2] == b"\r\n"


def _is_utf16(mark: bytes, line: bytes) -> bool:
    """Its mark, or a zero in every other byte, as Latin letters have there."""
    zeros = max(line[0::2].count(0), line[1::2].count(0))
    return mark in (b"\xff\xfe", b"\xfe\xff") or zeros > len(line) // 4 > 0


def _first_record(start: bytes) -> bytes:
    """Up to the first line break outside of quotes."""
    inside = False
    for i, byte in enumerate(start):
        if byte == 0x22:
            inside = not inside
        elif byte in b"\r\n" and not inside:
            return start[:i]
    return start


def _most_frequent(header: str) -> str:
    outside = "".join(header.split('"')[::2])
    return max(DELIMITERS, key=outside.count)


# -- what went wrong -----------------------------------------------------------------------------


class _refused:
    """Turns what a reader raises into one line."""

    def __init__(self, shown: str, what: str) -> None:
        self.shown, self.what = shown, what

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and isinstance(error, duckdb.Error | pyarrow.ArrowException | OSError):
            raise DataError(
                f"{self.shown!r} must be {self.what}, and cannot be read: {first_line(error)}"
            ) from error


def refusal(shown: str, error: Exception) -> Exception:
    """DuckDB's error about a table as one line for a person, without any value of the table."""
    text = str(error)
    lowered = text.lower()
    if isinstance(error, duckdb.InterruptException) or "interrupted" in lowered:
        raise KeyboardInterrupt from error
    if "unicode" in lowered or "utf-8" in lowered or "utf8" in lowered:
        return DataError(_not_utf8(shown))
    if "csv error on line" in lowered:
        found = re.search(r"Line: (\d+)", text)
        line = found[1] if found else "?"
        return DataError(
            f"every line of {shown!r} must have the columns of its first line, line {line} has not; "
            "is another delimiter or quote used?"
        )
    return DataError(f"the table {shown!r} cannot be read: {first_line(error)}")


def _not_utf8(shown: str) -> str:
    return f"a table must be UTF-8 text, {shown!r} is not; say which it is, such as --encoding cp1252 or latin-1, or convert it"


def first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


# -- SQL ---------------------------------------------------------------------------------------------


def quoted(name: str) -> str:
    """A name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
