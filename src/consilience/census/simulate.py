"""Files such as the bureau's from a table of blocks: its queries, its allocation and its noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from consilience.census import layout
from consilience.census.layout import LEVELS, QUESTIONS
from consilience.errors import DataError
from consilience.privacy import Sigma
from consilience.privacy.noise import NoiseSource
from consilience.progress import Progress, Step, quiet
from consilience.release.folder import new_folder

Ints = NDArray[np.int64]

GROUPS = ("hisp", "white", "black", "aian", "asian", "nhpi", "other", "two")
WIDE = tuple(f"{age}_{group}" for age in ("child", "adult") for group in GROUPS)
"""Columns of a wide table: redistricting counts by age, Hispanic or one of seven races."""
HISPANIC_RACES = (0.25, 0.02, 0.03, 0.03, 0.07, 0.25, 0.35)
"""A wide table does not say the race of Hispanic people: here it is drawn with these shares."""
KINDS = {  # of quarters: share of blocks of 20 people or more that have one, share of their adults and of their children in it
    1: (0.002, 0.6, 0.0),
    2: (0.001, 0.0, 0.3),
    3: (0.006, 0.3, 0.0),
    4: (0.002, 0.1, 0.1),
    5: (0.003, 0.6, 0.05),
    6: (0.003, 0.5, 0.0),
    7: (0.010, 0.1, 0.1),
}
"""Nor does it know who lives in quarters other than households: here it is invented."""
INVENTED = 2020
"""The seed of both: all simulations of one table have one truth."""
PER_FACILITY = 100
ROW_GROUP = 16_384
NOTE = """Simulated by Consilience in the layout of the 2020 census's noisy measurement files: these are not the bureau's.
Noise: {noise}.
"""


@dataclass(frozen=True, eq=False)
class Truth:
    """The exact table of each block: codes of 15 digits, and counts (blocks, hhgq, votingage, hispanic, cenrace)."""

    blocks: tuple[str, ...]
    tables: Ints

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.tables.shape[1:]

    def spine(self) -> tuple[str, ...]:
        """Codes of the spine's form. Here: no unit lies in the branch of tribal areas, and tracts and block groups are those of
        tabulation; the bureau's block groups were made anew.
        """
        tracts: dict[str, dict[str, int]] = {}
        groups: dict[str, dict[str, int]] = {}
        found = []
        for b in self.blocks:
            t = tracts.setdefault(b[:5], {}).setdefault(b[:11], len(tracts[b[:5]]))
            g = groups.setdefault(b[:11], {}).setdefault(b[:12], len(groups[b[:11]]))
            county = f"0{b[:2]}10{b[2:5]}1"
            found.append(f"{county}{t:04d}{g:02d}{b[:12]}{b[11:]}")
        return tuple(found)


def read_truth(path: Path) -> Truth:
    """A CSV file with a row per block (block, child_hisp, ..., adult_two), or a row per cell (block, the four axes, count)."""
    try:
        text = pyarrow.csv.ConvertOptions(column_types={"block": pyarrow.string()})
        table = pyarrow.csv.read_csv(path, convert_options=text)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"the blocks must be a CSV file, {str(path)!r} is not: {str(error).splitlines()[0]}"
        ) from error
    names = set(table.column_names)
    long = {"block", *layout.AXES, "count"}
    if not (names >= {"block", *WIDE} or names >= long):
        raise DataError(
            f"{str(path)!r} must have the columns block, {WIDE[0]}, ..., {WIDE[-1]}, or block, {', '.join(layout.AXES)}, count; "
            f"it has {', '.join(table.column_names[:8])}"
        )
    codes = np.array(table["block"].to_pylist(), dtype=str)
    wrong = next((c for c in codes.tolist() if len(c) != 15 or not c.isdigit()), None)
    if wrong is not None or not len(codes):
        raise DataError(f"a block must be a code of 15 digits, {str(path)!r} has {wrong!r}")
    if names >= {"block", *WIDE}:
        if np.unique(codes).size != codes.size:
            raise DataError(f"every block must be in one row, {str(path)!r} has one twice")
        order = np.argsort(codes)
        counts = np.stack([_whole(path, table, n) for n in WIDE], axis=1)[order]
        return Truth(tuple(codes[order].tolist()), _spread(counts.reshape(-1, 2, len(GROUPS))))
    blocks, at = np.unique(codes, return_inverse=True)
    tables = np.zeros((len(blocks), *layout.SIZES), np.int64)
    cells = [_whole(path, table, a) for a in layout.AXES]
    for name, code, size in zip(layout.AXES, cells, layout.SIZES, strict=True):
        if code.max() >= size:
            raise DataError(
                f"codes of {name} must be 0 to {size - 1}, {str(path)!r} has {code.max()}"
            )
    np.add.at(tables, (at, *cells), _whole(path, table, "count"))
    if tables[:, layout.NURSING, layout.CHILD].any():
        raise DataError(f"nobody under 18 may live in a nursing home, {str(path)!r} has some")
    return Truth(tuple(blocks.tolist()), tables)


def _whole(path: Path, table: pyarrow.Table, name: str) -> Ints:
    found = table[name]
    if not pyarrow.types.is_integer(found.type) or found.null_count:
        raise DataError(f"column {name!r} of {str(path)!r} must hold whole numbers")
    values = found.to_numpy().astype(np.int64)
    if values.min(initial=0) < 0:
        raise DataError(
            f"column {name!r} of {str(path)!r} must hold no negative numbers, got {values.min()}"
        )
    return values


def _spread(counts: Ints) -> Ints:
    """Ages x groups as quarters x ages x origins x seven races."""
    rng = np.random.default_rng(INVENTED)
    tables = np.zeros((len(counts), 8, 2, 2, 7), np.int64)
    tables[:, 0, :, 0] = counts[:, :, 1:]
    tables[:, 0, :, 1] = rng.multinomial(counts[:, :, 0], HISPANIC_RACES)
    large = counts.sum(axis=(1, 2)) >= 20
    for kind, (blocks, adults, children) in KINDS.items():
        here = np.flatnonzero(large & (rng.random(len(counts)) < blocks))
        moved = rng.binomial(tables[here, 0], np.array([children, adults])[:, None, None])
        tables[here, kind] += moved
        tables[here, 0] -= moved
    return tables


def simulate(truth: Truth, out: Path, noise: NoiseSource, progress: Progress = quiet) -> None:
    """Write a folder of noisy files about these blocks. The folder appears whole or not at all."""
    codes = np.array(truth.spine())
    with new_folder(out) as draft:
        drawn = "seeded, for experiments: it protects nobody"
        if noise.private:
            drawn = "exact discrete Gaussian from the operating system's generator; no ledger was charged"
        (draft / "README.txt").write_text(NOTE.format(noise=drawn), encoding="utf-8")
        totals = ["geocode,name,value"]
        for state in np.unique([c[:3] for c in codes]).tolist():
            here = np.flatnonzero(np.char.startswith(codes, state))
            here = here[np.argsort(codes[here])]
            totals.append(f"{state[1:]},state {state[1:]},{truth.tables[here].sum()}")
            _write_state(draft, state, codes[here], truth.tables[here], noise, progress)
        (draft / layout.TOTALS).write_text("\n".join(totals) + "\n", encoding="utf-8")


def _write_state(
    folder: Path, state: str, codes: NDArray, tables: Ints, noise: NoiseSource, progress: Progress
) -> None:
    levels = [units(codes, name) for name in LEVELS]
    shares = shares_of([u for u, _ in levels])
    facilities = facilities_of(tables)
    for l, (name, (places, starts)) in enumerate(zip(LEVELS, levels, strict=True)):
        own = np.add.reduceat(tables, starts, axis=0)
        parts = [_constraints(places, np.add.reduceat(facilities, starts, axis=0))]
        _write(folder, name, layout.CONSTRAINED, state, parts)
        parts = []
        for question in QUESTIONS:
            exact = question.answers(own)
            for share in sorted({s for s in shares[l] if s}):
                at = np.array([i for i, s in enumerate(shares[l]) if s == share])
                squared = layout.sigma_squared(share, question.shares[l])
                noisy = noise.discrete_gaussian(exact[at], Sigma(sqrt(squared))).values
                variance = layout.discrete_variance(float(squared))
                shape = question.shape(tables.shape[1:])
                parts.append(_rows(places[at], question.in_file, question.words(), shape, noisy, variance))  # fmt: skip
        if parts:
            _write(folder, name, layout.MEASURED, state, parts)
        progress(Step("simulating", l + 1, len(LEVELS)))


def units(codes: NDArray, level: str) -> tuple[NDArray, Ints]:
    """The units of a level and where the blocks of each begin; codes are sorted."""
    at, starts = np.unique(codes.astype(f"<U{layout.WIDTHS[level]}"), return_index=True)
    return at, starts.astype(np.int64)


def shares_of(levels: Sequence[NDArray]) -> list[list[Fraction]]:
    """The share of rho of every unit: an only child has none, and its parent has both."""
    shares = [[layout.LEVEL_SHARES[n]] * len(u) for n, u in zip(LEVELS, levels, strict=True)]
    for l in range(len(LEVELS) - 1, 0, -1):
        width = layout.WIDTHS[LEVELS[l - 1]]
        parent = np.searchsorted(levels[l - 1], levels[l].astype(f"<U{width}"))
        alone = np.bincount(parent, minlength=len(levels[l - 1])) == 1
        for child, above in enumerate(parent.tolist()):
            if alone[above]:
                shares[l - 1][above] += shares[l][child]
                shares[l][child] = Fraction(0)
    return shares


def facilities_of(tables: Ints) -> Ints:
    """Housing units and facilities of each kind in every block, which are public. Here: no block is known to have no housing,
    and a kind has a facility for each hundred of its people.
    """
    people = tables.sum(axis=(2, 3, 4))
    found = -(-people // PER_FACILITY)
    found[:, 0] = np.maximum(found[:, 0], 1)
    return found


def _constraints(places: NDArray, facilities: Ints) -> pyarrow.Table:
    low = facilities.copy()
    low[:, 0] = 0
    high = facilities * layout.MOST_PER_UNIT
    eight, words = (8, 1, 1, 1), ("hhgq", "*", "*", "*")
    nobody = ("gqNursingTotal", "nonvoting", "*", "*")
    zero = np.zeros((len(places), 1), np.int64)
    asked = (
        (layout.LOW, words, eight, low),
        (layout.HIGH, words, eight, high),
        (layout.NOBODY, nobody, (1, 1, 1, 1), zero),
    )
    return pyarrow.concat_tables(
        [
            _rows(places, name, said, shape, values, 0.0).append_column("sign", pyarrow.array([layout.SIGNS[name]] * len(places)))
            for name, said, shape, values in asked
        ]
    )  # fmt: skip


def _rows(
    places: NDArray, name: str, words: Sequence[str], shape: Sequence[int], values: Ints, variance: float
) -> pyarrow.Table:  # fmt: skip
    many, cells = values.shape
    at = np.arange(many + 1)
    lists = pyarrow.ListArray.from_arrays
    shapes = np.tile(np.asarray(shape, np.int32), many)
    return pyarrow.table(
        {
            "geocode": pyarrow.array(places.tolist(), pyarrow.string()),
            "query_name": pyarrow.array([name] * many),
            **{axis: pyarrow.array([word] * many) for axis, word in zip(layout.AXES, words, strict=True)},
            "query_shape": lists(pyarrow.array(at * 4, pyarrow.int32()), pyarrow.array(shapes)),
            "value": lists(pyarrow.array(at * cells, pyarrow.int32()), pyarrow.array(values.reshape(-1))),
            "variance": pyarrow.array(np.full(many, variance)),
        }
    )  # fmt: skip


def _write(folder: Path, level: str, kind: str, state: str, parts: list[pyarrow.Table]) -> None:
    """Sorted by code, so that one county can be read without the others."""
    target = folder / layout.PRODUCT / f"{level}.parquet" / kind / f"State={state}"
    target.mkdir(parents=True)
    table = pyarrow.concat_tables(parts)
    order = np.argsort(np.array(table["geocode"].to_pylist(), dtype=str), kind="stable")
    pyarrow.parquet.write_table(
        table.take(order), target / "part-0.parquet", row_group_size=ROW_GROUP
    )
