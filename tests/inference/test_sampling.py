"""Rows: unbiased against the enumerated joint, nearer to the model than independent rows, odd sizes, seeds, words."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from functools import reduce
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2

from consilience.data import POPULATION_SCHEMA, population
from consilience.domain import CliqueVector, Domain
from consilience.errors import ConsilienceError
from consilience.fits import LeastSquares, reconstruct
from consilience.inference.sampling import (
    _replace_impossible,
    independent_deviation,
    sample_rows,
)
from consilience.kernels.rows import draw_cells
from consilience.measurements import Measurement
from consilience.records import Dataset
from consilience.regions.junction_tree import JunctionTree
from consilience.tree.growth import backbone_of
from consilience.tree.rows import tree_rows
from solvers.problems import RECORDS, D, cliques_of, marginal_of, noisy, true_counts

FOLDER = Path(os.environ.get("CONSILIENCE_DATA", Path(__file__).parents[3] / "shared" / "data"))
FIRE = FOLDER / "fire.csv.gz"
CYCLE = "ab bc cd ad"
GLOBAL = reconstruct(
    D, noisy(D, "abc bcd de", 2), total=RECORDS, fit=LeastSquares(consistency="global")
)
LOCAL = reconstruct(
    D, noisy(D, f"{CYCLE} de", 3), total=RECORDS, fit=LeastSquares(consistency="local")
)

UNEQUAL = 0.95
FRUSTRATED = reconstruct(
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
"""Three attributes, each pair unequal in 95 of 100 rows: consistent pair by pair, but no rows have such tables."""
MODELS = {"global": GLOBAL, "local": LOCAL, "frustrated": FRUSTRATED}


TREE = JunctionTree.of(D, cliques_of("abc bcd de"))
JOINT = true_counts(D, 5) / RECORDS
BELIEFS = CliqueVector.from_tables(D, {c: marginal_of(D, JOINT, c) for c in TREE.cliques})


def tree_joint() -> np.ndarray:
    """The product of clique tables over separator tables, enumerated."""

    def spread(clique: tuple[str, ...]) -> np.ndarray:
        shape = [D[a] if a in clique else 1 for a in D]
        return marginal_of(D, JOINT, clique).reshape(shape)

    with np.errstate(invalid="ignore"):
        return reduce(np.multiply, map(spread, TREE.cliques)) / reduce(
            np.multiply, map(spread, TREE.separators)
        )


P = tree_joint()


def test_the_judge_is_a_distribution() -> None:
    assert P.sum() == pytest.approx(1)
    assert len(TREE.cliques) == 3


# -- drawing -----------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(0, 10).map(lambda x: max(0.0, x - 1)), min_size=1, max_size=12),
    st.integers(0, 40),
    st.floats(0, 1, exclude_max=True),
)
def test_counts_are_roundings_of_their_expectations(
    mass: list[float], n: int, offset: float
) -> None:
    table = np.array(mass)
    if table.sum() == 0:
        table[0] = 1.0
    drawn = np.full(n, -1)
    draw_cells(table, offset, drawn)
    counts = np.bincount(drawn, minlength=table.size)
    expected = n * table / table.sum()
    assert (np.abs(counts - expected) < 1 + 1e-9).all()
    assert counts[table == 0].sum() == 0
    assert (np.diff(drawn) >= 0).all()


def test_a_draw_is_unbiased_over_its_offset() -> None:
    mass = np.array([0.5, 0.0, 0.3, 1.2, 0.01])
    offsets = (np.arange(20_000) + 0.5) / 20_000
    drawn = np.empty((len(offsets), 3), np.int64)
    for offset, row in zip(offsets, drawn, strict=True):
        draw_cells(mass, float(offset), row)
    counts = np.bincount(drawn.reshape(-1), minlength=5) / len(offsets)
    np.testing.assert_allclose(counts, 3 * mass / mass.sum(), atol=2e-4)


@pytest.mark.parametrize("n", [1, 7, 200])
def test_expected_counts_are_those_of_the_model_whatever_the_attributes(n: int) -> None:
    draws = 1500
    rows = np.stack(
        [tree_rows(TREE, BELIEFS, n, np.random.default_rng([n, seed])) for seed in range(draws)]
    )
    data = Dataset(rows.reshape(-1, len(D)), D)
    for clique in combinations(D, 2):
        p = marginal_of(D, P, clique)
        found = data.marginal(clique) / (draws * n)
        # Systematic counts vary at most as much as binomial ones on the tree; 5 standard errors of the latter.
        assert (np.abs(found - p) <= 5 * np.sqrt(p * (1 - p) / (draws * n)) + 1e-12).all(), clique


@pytest.mark.parametrize("position", [0, 4])
def test_every_row_by_itself_follows_the_model(position: int) -> None:
    draws = 4000
    rows = [
        tree_rows(TREE, BELIEFS, 5, np.random.default_rng(seed))[position] for seed in range(draws)
    ]
    found = Dataset(np.stack(rows), D).marginal(tuple(D)).reshape(-1)
    p = P.reshape(-1)
    big = p * draws >= 5
    counts = np.append(found[big], found[~big].sum())
    expected = draws * np.append(p[big], p[~big].sum())
    statistic = float((np.square(counts - expected) / expected).sum())
    assert chi2.sf(statistic, len(counts) - 1) > 1e-3
    # The same statistic tells a distribution apart that is off by a tenth of a cell in ten.
    tilted = expected * np.linspace(0.7, 1.3, len(expected))
    statistic = float((np.square(counts - tilted) / tilted).sum())
    assert chi2.sf(statistic, len(counts) - 1) < 1e-3


def test_rows_do_not_depend_on_their_place() -> None:
    rows = tree_rows(TREE, BELIEFS, 60_000, np.random.default_rng(0))
    half = Dataset(rows[:30_000], D).marginals(TREE.cliques).values / 30_000
    assert np.abs(half - BELIEFS.values).max() < 0.01


def test_tree_rows_are_much_nearer_than_independent_ones() -> None:
    n = 20_000
    rows = tree_rows(TREE, BELIEFS, n, np.random.default_rng(1))
    counts = Dataset(rows, D).marginals(TREE.cliques).values
    deviation = np.abs(counts - n * BELIEFS.values).sum()
    assert deviation < 0.25 * independent_deviation(n, BELIEFS.values).sum()


def test_cells_that_later_tables_can_not_continue_are_never_entered() -> None:
    domain = Domain({"a": 2, "b": 2, "c": 2})
    tree = JunctionTree.of(domain, cliques_of("ab bc"))
    tables = {tuple("ab"): [[0.5, 1e-3], [0.499, 0.0]], tuple("bc"): [[0.4, 0.6], [0.0, 0.0]]}
    rows = tree_rows(tree, CliqueVector.from_tables(domain, tables), 5000, np.random.default_rng(0))
    assert (rows[:, 1] == 0).all()
    tables["b", "c"] = [[0.0, 0.0], [0.0, 0.0]]
    with pytest.raises(ConsilienceError, match="must leave some row possible"):
        tree_rows(tree, CliqueVector.from_tables(domain, tables), 5, np.random.default_rng(0))


# -- models ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("n", [0, 1, 2, 1000, 50_000])
def test_a_sample_is_a_dataset_of_the_models_domain(name: str, n: int) -> None:
    rows = MODELS[name].sample(n, rng=0)
    assert isinstance(rows, Dataset)
    assert (len(rows), rows.domain, rows.weights) == (n, MODELS[name].domain, None)


@pytest.mark.parametrize("name", MODELS)
def test_the_reported_distance_is_the_distance(name: str) -> None:
    model = MODELS[name]
    report = model.sample_with_report(3000, 4)
    found = {
        r: np.abs(report.data.marginal(r) / 3000 - model.marginal(r) / model.total).sum() / 2
        for r in model.known.cliques
    }
    assert report.distance == pytest.approx(np.mean(list(found.values())), abs=1e-12)
    assert report.worst == pytest.approx(max(found.values()), abs=1e-12)
    assert found[report.worst_clique] == pytest.approx(report.worst, abs=1e-12)


@pytest.mark.parametrize("name", ["global", "local"])
def test_rows_are_nearer_than_independent_ones(name: str) -> None:
    report = MODELS[name].sample_with_report(3000, 4)
    assert report.distance < 0.5 * report.independent


def test_global_models_are_sampled_exactly_and_others_moved() -> None:
    exact, moved = (m.sample_with_report(5000, 1) for m in (GLOBAL, FRUSTRATED))
    assert (exact.exact, exact.sweeps, exact.moved, exact.distance) == (True, 0, 0.0, exact.before)
    assert not moved.exact
    assert moved.sweeps == 8
    assert moved.distance <= moved.before
    assert "5,000 rows drawn exactly from the model" in str(exact)
    assert "8 sweeps moved" in str(moved)
    assert "5,000 rows drawn from the backbone" in str(moved)


def test_what_no_rows_can_meet_is_left_as_distance() -> None:
    """A row makes at most two of three pairs unequal, so their mean total variation is at least 0.95 - 2/3."""
    report = FRUSTRATED.sample_with_report(30_000, 0)
    least = (3 * UNEQUAL - 2) / 4
    assert least - 1e-6 <= report.distance < 1.02 * least


def test_rows_of_a_thin_backbone_are_moved_to_the_other_tables() -> None:
    model = replace(LOCAL)
    thin = backbone_of(model.known, memory=100)
    assert not thin.whole
    model.__dict__["backbone"] = thin  # where the cached property keeps it
    report = model.sample_with_report(5000, 0)
    assert report.distance < 0.2 * report.before
    assert 0 < report.moved < 0.1


def test_sweeps_that_are_given_are_honoured() -> None:
    assert FRUSTRATED.sample_with_report(500, 1, sweeps=0).moved == 0.0
    moved = GLOBAL.sample_with_report(500, 1, sweeps=3)
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


def test_the_total_does_not_bound_the_rows() -> None:
    few, many = (LOCAL.sample_with_report(n, 0, sweeps=4) for n in (100, 100_000))
    assert many.distance < few.distance
    assert many.data.total == 100_000 > LOCAL.total


@pytest.mark.parametrize("name", MODELS)
def test_a_seed_or_a_generator_decides_the_rows(name: str) -> None:
    model = MODELS[name]
    one = model.sample(400, 7).to_array()
    np.testing.assert_array_equal(one, model.sample(400, np.random.default_rng(7)).to_array())
    assert (one != model.sample(400, 8).to_array()).any()
    assert (model.sample(400).to_array() != model.sample(400).to_array()).any()


def test_progress_goes_up_to_the_end() -> None:
    seen: list[tuple[int, int]] = []
    FRUSTRATED.prepare()
    FRUSTRATED.sample(300, 0, progress=lambda done, of: seen.append((done, of)))
    assert [done for done, _ in seen] == list(range(1, seen[-1][1] + 1))
    assert len({of for _, of in seen}) == 1


@pytest.mark.parametrize("n", [-1, 2.5, True, "3", None])
def test_the_number_of_rows_is_checked(n: object) -> None:
    with pytest.raises(ConsilienceError, match="number of rows, must be a whole number from 0 on"):
        LOCAL.sample(n)  # pyright: ignore[reportArgumentType]


def test_sweeps_are_checked() -> None:
    with pytest.raises(ConsilienceError, match="sweeps must be a whole number from 0 on, got -2"):
        LOCAL.sample(3, sweeps=-2)


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
    model.__dict__["backbone"] = backbone_of(model.known, memory="1 MB")  # a thin one, for speed
    report = model.sample_with_report(300_000, 0)
    assert report.distance < 0.005 < report.before
