"""consilience report on a release folder that the commands themselves made."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from consilience.cli import main
from consilience.privacy import Neighbours
from consilience.release import read_release
from consilience.report.promise import promise_of, standard_errors
from consilience.report.tables import published_tables

SCHEMA = """name = "people"

[columns.sex]
type = "categorical"
labels = ["f", "m"]

[columns.work]
type = "categorical"
labels = ["none", "part", "full"]

[columns.age]
type = "integer"
edges = [0, 20, 40, 60, 100]
"""


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(words))
    return int(end.value.code or 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("release")
    rng = np.random.default_rng(0)
    words, numbers = (["f", "m"], ["none", "part", "full"]), rng.integers(0, 99, 900)
    rows = zip(*(rng.choice(w, 900) for w in words), numbers, strict=True)
    (place / "people.csv").write_text(
        "sex,work,age\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows)
    )
    (place / "people.toml").write_text(SCHEMA)
    out = place / "release"
    code = run(
        "release", str(place / "people.csv"), "--schema", str(place / "people.toml"), "--epsilon", "1", "--delta", "1e-6",
        "--workload", "2", "--neighbours", "replace-one", "--ledger", str(place / "x.ledger"), "--out", str(out), "--quiet",
    )  # fmt: skip
    assert code == 0
    return out


def test_the_command_writes_a_page_into_the_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("report", str(folder), "--rows", "300", "--json", "--title", "Nine hundred") == 0
    said = json.loads(capsys.readouterr().out)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert said["bytes"] == len(text.encode())
    for words in (
        "Nine hundred",
        "epsilon 1",
        "All that the ledger of this table has seen",
        "sex × work",
        "40-59",
    ):
        assert words in text
    read_release(folder)  # a report does not disturb the folder's checksums


def test_the_promise_and_the_errors_are_those_of_the_files(folder: Path) -> None:
    published = read_release(folder)
    promise = promise_of(published)
    assert (promise.epsilon, promise.delta, promise.neighbours) == (
        1.0,
        1e-6,
        Neighbours.REPLACE_ONE,
    )
    assert promise.share == pytest.approx(1.0)
    assert promise.ledger is not None
    known = standard_errors(published)
    tables = {t.clique: t for t in published_tables(published.model, errors=known)}
    for entry in published.facts["tables"]:
        clique = tuple(entry["attributes"])
        found = pyarrow.parquet.read_table(published.path / f"{entry['file']}.parquet").to_pydict()
        table = tables[clique]
        assert table.how == "published with the table"
        assert found["stderr"] == known[clique].stderr.reshape(-1).tolist()
        for name, values in (("count", table.counts), ("low", table.low), ("high", table.high)):
            assert found[name] == values.reshape(-1).tolist()


def test_a_folder_that_is_none_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("report", str(tmp_path / "nowhere")) == 2
    assert "made by release" in capsys.readouterr().err


def test_plan_and_compare_draw_pictures(folder: Path, tmp_path: Path) -> None:
    schema = str(folder.parent / "people.toml")
    words = ("plan", "--schema", schema, "--epsilon", "1", "--delta", "1e-6", "--workload", "2", "--rows", "900")  # fmt: skip
    assert run(*words, "--quiet", "--picture", str(tmp_path / "plan.svg")) == 0
    assert "share of the cost, %" in (tmp_path / "plan.svg").read_text(encoding="utf-8")
    drawn = tmp_path / "compare.svg"
    assert (
        run("compare", str(folder), "--methods", "noisy,local", "--quiet", "--picture", str(drawn))
        == 0
    )
    assert "validated RMSE, counts" in drawn.read_text(encoding="utf-8")


@pytest.mark.parametrize("mechanism", ["fem", "dual-query"])
def test_a_game_has_a_report_without_intervals(
    folder: Path, tmp_path: Path, mechanism: str, capsys
) -> None:
    """Choices of cells have no standard errors; the page says so and has everything else."""
    place = folder.parent
    made = tmp_path / "game"
    words = [str(place / "people.csv"), "--schema", str(place / "people.toml"), "--workload", "2"]
    words += ["--epsilon", "2", "--delta", "1e-6", "--neighbours", "replace-one", "-o", "rounds=3"]
    assert run("release", *words, "--mechanism", mechanism, "--out", str(made), "-q") == 0
    assert run("report", str(made), "--rows", "100") == 0
    text = (made / "report.html").read_text(encoding="utf-8")
    assert "no noisy counts" in text
    assert '"r":null' in text
    assert "NaN" not in text.partition('id="themes"')[2].partition("<script>")[0]
