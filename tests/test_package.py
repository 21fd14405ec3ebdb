"""What is handed on: a wheel and an sdist that work without the source tree, one version, and a workflow for what we claim."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import consilience
from consilience.cli import main
from consilience.report import charts

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_is_in_one_place() -> None:
    assert version("consilience") == consilience.__version__ == PROJECT["version"]
    files = [ROOT / "CITATION.cff", *ROOT.glob("src/**/*.py"), *ROOT.glob(".github/**/*.yml")]
    stated = re.compile(rf"\b{re.escape(PROJECT['version'])}\b")
    assert [f.name for f in files if stated.search(f.read_text(encoding="utf-8"))] == []
    assert f"## [{PROJECT['version']}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_workflow_tries_every_version_that_we_claim() -> None:
    flow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    job = flow["jobs"]["run"]
    matrix = job["strategy"]["matrix"]
    claimed = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if ":: 3." in c]
    assert matrix["python"] == claimed
    assert PROJECT["requires-python"] == f">={claimed[0]}"
    assert {os.partition("-")[0] for os in matrix["os"]} == {"ubuntu", "macos"}
    assert job["steps"][-1] == {"run": ".ci/run"}


def test_files_for_github_can_be_read() -> None:
    for path in [*(ROOT / ".github").rglob("*.yml"), ROOT / "CITATION.cff"]:
        assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict), path


def test_charts_that_are_not_installed_are_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    charts.bundle.cache_clear()
    schema = tmp_path / "x.toml"
    schema.write_text('name = "x"\n[columns.a]\ntype = "boolean"\n', encoding="utf-8")
    words = [
        "plan",
        "--schema",
        str(schema),
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--workload",
        "1",
        "--rows",
        "900",
        "-q",
    ]
    done = CliRunner().invoke(main, [*words, "--picture", str(tmp_path / "p.svg")])
    assert done.exit_code == 2
    assert "pip install 'consilience[charts]'" in done.stderr
    assert not (tmp_path / "p.svg").exists()


SMOKE = """
import json, sys
import numpy as np
import consilience as cs
from consilience.data import POPULATION_SCHEMA
assert "site-packages" in cs.__file__, cs.__file__
data = cs.population(500, np.random.default_rng(0))
workload = cs.Workload(data.domain, [("age", "sex"), ("sex", "employment")])
budget = cs.Budget(epsilon=1, delta=1e-6, neighbours="replace-one")
cs.release(data, POPULATION_SCHEMA, cs.mechanisms.Gaussian(workload), budget, out="release")
"""


@pytest.mark.slow
def test_the_wheel_works_where_there_is_no_source_tree(tmp_path: Path) -> None:
    """Built from the sdist; installed into a clean environment, which needs the package index."""

    def run(*words: object, ok: int = 0) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        done = subprocess.run(
            [str(w) for w in words], cwd=tmp_path, env=clean, capture_output=True, text=True
        )
        assert done.returncode == ok, f"{words}\n{done.stdout}{done.stderr}"
        return done

    run(sys.executable, "-m", "build", "--outdir", tmp_path / "dist", ROOT)
    (sdist,), (wheel,) = ((tmp_path / "dist").glob(kind) for kind in ("*.tar.gz", "*.whl"))
    assert sdist.stat().st_size < 2**21
    assert wheel.stat().st_size < 2**21
    with tarfile.open(sdist) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    assert {"README.md", "LICENSE", "CITATION.cff", "src/consilience/py.typed"} <= inside
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    source = ROOT / "src"
    wanted = (p for p in source.rglob("*") if p.is_file() and p.suffix in (".py", ".js", ".css", ".html", ".typed"))  # fmt: skip
    assert {p.relative_to(source).as_posix() for p in wanted} <= names
    run(sys.executable, "-m", "venv", "env")
    python, command = tmp_path / "env/bin/python", tmp_path / "env/bin/consilience"
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "requirements.lock", wheel)
    assert PROJECT["version"] in run(command, "--version").stdout
    run(python, "-c", SMOKE)
    told = json.loads(run(command, "answer", "release", "age,sex", "--json").stdout)
    assert len(told["rows"]) == 22
    run(command, "sample", "release", "--rows", "50", "--out", "rows.csv")
    run(command, "explore", "release", "--export", "site")
    assert (tmp_path / "site/index.html").is_file()
    refused = run(command, "report", "release", ok=2)
    assert "pip install 'consilience[charts]'" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
