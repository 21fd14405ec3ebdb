"""Measurements to work on: those of a release folder, or somebody's noisy tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from consilience.data.columns import Categorical, Column
from consilience.data.schema import Schema
from consilience.data.schema_file import read_schema
from consilience.errors import ConsilienceError, DataError, MeasurementError
from consilience.measurements import Measurement
from consilience.release import read_noisy_tables, read_release


@dataclass(frozen=True)
class Given:
    schema: Schema
    measurements: tuple[Measurement, ...]
    total: float | None


def from_tables(
    paths: Sequence[Path], schema_path: Path | None, stddev: float | None, noise: str
) -> Given:
    """Files, or folders of files; without a schema, labels are those that the tables list."""
    files = [f for p in paths for f in (_inside(p) if p.is_dir() else [p])]
    declared = None if schema_path is None else read_schema(schema_path)
    labels = None if declared is None else {c.name: c.labels for c in declared}
    _, known, found = read_noisy_tables(files, labels, stddev=stddev, noise=noise)
    return Given(declared or _undeclared(known), tuple(found), None)


def from_release(path: Path) -> Given:
    published = read_release(path)
    listed = tuple(
        Measurement(
            m.clique,
            m.values,
            stddev=m.stddev,
            noise=m.noise,
            query=None if m.is_identity else m.query,
        )
        for m in published.model.measurements
    )
    public = published.facts["total"]["public"]
    return Given(published.schema, listed, published.model.total if public else None)


def _inside(folder: Path) -> list[Path]:
    found = sorted(f for f in folder.iterdir() if f.suffix in (".csv", ".parquet"))
    if not found:
        raise MeasurementError(
            f"the folder {str(folder)!r} must hold .csv or .parquet tables, it has none"
        )
    return found


def _undeclared(labels: dict[str, tuple[str, ...]]) -> Schema:
    columns: list[Column] = []
    for name, values in labels.items():
        missing = values[-1] == "(missing)"
        try:
            columns.append(
                Categorical(
                    name, values[:-1] if missing else values, None if missing else values[0]
                )
            )
        except ConsilienceError as error:
            raise DataError(f"{error}; say what the columns are with --schema") from error
    return Schema(columns)
