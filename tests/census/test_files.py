"""Files written and read again; files that differ from the layout, one line each."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from consilience.census import read_state, read_truth, simulate, states_of
from consilience.census.files import subtrees, summary
from consilience.census.layout import QUESTIONS
from consilience.census.rivals import tree_of, truth_of
from consilience.errors import ConsilienceError
from consilience.privacy.noise import Noisy, SeededNoise


class NoNoise(SeededNoise):
    """Exact answers, to see that they stand where they belong."""

    def discrete_gaussian(self, counts, sigma, progress=None):  # type: ignore[no-untyped-def]
        return Noisy(np.asarray(counts), sigma, private=False)


def test_exact_answers_come_back_as_they_were(blocks: Path, tmp_path: Path) -> None:
    truth = read_truth(blocks)
    simulate(truth, tmp_path / "files", NoNoise(seed=0))
    state = read_state(tmp_path / "files")
    assert state.sizes == (8, 2, 2, 7)
    assert state.total == truth.tables.sum()
    assert [len(u.codes) for u in state.levels] == [1, 2, 3, 4, 17]
    assert [len(u.codes[0]) for u in state.levels] == [3, 9, 13, 15, 31]
    places, exact = tree_of(state), truth_of(state, truth)
    for l, units in enumerate(state.levels):
        tables = places.sums(exact, l + 1).astype(np.int64).reshape(-1, *state.sizes)
        for q in QUESTIONS:
            found = units.answers[q.name]
            asked = np.isfinite(found.variance)
            assert np.array_equal(found.values[asked], q.answers(tables)[asked])
    kinds = truth.tables.sum(axis=(2, 3, 4))
    low, high = state.levels[-1].low, state.levels[-1].high
    assert (low <= kinds).all()
    assert (kinds <= high).all()


def test_an_only_child_gives_its_share_to_its_parent(files: Path) -> None:
    state = read_state(files)
    measured = [np.isfinite(u.answers["total"].variance).tolist() for u in state.levels]
    assert measured[1] == [True, True]
    assert measured[2] == [True, True, False]  # the only tract of its county
    assert measured[3] == [True, True, False, False]  # the only block group of its tract
    assert measured[4].count(False) == 1
    groups = state.levels[3].answers["total"].variance
    assert groups[1] == pytest.approx(2.713, rel=1e-3)  # with its only block's share
    assert groups[0] == pytest.approx(3.069, rel=1e-3)


def test_a_county_at_a_time(files: Path) -> None:
    parts = list(subtrees(files, "15"))
    assert [[len(u.codes) for u in part] for part in parts] == [[1], [1, 2, 3, 12], [1, 1, 1, 5]]
    rows = summary(files, "15")
    assert [r["units"] for r in rows] == [1, 2, 3, 4, 17]
    assert rows[0]["numbers"] == 307


def test_rows_per_cell_make_the_bureaus_table(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    path.write_text(
        "block,hhgq,votingage,hispanic,cenrace,count\n150010001001001,0,1,0,62,4\n150010001001002,3,1,1,5,2\n"
    )
    truth = read_truth(path)
    assert truth.tables.shape == (2, 8, 2, 2, 63)
    assert truth.tables[1, 3, 1, 1, 5] == 2
    simulate(truth, tmp_path / "files", SeededNoise(seed=0))
    assert read_state(tmp_path / "files").sizes == (8, 2, 2, 63)


def _changed(folder: Path, level: str, kind: str, change: Callable[[pyarrow.Table], pyarrow.Table]) -> None:  # fmt: skip
    path = next((folder / "US_Person_PL_PROD" / f"{level}.parquet" / kind).rglob("*.parquet"))
    table = pyarrow.parquet.read_table(path, partitioning=None)  # type: ignore[arg-type]
    pyarrow.parquet.write_table(change(table), path)


def _set(name: str, make: Callable[[list], list]) -> Callable[[pyarrow.Table], pyarrow.Table]:
    return lambda t: t.set_column(t.column_names.index(name), name, pyarrow.array(make(t[name].to_pylist())))  # fmt: skip


BAD = [
    ("Block", "DPQuery", lambda t: t.drop_columns(["variance"]), "'variance' is missing"),
    ("Block", "Constraint", lambda t: t.drop_columns(["sign"]), "'sign' is missing"),
    ("Tract", "DPQuery", _set("query_name", lambda v: ["age_dpq", *v[1:]]), "has 'age_dpq'"),
    ("Tract", "Constraint", _set("query_name", lambda v: ["x_con", *v[1:]]), "has 'x_con'"),
    ("Tract", "Constraint", _set("sign", lambda v: ["<", *v[1:]]), "constraints must be"),
    ("Tract", "DPQuery", _set("variance", lambda v: [0.0, *v[1:]]), "variances must be positive"),
    ("Tract", "DPQuery", _set("value", lambda v: [[*v[0], 1], *v[1:]]), "must have the shape"),
    ("Block", "DPQuery", _set("query_shape", lambda v: [[1, 2, 3, 4]] * len(v)), "must have shape"),
    ("Block", "DPQuery", lambda t: pyarrow.concat_tables([t, t]), "one has two"),
    ("Block", "DPQuery", _set("geocode", lambda v: [v[0] + "1", *v[1:]]), "must be in the constraints"),
    ("Block_Group", "Constraint", lambda t: t.slice(0, 0), "must be in the constraints"),
]  # fmt: skip


@pytest.mark.parametrize(("level", "kind", "change", "said"), BAD)
def test_a_file_that_differs_is_one_line(files: Path, tmp_path: Path, level, kind, change, said) -> None:  # type: ignore[no-untyped-def]  # fmt: skip
    folder = tmp_path / "files"
    shutil.copytree(files, folder)
    _changed(folder, level, kind, change)
    with pytest.raises(ConsilienceError, match=said) as found:
        read_state(folder)
    assert "\n" not in str(found.value)


def test_folders_that_differ(files: Path, tmp_path: Path) -> None:
    with pytest.raises(ConsilienceError, match="must have US_Person_PL_PROD"):
        states_of(tmp_path)
    folder = tmp_path / "files"
    shutil.copytree(files, folder)
    inside = folder / "US_Person_PL_PROD" / "Block.parquet" / "DPQuery" / "State=015"
    shutil.copy(inside / "part-0.parquet", inside / "part-1.parquet")
    with pytest.raises(ConsilienceError, match="must hold one file, it holds 2"):
        read_state(folder)
    with pytest.raises(ConsilienceError, match="must be one of 15"):
        read_state(folder, "16")
    (folder / "state_totals.csv").write_text("geocode,value\n15,many\n")
    (inside / "part-1.parquet").unlink()
    with pytest.raises(ConsilienceError, match="with whole numbers"):
        read_state(folder)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "must have the columns"),
        ("block,hhgq,votingage,hispanic,cenrace,count\n15,0,0,0,0,1\n", "15 digits"),
        ("block,hhgq,votingage,hispanic,cenrace,count\n150010001001001,8,0,0,0,1\n", "0 to 7"),
        ("block,hhgq,votingage,hispanic,cenrace,count\n150010001001001,3,0,0,0,1\n", "nursing"),
        ("block,hhgq,votingage,hispanic,cenrace,count\n150010001001001,0,0,0,0,-1\n", "negative"),
        ("block,hhgq,votingage,hispanic,cenrace,count\n150010001001001,0,0,0,0,1.5\n", "whole"),
    ],
)
def test_truths_that_cannot_be(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "truth.csv"
    path.write_text(text)
    with pytest.raises(ConsilienceError, match=said):
        read_truth(path)
