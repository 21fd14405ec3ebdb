"""The demo prints a readable table of true and noisy counts."""

import pytest

from consilience import demo
from consilience.data import POPULATION_SCHEMA


def test_the_demo_prints_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    demo.main()
    shown = capsys.readouterr().out
    assert f"{demo.PEOPLE:,} people" in shown
    assert "91 two-way tables counted" in shown
    for attribute in demo.SHOWN:
        for label in POPULATION_SCHEMA[attribute].labels:
            assert label in shown
    assert max(len(line) for line in shown.splitlines()) <= 80
