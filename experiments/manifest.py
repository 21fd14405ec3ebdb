"""A manifest beside each CSV: what made its rows, where, and at what cost."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import pathlib
import platform
import subprocess
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ("consilience", "numpy", "scipy", "numba", "opendp")


@dataclass(frozen=True)
class Cost:
    """What a run took: seconds on the clock and of processor time, the largest resident size, and how it ended."""

    seconds: float
    cpu_seconds: float
    peak_mb: float
    exit_code: int


def write_manifest(
    rows: pathlib.Path, command: list[str], seeds: str, cost: Cost | None
) -> pathlib.Path:
    """rows.csv gets rows.manifest.json. cost None: the rows were made by hand or in several runs, so it is not known."""
    path = rows.with_suffix(".manifest.json")
    lines = rows.read_text().splitlines() if rows.exists() else []
    found = {
        "rows": max(len(lines) - 1, 0),
        "sha256": _hash(rows),
        "command": " ".join(command),
        "seeds": seeds,
        "written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "revision": revision(),
        "packages": {p: v for p in PACKAGES if (v := _version(p))},
        "machine": machine(),
        "last_run": None if cost is None else asdict(cost),
    }
    path.write_text(json.dumps(found, indent=1) + "\n")
    return path


def described(rows: pathlib.Path) -> bool:
    """Whether the manifest speaks of the rows as they are now."""
    path = rows.with_suffix(".manifest.json")
    return path.exists() and json.loads(path.read_text())["sha256"] == _hash(rows)


def _hash(rows: pathlib.Path) -> str:
    text = "\n".join(rows.read_text().splitlines()) if rows.exists() else ""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def revision() -> str:
    """The commit, and whether the tree differed from it."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "experiments")
    except (OSError, subprocess.CalledProcessError):
        return "unknown (not a git checkout)"
    return commit + (" with changes" if changed else "")


def machine() -> dict[str, object]:
    return {
        "system": platform.platform(terse=True),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, text=True, capture_output=True)
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
