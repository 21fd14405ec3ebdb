"""The demo says what it promises, shows what was wrong and what is left of it, and fits a terminal."""

import re

import pytest

from cli.conftest import run
from consilience.cli import demo
from consilience.cli.demo import PEOPLE
from consilience.data import POPULATION_SCHEMA
from consilience.release import read_release


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "here"


@pytest.fixture(scope="module")
def shown(folder) -> str:
    """What one run prints."""
    done = run("demo", "--out", folder)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.slow
def test_it_does_the_whole_job(shown: str, folder) -> None:
    flat = " ".join(shown.replace("│", " ").split())
    assert f"{PEOPLE:,} people" in flat
    for command in ("schema", "plan", "release", "sample", "report"):
        assert f"$ consilience {command} " in flat
    assert "promise epsilon 1, delta 1e-06, replace-one neighbours" in flat
    assert "shown only because these people are invented" in flat
    assert "The result is private" in flat
    assert read_release(folder / "release").private
    assert len((folder / "rows.csv").read_text().splitlines()) == 1001


def test_it_ends_with_three_answers_and_the_place(shown: str, folder) -> None:
    assert len(re.findall(r"[\d,]+ ± [\d,]+", shown)) == 3
    assert str(folder / "release") in "".join(shown.split())
    assert str(folder / "release" / "report.html") in "".join(shown.split())
    assert "<html" in (folder / "release" / "report.html").read_text(encoding="utf-8")


def test_it_shows_one_pair_whole(shown: str) -> None:
    for attribute in demo.SHOWN:
        for label in POPULATION_SCHEMA[attribute].labels:
            assert label in shown
    assert "…" not in shown, "nothing is cut off"


def test_it_shows_what_reconstruction_mends(shown: str) -> None:
    def row(label: str) -> list[float]:
        line = [line for line in shown.splitlines() if line.strip().startswith(label)][-1]
        return [float(x.replace(",", "")) for x in re.findall(r"[\d.,e+-]+", line)[-2:]]

    noisy, ours = row("largest contradiction")
    assert noisy > 100
    assert ours < 1e-6
    noisy, ours = row("negative counts")
    assert noisy > 50
    assert ours == 0
    noisy, ours = row("mean total variation")
    assert ours < 0.85 * noisy


def test_it_fits_a_terminal_and_shows_no_bars_in_a_file(shown: str) -> None:
    assert max(len(line) for line in shown.splitlines() if "/release" not in line) <= 80
    assert "\x1b" not in shown
