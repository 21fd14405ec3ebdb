"""Files that consilience 0.1.0 wrote still open, and say what they said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import consilience as cs
from consilience.cli import main
from consilience.release import read_release
from golden.problems import UNMEASURED, plain, spread_of, told
from golden.test_golden import difference

V0_1 = Path(__file__).parent / "v0_1"
EXPECTED = json.loads((V0_1 / "expected.json").read_text(encoding="utf-8"))


def run(*words: object) -> str:
    done = CliRunner().invoke(main, [str(w) for w in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def check_rows(expected: dict[str, Any], found: dict[str, Any], unasked: bool = False) -> None:
    assert found["trust"] == expected["trust"]
    assert len(found["rows"]) == len(expected["rows"])
    for now, before in zip(found["rows"], expected["rows"], strict=True):
        numbers = {"count", "stderr", "low", "high"}
        assert {k: v for k, v in now.items() if k not in numbers} == {
            k: v for k, v in before.items() if k not in numbers
        }
        # A folder keeps its backbone, which is found again from its potentials to about 1e-8.
        close = 1e-9 if found["trust"] == "measured" else 1e-7
        assert now["count"] == pytest.approx(before["count"], rel=close, abs=close)
        if found["trust"] != "measured":  # in 0.1 inferred answers had no error unless asked for
            assert (now["stderr"] is None) == unasked
        else:  # refits are kept in half precision now
            same = before["stderr"] and pytest.approx(before["stderr"], rel=1e-3, abs=1e-3)
            assert now["stderr"] == same


@pytest.mark.parametrize("name", EXPECTED["models"])
def test_a_model_file_opens_and_answers_the_same(name: str) -> None:
    model, kept = cs.load(V0_1 / f"{name}.npz"), EXPECTED["models"][name]
    values = told(model, [*model.cliques, *UNMEASURED[:3]])
    values |= spread_of(
        model.uncertainty(model.cliques[0], method="bootstrap", replicates=3, rng=2)
    )
    values["rows"] = model.sample(20, rng=3).to_array()
    found = {key: plain(value) for key, value in values.items()}
    assert set(found) == set(kept)
    apart = [f"{key}: {why}" for key in kept if (why := difference(key, kept[key], found[key]))]
    assert not apart, "\n".join(apart)


def test_a_release_folder_opens() -> None:
    published = read_release(V0_1 / "release")
    assert published.private
    assert published.model.cliques == (("sex", "age"), ("age", "member"), ("member", "region"))
    assert published.facts["versions"]["consilience"] == "0.1.0"


@pytest.mark.parametrize("kept", EXPECTED["release"], ids=lambda k: " ".join(k["asked"]))
def test_a_release_folder_answers_the_same(kept: dict[str, Any]) -> None:
    words = [w for w in kept["asked"] if w not in ("--replicates", "4")]  # an option of 0.1
    found = json.loads(run("answer", V0_1 / "release", *words, "--json"))
    check_rows(kept, found, unasked="none" in words)


def test_a_release_folder_gives_rows_and_a_report(tmp_path: Path) -> None:
    copy = shutil.copytree(V0_1 / "release", tmp_path / "release")
    run("sample", copy, "--rows", 30, "--out", tmp_path / "rows.csv", "-q")
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 31
    run("report", copy, "-q")
    assert (copy / "report.html").exists()


@pytest.mark.parametrize("name", EXPECTED["interrupted"])
def test_an_interrupted_release_is_finished(tmp_path: Path, name: str) -> None:
    shutil.copytree(V0_1 / f"{name}.partial", tmp_path / f"{name}.partial")
    run("resume", tmp_path / f"{name}.partial", "-q")
    assert [p.name for p in tmp_path.iterdir()] == [f"{name}-out"]
    for kept in EXPECTED["interrupted"][name]:
        words = (",".join(kept["asked"]), "--errors", "none", "--json")
        answered = json.loads(run("answer", tmp_path / f"{name}-out", *words))
        check_rows(kept, answered, unasked=True)
