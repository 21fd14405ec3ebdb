"""A county of invented blocks from its noisy files to a release folder, and beside it what else could be made of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import consilience as cs
from consilience.census import read_state, read_truth, state_model, top_down, two_pass
from consilience.census.files import State
from consilience.census.layout import AXES
from consilience.census.rivals import errors_by_level, queries_of, tree_of, truth_of
from consilience.census.tables import controls_of, masks_of, measurements_of, schema_of
from consilience.cli import main
from consilience.errors import ConsilienceError
from consilience.measurements import Measurements
from consilience.model import Model
from consilience.release import read_release
from consilience.solvers.place_reading import read_tree

WHOLE_TABLE = ("block", *AXES)


@pytest.fixture(scope="module")
def state(files: Path) -> State:
    return read_state(files)


@pytest.fixture(scope="module")
def model(state: State) -> Model:
    return state_model(state, tolerance=1e-6)


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(w) for w in words])


def test_the_files_are_one_tree(state: State) -> None:
    """Units with noise of their own, and units without any, are read as places of one tree."""
    domain = schema_of(state).domain
    tree = read_tree(domain, Measurements.of(domain, measurements_of(state)), ())
    assert tree is not None
    assert tree.attribute == "block"


def test_workers_make_the_same_tables(state: State, model: Model) -> None:
    found = state_model(state, tolerance=1e-6, workers=2)
    np.testing.assert_array_equal(found.marginal(WHOLE_TABLE), model.marginal(WHOLE_TABLE))
    assert repr(found.fit) == repr(model.fit)


@pytest.mark.parametrize(
    ("workers", "words"), [("none", "or spark, got 'none'"), ("0", "from 1 on")]
)
def test_workers_that_are_none(files: Path, tmp_path: Path, workers: str, words: str) -> None:
    result = run("census", "reconstruct", files, "--out", tmp_path / "out", "--workers", workers)
    assert result.exit_code == 2
    assert words in result.output
    assert not (tmp_path / "out").exists()


def test_workers_without_a_tree_are_refused() -> None:
    domain = cs.Domain({"a": 2, "b": 2})
    noisy = [cs.Measurement(("a", "b"), np.ones((2, 2)), stddev=1.0)]
    with pytest.raises(ConsilienceError, match="workers need measurements at levels"):
        cs.reconstruct(domain, noisy, fit=cs.LeastSquares(workers=2))


def test_invariants_hold(state: State, model: Model) -> None:
    assert model.diagnostics.method == "splitting on a tree of places"
    assert model.diagnostics.converged
    table = model.marginal(WHOLE_TABLE)
    assert table.min() >= 0
    assert table.sum() == pytest.approx(state.total)
    kinds = table.sum(axis=(2, 3, 4))
    units = state.levels[-1]
    assert (kinds >= units.low - 1e-6).all()
    assert kinds[units.high == 0].max(initial=0.0) == 0
    assert table[:, 3, 0].max() == 0
    groups = model.marginal(("group", "cenrace"))
    assert np.allclose(model.marginal(("state", "cenrace"))[0], groups.sum(axis=0))


def test_no_measurement_is_lost(state: State) -> None:
    """Without a pull the objective is the loss of the tables, added up from the files' rows by themselves."""
    plain = cs.LeastSquares(
        consistency="global", tolerance=1e-4, possible=masks_of(state), controls=controls_of(state), clear=4.0,
    )  # fmt: skip
    model = cs.reconstruct(schema_of(state).domain, measurements_of(state), state.total, plain)
    places, table = tree_of(state), model.marginal(WHOLE_TABLE).reshape(len(state.levels[-1].codes), -1)  # fmt: skip
    loss = 0.0
    for l in range(5):
        sums = places.sums(table, l + 1).reshape(-1, *state.sizes)
        for q in queries_of(state, l, l + 1, grouped=True):
            answer = sums.sum(axis=tuple(i + 1 for i in range(4) if i not in q.attributes))
            answer = answer.reshape(len(sums), -1)
            if q.groups is not None:
                answer = np.stack([answer[:, q.groups == g].sum(axis=1) for g in range(3)], axis=1)
            loss += 0.5 * float((((answer - q.values) / q.stddev[:, None]) ** 2).sum())
    assert model.diagnostics.objective == pytest.approx(loss, rel=1e-6)


def test_two_passes_are_least_squares(state: State) -> None:
    """Against normal equations of the few blocks and the marginal that a dense solve can hold: total counts by block."""
    found = two_pass(state)
    assert found.sum() == pytest.approx(state.total)
    assert found.min() < 0
    places = tree_of(state)
    # Stationary: the gradient of the loss is the same multiplier for every block's total, as only the state's is known.
    gradient = np.zeros_like(found)
    for l in range(5):
        sums = places.sums(found, l + 1).reshape(-1, *state.sizes)
        at = places.ancestors(l + 1)
        for q in queries_of(state, l, l + 1, grouped=False):
            away = tuple(i + 1 for i in range(4) if i not in q.attributes)
            off = (sums.sum(axis=away).reshape(len(sums), -1) - q.values) / q.stddev[:, None] ** 2
            shape = [n if i in q.attributes else 1 for i, n in enumerate(state.sizes)]
            spread = np.broadcast_to(off.reshape(-1, *shape), sums.shape)
            gradient += spread.reshape(len(sums), -1)[at]
    assert np.ptp(gradient) <= 1e-6 * np.abs(found).max()


def test_top_down_keeps_its_promises(state: State, blocks: Path) -> None:
    found = top_down(state)
    assert np.array_equal(found, np.rint(found))
    assert found.min() >= 0
    assert found.sum() == state.total
    kinds = found.reshape(-1, *state.sizes).sum(axis=(2, 3, 4))
    assert kinds[state.levels[-1].high == 0].max(initial=0) == 0


def test_without_a_public_total_it_is_estimated(state: State) -> None:
    unknown = replace(state, total=None)
    found = state_model(unknown)
    assert state.total is not None
    assert found.total == pytest.approx(state.total, abs=8)
    assert top_down(unknown).sum() == pytest.approx(state.total, abs=8)


def test_errors_by_level(state: State, model: Model, blocks: Path) -> None:
    exact = truth_of(state, read_truth(blocks))
    own = model.marginal(WHOLE_TABLE).reshape(len(exact), -1)
    rows = errors_by_level(state, exact, {"truth": exact, "ours": own, "least": two_pass(state)})
    assert {r["error"] for r in rows if r["method"] == "truth"} == {0.0}
    by = {(r["method"], r["level"]): r["error"] for r in rows if r["query"] == "detailed"}
    assert by["ours", "block"] < 0.5 * by["least", "block"]


def test_commands_from_blocks_to_answers(blocks: Path, tmp_path: Path) -> None:
    files, release = tmp_path / "files", tmp_path / "release"
    made = run("census", "simulate", blocks, "--out", files, "--seed", 5, "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["private"] is False
    read = run("census", "read", files)
    assert read.exit_code == 0, read.output
    assert "Block_Group" in read.output
    words = ("--whole", "--errors", "auto", "--compare", blocks, "--json", "-q")
    fitted = run("census", "reconstruct", files, "--out", release, *words)
    assert fitted.exit_code == 0, fitted.output
    methods = {r["method"] for r in json.loads(fitted.stdout)["errors"]}
    assert methods == {"ours", "two-pass least squares", "top-down"}
    published = read_release(release)
    people = published.model.marginal(("county", "hispanic"))
    assert np.array_equal(people, np.rint(people))
    assert people.sum() == published.model.total
    asked = run("answer", release, "votingage", "--by", "county")
    assert asked.exit_code == 0, asked.output
    drawn = run("sample", release, "--rows", 50, "--out", tmp_path / "rows.csv", "--seed", 1)
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "rows.csv").read_text().startswith('"block","hhgq"')
    assert run("report", release).exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("read", "nowhere"), "must have US_Person_PL_PROD"),
        (("simulate", "nowhere.csv", "--out", "x"), "must be a CSV file"),
        (("reconstruct", "nowhere", "--out", "x"), "must have US_Person_PL_PROD"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, monkeypatch, words, said) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    found = run("census", *words)
    assert found.exit_code == 2
    assert said in found.stderr
    assert found.stderr.count("\n") == 1
    assert not (tmp_path / "x").exists()
