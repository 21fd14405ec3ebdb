"""model.whole(): whole tables that agree, their rows, controls, files; rows that keep controls."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import consilience as cs
from consilience.errors import ConsilienceError
from consilience.measurements.controls import bound_controls
from consilience.model.controlled_rows import keep_controls
from consilience.model.sampling import _targets

PLACES = cs.Domain(
    {"sex": 2, "block": 12, "age": 3, "unseen": 2},
    {"tract": ("block", np.arange(12) // 3), "county": ("tract", [0, 0, 1, 1])},
)
CYCLE = cs.Domain({"a": 4, "b": 5, "c": 3, "d": 6})
PAIRS = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")]


def with_controls(model: cs.Model, *controls: cs.Bounds) -> cs.Model:
    """A model that knows of controls it was not fitted with: rounding and rows must meet them all the same."""
    return replace(model, fit=cs.LeastSquares(controls=controls))


def people(domain: cs.Domain, n: int, seed: int) -> cs.Dataset:
    rng = np.random.default_rng(seed)
    codes = np.column_stack([np.minimum(rng.geometric(0.4, n) - 1, k - 1) for k in domain.shape])
    codes[:, 1] = (codes[:, 0] + codes[:, 1]) % domain.shape[1]
    return cs.Dataset(codes, domain)


def measured(data: cs.Dataset, cliques, stddev: float, seed: int) -> list[cs.Measurement]:
    rng = np.random.default_rng(seed)
    tables = [data.marginal(c) for c in cliques]
    return [
        cs.Measurement(c, t + rng.normal(0, stddev, t.shape), stddev=stddev)
        for c, t in zip(cliques, tables, strict=True)
    ]


@pytest.fixture(scope="module")
def places() -> cs.Model:
    cliques = [("county", "sex"), ("tract", "age"), ("sex", "block", "age")]
    return cs.reconstruct(PLACES, measured(people(PLACES, 700, 1), cliques, 3.0, 2))


@pytest.fixture(scope="module")
def cycle() -> cs.Model:
    return cs.reconstruct(
        CYCLE,
        measured(people(CYCLE, 800, 3), PAIRS, 4.0, 4),
        800,
        cs.LeastSquares(consistency="local"),
    )


def assert_agree(model: cs.Model, cliques) -> None:
    """Whole tables whose sums are equal on everything that two of them share."""
    tables = {c: model.marginal(c) for c in cliques}
    for c, t in tables.items():
        assert np.array_equal(t, np.rint(t)), c
        assert t.min() >= 0
        assert t.sum() == model.total
    for one, other in combinations(cliques, 2):
        shared = tuple(a for a in one if a in other)
        down = [
            tables[c].sum(axis=tuple(i for i, a in enumerate(c) if a not in shared))
            for c in (one, other)
        ]
        assert np.array_equal(*down), (one, other)


def test_places_are_whole_at_every_level_and_within_one(places):
    whole = places.whole()
    assert whole.total == round(places.total)
    assert_agree(whole, [("sex", "block", "age"), ("sex", "block"), ("block",), ("sex", "age")])
    for k in [("sex", "block", "age"), ("sex", "tract", "age"), ("sex", "county", "age"), ("tract",), ("county",)]:  # fmt: skip
        assert np.abs(whole.marginal(k) - places.marginal(k)).max() < 1, k
    blocks = whole.marginal(("block", "age"))
    assert np.array_equal(whole.marginal(("tract", "age")), blocks.reshape(4, 3, 3).sum(axis=1))
    assert whole.rounding is not None
    assert whole.rounding.nearest
    assert 0 < whole.rounding.bound <= whole.rounding.distance
    assert whole.rounding.largest < 1
    assert whole.whole() is whole
    assert "block x age" in str(whole.rounding)


def test_rows_of_a_whole_table_are_its_cells(places):
    whole = places.whole()
    rows = whole.sample_with_report(int(whole.total), 7)
    assert rows.exact
    everything = ("sex", "block", "age")
    assert np.array_equal(rows.data.marginal(everything), whole.marginal(everything))
    fewer = whole.sample(50, 7)
    assert len(fewer) == 50


def test_what_no_table_holds_is_inferred_and_not_whole(places):
    whole = places.whole()
    assert not whole.is_whole(("sex", "unseen"))
    assert whole.marginal(("sex", "unseen")).sum() == pytest.approx(whole.total)


def test_tables_that_overlap_become_those_of_rows(cycle):
    whole = cycle.whole()
    assert_agree(whole, [*PAIRS, ("a", "c"), ("b", "c", "d"), ("a",)])
    assert whole.rounding is not None
    rows = whole.rounding.rows
    assert rows is not None
    for c in PAIRS:
        assert np.array_equal(rows.marginal(c), whole.marginal(c))
        far = np.abs(whole.marginal(c) - cycle.marginal(c))
        assert whole.rounding.tables[c] == pytest.approx((far.sum(), far.max()))
        assert far.sum() / 1600 < 0.05  # total variation
    again = whole.sample(800, 5)
    assert np.array_equal(again.marginal(("b", "c", "d")), rows.marginal(("b", "c", "d")))
    assert np.array_equal(cycle.whole().tau.values, whole.tau.values)  # nothing is left to chance


def test_pairs_of_one_joint_become_those_of_rows_and_stay_near():
    """Rounding every cell of the joint would move its pairs by several records."""
    data = people(CYCLE, 600, 5)
    pairs = list(combinations("abcd", 2))
    fit = cs.LeastSquares(consistency="global")
    model = cs.reconstruct(CYCLE, measured(data, pairs, 3.0, 6), 600, fit)
    whole = model.whole()
    assert_agree(whole, [*pairs, ("a", "b", "c")])
    assert whole.rounding is not None
    assert whole.rounding.rows is not None
    assert whole.rounding.largest < 2.5


@pytest.mark.parametrize("made", ["places", "cycle"])
def test_a_file_keeps_whole_numbers(made, request, tmp_path):
    whole = request.getfixturevalue(made).whole()
    whole.save(tmp_path / "model.npz")
    again = cs.load(tmp_path / "model.npz")
    for c in whole.known.cliques:
        assert np.array_equal(again.marginal(c), whole.marginal(c))
    assert str(again.rounding) == str(whole.rounding)
    assert again.total == whole.total
    n = int(whole.total)
    first = whole.known.cliques[0]
    assert np.array_equal(again.sample(n, 1).marginal(first), whole.marginal(first))


def test_errors_stay_those_of_the_fit(places):
    whole = places.lasting(8).whole()
    table = whole.uncertainty(("tract",))
    assert np.array_equal(table.answer, whole.marginal("tract"))
    assert (table.stderr > 0).all()


def test_controls_hold_in_whole_tables_and_rows(places):
    data = people(PLACES, 700, 1)
    exact = cs.Exact(("county", "sex"), data.marginal(("county", "sex")))
    model = with_controls(places, exact, cs.Bounds("age", 20, 500))
    whole = model.whole()
    assert whole.total == 700
    assert np.array_equal(whole.marginal(("county", "sex")), exact.values)
    assert np.array_equal(whole.sample(700, 1).marginal(("county", "sex")), exact.values)
    assert np.array_equal(model.sample(700, 1).marginal(("county", "sex")), exact.values)


PUBLIC = {
    "county by sex": [("county", "sex")],
    "places within places": [("county",), ("tract",)],
    "two lines": [("tract",), ("sex", "age")],
    "crossing": [("county",), ("sex",), ("age",)],
}


@pytest.mark.parametrize("names", PUBLIC.values(), ids=PUBLIC.keys())
def test_a_fit_with_controls_stays_within_one(names):
    data = people(PLACES, 700, 1)
    cliques = [("tract", "age"), ("sex", "block", "age")]
    fit = cs.LeastSquares(controls=[cs.Exact(c, data.marginal(c)) for c in names])
    model = cs.reconstruct(PLACES, measured(data, cliques, 3.0, 2), fit=fit)
    whole, rows = model.whole(), model.sample(700, 1)
    for c in names:
        assert np.array_equal(whole.marginal(c), data.marginal(c))
        assert np.array_equal(rows.marginal(c), data.marginal(c))
    for k in [("sex", "block", "age"), ("sex", "tract", "age"), ("sex", "county", "age")]:
        assert np.abs(whole.marginal(k) - model.marginal(k)).max() < 1 + 1e-6


@pytest.mark.parametrize("names", [["a", "b", "c", "d"], [("a", "b"), ("b", "c"), "d"]])
def test_published_totals_with_noisy_pairs(names):
    data = people(CYCLE, 800, 3)
    controls = [cs.Exact(c, data.marginal(c)) for c in names]
    fit = cs.LeastSquares(consistency="local", controls=controls)
    model = cs.reconstruct(CYCLE, measured(data, PAIRS, 4.0, 4), fit=fit)
    drawn, whole = model.sample_with_report(800, 1), model.whole()
    assert drawn.distance < 0.02
    for c in names:
        assert np.array_equal(drawn.data.marginal(c), data.marginal(c))
        assert np.array_equal(whole.marginal(c), data.marginal(c))


CONTROLS = {
    "one-way": [("a",), ("b",), ("c",), ("d",)],
    "a chain": [("a", "b"), ("b", "c"), ("d",)],
    "nested": [("a", "b"), ("a",), ("c",)],
    "a circle": [("a", "b"), ("b", "c"), ("a", "c")],
}


@pytest.mark.parametrize("names", CONTROLS.values(), ids=CONTROLS.keys())
def test_published_totals_hold_in_rows_of_overlapping_tables(names, cycle):
    data = people(CYCLE, 800, 3)
    model = with_controls(cycle, *[cs.Exact(c, data.marginal(c)) for c in names])
    drawn = model.sample_with_report(800, 1)
    for c in names:
        assert np.array_equal(drawn.data.marginal(c), data.marginal(c))
    assert drawn.controlled > 0
    assert "every control holds exactly" in str(drawn)
    assert drawn.distance < 0.06  # of a model that was not fitted with them
    whole = model.whole()
    for c in names:
        assert np.array_equal(whole.marginal(c), data.marginal(c))


def test_other_numbers_of_rows_keep_controls_in_proportion(cycle):
    data = people(CYCLE, 800, 3)
    model = with_controls(cycle, *[cs.Exact(c, data.marginal(c)) for c in ["a", ("b", "c")]])
    rows = model.sample(333, 2)
    for c in ["a", ("b", "c")]:
        assert np.abs(rows.marginal(c) - data.marginal(c) * 333 / 800).max() < 1


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_any_chain_of_controls_is_met(seed):
    """Rows drawn anyhow, controls of some other people, at levels too."""
    rng = np.random.default_rng(seed)
    lists = [
        [("county",), ("tract", "sex"), ("sex", "age")],
        [("block",), ("county", "age")],
        [("tract", "age"), ("county",), ("sex",)],
    ]
    names = lists[int(rng.integers(len(lists)))]
    rows, data = (people(PLACES, 200, int(k)) for k in rng.integers(0, 10**6, 2))
    tau = cs.reconstruct(PLACES, [cs.Measurement("sex", [1.0, 1.0], stddev=1.0)], 200)
    controls = [cs.Exact(c, data.marginal(c)) for c in names]
    codes = np.ascontiguousarray(rows.to_array().astype(np.int32))
    keep_controls(bound_controls(PLACES, controls), 200, _targets(tau.known, {}), None, codes, rng)
    found = cs.Dataset(codes, PLACES)
    for c in names:
        assert np.array_equal(found.marginal(c), data.marginal(c)), c


def test_impossible_cells_stay_empty_in_whole_tables_and_controlled_rows():
    drawn = people(CYCLE, 900, 3).to_array()
    allowed = np.ones((4, 5), bool)
    allowed[[0, 1, 3], [4, 0, 2]] = False
    data = cs.Dataset(drawn[allowed[drawn[:, 0], drawn[:, 1]]], CYCLE)
    n, possible = len(data), {("a", "b"): allowed}
    assert n < 900
    controls = [cs.Exact(c, data.marginal(c)) for c in "abcd"]
    fit = cs.LeastSquares(consistency="local", controls=controls, possible=possible)
    model = cs.reconstruct(CYCLE, measured(data, PAIRS, 4.0, 4), fit=fit)
    rows, whole = model.sample(n, 1), model.whole()
    for found in (rows.marginal(("a", "b")), whole.marginal(("a", "b"))):
        assert not found[~possible["a", "b"]].any()
    for c in "abcd":
        assert np.array_equal(rows.marginal(c), data.marginal(c))


def test_bounds_hold_in_rows(cycle):
    model = with_controls(cycle, cs.Bounds("d", 100, 180), cs.Bounds("a", 0, 250))
    rows = model.sample(800, 1)
    assert 100 <= rows.marginal("d").min() <= rows.marginal("d").max() <= 180
    assert rows.marginal("a").max() <= 250


@pytest.mark.parametrize(
    ("controls", "words"),
    [
        ([cs.Bounds("d", 0, 100)], "must hold together"),
        ([cs.Exact("a", [300, 300, 100, 100]), cs.Exact(("a", "b"), np.full((4, 5), 40))], "together"),
    ],
)  # fmt: skip
def test_controls_that_contradict_are_refused(controls, words, cycle):
    with pytest.raises(ConsilienceError, match=words):
        with_controls(cycle, *controls).sample(800, 1)


def test_a_control_outside_the_table_is_refused(places):
    with pytest.raises(ConsilienceError, match="inside a table of the model"):
        with_controls(places, cs.Exact(("sex", "unseen"), [[100, 200], [100, 300]])).whole()
