"""Cold start: processor seconds that a first release, answer and sample spend compiling, and of importing and asking for help.

A job runs in a process with an empty kernel cache and again with the cache that the first run left; the difference is compiling.
Later jobs start with what the earlier ones compiled. `python benchmarks/run.py cold`.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rows import Row

ROWS = 20_000
PREPARE = """
import sys
from pathlib import Path
import numpy as np, pyarrow, pyarrow.csv
from consilience.data import POPULATION_SCHEMA, population_table
from consilience.data.schema_file import format_schema
table = population_table(int(sys.argv[1]), np.random.default_rng(2021))
arrays = {name: pyarrow.array(column, from_pandas=True) for name, column in table.items()}
pyarrow.csv.write_csv(pyarrow.table(arrays), "people.csv")
Path("people.toml").write_text(format_schema(POPULATION_SCHEMA))
"""
COMMAND = "from consilience_start import main; main()"
RELEASE = (
    "release people.csv --schema people.toml --epsilon 1 --delta 1e-6 --neighbours replace-one "
    "--mechanism {0} --ledger {0}{1}.ledger --out {0}{1}"
)
JOBS = {
    "release": (RELEASE.format("gaussian", "{0}"), 12),
    "answer": ("answer gaussian0 age,income,region", 6),
    "sample": ("sample gaussian0 --rows 2000 --out rows{0}.csv", 6),
    "MWEM release": (RELEASE.format("mwem", "{0}"), 12),
    "AIM release": (RELEASE.format("aim", "{0}"), 12),
}


def rows(full: bool = False) -> Iterator[Row]:
    with TemporaryDirectory() as folder:
        for name, code, bar in (
            ("import consilience", "import consilience", 0.6),
            ("consilience --help", COMMAND, 0.5),
        ):
            words = ("--help",) if code == COMMAND else ()
            spent = np.median([_cpu(folder, code, *words) for _ in range(3)])
            yield Row(f"cold: {name}", f"{spent:.2f} CPU-s", "", None, f"bar: {bar} CPU-s")
        _cpu(folder, PREPARE, str(ROWS))
        for name, (words, bar) in JOBS.items():
            if name.startswith("AIM") and not full:
                continue
            cold, warm = (_cpu(folder, COMMAND, *words.format(k).split()) for k in (0, 1))
            yield Row(
                f"cold: first {name}, compiling",
                f"{cold - warm:.1f} CPU-s",
                f"warm {warm:.1f} CPU-s",
                None,
                f"bar: {bar} CPU-s more than what ran before it",
            )


def _cpu(folder: str, code: str, *words: str) -> float:
    """Processor seconds of a process in that folder, whose kernel cache is in it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    paths = [str(Path(p).resolve()) for p in sys.path if p]
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(Path(folder) / "cache"), "PYTHONPATH": os.pathsep.join(paths)
    }  # fmt: skip
    subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
