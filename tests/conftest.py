"""What was not tried and how to get it, in one line at the end; and that collecting tests fits nothing."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

WANTED = {
    "data": "the paper's data (set CONSILIENCE_DATA to its folder)",
    "chromium": "Chromium (Debian: apt-get install chromium)",
    "java": "Java (Debian: apt-get install default-jre-headless)",
    "postgresql": "PostgreSQL (Debian: apt-get install postgresql)",
    "ibis": "Ibis (make engines)",
    "pyspark": "PySpark (make engines)",
    "mbi 1.1": "mbi 1.1, beside OpenDP (make adapters)",
    "mbi 2.0": "mbi 2.0 (make bench)",
    "mbi": "mbi (make bench)",
    "jax": "jax (make bench)",
    "threads": "a second core",
}
"""A word of the reason for a skip, lower case, and what would have to be there."""
COMPILED = pytest.StashKey[list[str]]()


def wanted(reason: str) -> str:
    """What a skipped test lacks."""
    return next((what for word, what in WANTED.items() if word in reason.lower()), reason)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Remember the kernels that ran while modules were imported: a test file that fits models then is slow to collect."""
    session.config.stash[COMPILED] = [
        f"{name}.{word}"
        for name, module in list(sys.modules.items())
        if name.startswith("consilience.kernels")
        for word, kernel in vars(module).items()
        if getattr(kernel, "signatures", None) and getattr(kernel, "__module__", "") == name
    ]


@pytest.fixture(scope="session")
def run_while_collecting(request: pytest.FixtureRequest) -> list[str]:
    return request.config.stash[COMPILED]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = (r.longrepr[2] for r in terminalreporter.stats.get("skipped", []))
    lacking = Counter(wanted(str(reason).removeprefix("Skipped: ")) for reason in reasons)
    if lacking:
        told = "; ".join(f"{n} for want of {what}" for what, n in sorted(lacking.items()))
        terminalreporter.write_line(f"not tried here: {told}")
