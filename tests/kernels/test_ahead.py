"""Kernels compiled ahead: what is said, where they are kept, and that nothing is compiled twice."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from consilience.cli import ahead
from consilience.cli.output import COMPILING, Output
from consilience.kernels import counting
from consilience.kernels.compiling import tell


def test_a_second_time_nothing_is_compiled(tmp_path: Path) -> None:
    said = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "consilience.kernels", "counts"],
            env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}, check=True, text=True, capture_output=True,
        )  # fmt: skip
        said.append(done.stdout.splitlines())
    assert "consilience.kernels.counting._count first" in said[0][0]
    assert said[1][0] == "counts: 0 kernels compiled"
    assert f"kept in {tmp_path}" in said[1][1]
    assert list(tmp_path.rglob("*.nbi"))


@pytest.mark.parametrize(
    ("kept", "given", "words"),
    [
        (Path(counting.__file__).parent / "__pycache__", None, "__pycache__"),
        (Path("/home/u/.cache/numba/k"), None, "cannot be written to; set NUMBA_CACHE_DIR"),
        (Path("/cache/k"), "/cache", "/cache/k (NUMBA_CACHE_DIR)"),
    ],
)
def test_where_kernels_are_kept_is_said(
    kept: Path, given: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    if given:
        monkeypatch.setenv("NUMBA_CACHE_DIR", given)
    stats = SimpleNamespace(cache_path=str(kept))
    monkeypatch.setattr(counting, "_count", SimpleNamespace(stats=stats))
    assert ahead.place().endswith(words) or words in ahead.place()


def test_the_bar_says_that_it_compiles() -> None:
    with Output().working("counting") as report:
        bar = report.__self__  # pyright: ignore[reportFunctionMemberAccess]
        tell("outer", True)
        tell("inner", True)
        tell("inner", False)
        assert bar.bar.tasks[0].description == COMPILING
        tell("outer", False)
        assert bar.bar.tasks[0].description == "counting"
