"""The frame of the experiments: rows that survive interruptions, manifests, the catalogue, the runner."""

import json
import subprocess
import sys
from pathlib import Path

import catalogue
import common
import manifest
import numpy as np
import pytest
import reference

ROOT = Path(__file__).parents[2]


def test_rows_are_resumed(tmp_path) -> None:
    path = tmp_path / "deep" / "rows.csv"
    with common.Rows(path, ["k", "epsilon", "value"], ["k", "epsilon"]) as rows:
        rows.add(k=3, epsilon=0.1, value=np.float64(1 / 3))
        assert (3, 0.1) in rows
    with common.Rows(path, ["k", "epsilon", "value"], ["k", "epsilon"]) as rows:
        assert (3, 0.1) in rows
        assert (3, 0.2) not in rows
        rows.add(k=3, epsilon=0.2, value="")
    assert [r["value"] for r in common.read_rows(path)] == ["0.333333", ""]


def test_rows_of_another_experiment_are_not_touched(tmp_path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(SystemExit, match="must have the columns k, value, got a, b; move it away"):
        common.Rows(path, ["k", "value"], ["k"])
    assert path.read_text() == "a,b\n1,2\n"


def test_means_leave_out_what_is_not_there() -> None:
    rows = [{"k": "1", "x": "2"}, {"k": "1", "x": "4"}, {"k": "2", "x": ""}, {"k": "3", "x": "5"}]
    found = common.means(rows, ["k"], "x")
    assert found["1",] == (3.0, 1.0, 2)
    assert ("2",) not in found
    assert found["3",][2] == 1
    assert np.isnan(found["3",][1])


def test_data_that_is_not_there_is_said(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CONSILIENCE_DATA", str(tmp_path))
    with pytest.raises(SystemExit, match="set CONSILIENCE_DATA"):
        common.load("adult")


def test_a_manifest_says_what_made_the_rows(tmp_path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("a\n1\n2\n")
    cost = manifest.Cost(1.5, 1.0, 80.0, 0)
    path = manifest.write_manifest(rows, ["python", "x.py"], "0 to 4", cost)
    found = json.loads(path.read_text())
    assert path.name == "rows.manifest.json"
    assert (found["rows"], found["command"], found["seeds"]) == (2, "python x.py", "0 to 4")
    assert found["last_run"] == {
        "seconds": 1.5,
        "cpu_seconds": 1.0,
        "peak_mb": 80.0,
        "exit_code": 0,
    }
    assert found["packages"]["consilience"]
    assert found["machine"]["cores"] >= 1
    before = found["sha256"]
    rows.write_text("a\n1\n3\n")
    assert json.loads(manifest.write_manifest(rows, [], "", None).read_text())["sha256"] != before


@pytest.mark.parametrize("experiment", catalogue.EXPERIMENTS, ids=lambda e: e.name)
def test_every_experiment_of_the_catalogue_is_there_and_explained(experiment) -> None:
    script = ROOT / "experiments" / experiment.script
    assert script.exists()
    assert script.read_text().startswith('"""')
    pages = [(ROOT / "docs" / page).read_text() for page in ("reproduction.md", "comparison.md")]
    assert any(experiment.script in page for page in pages)


def test_every_figure_of_the_paper_is_in_the_catalogue() -> None:
    words = " ".join(e.reproduces for e in catalogue.EXPERIMENTS)
    for figure in ("2a", "2b", "2c", "3a", "3b", "3c", "table", "without noise", "GReM"):
        assert figure in words


def test_the_runner_lists_and_refuses() -> None:
    def call(*words: str) -> subprocess.CompletedProcess[str]:
        script = str(ROOT / "experiments" / "run.py")
        return subprocess.run([sys.executable, script, *words], text=True, capture_output=True)

    listed = call("--list")
    assert listed.returncode == 0
    assert all(e.name in listed.stdout for e in catalogue.EXPERIMENTS)
    wrong = call("--figure", "9z")
    assert wrong.returncode == 2
    assert "noise-free" in wrong.stderr  # what there is, is said


def test_reference_numbers_are_the_table_of_the_experiment() -> None:
    """adult_table.py has the same numbers: one of the two would be wrong if they differed."""
    import adult_table

    for column, cells in adult_table.PAPER.items():
        assert [tuple(c) for c in reference.TABLE[column].values()] == [tuple(c) for c in cells]


def test_results_and_figures_are_small() -> None:
    for folder in (common.RESULTS, common.FIGURES):
        assert sum(p.stat().st_size for p in folder.iterdir()) < 2e6
