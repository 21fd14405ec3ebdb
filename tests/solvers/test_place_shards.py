"""Trees of places in shards: the whole tree's tables, whoever does the work; a worker that is killed; refusals."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consilience.errors import ConsilienceError
from consilience.progress import Step
from consilience.solvers.place_engines import Here, Workers, dumped, loaded, shards_of
from consilience.solvers.place_shards import Cut
from consilience.solvers.place_splitting import Driver, fit_places
from consilience.solvers.places import Asked, PlaceQuery, PlaceRange, Places
from data.engines import spark, why_not
from solvers.test_places import measured, random_places, truth_at, truth_of

SHAPE = (2, 3)
WHY = why_not("spark")


def problem(seed: int, levels: int = 3, most: int = 3):  # type: ignore[no-untyped-def]
    """Everything at once: unequal noise, exact totals, ranges at two levels, a query on sums, impossible cells."""
    rng = np.random.default_rng(seed)
    places = random_places(rng, levels, most)
    possible = rng.random((places.leaves, 6)) < 0.9
    possible[:, 0] = True
    truth = truth_of(places, SHAPE, rng) * possible
    queries = measured(places, SHAPE, truth, rng)
    own = truth_at(places, SHAPE, truth, levels, (0, 1))
    stddev = rng.choice([1.0, 2.0, np.inf], size=places.leaves)
    queries.append(PlaceQuery(levels, (0, 1), own + 1.0, stddev))
    groups = np.array([0, 1, 1])
    sums = truth_at(places, SHAPE, truth, 2, (1,)) @ np.eye(2)[groups]
    queries.append(PlaceQuery(2, (1,), sums + 0.5, 2.0, groups))
    controls = [PlaceRange.exact(0, (), truth_at(places, SHAPE, truth, 0, ()))]
    for level in (1, levels):
        inside = truth_at(places, SHAPE, truth, level, (0,))
        controls.append(PlaceRange(level, (0,), np.floor(inside * 0.9), np.ceil(inside * 1.1)))
    return places, queries, controls, possible


@given(seed=st.integers(0, 2**32 - 1), cells=st.sampled_from([1, 12, 40, 100]))
@settings(max_examples=20, deadline=None)
def test_shards_are_the_whole_tree(seed: int, cells: int) -> None:
    places, queries, controls, possible = problem(seed)
    args = places, SHAPE, queries, controls
    one = fit_places(*args, possible=possible, tolerance=1e-7)
    many = fit_places(*args, possible=possible, tolerance=1e-7, shard_cells=cells)
    assert many.status.converged == one.status.converged
    assert many.objective == pytest.approx(one.objective, rel=1e-6, abs=1e-6)
    assert many.bound <= one.objective * (1 + 1e-9) + 1e-9
    np.testing.assert_allclose(many.tables, one.tables, atol=1e-2)
    # The same order of sums in every place: but for the penalty's last digits the iterates are the same numbers.
    ten = [
        fit_places(*args, possible=possible, iterations=9, shard_cells=n).tables
        for n in (cells, 10**9)
    ]
    np.testing.assert_allclose(ten[0], ten[1], rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 2**32 - 1), cells=st.sampled_from([1, 12, 40]))
@settings(max_examples=20, deadline=None)
def test_two_passes_and_warm_starts_in_shards(seed: int, cells: int) -> None:
    rng = np.random.default_rng(seed)
    places = random_places(rng, 3)
    queries = measured(places, SHAPE, truth_of(places, SHAPE, rng), rng)
    plain = [
        fit_places(places, SHAPE, queries, nonnegative=False, shard_cells=n).tables
        for n in (cells, 10**9)
    ]
    np.testing.assert_allclose(plain[0], plain[1], rtol=1e-12, atol=1e-9)
    cold = fit_places(places, SHAPE, queries, tolerance=1e-8, shard_cells=cells)
    warm = fit_places(places, SHAPE, queries, tolerance=1e-8, state=cold.state)
    assert warm.iterations <= 10


@given(seed=st.integers(0, 2**32 - 1), cells=st.integers(1, 200))
@settings(max_examples=30, deadline=None)
def test_a_cut_holds_every_place_once(seed: int, cells: int) -> None:
    places, queries, controls, _ = problem(seed)
    asked = Asked.of(places, SHAPE, queries, controls)
    cut = Cut(asked, cells)
    for level in range(cut.level, asked.places.last + 1):
        ids = np.arange(asked.places.count(level))
        held = np.concatenate([ids[cut.rows(s, level)] for s in range(len(cut))])
        np.testing.assert_array_equal(np.sort(held), ids)
        if level > cut.level:
            for s in range(len(cut)):
                above = np.arange(asked.places.count(level - 1))[cut.rows(s, level - 1)]
                parents = asked.places.parents[level - 1][ids[cut.rows(s, level)]]
                assert set(parents.tolist()) == set(above.tolist())
                own = cut.shard(s).places.parents[level - cut.level - 1]
                np.testing.assert_array_equal(above[own], parents)


@pytest.mark.parametrize("workers", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 8))])
def test_so_many_worker_processes_give_the_same_bits(workers: int) -> None:
    places, queries, controls, possible = problem(7, most=4)
    args = places, SHAPE, queries, controls
    here = fit_places(*args, possible=possible, iterations=25, shard_cells=60)
    found = fit_places(*args, possible=possible, iterations=25, shard_cells=60, workers=workers)
    np.testing.assert_array_equal(found.tables, here.tables)
    assert (found.objective, found.bound) == (here.objective, here.bound)


def test_a_worker_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    places, queries, controls, possible = problem(7, most=4)
    args = places, SHAPE, queries, controls
    cut = Cut(Asked.of(*args, possible), 60)
    assert len(cut) > 3
    with shards_of(2, tmp_path) as killed:
        assert isinstance(killed, Workers)
        mine, other = Driver(cut, killed, None), Driver(cut, Here(), None)
        mine.begin(None)
        other.begin(None)
        for i in range(12):
            if i in (3, 8):
                os.kill(killed.processes[0], signal.SIGKILL)
            mine.step()
            other.step()
        assert mine.certify() == other.certify()
        assert killed.starts >= 1
        np.testing.assert_array_equal(
            mine.gather("tables", mine.checked, None), other.gather("tables", other.checked, None)
        )
        assert len(list(killed.folder.iterdir())) == 3 * len(cut)  # nothing old is left
    assert not list(tmp_path.iterdir())


def test_tables_in_a_file_from_values_in_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    places = random_places(rng, 3)
    queries = measured(places, SHAPE, truth_of(places, SHAPE, rng), rng)
    mapped = []
    for i, q in enumerate(queries):
        np.save(tmp_path / f"{i}.npy", q.values)
        values = np.load(tmp_path / f"{i}.npy", mmap_mode="r")
        mapped.append(PlaceQuery(q.level, q.attributes, values, q.stddev))
    here = fit_places(places, SHAPE, queries, iterations=10, shard_cells=12)
    steps: list[Step] = []
    found = fit_places(
        places, SHAPE, mapped, iterations=10, shard_cells=12, workers=2, folder=tmp_path, progress=steps.append
    )  # fmt: skip
    assert isinstance(found.tables, np.memmap)
    assert found.state is None
    np.testing.assert_array_equal(np.load(tmp_path / "tables.npy"), here.tables)
    stages = {"compiling shards", "least squares", "starting", "reconstructing", "gathering"}
    assert {s.stage for s in steps} == stages


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Spark's sockets
@pytest.mark.skipif(bool(WHY), reason=WHY)
def test_spark_gives_the_same_bits() -> None:
    session = spark()
    places, queries, controls, possible = problem(7, most=4)
    args = places, SHAPE, queries, controls
    here = fit_places(*args, possible=possible, iterations=6, shard_cells=60)
    found = fit_places(*args, possible=possible, iterations=6, shard_cells=60, workers=session)
    np.testing.assert_array_equal(found.tables, here.tables)
    assert (found.objective, found.bound) == (here.objective, here.bound)


def test_what_is_written_is_read_and_changes_stay_in_the_process(tmp_path: Path) -> None:
    value = {"a": np.arange(5.0), "b": [np.zeros((0, 3)), "words"], "c": np.arange(9)[::2]}
    dumped(tmp_path / "x", value)
    first = loaded(tmp_path / "x")
    first["a"][0] = 9.0
    again = loaded(tmp_path / "x")
    np.testing.assert_array_equal(again["a"], value["a"])
    np.testing.assert_array_equal(again["c"], value["c"])
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


TREE = Places(1, [[0, 0], [0, 0, 1]])
LEAVES = PlaceQuery(2, (0,), np.ones((3, 2)))


@pytest.mark.parametrize(
    ("workers", "words"),
    [
        (0, "at least one worker, got 0"),
        ("two", "a number of processes or a Spark session, got str"),
        (True, "a number of processes or a Spark session, got bool"),
    ],
)
def test_refusals(workers: object, words: str) -> None:
    with pytest.raises(ConsilienceError, match=words):
        fit_places(TREE, (2,), [LEAVES], workers=workers)


def test_a_contradiction_in_a_shard_names_the_place_of_the_tree() -> None:
    values = np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    exact = PlaceRange.exact
    controls = [exact(1, (), np.array([[6.0], [7.0]])), exact(2, (), values.sum(1, keepdims=True))]
    for cells in (2, 100):
        with pytest.raises(ConsilienceError, match="place 1 of level 1 is 7, by the others 6"):
            fit_places(TREE, (2,), [PlaceQuery(2, (0,), values)], controls, shard_cells=cells)
