"""The demo says what it promises, shows what was wrong and what is left of it, and fits a terminal."""

import re
from contextlib import redirect_stdout
from io import StringIO

import pytest

from consilience import demo
from consilience.data import POPULATION_SCHEMA


@pytest.fixture(scope="module")
def shown() -> str:
    """What one run prints."""
    out = StringIO()
    with redirect_stdout(out):
        demo.main()
    return out.getvalue()


def test_it_says_what_it_promises(shown: str) -> None:
    flat = " ".join(shown.replace("│", " ").split())
    assert f"{demo.PEOPLE:,} people" in flat
    assert "epsilon = 1, delta = 1e-06, replace-one neighbours" in flat
    assert "from the operating system's entropy" in flat
    assert "1 release, 100.00% of the budget spent" in flat
    assert "shown only because these people are invented" in flat
    assert "The result is private" in flat


def test_it_shows_one_pair_whole(shown: str) -> None:
    for attribute in demo.SHOWN:
        for label in POPULATION_SCHEMA[attribute].labels:
            assert label in shown
    assert "…" not in shown, "nothing is cut off"


def test_it_shows_what_reconstruction_mends(shown: str) -> None:
    def row(label: str) -> list[float]:
        (line,) = [line for line in shown.splitlines() if label in line]
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
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert "\x1b" not in shown
