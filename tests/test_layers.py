"""What the import graph promises beyond import-linter: light start-up, no hidden imports, public names that hold."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import consilience

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "src" / "consilience").rglob("*.py"))
HEAVY = (
    "pandas",
    "polars",
    "jax",
    "opendp",
    "dp_accounting",
    "duckdb",
    "pyarrow",
    "ibis",
    "rich",
    "consilience.privacy",
)
ONLY_IN = {
    "numba": "kernels",
    "llvmlite": "kernels",
    "opendp": "privacy",
    "dp_accounting": "privacy",
}
LONGEST_MODULE = 450


def name(path: Path) -> str:
    return str(path.relative_to(ROOT / "src"))


def imported(nodes: list[ast.stmt] | ast.AST) -> set[str]:
    """Every module named by an import anywhere below."""
    tree = ast.Module(nodes, []) if isinstance(nodes, list) else nodes
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_our_own_modules_are_imported_at_the_top(path: Path) -> None:
    """An import inside a function would hide a cycle from the reader."""
    inside = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside |= imported(node.body)
    assert {m for m in inside if m.split(".")[0] == "consilience"} == set()


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_heavy_tools_stay_in_their_layer(path: Path) -> None:
    layer = path.relative_to(ROOT / "src" / "consilience").parts[0]
    used = {m.split(".")[0] for m in imported(ast.parse(path.read_text(encoding="utf-8")))}
    assert {tool for tool in used & set(ONLY_IN) if ONLY_IN[tool] != layer} == set()


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_modules_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_MODULE


def test_every_folder_is_in_the_layer_contract() -> None:
    """import-linter says so too; here the words of the failure name the file to edit."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = config["tool"]["importlinter"]["contracts"][0]
    listed = {part.strip(" ()") for layer in contract["layers"] for part in layer.split("|")}
    present = {
        p.stem for p in (ROOT / "src" / "consilience").iterdir() if p.suffix == ".py" or p.is_dir()
    }
    assert present - {"__init__", "__pycache__"} <= listed, "add it to the layers in pyproject.toml"


def test_importing_the_package_loads_nothing_heavy() -> None:
    look = f"import consilience, sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert sorted(consilience.__all__) == consilience.__all__ == dir(consilience)
    for public in consilience.__all__:
        assert getattr(consilience, public) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'consilience' has no attribute 'reconcile'"):
        consilience.reconcile  # type: ignore[attr-defined]


def test_collecting_tests_runs_no_kernel(run_while_collecting: list[str]) -> None:
    """A model that several tests share is a session fixture: fitted when it is first used, never on import."""
    assert run_while_collecting == []
