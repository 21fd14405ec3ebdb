"""What others' mechanisms reach on this machine, each in its own environment and with its own settings, beside ours.

    python experiments/others.py [--data titanic adult acs] [--runs ours-auto mbi-mst ...] [--ways 0 2 3] [--epsilon 1]
                                 [--seeds 100] [--cap 1200] [--folder peers] [--path mbi=DIR:DIR dpsynth=DIR:DIR] [--out rows.csv]
                                 [--quick]

Every run is a process of its own (`others_tools.py`): `<folder>/<tool>/bin/python` must have the tool, from PyPI where it is
there (opendp[mbi]==0.16.0, smartnoise-synth==1.0.8, dpmm==0.1.9); --path adds source folders for a tool that is not, and `mbi=`
must hold mbi's own mechanisms. It ends at --cap CPU-seconds, which is a row that says so; AIM of triples is left out where its
pairs did not end. Figures: mean total variation of the synthetic rows over all pairs and over all triples of columns, whatever
was asked for, and for ours also of the model's own tables (whose making is in no figure but the clock's); seconds by the clock,
which other work shares, and of all processors, and the largest resident size, all with imports and with what JAX compiles
(Numba's kernels are cached). Delta 1e-9; add-remove neighbours per row in all
of them, but for PrivBayes of dpmm, whose selection is priced for replace-one. acs: the codes of `kmarginal.py`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kmarginal
import numpy as np
from common import RESULTS, ROOT, Rows, load

import consilience as cs
from consilience.privacy import Budget

DELTA = 1e-9
KEYS = ["data", "run", "ways", "epsilon", "seed"]
FIELDS = [*KEYS, "pairs", "triples", "pairs_model", "triples_model", "seconds", "cpu_seconds", "peak_mb", "status"]  # fmt: skip
RUNS = {
    "ours-auto": (2, 3), "ours-aim": (2, 3), "ours-gaussian": (2, 3),
    "mbi-mst": (0,), "smartnoise-mst": (0,), "dpmm-mst": (0,), "dpmm-privbayes": (0,), "opendp-mst": (0,),
    "dpsynth-swift": (2, 3), "mbi-aim": (2, 3), "dpsynth-aim": (2, 3), "opendp-aim": (2, 3), "smartnoise-aim": (2, 3),
    "dpmm-aim": (2, 3),
}  # fmt: skip
"""The sizes of table that each can be asked for; 0: it cannot be asked."""


def rows_of(name: str) -> cs.Dataset:
    return kmarginal.Coding().encode(kmarginal.columns()) if name == "acs" else load(name)


def distances(
    truth: np.ndarray, sizes: Sequence[int], other: np.ndarray, ways: int, tables: Any = None
) -> float:
    """Mean total variation over all tables of so many columns; of rows, or of `tables` in their stead."""
    found, start = [], 0
    for clique in itertools.combinations(range(len(sizes)), ways):
        shape = [sizes[i] for i in clique]
        cells = int(np.prod(shape))
        real = np.bincount(np.ravel_multi_index(truth[:, clique].T, shape), minlength=cells)
        if tables is None:
            made = np.bincount(np.ravel_multi_index(other[:, clique].T, shape), minlength=cells)
        else:
            made = tables[start : start + cells]
            start += cells
        found.append(0.5 * np.abs(real / real.sum() - made / made.sum()).sum())
    return float(np.mean(found))


def python_of(tool: str, folder: Path) -> str:
    return sys.executable if tool == "ours" else str(folder / tool / "bin" / "python")


def run(
    data: cs.Dataset, name: str, ways: int, epsilon: float, seed: int, given: argparse.Namespace
) -> dict[str, Any]:
    tool, _, mechanism = name.partition("-")
    budget = Budget(epsilon=epsilon, delta=DELTA, neighbours="add-remove")
    codes, sizes = data.to_array().astype(np.int64), list(data.domain.shape)
    paths = dict(p.split("=", 1) for p in given.path)
    with tempfile.TemporaryDirectory() as place:
        there, back = Path(place) / "in.npz", Path(place) / "out.npz"
        names = [f"a{i}" for i in range(len(sizes))]
        np.savez(there, codes=codes, sizes=sizes, names=names)
        words = [mechanism, ways, epsilon, DELTA, repr(float(budget.capacity.value)), seed, there, back]  # fmt: skip
        script = str(ROOT / "experiments" / "others_tools.py")
        began = time.perf_counter()
        child = subprocess.Popen(
            [python_of(tool, given.folder), "-P", "-W", "ignore", script, tool, *map(str, words)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": paths.get(tool, "")},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (given.cap, given.cap + 5)),
        )
        assert child.stderr is not None
        with child.stderr:
            said = child.stderr.read()
        _, ended, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(ended)
        row: dict[str, Any] = {
            "seconds": time.perf_counter() - began,
            "cpu_seconds": used.ru_utime + used.ru_stime,
            "peak_mb": used.ru_maxrss // 1024,
        }
        if child.returncode == -signal.SIGXCPU:
            return row | {"status": "no end"}
        if child.returncode:
            print(said[-2000:], file=sys.stderr)
            last = said.strip().splitlines()[-1:] or [f"exit code {child.returncode}"]
            return row | {"status": f"failed: {last[0].partition(':')[0]}"}
        found = np.load(back)
        if "spent" in found:
            row["cpu_seconds"], row["peak_mb"] = (
                float(found["spent"][0]),
                int(found["spent"][1]) // 1024,
            )
        for size, column in ((2, "pairs"), (3, "triples")):
            row[column] = distances(codes, sizes, found["codes"], size)
            if str(size) in found:
                row[f"{column}_model"] = distances(codes, sizes, codes, size, found[str(size)])
    return row | {"status": "done"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["titanic", "adult", "acs"])
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=[r for r in RUNS if r.startswith("ours")])  # fmt: skip
    parser.add_argument("--ways", type=int, nargs="+", default=[0, 2, 3])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100])
    parser.add_argument("--cap", type=int, default=1200)
    parser.add_argument("--folder", type=Path, default=ROOT / "peers")
    parser.add_argument("--path", nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=RESULTS / "others.csv")
    parser.add_argument("--quick", action="store_true", help="titanic, pairs, our Gaussian")
    given = parser.parse_args()
    if given.quick:
        given.data, given.runs, given.ways = ["titanic"], ["ours-gaussian"], [2]
    with Rows(given.out, FIELDS, KEYS) as rows:
        for name, seed, what in itertools.product(given.data, given.seeds, given.runs):
            for ways in (w for w in RUNS[what] if w in given.ways):
                late = [r for r in rows.rows if r["status"] == "no end"]
                if any((r["data"], r["run"], r["ways"]) == (name, what, "2") for r in late):
                    continue
                if (name, what, ways, given.epsilon, seed) in rows:
                    continue
                found = run(rows_of(name), what, ways, given.epsilon, seed, given)
                key = dict(zip(KEYS, (name, what, ways, given.epsilon, seed), strict=True))
                rows.add(**key, **found)
                print(*key.values(), found, flush=True)


if __name__ == "__main__":
    main()
