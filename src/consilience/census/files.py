"""The bureau's files in: one county after another, checked against the layout, and what they say about a state."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

from consilience.census import layout
from consilience.census.layout import BY_NAME, CONSTRAINED, LEVELS, MEASURED, Question
from consilience.errors import MeasurementError

AFTER = "~"
"""Behind every digit: codes from p to p + AFTER are those that begin with p."""


@dataclass(frozen=True, eq=False)
class Answers:
    """The answers to one question by units of a level: values (units, cells), variance inf where a unit was not asked."""

    values: NDArray[np.float64]
    variance: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Units:
    """Units of one level: sorted codes, their answers by name of the question, and their bounds by kind of quarters."""

    level: int
    codes: NDArray
    answers: Mapping[str, Answers]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    nobody: bool


@dataclass(frozen=True, eq=False)
class State:
    """Everything that is fitted at once: the levels of one state, its table's sizes, and its total where that is public."""

    fips: str
    sizes: tuple[int, ...]
    levels: tuple[Units, ...]
    total: int | None


def states_of(folder: Path) -> dict[str, list[str]]:
    """{FIPS: its branches}, as the folder of blocks has them."""
    top = folder / layout.PRODUCT / f"{LEVELS[-1]}.parquet" / CONSTRAINED
    if not top.is_dir():
        raise MeasurementError(
            f"a folder of noisy measurement files must have {layout.PRODUCT}/Block.parquet/{CONSTRAINED}, {str(folder)!r} has not"
        )
    found: dict[str, list[str]] = {}
    for inside in sorted(p.name for p in top.iterdir() if p.is_dir()):
        code = inside.removeprefix("State=").zfill(3)
        if not inside.startswith("State=") or len(code) != 3 or not code.isdigit():
            raise MeasurementError(
                f"folders in {str(top)!r} must be State= and three digits, got {inside!r}"
            )
        found.setdefault(code[1:], []).append(code)
    if not found:
        raise MeasurementError(f"{str(top)!r} must have a folder for each state, it has none")
    return found


def totals_of(folder: Path) -> dict[str, int]:
    """State totals, which are public and in no measurement file of the states."""
    path = folder / layout.TOTALS
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    try:
        return {r["geocode"].zfill(2)[-2:]: int(r["value"]) for r in rows}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise MeasurementError(
            f"{str(path)!r} must have the columns geocode and value, with whole numbers"
        ) from None


def chosen_state(folder: Path, fips: str | None) -> str:
    """The state that is asked for, or the only one."""
    found = states_of(folder)
    if fips is None and len(found) > 1:
        raise MeasurementError(
            f"{str(folder)!r} has {len(found)} states, of which one is fitted at a time; choose one of {', '.join(found)}"
        )
    chosen = next(iter(found)) if fips is None else fips
    if chosen not in found:
        raise MeasurementError(
            f"the state must be one of {', '.join(found)} in {str(folder)!r}, got {chosen!r}"
        )
    return chosen


def read_state(folder: Path, fips: str | None = None) -> State:
    """All units of a state."""
    chosen = chosen_state(folder, fips)
    parts = list(subtrees(folder, chosen))
    sizes = _sizes(parts)
    levels = tuple(_joined([u for part in parts for u in part if u.level == l], l) for l in range(len(LEVELS)))  # fmt: skip
    _check_tree(levels)
    return State(chosen, sizes, levels, totals_of(folder).get(chosen))


def subtrees(folder: Path, fips: str) -> Iterator[list[Units]]:
    """The state's own units, then one county with everything in it after another; no more than one is in memory at a time."""
    for branch in states_of(folder)[fips]:
        yield [_units(folder, 0, branch, branch)]
        path = _file(folder, 1, CONSTRAINED, branch)
        for county in np.unique(_column(path, "geocode")).tolist():
            yield [_units(folder, l, branch, county) for l in range(1, len(LEVELS))]


def summary(folder: Path, fips: str) -> list[dict[str, Any]]:
    """What the files of a state hold, by level: units, how many were measured, numbers, and the variances of two questions."""
    counts = {"units": 0, "measured": 0, "numbers": 0}
    found: list[dict[str, Any]] = [
        {"level": n, **counts, "total": set(), "detailed": set()} for n in LEVELS
    ]
    for part in subtrees(folder, fips):
        for u in part:
            row, asked = found[u.level], np.zeros(len(u.codes), bool)
            for name, a in u.answers.items():
                here = np.isfinite(a.variance)
                asked |= here
                row["numbers"] += int(here.sum()) * a.values.shape[1]
                if name in ("total", "detailed"):
                    row[name] |= set(np.round(a.variance[here], 3).tolist())
            row["units"] += len(u.codes)
            row["measured"] += int(asked.sum())
    return [{**r, "total": sorted(r["total"]), "detailed": sorted(r["detailed"])} for r in found]


# -- one file ------------------------------------------------------------------------------------------


def _file(folder: Path, level: int, kind: str, branch: str) -> Path | None:
    """The one file of a level, kind and branch; None where there is none, as for measurements of a level that was bypassed."""
    inside = folder / layout.PRODUCT / f"{LEVELS[level]}.parquet" / kind
    spelled = (inside / f"State={branch}", inside / f"State={int(branch)}")
    place = next((p for p in spelled if p.is_dir()), None)
    files = [] if place is None else sorted(place.glob("*.parquet"))
    if len(files) > 1:
        raise MeasurementError(f"{str(place)!r} must hold one file, it holds {len(files)}")
    if not files and kind == CONSTRAINED:
        raise MeasurementError(
            f"every level must list its units in {CONSTRAINED} files, there is none in {str(spelled[0])!r}"
        )
    return files[0] if files else None


def _column(path: Path | None, name: str) -> NDArray:
    assert path is not None
    return np.array(_read(path, [name], None)[name].to_pylist(), dtype=str)


def _read(path: Path, columns: list[str], prefix: str | None) -> pyarrow.Table:
    filters = None if prefix is None else [("geocode", ">=", prefix), ("geocode", "<", prefix + AFTER)]  # fmt: skip
    try:
        there = pyarrow.parquet.read_schema(path).names
        missing = next((c for c in columns if c not in there), None)
        if missing is None:
            return pyarrow.parquet.read_table(
                path, columns=columns, filters=filters, partitioning=cast(Any, None)
            )
    except (pyarrow.ArrowException, OSError) as error:
        raise MeasurementError(
            f"{str(path)!r} must be a Parquet file with codes as text: {str(error).splitlines()[0]}"
        ) from error
    raise MeasurementError(
        f"{str(path)!r} must have the columns {', '.join(columns)}, {missing!r} is missing"
    )


def _units(folder: Path, level: int, branch: str, prefix: str) -> Units:
    """The units of a level that lie below a code."""
    known = _file(folder, level, CONSTRAINED, branch)
    assert known is not None
    table = _read(known, [*layout.COLUMNS, "sign"], prefix)
    codes = np.unique(np.array(table["geocode"].to_pylist(), dtype=str))
    bounds = [np.zeros((len(codes), 8)), np.full((len(codes), 8), np.inf)]
    nobody = False
    for name, rows in _by_name(table):
        sign = layout.SIGNS.get(name)
        if sign is None or set(rows["sign"].to_pylist()) - {sign}:
            raise MeasurementError(
                f"constraints must be {', '.join(f'{n} ({s})' for n, s in layout.SIGNS.items())}, {str(known)!r} has {name!r}"
            )
        if name in (layout.LOW, layout.HIGH):
            at, values = _values(known, rows, name, codes, (8, 1, 1, 1))
            bounds[name == layout.HIGH][at] = values
        nobody |= name == layout.NOBODY
    answers: dict[str, Answers] = {}
    path = _file(folder, level, MEASURED, branch)
    if path is not None:
        for name, rows in _by_name(_read(path, list(layout.COLUMNS), prefix)):
            question = BY_NAME.get(name)
            if question is None:
                raise MeasurementError(
                    f"queries must be {', '.join(BY_NAME)}; {str(path)!r} has {name!r}"
                )
            answers[question.name] = _answers(path, rows, question, codes)
    return Units(level, codes, answers, bounds[0], bounds[1], nobody)


def _by_name(table: pyarrow.Table) -> Iterator[tuple[str, pyarrow.Table]]:
    names = np.array(table["query_name"].to_pylist(), dtype=str)
    for name in np.unique(names).tolist():
        yield name, table.filter(pyarrow.array(names == name))


def _answers(path: Path, rows: pyarrow.Table, question: Question, codes: NDArray) -> Answers:
    shape = tuple(rows["query_shape"][0].as_py())
    detailed = layout.is_table(shape) if question.name == "detailed" else True
    if not detailed or question.shape((*layout.SIZES[:3], shape[-1])) != shape:
        raise MeasurementError(
            f"{question.in_file} must have shape {question.shape(layout.SIZES)} (or 7 races), {str(path)!r} has {shape}"
        )
    at, values = _values(path, rows, question.in_file, codes, shape)
    given = rows["variance"].to_numpy().astype(np.float64)
    if not (np.isfinite(given).all() and (given > 0).all()):
        raise MeasurementError(
            f"variances must be positive, {question.in_file} of {str(path)!r} has {given.min()}"
        )
    full, variance = np.zeros((len(codes), values.shape[1])), np.full(len(codes), np.inf)
    full[at], variance[at] = values, given
    return Answers(full, variance)


def _values(
    path: Path, rows: pyarrow.Table, name: str, codes: NDArray, shape: tuple[int, ...]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Where the rows' units stand in codes, and their values; every row must have this shape, every unit one row."""
    lists, shapes = rows["value"].combine_chunks(), rows["query_shape"].combine_chunks()
    cells, many = prod(shape), rows.num_rows
    flat = lists.flatten().to_numpy(zero_copy_only=False).astype(np.float64)
    said = shapes.flatten().to_numpy(zero_copy_only=False)
    even = (lists.value_lengths().to_numpy(zero_copy_only=False) == cells).all()
    if not even or said.size != many * len(shape) or (said.reshape(many, -1) != shape).any():
        raise MeasurementError(
            f"every row of {name} must have the shape {shape} and {cells} values, in {str(path)!r} one has not"
        )
    given = np.array(rows["geocode"].to_pylist(), dtype=str)
    at = np.searchsorted(codes, given)
    wrong = ~np.isin(given, codes)
    if wrong.any():
        raise MeasurementError(
            f"every measured unit must be in the constraints, {given[wrong][0]!r} of {str(path)!r} is not"
        )
    if np.unique(at).size != at.size:
        raise MeasurementError(
            f"every unit must have one row of {name}, in {str(path)!r} one has two"
        )
    return at, flat.reshape(many, cells)


# -- a whole state -------------------------------------------------------------------------------------


def _sizes(parts: list[list[Units]]) -> tuple[int, ...]:
    found = {
        a.values.shape[1] for part in parts for u in part for n, a in u.answers.items() if n == "cenrace"
    }  # fmt: skip
    if len(found) != 1:
        raise MeasurementError(
            f"all files must have one number of races, got {sorted(found) or 'none measured'}"
        )
    return (*layout.SIZES[:3], found.pop())


def _joined(parts: list[Units], level: int) -> Units:
    """Units of a level side by side, sorted; a question that some part was not asked has infinite variance there."""
    codes = np.concatenate([p.codes for p in parts])
    order = np.argsort(codes)
    answers = {}
    for name in dict.fromkeys(n for p in parts for n in p.answers):
        width = next(p.answers[name].values.shape[1] for p in parts if name in p.answers)
        filled = [
            p.answers.get(name) or Answers(np.zeros((len(p.codes), width)), np.full(len(p.codes), np.inf))
            for p in parts
        ]  # fmt: skip
        answers[name] = Answers(
            np.concatenate([a.values for a in filled])[order],
            np.concatenate([a.variance for a in filled])[order],
        )
    low, high = (np.concatenate(ends)[order] for ends in ([p.low for p in parts], [p.high for p in parts]))  # fmt: skip
    return Units(level, codes[order], answers, low, high, all(p.nobody for p in parts))


def _check_tree(levels: tuple[Units, ...]) -> None:
    """Codes of a level have one length, and begin with the code of a unit above."""
    above: Units | None = None
    for u in levels:
        widths = {len(c) for c in u.codes.tolist()}
        if len(widths) != 1:
            raise MeasurementError(
                f"codes of {LEVELS[u.level]} must have one length, got {sorted(widths) or 'no unit'}"
            )
        if above is not None:
            width = len(above.codes[0])
            parents = np.unique(u.codes.astype(f"<U{width}"))
            if not np.array_equal(parents, above.codes):
                odd = np.setxor1d(parents, above.codes)[0]
                raise MeasurementError(
                    f"every {LEVELS[u.level]} must lie in a {LEVELS[above.level]} that has some, {odd!r} is in one file only"
                )
        above = u
