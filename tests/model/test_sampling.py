"""Rows: unbiased against the enumerated joint, nearer to the model than independent rows, odd sizes, seeds, words."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from consilience.data import POPULATION_SCHEMA, population
from consilience.domain import CliqueVector, Domain
from consilience.errors import ConsilienceError
from consilience.fits import LeastSquares, reconstruct
from consilience.measurements import Measurement
from consilience.model import Model, sampling
from consilience.model.sampling import (
    _replace_impossible,
    independent_deviation,
    sample_rows,
)
from consilience.records import Dataset
from consilience.tree.growth import backbone_of
from solvers.problems import RECORDS, D, cliques_of, marginal_of, noisy, true_counts

FOLDER = Path(os.environ.get("CONSILIENCE_DATA", Path(__file__).parents[3] / "shared" / "data"))
FIRE = FOLDER / "fire.csv.gz"
CYCLE = "ab bc cd ad"
UNEQUAL = 0.95
MODELS = ("global", "local", "frustrated")


@pytest.fixture(scope="session")
def exact() -> Model:
    return reconstruct(
        D, noisy(D, "abc bcd de", 2), total=RECORDS, fit=LeastSquares(consistency="global")
    )


@pytest.fixture(scope="session")
def local() -> Model:
    return reconstruct(
        D, noisy(D, f"{CYCLE} de", 3), total=RECORDS, fit=LeastSquares(consistency="local")
    )


@pytest.fixture(scope="session")
def frustrated() -> Model:
    """Three attributes, each pair unequal in 95 of 100 rows: consistent pair by pair, but no rows have such tables."""
    return reconstruct(
        Domain(dict.fromkeys("abcd", 2)),
        [
            Measurement(
                c,
                [[500 * (1 - UNEQUAL), 500 * UNEQUAL], [500 * UNEQUAL, 500 * (1 - UNEQUAL)]],
                stddev=1.0,
            )
            for c in cliques_of("ab bc ac cd")
        ],
        total=1000.0,
        fit=LeastSquares(consistency="local"),
    )


@pytest.fixture(scope="session")
def models(exact: Model, local: Model, frustrated: Model) -> dict[str, Model]:
    return {"global": exact, "local": local, "frustrated": frustrated}


# -- models ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n", [0, 1, 2, 1000, 50_000])
def test_a_sample_is_a_dataset_of_the_models_domain(
    name: str, n: int, models: dict[str, Model]
) -> None:
    rows = models[name].sample(n, rng=0)
    assert isinstance(rows, Dataset)
    assert (len(rows), rows.domain, rows.weights) == (n, models[name].domain, None)


@pytest.mark.parametrize("name", MODELS)
def test_the_reported_distance_is_the_distance(name: str, models: dict[str, Model]) -> None:
    model = models[name]
    report = model.sample_with_report(3000, 4)
    found = {
        r: np.abs(report.data.marginal(r) / 3000 - model.marginal(r) / model.total).sum() / 2
        for r in model.known.cliques
    }
    assert report.distance == pytest.approx(np.mean(list(found.values())), abs=1e-12)
    assert report.worst == pytest.approx(max(found.values()), abs=1e-12)
    assert found[report.worst_clique] == pytest.approx(report.worst, abs=1e-12)


@pytest.mark.parametrize("name", ["global", "local"])
def test_rows_are_nearer_than_independent_ones(name: str, models: dict[str, Model]) -> None:
    report = models[name].sample_with_report(3000, 4)
    assert report.distance < 0.5 * report.independent


def test_global_models_are_sampled_exactly_and_others_moved(
    exact: Model, frustrated: Model
) -> None:
    drawn, moved = (m.sample_with_report(5000, 1) for m in (exact, frustrated))
    assert (drawn.exact, drawn.sweeps, drawn.moved, drawn.distance) == (True, 0, 0.0, drawn.before)
    assert not moved.exact
    assert moved.sweeps == sampling.MOST
    assert moved.distance <= moved.before
    assert "5,000 rows drawn exactly from the model" in str(drawn)
    assert "32 sweeps moved" in str(moved)
    assert "5,000 rows drawn from the backbone" in str(moved)


def test_what_no_rows_can_meet_is_left_as_distance(frustrated: Model) -> None:
    """A row makes at most two of three pairs unequal, so their mean total variation is at least 0.95 - 2/3."""
    report = frustrated.sample_with_report(30_000, 0)
    least = (3 * UNEQUAL - 2) / 4
    assert least - 1e-6 <= report.distance < 1.02 * least


def test_rows_of_a_thin_backbone_are_moved_to_the_other_tables(local: Model) -> None:
    model = replace(local)
    thin = backbone_of(model.known, memory=100)
    assert not thin.whole
    model.__dict__["_backbone"] = thin  # where `prepare` keeps it
    report = model.sample_with_report(5000, 0)
    assert report.distance < 0.2 * report.before
    assert 0 < report.moved < 0.1


def test_sweeps_that_are_given_are_honoured(exact: Model, frustrated: Model) -> None:
    assert frustrated.sample_with_report(500, 1, sweeps=0).moved == 0.0
    moved = exact.sample_with_report(500, 1, sweeps=3)
    assert (moved.exact, moved.sweeps) == (False, 3)
    assert moved.distance <= moved.before


def test_a_local_model_that_is_a_tree_is_sampled_exactly() -> None:
    chain = reconstruct(
        D, noisy(D, "ab bc cd", 1), total=RECORDS, fit=LeastSquares(consistency="local")
    )
    report = chain.sample_with_report(1200, 0)
    assert report.exact
    counts = report.data.marginal("e")  # in no clique, so uniform
    np.testing.assert_array_equal(counts, [400, 400, 400])


def test_long_range_dependence_of_the_backbone_survives_the_moves() -> None:
    rng = np.random.default_rng(0)
    domain = Domain(dict.fromkeys("abcdef", 3))
    chain = np.full((3, 3), 0.05) + 0.85 * np.eye(3)
    joint = np.full(3, 1 / 3)
    for _ in range(5):
        joint = joint[..., None] * chain
    measured = [
        Measurement(
            c,
            1e5 * marginal_of(domain, joint, c) + 20 * rng.standard_normal((3, 3)),
            stddev=20,
        )
        for c in cliques_of("ab bc cd de ef ac ce")
    ]
    model = reconstruct(domain, measured, total=1e5, fit=LeastSquares(consistency="local"))
    table = model.sample(100_000, 0).marginal(("a", "f")) / 1e5
    truth = marginal_of(domain, joint, "af")
    independent = np.full((3, 3), 1 / 9)
    assert np.abs(table - truth).sum() < 0.1 * np.abs(independent - truth).sum()


def test_the_total_does_not_bound_the_rows(local: Model) -> None:
    few, many = (local.sample_with_report(n, 0, sweeps=4) for n in (100, 100_000))
    assert many.distance < few.distance
    assert many.data.total == 100_000 > local.total


@pytest.mark.parametrize("name", MODELS)
def test_a_seed_or_a_generator_decides_the_rows(name: str, models: dict[str, Model]) -> None:
    model = models[name]
    one = model.sample(400, 7).to_array()
    np.testing.assert_array_equal(one, model.sample(400, np.random.default_rng(7)).to_array())
    assert (one != model.sample(400, 8).to_array()).any()
    assert (model.sample(400).to_array() != model.sample(400).to_array()).any()


def test_progress_covers_the_backbone_as_well(local: Model) -> None:
    model = replace(local)
    seen: list[tuple[int, int | None]] = []
    model.sample(50, 0, progress=lambda step: seen.append((step.done, step.total)))
    stages = list(dict.fromkeys(of for _, of in seen))
    assert len(stages) == 2
    for of in stages:  # each stage goes up to its end
        done = [d for d, o in seen if o == of]
        assert done == sorted(done)
        assert done[-1] == of


def test_progress_goes_up_to_the_end(frustrated: Model) -> None:
    seen: list[tuple[int, int | None]] = []
    frustrated.prepare()
    frustrated.sample(300, 0, progress=lambda step: seen.append((step.done, step.total)))
    assert [done for done, _ in seen] == list(range(1, seen[-1][1] + 1))
    assert len({of for _, of in seen}) == 1


@pytest.mark.parametrize("n", [-1, 2.5, True, "3", None])
def test_the_number_of_rows_is_checked(n: object, local: Model) -> None:
    with pytest.raises(ConsilienceError, match="number of rows, must be a whole number from 0 on"):
        local.sample(n)  # pyright: ignore[reportArgumentType]


def test_rows_that_are_cheap_to_visit_are_visited_more_often(frustrated: Model) -> None:
    moves = sampling.RowMoves(frustrated.tau, None)
    found = [moves.usual_sweeps(n) for n in (0, 10, 10**6, 10**9)]
    assert found[0] == found[1] == sampling.MOST
    assert sampling.MOST >= found[2] >= found[3] == sampling.FEWEST
    fewer, usual = (frustrated.sample_with_report(400, 0, sweeps=s) for s in (1, None))
    assert usual.distance <= fewer.distance


def test_sweeps_are_checked(local: Model) -> None:
    with pytest.raises(ConsilienceError, match="sweeps must be a whole number from 0 on, got -2"):
        local.sample(3, sweeps=-2)


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_odd_domains(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5), label="sizes")
    names = "abcde"[: len(sizes)]
    domain = Domain(dict(zip(names, sizes, strict=True)))
    cliques = data.draw(
        st.lists(st.sets(st.sampled_from(names), min_size=1, max_size=3), min_size=1, max_size=5),
        label="cliques",
    )
    n = data.draw(st.integers(0, 60), label="n")
    rng = np.random.default_rng(data.draw(st.integers(0, 99), label="seed"))
    joint = 100 * rng.dirichlet(np.full(domain.size(), 0.5)).reshape(domain.shape)
    measured = []
    for c in map(domain.clique, cliques):
        exact = marginal_of(domain, joint, c)
        measured.append(Measurement(c, exact + rng.standard_normal(exact.shape), stddev=1.0))
    model = reconstruct(
        domain, measured, total=100.0, fit=LeastSquares(consistency="local", tolerance=1e-4)
    )
    report = sample_rows(model, n, rng)
    assert len(report.data) == n
    assert report.data.domain == domain
    if n:
        assert 0 <= report.distance <= report.worst <= 1
        missing = [a for a in names if not any(a in c for c in cliques)]
        for a in missing:
            assert np.abs(report.data.marginal(a) - n / domain[a]).max() < 1


# -- impossible cells --------------------------------------------------------------------------------


@pytest.mark.parametrize("consistency", ["local", "global"])
@pytest.mark.parametrize("n", [1, 30, 5000])
def test_impossible_cells_stay_empty(consistency: str, n: int) -> None:
    mask = np.ones((2, 3), bool)
    mask[0, 1:] = False
    counts = true_counts(D, 1)
    counts[0, 1:] = 0
    measured = [
        Measurement(c, marginal_of(D, counts, c) + np.random.default_rng(0).normal(0, 5, D.shape_of(c)), stddev=5)
        for c in cliques_of("ab bc cd ad ac bd")
    ]  # fmt: skip
    model = reconstruct(
        D,
        measured,
        total=RECORDS,
        fit=LeastSquares(consistency=consistency, possible={("a", "b"): mask}),
    )
    for sweeps in (None, 0, 2):
        report = model.sample_with_report(n, 3, sweeps=sweeps)
        assert report.data.marginal(("a", "b"))[~mask].sum() == 0


def test_rows_that_can_not_be_made_possible_are_replaced() -> None:
    """Drawn from tables that know nothing of the mask, and not moved."""
    allowed = CliqueVector.from_tables(D, {("a", "b"): [[1, 1, 0], [1, 0, 0]]})
    codes = np.zeros((6, 5), np.int32)
    codes[:, 1] = [0, 1, 2, 2, 1, 0]
    codes[4:, 0] = 1
    before = codes.copy()
    assert _replace_impossible(allowed, codes, np.random.default_rng(0)) == 3
    good = [0, 1, 5]
    np.testing.assert_array_equal(codes[good], before[good])
    assert all(any((row == before[g]).all() for g in good) for row in codes)
    codes[:, :2] = [1, 2]
    with pytest.raises(ConsilienceError, match=r"some drawn row must be possible, none of 6 is"):
        _replace_impossible(allowed, codes, np.random.default_rng(0))


# -- beside others -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 5, 100])
def test_the_deviation_of_independent_rows(n: int) -> None:
    p = np.array([0.0, 1e-9, 0.01, 0.3, 0.5, 0.97, 1.0])
    k = np.arange(n + 1)[:, None]
    expected = (binom.pmf(k, n, p) * np.abs(k - n * p)).sum(axis=0)
    np.testing.assert_allclose(independent_deviation(n, p), expected, atol=1e-12)


def test_labels_types_and_columns_come_back_as_declared() -> None:
    data = population(2000, np.random.default_rng(0))
    domain = POPULATION_SCHEMA.domain
    pairs = list(zip(domain.attributes, domain.attributes[1:], strict=False))
    measured = [Measurement(c, data.marginal(c), stddev=1.0) for c in pairs]
    rows = reconstruct(domain, measured, total=2000.0).sample(500, 0)
    columns = POPULATION_SCHEMA.decode(rows)
    original = POPULATION_SCHEMA.decode(data)
    assert list(columns) == list(domain.attributes)
    for name, values in columns.items():
        assert len(values) == 500
        assert np.asarray(values).dtype == np.asarray(original[name]).dtype
    np.testing.assert_array_equal(POPULATION_SCHEMA.encode(columns).to_array(), rows.to_array())


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif(not FIRE.exists(), reason=f"needs the paper's data, {FIRE}")
def test_fires_pairs_come_back_in_the_rows() -> None:
    """All 105 pairs at epsilon 1 (delta 1e-6, add-remove), 300,000 rows: mean total variation well below 0.01."""
    domain = Domain(json.loads((FOLDER / "fire-domain.json").read_text()))
    with gzip.open(FIRE, "rt") as file:
        header = file.readline().strip().split(",")
        raw = np.loadtxt(file, delimiter=",", dtype=np.int64)
    data = Dataset(raw[:, [header.index(a) for a in domain]], domain)
    rng, stddev = np.random.default_rng(0), 5.35 * np.sqrt(105)
    measured = []
    for pair in combinations(domain, 2):
        noise = stddev * rng.standard_normal(domain.shape_of(pair))
        measured.append(Measurement(pair, data.marginal(pair) + noise, stddev=stddev))
    model = reconstruct(
        domain,
        measured,
        total=float(len(data)),
        fit=LeastSquares(consistency="local", tolerance=1e-4),
    )
    model.__dict__["_backbone"] = backbone_of(model.known, memory="1 MB")  # a thin one, for speed
    report = model.sample_with_report(300_000, 0)
    assert report.distance < 0.005 < report.before
