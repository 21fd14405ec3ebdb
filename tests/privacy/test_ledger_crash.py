"""kill -9 in the midst of releases, and processes racing for the last of a budget.

Every release writes a line once its noise is drawn. Whatever happens, the ledger must hold at least
as many entries as there are lines, must not pass its total, and must still open. The same tests run
on planted faults (paying after the release; looking before spending without a lock) and must see them.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from consilience.privacy import Budget, Ledger

from .crash_worker import COST

WORKER = [sys.executable, "-m", "tests.privacy.crash_worker"]
ROOT = Path(__file__).parents[2]


class Worker:
    def __init__(self):
        self.process = subprocess.Popen(
            WORKER, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *words) -> str:
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def worker():
    worker = Worker()
    yield worker
    worker.close()


def budget(releases: int) -> Budget:
    return Budget(epsilon=COST.epsilon.value * releases, neighbours="replace-one")


def released(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def kills(worker, folder, mode: str, times: int) -> tuple[int, int, int]:
    """(entries, releases, most releases beyond the entries) over `times` kills, checked at each."""
    entries = releases = 0
    shortfall = -times
    for i in range(times):
        path, log = folder / f"{i // 10}.ledger", folder / f"{i // 10}.log"
        if (
            not path.exists()
        ):  # a new ledger now and then; most kills hit one that was killed before
            Ledger.create(path, table="people", total=budget(10_000))
        lines = released(log)
        pid = int(worker.ask("kill", mode, path, log))
        if i % 2:  # half of the kills come at a random moment after a release, half at any moment
            while released(log) == lines:
                time.sleep(0.001)
        time.sleep(random.uniform(0.0, 0.03))
        os.kill(pid, signal.SIGKILL)
        worker.ask("wait")
        account = Ledger(path, table="people").read()
        lines = released(log)
        shortfall = max(shortfall, lines - len(account.entries))
        assert account.total.admits(account.spent)
        if (i + 1) % 10 == 0 or i + 1 == times:
            entries, releases = entries + len(account.entries), releases + lines
    return entries, releases, shortfall


@pytest.mark.parametrize("times", [25, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_at_random_moments(worker, tmp_path, record_property, times):
    entries, releases, shortfall = kills(worker, tmp_path, "right", times)
    record_property("entries", entries)
    record_property("releases", releases)
    assert shortfall <= 0  # never under-counted
    assert releases >= times // 2
    assert entries - releases <= times  # at most the reservation of each kill is wasted


def test_paying_late_would_be_seen(worker, tmp_path):
    assert kills(worker, tmp_path, "late", 40)[2] > 0


def races(worker, folder, mode: str, times: int) -> Iterator[int]:
    """Successes of two processes for one last release, each time on a ledger with one to spare."""
    for i in range(times):
        path = folder / f"{i}.ledger"
        ledger = Ledger.create(path, table="people", total=budget(2))
        ledger.reserve(COST, "before")
        wins = int(worker.ask("race", mode, path, 2))
        account = ledger.read()
        assert len(account.entries) == 1 + wins
        assert account.total.admits(account.spent) == (wins <= 1)
        yield wins


@pytest.mark.parametrize("times", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_two_processes_race_for_the_last_of_the_budget(worker, tmp_path, times):
    assert set(races(worker, tmp_path, "right", times)) == {1}


@pytest.mark.slow
def test_looking_before_spending_would_be_seen(worker, tmp_path):
    assert any(wins == 2 for wins in races(worker, tmp_path, "torn", 100))
