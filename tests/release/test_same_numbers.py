"""A seeded release is the same, byte for byte and times aside, with kernels just compiled or cached, on one thread or two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consilience.data import POPULATION_SCHEMA, population_table
from consilience.data.schema_file import format_schema

pyarrow = pytest.importorskip("pyarrow")
TIMES = ("created", "seconds")
"""Keys of what is written that are allowed to differ."""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from pyarrow import csv

    place = tmp_path_factory.mktemp("people")
    columns = population_table(2000, np.random.default_rng(0))
    arrays = {name: pyarrow.array(values, from_pandas=True) for name, values in columns.items()}
    csv.write_csv(pyarrow.table(arrays), place / "people.csv")
    (place / "people.toml").write_text(format_schema(POPULATION_SCHEMA), encoding="utf-8")
    return place


def released(place: Path, out: str, cache: Path, threads: int, *words: str) -> dict[str, Any]:
    """The files of a release made in a process of its own."""
    command = [
        *(sys.executable, "-c", "from consilience.cli import main; main()"),
        *("release", "people.csv", "--schema", "people.toml"),
        *("--epsilon", "1", "--delta", "1e-6", "--neighbours", "replace-one", "--seed", "7"),
        *("--out", out, "--quiet", *words),
    ]
    machine = {"NUMBA_CACHE_DIR": str(cache), "NUMBA_NUM_THREADS": str(threads)}
    done = subprocess.run(
        command, cwd=place, env=os.environ | machine, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    folder = place / out
    return {
        str(path.relative_to(folder)): content(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def content(path: Path) -> Any:
    """What must be the same of a file: its bytes, without the times that a description holds."""
    if path.name == "manifest.json":  # digests of the files, which are compared themselves
        return sorted(json.loads(path.read_text())["files"])
    if path.suffix == ".json":
        return timeless(json.loads(path.read_text()))
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            found = {name: arrays[name] for name in arrays.files}
        described = timeless(json.loads(found.pop("consilience").tobytes()))
        return described, {n: (a.dtype.str, a.tobytes()) for n, a in found.items()}
    return path.read_bytes()


def timeless(described: Any) -> Any:
    if isinstance(described, dict):
        return {k: timeless(v) for k, v in described.items() if k not in TIMES}
    return [timeless(v) for v in described] if isinstance(described, list) else described


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        (
            "--workload",
            "3",
            "--mechanism",
            "gaussian",
        ),  # enough cells for two threads, and bootstrapped errors
        ("--workload", "2", "--mechanism", "mwem", "-o", "rounds=6"),
        ("--workload", "age,sex;sex,income", "--mechanism", "hdmm", "--consistency", "global"),
        ("--workload", "2", "--mechanism", "auto"),  # latent classes, whose prox is entropic
        ("--workload", "2", "--mechanism", "gaussian", "--fit", "shrunk"),
    ],
    ids=["gaussian", "mwem", "hdmm", "auto", "shrunk"],
)
def test_a_seeded_release_has_the_same_bytes(
    table: Path, tmp_path: Path, words: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    name, cache = request.node.callspec.id, tmp_path / "cache"
    cold = released(table, f"{name}-cold", cache, 2, *words)
    assert any(cache.rglob("*.nbi")), "kernels were compiled in this process"
    warm = released(table, f"{name}-warm", cache, 2, *words)
    alone = released(table, f"{name}-alone", cache, 1, *words)
    assert {f for f in cold if cold[f] != warm[f]} == set(), "cold and warm"
    assert {f for f in cold if cold[f] != alone[f]} == set(), "two threads and one"
