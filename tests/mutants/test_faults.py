"""The list of planted faults is current: each can be planted, once, and its test is there. `make mutants` plants them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mutants.faults import FAULTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_can_be_planted(name: str) -> None:
    fault = FAULTS[name]
    text = (ROOT / "src" / "consilience" / fault.file).read_text(encoding="utf-8")
    assert text.count(fault.before) == 1
    assert fault.before != fault.after
    for path in fault.test.partition(" -k ")[0].split():
        assert (ROOT / "tests" / path).is_file()


def test_there_are_enough_of_them() -> None:
    assert len(FAULTS) >= 40
