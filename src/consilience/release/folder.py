"""A release folder: what is in it, how it is written, and how it is read and checked again.

    README.txt           what this is, for whoever gets the folder
    release.json         promise, cost, mechanism, total, diagnostics, versions, and an index of the tables
    schema.toml          the declared columns
    tables/              consistent tables with standard errors and 90 % intervals, labelled, as CSV and Parquet
    measurements/        the noisy tables that all of it was made from, with their stddev
    model.npz            the model and the replicates that errors are found from, for answers that are not in a table
    ledger.json          what the ledger said when the release was paid for (if there was one)
    manifest.json        size and SHA-256 of every other file

Nothing in it depends on the data but the noisy measurements and what follows from them, and, where that is public
(replace-one), the number of rows.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np

from consilience.data.binned import Numeric
from consilience.data.schema import Schema
from consilience.data.schema_file import format_schema, read_schema
from consilience.data.within import Values
from consilience.domain import Clique, Domain
from consilience.errors import ConsilienceError, ReleaseError
from consilience.fits import load
from consilience.markup import html_table
from consilience.measurements import Measurement
from consilience.model import Model, Uncertainty
from consilience.privacy.ledger import sync_directory
from consilience.progress import Progress, quiet
from consilience.records import Dataset
from consilience.release.answers import LEVEL, Answer, answer
from consilience.release.labelled import file_name, labelled_table, write_labelled
from consilience.release.questions import read_question
from consilience.release.standard_errors import errors_of

# -- a folder that appears whole or not at all -----------------------------------------------------------


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
            sync_directory(folder)
        check_target(target)
        os.rename(draft, whole)
        sync_directory(whole.parent)
    except OSError as error:
        raise ReleaseError(_why(target, error)) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _why(target: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the release must fit the disk, but there is no space left for {str(target)!r}; nothing was written"
    what = error.strerror or str(error).splitlines()[0]
    return f"the release cannot be written to {str(target)!r}: {what}; nothing was written"


# -- what is in it ---------------------------------------------------------------------------------------

FORMAT = "consilience release"
VERSION = 1


@dataclass(frozen=True)
class Published:
    """A release folder as read."""

    path: Path
    model: Model
    schema: Schema
    facts: Mapping[str, Any]

    @property
    def labels(self) -> Mapping[str, tuple[str, ...]]:
        return self.schema.labels

    @property
    def private(self) -> bool:
        return bool(self.facts["private"])

    @property
    def stated(self) -> str:
        """How the folder finds standard errors: "auto", "bootstrap", "closed-form" or "none"."""
        return str(self.facts.get("standard_errors", "auto"))

    def answer(
        self,
        question: str = "",
        by: str | Sequence[str] = (),
        where: str = "",
        *,
        level: float = LEVEL,
        errors: str = "auto",
        progress: Progress = quiet,
    ) -> Answer:
        """An answer with its error: answer("mean(income)", by="region", where="age>=18"). See `questions.py` for all of them."""
        read = read_question(self.schema, question, by if isinstance(by, str) else tuple(by), where)
        return answer(
            self.model, self.schema, read, self.stated, progress, errors=errors, level=level
        )

    def decode(self, data: Dataset, rng: np.random.Generator | int | None = None) -> dict[str, Any]:
        """Rows of codes as values; numbers in bins are drawn by the law that means are found with (`data/within.py`)."""
        draws = np.random.default_rng(rng)
        columns = dict(self.schema.decode(data))
        for column in self.schema:
            if not isinstance(column, Numeric):
                continue
            values, codes = Values.of(column), data.column(column.name).astype(np.int64)
            inside = codes < column.bins
            if inside.any() and values.widths.any():
                counts = self.model.marginal(column.name)[: column.bins]
                found = columns[column.name].copy()
                found[inside] = values.drawn(counts, codes[inside], draws)
                columns[column.name] = found
        return columns

    def table(self, attributes: str | Sequence[str], level: float = LEVEL) -> Any:
        """Counts with labels, error, low and high, as a frame."""
        return self.model.table(attributes, level)

    def _repr_html_(self) -> str:
        total = self.facts["total"]["value"]
        tables = self.facts["tables"]
        rows = [
            ("folder", str(self.path)),
            ("private", str(self.facts["mark"])),
            ("people", f"{total:,.0f}" + ("" if self.facts["total"].get("public") else " (estimated)")),
            ("columns", ", ".join(f"{c.name} ({len(c.labels)})" for c in self.schema)),
            ("tables", f"{len(tables):,}, such as {', '.join(' x '.join(t['attributes']) for t in tables[:3])}"),
            ("standard errors", f"{self.stated}, {self.facts.get('replicates', 0)} replicates"),
            ("ask", '.answer("mean(column)", by="column", where="column>=18"), .table(("column", "column"))'),
        ]  # fmt: skip
        return html_table("Release", rows)

    def errors(
        self, cliques: Sequence[Clique], progress: Progress = quiet
    ) -> dict[Clique, Uncertainty | None]:
        """The errors of tables over these cliques, the same as in the folder's own; None where it states none."""
        return errors_of(self.model, cliques, self.stated, progress)


def labelled(model: Model, schema: Schema) -> Model:
    """The model with the names of its codes."""
    return replace(model, labels=schema.labels)


# -- writing -----------------------------------------------------------------------------------------


def write_release(
    target: Path,
    *,
    model: Model,
    schema: Schema,
    measurements: Sequence[Measurement],
    tables: Mapping[Clique, Uncertainty | None],
    facts: Mapping[str, Any],
    ledger: Mapping[str, Any] | None,
    readme: str,
    draft: Path | None = None,
) -> Published:
    """Write all of it, or nothing, and return it as `read_release` would.

    tables: {clique: its errors or None}, the tables to publish. draft: where the folder is made
    before it is moved to its place.
    """
    with new_folder(target, draft) as draft:
        labels = schema.labels
        mark = str(facts.get("mark", "")) if facts.get("private") is False else ""
        index = _write_tables(draft / "tables", model, labels, tables, mark)
        noisy = _write_measurements(draft / "measurements", labels, measurements)
        model.save(draft / "model.npz")
        (draft / "schema.toml").write_text(format_schema(schema), encoding="utf-8")
        (draft / "README.txt").write_text(readme, encoding="utf-8")
        described = {"format": FORMAT, "version": VERSION, **facts}
        described |= {"tables": index, "measurements": noisy}
        _write_json(draft / "release.json", described)
        if ledger is not None:
            _write_json(draft / "ledger.json", ledger)
        said = {"mark": mark} if mark else {}
        _write_json(draft / "manifest.json", {**said, "files": _manifest(draft)})
    return Published(target, labelled(model, schema), schema, described)


def _write_tables(
    folder: Path,
    model: Model,
    labels: Mapping[str, Sequence[str]],
    tables: Mapping[Clique, Uncertainty | None],
    mark: str,
) -> list[dict[str, Any]]:
    """mark: why the tables are not private, where they are not; Parquet files carry it."""
    folder.mkdir()
    index = []
    bare = [c for c, found in tables.items() if found is None]
    counts = dict(zip(bare, model.marginals(bare), strict=True))
    for i, (clique, found) in enumerate(tables.items(), 1):
        count = counts[clique] if found is None else found.answer
        numbers = {"count": count.astype(np.int64) if model.is_whole(clique) else count}
        if found is not None:
            low, high = found.interval(LEVEL)
            numbers |= {"stderr": found.stderr, "low": low, "high": high}
        table = labelled_table(labels, clique, numbers)
        if mark:
            table = table.replace_schema_metadata({"mark": mark})
        name = file_name(i, clique)
        for kind in ("csv", "parquet"):
            write_labelled(table, folder / f"{name}.{kind}")
        index.append(
            {"attributes": list(clique), "cells": table.num_rows, "file": f"tables/{name}"}
        )
    return index


def _write_measurements(
    folder: Path, labels: Mapping[str, Sequence[str]], measurements: Sequence[Measurement]
) -> list[dict[str, Any]]:
    """Tables with labels; answers to other queries by their numbers (the queries are in the model)."""
    folder.mkdir()
    index = []
    for i, m in enumerate(measurements, 1):
        name = file_name(i, m.attributes)
        numbers = {"noisy": m.values, "stddev": np.full(m.values.size, m.stddev)}
        if m.query is None:
            table = labelled_table(labels, m.attributes, numbers)
        else:
            table = labelled_table({}, (), {"row": np.arange(m.values.size), **numbers})
        table = table.append_column("noise", [[m.noise] * table.num_rows])
        write_labelled(table, folder / f"{name}.csv")
        index.append(
            {
                "attributes": list(m.attributes),
                "stddev": m.stddev,
                "noise": m.noise,
                "query": None if m.query is None else repr(m.query),
                "file": f"measurements/{name}.csv",
            }
        )
    return index


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _manifest(folder: Path) -> dict[str, dict[str, Any]]:
    files = sorted(f for f in folder.rglob("*") if f.is_file())
    return {
        f.relative_to(folder).as_posix(): {"bytes": f.stat().st_size, "sha256": _sha256(f)}
        for f in files
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# -- reading -----------------------------------------------------------------------------------------


def read_release(folder: str | os.PathLike[str]) -> Published:
    """A release folder, every file checked against the manifest; what was added later (a report) is left alone."""
    path = Path(folder)
    if not path.is_dir():
        what = "is not a folder" if path.exists() else "is not there"
        raise ReleaseError(
            f"a release must be a folder that was made by release, {str(path)!r} {what}"
        )
    listed = _read_json(path / "manifest.json").get("files")
    if not isinstance(listed, dict):
        raise ReleaseError(f"the manifest of {str(path)!r} must list its files, it does not")
    for name, said in listed.items():
        _check_as_written(path, name, said)
    facts = _read_json(path / "release.json")
    if facts.get("format") != FORMAT or not isinstance(facts.get("version"), int):
        raise ReleaseError(f"{str(path)!r} must be a release folder, it is something else")
    if facts["version"] > VERSION:
        raise ReleaseError(
            f"{str(path)!r} must be of version {VERSION} or older, got {facts['version']}; upgrade to read it"
        )
    _check_facts(path, facts)
    needed = ["release.json", "schema.toml", "model.npz"]
    needed += [f"{t['file']}.{kind}" for t in facts["tables"] for kind in ("csv", "parquet")]
    needed += [m["file"] for m in facts.get("measurements", [])]
    unlisted = next((name for name in needed if name not in listed), None)
    if unlisted is not None:
        raise ReleaseError(
            f"the manifest of {str(path)!r} must list every file of the release, {unlisted!r} is not in it; get the folder again "
            "from where it was published"
        )
    try:
        schema = read_schema(path / "schema.toml")
        model = load(path / "model.npz")
    except ConsilienceError as error:
        raise ReleaseError(f"the release {str(path)!r} cannot be used: {error}") from error
    # Models of 0.2 know nothing of hierarchies, which only answers had.
    levels = schema.domain.levels if model.domain.levels else None
    if Domain(schema.domain.sizes, levels) != model.domain:
        raise ReleaseError(f"the schema of {str(path)!r} must be that of its model, it is another")
    return Published(path, labelled(model, schema), schema, facts)


def _check_as_written(path: Path, name: str, said: object) -> None:
    """A file that the manifest lists must be in the folder itself, with the size and the checksum that are stated."""
    inside = not Path(name).is_absolute() and ".." not in Path(name).parts
    file = path / name
    stated = isinstance(said, dict) and {"bytes", "sha256"} <= set(said)
    same = (
        inside
        and stated
        and file.is_file()
        and not file.is_symlink()
        and file.stat().st_size == said["bytes"]  # type: ignore[index]
        and _sha256(file) == said["sha256"]  # type: ignore[index]
    )
    if not same:
        raise ReleaseError(
            f"every file of a release must be as it was written, {name!r} of {str(path)!r} is not; "
            "get the folder again from where it was published"
        )


KINDS: dict[str, type | tuple[type, ...]] = {
    "private": (bool, type(None)),  # None: as private as what it was made from
    "mark": str,
    "tables": list,
    "total": dict,
    "versions": dict,
}
"""The type that a field of release.json must have; what a release promises has its own in `report`."""


def _check_facts(path: Path, facts: Mapping[str, Any]) -> None:
    for name, kind in KINDS.items():
        if not isinstance(facts.get(name, _ABSENT), kind):
            raise ReleaseError(
                f"release.json of {str(path)!r} must state {name!r} as it was written, got {facts.get(name)!r}; get the folder "
                "again from where it was published"
            )
    for what in ("tables", "measurements"):
        for entry in facts.get(what, []):
            file = entry.get("file") if isinstance(entry, dict) else None
            inside = isinstance(file, str) and re.fullmatch(rf"{what}/[^/\\\0]+", file)
            if not inside or not isinstance(entry.get("attributes"), list):
                raise ReleaseError(
                    f"every table that release.json of {str(path)!r} lists must be a file in {what}/, got {file!r}"
                )


_ABSENT = object()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReleaseError(
            f"a release must be a folder that was made by release, {str(path.parent)!r} has no {path.name}"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ReleaseError(f"{str(path)!r} cannot be read: {str(error).splitlines()[0]}") from error
    return content if isinstance(content, dict) else {}
