"""A folder that somebody changed, or that was made to mislead, is refused in one line."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import released, run
from consilience.errors import ReleaseError
from consilience.release import read_release

__all__ = ["released"]


def resealed(folder: Path, name: str = "release.json") -> None:
    """The manifest as somebody who changes a file would leave it."""
    manifest = json.loads((folder / "manifest.json").read_text())
    content = (folder / name).read_bytes()
    manifest["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def facts_with(**changed: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        facts = json.loads((folder / "release.json").read_text())
        facts.update(changed)
        (folder / "release.json").write_text(json.dumps(facts))
        resealed(folder)

    return change


def without(field: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        facts = json.loads((folder / "release.json").read_text())
        del facts[field]
        (folder / "release.json").write_text(json.dumps(facts))
        resealed(folder)

    return change


def table_at(place: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        facts = json.loads((folder / "release.json").read_text())
        facts["tables"][0]["file"] = place
        (folder / "release.json").write_text(json.dumps(facts))
        resealed(folder)

    return change


def manifest_of(files: object) -> Callable[[Path], None]:
    return lambda folder: (
        (folder / "manifest.json").write_text(json.dumps({"files": files})) and None
    )


def linked(folder: Path) -> None:
    (folder / "model.npz").rename(folder.parent / "model.npz")
    (folder / "model.npz").symlink_to(folder.parent / "model.npz")


def garbage(name: str, content: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(content)
        if name != "manifest.json":
            resealed(folder, name)

    return change


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a manifest of nothing": (manifest_of({}), "must list every file"),
    "a manifest of numbers": (manifest_of([1]), "must list its files"),
    "a manifest without sizes": (manifest_of({"release.json": 3}), "must be as it was written"),
    "a manifest of a file outside": (
        manifest_of({"../x": {"bytes": 0, "sha256": ""}}), "must be as it was written",
    ),
    "private in words": (facts_with(private="no"), "must state 'private'"),
    "private as a number": (facts_with(private=1), "must state 'private'"),
    "no word on privacy": (without("private"), "must state 'private'"),
    "tables that are no list": (facts_with(tables={}), "must state 'tables'"),
    "a table outside": (table_at("../../etc/passwd"), "must be a file in tables/"),
    "a table by its whole path": (table_at("/etc/passwd"), "must be a file in tables/"),
    "a table that is a number": (table_at(3), "must be a file in tables/"),  # type: ignore[arg-type]
    "a file that is a link": (linked, "must be as it was written"),
    "a manifest that is no JSON": (garbage("manifest.json", b"{"), "cannot be read"),
    "facts that are no JSON": (garbage("release.json", b"\xff\xfe"), "cannot be read"),
    "facts nested without end": (garbage("release.json", b"[" * 100_000), "cannot be read"),
    "a schema that is no TOML": (garbage("schema.toml", b"= ="), "cannot be used"),
    "a model that is no file of ours": (garbage("model.npz", b"PK\x03\x04junk"), "cannot be used"),
    "an empty model": (garbage("model.npz", b""), "cannot be used"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_folder_is_refused_in_one_line(released: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "out"
    shutil.copytree(released, folder)
    assert read_release(folder).private
    change, words = CHANGES[name]
    change(folder)
    with pytest.raises(ReleaseError, match=words):
        read_release(folder)
    for command in (("answer", folder, "sex"), ("sample", folder), ("report", folder)):
        done = run(*command)
        assert done.exit_code == 2
        assert "Traceback" not in done.output
        assert len(done.stderr.strip().splitlines()) == 1
