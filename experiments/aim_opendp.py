# /// script
# requires-python = ">=3.10"
# dependencies = ["opendp[mbi,polars]==0.16.0"]
# ///
"""AIM of OpenDP with its mbi extra (PyPI), run in an environment of its own: its pins (mbi 1, Polars 1) do not go with ours.

    python -m venv peers/opendp && peers/opendp/bin/pip install 'opendp[mbi,polars]==0.16.0'
    JAX_ENABLE_X64=1 peers/opendp/bin/python experiments/aim_opendp.py NAME RHO FOLDER

Prints one JSON line; rounds and seconds go to the standard error as they come. All settings are its own: cap of 80 MB on the
model, mirror descent of mbi, half of rho for the one-way marginals. Beside every attribute's values it keeps a null; the last
value plays null here, so that its tables are as large as ours. Its noise cannot be seeded.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import opendp.prelude as dp
import polars as pl
from opendp.extras.mbi import AIM, make_contingency_table, mirror_descent


def reported(domain: Any, loss: list, *, potentials: Any = None) -> Any:
    """The peer's own estimator, which says how far it is."""
    began = time.perf_counter()
    model = mirror_descent(domain, loss, potentials=potentials)
    print(f"{len(loss)} tables, {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
    return model


def main(name: str, rho: float, folder: Path) -> None:
    dp.enable_features("contrib", "honest-but-curious")
    sizes = list(json.loads((folder / f"{name}-domain.json").read_text()).values())
    codes = np.loadtxt(folder / f"{name}.csv.gz", delimiter=",", skiprows=1, dtype=np.int64)
    names = [f"a{i}" for i in range(len(sizes))]
    columns = {n: pl.Series(codes[:, i]).replace(sizes[i] - 1, None) for i, n in enumerate(names)}
    keys = {n: [*range(s - 1), None] for n, s in zip(names, sizes, strict=True)}
    values = dp.option_domain(dp.atom_domain(T="i64"))
    began = time.perf_counter()
    mechanism, _, _ = make_contingency_table(
        dp.lazyframe_domain([dp.series_domain(n, values) for n in names]),
        dp.frame_distance(dp.symmetric_distance()),
        dp.zero_concentrated_divergence(),
        d_in=[dp.polars.Bound(by=[], per_group=1)],
        d_out=rho,
        keys=keys,
        algorithm=AIM(queries=3, estimator=reported),
    )
    table = mechanism(pl.DataFrame(columns).lazy())
    seconds = time.perf_counter() - began
    away = []
    for c in itertools.combinations(range(len(sizes)), 3):
        answer = np.asarray(table.project([names[a] for a in c]), float)
        flat = np.ravel_multi_index(tuple(codes[:, a] for a in c), answer.shape)
        exact = np.bincount(flat, minlength=answer.size).reshape(answer.shape)
        away.append(0.5 * np.abs(exact / len(codes) - answer / answer.sum()).sum())
    tables = len(table.marginals.flatten())
    row = {"total_variation": float(np.mean(away)), "seconds": seconds, "tables": tables}
    print(json.dumps(row))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))
