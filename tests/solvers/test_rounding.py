"""Whole numbers: beside enumeration, beside HiGHS, and what must hold for every table."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import milp

from consilience import Bounds, Domain, Exact
from consilience.errors import ConsilienceError
from consilience.measurements.controls import bound_controls
from consilience.solvers import rounding
from consilience.solvers.rounding import levels_of, round_table, sums_over

CLIQUE = ("block", "race", "age")
PLACES = Domain(
    {"block": 6, "race": 3, "age": 2},
    {"tract": ("block", [0, 1, 0, 2, 2, 1]), "county": ("tract", [0, 0, 1])},
)


def fitted(domain: Domain, seed: int, empty: float = 0.3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.exponential(1.5, domain.shape) * (rng.random(domain.shape) >= empty)


def agreeing(domain: Domain, table: np.ndarray, *cliques: tuple[str, ...]) -> list[Exact]:
    """Exact controls that some whole table near this one meets."""
    clique = domain.attributes
    whole = round_table(domain, clique, table).table
    return [Exact(c, sums_over(domain, clique, whole, c)) for c in cliques]


@pytest.fixture(params=["program", "kernel"])
def road(request, monkeypatch):
    """Both ways to the whole numbers of one network."""
    if request.param == "kernel":
        monkeypatch.setattr(rounding, "PROGRAM", -1)
    return request.param


def objective(domain: Domain, table: np.ndarray, whole: np.ndarray, sums) -> float:
    clique = domain.attributes
    return sum(
        float(
            np.abs(sums_over(domain, clique, table, k) - sums_over(domain, clique, whole, k)).sum()
        )
        for k in (clique, *sums, ())
    )


def enumerated(domain: Domain, table: np.ndarray, sums, total: int) -> float:
    """The least distance over all tables of neighbours whose sums are neighbours."""
    clique = domain.attributes
    least = np.inf
    floor = np.floor(table)
    spots = np.flatnonzero(table > floor)
    for up in product((0, 1), repeat=len(spots)):
        whole = floor.copy()
        whole.reshape(-1)[spots] += up
        near = all(
            (
                np.abs(sums_over(domain, clique, table, k) - sums_over(domain, clique, whole, k))
                < 1
            ).all()
            for k in sums
        )
        if near and whole.sum() == total:
            least = min(least, objective(domain, table, whole, sums))
    return least


@pytest.mark.parametrize("seed", range(6))
def test_small_tables_are_the_nearest_of_all(seed):
    domain = Domain({"block": 4, "sex": 3}, {"tract": ("block", [0, 1, 1, 0])})
    table = fitted(domain, seed)
    found = round_table(domain, domain.attributes, table)
    assert found.nearest
    assert found.sums == (("tract", "sex"), ("sex",), ("block",), ("tract",))
    made = objective(domain, table, found.table, found.sums)
    assert made == pytest.approx(
        enumerated(domain, table, found.sums, round(table.sum())), abs=1e-9
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_program_equals_integer_programming_and_the_kernel_comes_near(seed, monkeypatch):
    table = fitted(PLACES, seed, 0.2)
    found = round_table(PLACES, CLIQUE, table)
    best = integer_program(PLACES, table, found.sums)
    made = objective(PLACES, table, found.table, found.sums)
    assert made == pytest.approx(best, abs=1e-6)
    monkeypatch.setattr(rounding, "PROGRAM", -1)
    quick = round_table(PLACES, CLIQUE, table)
    assert not quick.nearest
    assert best - 1e-9 <= objective(PLACES, table, quick.table, quick.sums) <= 1.25 * best


def integer_program(domain: Domain, table: np.ndarray, sums) -> float:
    """The same problem written out row by row: a variable for each cell and each sum."""
    clique = domain.attributes
    cells = [np.eye(table.size)]
    for k in (*sums, ()):
        unit = np.eye(table.size).reshape(table.size, *table.shape)
        cells.append(
            np.array([np.asarray(sums_over(domain, clique, u, k)).reshape(-1) for u in unit]).T
        )
    matrix = np.vstack(cells)
    real = matrix @ table.reshape(-1)
    low, high = np.floor(real), np.ceil(real)
    low[-1] = high[-1] = round(table.sum())
    # L1 is linear between neighbours: |low - real| + (x - low) (|high - real| - |low - real|).
    slope = np.abs(high - real) - np.abs(low - real)
    found = milp(
        slope @ matrix,
        constraints=(sparse.csr_array(matrix), low, high),
        integrality=np.ones(table.size),
    )
    return float((np.abs(low - real) + slope * (matrix @ np.rint(found.x) - low)).sum())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.floats(0, 1))
def test_every_sum_is_a_neighbour_and_the_total_is_rounded(seed, quick, empty):
    rng = np.random.default_rng(seed)
    blocks, tracts = int(rng.integers(3, 12)), 3
    units = rng.permutation(
        np.concatenate([np.arange(tracts), rng.integers(0, tracts, blocks - 3)])
    )
    domain = Domain(
        {"race": int(rng.integers(1, 4)), "block": blocks, "age": int(rng.integers(1, 4))},
        {"tract": ("block", units), "county": ("tract", [0, 1, 1])},
    )
    table = fitted(domain, seed, empty)
    table[0, 0, 0] += 1.3
    with pytest.MonkeyPatch.context() as patch:
        if quick:
            patch.setattr(rounding, "PROGRAM", -1)
        found = round_table(domain, domain.attributes, table)
    assert found.table.dtype == np.int64
    assert found.table.min() >= 0
    for k in (domain.attributes, *levels_of(domain, domain.attributes)):
        real = sums_over(domain, domain.attributes, table, k)
        whole = sums_over(domain, domain.attributes, found.table, k)
        assert np.abs(real - whole).max() < 1 + 1e-9
    assert found.table.sum() == round(float(table.sum()))


CONTROLS = {
    "places": [("county",)],
    "nested": [("county", "race"), ("county",)],
    "cells": [("race",)],
    "two lines": [("county", "race"), ("tract",)],
    "crossing": [("tract",), ("race",), ("age",)],
}


@pytest.mark.parametrize("names", CONTROLS.values(), ids=CONTROLS.keys())
@pytest.mark.parametrize("seed", range(3))
def test_exact_controls_hold(names, seed, road):
    table = fitted(PLACES, seed, 0.1)
    controls = bound_controls(PLACES, agreeing(PLACES, table, *names))
    found = round_table(PLACES, CLIQUE, table, controls)
    for c in controls:
        assert np.array_equal(sums_over(PLACES, CLIQUE, found.table, c.named), c.low)
    assert np.abs(found.table - table).max() < 2.5  # of a table that was not fitted with them


def test_bounds_hold_where_the_fitted_sums_leave_whole_numbers(road):
    table = np.full((6, 3, 2), 0.55)
    controls = bound_controls(PLACES, [Bounds("tract", 6.8, 7.3), Bounds("race", 0, 7)])
    found = round_table(PLACES, CLIQUE, table, controls)
    assert sums_over(PLACES, CLIQUE, found.table, ("tract",)).tolist() == [7, 7, 7]
    assert sums_over(PLACES, CLIQUE, found.table, ("race",)).max() <= 7


def test_cells_that_hold_nothing_stay_empty(road):
    table = fitted(PLACES, 1, 0.5)
    found = round_table(PLACES, CLIQUE, table)
    assert not found.table[table == 0].any()
    assert np.array_equal(
        round_table(PLACES, CLIQUE, np.floor(table) + 1).table, np.floor(table) + 1
    )


@pytest.mark.parametrize(
    ("controls", "words"),
    [
        ([Exact("race", [10.5, 9.0, 8.5])], "need controls that leave one"),
        ([Exact("race", [10, 9, 8]), Exact("age", [10, 10])], "must hold together"),
        ([Bounds("race", 0, 2)], "must hold together"),
    ],
)
def test_refusals(controls, words):
    table = np.full((6, 3, 2), 0.75)
    with pytest.raises(ConsilienceError, match=words):
        round_table(PLACES, CLIQUE, table, bound_controls(PLACES, controls))


def test_a_total_below_one_is_refused():
    with pytest.raises(ConsilienceError, match="at least one record"):
        round_table(PLACES, CLIQUE, np.full((6, 3, 2), 0.001))


@pytest.mark.parametrize("order", ["C", "F"])
def test_order_in_memory_and_last_digits_do_not_matter(order):
    """Columns taken out of a larger table are not in C order; a five may have come as 4.999999999999."""
    domain = Domain({"unit": 3, "cell": 2})
    table = np.array([[1.4, 5.0 - 1e-12], [2.3, 0.5], [0.3, 1.5]], order=order)
    limits = bound_controls(domain, [Exact("cell", [4, 7])])
    found = round_table(domain, ("unit", "cell"), table, limits)
    assert found.table.sum(axis=0).tolist() == [4, 7]
    assert np.abs(found.table - table).max() < 1
    assert found.table[0, 1] == 5
