"""A folder that somebody changed, or that was made to mislead, is refused in one line."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import consilience as cs
from cli.conftest import released, run
from consilience.errors import ModelFileError, ReleaseError
from consilience.release import read_release
from consilience.release.labelled import as_text, from_text

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


# -- models and tables ---------------------------------------------------------------------------------


def test_a_model_file_takes_no_more_memory_than_disk(released: Path, tmp_path: Path) -> None:
    """A compressed archive, and one whose arrays say that they are huge, are refused before anything is read."""
    with zipfile.ZipFile(released / "model.npz") as archive:
        entries = {n: archive.read(n) for n in archive.namelist()}
    packed = tmp_path / "packed.npz"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
        archive.writestr("zeros.npy", bytes(50_000_000))
    assert packed.stat().st_size < 1_000_000
    with pytest.raises(ModelFileError, match="larger than the file"):
        cs.load(packed)
    longer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        longer, {"descr": "<f8", "fortran_order": False, "shape": (10**11,)}
    )
    lying = tmp_path / "lying.npz"
    with zipfile.ZipFile(lying, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
        archive.writestr("more.npy", longer.getvalue())
    with pytest.raises(ModelFileError, match="not as long as it says"):
        cs.load(lying)


LABELS = ["=1+1", "@SUM(A1)", "+x", "-x", "-5", "+5", "'quoted", "''", "'=", "plain", "a=b", "\tx"]


@pytest.mark.parametrize("label", LABELS)
def test_no_cell_of_a_csv_file_is_a_formula(label: str) -> None:
    cell = as_text(label)
    assert from_text(cell) == label
    assert not cell.startswith(("=", "@", "\t"))
    assert not (cell.startswith(("+", "-")) and not cell[1:].isdigit())


def test_labels_like_formulas_go_out_and_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    labels = ["=1+1", "@x", "-a", "'b", "c"]
    Path("t.csv").write_text("kind\n" + "\n".join(labels * 30) + "\n")
    Path("t.toml").write_text(
        f'name = "t"\n[columns.kind]\ntype = "categorical"\nlabels = {json.dumps(labels)}\n'
    )
    words = (
        "--schema",
        "t.toml",
        "--epsilon",
        "5",
        "--delta",
        "1e-6",
        "--neighbours",
        "replace-one",
        "--workload",
        "1",
    )
    assert run("release", "t.csv", *words, "--out", "out").exit_code == 0
    text = next(Path("out/tables").glob("*.csv")).read_text()
    assert "'=1+1" in text
    assert "\n=1+1" not in text
    again = run("reconstruct", "out/measurements", "--schema", "out/schema.toml", "--out", "again")
    assert again.exit_code == 0, again.output
    np.testing.assert_allclose(
        read_release("again").model.marginal("kind"),
        read_release("out").model.marginal("kind"),
        rtol=0.2,
        atol=5,
    )
