"""What the experiments share: where the data is, the paper's noise, rows that survive an interruption, distances."""

from __future__ import annotations

import csv
import gzip
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

import consilience as cs

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "experiments" / "results"
FIGURES = ROOT / "docs" / "figures"
"""Inside docs, because the site shows only what is there."""
SEEDS = (2457026461, 2643031147, 2094276510, 2378741324, 1961979125)
"""The authors' five seeds."""

Cliques = list[tuple[str, ...]]


def data_folder() -> pathlib.Path:
    return pathlib.Path(os.environ.get("CONSILIENCE_DATA", ROOT.parent / "shared" / "data"))


def load(name: str) -> cs.Dataset:
    """A data set of the paper, in the authors' codes."""
    folder = data_folder()
    path = folder / f"{name}.csv.gz"
    if not path.exists():
        raise SystemExit(
            f"{path} must exist, got nothing there; set CONSILIENCE_DATA to the folder with the paper's data"
        )
    domain = cs.Domain(json.loads((folder / f"{name}-domain.json").read_text()))
    with gzip.open(path, "rt") as lines:
        header = lines.readline().strip().split(",")
        codes = np.loadtxt(lines, delimiter=",", dtype=np.int64)
    return cs.Dataset(codes[:, [header.index(a) for a in domain.attributes]], domain)


def paper_sigma(epsilon: float, tables: int, delta: float = 1e-6) -> float:
    """The paper's Gaussian noise: zCDP by the standard formula, all tables at once, add-remove neighbours."""
    # rho + 2 sqrt(rho ln(1/delta)) = epsilon, solved for sqrt(rho).
    log = np.log(1 / delta)
    root = epsilon / (np.sqrt(log + epsilon) + np.sqrt(log))
    return float(np.sqrt(tables / 2) / root)


def total_variation(
    truth: Mapping[tuple[str, ...], np.ndarray], answers: Mapping[tuple[str, ...], np.ndarray]
) -> float:
    """Half the L1 distance over the number of records, mean over the cliques of `truth`. The paper calls it L1."""
    apart = [0.5 * np.abs(answers[c] - x).sum() / x.sum() for c, x in truth.items()]
    return float(np.mean(apart)) if apart else float("nan")


class Rows:
    """A CSV that is appended to row by row; what it holds already is not done again.

    `keys` are the fields that name a row. Use as a context manager.
    """

    def __init__(self, path: pathlib.Path, fields: Sequence[str], keys: Sequence[str]) -> None:
        self.path, self.fields, self.keys = path, list(fields), list(keys)
        self.rows: list[dict[str, str]] = read_rows(path)
        if self.rows and list(self.rows[0]) != self.fields:
            raise SystemExit(
                f"{path} must have the columns {', '.join(self.fields)}, got {', '.join(self.rows[0])}; move it away"
            )
        self._done = {self._key(r) for r in self.rows}

    def __enter__(self) -> Rows:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a", newline="")
        self._writer = csv.DictWriter(self._file, self.fields, lineterminator="\n")
        if not self.rows:
            self._writer.writeheader()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __contains__(self, key: Iterable[object]) -> bool:
        return tuple(_shown(k) for k in key) in self._done

    def add(self, **row: object) -> None:
        shown = {f: _shown(row.get(f, "")) for f in self.fields}
        self._writer.writerow(shown)
        self._file.flush()
        self.rows.append(shown)
        self._done.add(self._key(shown))

    def _key(self, row: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(_shown(float(row[k]) if "." in row[k] else row[k]) for k in self.keys)


def read_rows(path: pathlib.Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def means(
    rows: Iterable[Mapping[str, str]], by: Sequence[str], value: str
) -> dict[tuple[str, ...], tuple[float, float, int]]:
    """Mean, standard error and number of the values, grouped; empty cells are left out."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for row in rows:
        if row.get(value) not in (None, "", "nan"):
            groups.setdefault(tuple(row[b] for b in by), []).append(float(row[value]))
    return {
        key: (
            float(np.mean(v)),
            float(np.std(v, ddof=1) / len(v) ** 0.5) if len(v) > 1 else float("nan"),
            len(v),
        )
        for key, v in groups.items()
    }
