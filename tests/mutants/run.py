"""Plant each fault in a copy of the source and run the test that must notice it: `make mutants`.

    python tests/mutants/run.py [WORD ...]     only faults whose name holds one of the words

Exits with 1 if a fault is not noticed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from mutants.faults import FAULTS, Fault  # noqa: E402 (the path is set above)


def noticed(fault: Fault, copy: Path) -> bool:
    """Whether the test fails, for another reason than that it cannot be run."""
    file = copy / "consilience" / fault.file
    text = file.read_text(encoding="utf-8")
    assert text.count(fault.before) == 1, f"{fault.file}: {fault.before!r} must be there once"
    file.write_text(text.replace(fault.before, fault.after), encoding="utf-8")
    paths, _, words = fault.test.partition(" -k ")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += [f"tests/{path}" for path in paths.split()] + (["-k", words] if words else [])
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
        )
    finally:
        file.write_text(text, encoding="utf-8")
    ended = done.returncode == 2 and "KeyboardInterrupt" in done.stdout  # raised past the test
    if done.returncode not in (0, 1) and not ended:  # pytest: all passed, some failed
        raise SystemExit(f"{fault.test} cannot be run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode != 0


def main(words: list[str]) -> int:
    chosen = {n: f for n, f in FAULTS.items() if not words or any(w in n for w in words)}
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy)  # with what is compiled of the kernels
        for i, (name, fault) in enumerate(chosen.items(), 1):
            found = noticed(fault, copy)
            print(
                f"{i:3}/{len(chosen)}  {'noticed' if found else 'NOT NOTICED'}  {name}", flush=True
            )
            missed += [] if found else [name]
    print(f"{len(chosen) - len(missed)} of {len(chosen)} planted faults are noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
